"""A deadline ends a machine only on evidence from after it, over all states and times."""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product
from uuid import UUID

from control_plane.domain.deadline import (
    HAVE_DEADLINES,
    LOOKED_AT_WITHIN,
    TRIED_FIRST,
    UNATTENDED_MAX,
    UNATTENDED_MAX_WITHOUT_MACHINE,
    Decision,
    Extend,
    GiveUp,
    OverdueClaim,
    OverdueMachine,
    Wait,
    of_claim,
    of_machine,
)
from control_plane.domain.failure import OURS, FailReason
from control_plane.domain.ids import AccountName, ClaimId, LeaseId, MachineId
from control_plane.domain.machine import WANTED, MachineEvent, MachineState, step
from control_plane.domain.proof import DOUBT_LASTS
from control_plane.domain.transitions import Moved
from tests.support.clock import START

SECOND = timedelta(seconds=1)
TINY = timedelta(microseconds=1)
A_DAY = timedelta(days=1)
DEADLINE = START + timedelta(minutes=10)
LATE = (timedelta(0), SECOND, LOOKED_AT_WITHIN, timedelta(minutes=10), timedelta(hours=3), A_DAY)

MACHINE = OverdueMachine(
    id=MachineId(UUID(int=1)),
    account=AccountName("fake"),
    state=MachineState.BOOTING,
    generation=3,
    created_at=START,
    deadline_at=DEADLINE,
    attended_until=None,
)
CLAIM = OverdueClaim(
    id=ClaimId(UUID(int=2)),
    lease_id=LeaseId(UUID(int=3)),
    machine_id=MachineId(UUID(int=1)),
    slot=None,
    claimed_at=START,
    deadline_at=DEADLINE,
    attended_until=None,
    suspect_since=None,
    last_challenged_at=None,
)
OVERDUE: list[OverdueMachine | OverdueClaim] = [
    *(replace(MACHINE, state=state) for state in sorted(HAVE_DEADLINES)),
    CLAIM,
    replace(CLAIM, slot=1),
]
SEEN = {
    MachineState.INTENDED: FailReason.NOT_TAKEN,
    MachineState.LAUNCHING: FailReason.LAUNCH_ANSWER_LOST,
    MachineState.BOOTING: FailReason.NEVER_BOOTED,
    MachineState.BOOTSTRAPPING: FailReason.UNREACHABLE,
}


def _of(overdue: OverdueMachine | OverdueClaim, late: timedelta) -> Decision:
    now = overdue.deadline_at + late
    return of_machine(overdue, now) if isinstance(overdue, OverdueMachine) else of_claim(overdue, now)


def _reason(decision: Decision) -> FailReason | None:
    return decision.failure.reason if isinstance(decision, GiveUp) else None


def _waiting(
    overdue: OverdueMachine | OverdueClaim, since: datetime, attended: datetime | None
) -> OverdueMachine | OverdueClaim:
    """The same, ordered or claimed at another time, and attended to until another time."""
    if isinstance(overdue, OverdueMachine):
        return replace(overdue, created_at=since, attended_until=attended)
    return replace(overdue, claimed_at=since, attended_until=attended)


def _keeps_no_machine(overdue: OverdueMachine | OverdueClaim) -> bool:
    if isinstance(overdue, OverdueClaim):
        return overdue.slot is not None
    return overdue.state is MachineState.INTENDED


def test_every_state_that_is_wanted_and_not_verified_has_a_deadline() -> None:
    assert HAVE_DEADLINES == WANTED - {MachineState.VERIFIED} == set(SEEN)


def test_before_its_deadline_nothing_is_given_up_whatever_was_seen() -> None:
    for overdue, attended in product(OVERDUE, (None, START, DEADLINE + A_DAY)):
        assert _of(replace(overdue, attended_until=attended), -TINY) == Wait(), overdue


