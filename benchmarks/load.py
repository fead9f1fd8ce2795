"""A load of N keep-alive connections on loopback, as cheap as possible, because it shares the cores that it measures.

Each connection has one request in flight (a closed loop). The load stops after a number of requests.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Load:
    seconds: float
    latencies: list[float]
    """Seconds per answered request."""
    statuses: dict[int, int]

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds


def request(url: str, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {urlsplit(url).netloc}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + _END + body


async def run(url: str, make: Callable[[int], bytes], *, connections: int, requests: int) -> Load:
    """Send `requests` requests, `make(number)` each, over `connections` connections."""
    where = urlsplit(url)
    if where.hostname != "127.0.0.1" or where.port is None:
        raise ValueError("a load goes to a server of ours on loopback, nowhere else")
    numbers = iter(range(requests))
    latencies: list[float] = []
    statuses: dict[int, int] = {}

    async def connection() -> None:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        try:
            for number in numbers:
                begun = time.perf_counter()
                writer.write(make(number))
                status = await answer(reader)
                latencies.append(time.perf_counter() - begun)
                statuses[status] = statuses.get(status, 0) + 1
        finally:
            writer.close()

    begun = time.perf_counter()
    await asyncio.gather(*(connection() for _ in range(connections)))
    return Load(time.perf_counter() - begun, latencies, statuses)


async def answer(reader: asyncio.StreamReader) -> int:
    """Read one answer. Returns its status."""
    head = (await reader.readuntil(_END)).lower()
    at = head.find(b"content-length:")
    if at >= 0:
        await reader.readexactly(int(head[at + 15 : head.index(b"\r\n", at)]))
    elif b"transfer-encoding: chunked" in head:
        while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
            await reader.readexactly(size + 2)
        await reader.readuntil(b"\r\n")
    return int(head.split(b" ", 2)[1])
