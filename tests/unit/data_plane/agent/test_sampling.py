"""Delivery of samples: the newest first, the rest at a bounded rate, and what each response leads to."""

import sys
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest

from data_plane.agent.sample_line import Response
from data_plane.agent.sampling import (
    PAUSE_SECONDS,
    PAUSE_SECONDS_MAX,
    REFUSED_SECONDS,
    REPLAYED_MAX,
    Sampling,
)
from data_plane.agent.spool import SAMPLES, Spool
from data_plane.documents.sample import SECONDS, Sample
from data_plane.documents.sample_delivery import Answer, Delivery, Verdict, encode_delivery, read_delivery
from tests.support.samples import busy_sample

FIRST = 1000


@dataclass
class Ingest:
    """Answers as it is told to, and remembers what it accepted."""

    now: float = 0.0
    deliveries: list[list[int]] = field(default_factory=list[list[int]])
    away: bool = False
    response: Response | None = None
    """Instead of accepting."""
    largest: int = 32
    """Of the deliveries that are not too large."""
    asked: int = 0
    newest: Sample | None = None
    poison: int = 0
    """A sequence that makes a delivery malformed."""

    def send(self, delivery: Delivery) -> Response:
        self.asked += 1
        if self.away:
            raise OSError("no route")
        delivery = read_delivery(encode_delivery(delivery))
        sequences = [sample.sequence for sample in delivery.samples]
        if self.response is not None:
            return self.response
        if len(sequences) > self.largest:
            return Response(413, Answer("too_large"))
        if self.poison in sequences:
            return Response(400, Answer("malformed"))
        self.deliveries.append(sequences)
        self.newest = max([*delivery.samples, *([self.newest] if self.newest else [])], key=_sequence)
        return Response(200, Answer("accepted", sequences[-1]))

    @property
    def accepted(self) -> list[int]:
        return sorted(sequence for delivery in self.deliveries for sequence in delivery)


def _sequence(sample: Sample) -> int:
    return sample.sequence


def _read(spool: "Spool[Sample]") -> Sample:
    return replace(busy_sample(spool.next_sequence, gpus=1), spooled=len(spool), dropped=spool.dropped)


def sampling(ingest: Ingest, folder: Path, *, most: int = 1920, first: int = FIRST) -> Sampling:
    spool = Spool(folder, SAMPLES, most, first=first)
    return Sampling(_read, spool, ingest.send, lambda: 1_795_800_000.0 + ingest.now, lambda: ingest.now)


def sample(at: Sampling, ingest: Ingest, times: int) -> None:
    for _ in range(times):
        ingest.now += SECONDS
        at.step()


def test_what_is_delivered_at_once_never_touches_the_disk(tmp_path: Path) -> None:
    ingest = Ingest()
    sample(sampling(ingest, tmp_path), ingest, 4)
    assert ingest.deliveries == [[1000], [1001], [1002], [1003]]
    assert list(tmp_path.iterdir()) == []


