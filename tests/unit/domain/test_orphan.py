"""Which orphans are terminated: old enough, few enough, and none when it looks like our own mistake."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.failure import FailReason
from control_plane.domain.ids import AccountName, MachineId, ProviderRef
from control_plane.domain.machine import MachineState
from control_plane.domain.money import Nano
from control_plane.domain.orphan import (
    GRACE,
    LEAK_MAX,
    LISTS_MIN,
    ORIGIN_WHY,
    SHARE_MAX_PERCENT,
    TERMINATED_PER_RUN_MAX,
    Choice,
    Held,
    HeldCode,
    Order,
    Origin,
    Orphan,
    Verdict,
    origin,
    to_terminate,
    why_not_adopted,
)
from tests.support.clock import START
from tests.support.values import a_key, a_ref

MOMENT = timedelta(microseconds=1)
HERE = AccountName("lambda_cloud")


def an_orphan(number: int = 1, **other: Any) -> Orphan:
    return replace(
        Orphan(a_ref(number), a_key(number), Origin.LOST_ANSWER, START - GRACE, LISTS_MIN), **other
    )


def an_order(**other: Any) -> Order:
    order = Order(
        id=MachineId(UUID(int=1)),
        launch_key=a_key(1),
        account=HERE,
        provider_ref=a_ref(2),
        asked_at=START,
        fail_reason=None,
        cost_nano_per_hour=Nano(1),
        state=MachineState.BOOTING,
        listed=False,
        gone_evidence=None,
    )
    return replace(order, **other)


def terminated(*orphans: Orphan, listing_size: int = 1_000, frozen_why: str | None = None) -> list[str]:
    verdict = to_terminate(orphans, listing_size=listing_size, frozen_why=frozen_why, armed=True, now=START)
    return [orphan.provider_ref for orphan in verdict.terminate]


def test_what_an_orphan_is_follows_from_the_record_of_its_launch_key() -> None:
    def what(ref: str | None, reason: FailReason | None) -> Origin:
        order = an_order(provider_ref=None if ref is None else ProviderRef(ref), fail_reason=reason)
        assert origin(order, AccountName("lambda_cloud/research"), a_ref(1)) is Origin.OTHER_ACCOUNT
        return origin(order, HERE, a_ref(1))

    assert origin(None, HERE, a_ref(1)) is Origin.UNRECORDED
    never = an_order(provider_ref=None, asked_at=None, state=MachineState.INTENDED)
    assert origin(never, HERE, a_ref(1)) is Origin.UNRECORDED, "the record is older than the order"
    assert what("ref-1", None) is Origin.LISTED_AGAIN
    assert what("ref-2", None) is Origin.SECOND_MACHINE
    refusals = {
        FailReason.NO_CAPACITY,
        FailReason.QUOTA_REACHED,
        FailReason.ORDER_REFUSED,
        FailReason.UNAUTHORIZED,
    }
    for reason in (None, *FailReason):
        expected = Origin.LATE_SUCCESS if reason in refusals else Origin.LOST_ANSWER
        assert what(None, reason) is expected, reason
    assert set(ORIGIN_WHY) == set(Origin)


def test_an_old_orphan_with_our_key_is_terminated() -> None:
    assert terminated(an_orphan()) == ["ref-1"]


@pytest.mark.parametrize("other", [{"first_seen_at": START - GRACE + MOMENT}, {"lists_seen": LISTS_MIN - 1}])
def test_an_orphan_is_only_watched_at_first(other: dict[str, Any]) -> None:
    assert terminated(an_orphan(1, **other)) == []


def decided(number: int) -> Orphan:
    return an_orphan(
        number, choice=Choice.END, decided_at=START, decided_by="key_1", decided_why="ticket 4711"
    )


def elsewhere(number: int, **other: Any) -> Orphan:
    return an_orphan(number, other_account=HERE, **other)


def unrecorded(number: int, **other: Any) -> Orphan:
    return an_orphan(number, origin=Origin.UNRECORDED, **other)


def codes(verdict: Verdict) -> set[HeldCode]:
    return {held.code for held in verdict.held.values()}


def test_nothing_is_terminated_on_a_frozen_account_and_it_says_why() -> None:
    verdict = to_terminate(
        [an_orphan()], listing_size=100, frozen_why="the list is empty.", armed=True, now=START
    )
    assert verdict.terminate == ()
    assert verdict.held == {
        "ref-1": Held(HeldCode.ACCOUNT_FROZEN, "The account is frozen: the list is empty.")
    }


def test_every_orphan_is_terminated_or_held_with_its_reason() -> None:
    many = [an_orphan(number) for number in range(20)]
    young = [an_orphan(99, first_seen_at=START)]
    for name, orphans, settings, expected in (
        ("watched", young, {}, {HeldCode.WATCHED}),
        ("watched on a frozen account", young, {"frozen_why": "it is."}, {HeldCode.WATCHED}),
        ("lost records", many, {"listing_size": 21}, {HeldCode.TOO_MANY}),
        ("frozen", many, {"frozen_why": "it is."}, {HeldCode.ACCOUNT_FROZEN}),
        ("failing", many, {"failing_why": "Unavailable"}, {HeldCode.ACCOUNT_FAILING}),
        ("recorded elsewhere", [elsewhere(1), *young], {}, {HeldCode.OTHER_ACCOUNT, HeldCode.WATCHED}),
        ("not armed", many, {"armed": False}, {HeldCode.NOT_ARMED}),
        ("dry run", many, {"dry_run": True}, {HeldCode.DRY_RUN}),
        ("no record", [unrecorded(99), *many], {}, {HeldCode.UNRECORDED, HeldCode.LOST_RECORDS}),
        ("next run", many, {}, {HeldCode.NEXT_RUN}),
        ("next run of the decided", [decided(n) for n in range(20)], {}, {HeldCode.NEXT_RUN}),
    ):
        given: Any = {"listing_size": 1_000, "frozen_why": None, "armed": True} | settings
        verdict = to_terminate(orphans, now=START, **given)
        assert codes(verdict) == expected, name
        taken = {orphan.provider_ref for orphan in verdict.terminate}
        assert taken.isdisjoint(verdict.held), name
        assert taken | set(verdict.held) == {orphan.provider_ref for orphan in orphans}, name


def test_an_orphan_that_an_operator_decided_is_terminated_whatever_holds_the_others() -> None:
    others = [an_orphan(number) for number in range(2, 60)]
    for name, settings in (
        ("lost records", {}),
        ("frozen", {"frozen_why": "the list is empty."}),
        ("failing", {"failing_why": "Unavailable"}),
        ("not armed", {"listing_size": 1_000, "armed": False}),
        ("dry run", {"listing_size": 1_000, "dry_run": True}),
    ):
        given: Any = {"listing_size": 60, "frozen_why": None, "armed": True} | settings
        verdict = to_terminate([decided(1), *others], now=START, **given)
        assert [orphan.provider_ref for orphan in verdict.terminate] == ["ref-1"], name
        assert len(verdict.held) == len(others), name


def test_a_machine_that_another_account_has_on_record_is_never_terminated_and_trips_no_breaker() -> None:
    """One account of a provider under two names: each lists the other's machines."""
    theirs = [elsewhere(number, decided_at=START) for number in range(2, 60)]
    verdict = to_terminate([an_orphan(1), *theirs], listing_size=59, frozen_why=None, armed=True, now=START)
    assert [orphan.provider_ref for orphan in verdict.terminate] == ["ref-1"]
    assert codes(verdict) == {HeldCode.OTHER_ACCOUNT}
    assert "The account lambda_cloud has an open record" in verdict.held[a_ref(2)].why
    assert verdict.disarm_why is None


