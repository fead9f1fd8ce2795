"""Which interruptible lease yields its machine, when that begins, and what is done next about it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.ids import ClaimId, LeaseId, MachineId, OrganizationId
from control_plane.domain.lease import LeaseState
from control_plane.domain.preemption import (
    COOL_DOWN,
    INTERRUPTED_PER_DAY_MAX,
    LASTS_MAX,
    LET_GO_MAX,
    NOTICE,
    OPEN,
    OPEN_PER_PLACE_MAX,
    ORDERS_MAX,
    PATIENCE,
    STARTED_MAX,
    TAKES,
    TOLD_MAX,
    TRIED_MAX,
    Action,
    Close,
    Facts,
    Interrupt,
    Interruptible,
    KeptCode,
    Need,
    OrderInPlace,
    PreemptionState,
    Wait,
    choose,
    evidence,
    held_back,
    next_action,
)
from control_plane.domain.request import PRIORITY_DEFAULT, PRIORITY_MAX
from control_plane.domain.sla import SlaTier, Terms
from tests.support.clock import START
from tests.support.values import a_lease

S = PreemptionState
GOLD = Terms(
    tier=SlaTier.GOLD,
    ready_seconds=900,
    ready_credit_bp=1_000,
    replacement_seconds=900,
    replacement_credit_bp=2_500,
    degraded_seconds=None,
    notice_seconds=None,
    notice_credit_bp=0,
    availability=(),
    replace_before_end=True,
    priority=80,
)
NOW = START + timedelta(minutes=10)


def a_need(terms: Terms = GOLD, **other: Any) -> Need:
    """A gold lease that waits since its creation at START."""
    return Need(a_lease(sla=terms.tier, sla_version=1, **other), terms, START, "Sold out.", 0, 0, 0)


def running(number: int = 1, **other: Any) -> Interruptible:
    """An interruptible lease of one H100 that has its machine since an hour before NOW, and was never interrupted."""
    values: dict[str, Any] = {
        "lease_id": LeaseId(UUID(int=number)),
        "organization_id": OrganizationId(UUID(int=0xA)),
        "claim_id": ClaimId(UUID(int=number)),
        "machine_id": MachineId(UUID(int=number)),
        "account": "fake",
        "region": "us-east-1",
        "offer_key": f"fake:us-east-1:{number}",
        "gpu_count": 1,
        "priority": PRIORITY_DEFAULT,
        "running_since": NOW - timedelta(hours=1),
        "interruptions": 0,
        "interruptions_today": 0,
        "others_interrupted": 0,
        "yields_already": False,
        "listed": True,
        "armed": True,
        "under_way": 0,
    }
    return Interruptible(**(values | other))


def chosen(need: Need, *leases: Interruptible, unfit: dict[MachineId, str] | None = None) -> int | None:
    """The number of the lease that yields its machine."""
    choice = choose(need, leases, unfit=unfit or {}, now=NOW)
    return None if choice.chosen is None else choice.chosen.lease_id.int


def test_harm_is_the_time_of_its_gpus_with_an_hour_and_a_quarter_for_earlier_interruptions() -> None:
    at = NOW + NOTICE
    assert running().harm(at) == 3_600 + 120
    assert running(gpu_count=8).harm(at) == 8 * 3_720
    assert running(gpu_count=8, interruptions=2).harm(at) == 8 * (3_720 + 2 * 3_600)
    assert running(interruptions=1, others_interrupted=3).harm(at) == 3_720 + 3_600 + 3 * 900
    assert running(gpu_count=0).harm(at) == 3_720, "a machine without GPUs counts as one"
    assert running(running_since=at + NOTICE).harm(at) == 0


def test_the_lowest_priority_goes_first_and_then_the_lowest_harm_and_then_the_shortest_run() -> None:
    young, old = running(1, running_since=NOW - NOTICE), running(2)
    assert chosen(a_need(), old, young) == 1
    assert chosen(a_need(), replace(old, priority=10), young) == 2
    # The same harm: an hour more of work, or one interruption before it.
    again = running(3, interruptions=1, running_since=NOW - COOL_DOWN)
    longer = running(4, running_since=NOW - COOL_DOWN - timedelta(hours=1))
    assert again.harm(NOW) == longer.harm(NOW)
    assert chosen(a_need(), longer, again) == 3


def test_a_customer_cannot_protect_a_lease_by_its_priority() -> None:
    proud = running(1, priority=PRIORITY_MAX, running_since=NOW - NOTICE)
    assert chosen(a_need(), proud, running(2)) == 1


LEASES = st.builds(
    running,
    st.integers(1, 6),
    gpu_count=st.integers(0, 8),
    priority=st.integers(0, PRIORITY_MAX),
    running_since=st.integers(0, 200_000).map(lambda seconds: NOW - timedelta(seconds=seconds)),
    interruptions=st.integers(0, 4),
    interruptions_today=st.integers(0, INTERRUPTED_PER_DAY_MAX),
    others_interrupted=st.integers(0, 4),
    yields_already=st.booleans(),
    listed=st.booleans(),
    armed=st.booleans(),
)
MANY = st.lists(LEASES, max_size=6, unique_by=lambda lease: lease.lease_id)


@given(MANY, st.randoms(use_true_random=False), st.integers(0, 100))
def test_the_choice_depends_on_no_order_and_is_never_one_that_must_not_yield(
    leases: list[Interruptible], random: Any, priority: int
) -> None:
    need = a_need(replace(GOLD, priority=priority))
    choice = choose(need, leases, unfit={}, now=NOW)
    shuffled = list(leases)
    random.shuffle(shuffled)
    assert choose(need, shuffled, unfit={}, now=NOW) == choice
    assert len(choice.considered) + choice.more == len(leases), "each is named or counted"
    if choice.chosen is None:
        assert all(each.kept is not None for each in choice.considered)
        return
    yields = choice.chosen
    assert yields.rank < priority, "one of equal priority keeps its machine"
    assert yields.listed
    assert yields.armed
    assert not yields.yields_already
    assert yields.interruptions_today < INTERRUPTED_PER_DAY_MAX
    assert not yields.interruptions or NOW - yields.running_since >= COOL_DOWN
    others = [each for each in choice.considered if each.kept is None]
    assert min((each.rank, each.harm) for each in others) == (yields.rank, yields.harm(NOW + NOTICE))


@given(LEASES, st.integers(0, 100_000), st.integers(0, 3), st.integers(0, 3))
def test_more_work_and_more_interruptions_never_lower_the_harm(
    lease: Interruptible, seconds: int, times: int, others: int
) -> None:
    at = NOW + NOTICE
    worse = replace(
        lease,
        running_since=lease.running_since - timedelta(seconds=seconds),
        interruptions=lease.interruptions + times,
        others_interrupted=lease.others_interrupted + others,
    )
    assert worse.harm(at) >= lease.harm(at) >= 0


KEPT: list[tuple[KeptCode, dict[str, Any]]] = [
    (KeptCode.YIELDS_ALREADY, {"yields_already": True}),
    (KeptCode.COOLS_DOWN, {"interruptions": 1, "running_since": NOW - COOL_DOWN + timedelta(seconds=1)}),
    (KeptCode.INTERRUPTED_OFTEN, {"interruptions": 3, "interruptions_today": INTERRUPTED_PER_DAY_MAX}),
    (KeptCode.NOT_LISTED, {"listed": False}),
    (KeptCode.NOT_ARMED, {"armed": False}),
    (KeptCode.PLACE_FULL, {"under_way": OPEN_PER_PLACE_MAX}),
]


@pytest.mark.parametrize(("code", "other"), KEPT)
def test_a_lease_keeps_its_machine_with_the_reason(code: KeptCode, other: dict[str, Any]) -> None:
    choice = choose(a_need(), [running(**other)], unfit={}, now=NOW)
    assert (choice.chosen, [each.kept for each in choice.considered]) == (None, [code])
    assert (choice.considered[0].why or "").endswith(".")


def test_a_machine_that_does_not_fit_and_an_equal_priority_are_told_as_well() -> None:
    lease = running()
    choice = choose(a_need(), [lease], unfit={lease.machine_id: "The request is for eu."}, now=NOW)
    assert [(each.kept, each.why) for each in choice.considered] == [
        (KeptCode.DOES_NOT_FIT, "The request is for eu.")
    ]
    equal = replace(GOLD, priority=PRIORITY_DEFAULT)
    (kept,) = choose(a_need(equal), [lease], unfit={}, now=NOW).considered
    assert kept.kept is KeptCode.PRIORITY
    assert {code for code, _ in KEPT} | {KeptCode.DOES_NOT_FIT, KeptCode.PRIORITY} == set(KeptCode)


def test_a_machine_is_taken_back_as_late_as_the_promise_allows_and_never_at_once() -> None:
    assert a_need().begins_at == START + timedelta(seconds=900) - TAKES
    late = a_need(replace(GOLD, ready_seconds=60))
    assert late.begins_at == START + PATIENCE, "the promise is broken already, and stock has its chance"
    short = a_need(wait_timeout_seconds=800)
    assert short.begins_at == START + timedelta(seconds=800) - TAKES, "it would give up before its promise"
    lost = START + timedelta(hours=1)
    again = replace(
        a_need(replace(GOLD, replacement_seconds=1_200), ready_at=START, paused_at=(lost,)),
        waiting_since=lost,
    )
    assert again.deadline == lost + timedelta(seconds=1_200)
    assert again.begins_at == lost + timedelta(seconds=1_200) - TAKES


def test_nothing_is_taken_back_beyond_the_bounds_or_for_who_has_no_promise() -> None:
    begins_at = a_need().begins_at
    assert begins_at is not None
    assert held_back(a_need(), begins_at, started=0) is None
    early = held_back(a_need(), begins_at - timedelta(seconds=1), started=0)
    assert early is not None
    assert early.startswith("stock may return by itself until")
    for need, started, words in (
        (a_need(), STARTED_MAX, "notices were given within 10 s"),
        (replace(a_need(), tried=TRIED_MAX), 0, "machines were taken back for it"),
        (replace(a_need(), told=TOLD_MAX), 0, "notices were given for it"),
        (replace(a_need(), let_go=LET_GO_MAX), 0, "released 3 leases in 24 hours"),
        (a_need(replace(GOLD, ready_seconds=None)), 0, "promises no time"),
        (a_need(wait_timeout_seconds=360), 0, "gives up before"),
    ):
        assert words in (held_back(need, begins_at, started=started) or "")


@given(st.integers(0, 10), st.integers(0, 5), st.integers(0, 8))
def test_no_bound_is_ever_exceeded(started: int, tried: int, told: int) -> None:
    need = replace(a_need(), tried=tried, told=told)
    if held_back(need, NOW, started=started) is None:
        assert (started < STARTED_MAX, tried < TRIED_MAX, told < TOLD_MAX) == (True, True, True)


def test_a_region_where_preemptions_do_not_come_to_their_end_holds_up_no_other_one() -> None:
    slow = [running(number, region="us-east-1", under_way=OPEN_PER_PLACE_MAX) for number in (1, 2)]
    assert chosen(a_need(), *slow) is None
    assert chosen(a_need(), *slow, running(3, region="eu-west-1", under_way=OPEN_PER_PLACE_MAX - 1)) == 3


def facts(state: PreemptionState = S.NOTIFIED, **other: Any) -> Facts:
    values: dict[str, Any] = {
        "state": state,
        "interrupt_at": NOW + NOTICE,
        "interrupted_at": None if state is S.NOTIFIED else NOW + NOTICE,
        "waits": True,
        "got_machine": False,
        "has_machine": state is S.NOTIFIED,
        "listed": state is S.NOTIFIED,
        "armed": True,
        "refused": None,
        "gone": False,
        "order_failed": False,
        "orders": 0,
    }
    return Facts(**(values | other))


def after(found: Facts, seconds: float = 0) -> Action:
    return next_action(found, NOW + NOTICE + timedelta(seconds=seconds))


def closed(action: Action) -> PreemptionState | None:
    return action.state if isinstance(action, Close) else None


def test_the_machine_is_taken_back_when_the_notice_is_over_and_not_a_moment_before() -> None:
    assert isinstance(after(facts(), -0.001), Wait)
    assert after(facts()) == Interrupt()


def test_a_notice_is_withdrawn_when_it_is_not_needed_any_more() -> None:
    for other in (
        {"waits": False},
        {"waits": False, "got_machine": True},
        {"armed": False},
        {"listed": False},
        {"refused": "The account is frozen."},
    ):
        for seconds in (-60, 0, 60):
            assert closed(after(facts(**other), seconds)) is S.WITHDRAWN, other


def test_capacity_that_comes_free_by_itself_is_used_even_when_preemption_was_switched_off() -> None:
    assert after(facts(has_machine=False, listed=False, armed=False, refused="resting"), -60) == Interrupt()


def test_a_machine_is_ordered_once_the_old_one_is_gone_and_again_when_that_fails_up_to_the_bound() -> None:
    assert isinstance(after(facts(S.INTERRUPTED)), Wait)
    assert after(facts(S.INTERRUPTED, gone=True)) == OrderInPlace()
    assert isinstance(after(facts(S.INTERRUPTED, gone=True, refused="left alone")), Wait)
    assert isinstance(after(facts(S.ORDERED, gone=True, orders=1)), Wait)
    assert after(facts(S.ORDERED, gone=True, orders=1, order_failed=True)) == OrderInPlace()
    last = facts(S.ORDERED, gone=True, orders=ORDERS_MAX, order_failed=True)
    assert closed(after(last)) is S.IN_VAIN


def test_it_is_over_when_the_lease_has_a_machine_or_waits_no_longer_or_it_took_too_long() -> None:
    for state in (S.INTERRUPTED, S.ORDERED):
        assert closed(after(facts(state, waits=False, got_machine=True))) is S.SERVED
        assert closed(after(facts(state, waits=False))) is S.IN_VAIN
        assert closed(after(facts(state, orders=1), LASTS_MAX.total_seconds())) is S.IN_VAIN
        assert closed(after(facts(state, orders=1), LASTS_MAX.total_seconds() - 1)) is None


@given(
    st.builds(
        facts,
        st.sampled_from(sorted(OPEN)),
        waits=st.booleans(),
        has_machine=st.booleans(),
        listed=st.booleans(),
        armed=st.booleans(),
        refused=st.sampled_from([None, "no"]),
        gone=st.booleans(),
        order_failed=st.booleans(),
        orders=st.integers(0, ORDERS_MAX),
    ),
    st.integers(-3_600, 7_200),
)
def test_nobody_is_interrupted_before_the_time_or_for_a_lease_that_does_not_wait(
    found: Facts, seconds: int
) -> None:
    action = after(found, seconds)
    if action == Interrupt() and found.has_machine:
        assert (found.state, found.waits, found.armed, found.refused) == (S.NOTIFIED, True, True, None)
        assert found.listed
        assert seconds >= 0
    if action == OrderInPlace():
        assert found.state is not S.NOTIFIED
        assert (found.waits, found.gone, found.refused) == (True, True, None)
        assert found.orders < ORDERS_MAX or not found.order_failed


def test_the_evidence_has_the_promise_and_what_was_looked_at() -> None:
    need, leases = a_need(state=LeaseState.PLACING), [running(number) for number in range(1, 30)]
    found = evidence(need, choose(need, leases, unfit={}, now=NOW))
    assert (found.tier, found.deadline, found.priority) == (SlaTier.GOLD, START + timedelta(minutes=15), 80)
    assert len(found.considered) + found.more == len(leases)
    assert evidence(need, None).considered == ()


def test_times_are_in_order() -> None:
    zero = timedelta()
    assert zero < PATIENCE < NOTICE < TAKES < LASTS_MAX
