"""The model of how long a card takes."""

import pytest

from data_plane.proof.challenger.reference import RHO, TABLE
from data_plane.proof.prover.emulation.cards import CARDS
from data_plane.proof.prover.emulation.device import Work
from data_plane.proof.prover.emulation.machine import Claim
from data_plane.simulation.timing import CardTimer, Engine, Scale

SEED, NONCE = bytes(range(32)), bytes(range(100, 116))
H100 = CARDS["h100-sxm-80gb"]
CLAIM = Claim(H100.name, "GPU-1", H100.memory_mib)


@pytest.mark.parametrize("model", CARDS)
def test_computing_a_unit_takes_as_long_as_reading_it_about_forty_times(model: str) -> None:
    """Our emulated world and the reference table, which chooses the iterations, are apart by their own estimates."""
    timer = CardTimer(CARDS[model].speeds)
    ratio = timer.seconds(Work(regenerated=8 * TABLE[model].iterations)) / timer.seconds(Work(reads=1))
    assert ratio == pytest.approx(RHO, rel=0.12)


def test_reading_fetching_and_computing_overlap() -> None:
    timer = CardTimer(H100.speeds)
    alone = [timer.seconds(one) for one in (Work(reads=1000), Work(fetched=30), Work(regenerated=5000))]
    assert timer.seconds(Work(reads=1000, fetched=30, regenerated=5000)) == max(alone)


def test_two_gpus_that_are_one_take_turns() -> None:
    engine = Engine()
    one, other = (CardTimer(H100.speeds, engine=engine) for _ in range(2))
    one.charge(Work(seconds=2.0))
    other.charge(Work(seconds=2.0))
    assert (one.time, other.time) == (2.0, 4.0)


def test_a_card_in_miniature_takes_as_long_as_a_real_one() -> None:
    whole = CardTimer(H100.speeds).seconds(Work(reads=1000 * 4))
    scaled = CardTimer(H100.speeds, Scale(blocks=1000)).seconds(Work(reads=4))
    assert scaled == pytest.approx(whole)
