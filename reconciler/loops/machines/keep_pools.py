"""Keeps warm pools at their size: measures demand, orders machines, ends those that are too many or too old.

`domain/pool_plan.py` decides, from the demand that was measured (`domain/pool_sizing.py`) and from the pool's bounds
and budget. This loop stores intents and ends records, and calls no provider: machines are launched, checked, proven and
terminated like all others. An offer is ranked as for a lease, so blocks, frozen accounts and failed proofs count here
as well, and so do this pool's own failures of the last hour. A machine is ended only when no lease has claimed it,
which is checked under its lock. Machines that are reserved for a lease that has ended, or needs none any more, end too.

A pool in a dry run is decided on in the same way, and nothing is done. Whatever was decided is stored when it differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from control_plane.db import catalogue, pools
from control_plane.db.connection import Connection
from control_plane.db.pools import PoolDecision
from control_plane.domain.claim import not_at_hand
from control_plane.domain.ids import AccountName, MachineId, PoolId
from control_plane.domain.machine import Machine, MachineOrder, MachineState, Purpose
from control_plane.domain.machine_order import order_of
from control_plane.domain.money import Nano
from control_plane.domain.placement import Failure, Offer
from control_plane.domain.pool import Pool, PoolPolicy, PoolState
from control_plane.domain.pool_figures import by_hour, compute_since, midnight_of
from control_plane.domain.pool_idle import MEASURED_MAX, MEASURED_WITHIN, IdleCosts, idle_costs, wait_of
from control_plane.domain.pool_plan import FAILED_WITHIN, PoolFacts, PoolPlan, plan
from control_plane.domain.pool_sizing import HISTORY, Measured, Sizing, lead_times, size
from control_plane.domain.price import Price
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sla import SlaTier
from control_plane.outcomes import machines as machine_outcomes
from control_plane.outcomes import pools as outcomes
from control_plane.outcomes.leases import unhealthy_accounts
from control_plane.outcomes.rankings import ranking_to_order
from reconciler.loop import Loop, Report, each
from reconciler.worlds.accounts import AccountWorld

NAME = "keep_pools"
POOLS_PER_ACTIVATION_MAX = 50
RESERVED_PER_ACTIVATION_MAX = 50
LOOK_EVERY = timedelta(seconds=5)
MEASURE_EVERY = timedelta(minutes=1)


async def activate(world: AccountWorld) -> Report:
    async with world.db.reading() as connection:
        due = await pools.due(connection, now=world.now(), limit=POOLS_PER_ACTIVATION_MAX)
    report = Report(looked_at=len(due))
    for pool_id in due:  # One by one: together they would take every connection of the pool of connections.
        await each([pool_id], partial(_keep, world, report), report)
    await each([None], partial(_end_reserved, world, report), report)
    report.more = len(due) == POOLS_PER_ACTIVATION_MAX and report.acted_on > 0
    return report


async def _keep(world: AccountWorld, report: Report, pool_id: PoolId) -> None:
    async with world.db.transaction() as connection:
        now = world.now()
        pool = await pools.take(connection, pool_id, now=now)
        if pool is None:
            return
        market = await _market(connection, pool, world, now)
        facts = await _facts(connection, pool, market, now)
        report.count(await _carry_out(connection, world, facts, market))


@dataclass(frozen=True, slots=True)
class _Market:
    """What machines of the pool may be bought as."""

    price: Price | None
    """None when its SKU is sold no more."""
    candidates: Sequence[Offer]
    unhealthy: frozenset[str]
    failures: Sequence[pools.PoolFailure]


async def _market(connection: Connection, pool: Pool, world: AccountWorld, now: datetime) -> _Market:
    unhealthy = await unhealthy_accounts(connection)
    failures = await pools.failures(connection, pool, since=now - FAILED_WITHIN)
    prices = await catalogue.prices(connection, now=now, sku=pool.sku)
    if not prices:
        return _Market(None, (), frozenset(unhealthy), failures)
    price = prices[0].within(None, pool.sla or SlaTier.BRONZE)
    ranking = await ranking_to_order(
        connection,
        CapacityRequest(pool.sku, regions=(pool.region,)),
        price.sku.shape,
        price.nano_per_hour,
        accounts=[AccountName(name) for name in world.account_names],
        now=now,
        failures={each.offer_key: Failure(each.reason, each.at, each.times) for each in failures},
    )
    return _Market(price, ranking.candidates, frozenset(unhealthy), failures)


async def _facts(connection: Connection, pool: Pool, market: _Market, now: datetime) -> PoolFacts:
    waiting = await pools.machines_of(connection, pool.id)
    costs = await pools.cost_per_hour(connection, pool.id)
    cheapest = market.candidates[0].cost_nano_per_hour if market.candidates else Nano(0)
    cost = costs or cheapest
    measures = pool.measured_at is None or now - pool.measured_at >= MEASURE_EVERY
    sizing = await _measure(connection, pool, market, cost, now) if measures else None
    if measures:
        pool = replace(pool, measured_at=now, idle_costs=await _idle_costs(connection, pool, now))
    hours = await pools.hours(connection, pool.id, since=midnight_of(now))
    return PoolFacts(
        pool=pool,
        waiting=waiting,
        unfit=frozenset(await pools.unfit(connection, [machine.id for machine in waiting])),
        unhealthy_accounts=market.unhealthy,
        sizing=sizing,
        idle_nano_per_hour=cost,
        spent_today_nano=Nano(sum(hour.idle_nano for hour in hours)),
        failures=sum(failure.times for failure in market.failures),
        failed_at=max((failure.at for failure in market.failures), default=None),
        now=now,
    )


async def _idle_costs(connection: Connection, pool: Pool, now: datetime) -> IdleCosts | None:
    """What machines of the pool cost until they were claimed or let go, lately."""
    machines = await pools.waited(connection, pool, since=now - MEASURED_WITHIN, limit=MEASURED_MAX)
    return idle_costs([wait for each in machines if (wait := wait_of(each)) is not None])


async def _measure(
    connection: Connection, pool: Pool, market: _Market, cost: Nano, now: datetime
) -> Sizing | None:
    """Measure demand and lead times, and store the figures of the last hours. None unless the policy asks for it."""
    if market.price is None:
        return None
    leads = await pools.lead_seconds(connection, pool, market.price.sku.shape)
    since = compute_since(pool.measured_at, now)
    figures = by_hour(
        await pools.requests(connection, pool, since=since),
        await pools.idle(connection, pool, since=since),
        lead_seconds=lead_times(leads)[len(lead_times(leads)) // 2].total_seconds(),
        since=since,
        now=now,
    )
    await pools.put_hours(connection, pool.id, figures)
    if pool.policy is not PoolPolicy.NEWSVENDOR:
        return None
    measured = Measured(
        arrivals=await pools.arrivals(connection, pool, since=now - HISTORY),
        lead_seconds=leads,
        known_since=await pools.sold_since(connection, pool),
    )
    return size(measured, waiting_nano_per_hour=pool.waiting_nano_per_hour, idle_nano_per_hour=cost, now=now)


async def _carry_out(connection: Connection, world: AccountWorld, facts: PoolFacts, market: _Market) -> bool:
    pool, now, actor = facts.pool, facts.now, world.actor(NAME)
    planned = plan(facts)
    why = planned.why
    ended: Sequence[MachineId] = ()
    orders: list[MachineOrder] = []
    if planned.orders and (market.price is None or not market.candidates):
        why += " No offer can serve it now." if market.price else f" {pool.sku} is sold no more."
    elif planned.orders and market.price is not None:
        orders = [_order(world, pool, market.price, market.candidates[0]) for _ in range(planned.orders)]
    if pool.state is not PoolState.DRY_RUN:
        await machine_outcomes.order(connection, orders, actor=actor, now=now)
        ended = await outcomes.end(connection, planned.endings, actor=actor, now=now)
    decision = _decision(world, facts, replace(planned, why=why), len(orders))
    await pools.record(
        connection,
        decision,
        wanted_why=planned.wanted_why,
        fewer_since=planned.fewer_since,
        measured_at=pool.measured_at,
        idle_costs=pool.idle_costs,
        due_at=now + LOOK_EVERY,
        news=_is_news(pool, decision),
    )
    if pool.state is PoolState.DELETING and not await pools.left(connection, pool.id):
        gone = replace(pool, state=PoolState.DELETED, deleted_at=now)
        return await pools.change(connection, gone, now=now)
    return pool.state is not PoolState.DRY_RUN and bool(orders or ended)


def _order(world: AccountWorld, pool: Pool, price: Price, offer: Offer) -> MachineOrder:
    machine_id = MachineId(world.new_id())
    order = order_of(
        offer,
        machine_id,
        Purpose.POOL,
        price.sku.proof,
        price.nano_per_hour,
        installation=world.installation,
    )
    return replace(order, pool_id=pool.id)


def _decision(world: AccountWorld, facts: PoolFacts, planned: PoolPlan, ordered: int) -> PoolDecision:
    ready = [machine for machine in facts.waiting if _is_ready(machine) and machine.id not in facts.unfit]
    return PoolDecision(
        id=world.new_id(),
        pool_id=facts.pool.id,
        at=facts.now,
        wanted=planned.wanted,
        target=planned.target,
        verified=len(ready),
        starting=sum(machine.state is not MachineState.VERIFIED for machine in facts.waiting),
        ordered=ordered,
        ended=len(planned.endings),
        dry_run=facts.pool.state is PoolState.DRY_RUN,
        why=planned.why,
    )


def _is_ready(machine: Machine) -> bool:
    return (
        machine.state is MachineState.VERIFIED
        and machine.suspect_since is None
        and not_at_hand(machine) is None
    )


def _is_news(pool: Pool, decision: PoolDecision) -> bool:
    """Whether a decision is stored as a fact of its own: a steady pool stores none."""
    acts = not decision.dry_run and (decision.ordered or decision.ended)
    return (
        bool(acts)
        or (decision.wanted, decision.target) != (pool.wanted, pool.target)
        or pool.decided_at is None
    )


async def _end_reserved(world: AccountWorld, report: Report, _: None) -> None:
    """End what is reserved for leases that have ended."""
    async with world.db.transaction() as connection:
        found = await pools.reserved_in_vain(connection, limit=RESERVED_PER_ACTIVATION_MAX)
        report.looked_at += len(found)
        ended = await outcomes.end_reserved(connection, found, actor=world.actor(NAME), now=world.now())
        report.count(len(ended))


LOOP = Loop(NAME, timedelta(seconds=2), activate, wakes=("launch_machines", "terminate_machines"))
