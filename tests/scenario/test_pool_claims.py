"""A lease takes a verified machine that waits in a pool before one is bought for it, and each machine has one tenant."""

import asyncio
from typing import Literal

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from control_plane.db import machines, mesh
from control_plane.domain.lease import Lease
from control_plane.domain.pool_claim import PoolRejectCode
from control_plane.domain.request import CapacityRequest
from control_plane.world import uuid7
from reconciler.worlds.complete import CompleteWorld
from tests.support import pools
from tests.support.crash import Crash
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database

OTHER_KEY = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg="
_CLAIM_AGAIN = text("""
INSERT INTO claims (id, organization_id, project_id, lease_id, machine_id, attempt, claimed_at, due_at)
SELECT :id, l.organization_id, l.project_id, l.id, :machine, 9, l.created_at, l.created_at
FROM leases l WHERE l.id = :lease
""")
_CLAIMS = text("SELECT machine_id, lease_id FROM claims ORDER BY claimed_at, id")
_MISS = text("UPDATE machines SET missed_since = :now, missed_lists = 1 WHERE id = :id")


async def _claims(stage: Stage) -> list[tuple[object, object]]:
    async with stage.db.reading() as connection:
        return [(row.machine_id, row.lease_id) for row in await rows(connection, _CLAIMS)]


async def test_a_lease_claims_the_machine_that_waits_and_is_ready_after_two_activations(stage: Stage) -> None:
    organization = await stage.organization()
    (machine_id,) = await pools.waiting(stage)
    lease = await stage.lease(organization)
    await stage.run("place_leases")
    await stage.run("admit_customers")
    shown = await stage.shown(lease)
    assert (shown.overview.lease.state, shown.overview.lease.ready_at) == ("ready", stage.clock.now())
    assert [machine.id for machine in await stage.machines(lease)] == [machine_id]
    assert len(stage.cloud.alive()) == 1, "nothing was bought for it"
    (placement,) = (await stage.why(lease)).placements
    assert placement.chosen is None
    assert placement.ranking.candidates, "the offers that it did not need are stored as well"
    assert placement.ranking.pooled is not None
    assert (placement.ranking.pooled.machine_id, placement.ranking.pooled.pool) == (machine_id, "h100x1")
    await stage.check()
    await stage.finish()


async def test_a_machine_that_waits_is_closed_and_has_its_key_before_anybody_claims_it(stage: Stage) -> None:
    """What does not depend on the customer is done before that customer waits; the rest is done for them alone."""
    organization = await stage.organization()
    (machine_id,) = await pools.waiting(stage)
    async with stage.db.reading() as connection:
        machine = await machines.get(connection, machine_id)
    assert machine is not None
    known = stage.access.machine(machine.address or "")
    assert known.firewall is not None
    assert known.mesh_key is not None
    assert (known.link, known.customer) == (None, None)
    warm, before, of_hub = known.firewall, len(known.calls), stage.hub.calls
    lease = await stage.lease(organization)
    await stage.run("place_leases")
    await stage.run("admit_customers")
    assert await stage.state(lease) == "ready"
    assert known.firewall == warm
    assert known.calls[before:] == ["connect", "apply firewall", "join mesh", "admit customer"]
    assert stage.hub.calls == of_hub + 1
    bought = await stage.lease(organization)
    await stage.run("place_leases")
    for loop in ("launch_machines", "observe_machines", "bootstrap_machines"):
        await stage.run(loop)
    (cold,) = await stage.machines(bought)
    assert stage.access.machine(cold.address or "").firewall is None, "its customer waits for it already"


async def test_a_machine_that_joins_with_another_key_than_was_kept_is_asked_for_it_after_a_failure(
    stage: Stage,
) -> None:
    organization = await stage.organization()
    (machine_id,) = await pools.waiting(stage)
    async with stage.db.transaction() as connection:
        await mesh.keep_key(connection, machine_id, OTHER_KEY)
    lease = await stage.lease(organization)
    await stage.run("place_leases")
    await stage.run("admit_customers")
    assert await stage.state(lease) == "starting", "the hub knows another machine"
    stage.clock.advance(60)
    await stage.run("admit_customers")
    assert await stage.state(lease) == "ready"
    await stage.finish()


