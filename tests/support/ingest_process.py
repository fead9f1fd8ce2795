"""The ingest process, started for a test."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx

from demo.ports import free_port

READY_SECONDS_MAX = 60


@contextmanager
def running(url: str, *, host: str = "127.0.0.1") -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """The process, and the URLs of its two listeners. Samples are taken at the address `host`."""
    listen, metrics = f"{host}:{free_port(host)}", f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [sys.executable, "-m", "control_plane.ingest"],
        env={
            "PATH": os.environ["PATH"],
            "SPLITPLANE_DATABASE_URL": url,
            "SPLITPLANE_INGEST_LISTEN": listen,
            "SPLITPLANE_INGEST_METRICS_LISTEN": metrics,
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process, f"http://{listen}", f"http://{metrics}"
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


async def ready(url: str) -> None:
    async with httpx.AsyncClient() as client:
        for _ in range(10 * READY_SECONDS_MAX):
            with suppress(httpx.TransportError):
                if (await client.get(f"{url}/readyz")).status_code == 200:
                    return
            await asyncio.sleep(0.1)
    raise TimeoutError
