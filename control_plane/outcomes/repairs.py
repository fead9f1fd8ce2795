"""What the next step of a repair does to the machine, its customer and the lease.

`advance` runs in the caller's open transaction, and locks leases, claims and the machine, then what is stored about its
health, then the repair: in the order of `outcomes/health.py`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from uuid import UUID

from control_plane.db import health, journal, node_pools, permits, pools, powers, repairs, sla_terms
from control_plane.db.connection import Connection
from control_plane.db.repairs import Repair
from control_plane.domain.actor import Actor
from control_plane.domain.claim import Claim, why_not
from control_plane.domain.health import PLANNED_WORK, judge
from control_plane.domain.health_watch import NewNotice, Watched, of_rows
from control_plane.domain.ids import MachineId
from control_plane.domain.journal import Note
from control_plane.domain.lease import LeaseKind
from control_plane.domain.machine import MachineState
from control_plane.domain.node import DRAIN_MAX
from control_plane.domain.notice import NoticeKind
from control_plane.domain.power import PowerEvent
from control_plane.domain.power import step as power_step
from control_plane.domain.power_action import PowerAction
from control_plane.domain.proof import challenged
from control_plane.domain.repair import (
    LOOK_WITHIN,
    Action,
    Climb,
    Close,
    Consent,
    DropSpare,
    Facts,
    Notify,
    OrderSpare,
    RepairOutcome,
    RepairStep,
    Reset,
    TakeAway,
    Wait,
    consent_of,
    held_back,
    next_action,
)
from control_plane.domain.sla import SlaTier, Terms
from control_plane.domain.transitions import Moved
from control_plane.outcomes import machines
from control_plane.outcomes.health import take_away
from control_plane.outcomes.machines import Locked

AGAIN_AFTER = timedelta(minutes=1)
"""How long until a repair that waits is looked at again. What changes about its machine is looked at sooner."""


class Done(Enum):
    WAITED = auto()
    CLIMBED = auto()
    TOLD = auto()
    RESET = auto()
    TAKEN_AWAY = auto()
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class _Work:
    """A repair that this worker holds, with what its steps need."""

    connection: Connection
    repair: Repair
    token: UUID
    actor: Actor
    now: datetime

    @property
    def machine_id(self) -> MachineId:
        return self.repair.machine_id

    async def wait(self, why: str, *, notified: bool = False) -> None:
        await repairs.wait(
            self.connection,
            self.repair.id,
            token=self.token,
            why=why,
            due_at=self.now + AGAIN_AFTER,
            notified_at=self.now if notified else None,
        )

    async def close(self, outcome: RepairOutcome) -> None:
        await repairs.close(self.connection, self.repair.id, outcome, token=self.token, now=self.now)

    async def note(self, why: str) -> None:
        await journal.note_machine(
            self.connection, self.machine_id, event=Note.REPAIR, why=why, actor=self.actor, now=self.now
        )


@dataclass(frozen=True, slots=True)
class _Case:
    """The machine that is repaired, locked."""

    locked: Locked
    watched: Watched
    facts: Facts
    taken: Counter[tuple[str, str]]


async def advance(
    connection: Connection,
    repair: Repair,
    *,
    taken: Counter[tuple[str, str]],
    token: UUID,
    actor: Actor,
    now: datetime,
) -> Done:
    """Take the next step of a repair. `taken` counts the machines taken away in this run, by account and region."""
    locked = await machines.lock(connection, repair.machine_id)
    watched = await health.lock(connection, repair.machine_id, now=now)
    if not await repairs.still_held(connection, repair.id, token=token):
        return Done.WAITED
    work = _Work(connection, repair, token, actor, now)
    if locked is None:
        await work.wait("it was just claimed")
        return Done.WAITED
    if locked.machine.state is not MachineState.VERIFIED or watched is None:
        await work.close(RepairOutcome.GONE)
        return Done.CLOSED
    facts = await _facts(connection, repair, locked, watched, now)
    return await _take(work, _Case(locked, watched, facts, taken), next_action(facts, now))


async def _facts(
    connection: Connection, repair: Repair, locked: Locked, watched: Watched, now: datetime
) -> Facts:
    judgement = judge((*watched.faults, *of_rows(watched, now)))
    offered = await powers.offered(connection, repair.machine_id)
    is_node = _pool_of(locked) is not None
    planned_at = watched.works_at if judgement.is_maintenance else None
    return Facts(
        verdict=judgement.verdict,
        fault=judgement.fault,
        step=repair.step,
        step_at=repair.step_at,
        notified_at=repair.notified_at,
        used=bool(_used(locked.claims)),
        is_node=is_node,
        consent=consent_of(await _terms(connection, locked), is_node=is_node),
        evicted=watched.is_evicted,
        agreed=watched.handed_back_at is not None,
        look_awaited=_look_awaited(watched, now),
        spare_ready=await _spare_ready(connection, locked, now),
        spare_wanted=repair.spare_wanted_at is not None,
        challenged=challenged(watched.proof),
        was_reset=watched.reset_at is not None and watched.reset_at >= repair.step_at,
        reboots=PowerAction.REBOOT in offered,
        not_before=planned_at - DRAIN_MAX if planned_at is not None and is_node else planned_at,
    )


def _look_awaited(watched: Watched, now: datetime) -> bool:
    asked_at, looked_at = watched.handed_back_at, watched.looked_at
    if asked_at is None or (looked_at is not None and looked_at >= asked_at):
        return False
    return now < asked_at + LOOK_WITHIN


def _pool_of(locked: Locked) -> str | None:
    """The name of the pool of which the machine is a node; None when it is none."""
    return next((lease.node_pool for lease in locked.leases.values() if lease.kind is LeaseKind.NODE), None)


async def _terms(connection: Connection, locked: Locked) -> Terms | None:
    """The least that is promised to a customer of the machine."""
    found = []
    for lease in locked.leases.values():
        if lease.sla_version is None:
            return None
        terms = await sla_terms.of_versions(connection, [lease.sla_version])
        found.append(terms.get((lease.sla_version, lease.sla)))
    order = list(SlaTier)
    return min(
        (each for each in found if each is not None), key=lambda each: order.index(each.tier), default=None
    )


async def _spare_ready(connection: Connection, locked: Locked, now: datetime) -> bool:
    """Whether the machine's only lease could claim a machine that is reserved for it: one that its provider lists as
    down, for instance, would leave the lease without any. For a node, whether its pool can do without it.
    """
    if len(locked.leases) != 1:
        return False
    (lease,) = locked.leases.values()
    if lease.kind is LeaseKind.NODE:
        return await node_pools.can_do_without(connection, lease.id)
    waiting = await pools.waiting(connection, (), [lease.id])
    return any(why_not(lease, machine, (), None, now) is None for machine in waiting)


def _used(claims: Sequence[Claim]) -> list[Claim]:
    return [claim for claim in claims if claim.admitted_at is not None]


async def _take(work: _Work, case: _Case, decided: Action) -> Done:
    match decided:
        case Close():
            await work.close(RepairOutcome.RECOVERED)
            await work.note("it is healthy again")
            return Done.CLOSED
        case Wait(why=why):
            await work.wait(why)
            return Done.WAITED
        case Climb(step=step, why=why):
            await repairs.climb(
                work.connection, work.repair.id, step, token=work.token, why=why, now=work.now
            )
            await work.note(f"next step: {step}; {why}")
            return Done.CLIMBED
        case Notify():
            notice = _notice(decided, _pool_of(case.locked), case.facts)
            await health.notify(work.connection, work.machine_id, notice, now=work.now)
            await work.wait("its customer was told", notified=True)
            return Done.TOLD
        case Reset():
            return await _reset(work, case.locked)
        case OrderSpare():
            await repairs.want_spare(work.connection, work.repair.id, now=work.now)
            what = "machine" if _pool_of(case.locked) is None else "node of its pool"
            await work.wait(f"another {what} is made ready for its customer")
            return Done.WAITED
        case DropSpare():
            await repairs.drop_spare(work.connection, work.repair.id)
            await work.wait("the work on it was put off, so no other machine is kept ready until then")
            return Done.WAITED
        case TakeAway(why=why):
            return await _taken_away(work, case, why)


def _notice(notify: Notify, pool: str | None, facts: Facts) -> NewNotice:
    """What its customer reads. `pool` is that of a node, of which nothing is asked."""
    if pool is not None:
        return _notice_of_node(notify.at, pool, facts.consent)
    if notify.recommended and facts.fault is not None and facts.fault.code in PLANNED_WORK:
        message = (
            "Another machine would be spared the work that is planned: splitplane lease replace LEASE --reason"
            ' "planned work". What is on the disk of this one would be gone.'
        )
        return NewNotice(NoticeKind.REPLACEMENT_RECOMMENDED, message)
    reset = notify.step is RepairStep.RESET
    if notify.recommended:
        kind = NoticeKind.RESET_RECOMMENDED if reset else NoticeKind.REPLACEMENT_RECOMMENDED
        do = (
            "Reboot it: splitplane lease reboot LEASE."
            if reset
            else 'Have it replaced: splitplane lease replace LEASE --reason "faulty".'
        )
        return NewNotice(kind, f"The machine needs a {'reboot' if reset else 'replacement'}. {do}")
    kind = NoticeKind.RESET_PLANNED if reset else NoticeKind.REPLACEMENT_PLANNED
    what = "will be rebooted" if reset else "will be replaced, and what is on its disk will be gone"
    return NewNotice(kind, f"The machine {what}, not before {notify.at:%Y-%m-%d %H:%M} UTC.", notify.at)


def _notice_of_node(at: datetime, pool: str, consent: Consent) -> NewNotice:
    first = " once it has another node in its place" if consent is Consent.AHEAD else ""
    message = (
        f"The node pool {pool} replaces this node{first}. Not before {at:%Y-%m-%d %H:%M} UTC, no new pod is scheduled"
        f" on it, and its pods are asked to end; after {DRAIN_MAX // timedelta(minutes=1)} minutes they are killed."
        " There is nothing that you have to do."
    )
    return NewNotice(NoticeKind.REPLACEMENT_PLANNED, message, at)


async def _reset(work: _Work, locked: Locked) -> Done:
    """Reboot a machine for its customer, as if they had asked for it."""
    (claim, *others) = _used(locked.claims)
    power = await powers.ensure(work.connection, claim.id, now=work.now)
    moved = power_step(power.state, PowerEvent.REBOOT)
    if others or not isinstance(moved, Moved):
        await work.wait(f"it cannot be rebooted while its power is {power.state}")
        return Done.WAITED
    await powers.move(work.connection, claim.id, power.generation, moved, now=work.now)
    await work.note("it is rebooted, because a reset may end the fault")
    await work.wait("it is rebooted")
    return Done.RESET


async def _taken_away(work: _Work, case: _Case, why: str) -> Done:
    around = await repairs.around(work.connection, work.machine_id)
    if around is None:
        await work.wait("it is not verified any more")
        return Done.WAITED
    place = (case.watched.account, case.watched.region)
    permitted = await permits.valid(work.connection, now=work.now, account=case.watched.account)
    held = held_back(
        unhealthy=around.unhealthy,
        machines=around.machines,
        taken=case.taken[place],
        dry_run=not around.armed,
        permitted=bool(permitted),
        evicted=case.facts.evicted and case.facts.is_node,
    )
    if held is not None and not case.facts.agreed:
        await work.wait(f"it is not taken away: {held}")
        return Done.WAITED
    pool = _pool_of(case.locked)
    if not await take_away(
        work.connection, work.machine_id, pool=pool, why=why, actor=work.actor, now=work.now
    ):
        await work.wait("it could not be taken away")
        return Done.WAITED
    case.taken[place] += 1
    await work.close(RepairOutcome.REPLACED if case.facts.used else RepairOutcome.ENDED)
    return Done.TAKEN_AWAY
