"""What machines are ordered for: a lease, a pool, or as a node with slots for several leases."""

from dataclasses import replace

import pytest
from sqlalchemy import text

from control_plane.db import claims, leases, machines
from control_plane.domain.claim import Claim
from control_plane.domain.failure import FailReason
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, ClaimId, MachineId, ProviderRef, launch_key
from control_plane.domain.lease import Lease
from control_plane.domain.machine import Machine, MachineOrder, MachineState, Purpose
from control_plane.domain.progress import Step
from control_plane.domain.proof import Tier
from control_plane.domain.request import CapacityRequest
from control_plane.outcomes import claims as claim_outcomes
from control_plane.outcomes import machines as machine_outcomes
from control_plane.services import billing
from control_plane.world import uuid7
from tests.support import pools
from tests.support.rows import rows
from tests.support.stage import FAKE, Stage

pytestmark = pytest.mark.database
PROVEN = CapacityRequest("h100x1-proven")
HOUR = 3_600

_BILLED = text("SELECT (SELECT count(*) FROM intervals) + (SELECT count(*) FROM charges) AS n")
_TENANTS = text("""
SELECT organization_id FROM journal WHERE machine_id = :id UNION ALL
SELECT organization_id FROM proofs WHERE machine_id = :id UNION ALL
SELECT organization_id FROM verification_reports WHERE machine_id = :id
""")


async def _order(stage: Stage, purpose: Purpose, *, gpu_count: int, proof: Tier) -> MachineId:
    """Order a machine that no lease asked for, and let it be set up."""
    await stage.organization()  # There is a price book from then on.
    machine_id = MachineId(uuid7())
    offer = next(
        offer
        for offer in stage.cloud.listing
        if (offer.shape.gpu_model, offer.shape.gpu_count) == (GpuModel.H100_SXM_80GB, gpu_count)
    )
    order = MachineOrder(
        id=machine_id,
        purpose=purpose,
        account=AccountName(FAKE),
        provider="fake",
        region=offer.region,
        native_region=offer.native_region,
        native_type=offer.native_type,
        offer_key=f"{FAKE}:{offer.native_region}:{offer.native_type}",
        cost_nano_per_hour=offer.cost_nano_per_hour,
        gpu_model=offer.shape.gpu_model,
        gpu_count=gpu_count,
        vcpus=offer.shape.vcpus,
        memory_gib=offer.shape.memory_gib,
        proof=proof,
        launch_key=launch_key(stage.world.installation, machine_id),
    )
    async with stage.db.transaction() as connection:
        if purpose is Purpose.POOL:
            sku = PROVEN.sku if proof is Tier.PROVEN else "h100x1"
            order = replace(order, pool_id=await pools.keep(connection, sku, now=stage.clock.now()))
        await machine_outcomes.order(
            connection, [order], actor=stage.world.actor("test"), now=stage.clock.now()
        )
    for _ in range(20):
        if (await _machine(stage, machine_id)).state is MachineState.VERIFIED:
            return machine_id
        await stage.round()
        stage.clock.advance(5)
    raise AssertionError(await _machine(stage, machine_id))


async def _machine(stage: Stage, machine_id: MachineId) -> Machine:
    async with stage.db.reading() as connection:
        machine = await machines.get(connection, machine_id)
    assert machine is not None
    return machine


async def _claim(stage: Stage, lease: Lease, machine_id: MachineId, slot: int | None = None) -> Claim | str:
    async with stage.db.transaction() as connection:
        locked = (await leases.lock(connection, [lease.id]))[lease.id]
        return await claim_outcomes.claim_machine(
            connection,
            locked,
            machine_id,
            slot=slot,
            claim_id=ClaimId(uuid7()),
            actor=stage.world.actor("test"),
            now=stage.clock.now(),
        )


async def _tenants(stage: Stage, machine_id: MachineId) -> set[object]:
    """Whose facts there are about a machine."""
    async with stage.db.reading() as connection:
        return {row.organization_id for row in await rows(connection, _TENANTS, id=machine_id)}


async def _seconds_billed(stage: Stage, lease: Lease) -> int:
    return (await billing.reconcile(stage.api, lease.organization_id)).gpu_seconds


