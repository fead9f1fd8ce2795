"""How an interruptible lease yields its machine to a lease in need: notice, interruption, and a machine in its place.

These functions run in the caller's open transaction. `consider` locks the lease in need alone; `advance` locks both
leases, then claims and machines, and the preemption last. What they decide is `domain/preemption.py`; every decision is
stored with what it was based on.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from control_plane.db import (
    attempts,
    catalogue,
    claims,
    health,
    journal,
    leases,
    machines,
    offer_blocks,
    organizations,
    preemptions,
    proof_records,
    sla_terms,
)
from control_plane.db.connection import Connection
from control_plane.db.preemptions import Preemption
from control_plane.domain.actor import Actor
from control_plane.domain.block import in_force
from control_plane.domain.claim import Claim
from control_plane.domain.envelope import Envelope
from control_plane.domain.failure import FailReason
from control_plane.domain.health_watch import NewNotice
from control_plane.domain.ids import AccountName, LeaseId, MachineId, PreemptionId
from control_plane.domain.journal import Note
from control_plane.domain.lease import Lease, LeaseState
from control_plane.domain.lot import lots_of
from control_plane.domain.machine import WANTED, MachineState, Purpose
from control_plane.domain.machine_order import order_of
from control_plane.domain.notice import NoticeKind
from control_plane.domain.placement import PROOF_RECORD_WINDOW, Offer
from control_plane.domain.preemption import (
    NOTICE,
    TAKES_CAPACITY,
    Choice,
    Close,
    Evidence,
    Facts,
    Interrupt,
    Interruptible,
    Need,
    OrderInPlace,
    PreemptionDecision,
    PreemptionState,
    Wait,
    choose,
    evidence,
    held_back,
    next_action,
)
from control_plane.domain.ranking import rank
from control_plane.outcomes import admissions
from control_plane.outcomes import leases as lease_outcomes
from control_plane.outcomes import machines as machine_outcomes
from control_plane.outcomes.leases import unhealthy_accounts

RUNNING_PER_LOOK_MAX = 100
"""So many interruptible leases are considered at a time: first those whose machine may be taken back now and would
serve the lease in need, and of these first those with the lowest priority that run for the shortest time. When none of
them can yield its machine, the next ones are considered.
"""
LOOKS_MAX = 5
_CAPACITY = frozenset({FailReason.NO_CAPACITY, FailReason.QUOTA_REACHED})
"""Refusals that say nothing about the place of a machine that ends: it makes room for another one."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Who decides, when, and whether anything follows."""

    account_names: Collection[AccountName]
    """The accounts that are configured and on."""
    installation: str
    new_id: Callable[[], UUID]
    actor: Actor
    now: datetime
    armed: bool


async def _need(connection: Connection, lease: Lease, waiting: preemptions.Waiting) -> Need | None:
    if lease.sla_version is None:
        return None
    terms = await sla_terms.of_versions(connection, [lease.sla_version])
    of_tier = terms.get((lease.sla_version, lease.sla))
    if of_tier is None:
        return None
    return Need(
        lease,
        of_tier,
        waiting.waiting_since,
        waiting.waiting_why,
        tried=waiting.tried,
        told=waiting.told,
        let_go=waiting.let_go,
    )


async def consider(connection: Connection, lease_id: LeaseId, setting: Setting) -> bool:
    """Decide whether an interruptible lease yields its machine to a lease in need, and which. True when one is told.

    When preemption is not armed, the decision is stored, and nothing follows.
    """
    lease = (await leases.lock(connection, [lease_id])).get(lease_id)
    waiting = await preemptions.still_waiting(connection, lease_id, now=setting.now)
    need = None if lease is None or waiting is None else await _need(connection, lease, waiting)
    if need is None or need.deadline is None:
        return False
    envelopes = await _envelopes(connection, need.lease, setting)
    if envelopes is None:
        return False
    await preemptions.start_alone(connection)
    started = await preemptions.count_started(connection, now=setting.now)
    why = held_back(need, setting.now, started=started)
    if why is not None:
        await _hold_back(connection, need, setting, why, None)
        return False
    choice = await _choose(connection, need, envelopes, setting)
    if choice.chosen is None:
        await _hold_back(connection, need, setting, _none_yields(choice), choice)
        return False
    if not setting.armed:
        await _would_notify(connection, need, choice.chosen, setting, choice)
        return False
    return await _notify(connection, need, choice.chosen, setting, choice)


