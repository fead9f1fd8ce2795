"""What the ingest process takes from a machine, and what a hostile machine gets for its attacks."""

import asyncio
import gzip
import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

import httpx
import pytest
from prometheus_client import generate_latest

from control_plane.db.enforcement import MachineSignal
from control_plane.db.samples import NewSample, Sender
from control_plane.domain.enforcement import Detector, EnforcementAction
from control_plane.domain.ids import ClaimId, LeaseId, MachineId, OrganizationId, ProjectId
from control_plane.ingest import batches as batching
from control_plane.ingest import limits
from control_plane.ingest.app import Ingest
from control_plane.ingest.batches import Batches
from control_plane.ingest.metrics import Metrics
from control_plane.ingest.senders import KNOWN_SECONDS, Senders
from control_plane.ingest.signals import Signals
from data_plane.documents.sample_delivery import (
    BODY_BYTES_MAX,
    DOCUMENT_BYTES_MAX,
    SAMPLES_MAX,
    Delivery,
    encode_delivery,
    read_answer,
)
from data_plane.documents.signal import Signal
from tests.support.clock import START
from tests.support.samples import AT_MS, busy_delivery, busy_sample

CREDENTIAL, OTHER, NOBODYS = "5e" * 32, "6f" * 32, "70" * 32


class _TroubleError(Exception):
    pass


class _BadValueError(Exception):
    pass


@dataclass
class Place:
    """The application with a database of the test's own."""

    senders: dict[str, Sender]
    now: datetime = START
    seconds: float = 1000.0
    stored: list[NewSample] = field(default_factory=list)
    asked: int = 0
    fault: str | None = None
    error: Exception | None = None
    gate: asyncio.Event | None = None
    asked_for: list[MachineSignal] = field(default_factory=list)
    told: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        self.signals = Signals(self._ask_signals, say=self.told.append)
        self.batches = Batches(
            self._write, is_bad=lambda error: isinstance(error, _BadValueError), noted=self.metrics.wrote
        )
        self.app = Ingest(
            senders=Senders(self._ask, stopwatch=lambda: self.seconds),
            signals=self.signals,
            batches=self.batches,
            metrics=self.metrics,
            now=lambda: self.now,
            stopwatch=lambda: self.seconds,
            why_not_ready=lambda: self.fault,
            is_trouble=lambda error: isinstance(error, _TroubleError),
            is_bad=lambda error: isinstance(error, _BadValueError),
        )
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self.app),
            base_url="http://ingest",
        )

    async def _ask(self, digests: Sequence[str]) -> Sequence[Sender]:
        self.asked += 1
        return [self.senders[digest] for digest in digests if digest in self.senders]

    async def _ask_signals(self) -> Mapping[ClaimId, MachineSignal]:
        if self.error is not None:
            raise self.error
        return {signal.claim_id: signal for signal in self.asked_for}

    async def _write(self, samples: Sequence[NewSample]) -> int:
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(self.error, _BadValueError):
            if any(sample.machine_id.int == 2 for sample in samples):
                raise self.error
        elif self.error is not None:
            raise self.error
        known = {(sample.claim_id, sample.sequence) for sample in self.stored}
        new = [sample for sample in samples if (sample.claim_id, sample.sequence) not in known]
        self.stored += new
        return len(new)

    async def send(
        self, delivery: Delivery | None = None, *, credential: str = CREDENTIAL, body: bytes | None = None
    ) -> httpx.Response:
        content = encode_delivery(delivery or busy_delivery()) if body is None else body
        headers = {"Authorization": f"Bearer {credential}", "Content-Encoding": "gzip"}
        return await self.client.post("/v1/samples", content=content, headers=headers)

    def count(self, name: str) -> float:
        lines = generate_latest(self.metrics.registry).decode().splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " "))


def a_sender(number: int, credential: str) -> Sender:
    return Sender(
        digest=hashlib.sha256(credential.encode()).hexdigest(),
        organization_id=OrganizationId(UUID(int=number)),
        project_id=ProjectId(UUID(int=number)),
        claim_id=ClaimId(UUID(int=number)),
        lease_id=LeaseId(UUID(int=number)),
        machine_id=MachineId(UUID(int=number)),
        ended=False,
    )


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    known = [a_sender(1, CREDENTIAL), a_sender(2, OTHER)]
    made = Place({sender.digest: sender for sender in known})
    writing = asyncio.create_task(made.batches.run())
    yield made
    made.batches.stop()
    await writing
    await made.client.aclose()


