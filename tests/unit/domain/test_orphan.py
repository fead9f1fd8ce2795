"""Which orphans are terminated: old enough, few enough, and none when it looks like our own mistake."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.orphan import (
    GRACE,
    LEAK_MAX,
    LISTS_MIN,
    SHARE_MAX_PERCENT,
    TERMINATED_PER_RUN_MAX,
    Orphan,
    to_terminate,
)
from tests.support.clock import START
from tests.support.values import a_key, a_ref

MOMENT = timedelta(microseconds=1)


def an_orphan(number: int = 1, **other: Any) -> Orphan:
    return replace(Orphan(a_ref(number), a_key(number), START - GRACE, LISTS_MIN), **other)


def terminated(*orphans: Orphan, listing_size: int = 1_000, frozen_why: str | None = None) -> list[str]:
    verdict = to_terminate(orphans, listing_size=listing_size, frozen_why=frozen_why, now=START)
    return [orphan.provider_ref for orphan in verdict.terminate]


def test_an_old_orphan_with_our_key_is_terminated() -> None:
    assert terminated(an_orphan()) == ["ref-1"]


@pytest.mark.parametrize("other", [{"first_seen_at": START - GRACE + MOMENT}, {"lists_seen": LISTS_MIN - 1}])
def test_an_orphan_is_only_watched_at_first(other: dict[str, Any]) -> None:
    assert terminated(an_orphan(1, **other)) == []


def test_nothing_is_terminated_on_a_frozen_account_and_it_says_why() -> None:
    verdict = to_terminate([an_orphan()], listing_size=100, frozen_why="the list is empty.", now=START)
    assert verdict.terminate == ()
    assert verdict.refused_why == "The account is frozen: the list is empty."


def test_a_frozen_account_without_ripe_orphans_reports_nothing() -> None:
    young = an_orphan(first_seen_at=START)
    assert to_terminate([young], listing_size=1, frozen_why="it is.", now=START).refused_why is None


def test_a_few_orphans_are_a_leak_whatever_their_share() -> None:
    assert len(terminated(*map(an_orphan, range(LEAK_MAX)), listing_size=LEAK_MAX)) == LEAK_MAX


def test_more_than_a_fifth_of_a_list_means_that_our_records_are_lost() -> None:
    many = [an_orphan(number) for number in range(LEAK_MAX + 1)]
    share = len(many) * 100 // SHARE_MAX_PERCENT
    assert len(terminated(*many, listing_size=share)) == len(many)
    verdict = to_terminate(many, listing_size=share - 1, frozen_why=None, now=START)
    assert verdict.terminate == ()
    assert verdict.refused_why is not None
    assert "our records were lost" in verdict.refused_why


def test_only_a_few_are_terminated_per_run_and_the_oldest_first() -> None:
    orphans = [
        an_orphan(number, first_seen_at=START - GRACE - timedelta(seconds=number))
        for number in range(TERMINATED_PER_RUN_MAX + 2)
    ]
    assert terminated(*orphans) == [f"ref-{number}" for number in range(TERMINATED_PER_RUN_MAX + 1, 1, -1)]


@given(st.lists(st.integers(1, 99), unique=True, max_size=30), st.integers(0, 200))
def test_never_more_than_the_bound_is_terminated(numbers: list[int], listing_size: int) -> None:
    assert len(terminated(*map(an_orphan, numbers), listing_size=listing_size)) <= TERMINATED_PER_RUN_MAX
