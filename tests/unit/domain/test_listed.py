"""An odd offer is left out with a note, and keeps no other one out."""

from dataclasses import replace

from control_plane.domain.listed import GPU_COUNT_MAX, SIZE_MAX, oddity, usable
from control_plane.domain.money import NANO_MAX, Nano
from control_plane.domain.placement import Offer
from tests.support.values import an_offer

GOOD = an_offer()


def sized(**other: int) -> Offer:
    return replace(GOOD, shape=replace(GOOD.shape, **other))  # type: ignore[arg-type] # They are all numbers.


ODD = {
    "a model of no GPUs": sized(gpu_count=0),
    "GPUs of no model": replace(GOOD, shape=replace(GOOD.shape, gpu_model=None)),
    "too many GPUs": sized(gpu_count=GPU_COUNT_MAX + 1),
    "memory below zero": sized(memory_gib=-1),
    "more vCPUs than a column holds": sized(vcpus=SIZE_MAX + 1),
    "a huge disk": sized(disk_gib=2**200),
    "a price below zero": replace(GOOD, cost_nano_per_hour=Nano(-1)),
    "a price beyond 64 bits": replace(GOOD, cost_nano_per_hour=Nano(NANO_MAX + 1)),
    "a type with a NUL": replace(GOOD, native_type="gpu\0"),
    "a type without a name": replace(GOOD, native_type=""),
    "a long region": replace(GOOD, native_region="x" * 201),
    "a region that moves the cursor": replace(GOOD, native_region="\x1b[2J"),
    "a region without a jurisdiction": replace(GOOD, region="MARS"),
}


def test_every_odd_offer_is_left_out_with_a_note_and_the_good_ones_are_used() -> None:
    for name, odd in ODD.items():
        assert oddity(odd) is not None, name
        used, notes = usable([replace(odd, key="odd"), GOOD])
        assert used == [GOOD], name
        (note,) = notes
        assert note.startswith("the offer 'odd' is left out: "), name
        assert note.isprintable(), name


def test_of_two_offers_with_the_same_key_the_first_is_used() -> None:
    dearer = replace(GOOD, cost_nano_per_hour=Nano(GOOD.cost_nano_per_hour + 1))
    used, (note,) = usable([GOOD, dearer])
    assert used == [GOOD]
    assert "listed twice" in note


def test_the_largest_offer_and_one_without_gpus_are_not_odd() -> None:
    assert oddity(replace(GOOD, shape=replace(GOOD.shape, gpu_model=None, gpu_count=0))) is None
    assert (
        oddity(sized(gpu_count=GPU_COUNT_MAX, vcpus=SIZE_MAX, memory_gib=SIZE_MAX, disk_gib=SIZE_MAX)) is None
    )
    assert oddity(replace(GOOD, cost_nano_per_hour=Nano(NANO_MAX))) is None
