"""What a loop meets again and again is logged every ten minutes."""

from datetime import UTC, datetime, timedelta

from reconciler.repeated_errors import LOGGED_AGAIN_AFTER, REMEMBERED_MAX, RepeatedErrors

AT = datetime(2026, 11, 23, tzinfo=UTC)


def test_an_error_that_repeats_is_logged_once_in_ten_minutes_and_another_one_at_once() -> None:
    repeated = RepeatedErrors()
    assert repeated.to_log(["the hub is away", "no offers"], AT) == ["the hub is away", "no offers"]
    later = AT + LOGGED_AGAIN_AFTER - timedelta(seconds=1)
    assert repeated.to_log(["the hub is away", "another"], later) == ["another"]
    assert repeated.to_log(["the hub is away", "another"], AT + LOGGED_AGAIN_AFTER) == ["the hub is away"]


def test_errors_that_are_all_different_take_no_more_memory_and_are_logged() -> None:
    repeated = RepeatedErrors()
    many = [f"error {number}" for number in range(2 * REMEMBERED_MAX)]
    for first in range(0, len(many), 100):
        batch = many[first : first + 100]
        assert repeated.to_log(batch, AT) == batch
    assert len(repeated._logged) <= REMEMBERED_MAX + 100
