"""GPU proof of machines that wait in a pool: challenged as any other machine, without a customer as an excuse."""

import dataclasses

import pytest
from sqlalchemy import text

from control_plane.db import claims, leases, machines
from control_plane.db.connection import Connection
from control_plane.domain import proof
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.claim import Claim
from control_plane.domain.deadline import ADMIT_MAX
from control_plane.domain.failure import FailReason
from control_plane.domain.ids import AccountName, ClaimId, MachineId, launch_key
from control_plane.domain.lease import Lease
from control_plane.domain.machine import Machine, MachineOrder, MachineState, Purpose
from control_plane.domain.placement import Offer
from control_plane.domain.proof import UNANSWERED_PER_STRIKE, OwnCode, Tier, tier
from control_plane.domain.refusal import Refused
from control_plane.outcomes import claims as claim_outcomes
from control_plane.outcomes import machines as machine_outcomes
from control_plane.services import quotes
from control_plane.world import uuid7
from data_plane.access.port import Target
from data_plane.proof.challenger.port import Occasion
from data_plane.simulation.access import idle
from tests.scenario.test_proof import DUE, PROVEN
from tests.support import pools
from tests.support.challenger import AWAY, FAILED, PASSED, UNANSWERED, Answer
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database

_PROOFS = text("SELECT * FROM proofs ORDER BY at, id")


async def offer(stage: Stage) -> Offer:
    await stage.run("refresh_offers")
    quote = await quotes.quote(stage.api, await stage.organization(), PROVEN, reach=EVERYWHERE)
    assert not isinstance(quote, Refused)
    return quote.ranking.candidates[0]


async def pooled(stage: Stage) -> Machine:
    """A machine that was ordered for the pool, and is verified."""
    chosen = await offer(stage)
    machine_id = MachineId(uuid7())
    order = MachineOrder(
        id=machine_id,
        purpose=Purpose.POOL,
        account=AccountName(chosen.account),
        provider=chosen.provider,
        region=chosen.region,
        native_region=chosen.native_region,
        native_type=chosen.native_type,
        offer_key=chosen.key,
        cost_nano_per_hour=chosen.cost_nano_per_hour,
        gpu_model=chosen.shape.gpu_model,
        gpu_count=chosen.shape.gpu_count,
        vcpus=chosen.shape.vcpus,
        memory_gib=chosen.shape.memory_gib,
        proof=Tier.PROVEN,
        launch_key=launch_key(stage.world.installation, machine_id),
    )
    async with stage.db.transaction() as connection:
        pool_id = await pools.keep(connection, PROVEN.sku, now=stage.clock.now())
        order = dataclasses.replace(order, pool_id=pool_id)
        await machine_outcomes.order(
            connection, [order], actor=stage.world.actor("test"), now=stage.clock.now()
        )
    await stage.play(300, step=15)
    machine = await now(stage, machine_id)
    assert machine.state is MachineState.VERIFIED
    return machine


async def now(stage: Stage, machine_id: MachineId) -> Machine:
    async with stage.db.reading() as connection:
        found = await machines.get(connection, machine_id)
    assert found is not None
    return found


async def claim(stage: Stage, machine: Machine) -> Lease:
    """A lease that has claimed a machine of the pool, and whose customer is not admitted yet."""
    lease = await stage.lease(await stage.organization(), PROVEN)
    async with stage.db.transaction() as connection:
        await leases.lock(connection, [lease.id])
        claim = await claim_outcomes.claim_machine(
            connection,
            lease,
            machine.id,
            slot=None,
            claim_id=ClaimId(uuid7()),
            actor=stage.world.actor("test"),
            now=stage.clock.now(),
        )
    assert not isinstance(claim, str), claim
    return lease


async def claimed(stage: Stage, machine: Machine) -> Lease:
    """A lease whose customer was admitted to a machine of the pool."""
    lease = await claim(stage, machine)
    await stage.play_until(lease, "ready", seconds_max=60)
    return lease


async def challenge_now(stage: Stage, machine: Machine, *answers: Answer) -> None:
    """The machine is challenged now, and gives these answers first."""
    stage.challenger.script(str(machine.address), *answers)
    async with stage.db.transaction() as connection:
        await connection.execute(
            text("UPDATE machines SET proof_due_at = :now WHERE id = :id"),
            {"now": stage.clock.now(), "id": machine.id},
        )
    await stage.run("challenge_machines")


def compute(stage: Stage, machine: Machine) -> str:
    """From now on the machine reports that its GPUs are in use."""
    where = str(machine.address)
    known = stage.access.machine(where)
    health = idle(stage.access.hardware(Target(where, 22, "", "")))
    load = {"compute_processes": 1, "utilisation_percent": 90}
    gpus = tuple(
        dataclasses.replace(gpu, usage=dataclasses.replace(gpu.usage, **load)) for gpu in health.gpus
    )
    known.health = dataclasses.replace(health, gpus=gpus)
    return where


