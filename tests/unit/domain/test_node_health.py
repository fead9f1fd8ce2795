"""When a node may take pods, and what one that is open says of itself."""

from datetime import timedelta

from control_plane.domain.node_health import gpu_problem, problem, unready
from tests.support.clock import START

SECOND = timedelta(seconds=1)


def test_a_node_takes_pods_only_while_its_kubelet_is_ready_and_reports_no_pressure() -> None:
    assert problem({"Ready": "True", "DiskPressure": "False"}) is None
    for conditions, word in (
        ({}, "did not say"),
        ({"Ready": "Unknown"}, "Unknown"),
        ({"Ready": "False"}, "False"),
        ({"Ready": "True", "DiskPressure": "True"}, "DiskPressure"),
        ({"Ready": "True", "NetworkUnavailable": "True"}, "NetworkUnavailable"),
    ):
        found = problem(conditions)
        assert found is not None, conditions
        assert word in found


def test_pods_have_to_be_able_to_get_all_gpus_and_a_node_without_any_lacks_none() -> None:
    assert gpu_problem(allocatable=8, sold=8) is None
    assert gpu_problem(allocatable=0, sold=0) is None
    assert gpu_problem(allocatable=7, sold=8) == "its device plugin reports 7 of 8 GPUs"
    assert gpu_problem(allocatable=0, sold=1) == "its device plugin reports 0 of 1 GPU"


def test_an_open_node_is_unready_by_its_kubelet_or_its_gpus_and_never_by_the_pressure_of_its_pods() -> None:
    pressed = {"Ready": "True", "DiskPressure": "True", "MemoryPressure": "True", "PIDPressure": "True"}
    assert unready(pressed, gpu_problem=None, since=START, now=START) is None
    lacks = unready(pressed, gpu_problem="its device plugin reports 0 of 8 GPUs", since=None, now=START)
    assert lacks is not None
    assert (lacks.since, lacks.only_gpus) == (START, True)


def test_what_a_kubelet_says_and_its_silence_count_alike_from_the_first_look() -> None:
    for conditions in ({"Ready": "False"}, {"Ready": "Unknown"}, {}, None):
        first = unready(conditions, gpu_problem="none either", since=None, now=START)
        assert first is not None, conditions
        assert (first.since, first.only_gpus) == (START, False), conditions
        later = unready(conditions, gpu_problem=None, since=first.since, now=START + SECOND)
        assert later is not None, conditions
        assert later.since == START, conditions
