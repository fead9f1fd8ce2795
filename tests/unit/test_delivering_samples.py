"""What a store calls wrong is found among the samples of many machines, and costs no other one its history."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pyarrow as pa
import pytest

from control_plane.db.samples import NamedSample
from control_plane.domain.ids import ClaimId, LeaseId, MachineId, OrganizationId, ProjectId
from data_plane.documents.sample import encode_sample
from reconciler.remote_write.delivering import REQUESTS_MAX, Delivered, StoreBusyError, deliver
from reconciler.remote_write.encoding import Encoder
from reconciler.remote_write.remote_write_pb2 import TimeSeries, WriteRequest
from tests.support.samples import busy_sample

AT = datetime(2026, 11, 28, 12, tzinfo=UTC)


def a_sample(claim: int, sequence: int = 1) -> NamedSample:
    return NamedSample(
        organization_id=OrganizationId(UUID(int=1)),
        project_id=ProjectId(UUID(int=2)),
        claim_id=ClaimId(UUID(int=claim)),
        lease_id=LeaseId(UUID(int=claim)),
        machine_id=MachineId(UUID(int=claim)),
        sequence=sequence,
        at=AT + timedelta(seconds=15 * sequence),
        received_at=AT,
        skew_ms=0,
        notable=False,
        document=json.loads(encode_sample(busy_sample(1, gpus=1))),
        gpu_model="H100",
        provider="fake",
        region="eu",
        lease=f"train-{claim}",
        project="default",
        verdict=None,
    )


class Store:
    """Takes all samples of a request, or none because of one that it calls wrong."""

    def __init__(self, *wrong: int, status: int = 400, fails_at: int | None = None) -> None:
        self.wrong = {ClaimId(UUID(int=claim)) for claim in wrong}
        self.status, self.fails_at = status, fails_at
        self.requests = 0
        self.has: set[tuple[ClaimId, int]] = set()

    async def __call__(self, some: Sequence[NamedSample]) -> int:
        self.requests += 1
        if self.requests == self.fails_at:
            return 503
        if any(sample.claim_id in self.wrong for sample in some):
            return self.status
        self.has |= {(sample.claim_id, sample.sequence) for sample in some}
        return 204


FLEET = [a_sample(claim, sequence) for sequence in (1, 2) for claim in range(100)]


async def test_a_machine_that_lies_about_its_times_costs_no_other_one_its_history() -> None:
    for wrong in ((), (0,), (99,), (17, 18, 60)):
        store = Store(*wrong)
        delivered = await deliver(FLEET, store)
        assert (delivered.refused, delivered.status) == (2 * len(wrong), 400 if wrong else 204)
        assert len(store.has) == 2 * (100 - len(wrong))
        assert store.requests <= 1 + 16 * len(wrong)


async def test_a_store_that_calls_everything_wrong_is_asked_a_bounded_number_of_times() -> None:
    store = Store(*range(100))
    assert await deliver(FLEET, store) == Delivered(200, 400)
    assert store.requests <= REQUESTS_MAX
    refuses = Store(0, status=401)
    assert await deliver(FLEET, refuses) == Delivered(200, 401)
    assert refuses.requests == 1, "another token would help, and not fewer samples"


async def test_a_store_that_goes_away_in_between_has_everything_sent_again() -> None:
    store = Store(3, fails_at=4)
    with pytest.raises(StoreBusyError, match="503"):
        await deliver(FLEET, store)
    assert (await deliver(FLEET, store)).refused == 2


def test_what_a_machine_names_twice_is_one_series_with_one_value() -> None:
    sample = busy_sample(1, gpus=1)
    twice = replace(
        sample.host,
        disks=(*sample.host.disks, *sample.host.disks),
        filesystems=(*sample.host.filesystems, *sample.host.filesystems),
        nics=(*sample.host.nics, *sample.host.nics),
    )
    document = json.loads(encode_sample(replace(sample, host=twice)))
    body = Encoder().encode([replace(a_sample(1), document=document)])
    content = pa.Codec("snappy").decompress(body, decompressed_size=_size(body))
    series = [TimeSeries.FromString(each) for each in WriteRequest.FromString(bytes(content)).timeseries]
    assert len(series) > 20
    assert {len(each.samples) for each in series} == {1}


def _size(body: bytes) -> int:
    """The length of the content, with which the format of snappy begins."""
    size = 0
    for place, byte in enumerate(body):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return size
    raise ValueError("no length")
