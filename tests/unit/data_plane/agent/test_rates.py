"""Rates of a card's links, from counters that are read now and then."""

from dataclasses import replace

from data_plane.agent.rates import Rates
from data_plane.documents.health import GpuHealth, Health, NvLinkHealth, PcieHealth, Reading

NOTHING = Health("nvml", 0, (), (), 0, False, "kmsg", ())


def document(at: int, sent: "int | None", received: "int | None" = 0, *, lost: bool = False) -> Health:
    """Read at that second: `sent` KiB over NVLink, and as many bytes over PCIe."""
    card = GpuHealth(
        0,
        "GPU-a",
        None,
        lost=lost,
        nvlink=NvLinkHealth(sent_kib=sent, received_kib=received),
        pcie=PcieHealth(sent_bytes=sent, received_bytes=received),
    )
    readings = (Reading("nvlink", at, 0, 0, 0), Reading("pcie", at, 0, 0, 0))
    return replace(NOTHING, gpus=(card,), readings=readings)


def nvlink(rates: Rates, health: Health) -> "int | None":
    return rates.of(health)["GPU-a"]["nvlink_kib_per_second"]


def test_a_rate_is_what_was_added_between_two_readings_and_stands_until_the_next() -> None:
    rates = Rates()
    assert nvlink(rates, document(100, 1_000)) is None
    assert nvlink(rates, document(160, 7_000, 60)) == 101, "both ways"
    assert nvlink(rates, document(160, 7_000, 60)) == 101, "it was not read anew"
    assert rates.of(document(190, 10_000, 60))["GPU-a"] == {
        "nvlink_kib_per_second": 100,
        "pcie_sent_bytes_per_second": 100,
        "pcie_received_bytes_per_second": 0,
    }


def test_a_counter_that_began_anew_or_went_away_gives_no_rate() -> None:
    rates = Rates()
    nvlink(rates, document(100, 1_000))
    assert nvlink(rates, document(160, 10)) is None
    assert nvlink(rates, document(220, 70)) == 1
    assert nvlink(rates, document(280, None)) is None
    assert nvlink(rates, document(340, 190)) is None, "it is not known since when it counts"
    assert nvlink(rates, document(400, 250)) == 1


def test_a_lost_card_has_no_rates() -> None:
    rates = Rates()
    assert rates.of(document(100, 1, lost=True)) == {}
