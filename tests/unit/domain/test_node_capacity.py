from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.node_capacity import (
    DEVICES_NAMED_MAX,
    GPU,
    Capacity,
    Finding,
    disk_shortfall,
    judge_capacity,
)

GIB = 2**30
SOLD = Capacity(cpu_millis=96_000, memory_bytes=1_000 * GIB, devices={GPU: 8})
CAPACITIES = st.builds(
    Capacity,
    cpu_millis=st.integers(0, 200_000),
    memory_bytes=st.integers(0, 2_000 * GIB),
    devices=st.dictionaries(st.sampled_from([GPU, "amd.com/gpu"]), st.integers(0, 16)),
)


def test_a_node_that_claims_more_than_was_sold_is_quarantined_and_one_that_has_less_is_short() -> None:
    cases = {
        "as sold": (SOLD, Finding.FITS),
        "what the kernel keeps": (replace(SOLD, memory_bytes=900 * GIB), Finding.FITS),
        "GB for GiB": (replace(SOLD, memory_bytes=1_049 * GIB), Finding.FITS),
        "64 GPUs for 8": (replace(SOLD, devices={GPU: 64}), Finding.EXCESS),
        "one GPU more": (replace(SOLD, devices={GPU: 9}), Finding.EXCESS),
        "a device that nobody sold": (replace(SOLD, devices={GPU: 8, "amd.com/gpu": 1}), Finding.EXCESS),
        "a device that nobody sold, none of it": (replace(SOLD, devices={GPU: 8, "x/y": 0}), Finding.FITS),
        "one core more": (replace(SOLD, cpu_millis=97_000), Finding.EXCESS),
        "twice the memory": (replace(SOLD, memory_bytes=2_000 * GIB), Finding.EXCESS),
        "room for one pod more": (replace(SOLD, pods=111), Finding.EXCESS),
        "room for fewer pods": (replace(SOLD, pods=60), Finding.FITS),
        "a GPU less": (replace(SOLD, devices={GPU: 7}), Finding.SHORT),
        "no GPU": (replace(SOLD, devices={}), Finding.SHORT),
        "half the memory": (replace(SOLD, memory_bytes=500 * GIB), Finding.SHORT),
        "a core less": (replace(SOLD, cpu_millis=95_000), Finding.SHORT),
        "less of one and more of another": (replace(SOLD, cpu_millis=1, devices={GPU: 9}), Finding.EXCESS),
    }
    for case, (claimed, finding) in cases.items():
        verdict = judge_capacity(SOLD, claimed)
        assert verdict.finding is finding, case
        assert bool(verdict.reasons) == (finding is not Finding.FITS), case


def test_the_reasons_name_what_is_claimed_and_what_was_sold() -> None:
    assert judge_capacity(SOLD, replace(SOLD, cpu_millis=95_000, devices={GPU: 64})).reasons == (
        "claims 64 nvidia.com/gpu, 8 were sold",
        "has 95000m of CPU, 96000m were sold",
    )


def test_a_node_that_claims_thousands_of_devices_gets_a_short_reason() -> None:
    many = {f"example.com/{number:0200}": 1 for number in range(5_000)}
    reasons = judge_capacity(SOLD, replace(SOLD, devices={GPU: 8, **many})).reasons
    assert len(reasons) == DEVICES_NAMED_MAX + 1
    assert reasons[-1] == "claims 4992 more devices that were not sold"


@given(sold=CAPACITIES, claimed=CAPACITIES)
def test_no_claim_of_a_device_beyond_what_was_sold_ever_fits(sold: Capacity, claimed: Capacity) -> None:
    verdict = judge_capacity(sold, claimed)
    beyond = any(count > sold.devices.get(name, 0) for name, count in claimed.devices.items())
    assert not beyond or verdict.finding is Finding.EXCESS
    assert judge_capacity(sold, sold).finding is Finding.FITS


def test_a_disk_that_is_smaller_than_what_was_sold_is_named_and_a_larger_one_is_no_lie() -> None:
    for claimed_gib in (0, 850, 931, 1_000, 4_000):
        assert disk_shortfall(1_000, claimed_gib * GIB) is None, claimed_gib
    assert disk_shortfall(1_000, 849 * GIB) == "its pods have 849 GiB of disk, of 1,000 that were sold"