async def test_a_machine_that_does_not_fit_is_left_with_the_reason_and_one_is_bought(stage: Stage) -> None:
    organization = await stage.organization()
    missing, eu = await pools.waiting(stage, 2)
    async with stage.db.transaction() as connection:
        await connection.execute(_MISS, {"id": missing, "now": stage.clock.now()})
    lease = await stage.lease(organization, CapacityRequest("h100x1", regions=("eu",)))
    other = await stage.lease(organization)
    await stage.run("place_leases")
    (placement,) = (await stage.why(lease)).placements
    assert placement.chosen is not None or not placement.ranking.candidates
    assert placement.ranking.pooled is not None
    assert {each.code for each in placement.ranking.pooled.unfit} == {PoolRejectCode.REGION_EXCLUDED}
    (placement,) = (await stage.why(other)).placements
    assert placement.ranking.pooled is not None
    assert placement.ranking.pooled.machine_id == eu
    assert [(each.machine_id, each.code) for each in placement.ranking.pooled.unfit] == [
        (missing, PoolRejectCode.NOT_READY)
    ]


async def test_what_is_reserved_for_a_lease_goes_to_no_other_and_to_that_lease_before_any(
    stage: Stage,
) -> None:
    organization = await stage.organization()
    first, second = [await stage.lease(organization) for _ in range(2)]
    (pooled,) = await pools.waiting(stage)
    (reserved,) = await pools.waiting(stage, reserved_for=second.id)
    await stage.run("place_leases")
    assert [machine.id for machine in await stage.machines(first)] == [pooled]
    assert [machine.id for machine in await stage.machines(second)] == [reserved]


async def test_a_machine_had_one_tenant_in_its_life_says_the_database_too(stage: Stage) -> None:
    organization = await stage.organization()
    (machine_id,) = await pools.waiting(stage)
    first = await stage.lease(organization)
    await stage.run("place_leases")
    await stage.run("admit_customers")
    await stage.release(first)
    second = await stage.lease(organization)
    await stage.run("place_leases")
    assert [machine.id for machine in await stage.machines(second)] != [machine_id], "it is erased and ended"
    third = await stage.lease(organization)
    async with stage.db.transaction() as connection:
        values = {"id": uuid7(), "machine": machine_id, "lease": third.id}
        with pytest.raises(IntegrityError, match="uq_claims_of_machine"):
            await connection.execute(_CLAIM_AGAIN, values)
    await stage.finish()


async def test_of_leases_that_replicas_place_at_once_each_has_a_machine_of_its_own(stage: Stage) -> None:
    organization = await stage.organization()
    waiting = await pools.waiting(stage, 3)
    leases: list[Lease] = [await stage.lease(organization) for _ in range(6)]
    replicas: list[CompleteWorld] = [stage.replica(f"replica {number}") for number in range(4)]
    for _ in range(3):
        await asyncio.gather(*(stage.run("place_leases", world=replica) for replica in replicas))
    claimed = await _claims(stage)
    assert len({machine for machine, _ in claimed}) == len({lease for _, lease in claimed}) == len(leases)
    assert set(waiting) <= {machine for machine, _ in claimed}, "none of them goes on waiting"
    await stage.check()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_that_dies_while_it_claims_leaves_one_tenant_on_the_machine(
    stage: Stage, when: Literal["before", "after"]
) -> None:
    organization = await stage.organization()
    deaths = 0
    for call in range(1, 30):
        (machine_id,) = await pools.waiting(stage)
        lease = await stage.lease(organization)

        async def activation(world: CompleteWorld) -> None:
            await stage.run("place_leases", world=world)
            await stage.run("admit_customers", world=world)

        killed = await Crash(at=call, when=when).kills(activation, stage.replica("doomed"))
        await stage.check()
        await stage.play_until(lease, "ready", seconds_max=600, step=15)
        assert [machine.id for machine in await stage.machines(lease)] == [machine_id]
        await stage.release(lease)
        await stage.play(240, step=20)
        deaths += killed
        if not killed:
            break
    assert deaths > 3, "it dies at each of its calls"
    await stage.check()


async def test_a_machine_that_is_taken_out_or_quarantined_is_claimed_by_nobody(stage: Stage) -> None:
    organization = await stage.organization()
    out, quarantined, healthy = await pools.waiting(stage, 3)
    async with stage.db.transaction() as connection:
        await connection.execute(_TAKE_OUT, {"id": uuid7(), "machine": out, "now": stage.clock.now()})
        await connection.execute(_QUARANTINE, {"machine": quarantined, "now": stage.clock.now()})
    leases = [await stage.lease(organization) for _ in range(2)]
    await stage.run("place_leases")
    claimed = [machine.id for lease in leases for machine in await stage.machines(lease)]
    assert healthy in claimed
    assert not {out, quarantined} & set(claimed)


_TAKE_OUT = text("""
INSERT INTO maintenances (id, machine_id, since, taken_by, why) VALUES (:id, :machine, :now, 'test', 'fan')
""")
_QUARANTINE = text("""
INSERT INTO machine_health (machine_id, verdict, fault, why, since, judged_at)
VALUES (:machine, 'quarantined', 'gpu_lost', 'a GPU does not answer', :now, :now)
""")
