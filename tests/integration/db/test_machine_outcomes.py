"""How machines are verified, fail and are released, with the claims and leases that depend on them."""

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from control_plane.db import claims, machines, verification_reports
from control_plane.db.engine import Database
from control_plane.domain.attempt import AttemptOutcome
from control_plane.domain.claim import Claim
from control_plane.domain.deadline import ADMIT_MAX
from control_plane.domain.failure import FailReason
from control_plane.domain.ids import MachineId
from control_plane.domain.lease import LeaseState
from control_plane.domain.machine import (
    ERASED_WITHIN,
    MachineEvent,
    MachineFailure,
    MachineState,
    Purpose,
)
from control_plane.domain.progress import Step
from control_plane.domain.verification import Verdict
from control_plane.outcomes import machines as outcomes
from control_plane.outcomes.machines import Verification
from control_plane.world import uuid7
from tests.integration.db.leased import ACTOR, Leased
from tests.support.clock import START, Clock
from tests.support.rows import rows

pytestmark = pytest.mark.database
S, E = MachineState, MachineEvent
MINUTE = timedelta(minutes=1)
NOT_LET_IN = MachineFailure(E.FAILED, FailReason.UNREACHABLE, "a test")


@pytest.fixture
async def leased(db: Database, clock: Clock) -> Leased:
    return await Leased(db, clock).begin()


def a_reading() -> Verification:
    return Verification(uuid7(), "nvml", '{"gpus": []}')


async def _set(leased: Leased, machine_id: MachineId, **values: Any) -> None:
    columns = ", ".join(f"{column} = :{column}" for column in values)
    async with leased.db.transaction() as connection:
        await connection.execute(
            text(f"UPDATE machines SET {columns} WHERE id = :id"), {**values, "id": machine_id}
        )


async def _starting(leased: Leased, state: MachineState) -> Claim:
    """The claim of a lease that starts on a machine in this state."""
    claim = await leased.placed()
    await _set(leased, claim.machine_id, state=state.value, asked_at=START)
    return claim


async def _fail(
    leased: Leased, machine_id: MachineId, failure: MachineFailure, *, seen: int | None = None
) -> bool:
    async with leased.db.transaction() as connection:
        return await outcomes.fail(
            connection, machine_id, failure, actor=ACTOR, now=leased.clock.now(), seen=seen
        )


async def _verified(leased: Leased, machine_id: MachineId, *, proof_due_at: datetime | None = None) -> bool:
    machine = await leased.machine_now(machine_id)
    async with leased.db.transaction() as connection:
        return await outcomes.verified(
            connection, machine, a_reading(), actor=ACTOR, now=leased.clock.now(), proof_due_at=proof_due_at
        )


async def _release(leased: Leased, *, limit: int = 100) -> int:
    async with leased.db.transaction() as connection:
        return await outcomes.release_ended(connection, actor=ACTOR, now=leased.clock.now(), limit=limit)


async def _raw(leased: Leased, statement: str) -> list[tuple[Any, ...]]:
    async with leased.db.reading() as connection:
        return [tuple(row) for row in await rows(connection, text(statement))]


# Verified.


async def test_a_verified_machine_opens_its_claim_for_admission_and_keeps_its_reading(leased: Leased) -> None:
    claim = await _starting(leased, S.BOOTSTRAPPING)
    leased.clock.advance(60)
    assert await _verified(leased, claim.machine_id)
    machine, lease = await leased.machine_now(claim.machine_id), await leased.lease_now(claim.lease_id)
    assert (machine.state, machine.step) == (S.VERIFIED, Step.GPUS_VERIFIED)
    assert lease.state is LeaseState.STARTING, "its customer is not on the machine yet"
    due = await _raw(leased, "SELECT due_at, deadline_at FROM claims")
    assert due == [(leased.clock.now(), leased.clock.now() + ADMIT_MAX)]
    async with leased.db.reading() as connection:
        (report,) = await verification_reports.of_lease(connection, lease.id)
    assert (report.machine_id, report.verdict, report.reading) == (machine.id, Verdict.VERIFIED, {"gpus": []})
    stored = await _raw(leased, "SELECT organization_id, project_id FROM verification_reports")
    assert stored == [(lease.organization_id, lease.project_id)]


async def test_a_machine_that_had_to_prove_its_gpus_is_challenged_again_when_it_is_due(
    leased: Leased,
) -> None:
    claim = await _starting(leased, S.BOOTSTRAPPING)
    await _set(leased, claim.machine_id, proof="proven")
    assert await _verified(leased, claim.machine_id, proof_due_at=START + MINUTE)
    assert (await leased.machine_now(claim.machine_id)).step is Step.GPUS_PROVEN
    assert await _raw(leased, "SELECT proof_due_at FROM machines") == [(START + MINUTE,)]


