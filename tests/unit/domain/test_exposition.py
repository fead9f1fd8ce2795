"""Samples as Prometheus knows them: each series once."""

from datetime import UTC, datetime

from control_plane.domain.exposition import Named, exposed, points
from control_plane.domain.reading import Reading, ServerReading

NAMED = Named("train-1", "le_1", "default", "org_1", "mc_1", "eu", "h100-sxm-80gb")


def test_servers_in_pods_at_the_same_port_are_series_of_their_own() -> None:
    servers = tuple(
        ServerReading(8000, "vllm", running=running, pod_ip=pod_ip)
        for running, pod_ip in ((1, None), (2, "10.42.3.7"), (3, "10.42.3.9"))
    )
    text = exposed(
        points(Reading(servers=servers), NAMED, at=datetime(2026, 11, 29, tzinfo=UTC), verdict=None)
    )
    found = {
        tuple(line.split('pod_ip="')[1:]): line.rpartition(" ")[2]
        for line in text.splitlines()
        if line.startswith("vllm:num_requests_running{")
    }
    assert sorted(float(value) for value in found.values()) == [1, 2, 3]
    assert sorted(key[0].split('"')[0] if key else "" for key in found) == ["", "10.42.3.7", "10.42.3.9"]
