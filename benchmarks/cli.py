"""How long the command line takes to start: until it says its version, and until it has sent its first request."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.results import Figure, median, percentile

RUNS = 15
AIM = "<= 300"
SPLITPLANE = str(Path(sys.executable).with_name("splitplane"))
_PAGE = b'{"items": [], "next_cursor": null}'
_EMPTY = (
    f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(_PAGE)}\r\n\r\n".encode()
    + _PAGE
)


async def measure() -> list[Figure]:
    return await asyncio.to_thread(_figures)


def _figures() -> list[Figure]:
    _version()  # The first run reads the files into the page cache.
    version = sorted(_version() for _ in range(RUNS))
    with socket.create_server(("127.0.0.1", 0)) as server, _home() as home:
        first_byte = sorted(_first_byte(server, home) for _ in range(RUNS))
    return [
        Figure("splitplane --version, median", median(version), "ms", AIM, f"{RUNS} processes"),
        Figure("splitplane lease list until its first byte, median", median(first_byte), "ms", AIM),
        Figure("the same, slowest of ten", percentile(first_byte, 0.9), "ms", AIM),
    ]


@contextmanager
def _home() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield folder


def _version() -> float:
    """Milliseconds until the process has ended."""
    started = time.perf_counter()
    subprocess.run([SPLITPLANE, "--version"], check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - started) * 1e3


def _first_byte(server: socket.socket, home: str) -> float:
    """Milliseconds from the start of the process until the API has received something of its first request."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": home,
        "SPLITPLANE_URL": f"http://127.0.0.1:{server.getsockname()[1]}",
        "SPLITPLANE_API_KEY": "spk_benchmark",
    }
    started = time.perf_counter()
    process = subprocess.Popen([SPLITPLANE, "lease", "list"], env=environ, stdout=subprocess.DEVNULL)
    connection, _ = server.accept()
    with connection:
        connection.recv(1)
        took = (time.perf_counter() - started) * 1e3
        connection.sendall(_EMPTY)
        process.wait(30)
    return took
