"""Warm pools: machines are ready before they are requested, cost no more than allowed, and go when they are not needed."""

from datetime import timedelta
from typing import Any, Literal

import pytest
from sqlalchemy import text

from control_plane.db import pools as rows_of
from control_plane.db import warm_pool_figures
from control_plane.domain.lease import Lease
from control_plane.domain.machine import MachineState
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.domain.pool import Pool, PoolPolicy, PoolState
from control_plane.domain.pool_plan import LOWER_AFTER
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sla import SlaTier
from reconciler.worlds.complete import CompleteWorld
from tests.support import pools
from tests.support.crash import Crash
from tests.support.faults import taken_out
from tests.support.promises import put_terms_in_force
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database
HOUR = 3_600
_SET = text("UPDATE pools SET state = :state, due_at = :now WHERE id = :id")
_MACHINES = text("""
SELECT m.state, m.id, c.lease_id FROM machines m LEFT JOIN claims c ON c.machine_id = m.id
WHERE m.purpose = 'pool' ORDER BY m.created_at, m.id
""")


async def kept(stage: Stage, **other: Any) -> Pool:
    """An active pool of up to two machines of the SKU h100x1."""
    now = stage.clock.now()
    pool = pools.a_pool(created_at=now, changed_at=now, **other)
    async with stage.db.transaction() as connection:
        assert await rows_of.insert(connection, pool)
    return pool


async def shown(stage: Stage) -> Pool:
    async with stage.db.reading() as connection:
        (pool,) = await rows_of.every(connection)
    return pool


async def machines(stage: Stage) -> list[str]:
    """The states of the machines that were ordered for a pool and that no lease claimed."""
    async with stage.db.reading() as connection:
        return [row.state for row in await rows(connection, _MACHINES) if row.lease_id is None]


async def decide(stage: Stage, pool: Pool, state: PoolState) -> None:
    async with stage.db.transaction() as connection:
        values = {"id": pool.id, "state": state.value, "now": stage.clock.now()}
        await connection.execute(_SET, values)


async def test_a_pool_fills_and_a_machine_that_is_claimed_is_replaced(stage: Stage) -> None:
    organization = await stage.organization()
    await kept(stage, policy=PoolPolicy.FIXED, machines_min=2, machines_max=3)
    await stage.play(300, step=5)
    assert await machines(stage) == ["verified"] * 2
    pool = await shown(stage)
    assert (pool.target, pool.verified, pool.starting, pool.why) == (2, 2, 0, "The policy is to keep 2.")
    lease = await stage.lease(organization)
    await stage.run("place_leases")
    await stage.run("admit_customers")
    assert await stage.state(lease) == "ready"
    await stage.play(300, step=5)
    assert await machines(stage) == ["verified"] * 2
    await stage.check()
    async with stage.db.reading() as connection:
        hours = await rows_of.hours(connection, pool.id, since=pool.created_at - timedelta(hours=1))
        found = await rows_of.decisions(connection, pool.id, limit=10)
    assert (sum(hour.requests for hour in hours), sum(hour.hits for hour in hours)) == (1, 1)
    assert sum(hour.idle_nano for hour in hours) > 0
    assert sum(hour.avoided_ms for hour in hours) > 0
    idle = sum(hour.idle_nano for hour in hours)
    tomorrow = (stage.clock.now() + timedelta(days=1)).replace(hour=0, minute=5)
    for now, today in ((stage.clock.now(), idle), (tomorrow, 0)):
        async with stage.db.reading() as connection:
            (figures,) = await warm_pool_figures.pools(connection, now=now)
        assert (figures.idle_nano, figures.idle_today_nano) == (idle, today)
    assert [(each.target, each.ordered) for each in found] == [(2, 1)] * 3 + [(1, 0)]
    assert found[-1].why.endswith("No offer can serve it now."), "offers are not refreshed yet"
    await stage.finish()


