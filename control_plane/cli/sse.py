"""A parser for server-sent events (WHATWG HTML, section 9.2.6).

Chunks may end anywhere: inside a line, between CR and LF, inside a character. The parser keeps the rest.
"""

import codecs
from dataclasses import dataclass

LINE_BYTES_MAX = 1_048_576
"""The API sends no longer line, so a stream with one is given up."""


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    data: str
    id: str
    """The last id in the stream, of this event or an earlier one; empty when there was none."""


class EventParser:
    def __init__(self) -> None:
        self.last_id = ""
        self.retry_ms: int | None = None
        """How long to wait before reconnecting, if the server has said so."""
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._rest = ""
        self._after_cr = False
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes."""
        text = self._decoder.decode(chunk)
        if self._after_cr and text.startswith("\n"):
            text = text[1:]  # The second half of a CRLF that two chunks share.
        if text:
            self._after_cr = text.endswith("\r")
        lines = (self._rest + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = lines.pop()
        if len(self._rest) > LINE_BYTES_MAX:
            raise ValueError("the event stream has a line that is too long")
        return [event for line in lines if (event := self._line(line)) is not None]

    def _line(self, line: str) -> Event | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "id" and "\0" not in value:
            self.last_id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry_ms = int(value)
        return None  # A comment (a heartbeat), or a field that is not known yet.

    def _dispatch(self) -> Event | None:
        event = Event(self._name or "message", "\n".join(self._data), self.last_id) if self._data else None
        self._name, self._data = "", []
        return event