async def test_a_machine_of_a_pool_is_proven_and_challenged_before_anybody_claims_it(stage: Stage) -> None:
    machine = await pooled(stage)
    await stage.play(DUE, step=1_200)
    assert stage.challenger.occasions(str(machine.address)) == [Occasion.START, Occasion.IDLE]
    assert tier((await now(stage, machine.id)).record, stage.clock.now()) is Tier.PROVEN
    async with stage.db.reading() as connection:
        assert {row.lease_id for row in await rows(connection, _PROOFS)} == {None}
    lease = await claimed(stage, machine)
    assert (await stage.shown(lease)).tier is Tier.PROVEN
    await stage.play(2 * DUE, step=1_200)
    async with stage.db.reading() as connection:
        proofs = await rows(connection, _PROOFS)
    assert {row.lease_id for row in proofs[2:]} == {lease.id}, "a customer reads the proofs of their own time"
    await stage.finish()


async def test_nothing_excuses_busy_gpus_of_a_machine_that_no_customer_is_on(stage: Stage) -> None:
    machine = await pooled(stage)
    where = compute(stage, machine)
    stage.challenger.always[where] = dataclasses.replace(UNANSWERED, code="memory_in_use")
    await stage.play(DUE, step=1_200)
    await stage.play(600, step=300)
    asked = stage.challenger.occasions(where)
    assert asked[:3] == [Occasion.START, Occasion.IDLE, Occasion.RECHECK], "that it computes puts nothing off"
    async with stage.db.reading() as connection:
        codes = [row.code for row in (await rows(connection, _PROOFS))[1:]]
    assert set(codes) == {OwnCode.BUSY_UNCLAIMED}
    silences = proof.STRIKES_MAX * UNANSWERED_PER_STRIKE
    await stage.play(silences * (proof.AGAIN_WHILE_RUNNING.total_seconds() + 60), step=120)
    gone = await now(stage, machine.id)
    assert (gone.state, gone.fail_reason) == (MachineState.GONE, FailReason.PROOF_FAILED)
    await stage.finish()


async def test_a_customer_of_a_pools_machine_computes_undisturbed(stage: Stage) -> None:
    machine = await pooled(stage)
    lease = await claimed(stage, machine)
    where = compute(stage, machine)
    await stage.play(2 * DUE, step=1_200)
    assert stage.challenger.occasions(where) == [Occasion.START]
    assert await stage.state(lease) == "ready"
    await stage.finish()


ADMIT_SECONDS = ADMIT_MAX.total_seconds()


async def test_a_customer_who_waits_for_a_suspect_machine_is_admitted_once_it_is_cleared(
    stage: Stage,
) -> None:
    machine = await pooled(stage)
    lease = await claim(stage, machine)
    await challenge_now(stage, machine, FAILED, *[AWAY] * 3, PASSED)
    assert (await now(stage, machine.id)).suspect_since is not None
    await stage.play(ADMIT_SECONDS + 120, step=30)
    assert await stage.state(lease) == "starting"
    assert (await now(stage, machine.id)).suspect_since is not None, "nobody could challenge it again yet"
    await stage.play_until(lease, "ready", seconds_max=900, step=30)
    assert [attempt.fail_reason for attempt in await stage.attempts(lease)] == [None]
    await stage.finish()


async def test_a_customer_does_not_wait_for_ever_for_a_suspect_machine_that_is_kept(stage: Stage) -> None:
    machine = await pooled(stage)
    stage.world = dataclasses.replace(stage.world, proof_dry_run=True)
    lease = await claim(stage, machine)
    stage.challenger.always[str(machine.address)] = FAILED
    await challenge_now(stage, machine)
    await stage.play(proof.DOUBT_LASTS.total_seconds() - 60, step=60)
    assert await stage.state(lease) == "starting"
    await stage.play_until(lease, "ready", seconds_max=900, step=30)
    reasons = [attempt.fail_reason for attempt in await stage.attempts(lease)]
    assert reasons == [FailReason.PROOF_FAILED, None], "it goes to another machine"
    await stage.finish()


async def test_a_machine_that_is_claimed_while_its_proof_is_recorded_is_challenged_again_at_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = await pooled(stage)
    open_of_machine, waiting = claims.open_of_machine, [True]

    async def claimed_just_after(connection: Connection, machine_id: MachineId) -> list[Claim]:
        found = await open_of_machine(connection, machine_id)
        if waiting and len(stage.challenger.asked) == 2:
            waiting.clear()
            await claim(stage, machine)
        return found

    monkeypatch.setattr(claims, "open_of_machine", claimed_just_after)
    # Not an answer that a load explains, after which the loop asks once more whether the machine is claimed.
    await challenge_now(stage, machine, dataclasses.replace(FAILED, code="wrong_digest"), PASSED)
    assert not waiting
    async with stage.db.reading() as connection:
        assert len(await rows(connection, _PROOFS)) == 1, (
            "its claim was not locked, so the proof is discarded"
        )
    await stage.run("challenge_machines")
    assert stage.challenger.occasions(str(machine.address)) == [Occasion.START, Occasion.IDLE, Occasion.IDLE]
    async with stage.db.reading() as connection:
        assert [row.outcome for row in await rows(connection, _PROOFS)] == ["passed", "passed"]
    assert (await now(stage, machine.id)).suspect_since is None
    await stage.finish()