@pytest.fixture(autouse=True)
def _no_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "LINGER_SECONDS", 0.0)


def verdict(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, read_answer(response.content).verdict


async def test_a_delivery_is_stored_under_the_ids_of_its_credential_and_answered_with_its_last_sequence(
    place: Place,
) -> None:
    response = await place.send(busy_delivery(3, first=7))
    assert verdict(response) == (200, "accepted")
    assert read_answer(response.content).accepted_through == 9
    assert [(sample.sequence, sample.machine_id.int) for sample in place.stored] == [(7, 1), (8, 1), (9, 1)]
    await place.send(busy_delivery(1), credential=OTHER)
    assert place.stored[-1].machine_id.int == 2


async def test_a_delivery_that_comes_again_is_accepted_and_changes_nothing(place: Place) -> None:
    await place.send(busy_delivery(3))
    assert verdict(await place.send(busy_delivery(3))) == (200, "accepted")
    assert len(place.stored) == 3
    assert place.count('splitplane_ingest_samples_total{outcome="repeated"}') == 3


async def test_a_body_cannot_name_another_lease(place: Place) -> None:
    document = json.loads(gzip.decompress(encode_delivery(busy_delivery())))
    for more in ({"lease_id": str(UUID(int=2))}, {"claim_id": str(UUID(int=2)), "organization_id": "x"}):
        body = gzip.compress(json.dumps(document | more).encode())
        assert verdict(await place.send(body=body)) == (400, "malformed")
    assert place.stored == []


async def test_times_are_corrected_by_the_clock_of_the_machine_and_never_lie_in_the_future(
    place: Place,
) -> None:
    """The machine's clock is years off; of two samples one was read a minute before the other, and sent after 5 s."""
    sample = busy_sample(1)
    of_minute_ago = replace(sample, at_ms=AT_MS - 65_000)
    of_now = replace(sample, sequence=2, at_ms=AT_MS - 5_000)
    of_tomorrow = replace(sample, sequence=3, at_ms=AT_MS + 86_400_000)
    await place.send(Delivery(AT_MS, (of_minute_ago, of_now, of_tomorrow)))
    assert [START - stored.at for stored in place.stored] == [
        timedelta(seconds=65), timedelta(seconds=5), timedelta()
    ]  # fmt: skip
    assert {stored.received_at for stored in place.stored} == {START}
    skew = timedelta(milliseconds=place.stored[0].skew_ms)
    assert skew == timedelta(milliseconds=AT_MS) - timedelta(seconds=START.timestamp())


async def test_samples_of_another_day_are_accepted_and_not_stored(place: Place) -> None:
    old = replace(busy_sample(1), at_ms=AT_MS - 25 * 3_600_000)
    assert verdict(await place.send(Delivery(AT_MS, (old,)))) == (200, "accepted")
    assert place.stored == []
    assert place.count('splitplane_ingest_samples_total{outcome="too_old"}') == 1


async def test_a_credential_that_nobody_has_is_refused_and_one_that_is_new_is_known_within_seconds(
    place: Place,
) -> None:
    assert verdict(await place.send(credential=NOBODYS)) == (401, "not_known")
    sender = a_sender(3, NOBODYS)
    place.senders[sender.digest] = sender
    place.seconds += KNOWN_SECONDS + 0.1
    assert verdict(await place.send(credential=NOBODYS)) == (200, "accepted")


async def test_a_credential_that_was_revoked_counts_for_no_more_than_some_seconds(place: Place) -> None:
    assert verdict(await place.send(busy_delivery(1))) == (200, "accepted")
    digest, sender = next(iter(place.senders.items()))
    place.senders[digest] = replace(sender, ended=True)
    place.seconds += KNOWN_SECONDS + 0.1
    assert verdict(await place.send(busy_delivery(1, first=2))) == (401, "ended")
    del place.senders[digest]
    place.seconds += KNOWN_SECONDS + 0.1
    assert verdict(await place.send(busy_delivery(1, first=3))) == (401, "not_known")
    assert len(place.stored) == 1


async def test_a_head_without_a_credential_costs_the_database_nothing(place: Place) -> None:
    for value in (
        None,
        "Bearer x",
        f"Basic {CREDENTIAL}",
        f"Bearer {CREDENTIAL}0",
        f"Bearer {CREDENTIAL.upper()}",
    ):
        headers = {"Content-Encoding": "gzip"} | ({"Authorization": value} if value else {})
        response = await place.client.post("/v1/samples", content=b"x", headers=headers)
        assert verdict(response) == (401, "not_known"), value
    assert place.asked == 0


async def test_machines_that_come_at_the_same_time_are_looked_up_together(place: Place) -> None:
    for number in range(3, 103):
        sender = a_sender(number, f"{number:064x}")
        place.senders[sender.digest] = sender
    answers = await asyncio.gather(*(place.send(credential=f"{number:064x}") for number in range(3, 103)))
    assert {verdict(answer) for answer in answers} == {(200, "accepted")}
    assert place.asked <= 5


# Attacks with one machine's credential.


async def test_a_flood_of_deliveries_is_refused_and_hurts_nobody_else(place: Place) -> None:
    answers = [verdict(await place.send(busy_delivery(1, first=n))) for n in range(1, 60)]
    assert answers.count((200, "accepted")) == limits.DELIVERIES.burst
    assert set(answers[20:]) == {(429, "too_fast")}
    refused = await place.send()
    assert int(refused.headers["Retry-After"]) >= 1
    assert verdict(await place.send(credential=OTHER)) == (200, "accepted")
    place.seconds += 30
    assert verdict(await place.send(busy_delivery(1, first=99))) == (200, "accepted")


async def test_a_flood_of_samples_is_refused(place: Place) -> None:
    """Each delivery is as full as it may be."""
    taken = 0
    for number in range(30):
        place.seconds += 2
        answer = await place.send(busy_delivery(SAMPLES_MAX, first=1 + number * SAMPLES_MAX))
        taken += SAMPLES_MAX if answer.status_code == 200 else 0
    assert (
        limits.SAMPLES.burst <= taken <= limits.SAMPLES.burst + SAMPLES_MAX + 60 * limits.SAMPLES.per_second
    )


async def test_deliveries_that_hang_take_no_more_than_the_place_of_one_machine(place: Place) -> None:
    place.gate = asyncio.Event()
    hanging = [asyncio.create_task(place.send(busy_delivery(1, first=n))) for n in (1, 2)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert verdict(await place.send(busy_delivery(1, first=3))) == (429, "too_fast")
    place.gate.set()
    assert {verdict(await one) for one in hanging} == {(200, "accepted")}


async def test_a_bomb_is_refused_and_its_machine_soon_has_no_allowance_left(place: Place) -> None:
    bomb = gzip.compress(bytes(40 * DOCUMENT_BYTES_MAX))
    assert len(bomb) < BODY_BYTES_MAX
    answers = []
    for _ in range(60):
        place.seconds += 0.5
        answers.append(verdict(await place.send(body=bomb)))
    assert set(answers) == {(413, "too_large"), (429, "too_fast")}
    assert place.stored == []


async def test_a_body_that_is_too_long_is_refused_before_it_is_read(place: Place) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(64 * 1024)

    headers = {"Authorization": f"Bearer {CREDENTIAL}", "Content-Encoding": "gzip"}
    answer = await place.client.post("/v1/samples", content=endless(), headers=headers)
    assert verdict(answer) == (413, "too_large")
    declared = headers | {"Content-Length": str(BODY_BYTES_MAX + 1)}
    answer = await place.client.post("/v1/samples", content=b"", headers=declared)
    assert verdict(answer) == (413, "too_large")


async def test_a_delivery_that_is_not_compressed_is_refused(place: Place) -> None:
    headers = {"Authorization": f"Bearer {CREDENTIAL}"}
    content = gzip.decompress(encode_delivery(busy_delivery()))
    answer = await place.client.post("/v1/samples", content=content, headers=headers)
    assert verdict(answer) == (400, "malformed")


async def test_a_value_that_the_database_refuses_fails_its_own_delivery_and_no_other(place: Place) -> None:
    place.error = _BadValueError()
    place.gate = asyncio.Event()
    sent = [asyncio.create_task(place.send(credential=who)) for who in (CREDENTIAL, OTHER)]
    for _ in range(20):
        await asyncio.sleep(0)
    place.gate.set()
    assert [verdict(await one) for one in sent] == [(200, "accepted"), (400, "malformed")]


# What we cannot take.


async def test_while_the_database_is_away_machines_keep_their_samples_and_come_again_at_different_times(
    place: Place,
) -> None:
    place.fault = "the database at h:5432 does not answer"
    answers = []
    for _ in range(40):
        place.seconds += 1
        answers.append(await place.send())
    assert {answer.status_code for answer in answers} == {503}
    assert len({answer.headers["Retry-After"] for answer in answers}) > 5
    ready = await place.client.get("/readyz")
    assert (ready.status_code, ready.json()["reasons"]) == (503, [place.fault])
    assert (await place.client.get("/healthz")).status_code == 200
    place.fault, place.error = None, _TroubleError()
    assert (await place.send()).status_code == 503
    place.error = None
    assert (await place.client.get("/readyz")).status_code == 200
    assert verdict(await place.send()) == (200, "accepted")
    assert len(place.stored) == 1


async def test_a_database_that_does_not_keep_up_fills_the_queue_and_then_nothing_more_is_taken(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "QUEUE_MAX", 10)
    monkeypatch.setattr(batching, "BATCH_MAX", 1)
    place.gate = asyncio.Event()
    for number in range(3, 43):
        sender = a_sender(number, f"{number:064x}")
        place.senders[sender.digest] = sender
    sent = [asyncio.create_task(place.send(credential=f"{number:064x}")) for number in range(3, 43)]
    for _ in range(200):
        await asyncio.sleep(0)
    place.gate.set()
    statuses = [(await one).status_code for one in sent]
    assert 10 <= statuses.count(200) <= 10 + batching.WRITERS
    assert set(statuses) == {200, 503}


async def test_stopping_writes_what_waits(place: Place) -> None:
    place.gate = asyncio.Event()
    sent = asyncio.create_task(place.send())
    for _ in range(20):
        await asyncio.sleep(0)
    place.batches.stop()
    place.gate.set()
    assert verdict(await sent) == (200, "accepted")
    assert (await place.send(busy_delivery(1, first=2))).status_code == 503


async def test_what_is_no_route_is_not_found(place: Place) -> None:
    for method, path in (("GET", "/v1/samples"), ("POST", "/"), ("GET", "/metrics")):
        assert (await place.client.request(method, path)).status_code == 404


async def test_the_answer_says_what_the_workload_of_this_machine_is_asked_for_and_for_how_long(
    place: Place,
) -> None:
    until = place.now + timedelta(seconds=600)
    ends = place.now + timedelta(seconds=300)
    place.asked_for = [
        MachineSignal(ClaimId(UUID(int=1)), EnforcementAction.EVICT, Detector.UNFUNDED, until, ends)
    ]
    await place.signals.look()
    assert read_answer((await place.send()).content).signal == Signal("evict", "unfunded", 600, 300)
    assert read_answer((await place.send(credential=OTHER)).content).signal is None
    place.now = until
    assert read_answer((await place.send(busy_delivery(2))).content).signal is None


async def test_samples_go_on_while_signals_cannot_be_read_and_the_last_ones_count(place: Place) -> None:
    place.asked_for = [
        MachineSignal(
            ClaimId(UUID(int=1)),
            EnforcementAction.STOP_ADMISSION,
            Detector.KV_CACHE_GROWTH,
            place.now + timedelta(seconds=600),
            None,
        )
    ]
    await place.signals.look()
    place.error = _TroubleError()
    await place.signals.look()
    await place.signals.look()
    assert place.told == ["_TroubleError: "]
    place.error = None
    answer = read_answer((await place.send()).content)
    assert answer.signal == Signal("stop_admission", "kv_cache_growth", 600)
