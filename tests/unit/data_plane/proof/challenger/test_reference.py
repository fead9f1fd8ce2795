"""The reference table, and which of several references is used."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.gpu import APPEARANCES, GpuModel
from data_plane.proof.challenger import measurements
from data_plane.proof.challenger.judgement import PEAK_MARGIN
from data_plane.proof.challenger.reference import (
    EVERY_DRIVER,
    OTHER_PCI_DEVICES,
    TABLE,
    Basis,
    Observed,
    Pace,
    References,
    TimedPhase,
    driver_major,
)

MODEL = "h100-sxm-80gb"


def seen(basis: Basis, driver: int, rate: float, phase: TimedPhase = "walk") -> Observed:
    return Observed(MODEL, driver, {phase: Pace(rate, basis, f"of {driver}")})


def walk(references: References, driver: str) -> Pace:
    return references.times(MODEL, driver).walk


def test_every_model_on_sale_has_a_reference() -> None:
    assert set(TABLE) == {model.value for model in GpuModel}


def test_no_two_models_have_the_same_pci_id() -> None:
    ids = [device for one in TABLE.values() for device in one.pci_devices]
    assert len(ids) == len(set(ids))
    for one in TABLE.values():
        assert not one.pci_devices_doubtful & set(OTHER_PCI_DEVICES), "a card would be refused for a doubt"


def test_memory_with_and_without_ecc_is_memory_that_the_catalogue_accepts() -> None:
    for one in TABLE.values():
        for mib in one.memory_by_ecc.values():
            assert mib in APPEARANCES[GpuModel(one.model)].memory_mib


def test_bus_width_and_bandwidth_of_a_card_belong_together() -> None:
    """Memory that moves less than 1 or more than 30 Gbit/s on each wire does not exist: a slip of the pen."""
    for one in TABLE.values():
        assert 2e9 < one.bandwidth * 8 / one.bus_bits < 30e9, one.model


def test_an_estimate_is_never_faster_than_the_data_sheet() -> None:
    phases: tuple[TimedPhase, ...] = ("walk", "int8", "bf16")
    for one in TABLE.values():
        for phase in phases:
            assert one.estimate().of(phase).rate < (one.peak(phase) or 0) * PEAK_MARGIN[phase]


def test_where_nothing_is_published_the_tiles_are_guessed_and_the_reference_says_so() -> None:
    times = TABLE["b200-sxm-180gb"].estimate()
    assert (times.walk.basis, times.int8.basis) == (Basis.ESTIMATED, Basis.GUESSED)
    assert "guessed (a quarter" in times.describe()


def test_what_we_measured_counts_before_what_was_learnt_and_the_nearest_driver_of_it() -> None:
    references = References(
        (seen(Basis.MEASURED, 550, 1.0), seen(Basis.LEARNT, 570, 2.0), seen(Basis.MEASURED, 580, 3.0))
    )
    assert walk(references, "570.124.06").rate == 3.0
    assert walk(references, "550.1").rate == 1.0
    assert walk(references, "111.0").basis is Basis.MEASURED
    assert walk(References((seen(Basis.LEARNT, EVERY_DRIVER, 2.0),)), "570.1").basis is Basis.LEARNT


def test_of_two_measurements_that_are_as_near_the_faster_counts() -> None:
    references = References((seen(Basis.MEASURED, 560, 1.0), seen(Basis.MEASURED, 580, 3.0)))
    assert walk(references, "570.1").rate == 3.0


@given(
    st.dictionaries(st.integers(1, 999_999), st.floats(1.0, 9.0), max_size=6),
    st.one_of(st.sampled_from(["999.0", "1", "no-number", ""]), st.integers(0, 999_999).map(str)),
)
def test_a_lie_about_the_driver_buys_no_time(branches: dict[int, float], driver: str) -> None:
    """What was learnt of all drivers holds for whatever a machine says, and never the estimate's wide band."""
    learnt = [seen(Basis.LEARNT, major, rate) for major, rate in branches.items()]
    references = References([*learnt, seen(Basis.LEARNT, EVERY_DRIVER, 1.0)])
    assert walk(references, driver).rate == branches.get(driver_major(driver), 1.0)


def test_what_was_learnt_of_another_branch_says_nothing() -> None:
    references = References((seen(Basis.LEARNT, 570, 2.0),))
    assert walk(references, "571.0").basis is Basis.ESTIMATED


def test_phases_that_nobody_has_seen_stay_estimates() -> None:
    times = References((seen(Basis.MEASURED, 570, 3.0),)).times(MODEL, "570")
    assert (times.walk.basis, times.int8.basis) == (Basis.MEASURED, Basis.ESTIMATED)
    assert times.describe() == "measured (of 570); estimated (50% of data-sheet peak)"


def test_what_was_seen_of_one_model_says_nothing_of_another() -> None:
    references = References((seen(Basis.MEASURED, 570, 3.0),))
    assert references.times("l4-24gb", "570").walk.basis is Basis.ESTIMATED


def test_a_driver_is_read_without_trust() -> None:
    assert driver_major("570.124.06") == 570
    assert [driver_major(text) for text in ("", "x570", "570x", "9" * 80)] == [0, 0, 0, 0]


REPORT = {
    "source": "cuda",
    "model": MODEL,
    "date": "2026-12-03",
    "driver": "570.124.06",
    "rates": {"walk": 2.1e12, "int8": 4.9e14},
    "seen": "something for people",
}


def test_a_report_of_a_device_becomes_a_measured_reference() -> None:
    one = measurements.parse(json.dumps(REPORT))
    assert (one.model, one.driver_major, set(one.paces)) == (MODEL, 570, {"walk", "int8"})
    pace = References((one,)).times(MODEL, "570.86").walk
    assert (pace.rate, pace.basis, pace.note) == (2.1e12, Basis.MEASURED, "2026-12-03, driver 570.124.06")


@pytest.mark.parametrize("rates", [{"wlak": 1.0}, {"walk": 0}, {"walk": -1.0}, {"walk": float("inf")}])
def test_a_report_with_a_slip_in_it_is_not_shipped(rates: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"not a timed phase|positive"):
        measurements.parse(json.dumps({**REPORT, "rates": rates}))


def test_a_report_of_a_run_that_failed_is_no_reference() -> None:
    with pytest.raises(ValueError, match="the run failed: cuda_error: the GPU met a memory error"):
        measurements.parse(json.dumps({**REPORT, "failed": "cuda_error: the GPU met a memory error"}))


def test_every_report_that_ships_is_read_and_within_what_physics_allows() -> None:
    shipped = measurements.load()
    assert len(shipped) == len(list(Path("data_plane/proof/challenger/measured").glob("*.json")))
    for one in shipped:
        for phase, pace in one.paces.items():
            peak = TABLE[one.model].peak(phase)
            assert peak is None or pace.rate < peak * PEAK_MARGIN[phase]