def test_after_a_long_absence_the_newest_comes_first_and_the_rest_at_a_bounded_rate(tmp_path: Path) -> None:
    ingest = Ingest(away=True)
    agent = sampling(ingest, tmp_path)
    sample(agent, ingest, 240)
    assert len(agent.spool) == 240
    ingest.away = False
    sample(agent, ingest, PAUSE_SECONDS_MAX * 2 // SECONDS)
    first, second, *rest = ingest.deliveries
    assert len(first) == 1
    assert first[0] >= FIRST + 240
    assert second == list(range(FIRST, FIRST + REPLAYED_MAX)), "and the oldest after it"
    assert all(len(each) in (1, REPLAYED_MAX) or len(agent.spool) == 0 for each in rest)
    sample(agent, ingest, 30)
    assert ingest.accepted == list(range(FIRST, agent.spool.next_sequence)), "each once, and none is missing"
    assert len(agent.spool) == 0


def test_while_nobody_answers_the_agent_asks_ever_less_often(tmp_path: Path) -> None:
    asked: list[float] = []
    ingest = Ingest()
    agent = sampling(ingest, tmp_path)

    def send(_: Delivery) -> Response:
        asked.append(ingest.now)
        raise ConnectionRefusedError

    agent.send = send
    sample(agent, ingest, 400)
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert pauses[0] <= 2 * PAUSE_SECONDS
    assert pauses == sorted(pauses[:4]) + pauses[4:]
    assert all(PAUSE_SECONDS_MAX <= pause <= 1.5 * PAUSE_SECONDS_MAX for pause in pauses[6:])


def test_the_spool_of_samples_is_bounded_and_the_next_sample_says_how_many_were_dropped(
    tmp_path: Path,
) -> None:
    ingest = Ingest(away=True)
    agent = sampling(ingest, tmp_path, most=10)
    sample(agent, ingest, 25)
    assert len(list(tmp_path.glob("*.sample"))) == 10
    assert all(path.stat().st_size < 2048 for path in tmp_path.glob("*.sample"))
    assert agent.spool.dropped == 15
    again = sampling(ingest, tmp_path, most=10, first=1)
    ingest.away = False
    sample(again, ingest, 1)
    assert ingest.newest is not None
    assert ingest.newest.sequence == FIRST + 25, "it goes on where it was, whatever the clock says"
    assert (ingest.newest.dropped, ingest.newest.spooled) == (15, 10)


def test_a_full_disk_keeps_no_sample_from_being_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError("no space left on device")

    ingest = Ingest(away=True)
    agent = sampling(ingest, tmp_path)
    monkeypatch.setattr(Path, "write_bytes", full)
    sample(agent, ingest, 1)
    ingest.away = False
    sample(agent, ingest, 5)
    assert ingest.accepted == list(range(agent.spool.next_sequence - len(ingest.accepted), FIRST + 6))
    assert agent.spool.dropped == 6 - len(ingest.accepted)


@pytest.mark.parametrize("verdict", ["not_known", "ended"])
def test_a_credential_that_was_revoked_leads_to_silence_and_nothing_is_lost(
    tmp_path: Path, verdict: Verdict
) -> None:
    ingest = Ingest(response=Response(401, Answer(verdict)))
    agent = sampling(ingest, tmp_path)
    sample(agent, ingest, 60)
    assert ingest.asked <= 60 * SECONDS / REFUSED_SECONDS + 1
    assert len(agent.spool) == 60
    ingest.response = None
    sample(agent, ingest, 60)
    assert ingest.accepted == list(range(FIRST, FIRST + 120))


def test_the_ingest_process_says_when_to_come_again(tmp_path: Path) -> None:
    for status in (429, 503):
        folder = tmp_path / str(status)
        folder.mkdir()
        ingest = Ingest(response=Response(status, None, 60))
        agent = sampling(ingest, folder)
        sample(agent, ingest, 1)
        ingest.response = None
        sample(agent, ingest, 3)
        assert ingest.accepted == [], "not before the time that it said"
        sample(agent, ingest, 3)
        assert ingest.accepted[-1] == FIRST + 6


def test_a_delivery_that_is_too_large_is_delivered_in_parts(tmp_path: Path) -> None:
    ingest = Ingest(away=True, largest=3)
    agent = sampling(ingest, tmp_path)
    sample(agent, ingest, 30)
    ingest.away = False
    sample(agent, ingest, 60)
    assert ingest.accepted == list(range(FIRST, FIRST + 90))
    assert agent.spool.dropped == 0


def test_one_sample_that_cannot_be_read_costs_only_itself(tmp_path: Path) -> None:
    ingest = Ingest(away=True, poison=FIRST + 5)
    agent = sampling(ingest, tmp_path)
    sample(agent, ingest, 30)
    ingest.away = False
    sample(agent, ingest, 90)
    assert ingest.accepted == [n for n in range(FIRST, FIRST + 120) if n != FIRST + 5]
    assert agent.spool.dropped == 1


def test_an_older_ingest_process_leaves_the_samples_with_the_agent(tmp_path: Path) -> None:
    ingest = Ingest(response=Response(400, Answer("version_not_known")))
    agent = sampling(ingest, tmp_path)
    sample(agent, ingest, 30)
    assert len(agent.spool) == 30
    assert agent.spool.dropped == 0


def test_what_is_no_answer_of_the_ingest_process_is_no_acceptance(tmp_path: Path) -> None:
    for response in (
        Response(200),
        Response(200, Answer("accepted", 0)),
        Response(200, Answer("too_fast", 1 << 40)),
        Response(400),
        Response(404),
        Response(500, Answer("accepted", 1 << 40)),
        Response(502),
        Response(503),
    ):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        ingest = Ingest(response=response)
        agent = sampling(ingest, folder)
        sample(agent, ingest, 3)
        assert len(agent.spool) == 3, response


def test_damaged_files_cost_one_sample_each(tmp_path: Path) -> None:
    ingest = Ingest(away=True)
    sample(sampling(ingest, tmp_path), ingest, 4)
    (tmp_path / f"{FIRST + 1:016d}.sample").write_bytes(b"\x1f\x8b damaged")
    (tmp_path / f"{FIRST + 2:016d}.sample").write_bytes(b"")
    ingest.away = False
    again = sampling(ingest, tmp_path)
    sample(again, ingest, 3)
    assert ingest.accepted == [FIRST, FIRST + 3, FIRST + 4, FIRST + 5, FIRST + 6]
    assert again.spool.dropped == 2


def test_an_error_that_nobody_foresaw_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Enough(BaseException):
        pass

    paused: list[float] = []

    def sleep(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == 3:
            raise Enough

    def broken(_: object) -> Sample:
        raise RuntimeError("unforeseen")

    agent = sampling(Ingest(), tmp_path)
    agent.read, agent.sleep = broken, sleep
    said: list[str] = []
    monkeypatch.setattr(sys.stderr, "write", said.append)
    with pytest.raises(Enough):
        agent.run()
    assert paused == [PAUSE_SECONDS] * 3
    assert said == ["no sample: RuntimeError: unforeseen\n"] * 3
