"""Chooses a machine for every lease that waits for one: one that waits in a pool, or an offer that is to be bought.

A machine of a pool that fits is claimed at once (`domain/pool_claim.py`). Two workers may choose the same one: one of
them gets it, and the other's lease is due again. Otherwise the intent to buy and its launch key are committed before
anything is requested from a provider (law 1), in one transaction with the lease's move, its attempt and its claim. The
ranking is stored with the reason for each rejected offer and machine (law 9); that of a lease that keeps waiting is
stored only when it changes. A lease that nothing can serve waits for stock, as its customer reads with the reason; when
it has waited as long as its request says, or has tried too often, it ends. When capacity is short, an organization's
leases with a higher priority go first. Nothing is bought for a lease of a suspended organization, or for one that its
envelopes no longer allow; both wait in the same way. The time in which the customer's own envelope holds a lease back
is stored with it, because promises stand still then.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from control_plane.db import (
    accounts,
    attempts,
    catalogue,
    journal,
    leases,
    offer_blocks,
    organizations,
    placements,
    pools,
    preemptions,
    proof_records,
)
from control_plane.db.bell import PLACING
from control_plane.db.connection import Connection
from control_plane.db.preemptions import Kept
from control_plane.db.waiting import Held, Waits, hold, take_placing, wait
from control_plane.domain.actor import Actor
from control_plane.domain.block import Blocks, in_force
from control_plane.domain.decision import NotAdmitted
from control_plane.domain.envelope import Envelope
from control_plane.domain.gpu import GpuModel
from control_plane.domain.held_time import holds, looked_at
from control_plane.domain.ids import AccountName, ClaimId, LeaseId, MachineId
from control_plane.domain.journal import Note
from control_plane.domain.lease import Lease, LeaseEvent, LeaseMove, PlacingLease, step
from control_plane.domain.lot import Lot, lots_of
from control_plane.domain.machine import Purpose
from control_plane.domain.machine_order import order_of
from control_plane.domain.placement import PROOF_RECORD_WINDOW, Disproven, Failure, Offer
from control_plane.domain.pool_claim import PooledMachine, Request, choose
from control_plane.domain.ranking import Ranking, is_news, rank
from control_plane.domain.sku import Shape
from control_plane.domain.transitions import Moved
from control_plane.domain.waiting import (
    REFRESHED_WITHIN,
    GiveUp,
    KeepWaiting,
    held_back,
    in_turn,
    made_ready,
    suspended,
    tried_too_often,
    unserved,
)
from control_plane.outcomes import admissions
from control_plane.outcomes.claims import Placed, Wanted, claim_pooled, place
from control_plane.outcomes.leases import unhealthy_accounts
from reconciler import traced
from reconciler.loop import Loop, Report
from reconciler.traced import Steps
from reconciler.worlds.accounts import AccountWorld
from tracing.attributes import Attribute

NAME = "place_leases"
PLACED_PER_ACTIVATION_MAX = 100
"""Leases that are due, and as many again that go before them by their priority."""


async def activate(world: AccountWorld) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        waiting = in_turn(await take_placing(connection, now=now, limit=PLACED_PER_ACTIVATION_MAX))
        if not waiting:
            return Report()
        unfunded = await organizations.not_spending(connection, {lease.organization_id for lease in waiting})
        spending = [lease for lease in waiting if lease.organization_id not in unfunded]
        placing = await admissions.placing(
            connection, spending, world.new_id, actor=world.actor(NAME), now=now
        )
        buying = [lease for lease in spending if lease.id not in placing.held_back]
        market = await _market(connection, tuple(world.account_names), buying, now)
        rankings = market.rank_all(buying, placing.envelopes, now)
        held = _held(waiting, placing.held_back, now)
        held_back_why = {lease_id: verdict.why for lease_id, verdict in placing.held_back.items()}
        decided = _decide(
            world,
            waiting,
            _Rankings(
                rankings,
                held_back_why,
                market.excused,
                market.unrefreshed,
                {each.for_lease_id: each for each in market.kept},
            ),
            now,
        )
        await _hold(connection, held, placing.held_back, world.actor(NAME), now)
        acted = await _record(connection, world, decided, rankings, now)
        steps = await traced.of_leases(world, connection, NAME, [lease.id for lease in waiting])
    _trace(steps, decided)
    return Report(
        looked_at=len(waiting), acted_on=acted, more=len(waiting) >= PLACED_PER_ACTIVATION_MAX and acted > 0
    )


def _held(
    waiting: Sequence[PlacingLease], held_back: Mapping[LeaseId, NotAdmitted], now: datetime
) -> list[Held]:
    """The leases that their customers' own envelopes begin or cease to hold back."""
    found = []
    for lease in waiting:
        verdict = held_back.get(lease.id)
        held = verdict is not None and holds(verdict)
        moments = looked_at(lease.held_at, held=held, due_at=lease.due_at, now=now)
        if moments:
            found.append(Held(lease.id, moments))
    return found


