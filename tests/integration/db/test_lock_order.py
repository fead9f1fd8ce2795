"""Transactions of different wings that meet on the same rows do not wait for each other in a circle."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import text

from control_plane.db import leases, ledger, machines, usage
from control_plane.db import organizations as organization_rows
from control_plane.db.engine import Database
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import LeaseEvent
from control_plane.domain.ledger import top_up
from control_plane.domain.money import Nano
from control_plane.outcomes import leases as outcomes
from control_plane.services import organizations
from control_plane.world import World, uuid7
from reconciler.loops.money.meter_usage import intervals
from tests.integration.db.leased import ACTOR, Leased
from tests.support.clock import START, Clock
from tests.support.locks import until_somebody_waits
from tests.support.rows import rows
from tests.support.values import PAID

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


_FREE = text("SELECT organization_id AS id FROM standings WHERE organization_id = :id FOR UPDATE SKIP LOCKED")
_BALANCES = text("SELECT posted_nano FROM standings WHERE organization_id = ANY(:ids)")


async def _customers(world: World) -> tuple[OrganizationId, OrganizationId]:
    """Two customers in the order of their ids. Their rows lie in the opposite one."""
    first, second = OrganizationId(uuid7()), OrganizationId(uuid7())
    assert first < second
    for organization_id in (second, first):
        async with world.db.transaction(organization_id) as connection:
            await organizations.create(connection, world, organization_id, f"org-{organization_id.hex}")
    return first, second


async def test_accounts_are_locked_by_id_whichever_is_named_first(
    db: Database, api_db: Database, clock: Clock, database_url: str
) -> None:
    first, second = await _customers(World(api_db, now=clock.now))

    async def lock_both() -> None:
        async with db.transaction() as connection:
            await organization_rows.lock_standings(connection, [second, first])

    owner = Database(database_url, role=None, pool_size=1, readers=1)
    try:
        async with db.transaction() as holding:
            await organization_rows.lock_standings(holding, [first])
            both = asyncio.create_task(lock_both())
            await until_somebody_waits(owner)
            async with db.transaction() as connection:
                free = [row.id for row in await rows(connection, _FREE, id=second)]
        assert free == [second], "who waits for the first account holds no later one"
        await both
    finally:
        await owner.close()


async def test_two_who_post_to_two_customers_in_opposite_orders_do_not_wait_in_a_circle(
    db: Database, api_db: Database, clock: Clock
) -> None:
    first, second = await _customers(World(api_db, now=clock.now))

    async def pay(name: str, *order: OrganizationId) -> None:
        for number in range(20):
            paid = [
                (uuid7(), top_up(customer, Nano(1), key=f"{name} {number}", at=START, approval=PAID))
                for customer in order
            ]
            async with db.transaction() as connection:
                await organization_rows.lock_standings(connection, order)
                await ledger.post(connection, paid, now=clock.now())

    await asyncio.gather(pay("one", first, second), pay("other", second, first))
    async with db.reading() as connection:
        found = [row.posted_nano for row in await rows(connection, _BALANCES, ids=[first, second])]
    assert found == [40, 40]
