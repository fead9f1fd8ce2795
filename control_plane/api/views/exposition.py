"""Samples in Prometheus' text format."""

from collections.abc import Iterator

from control_plane.domain.exposition import FAMILIES, Family, Named, Point, exposed, points, silent_point
from control_plane.domain.ids import Prefix, on_wire
from control_plane.services.telemetry import NamedSample, Scraped

EXPOSITION = "text/plain; version=0.0.4"
_MACHINES = Family("splitplane_machines_shown", "gauge", "Machines that are shown here.")
_LEFT_OUT = Family(
    "splitplane_machines_left_out", "gauge", "1 when there are more machines than one answer has."
)


def exposition(scraped: Scraped) -> str:
    return exposed(_points(scraped), (*FAMILIES, _MACHINES, _LEFT_OUT))


def _points(scraped: Scraped) -> Iterator[Point]:
    for sample in scraped.samples:
        if sample.at > scraped.fresh_from:
            yield from points(sample.reading(), _named(sample), at=sample.at, verdict=sample.verdict)
        else:
            yield silent_point(_named(sample), at=sample.at)
    yield Point(_MACHINES, (), float(len(scraped.samples)))
    yield Point(_LEFT_OUT, (), float(scraped.left_out))


def _named(sample: NamedSample) -> Named:
    return Named(
        lease=sample.lease,
        lease_id=on_wire(Prefix.LEASE, sample.lease_id),
        project=sample.project,
        organization_id=on_wire(Prefix.ORGANIZATION, sample.organization_id),
        machine_id=on_wire(Prefix.MACHINE, sample.machine_id),
        region=sample.region,
        gpu_model=sample.gpu_model or "",
    )
