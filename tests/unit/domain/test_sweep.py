"""Records held against a listing: who is found, who is missed, when a list is not believed, who is an orphan."""

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.ids import MachineId, launch_key
from control_plane.domain.machine import MAY_EXIST, SHOULD_BE_SIGHTED, MachineState
from control_plane.domain.sweep import (
    MISSED_LISTS_MIN,
    ORPHAN_GRACE,
    ORPHAN_SHARE_MAX_PERCENT,
    ORPHANS_PER_RUN_MAX,
    THAW_AFTER,
    THAW_LISTS,
    Findings,
    Freeze,
    Listed,
    Odd,
    Record,
    Stranger,
    absence_proves_gone,
    freeze_after,
    look_for,
    match,
    oddness,
    orphans_to_end,
)
from tests.support.clock import START

OURS, THEIRS = "0a1b2c3d", "ffffffff"
MOMENT = timedelta(microseconds=1)
BEFORE = START - timedelta(hours=1)


def key(number: int, installation: str = OURS) -> str:
    return launch_key(installation, UUID(int=number))


def a_record(number: int = 1, **other: Any) -> Record:
    record = Record(
        id=MachineId(UUID(int=number)),
        launch_key=key(number),
        provider_ref=f"ref-{number}",
        state=MachineState.VERIFIED,
        asked_at=BEFORE,
        sighted_at=BEFORE,
        missed_since=None,
        missed_lists=0,
    )
    return replace(record, **other)


def a_listing(*numbers: int) -> list[Listed]:
    return [Listed(f"ref-{number}", key(number)) for number in numbers]


def found(records: list[Record], listing: list[Listed]) -> Findings:
    return match(records, listing, installation=OURS, asked_at=START)


# Matching.


def test_a_machine_is_found_by_its_reference() -> None:
    findings = found([a_record()], a_listing(1))
    assert findings == Findings(((a_record(), a_listing(1)[0]),), (), (), 0)


def test_a_lost_answer_is_found_by_its_launch_key() -> None:
    record = a_record(state=MachineState.LAUNCHING, provider_ref=None, sighted_at=None)
    assert found([record], a_listing(1)).found == ((record, a_listing(1)[0]),)


def test_a_list_asked_for_before_the_launch_cannot_miss_it() -> None:
    def launched(asked_at: object) -> Record:
        return a_record(state=MachineState.LAUNCHING, provider_ref=None, asked_at=asked_at)

    assert not found([launched(START)], []).missed
    assert not found([launched(START + MOMENT)], []).missed
    assert found([launched(START - MOMENT)], []).missed


def test_a_machine_that_nobody_claims_is_a_stranger_and_that_of_another_installation_is_not() -> None:
    foreign = Listed("ref-9", key(9, THEIRS))
    unmarked = Listed("ref-10", "web-1")
    findings = found([], [*a_listing(1), foreign, unmarked])
    assert findings.strangers == tuple(a_listing(1))
    assert findings.foreign == 2


def test_a_second_machine_of_one_launch_key_is_a_stranger() -> None:
    record = a_record(state=MachineState.LAUNCHING, provider_ref=None)
    twin = Listed("ref-twin", key(1))
    findings = found([record], [*a_listing(1), twin])
    assert findings.found == ((record, a_listing(1)[0]),)
    assert findings.strangers == (twin,)


def test_the_machine_of_a_closed_record_is_a_stranger() -> None:
    assert found([a_record(state=MachineState.GONE)], a_listing(1)).strangers == tuple(a_listing(1))


def test_a_reference_that_a_provider_gave_twice_is_claimed_once() -> None:
    # A provider that hands out a reference again: the new machine carries the key of a launch that is looked for.
    old = a_record(1, state=MachineState.TERMINATING)
    new = a_record(2, state=MachineState.LAUNCHING, provider_ref=None, sighted_at=None)
    machine = Listed("ref-1", key(2))
    for records in ([old, new], [new, old]):
        claims = [record.id for record, listed in found(records, [machine]).found if listed == machine]
        assert len(claims) == 1, "one machine would be written down twice, and the whole listing refused"


def test_a_machine_that_is_listed_twice_is_one_machine() -> None:
    findings = found([], [*a_listing(1), *a_listing(1)])
    assert findings.strangers == tuple(a_listing(1))


RECORDS = st.lists(
    st.builds(
        a_record,
        st.integers(1, 8),
        state=st.sampled_from(MachineState),
        asked_at=st.sampled_from([None, BEFORE, START + MOMENT]),
        sighted_at=st.sampled_from([None, BEFORE]),
        provider_ref=st.none() | st.integers(1, 8).map(lambda number: f"ref-{number}"),
    ),
    unique_by=lambda record: record.id,
    max_size=8,
).filter(
    # The database keeps the references of open records apart.
    lambda records: (
        len({one.provider_ref for one in records if one.provider_ref and one.state in MAY_EXIST})
        == sum(1 for one in records if one.provider_ref and one.state in MAY_EXIST)
    )
)
LISTINGS = st.lists(
    st.builds(
        lambda ref, number, installation: Listed(f"ref-{ref}", key(number, installation)),
        st.integers(1, 10),
        st.integers(1, 10),
        st.sampled_from([OURS, OURS, THEIRS]),
    ),
    max_size=10,
)