async def test_a_machine_of_the_pool_is_kept_proven_and_billed_to_nobody_until_it_is_claimed(
    stage: Stage,
) -> None:
    machine_id = await _order(stage, Purpose.POOL, gpu_count=1, proof=Tier.PROVEN)
    await stage.play(6 * HOUR, step=600)
    await stage.check()
    machine = await _machine(stage, machine_id)
    assert (machine.state, machine.step) == (MachineState.VERIFIED, Step.GPUS_PROVEN)
    assert machine.passes > 1, "it is challenged while it waits"
    assert [each.launch_key for each in stage.cloud.alive()] == [machine.launch_key], "it is no orphan"
    assert await _tenants(stage, machine_id) == {None}
    async with stage.db.reading() as connection:
        assert (await rows(connection, _BILLED))[0].n == 0

    lease = await stage.lease(await stage.organization(), PROVEN)
    assert not isinstance(await _claim(stage, lease, machine_id), str)
    claimed = await stage.shown(lease)
    assert claimed.status.step is Step.GPUS_PROVEN, "the machine's own steps are taken already"
    await stage.run("admit_customers")
    ready = await stage.shown(lease)
    assert (ready.overview.lease.state, ready.tier) == ("ready", Tier.PROVEN)
    assert ready.overview.lease.ready_at == stage.clock.now()
    assert ready.overview.evidence is not None
    assert (ready.overview.evidence.machine_id, ready.status.steps_done) == (
        machine_id,
        ready.status.steps_total,
    )
    assert len(stage.cloud.alive()) == 1, "nothing was bought for it"
    await stage.check()

    await stage.play(2 * HOUR, step=600)
    await stage.release(lease)
    await stage.finish()
    assert await _seconds_billed(stage, lease) == 2 * HOUR
    assert await stage.story(lease) == [
        "lease admitted",
        "lease placed",
        "lease verified",
        "lease released",
        "machine released",
        "machine proof_passed",
        "machine memory_overwritten",
        "machine confirmed_gone",
        "lease machines_gone",
    ]


@pytest.mark.parametrize("purpose", [Purpose.POOL, Purpose.NODE])
async def test_a_verified_machine_that_its_provider_calls_failed_goes_while_no_customer_is_on_it(
    stage: Stage, purpose: Purpose
) -> None:
    machine_id = await _order(stage, purpose, gpu_count=1, proof=Tier.LISTED)
    machine = await _machine(stage, machine_id)
    stage.cloud.die(machine.provider_ref or ProviderRef(""))
    await stage.run("observe_machines")
    failed = await _machine(stage, machine_id)
    assert (failed.state, failed.fail_reason) == (
        MachineState.TERMINATING,
        FailReason.PROVIDER_REPORTED_FAILURE,
    )
    lease = await stage.lease(await stage.organization())
    assert await _claim(stage, lease, machine_id, 1 if purpose is Purpose.NODE else None) == (
        "the machine is terminating"
    )
    await stage.finish()


async def test_a_slot_that_nobody_admits_its_customer_to_is_given_up_and_its_node_stays(stage: Stage) -> None:
    node = await _order(stage, Purpose.NODE, gpu_count=8, proof=Tier.LISTED)
    lease = await stage.lease(await stage.organization())
    assert isinstance(await _claim(stage, lease, node, 1), Claim)
    loops = ("refresh_offers", "observe_machines", "admit_customers", "expire_machines", "release_machines")
    for _ in range(40):
        for loop in loops:
            await stage.run(loop)
        stage.clock.advance(60)
    (attempt,) = await stage.attempts(lease)
    assert attempt.fail_reason is FailReason.NOT_ATTENDED
    assert await stage.state(lease) == "placing"
    assert (await _machine(stage, node)).state is MachineState.VERIFIED
    await stage.play_until(lease, "ready", seconds_max=120)
    async with stage.db.transaction() as connection:
        (machine,) = (await machines.lock(connection, [node])).values()
        assert await claims.unreleased_of_machine(connection, machine.id) == []


