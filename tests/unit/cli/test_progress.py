"""Watching through broken streams: resumed where they broke, replaced by polling where they cannot be had."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from control_plane.cli import progress
from control_plane.cli.answers import read
from control_plane.cli.client import Client
from control_plane.cli.config import Login
from control_plane.cli.errors import CliError
from control_plane.cli.progress import OUTAGE_SECONDS_MAX, STREAM_TRIES_MAX, is_decided
from control_plane.wire.leases import LeaseView
from tests.support import golden
from tests.unit.cli import answers
from tests.unit.cli.answers import LEASE_ID, NOW, Json, a_lease
from tests.unit.cli.stand import Hours

EVENTS = f"/v1/leases/{LEASE_ID}/events"


class Breaking(httpx.SyncByteStream):
    """A body that breaks off after its chunks."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        yield from self._chunks
        raise httpx.RemoteProtocolError("peer closed connection")


class Api:
    """Streams in turn, and the lease as it stands at each question."""

    def __init__(self, streams: list[httpx.Response | Exception], leases: list[Json | Exception]) -> None:
        self.streams = streams
        self.leases = leases
        self.resumed_after: list[str | None] = []
        self.waits: list[float] = []
        self.hours = Hours()
        self.reports: list[tuple[float, str]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == EVENTS:
            self.resumed_after.append(request.headers.get("last-event-id"))
            answer = (
                self.streams.pop(0) if self.streams else httpx.Response(404, json={"code": "lease_not_found"})
            )
        else:
            next_answer = self.leases.pop(0) if len(self.leases) > 1 else self.leases[0]
            answer = (
                next_answer if isinstance(next_answer, Exception) else httpx.Response(200, json=next_answer)
            )
        if isinstance(answer, Exception):
            raise answer
        return answer

    def follow(self) -> list[LeaseView]:
        login = Login("http://127.0.0.1:8080", "spk_x", "given")
        client = Client(
            login,
            transport=httpx.MockTransport(self),
            clock=self.hours.clock(),
            report=lambda sentence: self.reports.append((self.hours.now, sentence)),
        )
        answers = progress.follow(client, LEASE_ID, is_decided, wait=self.wait)
        return [answer.value for answer in answers]

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.hours.spend(seconds)


def _events(*chunks: bytes, broken: bool = False) -> httpx.Response:
    headers = {"content-type": "text/event-stream"}
    if broken:
        return httpx.Response(200, stream=Breaking(*chunks), headers=headers)
    return httpx.Response(200, content=b"".join(chunks), headers=headers)


def _status(state: str) -> bytes:
    return b"event: status\ndata: " + json.dumps(answers.status(state)).encode() + b"\n\n"


def _line(number: int) -> bytes:
    return f'id: {number}\nevent: journal\ndata: {{"number": {number}}}\n\n'.encode()


def test_a_stream_that_breaks_is_resumed_behind_the_last_event() -> None:
    first = _events(b"retry: 2000\n\n", _line(4), _line(7), _status("starting"), broken=True)
    api = Api([first, _events(_line(9), _status("ready"))], [a_lease("starting"), a_lease("ready")])
    assert [lease.state for lease in api.follow()] == ["starting", "ready"]
    assert api.resumed_after == [None, "7"]
    assert api.waits == [2.0]


def test_a_stream_that_breaks_after_an_hour_and_is_opened_again_is_no_outage() -> None:
    api = Api([], [a_lease("starting"), a_lease("ready")])

    class Hour(Breaking):
        def __iter__(self) -> Iterator[bytes]:
            yield _status("starting")
            api.hours.spend(3_600)
            raise httpx.RemoteProtocolError("peer closed connection")

    headers = {"content-type": "text/event-stream"}
    api.streams = [httpx.Response(200, stream=Hour(), headers=headers), _events(_status("ready"))]
    assert [lease.state for lease in api.follow()] == ["starting", "ready"]
    assert api.reports == []


def test_a_break_in_the_middle_of_an_event_loses_nothing() -> None:
    half = _status("ready")
    api = Api([_events(_line(4), half[:30], broken=True), _events(half)], [a_lease("ready")])
    assert [lease.state for lease in api.follow()] == ["ready"]
    assert api.resumed_after == [None, "4"]


def test_the_watch_ends_when_the_key_of_its_stream_is_revoked() -> None:
    revoked = _events(_status("starting"), b'event: end\ndata: {"reason":"revoked"}\n\n')
    detail = "This API key is unknown or revoked."
    refused = httpx.Response(401, json={"code": "unauthenticated", "detail": detail})
    api = Api([revoked, refused], [a_lease("starting")])
    with pytest.raises(CliError, match=detail):
        api.follow()


def test_a_stream_that_a_stopping_server_closes_is_resumed_on_the_next_one() -> None:
    position = b"id: 800713.12.3\nevent: journal\ndata: {}\n\n"
    first = _events(b"retry: 2000\n\n", position, _status("starting"), b"retry: 2000\n\n")
    api = Api([first, _events(_status("ready"))], [a_lease("starting"), a_lease("ready")])
    assert [lease.state for lease in api.follow()] == ["starting", "ready"]
    assert api.resumed_after == [None, "800713.12.3"]


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(503, json={"code": "streams_exhausted", "detail": "200 event streams are open."}),
        httpx.Response(200, text="<html>"),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("silent"),
    ],
)
def test_where_no_stream_is_to_be_had_the_lease_is_asked_for(answer: httpx.Response | Exception) -> None:
    api = Api([answer] * STREAM_TRIES_MAX, [a_lease("placing"), a_lease("starting"), a_lease("ready")])
    assert [lease.state for lease in api.follow()] == ["placing", "starting", "ready"]
    assert len(api.resumed_after) == STREAM_TRIES_MAX


