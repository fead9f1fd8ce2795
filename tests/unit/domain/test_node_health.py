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


def test_an_open_node_is_unready_by_its_kubelet_alone_and_never_by_the_pressure_of_its_pods() -> None:
    pressed = {"Ready": "True", "DiskPressure": "True", "MemoryPressure": "True", "PIDPressure": "True"}
    assert unready(pressed, since=START, silent_since=START, now=START) is None


def test_silence_is_counted_from_its_own_beginning_and_ends_when_the_kubelet_says_anything() -> None:
    said = unready({"Ready": "False"}, since=None, silent_since=None, now=START)
    assert said is not None
    assert (said.since, said.silent_since) == (START, None)
    for conditions in ({"Ready": "Unknown"}, {}, None):
        silent = unready(conditions, since=said.since, silent_since=None, now=START + SECOND)
        assert silent is not None, conditions
        assert (silent.since, silent.silent_since) == (START, START + SECOND), conditions
        later = unready(
            conditions, since=silent.since, silent_since=silent.silent_since, now=START + 2 * SECOND
        )
        assert later is not None, conditions
        assert (later.since, later.silent_since) == (START, START + SECOND), conditions
    back = unready({"Ready": "False"}, since=START, silent_since=START, now=START + SECOND)
    assert back is not None
    assert back.silent_since is None
