"""What follows from a GPU proof, over every tier, outcome and record; and when the next challenge comes."""

import itertools
import math
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain import proof
from control_plane.domain.failure import FailReason
from control_plane.domain.proof import (
    AGAIN_WHILE_RUNNING,
    BUSY_POSTPONED,
    DOUBT_LASTS,
    FAILING_MACHINES_MAX,
    FORGOTTEN_AFTER,
    FRESH_FOR,
    IDLE_MAX,
    IDLE_MEAN,
    IDLE_MIN,
    STRIKES_MAX,
    UNANSWERED_PER_STRIKE,
    VOID,
    WATCHED_PASSES_MIN,
    Again,
    Drop,
    Held,
    Keep,
    Occasion,
    OwnCode,
    ProofOutcome,
    Record,
    Result,
    Tier,
    at_least,
    doubt_lapses,
    held_back,
    idle_wait,
    next_occasion,
    settled,
    tier,
    while_running,
    while_starting,
)
from data_plane.proof.challenger import judgement, port
from tests.support.clock import START

P = ProofOutcome
DAY = timedelta(days=1)
TINY = timedelta(microseconds=1)


def result(
    outcome: ProofOutcome,
    *,
    at: datetime = START,
    occasion: Occasion = Occasion.IDLE,
    hinted: bool = False,
    attested: bool = False,
) -> Result:
    code = "walk_too_slow" if outcome is P.FAILED else None
    why = "too slow" if code else None
    return Result(occasion, outcome, at, code, why, hinted=hinted, attested=attested)


def record(*outcomes: ProofOutcome) -> Record:
    folded = Record()
    for outcome in outcomes:
        folded = folded.after(result(outcome))
    return folded


RECORDS = [record(*outcomes) for length in range(4) for outcomes in itertools.product(P, repeat=length)]
CHANCES = [0.0, 0.5, 0.999999]
chances = st.floats(min_value=0, max_value=1, exclude_max=True)


# Words.


def test_the_words_of_a_proof_are_those_of_the_data_plane() -> None:
    assert {outcome.value for outcome in ProofOutcome} == {outcome.value for outcome in port.Outcome}
    assert {occasion.value for occasion in Occasion} == {occasion.value for occasion in port.Occasion}


@pytest.mark.parametrize("outcome", ProofOutcome)
@pytest.mark.parametrize("source", ["emulated", "", "cuda ", "CUDA", "nvml"])
def test_only_cuda_passes_whoever_says_otherwise(outcome: ProofOutcome, source: str) -> None:
    assert settled(outcome, "cuda") is outcome
    assert settled(outcome, source) is not P.PASSED
    if outcome is not P.PASSED:
        assert settled(outcome, source) is outcome


def test_only_silences_with_a_sentence_of_their_own_count_for_nothing() -> None:
    assert {*OwnCode, *judgement.SILENCES} >= VOID


@pytest.mark.parametrize("code", sorted(VOID))
def test_a_void_challenge_changes_no_record_and_is_repeated_later(code: str) -> None:
    void = Result(Occasion.IDLE, P.UNANSWERED, START, code, "in use")
    for known in RECORDS:
        assert known.after(void) == known
        assert while_running(known, void, Tier.PROVEN, chance=0.5) == Again(BUSY_POSTPONED, suspect=None)
    failed = Result(Occasion.IDLE, P.FAILED, START, code, "wrong")
    assert record(P.PASSED).after(failed).strikes == 1, "only a silence may count for nothing"


def test_a_doubt_lapses_only_where_no_other_challenge_was_made_in_time() -> None:
    for known in RECORDS:
        assert not doubt_lapses(known, None, START)
        assert not doubt_lapses(known, START, START + DOUBT_LASTS - TINY)
        assert doubt_lapses(known, START, START + DOUBT_LASTS)
        looked_at = replace(known, last_at=START + TINY)
        assert not doubt_lapses(looked_at, START, START + DOUBT_LASTS), "it is being challenged"


def test_a_pass_without_the_attestation_that_was_sold_is_repeated_once_and_then_drops_the_machine() -> None:
    attested = Record().after(result(P.PASSED, attested=True))
    once = while_running(attested, result(P.PASSED), Tier.ATTESTED, chance=0.5)
    assert once == Again(AGAIN_WHILE_RUNNING, suspect=False)
    bare = attested.after(result(P.PASSED))
    twice = while_running(bare, result(P.PASSED), Tier.ATTESTED, chance=0.5)
    assert isinstance(twice, Drop)
    assert "attested was sold" in twice.why
    again = while_running(bare, result(P.PASSED, attested=True), Tier.ATTESTED, chance=0.5)
    assert isinstance(again, Keep)


# Tiers.


