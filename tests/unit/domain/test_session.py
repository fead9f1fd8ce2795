"""What a refresh token does that somebody presents."""

from datetime import UTC, datetime, timedelta
from itertools import product

from control_plane.domain.session import REPEATS, Presented, Use, use

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def test_a_token_is_exchanged_once_and_repeated_only_while_nobody_used_its_answer() -> None:
    for replaced, used, sibling_used in product((None, 0, 29, 30, 1_000), (False, True), (False, True)):
        replaced_at = None if replaced is None else NOW - timedelta(seconds=replaced)
        found = use(Presented(replaced_at, used, sibling_used), NOW)
        good = not sibling_used and (replaced is None or (not used and timedelta(seconds=replaced) < REPEATS))
        assert found is (Use.EXCHANGE if good else Use.END), (replaced, used, sibling_used)