async def _envelopes(connection: Connection, lease: Lease, setting: Setting) -> Sequence[Envelope] | None:
    """The envelopes of a lease; None when they do not allow that it is placed now."""
    placing = await admissions.placing(
        connection, [lease], setting.new_id, actor=setting.actor, now=setting.now
    )
    return None if lease.id in placing.held_back else placing.envelopes(lease)


async def _choose(
    connection: Connection, need: Need, envelopes: Sequence[Envelope], setting: Setting
) -> Choice:
    lease = need.lease
    running: list[Interruptible] = []
    unfit: dict[MachineId, str] = {}
    keys = await preemptions.offer_keys(connection, lease.gpu_model, lease.gpu_count)
    places = await _in_place(connection, lease, envelopes, keys, setting, ordering=False)
    fitting = [key for key, place in places.items() if isinstance(place, Offer)]
    for look in range(LOOKS_MAX):
        found = await preemptions.running(
            connection,
            lease.gpu_model,
            lease.gpu_count,
            fitting=fitting,
            now=setting.now,
            limit=RUNNING_PER_LOOK_MAX,
            passed=look * RUNNING_PER_LOOK_MAX,
        )
        refused = {
            each.machine_id: places.get(each.offer_key, "Its machine was found a moment too late.")
            for each in found
        }
        unfit |= {machine_id: why for machine_id, why in refused.items() if isinstance(why, str)}
        running += found
        choice = choose(need, running, unfit=unfit, now=setting.now)
        if choice.chosen is not None or len(found) < RUNNING_PER_LOOK_MAX:
            break
    return choice


async def _in_place(
    connection: Connection,
    lease: Lease,
    envelopes: Sequence[Envelope],
    offer_keys: Collection[str],
    setting: Setting,
    *,
    ordering: bool,
) -> Mapping[str, Offer | str]:
    """For each of these offers: the offer, if a machine there would serve the lease once one ends, or why none would.

    Unless it is for an order that is made now, refusals for lack of capacity do not count.
    """
    now = setting.now
    prices = await catalogue.prices(connection, now=now, sku=lease.sku)
    if not prices:
        return dict.fromkeys(offer_keys, f"{lease.sku} is not sold any more.")
    shape, accounts = prices[0].sku.shape, list(setting.account_names)
    listed = await catalogue.offers_of_shape(connection, shape.gpu_model, shape.gpu_count, accounts=accounts)
    # Each has capacity for one more machine once the one that is there ends.
    offers = [replace(offer, available=True) for offer in listed if offer.key in offer_keys]
    failures = (await attempts.failures(connection, [lease.id])).get(lease.id, {})
    blocks = await offer_blocks.in_force(connection, now=now)
    ranking = rank(
        lease.request,
        shape,
        lease.nano_per_hour,
        lots_of(offers),
        failures={key: each for key, each in failures.items() if each.reason not in _CAPACITY},
        unhealthy_accounts=await unhealthy_accounts(connection),
        disproven=await proof_records.disproven(connection, since=now - PROOF_RECORD_WINDOW),
        blocks=in_force([each for each in blocks if ordering or each.reason not in _CAPACITY], now),
        now=now,
        envelopes=envelopes,
    )
    found: dict[str, Offer | str] = dict.fromkeys(offer_keys, "Its offer is not listed any more.")
    found |= {each.offer.key: each.why for each in ranking.rejected}
    found |= {each.key: each for each in ranking.candidates}
    return found


async def _hold_back(
    connection: Connection, need: Need, setting: Setting, why: str, choice: Choice | None
) -> None:
    await preemptions.decided(
        connection,
        setting.new_id(),
        PreemptionDecision.HELD_BACK,
        for_lease_id=need.lease.id,
        lease_id=None,
        preemption_id=None,
        why=why,
        evidence=evidence(need, choice),
        now=setting.now,
    )


def _none_yields(choice: Choice) -> str:
    found = len(choice.considered) + choice.more
    if not found:
        return "no interruptible lease has a machine like the one that is needed"
    return f"none of {found} interruptible {'lease' if found == 1 else 'leases'} can yield its machine"


async def _would_notify(
    connection: Connection, need: Need, chosen: Interruptible, setting: Setting, choice: Choice
) -> None:
    await preemptions.decided(
        connection,
        setting.new_id(),
        PreemptionDecision.WOULD_NOTIFY,
        for_lease_id=need.lease.id,
        lease_id=chosen.lease_id,
        preemption_id=None,
        why="preemption is not armed, so this is a dry run",
        evidence=evidence(need, choice),
        now=setting.now,
    )


