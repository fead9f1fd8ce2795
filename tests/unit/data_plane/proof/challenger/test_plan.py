"""How large a challenge is: seconds, bounds of the messages, and what a prover's claims cannot do."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.gpu import APPEARANCES, MEMORY_TOLERANCE_PERCENT, GpuModel
from data_plane.proof.challenger.judgement import (
    FREE_MIN,
    HELD_FREE_MIN,
    NETWORK_SECONDS,
    judge_identity,
)
from data_plane.proof.challenger.plan import EMULATED, KINDS, Plan, Sizes, plan
from data_plane.proof.challenger.port import Expected, Occasion
from data_plane.proof.challenger.reference import TABLE, References
from data_plane.proof.protocol import messages
from data_plane.proof.protocol.messages import Identity
from data_plane.proof.prover.emulation.cards import CARDS
from data_plane.proof.prover.emulation.cards import identity as identity_of
from data_plane.proof.verifier.jobs import COST_MAX, Commitment, TilesJob, WalkJob
from tests.support.prover import MIB, gpu, identity

MODELS = sorted(TABLE)
EVERY_TOTAL = [(model, mib) for model in MODELS for mib in APPEARANCES[GpuModel(model)].memory_mib]


def planned(
    model: str,
    *changes: dict[str, Any],
    occasion: Occasion = Occasion.START,
    sizes: Sizes | None = None,
    **of: Any,
) -> Plan:
    claimed = identity(*(gpu(index, **change) for index, change in enumerate(changes or ({},))), **of)
    return plan_of(model, claimed, occasion, sizes)


def plan_of(model: str, claimed: Identity, occasion: Occasion, sizes: Sizes | None = None) -> Plan:
    times = References().times(model, "570")
    return plan(claimed, sold(model), TABLE[model], times, occasion=occasion, sizes=sizes or Sizes())


def sold(model: str) -> Expected:
    looks = APPEARANCES[GpuModel(model)]
    return Expected(model, 1, looks.nvml_names, looks.memory_mib, MEMORY_TOLERANCE_PERCENT)


def card(mib: int) -> dict[str, Any]:
    """An idle one: a driver and a context keep 1 GiB."""
    return {"nvml_memory": mib * MIB, "cuda_memory": (mib - 400) * MIB, "cuda_free": (mib - 1024) * MIB}


@pytest.mark.parametrize("model", MODELS)
def test_a_phase_takes_a_card_of_any_model_the_same_seconds(model: str) -> None:
    one, times, sizes = planned(model), TABLE[model].estimate(), Sizes()
    assert one.bytes_read(0) / times.walk.rate == pytest.approx(sizes.walk_seconds, rel=0.01)
    for kind in KINDS:
        assert one.multiply_adds(0, kind) / times.of(kind).rate == pytest.approx(sizes.tile_seconds, rel=0.01)


@pytest.mark.parametrize("occasion", [Occasion.START, Occasion.END])
@pytest.mark.parametrize(("model", "mib"), EVERY_TOTAL)
def test_93_percent_of_every_card_that_is_idle_is_filled_and_a_fiftieth_left_alone(
    model: str, mib: int, occasion: Occasion
) -> None:
    """Idle as the smallest may be that passes: FREE_MIN of it is free."""
    idle = identity_of(CARDS[model], 0, "GPU-1", mib)
    for free in (idle.cuda_free, math.ceil(FREE_MIN * mib * MIB)):
        claimed = identity(replace(idle, cuda_free=free))
        assert judge_identity(claimed, sold(model), TABLE[model], occasion).findings == ()
        filled = plan_of(model, claimed, occasion).bytes_filled(0)
        assert filled >= 0.93 * mib * MIB
        assert free - filled >= 0.0199 * mib * MIB


@given(
    st.sampled_from(EVERY_TOTAL),
    st.sampled_from(Occasion),
    st.one_of(st.none(), st.floats(0.975, 1.025)),
    st.integers(0, 1 << 40),
    st.one_of(st.floats(0.85, 1.1), st.floats(0, 4)),
)
def test_no_claim_that_is_accepted_makes_the_fill_a_smaller_share_of_what_was_sold(
    of: tuple[str, int], occasion: Occasion, nvml: float | None, cuda_memory: int, free: float
) -> None:
    model, mib = of
    claims = replace(
        identity_of(CARDS[model], 0, "GPU-1"),
        nvml_memory=None if nvml is None else int(nvml * mib * MIB),
        cuda_memory=cuda_memory,
        cuda_free=int(free * mib * MIB),
    )
    claimed = identity(claims)
    if judge_identity(claimed, sold(model), TABLE[model], occasion).findings:
        return
    totals = APPEARANCES[GpuModel(model)].memory_mib
    promised = max(totals) if nvml is None else min(totals, key=lambda total: abs(total - nvml * mib))
    share = 0.60 if occasion.held else 0.93
    assert plan_of(model, claimed, occasion).bytes_filled(0) >= share * promised * MIB


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
    assert one.bytes_filled(0) <= 2 * MIB
    assert one.gpus[0].iterations <= 2
    assert one.bytes_read(0) <= 2 * MIB


@pytest.mark.parametrize("occasion", [Occasion.IDLE, Occasion.RECHECK])
@pytest.mark.parametrize(("model", "mib"), EVERY_TOTAL)
def test_a_machine_that_is_held_keeps_three_tenths_and_shows_more_than_half_a_card_has(
    model: str, mib: int, occasion: Occasion
) -> None:
    idle = identity_of(CARDS[model], 0, "GPU-1", mib)
    for free in (idle.cuda_free, math.ceil(HELD_FREE_MIN * mib * MIB)):
        claimed = identity(replace(idle, cuda_free=free))
        assert judge_identity(claimed, sold(model), TABLE[model], occasion).findings == ()
        filled = plan_of(model, claimed, occasion).bytes_filled(0)
        assert filled >= 0.60 * mib * MIB
        assert free - filled >= 0.2999 * mib * MIB


@pytest.mark.parametrize(
    ("occasion", "samples"), [(Occasion.IDLE, (1, 24, 16)), (Occasion.RECHECK, (2, 48, 16))]
)
def test_a_challenge_that_nothing_gave_rise_to_is_shorter(
    occasion: Occasion, samples: tuple[int, int, int]
) -> None:
    one = planned("h100-sxm-80gb", card(81559), occasion=occasion)
    assert (one.sizes.repeats, one.sizes.chains_opened, one.sizes.tiles_opened) == samples


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
