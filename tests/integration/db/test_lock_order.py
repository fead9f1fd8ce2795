"""Transactions of different wings that meet on the same rows do not wait for each other in a circle."""

import asyncio
from datetime import timedelta

import pytest

from control_plane.db import leases, machines, usage
from control_plane.db.engine import Database
from control_plane.domain.lease import LeaseEvent
from control_plane.outcomes import leases as outcomes
from reconciler.loops.money.meter_usage import intervals
from tests.integration.db.leased import ACTOR, Leased
from tests.support.clock import Clock

pytestmark = pytest.mark.database


@pytest.fixture
async def leased(db: Database, clock: Clock) -> Leased:
    return await Leased(db, clock).begin()


async def test_metering_leases_does_not_wait_for_a_release_of_their_machines(leased: Leased) -> None:
    """Two leases are metered in the order of leases while their machines are locked in the opposite order."""
    tenant = await leased.organization()
    first, second = await leased.lease(tenant), await leased.lease(tenant)
    of_second = await leased.admitted(await leased.verified(await leased.placed(second)))
    of_first = await leased.admitted(await leased.verified(await leased.placed(first)))
    assert of_second.machine_id < of_first.machine_id
    assert first.id < second.id
    now = leased.clock.now() + timedelta(minutes=10)
    async with leased.db.transaction() as connection:
        for each in (first, second):
            lease = (await leases.lock(connection, [each.id]))[each.id]
            released = LeaseEvent.RELEASED
            assert await outcomes.end(connection, lease, released, why="a test", actor=ACTOR, now=now)
    one_is_locked, metered = asyncio.Event(), asyncio.Event()

    async def release() -> None:
        async with leased.db.transaction() as connection:
            await machines.lock(connection, [of_second.machine_id])
            one_is_locked.set()
            await metered.wait()
            await machines.lock(connection, [of_first.machine_id])

    async def meter() -> None:
        async with leased.db.transaction() as connection:
            due = await usage.take_meters(connection, hour=now, limit=10)
            await one_is_locked.wait()
            made = [(each, interval) for each in due for interval in intervals(each, now)]
            asyncio.get_running_loop().call_later(0.3, metered.set)
            await usage.record_intervals(connection, made, now=now)

    await asyncio.gather(release(), meter())
