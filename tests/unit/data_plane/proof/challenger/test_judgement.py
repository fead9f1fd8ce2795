"""The rules: which claims contradict each other, which times are accepted, what follows."""

from dataclasses import replace
from typing import Any

import pytest

from data_plane.proof.challenger import judgement
from data_plane.proof.challenger.judgement import (
    BY_LOAD,
    CODES,
    FAILURES,
    HINTS,
    SILENCES,
    Band,
    band,
    judge_identity,
    launch_band,
    outcome,
    time_findings,
)
from data_plane.proof.challenger.port import Expected, Finding, Occasion, Outcome
from data_plane.proof.challenger.reference import TABLE, Basis, Pace
from data_plane.proof.protocol.messages import Committed, GapsAnswer, SmGaps
from data_plane.proof.verifier.jobs import Fault
from tests.support.prover import MIB, MODEL, NAME, expected, gpu, identity


def judged(
    *changes: dict[str, Any], count: int | None = None, occasion: Occasion = Occasion.START, **of_machine: Any
) -> tuple[set[str], set[str]]:
    """Codes of findings and of hints."""
    gpus = [gpu(index, **change) for index, change in enumerate(changes)]
    of = judge_identity(identity(*gpus, **of_machine), expected(count or len(gpus)), TABLE[MODEL], occasion)
    return {one.code for one in of.findings}, {one.code for one in of.hints}


# Identity.


def test_a_genuine_machine_raises_no_question() -> None:
    assert judged({}, {}) == (set(), set())


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"nvml_name": "NVIDIA A100-SXM4-80GB"}, "gpu_model"),
        ({"cuda_name": "NVIDIA A100-SXM4-80GB"}, "gpu_model"),
        ({"nvml_memory": 40960 * MIB}, "gpu_memory"),
        ({"nvml_sharing": "mig"}, "gpu_shared"),
        ({"nvml_sharing": "vgpu"}, "gpu_shared"),
        ({"nvml_uuid": "GPU-other"}, "uuid_differs"),
        ({"nvml_pci_bus": "00000000:07:00.0"}, "bus_differs"),
        ({"sysfs_pci_device": "10de:2331"}, "pci_differs"),
        ({"nvml_pci_device": "10de:2329", "sysfs_pci_device": "10de:2329"}, "pci_other"),
        ({"nvml_pci_device": None, "sysfs_pci_device": "10de:20b2"}, "pci_other"),
        ({"cuda_capability": "8.0"}, "capability"),
        ({"cuda_free": 40 << 30}, "memory_short"),
    ],
)
def test_a_claim_that_contradicts_another_or_the_sale_fails(change: dict[str, Any], code: str) -> None:
    findings, _ = judged(change)
    assert code in findings


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"nvml_name": None}, "nvml_silent"),
        ({"nvml_sharing": "unknown"}, "sharing_unknown"),
        ({"nvml_pci_device": "10de:ffff", "sysfs_pci_device": None}, "pci_doubtful"),
        ({"proc_model": "NVIDIA Graphics Device"}, "proc_differs"),
        ({"cuda_sms": 114}, "sms_differ"),
        ({"cuda_bus_bits": 4096}, "bus_width_differs"),
        ({"cuda_memory_khz": 1_215_000}, "bandwidth_differs"),
        ({"cuda_memory": 70_000 * MIB}, "cuda_memory_differs"),
        ({"nvml_ecc": False}, "ecc_differs"),
        ({"cuda_mps": True}, "mps"),
        ({"nvml_processes": 1}, "processes"),
        ({"nvml_throttle": 0x40}, "throttled"),
    ],
)
def test_a_claim_that_our_figures_cannot_settle_is_a_hint(change: dict[str, Any], code: str) -> None:
    assert judged(change) == (set(), {code} | ({"bandwidth_differs"} if "cuda_bus_bits" in change else set()))


def test_sources_that_say_nothing_contradict_nothing() -> None:
    silent = {"nvml_uuid": None, "nvml_memory": None, "nvml_pci_device": None, "nvml_pci_bus": None}
    unsaid = {"nvml_ecc": None, "nvml_throttle": None, "nvml_processes": None, "proc_model": None}
    assert judged({**silent, **unsaid, "sysfs_pci_device": None}) == (set(), set())


def test_the_number_of_gpus_is_the_number_sold() -> None:
    assert "gpu_count" in judged({}, count=2)[0]
    assert "gpu_count" in judged({}, {}, count=1)[0]


@pytest.mark.parametrize(
    "same",
    [
        {"cuda_uuid": "GPU-x", "nvml_uuid": "GPU-x"},
        {"cuda_uuid": "GPU-x", "nvml_uuid": None},
        {"cuda_pci_bus": "0000:05:00.0", "nvml_pci_bus": "00000000:05:00.0"},
    ],
)
def test_one_gpu_cannot_be_listed_twice(same: dict[str, Any]) -> None:
    assert judged(same, same)[0] == {"gpu_duplicate"}