def test_who_was_looked_at_since_the_deadline_is_given_up_for_what_was_seen() -> None:
    for overdue, late, after in product(OVERDUE, LATE, (timedelta(0), SECOND)):
        decision = _of(replace(overdue, attended_until=DEADLINE + after), late)
        expected = SEEN[overdue.state] if isinstance(overdue, OverdueMachine) else FailReason.UNREACHABLE
        assert _reason(decision) is expected, (overdue, late)


def test_who_was_not_looked_at_is_never_blamed_however_late_it_is_and_however_often_it_was_tried_before() -> (
    None
):
    for overdue, late, before in product(OVERDUE, LATE, (None, A_DAY, TINY)):
        attended = None if before is None else DEADLINE - before
        for since in (START, START - A_DAY):
            judged = _waiting(overdue, since, attended)
            assert _reason(_of(judged, late)) in {None, *OURS}, (judged, late)


def test_a_deadline_that_passed_just_now_moves_only_when_nobody_looks_at_it_in_time() -> None:
    for overdue, since in product(OVERDUE, (START, START - A_DAY)):
        waiting = _waiting(overdue, since, DEADLINE - TINY)
        assert _of(waiting, timedelta(0)) == _of(waiting, LOOKED_AT_WITHIN - TINY) == Wait(), waiting
        assert _of(waiting, LOOKED_AT_WITHIN) != Wait(), waiting


def test_after_an_outage_of_any_length_everything_is_tried_before_it_is_given_up() -> None:
    outages = (2 * LOOKED_AT_WITHIN, timedelta(minutes=10), timedelta(hours=3), A_DAY, 30 * A_DAY)
    for overdue, late in product(OVERDUE, outages):
        assert _of(overdue, late) == Extend(), (overdue, late)


def test_what_nobody_looks_at_while_loops_run_is_given_up_in_the_end_and_the_reason_is_ours() -> None:
    for overdue in OVERDUE:
        now, deadline, decision = DEADLINE, DEADLINE, _of(overdue, timedelta(0))
        while not isinstance(decision, GiveUp):
            if isinstance(decision, Extend):
                deadline = now + TRIED_FIRST
            now += 5 * SECOND
            assert now - START < A_DAY, overdue
            decision = _of(replace(overdue, deadline_at=deadline), now - deadline)
        bound = UNATTENDED_MAX_WITHOUT_MACHINE if _keeps_no_machine(overdue) else UNATTENDED_MAX
        assert bound <= now - START <= bound + TRIED_FIRST + 2 * LOOKED_AT_WITHIN, overdue
        assert decision.failure.reason is FailReason.NOT_ATTENDED
        assert "outage of ours" in decision.failure.why


def test_every_failure_applies_to_its_state_and_closes_no_row_of_a_machine_that_may_exist() -> None:
    for overdue, seen in product(OVERDUE, (True, False)):
        judged = _waiting(overdue, START - A_DAY, DEADLINE if seen else None)
        decision = _of(judged, LOOKED_AT_WITHIN)
        assert isinstance(decision, GiveUp), judged
        state = overdue.state if isinstance(overdue, OverdueMachine) else MachineState.VERIFIED
        moved = step(state, decision.failure.event)
        assert isinstance(moved, Moved), judged
        intended = state is MachineState.INTENDED
        assert (moved.after is MachineState.GONE) is intended is (decision.failure.gone_evidence is not None)
        assert decision.failure.event in (MachineEvent.NEVER_ASKED, MachineEvent.FAILED)


def test_a_customer_waits_for_a_suspect_machine_to_be_challenged_again_and_only_a_challenge_blames_it() -> (
    None
):
    since = DEADLINE - SECOND
    suspect = replace(CLAIM, suspect_since=since, attended_until=DEADLINE)
    challenged = replace(suspect, last_challenged_at=since + SECOND)
    for claim in (suspect, challenged):
        assert of_claim(claim, since + DOUBT_LASTS - TINY) == Wait()
    assert _reason(of_claim(challenged, since + DOUBT_LASTS)) is FailReason.PROOF_FAILED
    for last in (None, since, since - SECOND):
        alone = replace(suspect, attended_until=None, last_challenged_at=last)
        assert of_claim(alone, since + DOUBT_LASTS) == Extend(), last
