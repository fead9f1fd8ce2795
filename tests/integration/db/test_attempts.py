"""Attempts: where a lease failed before, and what its customer reads of them."""

from datetime import datetime

import pytest

from control_plane.db import attempts, machines
from control_plane.db.engine import Database
from control_plane.domain.attempt import AttemptOutcome
from control_plane.domain.failure import FailReason
from control_plane.domain.ids import LeaseId
from control_plane.domain.lease import Lease
from control_plane.domain.machine import MachineEvent, MachineFailure, MachineMove, MachineState, step
from control_plane.domain.placement import Failure
from control_plane.domain.progress import Step
from control_plane.domain.transitions import Moved
from control_plane.outcomes import machines as outcomes
from tests.integration.db.leased import ACTOR, MINUTE, Leased
from tests.support.clock import START, Clock

pytestmark = pytest.mark.database


@pytest.fixture
async def leased(db: Database, clock: Clock) -> Leased:
    return await Leased(db, clock).begin()


async def _attempt_fails(leased: Leased, lease: Lease, reason: FailReason) -> datetime:
    """A minute of one more attempt on the one offer, which then fails; answers when."""
    claim = await leased.verified(await leased.placed(lease))
    leased.clock.advance(60)
    failure = MachineFailure(MachineEvent.VANISHED, reason, "a test")
    async with leased.db.transaction() as connection:
        assert await outcomes.fail(connection, claim.machine_id, failure, actor=ACTOR, now=leased.clock.now())
    return leased.clock.now()


async def _failures(leased: Leased, lease_id: LeaseId) -> dict[str, Failure]:
    async with leased.db.reading() as connection:
        return (await attempts.failures(connection, [lease_id])).get(lease_id, {})


async def test_an_attempt_failed_when_it_was_given_up_whenever_its_machine_goes(leased: Leased) -> None:
    lease = await leased.lease()
    at = await _attempt_fails(leased, lease, FailReason.NEVER_BOOTED)
    leased.clock.advance(3_600)
    (attempt,) = await _of(leased, lease)
    machine = await leased.machine_now(attempt.machine_id)
    gone = step(MachineState.TERMINATING, MachineEvent.CONFIRMED_GONE)
    assert isinstance(gone, Moved)
    move = MachineMove(machine.id, machine.generation, gone, gone_evidence="it says so")
    async with leased.db.transaction() as connection:
        assert await machines.move(connection, [move], actor=ACTOR, now=leased.clock.now())
    assert await _failures(leased, lease.id) == {"offer": Failure(FailReason.NEVER_BOOTED, at)}


async def test_the_latest_attempt_on_an_offer_counts(leased: Leased) -> None:
    lease = await leased.lease()
    await _attempt_fails(leased, lease, FailReason.NEVER_BOOTED)
    at = await _attempt_fails(leased, lease, FailReason.GPU_MISMATCH)
    assert await _failures(leased, lease.id) == {"offer": Failure(FailReason.GPU_MISMATCH, at, times=2)}


async def test_orders_that_no_provider_took_are_counted_apart(leased: Leased) -> None:
    lease = await leased.lease()
    for reason in (FailReason.NO_CAPACITY, FailReason.NEVER_BOOTED, FailReason.NOT_TAKEN):
        await _attempt_fails(leased, lease, reason)
    async with leased.db.reading() as connection:
        assert await attempts.excused(connection, [lease.id]) == {lease.id: 2}


async def test_an_attempt_that_failed_because_of_us_hides_no_failure_of_the_offer(leased: Leased) -> None:
    lease = await leased.lease()
    at = await _attempt_fails(leased, lease, FailReason.GPU_MISMATCH)
    await _attempt_fails(leased, lease, FailReason.NOT_ATTENDED)
    assert await _failures(leased, lease.id) == {"offer": Failure(FailReason.GPU_MISMATCH, at)}


async def test_a_lease_without_failures_has_none_and_others_do_not_count(leased: Leased) -> None:
    lease, other = await leased.lease(), await leased.lease()
    await _attempt_fails(leased, other, FailReason.NEVER_BOOTED)
    await leased.placed(lease)
    assert await _failures(leased, lease.id) == {}


async def _of(leased: Leased, lease: Lease) -> list[attempts.AttemptOverview]:
    async with leased.db.reading() as connection:
        return await attempts.of_leases(connection, [lease.id])


async def test_attempts_come_with_their_machines_oldest_first(leased: Leased) -> None:
    lease = await leased.lease()
    failed_at = await _attempt_fails(leased, lease, FailReason.UNREACHABLE)
    await leased.admitted(await leased.verified(await leased.placed(lease)))
    first, second = await _of(leased, lease)
    assert (first.number, first.outcome, first.ended_at) == (1, AttemptOutcome.FAILED, failed_at)
    assert (first.fail_reason, first.fail_why) == (FailReason.UNREACHABLE, "a test")
    assert (first.state, first.step) == (MachineState.TERMINATING, Step.GPUS_VERIFIED)
    assert (second.number, second.outcome) == (2, AttemptOutcome.ADMITTED)
    assert (second.started_at, second.ended_at) == (START + MINUTE, START + MINUTE)
    assert (second.state, second.step) == (MachineState.VERIFIED, Step.CERTIFICATES_ACCEPTED)
    assert (second.provider, second.region, second.native_type) == ("fake", "us-east-1", "h100.1")
