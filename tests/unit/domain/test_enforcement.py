"""Ladders of actions: which comes when, for whom first, what a machine's word can lead to, and what holds back."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.enforcement import (
    BASES,
    INTERRUPTS,
    ORDER,
    Absent,
    ActionEnd,
    Basis,
    Case,
    Close,
    Detector,
    EnforcementAction,
    Finding,
    FindingOutcome,
    Open,
    Present,
    Silent,
    StopMachine,
    Symptom,
    Take,
    Taken,
    Unclear,
    Wait,
    may,
    next_step,
)
from control_plane.domain.enforcement_rules import EnforcementRulesError
from control_plane.domain.enforcement_run import Run, Wanted, in_order
from control_plane.domain.ids import EnforcementActionId, FindingId
from control_plane.domain.reading import ServerReading
from control_plane.domain.sla import SlaTier
from control_plane.domain.throughput import THROUGHPUT_MAX, throughput_of
from reconciler.enforcement_rules import parse_rules
from tests.support.enforcement import AT, RULES, TEXT, a_lease

LADDERS = RULES.ladders
A = EnforcementAction
MINUTE = timedelta(minutes=1)
HOLDS = Present(AT - MINUTE, "it holds", Basis.CLAIM)


def case(
    detector: Detector = Detector.MEMORY_PRESSURE,
    symptom: Symptom = HOLDS,
    *,
    taken: EnforcementAction | None = None,
    at: datetime = AT,
    planned_at: datetime | None = None,
    ended: ActionEnd | None = None,
    is_open: bool = True,
    tier: SlaTier = SlaTier.BRONZE,
) -> Case:
    lease = a_lease(tier=tier)
    last = (
        None
        if taken is None
        else Taken(
            EnforcementActionId(UUID(int=5)),
            taken,
            at,
            at + timedelta(seconds=LADDERS.lasts[taken]),
            planned_at,
            ended,
        )
    )
    finding = Finding(FindingId(UUID(int=4)), detector, lease.claim_id, at, at, at, last)
    return Case(lease, detector, symptom, finding if is_open else None)


def played(
    detector: Detector, symptom: Symptom, until: timedelta, *, tier: SlaTier = SlaTier.BRONZE
) -> list[tuple[int, str]]:
    """The minutes and the actions of a condition that lasts, with a look every 15 s."""
    now, finding, found = AT, case(detector, symptom, tier=tier).finding, []
    while now <= AT + until and finding is not None:
        step = next_step(replace(case(detector, symptom, tier=tier), finding=finding), LADDERS, now)
        if isinstance(step, Take):
            found.append((int((now - AT).total_seconds()) // 60, step.action.value))
            taken = Taken(
                EnforcementActionId(UUID(int=5)), step.action, now, step.expires_at, step.planned_at, None
            )
            finding = replace(finding, taken=taken, step_at=finding.step_at if step.again else now)
        elif isinstance(step, StopMachine | Close):
            found.append(
                (int((now - AT).total_seconds()) // 60, "stop" if isinstance(step, StopMachine) else "close")
            )
            finding = None
        now += timedelta(seconds=15)
    return found


def test_a_condition_opens_a_finding_and_only_one_that_holds_does() -> None:
    assert next_step(case(is_open=False), LADDERS, AT) == Open(HOLDS)
    for symptom in (Absent("over"), Unclear(), Silent()):
        assert isinstance(next_step(case(symptom=symptom, is_open=False), LADDERS, AT), Wait)


def test_actions_go_from_mild_to_severe_each_after_the_time_of_the_tier() -> None:
    assert played(Detector.MEMORY_PRESSURE, HOLDS, 15 * MINUTE) == [
        (0, "notify"),
        (2, "throttle_admission"),
        (4, "smaller_batch"),
        (6, "stop_admission"),
    ]
    gold = played(Detector.MEMORY_PRESSURE, HOLDS, 30 * MINUTE, tier=SlaTier.GOLD)
    assert gold[:3] == [(0, "notify"), (8, "throttle_admission"), (16, "smaller_batch")]


def test_the_last_action_is_taken_again_before_it_expires_while_the_condition_lasts() -> None:
    found = played(Detector.KV_CACHE_GROWTH, HOLDS, 40 * MINUTE)
    assert found == [
        (0, "notify"),
        (2, "throttle_admission"),
        (4, "stop_admission"),
        (18, "stop_admission"),
        (32, "stop_admission"),
    ]


def test_after_the_notice_only_what_can_help_by_its_cause_is_done_and_asked_again() -> None:
    def by(*helps: EnforcementAction) -> Present:
        return replace(HOLDS, helps=frozenset({A.NOTIFY, *helps}))

    slow = Detector.THROUGHPUT_DEGRADATION
    assert played(slow, by(A.CHECK_MACHINE), 3 * 60 * MINUTE) == [(0, "notify"), (2, "check_machine")]
    assert played(slow, by(A.SMALLER_BATCH), 20 * MINUTE) == [
        (0, "notify"),
        (2, "smaller_batch"),
        (16, "smaller_batch"),
    ]
    assert played(slow, by(), 60 * MINUTE) == [(0, "notify")]
    # The cause is another one by now: what was asked runs out.
    late = AT + timedelta(seconds=LADDERS.lasts[A.SMALLER_BATCH] - 30)
    asked = case(slow, by(A.SMALLER_BATCH), taken=A.SMALLER_BATCH)
    assert isinstance(next_step(asked, LADDERS, late), Take)
    other = case(slow, by(A.CHECK_MACHINE), taken=A.SMALLER_BATCH)
    assert isinstance(next_step(other, LADDERS, late), Wait)


def test_between_its_levels_a_condition_goes_no_further_and_what_was_asked_stays() -> None:
    eased = replace(HOLDS, fully=False)
    waiting = case(symptom=eased, taken=A.THROTTLE_ADMISSION)
    assert isinstance(next_step(waiting, LADDERS, AT + 5 * MINUTE), Wait)
    again = next_step(waiting, LADDERS, AT + 14 * MINUTE + timedelta(seconds=30))
    assert isinstance(again, Take)
    assert (again.action, again.again) == (A.THROTTLE_ADMISSION, True)


def test_when_the_end_is_known_the_last_action_comes_one_notice_before_it() -> None:
    ends = Present(AT, "no money", Basis.OURS, until=AT + 60 * MINUTE)
    assert played(Detector.UNFUNDED, ends, 60 * MINUTE) == [
        (0, "notify"),
        (30, "throttle_admission"),
        (40, "stop_admission"),
        (50, "evict"),
    ]
    late = replace(ends, until=AT + 5 * MINUTE)
    assert played(Detector.UNFUNDED, late, 5 * MINUTE) == [(0, "notify"), (0, "evict")]
    assert played(Detector.ENVELOPE_BREACH, replace(ends, until=None), 600 * MINUTE) == [(0, "notify")]


def test_an_idle_machine_is_stopped_after_an_announcement_and_only_by_its_customers_wish() -> None:
    wished = Present(AT, "idle", Basis.CONSENT, until=AT + 120 * MINUTE)
    assert played(Detector.IDLE, wished, 150 * MINUTE) == [(0, "notify"), (110, "shutdown"), (120, "stop")]
    assert played(Detector.IDLE, replace(wished, basis=Basis.CLAIM, until=None), 600 * MINUTE) == [
        (0, "notify")
    ]


def test_who_comes_late_still_announces_a_stop_a_notice_before_it() -> None:
    wished = Present(AT - 300 * MINUTE, "idle", Basis.CONSENT, until=AT - 180 * MINUTE)
    assert played(Detector.IDLE, wished, 30 * MINUTE) == [(0, "notify"), (0, "shutdown"), (10, "stop")]


def test_a_machine_that_works_again_or_whose_customer_changed_their_mind_is_not_stopped() -> None:
    announced = case(Detector.IDLE, taken=A.SHUTDOWN, planned_at=AT + 10 * MINUTE)
    later = AT + 11 * MINUTE
    wished = Present(AT, "idle", Basis.CONSENT, until=AT)
    assert isinstance(next_step(replace(announced, symptom=wished), LADDERS, later), StopMachine)
    between = replace(announced, symptom=replace(wished, fully=False))
    assert isinstance(next_step(between, LADDERS, later), Wait)
    works = replace(announced, symptom=Absent("it works"))
    assert next_step(works, LADDERS, later) == Close(FindingOutcome.RECOVERED, "it works")
    silent = replace(announced, symptom=Silent())
    assert isinstance(found := next_step(silent, LADDERS, later), Close)
    assert found.outcome is FindingOutcome.SILENT
    no_wish = replace(announced, symptom=replace(wished, basis=Basis.CLAIM))
    assert isinstance(next_step(no_wish, LADDERS, later), Close)


def test_an_announcement_that_ran_out_is_made_again_while_its_time_is_due() -> None:
    held_back = case(
        Detector.IDLE,
        Present(AT - 120 * MINUTE, "idle", Basis.CONSENT, until=AT),
        taken=A.SHUTDOWN,
        planned_at=AT,
        ended=ActionEnd.EXPIRED,
    )
    now = AT + 20 * MINUTE
    step = next_step(held_back, LADDERS, now)
    assert isinstance(step, Take)
    assert (step.action, step.planned_at) == (A.SHUTDOWN, now + 10 * MINUTE)
    postponed = Present(AT, "no money", Basis.OURS, until=AT + 120 * MINUTE)
    evicting = case(Detector.UNFUNDED, postponed, taken=A.EVICT, ended=ActionEnd.EXPIRED)
    assert isinstance(next_step(evicting, LADDERS, AT + 20 * MINUTE), Wait)
    again = next_step(evicting, LADDERS, AT + 111 * MINUTE)
    assert isinstance(again, Take)
    assert (again.action, again.planned_at) == (A.EVICT, AT + 120 * MINUTE)
    told = case(Detector.ENVELOPE_BREACH, postponed, taken=A.NOTIFY, ended=ActionEnd.EXPIRED)
    assert isinstance(next_step(told, LADDERS, AT + 20 * MINUTE), Wait), "a notice is not repeated"


def test_an_undone_action_closes_the_finding_and_the_lease_is_left_alone_for_a_while() -> None:
    undone = case(taken=A.STOP_ADMISSION, ended=ActionEnd.UNDONE)
    assert next_step(undone, LADDERS, AT + MINUTE) == Close(FindingOutcome.UNDONE, "an operator undid it")
    muted = replace(case(is_open=False), muted_until=AT + MINUTE)
    assert isinstance(next_step(muted, LADDERS, AT), Wait)
    assert isinstance(next_step(muted, LADDERS, AT + MINUTE), Open)


def test_a_broken_promise_is_told_and_its_credit_named_once() -> None:
    broken = Present(AT, "too slow", Basis.OURS)
    assert played(Detector.SLA_VIOLATION, broken, 600 * MINUTE) == [(0, "notify")]
    credited = case(Detector.SLA_VIOLATION, replace(broken, credited=True), taken=A.NOTIFY)
    step = next_step(credited, LADDERS, AT)
    assert isinstance(step, Take)
    assert step.action is A.CREDIT
    again = case(Detector.SLA_VIOLATION, replace(broken, credited=True), taken=A.CREDIT)
    closed = next_step(again, LADDERS, AT)
    assert isinstance(closed, Close)
    assert closed.outcome is FindingOutcome.CREDITED
    # Once an action names the credit, the detector does not find the promise any more.
    assert next_step(replace(again, symptom=Absent("named")), LADDERS, AT) == closed


# What a machine says about itself


def test_the_word_of_a_machine_never_interrupts_and_never_credits() -> None:
    for action in EnforcementAction:
        assert may(action, Basis.CLAIM) is (action not in {A.EVICT, A.SHUTDOWN, A.CREDIT})
        assert may(action, Basis.OURS)
    assert not may(A.CREDIT, Basis.CONSENT)


@given(
    st.sampled_from([detector for detector in Detector if Basis.CLAIM in BASES[detector]]),
    st.sampled_from(list(SlaTier)),
    st.one_of(st.none(), st.integers(-60, 600)),
)
def test_whatever_a_machine_claims_no_step_interrupts_its_customer(
    detector: Detector, tier: SlaTier, minutes: int | None
) -> None:
    until = None if minutes is None else AT + minutes * MINUTE
    found = played(detector, Present(AT, "it says so", Basis.CLAIM, until=until), 240 * MINUTE, tier=tier)
    assert {did for _, did in found}.isdisjoint({"evict", "shutdown", "stop", "credit"})


# Whose turn it is


def wanted(
    number: int,
    tier: SlaTier,
    priority: int,
    days: int,
    *,
    region: str = "us-east-1",
    action: EnforcementAction = A.THROTTLE_ADMISSION,
    basis: Basis = Basis.CLAIM,
    detector: Detector = Detector.MEMORY_PRESSURE,
) -> Wanted:
    lease = a_lease(number, tier=tier, priority=priority, age=timedelta(days=days), region=region)
    present = Present(AT, "it holds", basis)
    return Wanted(Case(lease, detector, present, None), Take(action, present, AT, None, again=False))


@given(st.randoms(use_true_random=False))
def test_the_order_is_by_tier_priority_and_age_whatever_order_leases_are_found_in(chance: Random) -> None:
    expected = [
        wanted(1, SlaTier.BRONZE, 10, 1),
        wanted(2, SlaTier.BRONZE, 50, 1),
        wanted(3, SlaTier.BRONZE, 50, 9),
        wanted(4, SlaTier.SILVER, 1, 1),
        wanted(5, SlaTier.GOLD, 1, 1),
        wanted(6, SlaTier.GOLD, 99, 1),
    ]
    shuffled = [*expected]
    chance.shuffle(shuffled)
    assert in_order(shuffled) == expected


def run(customers: int = 100, affected: int = 1, **bounds: int) -> Run:
    place = ("fake", "us-east-1")
    return Run(
        replace(LADDERS.bounds, **bounds),
        {place: customers},
        {(*place, detector): affected for detector in Detector},
    )


@given(
    st.lists(st.tuples(st.sampled_from(list(EnforcementAction)), st.sampled_from(["eu", "us"])), max_size=80),
    st.integers(1, 10),
    st.integers(1, 5),
    st.integers(1, 3),
)
def test_a_run_never_takes_more_than_its_bounds(
    actions: Sequence[tuple[EnforcementAction, str]], most: int, of_region: int, stops: int
) -> None:
    shared = run(actions_per_run=most, actions_per_region=of_region, stops_per_region=stops)
    taken: Counter[str] = Counter()
    interrupted: Counter[str] = Counter()
    for number, (action, region) in enumerate(actions):
        one = wanted(number, SlaTier.BRONZE, 50, 1, region=region, action=action, basis=Basis.OURS)
        if shared.held_back(one) is None and action not in (A.NOTIFY, A.CREDIT):
            taken[region] += 1
            interrupted[region] += action in INTERRUPTS
    assert sum(taken.values()) <= most
    assert all(count <= of_region for count in taken.values())
    assert all(count <= stops for count in interrupted.values())


def test_what_is_only_decided_takes_no_room_from_what_is_done() -> None:
    shared = run(actions_per_run=1)
    first, second, third = (
        wanted(number, SlaTier.BRONZE, 50, 1, action=A.STOP_ADMISSION, basis=Basis.OURS)
        for number in (1, 2, 3)
    )
    decided = replace(first, case=replace(first.case, armed=False))
    assert shared.held_back(decided) is None
    assert shared.held_back(second) is None
    assert shared.held_back(third) == "1 actions were taken in this run"


def test_notices_and_credits_are_never_held_back() -> None:
    shared = run(customers=100, affected=90, actions_per_run=1)
    for action in (A.NOTIFY, A.CREDIT):
        assert shared.held_back(wanted(1, SlaTier.BRONZE, 50, 1, action=action, basis=Basis.OURS)) is None


def test_what_machines_of_many_customers_say_at_once_is_more_likely_our_mistake() -> None:
    one = wanted(1, SlaTier.BRONZE, 50, 1)
    assert run(customers=100, affected=20).held_back(one) is None
    held = run(customers=100, affected=21).held_back(one)
    assert held == "machines of 21 of 100 customers in us-east-1 show the same, more than 20"
    assert run(customers=3, affected=3).held_back(one) is None
    ours = wanted(1, SlaTier.BRONZE, 50, 1, basis=Basis.OURS, detector=Detector.UNFUNDED)
    assert run(customers=100, affected=100).held_back(ours) is None


def test_throughput_that_no_server_has_is_bounded_by_what_the_database_takes() -> None:
    absurd = ServerReading(8000, "vllm", running=1, generation_tokens_per_second=2**64 - 1)
    assert throughput_of([absurd] * 8) == (4, THROUGHPUT_MAX)


# The rules


def test_the_shipped_rules_are_read_and_have_a_digest_that_changes_with_them() -> None:
    assert len(RULES.digest) == 16
    assert parse_rules(TEXT + "\n# other").digest != RULES.digest
    for detector, ladder in LADDERS.of.items():
        assert list(ladder) == sorted(ladder, key=ORDER.__getitem__), detector


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (
            "\nenter_bp = 9500",
            "\nenter_bp = 8500",
            "[kv_cache_growth]: the levels to enter and to leave must be apart",
        ),
        (
            '["notify", "throttle_admission", "stop_admission"]',
            '["notify", "evict"]',
            "only the machine says so",
        ),
        ('ladder = ["notify", "credit"]', 'ladder = ["credit", "notify"]', "must go from mild to severe"),
        ('["notify", "shutdown"]', '["notify", "reboot"]', "there is no action 'reboot'"),
        ('["notify", "shutdown"]', '["notify", "check_machine"]', "is for machines that are slow themselves"),
        ("watch_bp = 2000", "watch_bp = -1", "'watch_bp' must be a whole number above zero"),
        ("watch_bp = 2000", "watch = 2000", "there is no field 'watch'"),
        ("enter_seconds = 1800", "enter_seconds = 18000", "samples are kept for two hours"),
        ("[unfunded]", "[poor]", "there is no table [poor]"),
        ("[bounds]", "[bounds", "not TOML"),
    ],
)
def test_rules_that_cannot_be_right_are_refused_with_their_field(before: str, after: str, says: str) -> None:
    assert before in TEXT
    with pytest.raises(EnforcementRulesError) as refused:
        parse_rules(TEXT.replace(before, after))
    assert says in str(refused.value)


def test_a_ladder_that_interrupts_by_a_machines_word_is_refused() -> None:
    for detector in (Detector.MEMORY_PRESSURE, Detector.KV_CACHE_GROWTH, Detector.THROUGHPUT_DEGRADATION):
        for action in (A.EVICT, A.SHUTDOWN, A.CREDIT):
            start = TEXT.index(f"[{detector}]")
            first = TEXT.index("ladder = ", start)
            end = TEXT.index("\n", first)
            with pytest.raises(EnforcementRulesError):
                parse_rules(f'{TEXT[:first]}ladder = ["notify", "{action}"]{TEXT[end:]}')
