"""Accounting periods: their states, when they can be closed, and who can have them reopened."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.period import (
    MAIN_ISSUER,
    NEXT,
    Missing,
    Period,
    PeriodEvent,
    PeriodState,
    closing,
    month_after,
    month_of,
    month_text,
    parse_month,
    reopening,
    step,
)
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.transitions import Ignored, Moved

OCTOBER = datetime(2026, 10, 1, tzinfo=UTC)
NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)
OPEN = Period(MAIN_ISSUER, OCTOBER, PeriodState.OPEN)
CLOSED = replace(OPEN, state=PeriodState.CLOSED)
NOTHING = Missing(0, 0)


def test_a_month_is_the_one_in_utc_that_contains_a_moment() -> None:
    east = datetime.fromisoformat("2026-11-01T01:30:00+02:00")
    assert month_of(east) == OCTOBER
    assert month_of(NOVEMBER - timedelta(microseconds=1)) == OCTOBER
    assert month_of(NOVEMBER) == NOVEMBER
    assert month_after(datetime(2026, 12, 1, tzinfo=UTC)) == datetime(2027, 1, 1, tzinfo=UTC)


@given(st.integers(0, 250_000_000_000))
def test_every_moment_lies_in_exactly_one_month_which_reads_back_from_its_text(seconds: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    month = month_of(moment)
    assert month <= moment < month_after(month)
    assert parse_month(month_text(month)) == month


@pytest.mark.parametrize("text", ["", "2026-13", "2026-00", "0000-01", "2026-1", "2026-11-01", "november"])
def test_other_texts_are_no_month(text: str) -> None:
    with pytest.raises(ValueError, match="not a month"):
        parse_month(text)


def test_only_the_moves_of_the_table_exist() -> None:
    for state in PeriodState:
        for event in PeriodEvent:
            expected = Moved if (state, event) in NEXT else Ignored
            assert isinstance(step(state, event), expected), (state, event)


def test_a_month_that_is_not_over_is_not_closed() -> None:
    refused = closing(OPEN, NOTHING, NOVEMBER - timedelta(seconds=1))
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.PERIOD_NOT_OVER


def test_a_month_is_closed_at_once_when_nothing_is_missing() -> None:
    assert closing(OPEN, NOTHING, NOVEMBER) == (PeriodEvent.CLOSING_BEGAN, PeriodEvent.CLOSED)
    assert closing(replace(OPEN, state=PeriodState.CLOSING), NOTHING, NOVEMBER) == (PeriodEvent.CLOSED,)


@pytest.mark.parametrize("missing", [Missing(1, 0), Missing(0, 1)])
def test_a_month_stays_closing_while_something_is_missing_and_a_sentence_says_what(missing: Missing) -> None:
    assert closing(OPEN, missing, NOVEMBER) == (PeriodEvent.CLOSING_BEGAN,)
    assert closing(replace(OPEN, state=PeriodState.CLOSING), missing, NOVEMBER) == ()
    assert len(missing.sentences) == 1


def test_a_closed_month_is_not_closed_again() -> None:
    refused = closing(CLOSED, NOTHING, NOVEMBER)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.PERIOD_CLOSED


def test_one_person_asks_for_a_reopening_and_another_one_agrees() -> None:
    assert reopening(CLOSED, "user_ada", invoiced=False) is PeriodEvent.REOPENING_REQUESTED
    requested = replace(CLOSED, reopening_requested_by="user_ada")
    refused = reopening(requested, "user_ada", invoiced=False)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.OWN_REQUEST
    assert reopening(requested, "user_grace", invoiced=False) is PeriodEvent.REOPENED


@pytest.mark.parametrize("state", [PeriodState.OPEN, PeriodState.CLOSING])
def test_only_a_closed_month_is_reopened(state: PeriodState) -> None:
    refused = reopening(replace(OPEN, state=state), "user_ada", invoiced=False)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.PERIOD_NOT_CLOSED
