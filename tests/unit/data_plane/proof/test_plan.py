"""How large a challenge is: seconds, bounds of the messages, and what a prover's claims cannot do."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.proof import messages
from data_plane.proof.jobs import COST_MAX, Commitment, TilesJob, WalkJob
from data_plane.proof.judgement import NETWORK_SECONDS
from data_plane.proof.plan import EMULATED, KINDS, Plan, Sizes, plan
from data_plane.proof.port import Occasion
from data_plane.proof.reference import TABLE, References
from tests.support.prover import MIB, gpu, identity

MODELS = sorted(TABLE)
TOTALS = {"h100-sxm-80gb": 81559, "h200-sxm-141gb": 143771, "b200-sxm-180gb": 183359, "l4-24gb": 23034}


def planned(
    model: str,
    *changes: dict[str, Any],
    occasion: Occasion = Occasion.START,
    sizes: Sizes | None = None,
    **of: Any,
) -> Plan:
    claimed = identity(*(gpu(index, **change) for index, change in enumerate(changes or ({},))), **of)
    return plan(claimed, TABLE[model], References().times(model, "570"), occasion, sizes or Sizes())


def card(mib: int) -> dict[str, Any]:
    """An idle one: a driver and a context keep 1 GiB."""
    return {"nvml_memory": mib * MIB, "cuda_memory": (mib - 400) * MIB, "cuda_free": (mib - 1024) * MIB}


@pytest.mark.parametrize("model", MODELS)
def test_a_phase_takes_a_card_of_any_model_the_same_seconds(model: str) -> None:
    one, times, sizes = planned(model), TABLE[model].estimate(), Sizes()
    assert one.bytes_read(0) / times.walk.rate == pytest.approx(sizes.walk_seconds, rel=0.01)
    for kind in KINDS:
        assert one.multiply_adds(0, kind) / times.of(kind).rate == pytest.approx(sizes.tile_seconds, rel=0.01)


@pytest.mark.parametrize("model", sorted(TOTALS))
def test_93_percent_of_a_large_card_and_92_of_a_small_one_are_filled(model: str) -> None:
    total = TOTALS[model]
    one = planned(model, card(total))
    share = one.bytes_filled(0) / (total * MIB)
    assert share >= (0.93 if total > 60_000 else 0.92)
    assert one.bytes_filled(0) <= (total - 1024 - 768) * MIB, "nothing would be left for digests"


def test_the_network_is_small_beside_a_walk() -> None:
    assert Sizes().walk_seconds >= 10 * NETWORK_SECONDS


def test_checking_one_gpu_stays_far_below_what_a_verifier_does_for_anybody() -> None:
    sizes = Sizes()
    for model in MODELS:
        one = planned(model).gpus[0]
        nothing = Commitment("walk", bytes(16), 1, 1, b"", b"", (), b"")
        walk = WalkJob(
            nothing, bytes(32), one.iterations, one.blocks, sizes.steps, tuple(range(sizes.chains_opened))
        )
        tiles = TilesJob(nothing, "int8", sizes.inner, sizes.columns, tuple(range(sizes.tiles_opened)))
        assert walk.cost + 4 * tiles.cost < COST_MAX / 5, model


@given(
    st.sampled_from(MODELS),
    st.sampled_from(Occasion),
    st.sampled_from(["cuda", "emulated"]),
    st.integers(0, 1 << 44),
    st.one_of(st.none(), st.integers(0, 1 << 44)),
)
def test_every_plan_fits_the_messages_whatever_was_claimed(
    model: str, occasion: Occasion, source: str, free: int, total: int | None
) -> None:
    one = planned(model, {"cuda_free": free, "nvml_memory": total}, occasion=occasion, source=source)
    sizes, of = one.sizes, one.gpus[0]
    assert 1 <= of.blocks <= messages.BLOCKS_MAX
    assert 1 <= of.iterations <= messages.ITERATIONS_MAX
    assert 1 <= sizes.steps <= messages.STEPS_MAX
    assert 1 <= sizes.group <= messages.GROUP_MAX
    assert 1 <= sizes.rounds <= messages.ROUNDS_MAX
    assert sizes.inner % 32 == 0
    assert sizes.inner <= messages.INNER_MAX
    assert 1 <= of.chains <= min(messages.CHAINS_MAX, sizes.group * messages.GROUPS_MAX)
    for kind in KINDS:
        assert 1 <= of.tiles[kind] <= min(messages.TILES_MAX, sizes.group * messages.GROUPS_MAX)
    assert max(sizes.chains_opened, sizes.tiles_opened) <= messages.OPENED_MAX


def test_an_emulation_is_asked_for_little_whatever_it_claims() -> None:
    one = planned("b200-sxm-180gb", card(183359), source="emulated")
    assert one.sizes == EMULATED
    assert one.walks
    assert one.bytes_filled(0) <= 2 * MIB
    assert one.gpus[0].iterations <= 2
    assert one.bytes_read(0) <= 2 * MIB


def test_a_machine_in_use_keeps_half_of_what_is_free() -> None:
    one = planned("h100-sxm-80gb", card(81559), occasion=Occasion.IDLE)
    free = (81559 - 1024) * MIB
    assert 0.45 * free < one.bytes_filled(0) < 0.5 * free
    assert (one.sizes.repeats, one.sizes.chains_opened, one.sizes.tiles_opened) == (1, 24, 16)


def test_a_walk_that_would_fit_a_cache_is_left_out_for_all() -> None:
    full = {**card(81559), "cuda_free": 3 << 30}
    assert not planned("h100-sxm-80gb", card(81559), full, occasion=Occasion.IDLE).walks
    assert not planned("h100-sxm-80gb", {**card(81559), "cuda_free": 0}, source="emulated").walks
    assert planned("h100-sxm-80gb", card(81559), occasion=Occasion.IDLE).walks


def test_sizes_cut_a_challenge_down_and_the_seconds_follow_from_the_reference() -> None:
    sizes = replace(Sizes(), blocks_max=100, iterations_max=2, chains_max=30, tiles_max=7)
    one = planned("h100-sxm-80gb", card(81559), sizes=sizes).gpus[0]
    assert (one.blocks, one.iterations, one.chains, dict(one.tiles)) == (100, 2, 30, {"int8": 7, "bf16": 7})


def test_chains_are_shorter_where_a_unit_is_dear_to_compute() -> None:
    found = {
        model: planned(model, card(mib)).sizes.steps
        for model, mib in (("h200-sxm-141gb", 143771), ("h100-sxm-80gb", 81559), ("l40s-48gb", 46068))
    }
    assert found == {"h200-sxm-141gb": 512, "h100-sxm-80gb": 256, "l40s-48gb": 64}
    for model, steps in found.items():
        assert steps * TABLE[model].iterations <= Sizes().recomputed_max
