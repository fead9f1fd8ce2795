"""Warm pools, which operators create, change and delete. The loop `keep_pools` does the rest."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from control_plane.db import catalogue, pools
from control_plane.db.connection import Connection
from control_plane.db.pools import PoolDecision
from control_plane.domain.ids import OrganizationId, PoolId
from control_plane.domain.money import Nano
from control_plane.domain.pool import Pool, PoolPolicy, PoolState
from control_plane.domain.pool_figures import PoolHour, hour_of, together
from control_plane.domain.pool_simulation import Comparison, Costs, compare
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.sla import SlaTier
from control_plane.world import World

__all__ = ["Comparison", "Detail", "PoolDecision", "PoolHour", "Shown", "WantedChange", "WantedPool"]

DECISIONS_SHOWN = 20
DAY = timedelta(days=1)
WEEK = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPool:
    name: str
    sku: str
    region: str
    sla: SlaTier | None
    policy: PoolPolicy
    machines_min: int
    machines_max: int
    step_max: int
    idle_nano_per_day: Nano
    waiting_nano_per_hour: Nano
    dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedChange:
    """What changes of a pool; None for what stays."""

    policy: PoolPolicy | None = None
    machines_min: int | None = None
    machines_max: int | None = None
    step_max: int | None = None
    idle_nano_per_day: Nano | None = None
    waiting_nano_per_hour: Nano | None = None
    dry_run: bool | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    pool: Pool
    last_day: PoolHour | None
    """Its figures of the last 24 hours; None before the first."""


@dataclass(frozen=True, slots=True)
class Detail(Shown):
    last_week: PoolHour | None
    decisions: Sequence[PoolDecision]


async def every(world: World, platform: OrganizationId) -> list[Shown]:
    """The pools that are not deleted, in order of name. `platform`: the operators' organization."""
    async with world.db.reading(platform) as connection:
        found = await pools.every(connection)
        since = hour_of(world.now() - DAY)
        return [Shown(pool, together(await pools.hours(connection, pool.id, since=since))) for pool in found]


async def show(world: World, platform: OrganizationId, name: str) -> Detail | None:
    async with world.db.reading(platform) as connection:
        found = await pools.named(connection, [name])
        if not found:
            return None
        pool = found[0]
        hours = await pools.hours(connection, pool.id, since=hour_of(world.now() - WEEK))
        day = [hour for hour in hours if hour.hour >= hour_of(world.now() - DAY)]
        decisions = await pools.decisions(connection, pool.id, limit=DECISIONS_SHOWN)
        return Detail(pool, together(day), together(hours), decisions)


async def create(connection: Connection, world: World, wanted: WantedPool) -> Shown | Refused:
    now = world.now()
    prices = await catalogue.prices(connection, now=now, sku=wanted.sku)
    if not prices:
        return Refused(RefusalCode.SKU_UNKNOWN, f"There is no SKU {wanted.sku!r}.")
    if prices[0].sku.shape.gpu_model is None:
        why = f"{wanted.sku} has no GPUs; pools are kept for SKUs with GPUs."
        return Refused(RefusalCode.POOL_INVALID, why)
    if (refused := _unbounded(wanted.machines_min, wanted.machines_max)) is not None:
        return refused
    pool = Pool(
        id=PoolId(world.new_id()),
        name=wanted.name,
        sku=wanted.sku,
        region=wanted.region,
        sla=wanted.sla,
        state=_state(dry_run=wanted.dry_run),
        policy=wanted.policy,
        machines_min=wanted.machines_min,
        machines_max=wanted.machines_max,
        step_max=wanted.step_max,
        idle_nano_per_day=wanted.idle_nano_per_day,
        waiting_nano_per_hour=wanted.waiting_nano_per_hour,
        generation=1,
        created_at=now,
        changed_at=now,
        deleted_at=None,
        wanted=0,
        wanted_why=None,
        target=0,
        why=None,
        fewer_since=None,
        decided_at=None,
        measured_at=None,
        verified=0,
        starting=0,
        idle_costs=None,
    )
    if not await pools.insert(connection, pool):
        why = f"There is a pool called {wanted.name!r}, or one of {wanted.sku} in {wanted.region} for the same leases."
        return Refused(RefusalCode.POOL_EXISTS, why)
    return Shown(pool, None)


def _unbounded(machines_min: int, machines_max: int) -> Refused | None:
    if machines_min <= machines_max:
        return None
    return Refused(
        RefusalCode.POOL_INVALID, f"The minimum {machines_min} is above the maximum {machines_max}."
    )


async def change(world: World, platform: OrganizationId, name: str, wanted: WantedChange) -> Shown | Refused:
    """Change a pool that is not being deleted. Its machines follow."""
    async with world.db.transaction(platform) as connection:
        pool = await pools.lock(connection, name)
        if pool is None or pool.state is PoolState.DELETING:
            return _unknown(name)
        changed = replace(
            pool,
            policy=wanted.policy or pool.policy,
            machines_min=_or(wanted.machines_min, pool.machines_min),
            machines_max=_or(wanted.machines_max, pool.machines_max),
            step_max=_or(wanted.step_max, pool.step_max),
            idle_nano_per_day=Nano(_or(wanted.idle_nano_per_day, pool.idle_nano_per_day)),
            waiting_nano_per_hour=Nano(_or(wanted.waiting_nano_per_hour, pool.waiting_nano_per_hour)),
            state=pool.state if wanted.dry_run is None else _state(dry_run=wanted.dry_run),
        )
        refused = _unbounded(changed.machines_min, changed.machines_max)
        if refused is not None:
            return refused
        await pools.change(connection, changed, now=world.now())
        return Shown(changed, None)


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _state(*, dry_run: bool) -> PoolState:
    return PoolState.DRY_RUN if dry_run else PoolState.ACTIVE


def _unknown(name: str) -> Refused:
    return Refused(RefusalCode.NOT_FOUND, f"There is no pool {name!r}, or it is being deleted.")


async def delete(world: World, platform: OrganizationId, name: str) -> Refused | None:
    """Let a pool end: nothing claims its machines any more, and those that wait are terminated."""
    async with world.db.transaction(platform) as connection:
        pool = await pools.lock(connection, name)
        if pool is None:
            return _unknown(name)
        if pool.state is not PoolState.DELETING:
            await pools.change(connection, replace(pool, state=PoolState.DELETING), now=world.now())
        return None


async def simulate(series: Sequence[Sequence[int]], costs: Costs) -> Comparison:
    """Compare policies over a trace. It takes a second of CPU at most, in a thread of its own."""
    return await asyncio.to_thread(compare, series, costs)
