"""What a refresh token does that somebody presents."""

from datetime import UTC, datetime, timedelta
from itertools import product

from control_plane.domain.session import REPEATS, Presented, Use, use

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def test_a_token_is_exchanged_once_and_repeated_only_while_nobody_used_its_answer() -> None:
    for replaced, used, void in product((None, 0, 29, 30, 1_000), (False, True), (False, True)):
        replaced_at = None if replaced is None else NOW - timedelta(seconds=replaced)
        found = use(Presented(replaced_at, used, void), NOW)
        if void:
            assert found is Use.END
        elif replaced is None:
            assert found is Use.REPLACE
        else:
            lost = not used and timedelta(seconds=replaced) < REPEATS
            assert found is (Use.REPEAT if lost else Use.END), (replaced, used)
