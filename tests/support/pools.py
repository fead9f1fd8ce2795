"""Pools for tests that need one to put machines into."""

from datetime import datetime
from typing import Any
from uuid import UUID

from control_plane.db import machines, pools
from control_plane.db.connection import Connection
from control_plane.domain.ids import LeaseId, MachineId, PoolId, launch_key
from control_plane.domain.machine import MachineOrder, MachineState, Purpose
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.domain.pool import Pool, PoolPolicy, PoolState
from control_plane.domain.proof import Tier
from control_plane.outcomes import machines as machine_outcomes
from control_plane.world import uuid7
from tests.support.clock import START
from tests.support.stage import FAKE, Stage


def a_pool(number: int = 1, **other: Any) -> Pool:
    """An active pool of one H100 in us-east-1, of two machines at the most, made at START, that decided nothing yet."""
    values: dict[str, Any] = {
        "id": PoolId(UUID(int=number)),
        "name": f"pool-{number}",
        "sku": "h100x1",
        "region": "us-east-1",
        "sla": None,
        "state": PoolState.ACTIVE,
        "policy": PoolPolicy.NEWSVENDOR,
        "machines_min": 0,
        "machines_max": 2,
        "step_max": 1,
        "idle_nano_per_day": Nano(1_000 * NANO_PER_USD),
        "waiting_nano_per_hour": Nano(20 * NANO_PER_USD),
        "generation": 1,
        "created_at": START,
        "changed_at": START,
        "deleted_at": None,
        "wanted": 0,
        "wanted_why": None,
        "verified": 0,
        "starting": 0,
        "idle_costs": None,
        "target": 0,
        "why": None,
        "fewer_since": None,
        "decided_at": None,
        "measured_at": None,
    }
    return Pool(**(values | other))


async def keep(connection: Connection, sku: str, *, now: datetime) -> PoolId:
    """The id of a pool that orders and ends nothing, for a test that puts machines into it by hand."""
    pool = a_pool(
        id=PoolId(uuid7()), name=sku, sku=sku, state=PoolState.DRY_RUN, created_at=now, changed_at=now
    )
    await pools.insert(connection, pool)
    (found,) = await pools.named(connection, [sku])
    return found.id


async def waiting(stage: Stage, count: int = 1, *, reserved_for: LeaseId | None = None) -> list[MachineId]:
    """Verified machines that wait in a pool of the SKU h100x1, or for one lease. There has to be an organization."""
    await stage.run("refresh_offers")
    offer = next(offer for offer in stage.cloud.listing if offer.shape.gpu_count == 1)
    now, orders = stage.clock.now(), []
    async with stage.db.transaction() as connection:
        pool_id = None if reserved_for is not None else await keep(connection, "h100x1", now=now)
        for _ in range(count):
            machine_id = MachineId(uuid7())
            order = MachineOrder(
                id=machine_id,
                purpose=Purpose.POOL,
                account=FAKE,
                provider="fake",
                region=offer.region,
                native_region=offer.native_region,
                native_type=offer.native_type,
                offer_key=f"{FAKE}:{offer.native_region}:{offer.native_type}",
                cost_nano_per_hour=offer.cost_nano_per_hour,
                gpu_model=offer.shape.gpu_model,
                gpu_count=1,
                vcpus=offer.shape.vcpus,
                memory_gib=offer.shape.memory_gib,
                proof=Tier.LISTED,
                launch_key=launch_key(stage.world.installation, machine_id),
                pool_id=pool_id,
                reserved_for=reserved_for,
            )
            orders.append(order)
        await machine_outcomes.order(connection, orders, actor=stage.world.actor("test"), now=now)
    ids = [order.id for order in orders]
    for _ in range(20):
        async with stage.db.reading() as connection:
            found = [await machines.get(connection, machine_id) for machine_id in ids]
        if all(machine is not None and machine.state is MachineState.VERIFIED for machine in found):
            return ids
        for loop in ("launch_machines", "observe_machines", "bootstrap_machines"):
            await stage.run(loop)
        stage.clock.advance(5)
    raise AssertionError(found)
