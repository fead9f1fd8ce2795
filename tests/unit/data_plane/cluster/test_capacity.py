import pytest

from data_plane.cluster.capacity import claimed_capacity


def _node(capacity: dict[str, str], allocatable: dict[str, str] | None = None) -> dict[str, object]:
    return {"status": {"capacity": capacity, "allocatable": allocatable or {}}}


def test_quantities_of_a_node_become_numbers() -> None:
    node = _node(
        {"cpu": "7910m", "memory": "65806220Ki", "pods": "110", "nvidia.com/gpu": "8", "hugepages-2Mi": "0"}
    )
    claimed = claimed_capacity(node)
    assert (claimed.cpu_millis, claimed.memory_bytes) == (7_910, 65_806_220 * 1_024)
    assert claimed.devices == {"nvidia.com/gpu": 8}
    assert claimed.pods == 110


def test_huge_pages_are_a_part_of_the_memory_and_no_more_beside_it() -> None:
    gib = 2**30
    as_kubelets_say = _node(
        {"memory": "64Gi", "hugepages-2Mi": "16Gi"}, {"memory": "48Gi", "hugepages-2Mi": "16Gi"}
    )
    assert claimed_capacity(as_kubelets_say).memory_bytes == 64 * gib
    for hugepages in ({"hugepages-1Gi": "64Gi"}, {"hugepages-2Mi": "32Gi", "hugepages-1Gi": "32Gi"}):
        assert claimed_capacity(_node({"memory": "64Gi", **hugepages})).memory_bytes == 128 * gib
        twice = _node({"memory": "64Gi"}, {"memory": "64Gi", **hugepages})
        assert claimed_capacity(twice).memory_bytes == 128 * gib


def test_the_greater_of_capacity_and_allocatable_is_what_a_node_claims() -> None:
    claimed = claimed_capacity(
        _node({"cpu": "8", "nvidia.com/gpu": "8"}, {"cpu": "16", "nvidia.com/gpu": "64"})
    )
    assert claimed.cpu_millis == 16_000
    assert claimed_capacity(_node({"pods": "110"}, {"pods": "9000"})).pods == 9_000
    assert claimed.devices == {"nvidia.com/gpu": 64}


def test_a_fraction_of_a_device_counts_as_a_whole_one() -> None:
    assert claimed_capacity(_node({"nvidia.com/gpu": "8100m"})).devices == {"nvidia.com/gpu": 9}


def test_a_node_that_reports_nothing_has_nothing_and_nonsense_is_refused() -> None:
    empty = claimed_capacity({})
    assert (empty.cpu_millis, empty.memory_bytes, empty.devices) == (0, 0, {})
    for text in ("many", "8Qi", "", "1e999999999"):
        with pytest.raises(ValueError, match=r"nvalid|quantity"):
            claimed_capacity(_node({"cpu": text}))