def test_a_list_that_trips_the_breaker_disarms_the_account_and_one_that_is_not_armed_says_why() -> None:
    many = [an_orphan(number) for number in range(60)]
    verdict = to_terminate(many, listing_size=60, frozen_why=None, armed=True, now=START)
    why = "60 of 60 machines look like orphans; it is more likely that our records were lost."
    assert verdict.disarm_why == why
    spared = to_terminate(many[:3], listing_size=3, frozen_why=None, armed=False, disarmed_why=why, now=START)
    assert (spared.terminate, spared.disarm_why) == ((), None)
    assert {held.why for held in spared.held.values()} == {f"The account was disarmed: {why}"}
    for name, settings in (
        ("frozen", {"frozen_why": "it is."}),
        ("failing", {"failing_why": "it is."}),
        ("not armed", {"armed": False}),
        ("few", {"listing_size": 1_000}),
    ):
        given: Any = {"listing_size": 60, "frozen_why": None, "armed": True} | settings
        assert to_terminate(many, now=START, **given).disarm_why is None, name


def test_a_machine_without_a_record_is_never_ended_by_itself_and_disarms_its_account_at_once() -> None:
    young = unrecorded(1, first_seen_at=START, lists_seen=1)
    for name, settings in (
        ("alone on a large list", {}),
        ("frozen", {"frozen_why": "it is."}),
        ("failing", {"failing_why": "it is."}),
    ):
        given: Any = {"listing_size": 1_000, "frozen_why": None, "armed": True} | settings
        verdict = to_terminate([young, an_orphan(2)], now=START, **given)
        assert verdict.terminate == (), name
        assert verdict.held[a_ref(1)].code is HeldCode.UNRECORDED, name
        assert (verdict.disarm_why or "").startswith("1 of 1000 machines have no record"), name
    for choice, ended in ((Choice.END, ["ref-1", "ref-2"]), (Choice.LEAVE, ["ref-2"])):
        chosen = replace(young, choice=choice, decided_at=START, decided_by="key_1", decided_why="4711")
        assert terminated(chosen, an_orphan(2)) == ended, "an operator decided"
    verdict = to_terminate(
        [replace(young, other_account=HERE), an_orphan(2)],
        listing_size=9,
        frozen_why=None,
        armed=True,
        now=START,
    )
    assert verdict.disarm_why is None, "another account's record claims it"