async def _hold(
    connection: Connection,
    held: Sequence[Held],
    held_back: Mapping[LeaseId, NotAdmitted],
    actor: Actor,
    now: datetime,
) -> None:
    """Store it, and note it in the journals of the leases: promises stand still meanwhile."""
    await hold(connection, held)
    for each in held:
        verdict = held_back.get(each.id)
        event, why = (
            Note.ENVELOPE_PASSED,
            "No envelope that its customer set keeps it from being placed any more.",
        )
        if verdict is not None and holds(verdict):
            event, why = Note.ENVELOPE_HELD, verdict.why
        await journal.note_lease(connection, each.id, event=event, why=why, actor=actor, now=now)


@dataclass(frozen=True, slots=True)
class _Market:
    """The facts that rankings are based on."""

    shapes: Mapping[str, Shape]
    """By SKU."""
    lots: Mapping[tuple[GpuModel | None, int], Sequence[Lot]]
    failures: Mapping[LeaseId, Mapping[str, Failure]]
    unhealthy_accounts: Mapping[str, str]
    excused: Mapping[LeaseId, int]
    """How many attempts of a lease do not count as failed; leases without one are absent."""
    disproven: Mapping[str, Disproven]
    blocks: Blocks
    unrefreshed: frozenset[AccountName]
    """The accounts whose offers nobody looked at lately, although we are to."""
    pooled: Sequence[PooledMachine]
    kept: Sequence[Kept]
    """Capacity that comes free for leases in need. What is ordered there is reserved for them, so nobody buys there."""

    _rankings: dict[object, Ranking] = field(default_factory=dict[object, Ranking])
    """Those of leases that failed nowhere, by what they ask for and where: a node pool has many equal ones."""

    def rank_all(
        self,
        buying: Sequence[Lease],
        envelopes: Callable[[Lease], Sequence[Envelope]],
        now: datetime,
    ) -> dict[LeaseId, Ranking]:
        """The ranking of each lease. The first ones get the machines of pools that several would."""
        rankings: dict[LeaseId, Ranking] = {}
        taken: set[MachineId] = set()
        for lease in buying:
            ranking = self.rank(lease, envelopes(lease), now)
            asked = Request(lease, self.shapes[lease.sku], envelopes(lease), self.unhealthy_accounts, now)
            pooled = choose(asked, self.pooled, taken=taken)
            if pooled is not None:
                ranking = replace(ranking, pooled=pooled)
                taken |= {pooled.machine_id} if pooled.machine_id is not None else set()
            rankings[lease.id] = ranking
        return rankings

    def rank(self, lease: Lease, envelopes: Sequence[Envelope], now: datetime) -> Ranking:
        if self.failures.get(lease.id):
            return self._rank(lease, envelopes, now)
        asked = (lease.request, lease.nano_per_hour, lease.environment_id)
        if asked not in self._rankings:
            self._rankings[asked] = self._rank(lease, envelopes, now)
        return self._rankings[asked]

    def _rank(self, lease: Lease, envelopes: Sequence[Envelope], now: datetime) -> Ranking:
        return rank(
            lease.request,
            self.shapes[lease.sku],
            lease.nano_per_hour,
            self.lots.get((lease.gpu_model, lease.gpu_count), ()),
            failures=self.failures.get(lease.id, {}),
            unhealthy_accounts=self.unhealthy_accounts,
            disproven=self.disproven,
            blocks=self.blocks,
            now=now,
            envelopes=envelopes,
            yielded={each.offer_key for each in self.kept},
        )


async def _market(
    connection: Connection, account_names: Sequence[AccountName], waiting: Sequence[Lease], now: datetime
) -> _Market:
    shapes = {(lease.gpu_model, lease.gpu_count) for lease in waiting}
    lots = {shape: lots_of(await catalogue.offers_of_shape(connection, *shape)) for shape in shapes}
    tried = [lease.id for lease in waiting if lease.attempts]
    return _Market(
        shapes={price.sku.name: price.sku.shape for price in await catalogue.prices(connection, now=now)},
        lots=lots,
        failures=await attempts.failures(connection, tried),
        excused=await attempts.excused(connection, tried),
        unhealthy_accounts=await unhealthy_accounts(connection),
        disproven=await proof_records.disproven(connection, since=now - PROOF_RECORD_WINDOW),
        blocks=in_force(await offer_blocks.in_force(connection, now=now), now),
        unrefreshed=frozenset(
            await accounts.unrefreshed(connection, account_names, since=now - REFRESHED_WITHIN)
        ),
        pooled=await pools.waiting(
            connection, {lease.sku for lease in waiting}, [lease.id for lease in waiting]
        ),
        kept=await preemptions.kept(connection),
    )


@dataclass(frozen=True, slots=True)
class _Rankings:
    """The ranking of each lease for which something may be bought."""

    found: Mapping[LeaseId, Ranking]
    held_back: Mapping[LeaseId, str]
    """The leases whose envelopes allow no placement now, each with the reason as a sentence."""
    excused: Mapping[LeaseId, int]
    unrefreshed: frozenset[AccountName]
    kept: Mapping[LeaseId, Kept]
    """What comes free for leases in need."""


@dataclass(frozen=True, slots=True)
class _Decisions:
    claiming: Sequence[Wanted]
    placed: Sequence[Placed]
    given_up: Sequence[LeaseMove]
    waits: Sequence[Waits]


