"""Event streams: every event is sent at once and only once, and the stream ends when nothing more can come."""

import asyncio
import json
from typing import Any

import pytest

from control_plane.api.app import create_app
from control_plane.api.streams import HEARTBEAT_POLLS
from tests.integration.api.conftest import SETTINGS, Api, Shared, Tenant
from tests.integration.api.problems import SOME_ID, hold
from tests.support.stage import Stage

pytestmark = pytest.mark.database


def events(text: str) -> list[tuple[str, str | None, Any]]:
    """Name, id and data of every event."""
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "event" in lines:
            found.append((lines["event"], lines.get("id"), json.loads(lines["data"])))
    return found


async def test_a_stream_reports_every_step_once_and_ends_when_the_lease_is_ready(
    api: Api, stage: Stage, acme: Tenant
) -> None:
    lease = await acme.lease()
    api.while_asleep = stage.round
    answer = await acme.http.get(f"/v1/leases/{lease}/events?until=ready")
    assert answer.headers["content-type"] == "text/event-stream"
    sent = events(answer.text)
    phases = [data["phase"] for name, _, data in sent if name == "status"]
    assert (phases[0], phases[-1]) == ("pending", "ready")
    messages = [data["message"] for name, _, data in sent if name == "status"]
    assert len(messages) == len(set(messages))
    assert sent[-1] == ("end", None, {"reason": "ready"})
    journal = (await acme.http.get(f"/v1/leases/{lease}/journal")).json()["items"]
    assert [data for name, _, data in sent if name == "journal"] == journal
    assert [number for name, number, _ in sent if name == "journal"] == [
        str(line["number"]) for line in journal
    ]


async def test_a_stream_that_comes_back_misses_no_line_and_gets_none_twice(
    api: Api, stage: Stage, acme: Tenant
) -> None:
    lease = await acme.lease()
    await acme.http.post(f"/v1/leases/{lease}/release")
    api.while_asleep = stage.round
    whole = [e for e in events((await acme.http.get(f"/v1/leases/{lease}/events")).text) if e[0] == "journal"]
    assert [data["event"] for _, _, data in whole] == ["admitted", "released", "machines_gone"]
    for seen in range(3):
        last = whole[seen][1]
        assert last is not None
        rest = await acme.http.get(f"/v1/leases/{lease}/events", headers={"Last-Event-ID": last})
        sent = events(rest.text)
        assert [e for e in sent if e[0] == "journal"] == whole[seen + 1 :]
        assert sent[-1][2] == {"reason": "ended"}


@pytest.mark.parametrize("last", ["", "abc", "-1", "9" * 40, "1.5", "٣"])
async def test_an_invalid_event_id_starts_at_the_beginning(last: str, shared: Shared) -> None:
    acme = shared.acme
    lease = await acme.lease()
    await acme.http.post(f"/v1/leases/{lease}/release")
    headers = [(b"Last-Event-ID", last.encode())]
    answer = await acme.http.get(f"/v1/leases/{lease}/events?until=ready", headers=headers)
    assert [data["event"] for name, _, data in events(answer.text) if name == "journal"] == [
        "admitted",
        "released",
    ]


async def test_a_lease_that_will_never_be_ready_ends_the_wait(acme: Tenant) -> None:
    lease = await acme.lease()
    await acme.http.post(f"/v1/leases/{lease}/release")
    sent = events((await acme.http.get(f"/v1/leases/{lease}/events?until=ready")).text)
    assert sent[-1] == ("end", None, {"reason": "ending"})


class Listener:
    """A client of one stream, by hand: it reads as long as it likes and then goes."""

    def __init__(self, app: Any, tenant: Tenant, path: str) -> None:
        self.chunks: list[bytes] = []
        self.status = 0
        self._gone = asyncio.Event()
        self._first = True
        headers = [(b"authorization", f"Bearer {tenant.secret}".encode())]
        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers}
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._first:
            self._first = False
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.chunks.append(message["body"])

    async def until(self, text: bytes) -> None:
        while text not in b"".join(self.chunks):
            await asyncio.sleep(0)
            assert not self.task.done(), self.chunks

    async def leave(self) -> None:
        self._gone.set()
        await self.task


async def test_streams_are_bounded_and_a_client_that_goes_gives_its_place_back(
    api: Api, acme: Tenant
) -> None:
    lease = await acme.lease()
    app = create_app(api.world, type(SETTINGS)("unused", streams_max=1), metrics=api.metrics, sleep=api.sleep)
    api.app = app
    client = api.client(acme.secret)
    listener = Listener(app, acme, f"/v1/leases/{lease}/events")
    await listener.until(b"event: status")
    answer = await client.get(f"/v1/leases/{lease}/events")
    hold(answer, "streams_exhausted")
    assert answer.headers["retry-after"]
    hold(await client.get(f"/v1/leases/le_{SOME_ID}/events"), "lease_not_found")
    await listener.leave()
    assert api.metrics.registry.get_sample_value("splitplane_api_streams") == 0
    again = Listener(app, acme, f"/v1/leases/{lease}/events")
    await again.until(b": heartbeat")
    text = b"".join(again.chunks)
    assert text.count(b"event: status") == 1
    await again.leave()
    assert HEARTBEAT_POLLS > 1
