"""Has providers let in to machines what the firewall rules of their leases open, and looks once an hour.

Both filter: the machine by the same rules (`apply_firewalls`), and before it the provider, where its firewall can
follow the rules of one machine. No machine is opened here before its customer is admitted, and by then its own firewall
stands. The loop reads what the provider lets in, changes one thing, and reads again, until nothing is left to do: an
answer that was lost, a run that was killed, and what somebody changed at the provider are all found by the next look.
Rules that do not end with their machine are its children (`sweep_children`).
"""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from control_plane.db import firewalls, provider_firewalls
from control_plane.db.firewalls import CHANGES
from control_plane.db.provider_firewalls import Due
from control_plane.domain.firewall import LOOK_EVERY, ProviderFirewall, next_try
from control_plane.domain.ids import AccountName
from control_plane.domain.ingress import ingress
from providers.base import ProviderError
from providers.optional import HasFirewall
from reconciler.loop import AccountLoop, Report, each
from reconciler.renewal import renewed
from reconciler.worlds.machines import MachineWorld

NAME = "apply_provider_firewalls"
MACHINES_PER_ACTIVATION_MAX = 16
STEPS_MAX = 64
STEPPING_FOR = timedelta(seconds=20)
HELD_FOR = timedelta(minutes=1)
"""How long a machine waits when the process of its worker is gone."""
LASTS = timedelta(minutes=3)
"""Of an activation: the last step of a turn may be one that a slow provider answers at its third try."""


async def activate(world: MachineWorld, account: AccountName) -> Report:
    provider = world.accounts[account]
    if provider.capabilities.firewall is not ProviderFirewall.FOLLOWS:
        return Report()
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        due = await provider_firewalls.take(
            connection,
            account,
            token=token,
            now=now,
            until=now + HELD_FOR,
            limit=MACHINES_PER_ACTIVATION_MAX,
        )
    report = Report(looked_at=len(due), more=len(due) == MACHINES_PER_ACTIVATION_MAX)
    async with renewed(lambda: _hold(world, due, token), world.sleep):
        await each(due, lambda machine: _follow(world, account, machine, token, report), report)
    return report


async def _hold(world: MachineWorld, held: Sequence[Due], token: UUID) -> bool:
    """Hold machines for as long again. False when another worker holds all of them by now."""
    async with world.db.statement() as connection:
        ids = [due.lease_id for due in held]
        return await provider_firewalls.renew(connection, ids, token=token, until=world.now() + HELD_FOR)


async def _follow(world: MachineWorld, account: AccountName, due: Due, token: UUID, report: Report) -> None:
    try:
        version, steps = await _step(world, account, due, token)
    except ProviderError as error:
        report.errors.append(f"{due.launch_key}: {type(error).__name__}: {error}")
        async with world.db.statement() as connection:
            now = world.now()
            due_at = now + next_try(due.tries + 1)
            await provider_firewalls.failed(connection, due, token=token, now=now, due_at=due_at)
        return
    if due.is_look and steps:
        report.notes.append(f"{due.launch_key}: somebody had changed its firewall at the provider")
    async with world.db.statement() as connection:
        now = world.now()
        if version is None:
            await provider_firewalls.later(connection, due, token=token, now=now)
            return
        stored = await provider_firewalls.applied(
            connection, due, version, token=token, now=now, look_at=now + LOOK_EVERY
        )
    report.count(int(stored))
    # A change that came meanwhile woke this loop while nobody could take the machine.
    async with world.db.reading() as connection:
        now_wanted = await firewalls.rules_of(connection, due.lease_id)
    report.more |= now_wanted.version != version


async def _step(world: MachineWorld, account: AccountName, due: Due, token: UUID) -> tuple[int | None, int]:
    """Step until the provider follows the rules, or the turn is over: their version, None for the latter, and how many
    steps changed something.

    The rules are read again before each step, so that a slow worker never goes on with old ones.
    """
    provider, until = world.accounts[account], world.now() + STEPPING_FOR
    if not isinstance(provider, HasFirewall):
        raise TypeError(f"the firewall of {account} follows rules, and nobody can tell it which")
    limit = provider.capabilities.ingress_max
    for steps in range(STEPS_MAX):
        if not await _hold(world, [due], token):
            break
        async with world.db.reading() as connection:
            wanted = await firewalls.rules_of(connection, due.lease_id)
        if await provider.apply_ingress(due.provider_ref, due.launch_key, ingress(wanted.rules, limit)):
            return wanted.version, steps
        if world.now() >= until:
            break
    return None, STEPS_MAX


LOOP = AccountLoop(NAME, timedelta(seconds=5), activate, lasts=LASTS, lanes=2, hears=(CHANGES,))
