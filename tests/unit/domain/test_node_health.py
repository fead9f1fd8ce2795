"""When a node may take pods, and when one that is not ready is given up."""

from datetime import timedelta

from control_plane.domain.node_health import UNREADY_GRACE, UNREADY_MAX, lost, problem
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


def test_losing_contact_alone_does_not_end_a_node() -> None:
    assert lost(START, None, START + UNREADY_MAX - SECOND) is None


def test_a_node_that_its_provider_does_not_list_is_lost_after_the_grace() -> None:
    assert lost(START, START, START + UNREADY_GRACE - SECOND) is None
    assert lost(START, START, START + UNREADY_GRACE) is not None


def test_a_node_that_stays_unready_is_lost_in_the_end() -> None:
    found = lost(START, None, START + UNREADY_MAX)
    assert found is not None
    assert "60 min" in found.why