async def _notify(
    connection: Connection, need: Need, chosen: Interruptible, setting: Setting, choice: Choice
) -> bool:
    now, actor = setting.now, setting.actor
    preemption_id, interrupt_at = PreemptionId(setting.new_id()), now + NOTICE
    harm = chosen.harm(interrupt_at)
    why = f"it has the lowest harm, {harm} GPU-seconds, of the interruptible leases that can yield a machine"
    if not await preemptions.insert(
        connection,
        preemption_id,
        chosen,
        for_lease_id=need.lease.id,
        why=why,
        harm=harm,
        now=now,
        interrupt_at=interrupt_at,
    ):
        return False
    at = f"{interrupt_at:%Y-%m-%d %H:%M:%S} UTC"
    told = (
        f"The lease is interruptible, and another one is promised a machine: this one is taken back at {at}."
    )
    notice = NewNotice(NoticeKind.PREEMPTION_PLANNED, f"{told} Save your work before that.", interrupt_at)
    await health.notify(connection, chosen.machine_id, notice, now=now)
    planned = Note.PREEMPTION_PLANNED
    await journal.note_lease(connection, chosen.lease_id, event=planned, why=told, actor=actor, now=now)
    helped = f"The machine of an interruptible lease is taken back for this one at {at}."
    await journal.note_lease(connection, need.lease.id, event=planned, why=helped, actor=actor, now=now)
    await preemptions.decided(
        connection,
        setting.new_id(),
        PreemptionDecision.NOTIFIED,
        for_lease_id=need.lease.id,
        lease_id=chosen.lease_id,
        preemption_id=preemption_id,
        why=why,
        evidence=evidence(need, choice),
        now=now,
    )
    return True


@dataclass(frozen=True, slots=True)
class _Case:
    """A preemption that is under way, with its two leases, all locked."""

    connection: Connection
    setting: Setting
    preemption: Preemption
    interruptible: Lease
    claim: Claim | None
    """Of the interruptible lease on the machine that it is to yield; None once it has ended."""
    in_need: Lease
    in_place: Offer | None
    """What a machine in place of the one that was taken back is ordered from; None when none can be now."""

    async def decided(self, decision: PreemptionDecision, why: str, facts: Facts) -> None:
        await preemptions.decided(
            self.connection,
            self.setting.new_id(),
            decision,
            for_lease_id=self.in_need.id,
            lease_id=self.interruptible.id,
            preemption_id=self.preemption.id,
            why=why,
            evidence=Evidence(facts=facts),
            now=self.setting.now,
        )

    async def note(self, lease: Lease, why: str, note: Note = Note.PREEMPTION) -> None:
        setting = self.setting
        await journal.note_lease(
            self.connection, lease.id, event=note, why=why, actor=setting.actor, now=setting.now
        )

    async def tell(self, kind: NoticeKind, message: str) -> None:
        """Tell the customer of the interruptible lease, while it has the machine."""
        notice = NewNotice(kind, message)
        await health.notify(self.connection, self.preemption.machine_id, notice, now=self.setting.now)


async def advance(connection: Connection, preemption_id: PreemptionId, setting: Setting) -> bool:
    """Take the next step of a preemption. False when it waits, or is closed."""
    seen = await preemptions.get(connection, preemption_id)
    if seen is None:
        return False
    locked = await leases.lock(connection, [seen.lease_id, seen.for_lease_id])
    open_claims = await claims.lock_open(connection, lease_ids=[seen.lease_id])
    preemption = await preemptions.lock(connection, preemption_id)
    if preemption is None or preemption.closed_at is not None or len(locked) < 2:
        return False
    interruptible, in_need = locked[seen.lease_id], locked[seen.for_lease_id]
    claim = next((each for each in open_claims if each.id == seen.claim_id), None)
    waits = in_need.state is LeaseState.PLACING
    place = await _place(connection, preemption, in_need, setting) if waits else "It does not wait."
    case = _Case(
        connection,
        setting,
        preemption,
        interruptible,
        claim,
        in_need,
        place if isinstance(place, Offer) else None,
    )
    facts = await _facts(case, refused=place if isinstance(place, str) else None)
    return await _take(case, facts)