def test_an_answer_of_the_api_ends_the_watch() -> None:
    with pytest.raises(CliError) as caught:
        Api(
            [httpx.Response(404, json={"code": "lease_not_found", "detail": "No such lease."})], [a_lease()]
        ).follow()
    assert caught.value.code == "lease_not_found"


def test_a_watch_outlives_an_outage_but_not_for_ever_and_reports_it_within_five_seconds() -> None:
    down = httpx.ConnectError("refused")
    outage: list[Json | Exception] = [down] * 30
    api = Api([down] * STREAM_TRIES_MAX, [*outage, a_lease("ready")])
    assert [lease.state for lease in api.follow()] == ["ready"]
    assert [sentence.partition(" ")[2] for _, sentence in api.reports] == [
        "cannot be reached: refused. Retrying for up to 300 s.",
        "answers again.",
    ]
    assert api.reports[0][0] < 5
    api = Api([down] * STREAM_TRIES_MAX, [down])
    with pytest.raises(CliError, match="Cannot reach"):
        api.follow()
    assert OUTAGE_SECONDS_MAX <= api.hours.now < OUTAGE_SECONDS_MAX + 70


def test_bars_read_as_they_should_at_80_columns() -> None:
    shown = [
        *answers.leases()[:3],
        a_lease("starting", id="le_x", name="a-name-that-is-longer-than-its-place"),
        *answers.leases()[3:],
    ]
    leases = [read(lease, LeaseView).value for lease in shown]
    text = _at_80_columns(leases)
    golden.check(Path("tests/golden/cli/watch_bars.txt"), text)


def test_a_lease_that_is_replaced_or_in_doubt_stays_within_80_columns() -> None:
    """With the longest name, step and time of each."""
    name = "a-name-that-is-longer-than-its-place"
    waiting = {"since": answers.at(minutes=59), "gives_up_at": answers.at(hours=-1), "why": "sold out"}
    unconfirmed = {"since": answers.at(minutes=7), "why": "not listed"}
    old = {"created_at": answers.at(hours=800), "ready_at": answers.at(hours=799)}
    changes: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("placing", {"waiting": waiting}, {**old, "paused_since": answers.at(minutes=59, seconds=59)}),
        ("starting", {}, {**old, "paused_since": answers.at(hours=23, minutes=59)}),
        ("ready", {"unconfirmed": unconfirmed}, old),
        ("placing", {"waiting": waiting}, {"created_at": answers.at(hours=23, minutes=59)}),
    ]
    leases = []
    for number, (state, status, lease) in enumerate(changes):
        shown = a_lease(state, id=f"le_{number}", name=name, **lease)
        shown["status"] |= {**status, "message": "Waiting."}
        leases.append(read(shown, LeaseView).value)
    lines = _at_80_columns(leases).splitlines()
    assert len(lines) == 2 * len(leases), "no line is broken"
    assert all(len(line) <= 80 for line in lines)
    assert "placing, waiting 0/7  59 min" in lines[0], "since its machine was lost, and not since its request"


def _at_80_columns(leases: Sequence[LeaseView]) -> str:
    screen = Console(width=80, record=True, color_system=None, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    screen.print(progress.drawn(leases, NOW))
    text = "\n".join(line.rstrip() for line in screen.export_text().splitlines()) + "\n"
    screen.file.close()
    return text