def test_a_pci_domain_may_be_written_with_four_digits_or_eight() -> None:
    assert judged({"nvml_pci_bus": "00010000:05:00.0", "cuda_pci_bus": "10000:05:00.0"})[0] == set()
    assert judged({"nvml_pci_bus": "00010000:05:00.0", "cuda_pci_bus": "0000:05:00.0"})[0] == {"bus_differs"}


def test_a_doubtful_id_of_the_table_is_a_hint_and_no_failure() -> None:
    """A100-PCIE-40GB is listed with 20f1; 20b1 has been reported and not confirmed."""
    reference = TABLE["a100-pcie-40gb"]
    name = "NVIDIA A100-PCIE-40GB"
    sold = Expected(reference.model, 1, frozenset({name}), (40960,), 2)
    claimed = gpu(
        nvml_name=name, cuda_name=name, proc_model=name, nvml_memory=40960 * MIB, cuda_memory=40500 * MIB,
        cuda_free=40000 * MIB, nvml_pci_device="10de:20b1", sysfs_pci_device="10de:20b1", cuda_capability="8.0",
        cuda_sms=108, cuda_memory_khz=1_215_000,
    )  # fmt: skip
    of = judge_identity(identity(claimed), sold, reference, Occasion.START)
    assert of.findings == ()
    assert [one.code for one in of.hints] == ["pci_doubtful"]


def test_little_free_memory_fails_only_where_all_of_it_should_be_free() -> None:
    little = {"cuda_free": 10 << 30}
    for occasion in (Occasion.START, Occasion.END):
        assert judged(little, occasion=occasion)[0] == {"memory_short"}
    assert judged({"cuda_free": 10 << 30, "nvml_memory": None})[0] == {"memory_short"}


@pytest.mark.parametrize("occasion", [Occasion.IDLE, Occasion.RECHECK])
def test_a_machine_that_is_held_may_use_its_memory_and_shows_nothing_then(occasion: Occasion) -> None:
    def found_codes(share: float, *others: dict[str, Any]) -> set[str]:
        return judged({"cuda_free": int(share * 81559 * MIB)}, *others, occasion=occasion)[0]

    assert [found_codes(share) for share in (0.0, 0.5, 0.89, 0.91)] == [{"memory_in_use"}] * 3 + [set()]
    assert found_codes(0.5, {"cuda_capability": "8.0"}) == {"capability"}, "it excuses nothing"


def test_memory_is_short_by_what_was_sold_and_not_by_what_the_machine_says_it_has() -> None:
    two = replace(expected(), memory_mib=(81559, 80000))

    def found_codes(nvml: float | None, free: float) -> set[str]:
        one = gpu(
            nvml_memory=None if nvml is None else int(nvml * MIB), cuda_memory=1, cuda_free=int(free * MIB)
        )
        return {f.code for f in judge_identity(identity(one), two, TABLE[MODEL], Occasion.START).findings}

    assert found_codes(0.985 * 80000, 0.951 * 80000) == found_codes(80000, 0.951 * 80000) == set()
    assert found_codes(0.985 * 80000, 0.951 * 0.985 * 80000) == {"memory_short"}
    assert found_codes(81559, 0.951 * 80000) == {"memory_short"}
    assert found_codes(None, 0.951 * 80000) == {"memory_short"}, "silence chooses no smaller card"


def test_memory_that_does_not_fit_its_ecc_is_a_hint() -> None:
    reference = TABLE["a6000-48gb"]
    one = gpu(nvml_memory=49140 * MIB, cuda_ecc=True, nvml_ecc=True)
    hints = judgement._ecc(one, reference)
    assert [hint.code for hint in hints] == ["ecc_differs"]
    assert not list(judgement._ecc(replace(one, cuda_ecc=False, nvml_ecc=False), reference))


def test_of_an_emulation_only_count_and_distinctness_are_judged() -> None:
    assert judged({"cuda_capability": "1.0", "cuda_free": 0}, source="emulated") == (set(), set())
    assert judged({}, count=2, source="emulated")[0] == {"gpu_count"}


# Time.


def test_a_measured_reference_accepts_from_seven_tenths_to_a_fifth_more() -> None:
    one = band(1200.0, Pace(1000.0, Basis.MEASURED, ""), peak=None, margin=1.0)
    assert [one.least, one.most, one.reference] == pytest.approx([0.84, 1.54, 1.2])
    assert [one.code(seconds) for seconds in (0.83, 0.85, 1.53, 1.55)] == ["too_fast", None, None, "too_slow"]


def test_an_estimate_is_bounded_by_physics_below_and_widely_above() -> None:
    one = band(1200.0, Pace(700.0, Basis.ESTIMATED, ""), peak=1000.0, margin=1.1)
    assert one.least == pytest.approx(1200 / 1100)
    assert one.most == pytest.approx(2 * 1200 / 700 + 0.1)
    guessed = band(1200.0, Pace(700.0, Basis.GUESSED, ""), peak=1000.0, margin=1.1)
    assert guessed.most == pytest.approx(10 * 1200 / 700 + 0.1)


