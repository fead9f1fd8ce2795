"""Claims between leases and machines: who holds what, whose turn it is to be admitted, and how a claim ends."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from control_plane.db import claims, lease_endings, leases
from control_plane.db.connection import Connection
from control_plane.db.engine import Database
from control_plane.domain.attempt import AttemptOutcome
from control_plane.domain.claim import Claim
from control_plane.domain.deadline import OverdueClaim
from control_plane.domain.ids import ClaimId
from control_plane.domain.lease import EndReason, LeaseState
from control_plane.domain.machine import MachineEvent, MachineState, Purpose
from control_plane.domain.progress import Step
from control_plane.domain.proof import DOUBT_LASTS
from control_plane.outcomes import machines as machine_outcomes
from control_plane.outcomes.claims import claim_machine
from tests.integration.db.leased import ACCOUNT, ACTOR, ELSEWHERE, MINUTE, Leased
from tests.support.clock import START, Clock
from tests.support.rows import rows

pytestmark = pytest.mark.database
ONE, TWO = UUID(int=1), UUID(int=2)


@pytest.fixture
async def leased(db: Database, clock: Clock) -> Leased:
    return await Leased(db, clock).begin()


def _ids(found: Sequence[Claim | OverdueClaim]) -> set[UUID]:
    return {claim.id for claim in found}


async def _overdue(connection: Connection, leased: Leased) -> list[OverdueClaim]:
    now = leased.clock.now()
    return await claims.overdue(connection, now=now, suspect_before=now - DOUBT_LASTS, limit=100)


# Placing.


async def test_a_placed_lease_has_a_claim_an_attempt_and_a_machine_that_is_only_intended(
    leased: Leased,
) -> None:
    claim = await leased.placed()
    lease, machine = await leased.lease_now(claim.lease_id), await leased.machine_now(claim.machine_id)
    assert (lease.state, lease.attempts, claim.attempt) == (LeaseState.STARTING, 1, 1)
    assert (machine.state, machine.purpose) == (MachineState.INTENDED, Purpose.LEASE)
    assert (claim.organization_id, claim.project_id) == (lease.organization_id, lease.project_id)
    async with leased.db.reading() as connection:
        (attempt,) = await rows(connection, text("SELECT * FROM attempts"))
        (line,) = await rows(connection, text("SELECT * FROM journal WHERE event = 'intended'"))
    assert (attempt.machine_id, attempt.offer_key, attempt.outcome) == (machine.id, "offer", None)
    assert (line.lease_id, line.machine_id, line.project_id) == (lease.id, machine.id, lease.project_id)


# Whose turn it is to be admitted.


async def test_only_customers_of_verified_machines_of_the_account_are_admitted_and_once_after_their_deadline(
    leased: Leased,
) -> None:
    mine = await leased.verified()
    await leased.placed()
    theirs = await leased.verified(account=ELSEWHERE)
    assert _ids(await leased.take(ONE)) == {mine.id}
    assert _ids(await leased.take(ONE, account=ELSEWHERE)) == {theirs.id}
    late, waits = await leased.verified(), await leased.verified()
    leased.clock.advance(600)
    async with leased.db.reading() as connection:
        overdue = await _overdue(connection, leased)
    assert _ids(overdue) == {mine.id, theirs.id, late.id, waits.id}
    assert _ids(await leased.take(TWO)) == {mine.id, late.id, waits.id}
    now = leased.clock.now()
    async with leased.db.transaction() as connection:
        await claims.retry(connection, late.id, token=TWO, now=now, due_at=now)
        await claims.retry(connection, mine.id, token=TWO, now=now - MINUTE, due_at=now)
        await claims.wait(connection, waits.id, token=TWO, due_at=now, waits_for=None, now=now)
    async with leased.db.reading() as connection:
        attended = {claim.id: claim.attended_until for claim in await _overdue(connection, leased)}
    assert attended == {theirs.id: None, late.id: now, mine.id: now - MINUTE, waits.id: None}
    assert _ids(await leased.take(ONE)) == {mine.id, waits.id}


async def test_the_deadline_of_a_customer_who_waits_for_a_suspect_machine_waits_too_but_not_for_ever(
    leased: Leased,
) -> None:
    claim = await leased.verified()
    leased.clock.advance(540)
    suspect_since = leased.clock.now()
    async with leased.db.transaction() as connection:
        await connection.execute(text("UPDATE machines SET suspect_since = :now"), {"now": suspect_since})
    for after in (MINUTE, DOUBT_LASTS - MINUTE / 60, DOUBT_LASTS, 2 * DOUBT_LASTS):
        leased.clock.advance((suspect_since + after - leased.clock.now()).total_seconds())
        async with leased.db.reading() as connection:
            overdue = _ids(await _overdue(connection, leased))
        assert overdue == (set() if after < DOUBT_LASTS else {claim.id}), after


async def test_a_customer_who_waited_while_a_machine_was_suspect_gets_the_time_back_once_it_is_cleared(
    leased: Leased,
) -> None:
    waits, admitted = await leased.verified(), await leased.admitted()
    leased.clock.advance(900)
    later = leased.clock.now() + 10 * MINUTE
    async with leased.db.transaction() as connection:
        for claim in (waits, admitted):
            await claims.machine_cleared(connection, claim.machine_id, deadline_at=later)
        deadlines = {row.id: row.deadline_at for row in await rows(connection, text("SELECT * FROM claims"))}
    assert deadlines == {waits.id: later, admitted.id: START + 10 * MINUTE}
    assert _ids(await leased.take(ONE)) == {waits.id}


async def test_whoever_works_at_the_deadline_finishes(leased: Leased) -> None:
    claim = await leased.verified()
    leased.clock.advance(599)
    (taken,) = await leased.take(ONE)
    leased.clock.advance(1)
    async with leased.db.reading() as connection:
        assert await _overdue(connection, leased) == []
    assert await leased.admit(taken, token=ONE)
    assert (await leased.lease_now(claim.lease_id)).state is LeaseState.READY


async def test_a_held_claim_is_left_alone_until_the_hold_runs_out(leased: Leased) -> None:
    claim = await leased.verified()
    assert _ids(await leased.take(ONE)) == {claim.id}
    assert await leased.take(TWO) == []
    leased.clock.advance(60)
    assert _ids(await leased.take(TWO)) == {claim.id}


async def test_a_worker_that_lost_a_claim_writes_nothing_any_more(leased: Leased) -> None:
    (claim,) = [await leased.verified()]
    await leased.take(ONE)
    leased.clock.advance(60)
    await leased.take(TWO)
    now = leased.clock.now()
    async with leased.db.transaction() as connection:
        values = {"now": now, "until": now + MINUTE}
        assert not await claims.record_step(connection, claim.id, Step.MESH_JOINED, token=ONE, **values)
        await claims.retry(connection, claim.id, token=ONE, now=now, due_at=now)
        assert not await claims.admitted(connection, claim.id, token=ONE, now=now)
        (row,) = await rows(connection, text("SELECT work_token, tries, step, admitted_at FROM claims"))
        assert tuple(row) == (TWO, 0, None, None)
        assert await claims.record_step(connection, claim.id, Step.MESH_JOINED, token=TWO, **values)
    assert not await leased.admit(claim, token=ONE)
    assert await leased.admit(claim, token=TWO)


async def test_a_machine_that_becomes_suspect_while_its_customer_is_admitted_admits_nobody(
    leased: Leased,
) -> None:
    claim = await leased.verified()
    await leased.take(ONE)
    now = leased.clock.now()
    async with leased.db.transaction() as connection:
        await connection.execute(text("UPDATE machines SET suspect_since = :now"), {"now": now})
    async with leased.db.transaction() as connection:
        assert not await claims.record_step(
            connection, claim.id, Step.MESH_JOINED, token=ONE, now=now, until=now + MINUTE
        )
    assert not await leased.admit(claim, token=ONE)
    async with leased.db.transaction() as connection:
        await connection.execute(text("UPDATE machines SET suspect_since = NULL"))
    assert await leased.admit(claim, token=ONE)


async def test_a_step_is_shown_and_holds_the_claim_on(leased: Leased) -> None:
    claim = await leased.verified()
    await leased.take(ONE)
    leased.clock.advance(50)
    now = leased.clock.now()
    async with leased.db.transaction() as connection:
        for step in (Step.MESH_JOINED, None):
            assert await claims.record_step(
                connection, claim.id, step, token=ONE, now=now, until=now + MINUTE
            )
    (open_claim,) = await leased.open_claims(claim.machine_id)
    assert open_claim.step is Step.MESH_JOINED, "holding on shows no step and hides none"
    leased.clock.advance(59)
    assert await leased.take(TWO) == []


async def test_a_failed_try_waits_for_its_turn(leased: Leased) -> None:
    claim = await leased.verified()
    await leased.take(ONE)
    async with leased.db.transaction() as connection:
        await claims.retry(connection, claim.id, token=ONE, now=START, due_at=START + MINUTE)
    assert await leased.take(TWO) == []
    leased.clock.advance(60)
    assert [taken.tries for taken in await leased.take(TWO)] == [1]


async def test_a_claim_that_ended_is_worked_on_no_longer(leased: Leased) -> None:
    claim = await leased.verified()
    (taken,) = await leased.take(ONE)
    await leased.release(claim.lease_id, claim.organization_id)
    async with leased.db.transaction() as connection:
        now = leased.clock.now()
        assert not await claims.record_step(
            connection, claim.id, None, token=ONE, now=now, until=now + MINUTE
        )
    assert not await leased.admit(taken, token=ONE)
    assert (await leased.lease_now(claim.lease_id)).ready_at is None


async def test_customers_of_slots_are_admitted_apart_from_those_of_whole_machines(leased: Leased) -> None:
    node = await leased.waiting(Purpose.NODE)
    whole = await leased.verified()
    slots = [await leased.claim(await leased.lease(), node, slot) for slot in (1, 2)]
    assert {claim.id for claim in slots if isinstance(claim, Claim)} == _ids(
        await leased.take(ONE, slots=True)
    )
    assert _ids(await leased.take(TWO)) == {whole.id}
    leased.clock.advance(3_600)
    async with leased.db.reading() as connection:
        overdue = await _overdue(connection, leased)
    assert {(claim.id, claim.slot) for claim in overdue} == {
        (whole.id, None),
        *((claim.id, claim.slot) for claim in slots if isinstance(claim, Claim)),
    }


async def test_admission_makes_the_lease_ready_and_its_hold_due_when_half_of_it_is_used(
    leased: Leased,
) -> None:
    claim = await leased.admitted()
    lease = await leased.lease_now(claim.lease_id)
    assert (lease.state, lease.ready_at) == (LeaseState.READY, START)
    async with leased.db.reading() as connection:
        (attempt,) = await rows(connection, text("SELECT outcome, ended_at FROM attempts"))
        (hold,) = await rows(connection, text("SELECT due_at FROM holds"))
    assert tuple(attempt) == (AttemptOutcome.ADMITTED, START)
    assert hold.due_at == START + 30 * MINUTE
    assert not await leased.admit(claim, token=claim.id), "the second time changes nothing"


# Claiming what is there already.


async def test_of_two_leases_that_race_for_a_machine_one_gets_it(leased: Leased) -> None:
    machine_id = await leased.waiting(Purpose.POOL)
    racing = [await leased.lease() for _ in range(2)]
    got = await asyncio.gather(*(leased.claim(lease, machine_id) for lease in racing))
    assert sorted(isinstance(claim, str) for claim in got) == [False, True]
    assert "the machine is taken" in got
    assert len(await leased.open_claims(machine_id)) == 1
    assert len(await leased.take(ONE)) == 1


async def test_a_lease_that_has_a_claim_gets_no_other(leased: Leased) -> None:
    lease = await leased.lease()
    await leased.placed(lease)
    assert await leased.claim(lease, await leased.waiting(Purpose.POOL)) == "the lease is starting"


async def test_a_machine_that_fails_while_it_is_claimed_leaves_no_claim_behind(leased: Leased) -> None:
    machine_id = await leased.waiting(Purpose.POOL)
    lease = await leased.lease()
    claimed, may_commit = asyncio.Event(), asyncio.Event()

    async def claim() -> None:
        async with leased.db.transaction() as connection:
            locked = (await leases.lock(connection, [lease.id]))[lease.id]
            await claim_machine(
                connection, locked, machine_id, slot=None, claim_id=ClaimId(ONE), actor=ACTOR, now=START
            )
            claimed.set()
            await may_commit.wait()

    claiming = asyncio.create_task(claim())
    await claimed.wait()
    failing = asyncio.create_task(leased.fail(machine_id))
    await asyncio.sleep(0.2)
    may_commit.set()
    await claiming
    assert not await failing, "it was decided without the new claim; the next activation decides again"
    assert (await leased.machine_now(machine_id)).state is MachineState.VERIFIED
    assert await leased.fail(machine_id)
    assert await leased.open_claims(machine_id) == []
    assert (await leased.lease_now(lease.id)).state is LeaseState.PLACING


# The end of a claim.


async def test_a_release_in_the_role_of_the_api_ends_the_claim_and_touches_no_machine(
    leased: Leased, api_db: Database
) -> None:
    claim = await leased.verified()
    before = await leased.machine_now(claim.machine_id)
    await Leased(api_db, leased.clock).release(claim.lease_id, claim.organization_id)
    assert await leased.machine_now(claim.machine_id) == before
    lease = await leased.lease_now(claim.lease_id)
    assert (lease.state, lease.end_reason) == (LeaseState.ENDING, EndReason.RELEASED)
    async with leased.db.reading() as connection:
        (ended,) = await rows(connection, text("SELECT ended_at, released_at FROM claims"))
        (attempt,) = await rows(connection, text("SELECT outcome FROM attempts"))
    assert tuple(ended) == (START, None)
    assert attempt.outcome == AttemptOutcome.ABANDONED


async def test_the_api_may_end_a_claim_and_do_nothing_else_to_it(leased: Leased, api_db: Database) -> None:
    claim = await leased.verified()
    for column in ("released_at", "admitted_at", "deadline_at", "claimed_at"):
        with pytest.raises(DBAPIError, match="permission denied"):
            async with api_db.transaction(claim.organization_id) as connection:
                await connection.execute(text(f"UPDATE claims SET {column} = now()"))


async def test_an_ended_claim_is_released_once_and_its_machine_goes(leased: Leased) -> None:
    claim = await leased.admitted()
    await leased.release(claim.lease_id, claim.organization_id)
    first_has_it, may_commit = asyncio.Event(), asyncio.Event()

    async def first() -> int:
        async with leased.db.transaction() as connection:
            count = await machine_outcomes.release_ended(connection, actor=ACTOR, now=START, limit=10)
            first_has_it.set()
            await may_commit.wait()
            return count

    async def second() -> int:
        await first_has_it.wait()
        async with leased.db.transaction() as connection:
            count = await machine_outcomes.release_ended(connection, actor=ACTOR, now=START, limit=10)
        may_commit.set()
        return count

    assert tuple(await asyncio.gather(first(), second())) == (1, 0)
    assert (await leased.machine_now(claim.machine_id)).state is MachineState.TERMINATING


async def _finished(leased: Leased) -> set[UUID]:
    async with leased.db.transaction() as connection:
        return {lease.id for lease in await lease_endings.take_finished(connection, limit=10)}


async def test_a_lease_is_finished_when_its_machines_are_gone_and_one_with_a_slot_when_that_is_released(
    leased: Leased,
) -> None:
    whole = await leased.admitted()
    node = await leased.waiting(Purpose.NODE)
    slot = await leased.claim(await leased.lease(), node, 1)
    assert isinstance(slot, Claim)
    for claim in (whole, slot):
        await leased.release(claim.lease_id, claim.organization_id)
    assert await _finished(leased) == set()
    async with leased.db.transaction() as connection:
        await machine_outcomes.release_ended(connection, actor=ACTOR, now=START, limit=10)
    assert await _finished(leased) == {slot.lease_id}
    async with leased.db.transaction() as connection:
        await connection.execute(
            text("UPDATE machines SET state = 'gone', gone_evidence = 'it says so' WHERE id = :id"),
            {"id": whole.machine_id},
        )
    assert await _finished(leased) == {slot.lease_id, whole.lease_id}


async def test_a_machine_that_is_lost_while_its_lease_starts_costs_the_lease_an_attempt(
    leased: Leased,
) -> None:
    claim = await leased.verified()
    assert await leased.fail(claim.machine_id)
    assert (await leased.lease_now(claim.lease_id)).state is LeaseState.PLACING
    assert await leased.open_claims(claim.machine_id) == []
    async with leased.db.reading() as connection:
        (attempt,) = await rows(connection, text("SELECT outcome, fail_reason, fail_why FROM attempts"))
        (ended,) = await rows(connection, text("SELECT ended_at, released_at FROM claims"))
    assert tuple(attempt) == (AttemptOutcome.FAILED, "vanished", "a test")
    assert tuple(ended) == (START, START), "the machine's side has dealt with it already"


@pytest.mark.parametrize(
    ("event", "reason"),
    [(MachineEvent.VANISHED, EndReason.MACHINE_LOST), (MachineEvent.DISPROVEN, EndReason.PROOF_FAILED)],
)
async def test_a_machine_that_is_lost_while_it_is_used_ends_its_lease_and_the_attempt_keeps_its_outcome(
    leased: Leased, event: MachineEvent, reason: EndReason
) -> None:
    claim = await leased.admitted()
    leased.clock.advance(600)
    assert await leased.fail(claim.machine_id, event)
    lease = await leased.lease_now(claim.lease_id)
    assert (lease.state, lease.end_reason, lease.billed_until) == (LeaseState.ENDING, reason, START)
    async with leased.db.reading() as connection:
        (attempt,) = await rows(connection, text("SELECT outcome, ended_at, fail_reason FROM attempts"))
    assert tuple(attempt) == (AttemptOutcome.ADMITTED, START, "vanished")


async def test_a_node_that_is_lost_ends_every_claim_on_it(leased: Leased) -> None:
    node = await leased.waiting(Purpose.NODE)
    on_it = [await leased.claim(await leased.lease(), node, slot) for slot in (1, 2, 3)]
    assert (await leased.machine_now(node)).account == ACCOUNT
    assert await leased.fail(node)
    assert await leased.open_claims(node) == []
    for claim in on_it:
        assert isinstance(claim, Claim)
        assert (await leased.lease_now(claim.lease_id)).state is LeaseState.PLACING
