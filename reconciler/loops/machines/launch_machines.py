"""Buys the machines that were chosen, with at most one launch request per intent.

The row is committed as LAUNCHING before the request is sent. If we crash after that, the request is never sent
again, because its answer may have been lost: the inventory is searched for the launch key (observe_machines), and
after a while the machine is given up (expire_machines). The same happens when only the provider's answer is lost.
An intent is put back only when certainly nothing was bought. One that a refusal covers which another order met since is
given up before it is sent.

The machine's SSH host key is made here. Its public half is committed with the intent, and its private half exists
only in the one request, so a machine that presents another key is not ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.db import journal, machines, offer_blocks, ssh_authorities
from control_plane.domain.block import in_force, why_not_ordered
from control_plane.domain.failure import FailReason
from control_plane.domain.ids import AccountName, ProviderRef
from control_plane.domain.journal import Note
from control_plane.domain.machine import (
    Machine,
    MachineEvent,
    MachineFailure,
    MachineMove,
    MachineState,
    step,
)
from control_plane.domain.progress import Step
from control_plane.domain.rendering import BootOrder
from control_plane.domain.ssh_authority import fingerprint
from control_plane.domain.sweep import look_for
from control_plane.domain.transitions import Moved
from control_plane.domain.user_data import user_data
from control_plane.outcomes import machines as outcomes
from data_plane.access.port import HostKey
from providers.base import (
    LaunchOrder,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    QuotaReached,
    Rejected,
    Throttled,
    Unauthorized,
)
from reconciler import traced
from reconciler.loop import AccountLoop, Report, each
from reconciler.traced import Steps
from reconciler.worlds.machines import MachineWorld

NAME = "launch_machines"
LAUNCHES_PER_ACTIVATION_MAX = 32
DROPPED_PER_ACTIVATION_MAX = 200
ASKED_SECONDS_MAX = 120
"""Longer than a launch takes, with its wait for a turn and a preparation whose calls are answered at once. A
preparation that is answered slowly may take longer. The machine may then be given up while it is launched: a reference
that comes after that is stored, and the machine is terminated."""
PUT_BACK_FOR = timedelta(seconds=5)


async def activate(world: MachineWorld, account: AccountName) -> Report:
    limit = _launches_at_once(world, account)
    # Before anything is committed as asked: without an authority, no machine can be ordered.
    authorities = await world.ssh_authorities.trusted()
    report = Report()
    await _drop_blocked(world, account, report)
    asked, steps = await _commit_asked(world, account, limit, authorities)
    report.looked_at, report.acted_on, report.more = len(asked), len(asked), len(asked) == limit
    await each(
        asked,
        lambda intent: steps.around(intent.machine.id, _launch(world, account, intent, report)),
        report,
    )
    return report


async def _drop_blocked(world: MachineWorld, account: AccountName, report: Report) -> None:
    """Give up intents that a refusal covers which came after they were stored: their leases go elsewhere at once."""
    now = world.now()
    async with world.db.reading() as connection:
        blocks = in_force(await offer_blocks.in_force(connection, now=now), now)
        waiting = (
            await machines.intended(connection, account, limit=DROPPED_PER_ACTIVATION_MAX)
            if blocks.scopes
            else []
        )
    for machine in waiting:
        block = blocks.of(machine)
        if block is None:
            continue
        why = why_not_ordered(block)
        failure = MachineFailure(
            MachineEvent.NEVER_ASKED,
            block.reason,
            why,
            gone_evidence="every request was put back"
            if machine.asked_at
            else "nothing was asked of the provider",
            blocked=True,
        )
        async with world.db.transaction() as connection:
            dropped = await outcomes.fail(
                connection, machine.id, failure, actor=world.actor(NAME), now=now, seen=machine.generation
            )
        if dropped:
            report.notes.append(f"{machine.launch_key}: {why}")


@dataclass(frozen=True, slots=True)
class _Asked:
    """A machine that is committed as asked for, and what its user data needs."""

    machine: Machine
    host_key: HostKey
    authorities: Sequence[str]
    withdrawn: Sequence[str]
    """Authorities of before."""


def _launches_at_once(world: MachineWorld, account: AccountName) -> int:
    """How many launches to request at once: at most as many as the provider accepts at once."""
    limits = [
        limit.calls for limit in world.accounts[account].capabilities.rate_limits if "launch" in limit.verbs
    ]
    return max(1, min([LAUNCHES_PER_ACTIVATION_MAX, *limits]))


async def _commit_asked(
    world: MachineWorld, account: AccountName, limit: int, authorities: Sequence[str]
) -> tuple[list[_Asked], Steps]:
    """Commit that the intents are being requested, with the SSH host keys that their machines will have."""
    now = world.now()
    lag = world.accounts[account].capabilities.list_lag_seconds
    deadline = now + timedelta(seconds=ASKED_SECONDS_MAX) + look_for(lag)
    async with world.db.transaction() as connection:
        withdrawn = await ssh_authorities.withdrawn(connection)
        # One may have leaked since this process read them, a second ago at most: the next activation reads them again.
        outdated = not set(authorities).isdisjoint(withdrawn)
        intended = [] if outdated else await machines.take_intended(connection, account, now=now, limit=limit)
        chosen = [(machine, world.new_host_key()) for machine in intended]
        moves = [_asked_move(machine, host_key, now, deadline) for machine, host_key in chosen]
        moved = await machines.move(connection, moves, actor=world.actor(NAME), now=now)
        await ssh_authorities.ordered(connection, moved, fingerprint(authorities))
        steps = await traced.of_machines(world, connection, NAME, sorted(moved))
    return [_Asked(*pair, authorities, withdrawn) for pair in chosen if pair[0].id in moved], steps


def _asked_move(machine: Machine, host_key: HostKey, now: datetime, deadline: datetime) -> MachineMove:
    moved = _moved(machine.state, MachineEvent.ASKED)
    return MachineMove(
        machine.id,
        machine.generation,
        moved,
        host_key=host_key.public,
        asked_at=now,
        deadline_at=deadline,
    )


def _moved(state: MachineState, event: MachineEvent) -> Moved[MachineState, MachineEvent]:
    moved = step(state, event)
    if not isinstance(moved, Moved):
        raise TypeError(f"a machine that is {state} cannot be {event}")
    return moved


async def _launch(world: MachineWorld, account: AccountName, asked: _Asked, report: Report) -> None:
    machine, host_key = asked.machine, asked.host_key
    boot = BootOrder(host_key.private_openssh, host_key.public, asked.authorities, machine.launch_key)
    order = LaunchOrder(
        launch_key=machine.launch_key,
        native_type=machine.native_type,
        native_region=machine.native_region,
        user_data=user_data(boot, world.accounts[account].capabilities.user_data_kind),
        ssh_public_key=asked.authorities[0],
        withdrawn_ssh_keys=tuple(asked.withdrawn),
        spot=machine.spot,
        cost_nano_per_hour_max=machine.cost_nano_per_hour_max,
    )
    try:
        ref = await world.accounts[account].launch(order)
    except Rejected as error:
        await _record_rejected(world, machine, error)
    except OutcomeUnknown as error:
        await _note_answer_lost(world, machine)
        report.errors.append(f"{machine.launch_key}: the answer was lost: {error}")
    except ProviderError as error:
        # Throttled or Unavailable: the port guarantees that nothing was bought.
        await _put_back(world, machine, error)
        report.notes.append(f"{machine.launch_key}: {type(error).__name__}: {error}")
    else:
        await _record_accepted(world, account, machine, ref)


async def _record_accepted(
    world: MachineWorld, account: AccountName, machine: Machine, ref: ProviderRef
) -> None:
    now = world.now()
    boot = timedelta(seconds=world.accounts[account].capabilities.boot_seconds_max)
    move = MachineMove(
        machine.id,
        machine.generation + 1,
        _moved(MachineState.LAUNCHING, MachineEvent.ACCEPTED),
        provider_ref=ref,
        step=Step.LAUNCHED,
        deadline_at=now + boot,
    )
    async with world.db.transaction() as connection:
        if await machines.move(connection, [move], actor=world.actor(NAME), now=now):
            return
        # It was released or given up during the request, but the machine exists.
        why = "the launch was accepted after the machine was released or given up"
        await machines.adopt(connection, machine.id, ref, actor=world.actor(NAME), why=why, now=now)


async def _record_rejected(world: MachineWorld, machine: Machine, error: Rejected) -> None:
    reason = _reason_for(error)
    failure = MachineFailure(
        MachineEvent.REJECTED,
        reason,
        _REFUSED[reason],
        provider_words=str(error),
        gone_evidence=f"the provider refused: {error}",
        scope=error.scope,
    )
    async with world.db.transaction() as connection:
        await outcomes.fail(connection, machine.id, failure, actor=world.actor(NAME), now=world.now())


_REFUSED = {
    FailReason.NO_CAPACITY: "the provider has no capacity left",
    FailReason.QUOTA_REACHED: "the provider's quota for us is used up",
    FailReason.UNAUTHORIZED: "the provider does not take our orders now",
    FailReason.ORDER_REFUSED: "the provider refused the order",
}
"""What customers read. The provider's own words may name our account, and are for operators."""
_BUSY = "the provider is too busy or cannot be reached, so it is asked again later"


