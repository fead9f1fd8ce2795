"""HTTP/1.1 as the supervisor needs it: one request's head, a short body, an answer, and a pump between two connections."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

HEAD_BYTES_MAX = 64 << 10
BODY_BYTES_MAX = 1 << 20
CHUNK = 64 << 10
REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found"}
REASONS |= {
    405: "Method Not Allowed",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class BadRequestError(Exception):
    """Bytes that are no request."""


@dataclass(frozen=True, slots=True)
class Head:
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")

    @property
    def is_upgrade(self) -> bool:
        return bool(self.header("Upgrade"))

    def rendered(self, more: Mapping[str, str | list[str]], without: tuple[str, ...]) -> bytes:
        """The head again, with other headers. Names in `without` are prefixes in lower case."""
        kept = [(key, value) for key, value in self.headers if not key.lower().startswith(without)]
        added = [
            (key, one)
            for key, value in more.items()
            for one in ([value] if isinstance(value, str) else value)
        ]
        lines = [
            f"{self.method} {self.target} HTTP/1.1",
            *(f"{key}: {value}" for key, value in [*kept, *added]),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """None when the other side has closed. Raises BadRequestError."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError as error:
        raise BadRequestError("the head is too long") from error
    first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    try:
        method, target, _ = first.split(" ")
    except ValueError as error:
        raise BadRequestError(first[:80]) from error
    pairs = (line.partition(":") for line in lines)
    return Head(method, target, tuple((key.strip(), value.strip()) for key, _, value in pairs))


async def read_body(reader: asyncio.StreamReader, head: Head) -> bytes:
    length = int(head.header("Content-Length") or 0)
    if length > BODY_BYTES_MAX:
        raise BadRequestError("the body is too long")
    return await reader.readexactly(length)


def answer(
    status: int, body: bytes, *, kind: str = "text/plain", more: Mapping[str, str] | None = None
) -> bytes:
    headers = {"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})}
    lines = [f"HTTP/1.1 {status} {REASONS[status]}", *(f"{key}: {value}" for key, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until one side ends."""
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    except (ConnectionError, OSError):
        pass
    finally:
        writer.close()