def test_a_decision_to_end_comes_before_the_watch_and_counts_as_no_sign_of_lost_records() -> None:
    young = [replace(decided(number), first_seen_at=START, lists_seen=1) for number in range(9)]
    old = an_orphan(20, first_seen_at=START - 2 * GRACE)
    verdict = to_terminate([*young, old], listing_size=10, frozen_why=None, armed=True, now=START)
    assert verdict.terminate == (*young, old)


def test_what_operators_keep_is_not_terminated_and_counts_as_no_sign_of_lost_records() -> None:
    kept = [
        an_orphan(number, choice=choice, decided_at=START, decided_by="key_1", decided_why="ticket 4711")
        for number in range(9)
        for choice in [Choice.LEAVE if number % 2 else Choice.ADOPT]
    ]
    verdict = to_terminate([*kept, an_orphan(20)], listing_size=10, frozen_why=None, armed=True, now=START)
    assert [orphan.provider_ref for orphan in verdict.terminate] == ["ref-20"]
    assert verdict.disarm_why is None
    assert codes(verdict) == {HeldCode.LEFT, HeldCode.ADOPTING}
    assert verdict.held[a_ref(1)].why == "It is left alone. key_1 decided it: ticket 4711"


def test_only_a_booting_record_whose_machine_is_not_listed_can_adopt_an_orphan() -> None:
    assert why_not_adopted(an_order(), HERE, a_ref(1)) is None
    for name, order, words in (
        ("none", None, "No record"),
        ("another account", an_order(account=AccountName("aws")), "of the account aws"),
        ("its own", an_order(provider_ref=a_ref(1)), "has it already"),
        ("a listed machine", an_order(listed=True), "ref-2, which the provider lists"),
        (
            "closed",
            an_order(state=MachineState.GONE, gone_evidence="missing"),
            "closed, and stays so: missing",
        ),
        *((state, an_order(state=state), "") for state in MachineState if state is not MachineState.BOOTING),
    ):
        why = why_not_adopted(order, HERE, a_ref(1))
        assert why is not None, name
        assert words in why, name


def test_orphans_that_do_not_end_keep_no_other_waiting() -> None:
    asked = [an_orphan(number, terminate_asked_at=START) for number in range(TERMINATED_PER_RUN_MAX)]
    young = an_orphan(9, first_seen_at=START - GRACE)
    assert terminated(*asked, young)[0] == "ref-9"


def test_a_few_orphans_are_a_leak_whatever_their_share() -> None:
    assert len(terminated(*map(an_orphan, range(LEAK_MAX)), listing_size=LEAK_MAX)) == LEAK_MAX


def test_more_than_a_fifth_of_a_list_means_that_our_records_are_lost() -> None:
    many = [an_orphan(number) for number in range(LEAK_MAX + 1)]
    share = len(many) * 100 // SHARE_MAX_PERCENT
    assert len(terminated(*many, listing_size=share)) == len(many)
    verdict = to_terminate(many, listing_size=share - 1, frozen_why=None, armed=True, now=START)
    assert verdict.terminate == ()
    assert codes(verdict) == {HeldCode.TOO_MANY}
    assert "our records were lost" in verdict.held[a_ref(1)].why


def test_a_tenth_of_a_large_fleet_that_leaked_is_terminated_to_the_last_within_bounded_runs() -> None:
    left = {orphan.provider_ref: orphan for orphan in map(an_orphan, range(100))}
    runs = 0
    while left:
        taken = terminated(*left.values(), listing_size=900 + len(left))
        assert 0 < len(taken) <= TERMINATED_PER_RUN_MAX
        for ref in taken:
            del left[ProviderRef(ref)]
        runs += 1
    assert runs == 100 // TERMINATED_PER_RUN_MAX


def test_only_a_few_are_terminated_per_run_and_the_oldest_first() -> None:
    orphans = [
        an_orphan(number, first_seen_at=START - GRACE - timedelta(seconds=number))
        for number in range(TERMINATED_PER_RUN_MAX + 2)
    ]
    assert terminated(*orphans) == [f"ref-{number}" for number in range(TERMINATED_PER_RUN_MAX + 1, 1, -1)]


@given(st.lists(st.integers(1, 99), unique=True, max_size=30), st.integers(0, 200))
def test_never_more_than_the_bound_is_terminated(numbers: list[int], listing_size: int) -> None:
    assert len(terminated(*map(an_orphan, numbers), listing_size=listing_size)) <= TERMINATED_PER_RUN_MAX