async def test_what_waits_is_idle_to_the_nano_and_a_claim_ends_it(stage: Stage) -> None:
    """The idle cost is recomputed from the moments in the machines' rows and their price, without our functions."""
    organization = await stage.organization()
    pool = await kept(stage, policy=PoolPolicy.FIXED, machines_min=1, machines_max=1)
    await stage.play(40 * 60, step=20)
    lease = await stage.lease(organization)
    await stage.run("place_leases")
    claimed_at = stage.clock.now()
    await decide(stage, pool, PoolState.DRY_RUN)
    await stage.play(HOUR, step=60)
    (machine,) = await stage.machines(lease)
    assert machine.asked_at is not None
    async with stage.db.reading() as connection:
        hours = await rows_of.hours(connection, pool.id, since=pool.created_at - timedelta(hours=1))
        (cost,) = await rows(
            connection, text("SELECT cost_nano_per_hour AS n FROM machines WHERE pool_id = :id"), id=pool.id
        )
    seconds = int((claimed_at - machine.asked_at).total_seconds())
    assert sum(hour.idle_nano for hour in hours) == pytest.approx(cost.n * seconds / HOUR, abs=len(hours))
    measured = (await shown(stage)).idle_costs
    assert measured is not None
    assert measured.machines == 1, "what still waits, or was never ordered, is not measured"
    assert measured.p90_nano == measured.mean_nano == pytest.approx(cost.n * seconds / HOUR, abs=1)
    assert measured.mean_nano_per_hour == pytest.approx(cost.n, abs=cost.n // 1_000)
    await stage.finish()


async def test_a_machine_that_an_operator_took_out_is_no_supply_and_counts_again_when_it_is_back(
    stage: Stage,
) -> None:
    await stage.organization()
    await kept(stage, policy=PoolPolicy.FIXED, machines_min=1, machines_max=3)
    await stage.play(300, step=5)
    async with stage.db.transaction() as connection:
        await connection.execute(_TAKE_OUT, {"now": stage.clock.now()})
    await stage.play(300, step=5)
    assert await machines(stage) == ["verified"] * 2, "another one waits in its place"
    assert (await shown(stage)).verified == 1
    async with stage.db.transaction() as connection:
        await connection.execute(_GIVE_BACK, {"now": stage.clock.now()})
    await stage.play(1_800, step=20)
    assert (await machines(stage)).count("verified") == 1, "the one too many is ended"
    await stage.finish()


_TAKE_OUT = text("""
INSERT INTO maintenances (id, machine_id, since, taken_by, why)
SELECT gen_random_uuid(), id, :now, 'user_1', 'a fan' FROM machines WHERE purpose = 'pool'
""")
_GIVE_BACK = text("UPDATE maintenances SET ended_at = :now, ended_by = 'user_1'")


async def test_a_deleted_pool_ends_what_waits_and_leaves_what_is_leased(stage: Stage) -> None:
    organization = await stage.organization()
    pool = await kept(stage, policy=PoolPolicy.FIXED, machines_min=2)
    await stage.play(300, step=5)
    lease = await stage.lease(organization)
    await stage.run("place_leases")
    await stage.run("admit_customers")
    await decide(stage, pool, PoolState.DELETING)
    other = await stage.lease(organization)
    await stage.run("place_leases")
    assert [machine.purpose for machine in await stage.machines(other)] == ["lease"], (
        "it serves nobody any more"
    )
    await stage.play(600, step=10)
    assert set(await machines(stage)) == {"gone"}
    assert await stage.state(lease) == "ready"
    async with stage.db.reading() as connection:
        assert await rows_of.every(connection) == []
    await stage.check()
    await stage.finish()


async def test_what_waiting_cost_is_measured_over_the_machines_whose_wait_was_over_last(stage: Stage) -> None:
    organization = await stage.organization()
    pool = await kept(stage, policy=PoolPolicy.FIXED, machines_min=2)
    await stage.play(300, step=5)
    for name in ("first", "second"):
        await stage.lease(organization, name=name)
        await stage.run("place_leases")
        stage.clock.advance(600)
    async with stage.db.reading() as connection:
        found = await rows_of.waited(connection, pool, since=pool.created_at, limit=9)
        (last,) = await rows_of.waited(connection, pool, since=pool.created_at, limit=1)
    claimed = [machine.claimed_at for machine in found if machine.claimed_at is not None]
    assert len(claimed) == 2
    assert (claimed, last) == (sorted(claimed, reverse=True), found[0])
    await stage.finish()


async def test_a_dry_run_shows_what_it_would_do_and_buys_nothing(stage: Stage) -> None:
    await stage.organization()
    pool = await kept(stage, policy=PoolPolicy.FIXED, machines_min=2, state=PoolState.DRY_RUN)
    await stage.play(120, step=5)
    assert (await machines(stage), len(stage.cloud.alive())) == ([], 0)
    async with stage.db.reading() as connection:
        last, *_ = await rows_of.decisions(connection, pool.id, limit=10)
        (figures,) = await warm_pool_figures.pools(connection, now=stage.clock.now())
    assert (last.target, last.ordered, last.dry_run) == (2, 1, True)
    assert (figures.wanted, figures.target) == (2, 0), "no alert says that it lacks what it never orders"


async def test_a_pool_that_nobody_can_sell_to_says_so_and_orders_nothing(stage: Stage) -> None:
    await stage.organization()
    await kept(stage, policy=PoolPolicy.FIXED, machines_min=1, region="ap-south-9")
    await stage.play(60, step=5)
    pool = await shown(stage)
    assert (await machines(stage), pool.why) == ([], "The policy is to keep 1. No offer can serve it now.")


async def test_machines_that_fail_are_replaced_later_each_time_and_their_offer_rests(stage: Stage) -> None:
    await stage.organization()
    await kept(stage, policy=PoolPolicy.FIXED, machines_min=1)
    for place in stage.cloud.stock:
        stage.cloud.stock[place] = 0
    await stage.play(900, step=10)
    states = await machines(stage)
    assert set(states) <= {"gone"}
    assert len(states) <= 3, "a refusal is not answered with one order after the other"


async def test_what_is_reserved_for_a_lease_goes_with_it_and_what_it_claimed_stays(stage: Stage) -> None:
    await put_terms_in_force(stage)
    lease = await stage.lease(await stage.organization(), CapacityRequest("h100x1", sla=SlaTier.GOLD))
    await stage.play_until(lease, "ready", seconds_max=90)
    (machine,) = await stage.machines(lease)
    await taken_out(stage, machine, stage.clock.now() + timedelta(minutes=50))
    await stage.play(300, step=10)
    assert await machines(stage) == ["verified"], "it waits until the machine of the lease is taken away"
    await stage.release(lease)
    await stage.play(300, step=10)
    assert await machines(stage) == ["gone"]
    await stage.finish()
    assert [each.id for each in await stage.machines(lease)] == [machine.id]


async def test_what_is_reserved_for_a_lease_that_needs_it_no_longer_goes(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready")
    await pools.waiting(stage, reserved_for=lease.id)
    await stage.play(300, step=10)
    assert await machines(stage) == ["gone"]
    await stage.finish()


async def test_a_season_is_provided_for_and_costs_nothing_when_it_is_over(stage: Stage) -> None:
    """Three requests at the same time of each day. Before the fourth day's there are machines, and at night none."""
    organization = await stage.organization(usd=100_000)
    first = stage.clock.now() + timedelta(hours=6)
    pool = await kept(stage, machines_max=3, step_max=3, waiting_nano_per_hour=Nano(200 * NANO_PER_USD))
    for day in range(3):
        stage.clock.advance((first + timedelta(days=day) - stage.clock.now()).total_seconds())
        for lease in [await stage.lease(organization) for _ in range(3)]:
            await stage.release(lease)
    season = first + timedelta(days=3)
    stage.clock.advance((season - timedelta(hours=8) - stage.clock.now()).total_seconds())
    await stage.play(120, step=10)
    assert ((await shown(stage)).wanted, await machines(stage)) == (0, []), (
        "nobody asks at this time of the day"
    )
    stage.clock.advance((season - timedelta(minutes=20) - stage.clock.now()).total_seconds())
    await stage.play(15 * 60, step=15)
    assert await machines(stage) == ["verified"] * 3, (await shown(stage)).why
    stage.clock.advance((season - stage.clock.now()).total_seconds())
    leases: list[Lease] = [await stage.lease(organization) for _ in range(3)]
    await stage.run("place_leases")
    await stage.run("admit_customers")
    assert [await stage.state(lease) for lease in leases] == ["ready"] * 3
    await stage.play(120, step=10)
    for lease in leases:
        await stage.release(lease)
    stage.clock.advance(2.5 * HOUR)
    await stage.play(LOWER_AFTER.total_seconds() + 600, step=30)
    assert (await shown(stage)).wanted == 0
    assert set(await machines(stage)) <= {"gone"}
    async with stage.db.reading() as connection:
        hours = await rows_of.hours(connection, pool.id, since=season - timedelta(hours=1))
    assert sum(hour.hits for hour in hours) == 3
    await stage.check()
    await stage.finish()


async def test_replicas_keep_one_pool_and_order_once(stage: Stage) -> None:
    await stage.organization()
    await stage.run("refresh_offers")
    await kept(stage, policy=PoolPolicy.FIXED, machines_min=2, step_max=2)
    replicas: list[CompleteWorld] = [stage.replica(f"replica {number}") for number in range(3)]
    for _ in range(4):
        for replica in replicas:
            await stage.run("keep_pools", world=replica)
        stage.clock.advance(6)
    assert len(await machines(stage)) == 2


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_that_dies_while_it_keeps_a_pool_orders_nothing_twice(
    stage: Stage, when: Literal["before", "after"]
) -> None:
    await stage.organization()
    await stage.run("refresh_offers")
    await kept(stage, policy=PoolPolicy.FIXED, machines_min=1)

    async def activation(world: CompleteWorld) -> None:
        await stage.run("keep_pools", world=world)

    deaths = 0
    for call in range(1, 10):
        stage.clock.advance(6)
        deaths += await Crash(at=call, when=when).kills(activation, stage.replica("doomed"))
        stage.clock.advance(6)
        await stage.run("keep_pools")
        states = await machines(stage)
        assert states == [MachineState.INTENDED], (call, states)
    assert deaths == 2, "it commits twice"