def test_tiers_are_ordered_and_each_is_at_least_itself() -> None:
    for (low, demanded), (high, reached) in itertools.product(enumerate(Tier), repeat=2):
        assert at_least(reached, demanded) is (high >= low)


def test_a_machine_that_never_passed_is_only_listed() -> None:
    for known in RECORDS:
        if not known.passes:
            assert tier(known, START) is Tier.LISTED


def test_a_strike_since_the_last_pass_removes_every_tier() -> None:
    for known in RECORDS:
        assert (tier(known, START) is Tier.LISTED) == (not known.passes or known.strikes > 0), known


def test_a_pass_counts_for_a_week_and_not_longer() -> None:
    passed = record(P.PASSED)
    assert tier(passed, START + FRESH_FOR) is Tier.PROVEN
    assert tier(passed, START + FRESH_FOR + TINY) is Tier.LISTED


@pytest.mark.parametrize(
    ("passes", "days", "watched"),
    [
        (WATCHED_PASSES_MIN, 7, True),
        (WATCHED_PASSES_MIN - 1, 7, False),
        (WATCHED_PASSES_MIN, 6.99, False),
        (100, 1, False),
    ],
)
def test_watched_needs_several_passes_over_a_week(passes: int, days: float, watched: bool) -> None:
    known = Record(passes, START - days * DAY, START)
    assert tier(known, START) is (Tier.WATCHED if watched else Tier.PROVEN)


def test_an_attestation_counts_while_it_came_with_the_last_pass() -> None:
    attested = Record().after(result(P.PASSED, attested=True))
    assert tier(attested, START) is Tier.ATTESTED
    assert tier(attested.after(result(P.PASSED)), START) is Tier.PROVEN


def test_silence_is_a_strike_only_once_it_was_repeated_often_enough() -> None:
    known = record(P.PASSED)
    for asked in range(1, 3 * UNANSWERED_PER_STRIKE):
        known = known.after(result(P.UNANSWERED))
        assert known.strikes == asked // UNANSWERED_PER_STRIKE


def test_a_pass_clears_everything_that_spoke_against_the_machine() -> None:
    for known in RECORDS:
        cleared = known.after(result(P.PASSED))
        assert cleared.quiet
        assert cleared.strikes == 0


# What is remembered.


def test_what_is_shown_at_the_end_of_a_claim_changes_no_record() -> None:
    for known, outcome in itertools.product(RECORDS, P):
        assert known.after(result(outcome, occasion=Occasion.END)) == known


def test_a_record_is_kept_as_long_as_the_machine_is_challenged_often_enough() -> None:
    for known, outcome in itertools.product(RECORDS, P):
        if known.last_at is None:
            continue
        later = known.after(result(outcome, at=known.last_at + FORGOTTEN_AFTER))
        assert later.passes == known.passes + (outcome is P.PASSED)
        if known.first_passed_at is not None:
            assert later.first_passed_at == known.first_passed_at


def test_a_record_begins_anew_after_too_long_without_a_challenge() -> None:
    for known, outcome in itertools.product(RECORDS, P):
        if known.last_at is None:
            continue
        late = result(outcome, at=known.last_at + FORGOTTEN_AFTER + TINY)
        assert known.after(late) == Record().after(late), "old passes make no tier, old failures no strike"


def test_old_passes_do_not_make_a_machine_watched() -> None:
    passed = Record()
    for day in range(WATCHED_PASSES_MIN):
        passed = passed.after(result(P.PASSED, at=START + 2 * day * DAY))
    assert tier(passed, passed.last_at or START) is Tier.WATCHED
    late = (passed.last_at or START) + FORGOTTEN_AFTER + TINY
    assert tier(passed.after(result(P.PASSED, at=late)), late) is Tier.PROVEN


def test_a_void_challenge_does_not_keep_a_record_from_being_forgotten() -> None:
    passed = record(P.PASSED)
    void = Result(Occasion.IDLE, P.UNANSWERED, START + FORGOTTEN_AFTER, OwnCode.DISTURBED, "in use")
    late = result(P.FAILED, at=START + FORGOTTEN_AFTER + TINY)
    assert passed.after(void).after(late).passes == 0


# While a machine is set up.


def test_a_machine_starts_only_with_a_pass_that_makes_the_tier_that_was_sold() -> None:
    for known, outcome, demanded, attested in itertools.product(
        RECORDS, P, proof.DEMANDED - {Tier.LISTED}, [True, False]
    ):
        decided = while_starting(known, result(outcome, attested=attested), demanded, chance=0.5)
        if isinstance(decided, Keep):
            assert outcome is P.PASSED
            assert at_least(decided.tier, demanded)
        if outcome is P.PASSED:
            wanted = attested or demanded is not Tier.ATTESTED
            assert isinstance(decided, Keep) is wanted, (known, demanded)