async def _place(
    connection: Connection, preemption: Preemption, in_need: Lease, setting: Setting
) -> Offer | str:
    if await organizations.not_spending(connection, [in_need.organization_id]):
        return "The customer of the lease in need must not spend any more."
    envelopes = await _envelopes(connection, in_need, setting)
    if envelopes is None:
        return "The envelopes of the lease in need do not allow it any more."
    ordering = preemption.state in TAKES_CAPACITY
    places = await _in_place(
        connection, in_need, envelopes, [preemption.offer_key], setting, ordering=ordering
    )
    return places[preemption.offer_key]


async def _facts(case: _Case, *, refused: str | None) -> Facts:
    preemption, connection = case.preemption, case.connection
    machine = await machines.get(connection, preemption.machine_id)
    ordered = None
    if preemption.ordered_machine_id is not None:
        ordered = await machines.get(connection, preemption.ordered_machine_id)
    return Facts(
        state=preemption.state,
        interrupt_at=preemption.interrupt_at,
        interrupted_at=preemption.interrupted_at,
        waits=case.in_need.state is LeaseState.PLACING,
        got_machine=case.in_need.state in (LeaseState.STARTING, LeaseState.READY)
        or await preemptions.was_served(connection, preemption),
        has_machine=case.claim is not None and case.interruptible.state is LeaseState.READY,
        listed=await preemptions.listed(connection, preemption.machine_id),
        armed=case.setting.armed,
        refused=refused,
        gone=machine is None or machine.state is MachineState.GONE,
        order_failed=ordered is not None and ordered.state not in WANTED,
        orders=preemption.orders,
    )


async def _take(case: _Case, facts: Facts) -> bool:
    match next_action(facts, case.setting.now):
        case Wait():
            return False
        case Interrupt():
            return await _interrupt(case, facts)
        case OrderInPlace():
            return await _order(case, facts)
        case Close(state=state, why=why):
            return await _close(case, facts, state, why)


async def _interrupt(case: _Case, facts: Facts) -> bool:
    now, actor = case.setting.now, case.setting.actor
    why, interrupted_at = "its customer let go of the machine, or it failed, before the interruption", None
    if facts.has_machine and case.claim is not None:
        why, interrupted_at = "it was taken back for a lease whose readiness is promised, with notice", now
        # Before the claim ends: only who uses the machine is told.
        await case.tell(NoticeKind.PREEMPTED, "The machine was taken back: the lease is interruptible.")
        if not await lease_outcomes.preempt(
            case.connection, case.interruptible, case.claim, why=why, actor=actor, now=now
        ):
            raise RuntimeError(f"{case.interruptible.id} was not interrupted while it was locked")
    await preemptions.move(
        case.connection,
        case.preemption,
        PreemptionState.INTERRUPTED,
        why=why,
        interrupted_at=interrupted_at,
    )
    await case.note(case.in_need, "A machine was taken back for it; one in its place is ordered next.")
    await case.decided(PreemptionDecision.INTERRUPTED, why, facts)
    return True


async def _order(case: _Case, facts: Facts) -> bool:
    if case.in_place is None:
        return False
    lease, now, setting = case.in_need, case.setting.now, case.setting
    machine_id = MachineId(setting.new_id())
    order = order_of(
        case.in_place,
        machine_id,
        Purpose.POOL,
        lease.proof,
        lease.nano_per_hour,
        installation=setting.installation,
    )
    await machine_outcomes.order(
        case.connection, [replace(order, reserved_for=lease.id)], actor=setting.actor, now=now
    )
    why = f"{order.native_type} at {order.account} in {order.region}, in place of the one that was taken back"
    await preemptions.move(
        case.connection, case.preemption, PreemptionState.ORDERED, why=why, ordered_machine_id=machine_id
    )
    await case.note(lease, f"A machine was ordered for it: {why}.")
    await case.decided(PreemptionDecision.ORDERED, why, facts)
    return True


async def _close(case: _Case, facts: Facts, state: PreemptionState, why: str) -> bool:
    await preemptions.move(case.connection, case.preemption, state, why=why, closed_at=case.setting.now)
    if state is PreemptionState.WITHDRAWN and facts.has_machine:
        told = "The machine is not taken back after all."
        await case.tell(NoticeKind.PREEMPTION_WITHDRAWN, told)
        await case.note(case.interruptible, told, Note.PREEMPTION_WITHDRAWN)
    if facts.waits:
        await case.note(case.in_need, f"No machine comes from the one that was to be taken back: {why}.")
    await case.decided(PreemptionDecision(state.value), why, facts)
    return True