async def test_a_report_of_a_machine_that_nobody_claims_is_nobodys(leased: Leased) -> None:
    pool = await leased.waiting(Purpose.POOL)
    await _set(leased, pool, state=S.BOOTSTRAPPING.value)
    assert await _verified(leased, pool)
    stored = "SELECT organization_id, project_id, lease_id, machine_id FROM verification_reports"
    assert await _raw(leased, stored) == [(None, None, None, pool)]


async def test_what_a_worker_found_of_a_machine_that_moved_meanwhile_is_dropped(leased: Leased) -> None:
    claim = await _starting(leased, S.BOOTSTRAPPING)
    before = await leased.machine_now(claim.machine_id)
    assert await leased.fail(claim.machine_id)
    async with leased.db.transaction() as connection:
        assert not await outcomes.verified(connection, before, a_reading(), actor=ACTOR, now=START)
        assert not await outcomes.mismatched(
            connection, before, a_reading(), why="a test", actor=ACTOR, now=START
        )
    assert await _raw(leased, "SELECT count(*) FROM verification_reports") == [(0,)]
    assert (await leased.machine_now(claim.machine_id)).fail_reason is FailReason.VANISHED


async def test_a_mismatch_that_comes_late_leaves_the_machine_that_another_worker_verified(
    leased: Leased,
) -> None:
    claim = await _starting(leased, S.BOOTSTRAPPING)
    before = await leased.machine_now(claim.machine_id)
    assert await _verified(leased, claim.machine_id)
    async with leased.db.transaction() as connection:
        assert not await outcomes.mismatched(
            connection, before, a_reading(), why="a test", actor=ACTOR, now=START
        )
    assert (await leased.machine_now(claim.machine_id)).state is S.VERIFIED


async def test_a_machine_that_is_not_what_was_ordered_goes_with_the_evidence_and_its_lease_tries_on(
    leased: Leased,
) -> None:
    claim = await _starting(leased, S.BOOTSTRAPPING)
    machine = await leased.machine_now(claim.machine_id)
    async with leased.db.transaction() as connection:
        assert await outcomes.mismatched(
            connection,
            machine,
            a_reading(),
            why="gpu_count: 7 GPUs found, 8 ordered.",
            actor=ACTOR,
            now=START,
        )
    after = await leased.machine_now(claim.machine_id)
    assert (after.state, after.fail_reason) == (S.TERMINATING, FailReason.GPU_MISMATCH)
    assert (await leased.lease_now(claim.lease_id)).state is LeaseState.PLACING
    async with leased.db.reading() as connection:
        (report,) = await verification_reports.of_lease(connection, claim.lease_id)
    assert (report.verdict, report.why) == (Verdict.MISMATCH, "gpu_count: 7 GPUs found, 8 ordered.")


# Failing.


async def test_a_refused_launch_closes_the_row_and_its_lease_looks_elsewhere_with_the_reason(
    leased: Leased,
) -> None:
    claim = await _starting(leased, S.LAUNCHING)
    refused = MachineFailure(E.REJECTED, FailReason.NO_CAPACITY, "sold out", gone_evidence="it refused")
    assert await _fail(leased, claim.machine_id, refused)
    assert not await _fail(leased, claim.machine_id, refused), "twice is once"
    machine = await leased.machine_now(claim.machine_id)
    assert (machine.state, machine.fail_reason) == (S.GONE, FailReason.NO_CAPACITY)
    assert (await leased.lease_now(claim.lease_id)).state is LeaseState.PLACING
    assert await _raw(leased, "SELECT outcome, fail_reason, fail_why FROM attempts") == [
        (AttemptOutcome.FAILED, FailReason.NO_CAPACITY, "sold out")
    ]
    assert await leased.open_claims(machine.id) == []
    assert await _release(leased) == 0, "its claim was released in the same moment"


async def test_a_failure_that_was_decided_on_another_generation_changes_nothing(leased: Leased) -> None:
    claim = await _starting(leased, S.BOOTING)
    failure = MachineFailure(E.FAILED, FailReason.NEVER_BOOTED, "a test")
    generation = (await leased.machine_now(claim.machine_id)).generation
    assert not await _fail(leased, claim.machine_id, failure, seen=generation + 1)
    assert await _fail(leased, claim.machine_id, failure, seen=generation)


async def test_a_machine_whose_customer_was_admitted_meanwhile_does_not_fail_for_the_lack_of_it(
    leased: Leased,
) -> None:
    claim = await leased.verified()
    await leased.admitted(claim)
    assert not await _fail(leased, claim.machine_id, NOT_LET_IN)
    assert (await leased.lease_now(claim.lease_id)).state is LeaseState.READY


async def test_a_machine_that_admits_nobody_in_time_fails_and_its_lease_tries_another(leased: Leased) -> None:
    claim = await leased.verified()
    assert await _fail(leased, claim.machine_id, NOT_LET_IN)
    assert (await leased.machine_now(claim.machine_id)).state is S.TERMINATING
    assert (await leased.lease_now(claim.lease_id)).state is LeaseState.PLACING