def _decide(
    world: AccountWorld,
    waiting: Sequence[PlacingLease],
    rankings: _Rankings,
    now: datetime,
) -> _Decisions:
    """A lease without a ranking belongs to an organization that must not spend."""
    claiming: list[Wanted] = []
    placed: list[Placed] = []
    given_up: list[LeaseMove] = []
    waits: list[Waits] = []
    for lease in waiting:
        match _decide_one(lease, rankings, now):
            case GiveUp(why):
                given_up += _giving_up(lease, why)
            case KeepWaiting(why, due_at):
                waits.append(Waits(lease.id, why, due_at))
            case Offer() as offer:
                placed.append(_placed(world, lease, offer))
            case _Waiting(machine_id):
                claiming.append(Wanted(lease, machine_id, ClaimId(world.new_id())))
    return _Decisions(claiming, placed, given_up, waits)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A machine that waits for the lease, in a pool or reserved for it."""

    machine_id: MachineId


def _decide_one(
    lease: PlacingLease, rankings: _Rankings, now: datetime
) -> _Waiting | Offer | KeepWaiting | GiveUp:
    ranking = rankings.found.get(lease.id)
    if lease.id in rankings.held_back:
        why = rankings.held_back[lease.id]
        return held_back(why, due_at=lease.due_at, gives_up_at=lease.gives_up_at, now=now)
    if ranking is None:
        return suspended(due_at=lease.due_at, gives_up_at=lease.gives_up_at, now=now)
    if (given_up := tried_too_often(lease.attempts - rankings.excused.get(lease.id, 0))) is not None:
        return given_up
    if ranking.pooled is not None and ranking.pooled.machine_id is not None:
        return _Waiting(ranking.pooled.machine_id)
    kept = rankings.kept.get(lease.id)
    if kept is not None and kept.ordered:
        return made_ready("A machine is made ready for it, in place of one that was taken back.", now=now)
    if ranking.candidates:
        return ranking.candidates[0]
    if kept is not None:
        return made_ready("A machine was taken back for it, and its provider ends that first.", now=now)
    return unserved(
        ranking,
        due_at=lease.due_at,
        gives_up_at=lease.gives_up_at,
        unrefreshed=rankings.unrefreshed,
        now=now,
    )


async def _record(
    connection: Connection,
    world: AccountWorld,
    decided: _Decisions,
    rankings: Mapping[LeaseId, Ranking],
    now: datetime,
) -> int:
    """Store the decisions; returns how many leases were placed or given up.

    A lease whose machine somebody else claimed meanwhile is left as it is: due again, without a placement.
    """
    actor = world.actor(NAME)
    claimed = await claim_pooled(connection, decided.claiming, actor=actor, now=now)
    lost = {each.lease.id for each in decided.claiming} - claimed
    kept = {lease_id: ranking for lease_id, ranking in rankings.items() if lease_id not in lost}
    await _store_changed(connection, kept, now)
    await wait(connection, decided.waits, now=now)
    count = len(claimed) + await place(connection, decided.placed, actor=actor, now=now)
    # Last, because it locks the standings of their organizations. A waiting lease has no open claim to end.
    return count + len(await leases.move(connection, decided.given_up, actor=actor, now=now))


def _trace(steps: Steps, decided: _Decisions) -> None:
    """A lease that goes on waiting adds no span to its trace: it is looked at for hours."""
    for wanted in decided.claiming:
        steps.note(wanted.lease.id, LeaseEvent.PLACED)
    for placed in decided.placed:
        with steps.of(placed.lease.id) as span:
            span.set(Attribute.EVENT, LeaseEvent.PLACED)
            span.set(Attribute.ACCOUNT, placed.order.account)
            span.set(Attribute.REGION, placed.order.native_region)
    for move in decided.given_up:
        steps.note(move.id, move.moved.event)


async def _store_changed(connection: Connection, rankings: Mapping[LeaseId, Ranking], now: datetime) -> None:
    """Store the rankings that differ from the last one of their leases."""
    last = await placements.digests(connection, list(rankings))
    changed = {
        lease_id: ranking for lease_id, ranking in rankings.items() if is_news(ranking, last.get(lease_id))
    }
    await placements.insert(connection, changed, now=now)


def _giving_up(lease: Lease, why: str) -> list[LeaseMove]:
    moved = step(lease.state, LeaseEvent.GAVE_UP)
    if not isinstance(moved, Moved):
        return []
    return [LeaseMove(lease.id, lease.generation, moved, why=why, billed_until=lease.replaced_since)]


def _placed(world: AccountWorld, lease: Lease, offer: Offer) -> Placed:
    machine_id = MachineId(world.new_id())
    order = order_of(
        offer,
        machine_id,
        Purpose.LEASE,
        lease.proof,
        lease.nano_per_hour,
        installation=world.installation,
    )
    return Placed(lease, order, ClaimId(world.new_id()))


LOOP = Loop(
    NAME,
    timedelta(seconds=0.5),
    activate,
    wakes=("admit_customers", "launch_machines", "close_leases"),
    hears=(PLACING,),
)
