"""The closed forms against the tables of docs/gpu-proof.md, and against counting."""

import random
from pathlib import Path

import pytest

from data_plane.proof.challenger import soundness
from data_plane.proof.challenger.judgement import NETWORK_SECONDS, TOLERANCE
from data_plane.proof.challenger.plan import Sizes
from data_plane.proof.challenger.reference import RHO, TABLE

DOCUMENT = Path("docs/gpu-proof.md").read_text()


@pytest.mark.parametrize(
    ("left_out", "tiles", "chains"),
    [(0.02, 0.52, 0.38), (0.05, 0.19, 0.085), (0.10, 0.034, 0.0064), (0.20, 0.0008, 0.00002)],
)
def test_the_table_of_work_left_out_is_computed(left_out: float, tiles: float, chains: float) -> None:
    sizes = Sizes()
    assert soundness.passes_skipping(left_out, sizes.repeats * sizes.tiles_opened) == pytest.approx(
        tiles, rel=0.13
    )
    assert soundness.passes_skipping(left_out, sizes.chains_opened) == pytest.approx(chains, rel=0.13)
    assert f"| {left_out:.0%}".replace("%", " %") in DOCUMENT


def test_leaving_out_work_passes_as_often_as_the_formula_says() -> None:
    chance = random.Random(1)
    left_out = set(range(100))
    passed = sum(not left_out & set(chance.sample(range(1000), 16)) for _ in range(4000))
    assert passed / 4000 == pytest.approx(soundness.passes_skipping(0.1, 16), abs=0.025)


def test_a_thousandth_of_the_memory_missing_is_seen_by_all_chains_together() -> None:
    passes = soundness.passes_without_memory(0.999, Sizes().steps, Sizes().chains_opened)
    assert passes == pytest.approx(2e-11, rel=0.1)
    assert soundness.passes_without_memory(0.5, 1, 2) == 0.25


@pytest.mark.parametrize(
    ("model", "link", "hidden"),
    [
        ("h200-sxm-141gb", 75, 0.049),
        ("h100-sxm-80gb", 52, 0.057),
        ("a100-sxm-80gb", 65, 0.052),
        ("l4-24gb", 10, 0.17),
        ("gh200-96gb", 7.4, 0.21),
    ],
)
def test_the_table_of_hidden_memory_is_computed(model: str, link: float, hidden: float) -> None:
    reference = TABLE[model]
    walk = reference.estimate().walk.rate
    slack = soundness.slack(0.2, NETWORK_SECONDS, Sizes().walk_seconds)
    pi = soundness.link_cost(walk, reference.host_link)
    assert slack == pytest.approx(1.283, abs=0.001)
    assert pi == pytest.approx(link, rel=0.07)
    assert soundness.hidden_memory_max(slack, RHO, pi) == pytest.approx(hidden, rel=0.03)


def test_half_a_card_cannot_hold_what_a_held_machine_is_asked_to_fill() -> None:
    """Also while times are estimates, and a cheat hides as much as those allow. Not where the host link is that fast."""
    sizes = Sizes().held()
    passes = set()
    for model, reference in TABLE.items():
        walk = reference.estimate().walk
        slack = soundness.slack(TOLERANCE[walk.basis], NETWORK_SECONDS, sizes.walk_seconds)
        pi = soundness.link_cost(walk.rate, reference.host_link)
        hidden = soundness.hidden_memory_max(slack, RHO, pi)
        if soundness.proven_memory(sizes.memory_share_sold, hidden) < 0.5:
            passes.add(model)
    assert passes == {"l4-24gb", "gh200-96gb"}


def test_the_iterations_of_the_table_make_a_unit_cost_forty_reads() -> None:
    """By the figures they were worked out from, the other way round: seconds to fill over seconds to pass."""
    h200 = TABLE["h200-sxm-141gb"]
    filling = 2.8e8 * 8 * h200.iterations / h200.estimate().fill.rate
    assert filling == pytest.approx(1.7, abs=0.05)
    assert filling / (2.8e8 * 512 / h200.estimate().walk.rate) == pytest.approx(RHO)
    for reference in TABLE.values():
        times = reference.estimate()
        cost = soundness.regeneration_cost(times.fill.rate, times.walk.rate, reference.iterations)
        assert cost == pytest.approx(RHO)


def test_no_more_than_everything_can_be_hidden_and_the_rest_is_proven() -> None:
    assert soundness.hidden_memory_max(2.0, 1.0, 1.0) == 1.0
    assert soundness.proven_memory(0.93, 0.05) == pytest.approx(0.8835)
