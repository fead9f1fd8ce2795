"""Which months are reconciled without anybody asking, and when."""

from datetime import UTC, datetime, timedelta

from control_plane.domain.reconciliation_schedule import REPEATED_AFTER, LastAsked, is_due, watched_months

NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)
OCTOBER = datetime(2026, 10, 1, tzinfo=UTC)
NOW = NOVEMBER + timedelta(days=20)
MOMENT = timedelta(microseconds=1)


def test_the_running_month_and_the_last_one_are_watched_from_the_first_instant_of_a_month_on() -> None:
    assert watched_months(NOW) == (NOVEMBER, OCTOBER)
    assert watched_months(NOVEMBER) == (NOVEMBER, OCTOBER)
    assert watched_months(NOVEMBER - MOMENT) == (OCTOBER, datetime(2026, 9, 1, tzinfo=UTC))
    january = datetime(2027, 1, 1, tzinfo=UTC)
    assert watched_months(january) == (january, datetime(2026, 12, 1, tzinfo=UTC))


def test_a_month_is_asked_for_at_first_and_then_once_a_day() -> None:
    assert is_due(None, NOW)
    asked = LastAsked(NOVEMBER, NOW, is_done=True)
    assert not is_due(asked, NOW)
    assert not is_due(asked, NOW + REPEATED_AFTER - MOMENT)
    assert is_due(asked, NOW + REPEATED_AFTER)


def test_no_other_is_put_behind_one_that_is_under_way() -> None:
    assert not is_due(LastAsked(NOVEMBER, NOW, is_done=False), NOW + 3 * REPEATED_AFTER)
