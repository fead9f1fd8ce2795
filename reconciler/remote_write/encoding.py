"""Samples of machines as the body of a request of remote write 1.0: protobuf, compressed with snappy."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import pyarrow as pa

from control_plane.db.samples import NamedSample
from control_plane.domain.exposition import Labels, Named, Point, points
from control_plane.domain.ids import Prefix, on_wire
from reconciler.remote_write.remote_write_pb2 import Label, Sample, TimeSeries, WriteRequest

HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
    "User-Agent": "splitplane",
}
SERIES_KEPT_MAX = 200_000
"""Series whose names are kept encoded."""
_SNAPPY = pa.Codec("snappy")


class Encoder:
    """Encodes the names of a series once, because a series has ten times as many bytes of names as of values."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, Labels], bytes] = OrderedDict()

    def encode(self, samples: Sequence[NamedSample]) -> bytes:
        """The body for samples of any machines. Values of a series are in the order of their times, as is demanded."""
        series: dict[bytes, bytes] = {}
        for sample in sorted(samples, key=lambda sample: sample.at):
            timestamp = round(sample.at.timestamp() * 1000)
            for point in _points(sample):
                name = self._name(point)
                value = TimeSeries(samples=[Sample(value=point.value, timestamp=timestamp)])
                series[name] = series.get(name, b"") + value.SerializeToString()
        request = WriteRequest(timeseries=[name + values for name, values in series.items()])
        return bytes(_SNAPPY.compress(request.SerializeToString()))

    def _name(self, point: Point) -> bytes:
        key = (point.family.name, point.labels)
        known = self._known.get(key)
        if known is None:
            labels = sorted([("__name__", point.family.name), *point.labels])
            named = TimeSeries(labels=[Label(name=name, value=value) for name, value in labels if value])
            known = self._known[key] = named.SerializeToString()
            if len(self._known) > SERIES_KEPT_MAX:
                self._known.popitem(last=False)
        return known


def _points(sample: NamedSample) -> Iterable[Point]:
    named = Named(
        lease=sample.lease,
        lease_id=on_wire(Prefix.LEASE, sample.lease_id),
        project=sample.project,
        organization_id=on_wire(Prefix.ORGANIZATION, sample.organization_id),
        machine_id=on_wire(Prefix.MACHINE, sample.machine_id),
        region=sample.region,
        gpu_model=sample.gpu_model or "",
    )
    return points(sample.reading(), named, at=sample.at, verdict=sample.verdict)