async def test_a_refusal_that_comes_after_the_release_still_closes_the_row(leased: Leased) -> None:
    claim = await _starting(leased, S.LAUNCHING)
    await leased.release(claim.lease_id, claim.organization_id)
    assert await _release(leased) == 1
    assert (await leased.machine_now(claim.machine_id)).state is S.TERMINATING
    refused = MachineFailure(E.REJECTED, FailReason.LEASE_ENDED, "busy", gone_evidence="it refused")
    assert await _fail(leased, claim.machine_id, refused)
    assert (await leased.machine_now(claim.machine_id)).state is S.GONE
    assert await _raw(leased, "SELECT outcome, fail_reason FROM attempts") == [
        (AttemptOutcome.ABANDONED, None)
    ]


# Released.


async def test_an_intent_whose_lease_is_released_closes_without_the_provider(leased: Leased) -> None:
    claim = await leased.placed()
    await leased.release(claim.lease_id, claim.organization_id)
    assert (await leased.machine_now(claim.machine_id)).state is S.INTENDED, "the API wrote no machine"
    assert await _release(leased) == 1
    assert (await leased.machine_now(claim.machine_id)).state is S.GONE
    assert await _release(leased) == 0


@pytest.mark.parametrize("admitted", [True, False])
async def test_a_proven_machine_that_a_customer_was_on_waits_to_be_erased(
    leased: Leased, admitted: bool
) -> None:
    claim = await leased.verified()
    await _set(leased, claim.machine_id, proof="proven")
    if admitted:
        await leased.admitted(claim)
    await leased.release(claim.lease_id, claim.organization_id)
    leased.clock.advance(1)
    assert await _release(leased) == 1
    machine = await leased.machine_now(claim.machine_id)
    assert machine.state is S.TERMINATING
    assert machine.erasing_until == (leased.clock.now() + ERASED_WITHIN if admitted else None)


async def test_ended_claims_are_dealt_with_in_batches_and_by_one_worker_each(leased: Leased) -> None:
    for _ in range(5):
        claim = await leased.placed()
        await leased.release(claim.lease_id, claim.organization_id)
    assert await _release(leased, limit=2) == 2
    async with leased.db.transaction() as connection:
        mine = await claims.take_ended(connection, kept_since=START, limit=1)
        assert len(mine) == 1
        assert await _release(leased) == 2, "the one in other hands is skipped"
    assert await _release(leased) == 1
    assert await _raw(leased, "SELECT DISTINCT state FROM machines") == [("gone",)]


async def test_a_node_stays_when_a_claim_on_a_slot_of_it_ends(leased: Leased) -> None:
    node = await leased.waiting(Purpose.NODE)
    claim = await leased.claim(await leased.lease(), node, slot=1)
    assert isinstance(claim, Claim)
    await leased.release(claim.lease_id, claim.organization_id)
    assert await _release(leased) == 1
    assert (await leased.machine_now(node)).state is S.VERIFIED


# Together.


async def test_whatever_happens_to_a_machine_at_once_nobody_waits_in_a_circle(leased: Leased) -> None:
    """A release, a failure, a verification and the machine's side of releases, all on the same few rows."""
    started = [await _starting(leased, S.BOOTSTRAPPING) for _ in range(4)]

    async def release(claim: Claim) -> object:
        await leased.release(claim.lease_id, claim.organization_id)
        return None

    async def fail(claim: Claim) -> object:
        return await leased.fail(claim.machine_id)

    async def verify(claim: Claim) -> object:
        return await _verified(leased, claim.machine_id)

    turns = [act(claim) for claim in started for act in (release, fail, verify)]
    turns += [_release(leased, limit=2) for _ in range(4)]
    results = await asyncio.gather(*turns, return_exceptions=True)
    assert not [result for result in results if isinstance(result, BaseException)], results
    while await _release(leased):
        pass
    for claim in started:
        assert (await leased.machine_now(claim.machine_id)).state is S.TERMINATING
        assert (await leased.lease_now(claim.lease_id)).state is LeaseState.ENDING
    assert await _raw(leased, "SELECT count(*) FROM claims WHERE released_at IS NULL") == [(0,)]
    assert await _raw(leased, "SELECT count(*) FROM attempts WHERE outcome IS NULL") == [(0,)]


async def test_machines_are_locked_in_one_order_however_they_are_named(leased: Leased) -> None:
    ids = [(await leased.placed()).machine_id for _ in range(3)]
    async with leased.db.transaction() as connection:
        locked = await machines.lock(connection, [ids[2], ids[0], ids[1], ids[0], MachineId(UUID(int=7))])
    assert list(locked) == sorted(ids)
