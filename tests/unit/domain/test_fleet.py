"""What a machine of the fleet has cost."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.fleet import cost_between
from control_plane.domain.money import Nano
from tests.support.clock import START

HOUR = timedelta(hours=1)
PRICE, STOPPED = Nano(8_000_000_000), Nano(1_000_000_000)


def _cost(hours: int, *switched: int, stopped: Nano | None = STOPPED) -> int:
    return cost_between(
        START,
        START + hours * HOUR,
        nano_per_hour=PRICE,
        stopped_nano_per_hour=stopped,
        switched_at=[START + at * HOUR for at in switched],
    )


def test_a_machine_costs_its_price_while_it_is_on_and_the_other_one_while_it_is_stopped() -> None:
    assert _cost(10) == 10 * PRICE
    assert _cost(10, 4) == 4 * PRICE + 6 * STOPPED
    assert _cost(10, 4, 9) == 5 * PRICE + 5 * STOPPED
    assert _cost(10, 4, 9, 12) == 5 * PRICE + 5 * STOPPED, "what is in the future has cost nothing"
    assert _cost(10, 4, stopped=None) == 10 * PRICE, "some providers bill a stopped machine as one that runs"
    assert _cost(-1) == 0


@given(st.integers(0, 50), st.lists(st.integers(0, 60), max_size=6).map(sorted))
def test_a_cost_never_shrinks(hours: int, switched: list[int]) -> None:
    assert 0 <= _cost(hours, *switched) <= _cost(hours + 1, *switched)
