"""Reboots, stops and starts machines as their customers asked for (`control_plane/domain/power.py`).

The request is stored by the API. Before the provider is asked, the time and, for a reboot, the machine's boot id are
committed, so that a worker which dies, or an answer that is lost, leaves something to compare with: the next activation
looks at the machine first, and asks again only if the look shows that nothing happened.

How a provider lists the machine is stored by observe_machines, which also notices a new address. After a start or a
reboot the machine counts as back when it answers over SSH with the host key that it always had.

Machines that are off are watched as well: one that lists show as running costs its full price again.
"""

from datetime import datetime, timedelta
from functools import partial

from control_plane.db import powers
from control_plane.domain import power
from control_plane.domain.backoff import delay
from control_plane.domain.ids import AccountName
from control_plane.domain.power import Ask, Boot, Look, PowerChange, Settle
from control_plane.outcomes import powers as outcomes
from data_plane.access.port import AccessError, Target
from data_plane.inspection.boot import read_boot
from providers.base import NoCapacity, OutcomeUnknown, ProviderError, Rejected
from providers.optional import HasPower
from reconciler.loop import AccountLoop, Report, each
from reconciler.worlds.machines import MachineWorld

NAME = "change_power"
MACHINES_PER_ACTIVATION_MAX = 16
AGAIN = timedelta(minutes=2)
"""When a machine is taken again whose worker died. Longer than a visit and the guard's call take together."""
RETRY_FIRST, RETRY_CEILING = timedelta(seconds=5), timedelta(minutes=1)


async def activate(world: MachineWorld, account: AccountName) -> Report:
    now, lag = world.now(), timedelta(seconds=world.accounts[account].capabilities.list_lag_seconds)
    async with world.db.reading() as connection:
        running = await powers.found_on(connection, account, lag=lag, limit=MACHINES_PER_ACTIVATION_MAX)
    async with world.db.transaction() as connection:
        due = await powers.take_due(
            connection, account, now=now, again=now + AGAIN, limit=MACHINES_PER_ACTIVATION_MAX
        )
    more = MACHINES_PER_ACTIVATION_MAX in (len(due), len(running))
    report = Report(looked_at=len(due) + len(running), more=more)
    await each(running, partial(_found_on, world, report), report)
    await each(due, partial(_attend, world, account, report), report)
    return report


async def _found_on(world: MachineWorld, report: Report, change: PowerChange) -> None:
    await _settle(world, change, power.found_on(change), report)


async def _attend(world: MachineWorld, account: AccountName, report: Report, change: PowerChange) -> None:
    boot = await _boot(world, change, report) if power.is_worth_a_visit(change) else None
    now = world.now()
    if change.asked_at is None:
        decision: Ask | Look | Settle = power.before_asking(change, now)
    else:
        decision = power.after_asking(change, boot, now)
    match decision:
        case Ask():
            await _ask(world, account, change, boot, report)
        case Settle():
            await _settle(world, change, decision, report)
        case Look(why=why):
            async with world.db.statement() as connection:
                await powers.later(connection, change, why, due_at=now + power.LOOK_EVERY)


async def _boot(world: MachineWorld, change: PowerChange, report: Report) -> Boot | None:
    """The boot that the machine is in now; None when it does not answer."""
    if change.address is None or change.host_key is None:
        raise ValueError(f"{change.machine_id} has a customer without an address or a host key")
    target = Target(change.address, change.ssh_port, change.host_key, change.launch_key)
    try:
        async with world.access.connect(target) as session:
            boot = await read_boot(session)
            return Boot(boot.id, world.now() - boot.up)
    except AccessError as error:
        report.notes.append(f"{change.launch_key}: {type(error).__name__}: {error}")
        return None


async def _ask(
    world: MachineWorld, account: AccountName, change: PowerChange, boot: Boot | None, report: Report
) -> None:
    provider, asked_at = world.accounts[account], world.now()
    if change.provider_ref is None or not isinstance(provider, HasPower):
        raise ValueError(f"{change.machine_id} has no reference, or its provider switches no machines")
    async with world.db.transaction() as connection:
        boot_id = None if boot is None else boot.id
        if not await powers.asking(connection, change, boot_id, now=asked_at):
            return
    try:
        await provider.power(change.action, change.provider_ref)
    except OutcomeUnknown as error:
        report.errors.append(f"{change.launch_key}: {error}")
        await _answered(world, change, asked_at, accepted=False)
    except Rejected as error:
        report.errors.append(f"{change.launch_key}: {error}")
        await _settle(world, change, power.refused(change, _why_refused(error)), report)
    except (
        ProviderError
    ) as error:  # Nothing happened. A machine that is gone is noticed by the provider's lists.
        report.errors.append(f"{change.launch_key}: {error}")
        due_at = world.now() + delay(change.tries + 1, first=RETRY_FIRST, ceiling=RETRY_CEILING)
        async with world.db.statement() as connection:
            await powers.not_taken(connection, change, asked_at=asked_at, due_at=due_at)
    else:
        report.acted_on += 1
        await _answered(world, change, asked_at, accepted=True)


def _why_refused(error: Rejected) -> str:
    """The reason in our words. What the provider says is in the report."""
    if isinstance(error, NoCapacity):
        return "the provider has no capacity for it now; try again later"
    return "the provider refused it"


async def _answered(world: MachineWorld, change: PowerChange, asked_at: datetime, *, accepted: bool) -> None:
    due_at = world.now() + power.LOOK_EVERY
    async with world.db.statement() as connection:
        await powers.answered(connection, change, asked_at=asked_at, accepted=accepted, due_at=due_at)


async def _settle(world: MachineWorld, change: PowerChange, settled: Settle, report: Report) -> None:
    async with world.db.transaction() as connection:
        done = await outcomes.settle(connection, change, settled, actor=world.actor(NAME), now=world.now())
    report.acted_on += done


LOOP = AccountLoop(NAME, timedelta(seconds=2), activate, lasts=AGAIN, wakes=("observe_machines",))