def _reason_for(error: Rejected) -> FailReason:
    match error:
        case NoCapacity():
            return FailReason.NO_CAPACITY
        case QuotaReached():
            return FailReason.QUOTA_REACHED
        case Unauthorized():
            return FailReason.UNAUTHORIZED
        case _:
            return FailReason.ORDER_REFUSED


async def _note_answer_lost(world: MachineWorld, machine: Machine) -> None:
    why = "the provider's answer was lost, so its lists are searched for the machine"
    async with world.db.transaction() as connection:
        await journal.note_machine(
            connection,
            machine.id,
            event=Note.LAUNCH_ANSWER_LOST,
            why=why,
            actor=world.actor(NAME),
            now=world.now(),
        )


async def _put_back(world: MachineWorld, machine: Machine, error: ProviderError) -> None:
    now = world.now()
    wait = PUT_BACK_FOR
    if isinstance(error, Throttled):
        wait = max(wait, timedelta(seconds=error.retry_after_seconds))
    moved = _moved(MachineState.LAUNCHING, MachineEvent.PUT_BACK)
    # `machine` is the row before the request, so the time in which the order has to be accepted goes on.
    move = MachineMove(
        machine.id,
        machine.generation + 1,
        moved,
        why=_BUSY,
        due_at=now + wait,
        deadline_at=machine.deadline_at,
    )
    async with world.db.transaction() as connection:
        if await machines.move(connection, [move], actor=world.actor(NAME), now=now):
            return
        # It was released or given up, and nothing was bought, so the row can be closed.
        failure = MachineFailure(
            MachineEvent.REJECTED,
            FailReason.LEASE_ENDED,
            "it was released before the provider took the order",
            provider_words=str(error),
            gone_evidence=f"the request never took effect: {error}",
        )
        await outcomes.fail(connection, machine.id, failure, actor=world.actor(NAME), now=now)


LOOP = AccountLoop(NAME, timedelta(seconds=1), activate, wakes=("observe_machines", "place_leases"))
