"""One API process at 16 connections: authenticated lease lists, and lease creates.

A create is admission, the hold, the journal and the stored answer for its Idempotency-Key in one durable
transaction. All creates are for one organization, so they wait for the lock on its standing.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import ground, load
from benchmarks.results import Figure, median, percentile
from control_plane.db.engine import Role as DatabaseRole
from demo.ports import free_ports

CONNECTIONS = 16
READS = 6_000
CREATES = 2_000
ROUNDS = 3


async def measure() -> list[Figure]:
    url = await ground.empty_database("bench_api")
    async with ground.customer(url) as (world, organization_id, secret):
        await ground.order(world, organization_id, 200)
        with serving(url) as api:
            headers = {"Authorization": f"Bearer {secret}"}
            small = [await _reads(api, headers, 1) for _ in range(ROUNDS)]
            reads = [await _reads(api, headers, 20) for _ in range(ROUNDS)]
            creates = [await _creates(api, headers, number) for number in range(ROUNDS)]
    return [
        *_figures("lease list of 1", small, ">= 2000", ""),
        *_figures("lease list of 20", reads, "", ""),
        *_figures("lease create", creates, ">= 400", "<= 100"),
    ]


def _figures(name: str, rounds: list[load.Load], rate: str, p99: str) -> list[Figure]:
    """Medians over the rounds, because the machine stalls now and then."""
    return [
        Figure(f"{name}, rate", median([one.rate for one in rounds]), "requests/s", rate),
        Figure(f"{name}, p50", 1_000 * median([percentile(one.latencies, 0.50) for one in rounds]), "ms"),
        Figure(
            f"{name}, p99", 1_000 * median([percentile(one.latencies, 0.99) for one in rounds]), "ms", p99
        ),
    ]


async def _reads(api: str, headers: dict[str, str], size: int) -> load.Load:
    wire = load.request(api, "GET", f"/v1/leases?limit={size}", headers)
    done = await load.run(api, lambda _: wire, connections=CONNECTIONS, requests=READS)
    _expect(done, 200)
    return done


async def _creates(api: str, headers: dict[str, str], number: int) -> load.Load:
    body = json.dumps({"sku": ground.SKU, "ssh_key_ids": []}).encode()

    def make(index: int) -> bytes:
        keyed = headers | {"Idempotency-Key": f"bench-{number}-{index}"}
        return load.request(api, "POST", "/v1/leases", keyed, body)

    done = await load.run(api, make, connections=CONNECTIONS, requests=CREATES)
    _expect(done, 202)
    return done


def _expect(done: load.Load, status: int) -> None:
    if set(done.statuses) != {status}:
        raise RuntimeError(f"not every answer was {status}: {done.statuses}")


@contextmanager
def serving(database_url: str) -> Iterator[str]:
    """Run one API process, and yield its URL."""
    with started(database_url) as (url, _):
        yield url


@contextmanager
def started(database_url: str, **settings: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run one API process with these variables, and yield its URL and the process."""
    ports = free_ports(2)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("SPLITPLANE", "PROVIDER"))
    }
    environment |= {
        "SPLITPLANE_DATABASE_URL": ground.login_url(database_url, DatabaseRole.API),
        "SPLITPLANE_LISTEN": f"127.0.0.1:{ports[0]}",
        "SPLITPLANE_METRICS_LISTEN": f"127.0.0.1:{ports[1]}",
        "SPLITPLANE_REQUESTS_PER_SECOND": "1000000",
        "SPLITPLANE_REQUESTS_BURST": "1000000",
        "SPLITPLANE_ORGANIZATION_REQUESTS_PER_SECOND": "1000000",
        "SPLITPLANE_ORGANIZATION_REQUESTS_BURST": "1000000",
    } | settings
    process = subprocess.Popen(
        [sys.executable, "-m", "control_plane", "serve"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{ports[0]}"
    try:
        _wait(url, process)
        yield url, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/readyz", timeout=1)
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the API did not become ready")
