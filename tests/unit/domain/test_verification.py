"""A machine's reading held against its order: every way to be disqualified, and that honest cards pass."""

from dataclasses import replace

import pytest

from control_plane.domain.gpu import APPEARANCES, MEMORY_TOLERANCE_PERCENT, GpuModel, memory_in_band
from control_plane.domain.verification import Mismatch, MismatchCode, Reading, Verified, verify

MODEL, COUNT = GpuModel.H100_SXM_80GB, 2
CARD = Reading("NVIDIA H100 80GB HBM3", "GPU-1", 81_559)
CARDS = [CARD, replace(CARD, uuid="GPU-2")]


def expect_mismatch(readings: list[Reading], code: MismatchCode) -> None:
    verdict = verify(MODEL, COUNT, readings, emulated=False, accept_emulated=False)
    assert isinstance(verdict, Mismatch)
    assert verdict.code is code
    assert verdict.why.endswith(".")


def test_what_was_ordered_is_verified() -> None:
    assert verify(MODEL, COUNT, CARDS, emulated=False, accept_emulated=False) == Verified(emulated=False)


@pytest.mark.parametrize("cards", [[], CARDS[:1], [*CARDS, replace(CARD, uuid="GPU-3")]])
def test_a_card_too_few_or_too_many_is_a_mismatch(cards: list[Reading]) -> None:
    expect_mismatch(cards, MismatchCode.COUNT)


def test_one_card_listed_twice_is_a_mismatch() -> None:
    expect_mismatch([CARD, CARD], MismatchCode.DUPLICATE)


@pytest.mark.parametrize("name", ["NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM3 ", "", "nvidia h100 80gb hbm3"])
def test_another_model_among_the_right_ones_is_a_mismatch(name: str) -> None:
    expect_mismatch([CARD, replace(CARDS[1], name=name)], MismatchCode.MODEL)


@pytest.mark.parametrize("memory", [0, 40_960, 79_927, 83_191])
def test_memory_outside_the_band_is_a_mismatch(memory: int) -> None:
    expect_mismatch([CARD, replace(CARDS[1], memory_mib=memory)], MismatchCode.MEMORY)


@pytest.mark.parametrize("sharing", ["mig", "vgpu"])
def test_a_part_of_a_card_is_not_the_card(sharing: str) -> None:
    expect_mismatch([CARD, replace(CARDS[1], sharing=sharing)], MismatchCode.SHARED)


def test_a_card_that_does_not_say_whether_it_is_shared_is_held_against_the_rest() -> None:
    cards = [replace(card, sharing="unknown") for card in CARDS]
    assert isinstance(verify(MODEL, COUNT, cards, emulated=False, accept_emulated=False), Verified)


def test_an_emulation_counts_only_where_the_operator_says_so_and_stays_marked() -> None:
    refused = verify(MODEL, COUNT, CARDS, emulated=True, accept_emulated=False)
    assert isinstance(refused, Mismatch)
    assert refused.code is MismatchCode.EMULATED
    assert verify(MODEL, COUNT, CARDS, emulated=True, accept_emulated=True) == Verified(emulated=True)


def test_every_model_has_an_appearance_and_passes_as_itself() -> None:
    assert set(APPEARANCES) == set(GpuModel)
    for model, looks in APPEARANCES.items():
        for name in looks.nvml_names:
            for memory in looks.memory_mib:
                reading = [Reading(name, "GPU-1", memory)]
                verdict = verify(model, 1, reading, emulated=False, accept_emulated=False)
                assert verdict == Verified(emulated=False)


@pytest.mark.parametrize("model", list(GpuModel))
def test_the_memory_band_ends_where_it_says(model: GpuModel) -> None:
    lowest, highest = min(APPEARANCES[model].memory_mib), max(APPEARANCES[model].memory_mib)
    down, up = lowest * MEMORY_TOLERANCE_PERCENT // 100, highest * MEMORY_TOLERANCE_PERCENT // 100
    assert memory_in_band(model, lowest - down)
    assert not memory_in_band(model, lowest - down - 1)
    assert memory_in_band(model, highest + up)
    assert not memory_in_band(model, highest + up + 1)


def test_no_card_passes_for_a_model_of_another_generation() -> None:
    names = {name: model for model, looks in APPEARANCES.items() for name in looks.nvml_names}
    for model, looks in APPEARANCES.items():
        for name in looks.nvml_names:
            # One NVML name may stand for one model only, or the name proves nothing.
            assert names[name] is model