@given(RECORDS, LISTINGS)
def test_no_record_is_both_found_and_missed_and_only_open_ones_are_looked_at(
    records: list[Record], listing: list[Listed]
) -> None:
    findings = found(records, listing)
    seen = [record.id for record, _ in findings.found]
    missed = [record.id for record in findings.missed]
    assert not set(seen) & set(missed)
    assert len(set(seen)) == len(seen)
    assert len(set(missed)) == len(missed)
    for record in [*findings.missed, *(record for record, _ in findings.found)]:
        assert record.state in MAY_EXIST


@given(RECORDS, LISTINGS)
def test_every_listed_machine_is_claimed_once_or_a_stranger_or_foreign(
    records: list[Record], listing: list[Listed]
) -> None:
    findings = found(records, listing)
    claimed = [listed.provider_ref for _, listed in findings.found]
    strangers = [listed.provider_ref for listed in findings.strangers]
    assert len(set(claimed)) == len(claimed)
    assert len(set(strangers)) == len(strangers)
    assert not set(claimed) & set(strangers)
    machines = {listed.provider_ref for listed in listing}
    assert len(claimed) + len(strangers) + findings.foreign == len(machines)


@given(RECORDS, LISTINGS)
def test_every_open_record_that_was_asked_for_in_time_is_found_or_missed(
    records: list[Record], listing: list[Listed]
) -> None:
    findings = found(records, listing)
    judged = {record.id for record, _ in findings.found} | {record.id for record in findings.missed}
    for record in records:
        if record.state in MAY_EXIST and record.asked_at == BEFORE:
            assert record.id in judged


@given(RECORDS, LISTINGS, st.randoms(use_true_random=False))
def test_what_is_found_does_not_depend_on_the_order_of_the_records(
    records: list[Record], listing: list[Listed], random: Random
) -> None:
    shuffled = list(records)
    random.shuffle(shuffled)
    straight, other = found(records, listing), found(shuffled, listing)
    assert {(record.id, listed.provider_ref) for record, listed in straight.found} == {
        (record.id, listed.provider_ref) for record, listed in other.found
    }


# Oddness.


def odd(missed: int, of: int, *, listing_size: int | None = None, **other: object) -> Odd | None:
    records = [a_record(number, **other) for number in range(1, of + 1)]
    findings = found(records, a_listing(*range(missed + 1, of + 1)))
    return oddness(findings, len(findings.found) if listing_size is None else listing_size)


def test_a_list_that_shows_everything_is_sane() -> None:
    assert odd(0, 3) is None
    assert odd(0, 0) is None


def test_an_empty_list_is_odd_even_for_one_machine() -> None:
    verdict = odd(1, 1)
    assert verdict is not None
    assert verdict.why == "The list is empty and 1 machines should be on it."


@pytest.mark.parametrize(
    ("missed", "of", "is_odd"), [(1, 2, False), (1, 3, False), (2, 4, False), (2, 3, True), (3, 5, True)]
)
def test_a_list_is_odd_when_it_misses_more_than_half_and_more_than_one(
    missed: int, of: int, is_odd: bool
) -> None:
    assert (odd(missed, of) is not None) is is_odd


def test_one_machine_missing_beside_strangers_is_an_absence_and_no_oddness() -> None:
    assert odd(1, 1, listing_size=1) is None


@pytest.mark.parametrize("state", sorted(MAY_EXIST - SHOULD_BE_SIGHTED))
def test_what_was_asked_to_end_or_may_not_exist_is_not_expected(state: MachineState) -> None:
    assert odd(3, 3, state=state) is None


def test_a_machine_that_was_never_sighted_is_not_expected() -> None:
    assert odd(3, 3, sighted_at=None) is None


# Freezing.

ODD = Odd("too short")


def test_an_odd_list_freezes_and_a_sane_one_thaws_at_once() -> None:
    frozen = freeze_after(None, ODD, now=START)
    assert frozen == Freeze(START, 1, "too short")
    assert freeze_after(frozen, None, now=START + MOMENT) is None


def test_a_freeze_keeps_its_beginning_and_counts_its_lists() -> None:
    again = freeze_after(Freeze(START, 1, "too short"), Odd("shorter"), now=START + MOMENT)
    assert again == Freeze(START, 2, "shorter")


