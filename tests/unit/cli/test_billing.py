"""Bills and usage on the command line: cents that add up, and which month is asked for."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from control_plane.cli.words import adding_up
from control_plane.wire.common import Money
from tests.support.cases import case
from tests.unit.cli import answers
from tests.unit.cli.stand import Stand

CENT = 10_000_000


@given(st.lists(st.integers(min_value=-(10**15), max_value=10**15), max_size=30))
def test_printed_cents_add_up_to_the_rounded_sum_and_none_is_a_cent_off(amounts: list[int]) -> None:
    printed = adding_up([Money("", amount) for amount in amounts])
    assert all(amount % CENT == 0 for amount in printed)
    assert abs(sum(printed) - sum(amounts)) * 2 <= CENT
    for amount, cents in zip(amounts, printed, strict=True):
        assert abs(cents - amount) < CENT


def test_whole_cents_stay_as_they_are() -> None:
    amounts = [3 * CENT, -5 * CENT, 0]
    assert adding_up([Money("", amount) for amount in amounts]) == amounts


def test_a_month_or_what_to_add_up_by_that_is_none_is_refused_before_anything_is_asked(
    tmp_path: Path,
) -> None:
    for command in (
        "bill --month october",
        "bill --month 2026-13",
        "balance entries --month 2026-1",
        "balance entries --csv --json",
        "usage --month 2026-10 --since 7d",
        "usage --by region",
        "usage --by label",
        "usage --by project:team",
        "usage --by day --since 7d",
        "usage --by day --csv",
    ):
        with case(command):
            stand = Stand(tmp_path)
            assert stand.run(*command.split()).code == 2
            assert stand.requests == []


def test_a_month_of_usage_ends_where_the_next_one_begins(tmp_path: Path) -> None:
    for month, until in (("2026-02", "2026-03-01"), ("2026-12", "2027-01-01")):
        stand = Stand(tmp_path, {"GET /v1/usage": answers.USAGE})
        assert stand.run("usage", "--month", month).code == 0
        (asked,) = stand.requests
        assert asked.url.params["since"] == f"{month}-01T00:00:00Z"
        assert asked.url.params["until"] == f"{until}T00:00:00Z"


def test_a_label_is_asked_for_by_its_key(tmp_path: Path) -> None:
    stand = Stand(tmp_path, {"GET /v1/usage/sums": answers.USAGE_SUMS})
    assert stand.run("usage", "--by", "label:team", "--month", "2026-10").code == 0
    (asked,) = stand.requests
    assert dict(asked.url.params) == {"by": "label", "label_key": "team", "month": "2026-10"}