def test_an_emulation_is_dropped_at_once_with_a_reason_of_its_own() -> None:
    for known in RECORDS:
        decided = while_starting(known, result(P.EMULATED), Tier.PROVEN, chance=0.5)
        assert isinstance(decided, Drop)
        assert decided.reason is FailReason.PROOF_EMULATED


def test_a_starting_machine_has_one_more_chance_after_its_first_failure_and_none_after_the_second() -> None:
    assert isinstance(while_starting(Record(), result(P.FAILED), Tier.PROVEN, chance=0), Again)
    second = while_starting(record(P.FAILED, P.UNANSWERED), result(P.FAILED), Tier.PROVEN, chance=0)
    assert isinstance(second, Drop)
    assert second.reason is FailReason.PROOF_FAILED
    assert "walk_too_slow" in second.why


def test_silence_never_drops_a_starting_machine_its_deadline_does() -> None:
    for known in RECORDS:
        decided = while_starting(known, result(P.UNANSWERED), Tier.PROVEN, chance=0)
        assert isinstance(decided, Again)


# While a customer uses it.


def test_a_running_machine_is_dropped_exactly_when_it_has_all_its_strikes() -> None:
    for known, outcome in itertools.product(RECORDS, P):
        decided = while_running(known, result(outcome), Tier.PROVEN, chance=0.5)
        assert isinstance(decided, Drop) is (known.after(result(outcome)).strikes >= STRIKES_MAX)
        assert isinstance(decided, Keep) is (outcome is P.PASSED)


def test_one_failure_makes_a_machine_suspect_and_a_little_silence_does_not() -> None:
    assert while_running(record(P.PASSED), result(P.FAILED), Tier.PROVEN, chance=0) == Again(
        proof.AGAIN_WHILE_RUNNING, suspect=True
    )
    assert while_running(record(P.PASSED), result(P.UNANSWERED), Tier.PROVEN, chance=0) == Again(
        proof.AGAIN_WHILE_RUNNING, suspect=False
    )


def test_a_failure_and_lasting_silence_drop_a_machine_as_two_failures_do() -> None:
    known = record(P.PASSED, P.FAILED, *[P.UNANSWERED] * (UNANSWERED_PER_STRIKE - 1))
    assert isinstance(while_running(known, result(P.UNANSWERED), Tier.PROVEN, chance=0), Drop)


def test_a_challenge_is_a_recheck_while_anything_speaks_against_the_machine() -> None:
    for known in RECORDS:
        wanted = Occasion.IDLE if known.quiet else Occasion.RECHECK
        assert next_occasion(known) is wanted


# When.


@given(chances, chances)
def test_the_wait_grows_with_the_chance_and_keeps_its_bounds(one: float, other: float) -> None:
    low, high = sorted([one, other])
    assert IDLE_MIN <= idle_wait(low) <= idle_wait(high) <= IDLE_MAX


def test_half_of_all_waits_are_shorter_than_the_median_of_an_exponential() -> None:
    assert abs(idle_wait(0.5) - math.log(2) * IDLE_MEAN) < timedelta(seconds=1)


@given(chances)
def test_a_hint_brings_the_next_challenge_forward_and_never_puts_it_off(chance: float) -> None:
    calm = while_running(Record(), result(P.PASSED), Tier.PROVEN, chance=chance)
    hinted = while_running(Record(), result(P.PASSED, hinted=True), Tier.PROVEN, chance=chance)
    assert isinstance(calm, Keep)
    assert isinstance(hinted, Keep)
    assert hinted.again == min(calm.again, proof.HINTED_WITHIN)


# Law 5.


def held(*, failing: int = 1, ended: int = 0, dry_run: bool = False, permitted: bool = False) -> Held | None:
    return held_back(failing=failing, ended=ended, dry_run=dry_run, permitted=permitted)


def test_many_failures_at_one_account_look_like_our_own_mistake_until_an_operator_says_otherwise() -> None:
    assert held(failing=FAILING_MACHINES_MAX) is None
    assert "mistake" in str(held(failing=FAILING_MACHINES_MAX + 1))
    assert held(failing=FAILING_MACHINES_MAX + 1, permitted=True) is None


@pytest.mark.parametrize("permitted", [False, True])
def test_one_run_ends_few_machines_and_a_dry_run_none_whoever_permits_it(permitted: bool) -> None:
    assert held(ended=proof.ENDED_PER_RUN_MAX - 1, permitted=permitted) is None
    waits = held(ended=proof.ENDED_PER_RUN_MAX, permitted=permitted)
    assert waits is not None
    assert waits.again < proof.HELD_AGAIN, "it may go as soon as others no longer go with it"
    assert held(dry_run=True, permitted=permitted) is not None