def test_nothing_is_faster_than_the_data_sheet_whatever_was_learnt() -> None:
    """A reference that liars made slow still has physics as its floor."""
    one = band(1000.0, Pace(500.0, Basis.LEARNT, ""), peak=600.0, margin=1.1)
    assert one.least == pytest.approx(1000 / 660)


def test_the_best_try_counts() -> None:
    bands = [Band(0.8, 1.5, 1.2)]
    assert time_findings("walk", [[2.0], [1.6], [1.4]], bands) == []
    (late,) = time_findings("walk", [[2.0], [1.6]], bands)
    (early,) = time_findings("walk", [[0.2], [1.6]], bands)
    assert (late.code, early.code) == ("too_slow", "too_fast")
    assert "1.600 s at best" in late.why


def test_a_try_counts_only_if_every_gpu_was_in_time_in_it() -> None:
    bands = [Band(0.8, 1.5, 1.2)] * 3
    assert time_findings("walk", [[1.6, 1.2, 1.2], [1.4, 1.2, 1.3]], bands) == []
    rotating = [[1.2, 2.4, 3.6], [3.6, 1.2, 2.4], [1.4, 1.4, 1.6]]
    found = time_findings("walk", rotating, bands)
    assert [(one.code, one.gpu) for one in found] == [("too_slow", 2)]
    assert "of all GPUs at once" in found[0].why


def test_a_phase_that_was_in_time_when_it_was_planned_is_no_retry() -> None:
    bands = [Band(0.8, 1.5, 1.2)] * 2
    one_late = [[1.2, 1.6], [1.2, 1.2]]
    hints = list(judgement.retry_hints("walk", one_late, 1, bands))
    assert [(hint.code, hint.gpu) for hint in hints] == [("retried", 1)]
    assert "1 times" in hints[0].why
    assert list(judgement.retry_hints("walk", one_late, 2, bands)) == []


def test_launches_over_a_network_do_not_fit_the_bound() -> None:
    bound = launch_band(0.25, 1)
    assert bound.code(2000 * 20e-6 + 0.1) is None
    assert bound.code(2000 * 200e-6) == "too_slow"


# Hints and outcomes.


def test_power_caps_are_normal_and_heat_is_a_hint() -> None:
    of = {
        bits: judgement.throttle_hint(Committed(0, "walk", bytes(32), 1, bits))
        for bits in (None, 0x4, 0x8, 0x20)
    }
    assert [hint is not None for hint in of.values()] == [False, False, True, True]


def test_gaps_on_few_multiprocessors_are_no_time_slices() -> None:
    def codes(sliced: int, seen: int = 132, longest_us: int = 2000) -> list[str]:
        sms = tuple(SmGaps(sm, 100, int(sm < sliced), longest_us if sm < sliced else 0) for sm in range(seen))
        return [hint.code for hint in judgement.gap_hints(GapsAnswer(0, sms), gpu())]

    assert codes(sliced=132) == ["time_sliced"]
    assert codes(sliced=66) == []
    assert codes(sliced=132, longest_us=300) == []
    assert codes(sliced=0, seen=16) == ["sms_unseen"]
    assert codes(sliced=0, seen=0) == ["sms_unseen"]


def test_a_failure_outweighs_a_silence_and_hints_outweigh_nothing() -> None:
    def of(*codes: str, source: str = "cuda") -> Outcome:
        return outcome([Finding(code, None, "") for code in codes], source)

    assert of() is Outcome.PASSED
    assert of(source="emulated") is Outcome.EMULATED
    assert of("line_broken") is Outcome.UNANSWERED
    assert of("line_broken", source="emulated") is Outcome.UNANSWERED
    assert of("line_broken", "wrong_digest") is Outcome.FAILED
    assert of("too_slow") is Outcome.FAILED
    assert of("a_code_that_nobody_listed") is Outcome.FAILED


def test_every_code_has_one_meaning_and_one_sentence() -> None:
    assert len(CODES) == len(FAILURES) + len(SILENCES) + len(HINTS)
    assert {judgement.FAULTS[fault] for fault in Fault} <= FAILURES.keys()
    assert all(sentence.endswith(".") and sentence.count(". ") == 0 for sentence in CODES.values())
    assert NAME in expected().names


def test_a_launch_chain_is_allowed_a_quarter_more_for_each_further_gpu() -> None:
    assert [launch_band(0.25, gpus).most for gpus in (1, 2, 8)] == pytest.approx([0.35, 0.4125, 0.7875])


def test_load_excuses_late_answers_and_silence_and_nothing_else() -> None:
    assert BY_LOAD & {*FAILURES} == {"too_slow"}
    assert BY_LOAD - {*FAILURES} == {*SILENCES}