async def test_a_machine_of_the_pool_serves_one_lease_and_no_other_before_it_goes(stage: Stage) -> None:
    machine_id = await _order(stage, Purpose.POOL, gpu_count=1, proof=Tier.LISTED)
    first, second = [await stage.lease(await stage.organization()) for _ in range(2)]
    assert not isinstance(await _claim(stage, first, machine_id), str)
    assert await _claim(stage, second, machine_id) == "the machine is taken"
    await stage.run("admit_customers")
    await stage.release(first)
    assert await _claim(stage, second, machine_id) == "the machine is taken", "nobody has cleaned up yet"
    await stage.run("release_machines")
    assert await _claim(stage, second, machine_id) == "the machine is terminating"
    await stage.play_until(second, "ready")
    await stage.finish()


async def test_a_lease_gets_a_machine_of_its_own(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready")
    (machine,) = await stage.machines(lease)
    assert (machine.purpose, machine.gpu_count, machine.proof) == (Purpose.LEASE, 1, Tier.LISTED)
    assert await _tenants(stage, machine.id) == {lease.organization_id}
    (attempt,) = await stage.attempts(lease)
    assert (attempt.machine_id, attempt.outcome) == (machine.id, "admitted")
    await stage.finish()


async def _admit_to_slots(stage: Stage) -> int:
    """What the loop of a cluster will do: run the customers' work in their slots, and admit them."""
    token, now = uuid7(), stage.clock.now()
    async with stage.db.transaction() as connection:
        waiting = await claims.take_admitting(
            connection, FAKE, token=token, until=now, now=now, limit=10, slots=True
        )
        admitted = [
            await claim_outcomes.admit(
                connection, claim, token=token, actor=stage.world.actor("test"), now=now
            )
            for claim in waiting
        ]
    return sum(admitted)


async def test_a_node_serves_leases_of_two_organizations_and_stays_when_one_is_released(stage: Stage) -> None:
    node = await _order(stage, Purpose.NODE, gpu_count=8, proof=Tier.LISTED)
    ours = await stage.lease(await stage.organization(), name="ours")
    theirs = await stage.lease(await stage.organization(), name="theirs")
    assert await _claim(stage, ours, node) == "a node is claimed by slots"
    assert not isinstance(await _claim(stage, ours, node, 1), str)
    assert await _claim(stage, theirs, node, 1) == "slot 1 is taken"
    assert not isinstance(await _claim(stage, theirs, node, 2), str)

    (report,) = await stage.run("admit_customers")
    assert report.looked_at == 0, "nobody who has a slot gets the keys of the node"
    assert await _admit_to_slots(stage) == 2
    assert await stage.states() == {"ours": "ready", "theirs": "ready"}
    await stage.check()

    await stage.play(HOUR, step=600)
    await stage.release(ours)
    await stage.play(HOUR, step=600)
    await stage.check()
    assert await stage.states() == {"ours": "ended", "theirs": "ready"}
    assert (await _machine(stage, node)).state is MachineState.VERIFIED
    await stage.release(theirs)
    await stage.play(60)
    await stage.check()
    assert (await _seconds_billed(stage, ours), await _seconds_billed(stage, theirs)) == (HOUR, 2 * HOUR)
    assert set((await stage.states()).values()) == {"ended"}
    assert len(stage.cloud.alive()) == 1, "a node stays when nobody is on it"


async def test_a_node_that_is_lost_takes_the_leases_of_all_its_slots_with_it(stage: Stage) -> None:
    node = await _order(stage, Purpose.NODE, gpu_count=8, proof=Tier.LISTED)
    ready = [await stage.lease(await stage.organization(), name=name) for name in ("one", "two")]
    starting = await stage.lease(await stage.organization(), name="three")
    for slot, lease in enumerate(ready, start=1):
        assert not isinstance(await _claim(stage, lease, node, slot), str)
    assert await _admit_to_slots(stage) == 2
    assert not isinstance(await _claim(stage, starting, node, 3), str)
    (machine,) = stage.cloud.alive()
    stage.cloud.disappear(machine.provider_ref)
    await stage.play_until(starting, "ready", step=60)
    assert await stage.states() == {"one": "ended", "two": "ended", "three": "ready"}
    assert [attempt.outcome for attempt in await stage.attempts(starting)] == ["failed", "admitted"]
    assert {attempt.fail_reason for lease in ready for attempt in await stage.attempts(lease)} == {"vanished"}
    await stage.finish()