@pytest.mark.parametrize(
    ("lists", "after", "thaws"),
    [
        (THAW_LISTS - 1, THAW_AFTER, True),
        (THAW_LISTS - 1, THAW_AFTER - MOMENT, False),
        (THAW_LISTS - 2, THAW_AFTER, False),
        (1, timedelta(days=1), False),
        (1_000, timedelta(0), False),
    ],
)
def test_an_odd_list_is_believed_only_when_it_was_said_long_enough_and_often_enough(
    lists: int, after: timedelta, thaws: bool
) -> None:
    freeze = freeze_after(Freeze(START, lists, "too short"), ODD, now=START + after)
    assert (freeze is None) is thaws


# Absence.

LAG, BOOT = 30.0, 600.0


def gone(record: Record) -> bool:
    return absence_proves_gone(record, list_lag_seconds=LAG, boot_seconds_max=BOOT, now=START)


MISSING = a_record(missed_since=START - timedelta(seconds=LAG), missed_lists=MISSED_LISTS_MIN)


def test_a_machine_that_was_sighted_is_gone_when_lists_a_lag_apart_miss_it() -> None:
    assert gone(MISSING)


@pytest.mark.parametrize(
    "other",
    [
        {"missed_since": None},
        {"missed_lists": MISSED_LISTS_MIN - 1},
        {"missed_since": START - timedelta(seconds=LAG) + MOMENT},
        {"asked_at": None},
    ],
)
def test_less_than_that_proves_nothing(other: dict[str, Any]) -> None:
    assert not gone(replace(MISSING, **other))


def test_a_machine_that_was_never_sighted_may_still_be_on_its_way_for_a_whole_boot() -> None:
    whole = timedelta(seconds=LAG + BOOT)
    assert gone(replace(MISSING, sighted_at=None, asked_at=START - whole))
    assert not gone(replace(MISSING, sighted_at=None, asked_at=START - whole + MOMENT))


def test_a_lost_launch_is_looked_for_longer_than_a_list_may_lag() -> None:
    assert look_for(0) > timedelta(0)
    assert look_for(LAG) > timedelta(seconds=2 * LAG)


# Orphans.


def a_stranger(number: int = 1, **other: Any) -> Stranger:
    stranger = Stranger(f"ref-{number}", key(number), START - ORPHAN_GRACE, MISSED_LISTS_MIN)
    return replace(stranger, **other)


def ended(*strangers: Stranger, listing_size: int = 1_000, frozen_why: str | None = None) -> list[str]:
    verdict = orphans_to_end(strangers, listing_size=listing_size, frozen_why=frozen_why, now=START)
    return [one.provider_ref for one in verdict.end]


def test_an_old_stranger_with_our_key_is_ended() -> None:
    assert ended(a_stranger()) == ["ref-1"]


@pytest.mark.parametrize(
    "other",
    [{"first_seen_at": START - ORPHAN_GRACE + MOMENT}, {"lists_seen": MISSED_LISTS_MIN - 1}],
)
def test_a_stranger_is_only_watched_at_first(other: dict[str, Any]) -> None:
    assert ended(a_stranger(1, **other)) == []


def test_nothing_is_ended_on_a_frozen_account_and_it_says_why() -> None:
    verdict = orphans_to_end([a_stranger()], listing_size=100, frozen_why="the list is empty.", now=START)
    assert verdict.end == ()
    assert verdict.refused_why == "The account is frozen: the list is empty."


def test_a_frozen_account_without_ripe_strangers_reports_nothing() -> None:
    young = a_stranger(first_seen_at=START)
    assert orphans_to_end([young], listing_size=1, frozen_why="it is.", now=START).refused_why is None


def test_up_to_three_orphans_are_a_leak_whatever_their_share() -> None:
    assert len(ended(*map(a_stranger, range(3)), listing_size=3)) == 3


def test_more_than_a_fifth_of_a_list_is_our_own_loss_of_memory() -> None:
    four = [a_stranger(number) for number in range(4)]
    share = 4 * 100 // ORPHAN_SHARE_MAX_PERCENT
    assert len(ended(*four, listing_size=share)) == 4
    verdict = orphans_to_end(four, listing_size=share - 1, frozen_why=None, now=START)
    assert verdict.end == ()
    assert verdict.refused_why is not None
    assert "loss of memory" in verdict.refused_why


def test_only_a_few_are_ended_per_run_and_the_oldest_first() -> None:
    strangers = [
        a_stranger(number, first_seen_at=START - ORPHAN_GRACE - timedelta(seconds=number))
        for number in range(ORPHANS_PER_RUN_MAX + 2)
    ]
    assert ended(*strangers) == [f"ref-{number}" for number in range(ORPHANS_PER_RUN_MAX + 1, 1, -1)]


@given(st.lists(st.integers(1, 99), unique=True, max_size=30), st.integers(0, 200))
def test_never_more_than_the_bound_is_ended(numbers: list[int], listing_size: int) -> None:
    assert len(ended(*map(a_stranger, numbers), listing_size=listing_size)) <= ORPHANS_PER_RUN_MAX
