"""A client of one event stream, by hand: it reads as long as it likes and then goes."""

import asyncio
import json
from typing import Any, NamedTuple

from tests.support.listening import until


class Sent(NamedTuple):
    """An event as a client reads it."""

    name: str
    id: str | None
    data: Any


def events(text: str) -> list[Sent]:
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "event" in lines:
            found.append(Sent(lines["event"], lines.get("id"), json.loads(lines["data"])))
    return found


class OpenStream:
    def __init__(self, app: Any, secret: str, lease: str, *, after: str = "") -> None:
        self.status = 0
        self.text = b""
        self.reads = asyncio.Event()
        """Whether the client reads; while it does not, sending to it waits."""
        self.reads.set()
        self._gone = asyncio.Event()
        self._first = True
        headers = [(b"authorization", f"Bearer {secret}".encode()), (b"last-event-id", after.encode())]
        path = f"/v1/leases/{lease}/events"
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
            await self.reads.wait()
            self.text += message["body"]

    @property
    def events(self) -> list[Sent]:
        return events(self.text.decode())

    @property
    def noted(self) -> list[str]:
        """The events of the journal's lines."""
        return [event.data["event"] for event in self.events if event.name == "journal"]

    async def until(self, text: bytes) -> None:
        await until(lambda: text in self.text or self.task.done())
        assert text in self.text, self.text

    async def leave(self) -> None:
        self._gone.set()
        await self.task
