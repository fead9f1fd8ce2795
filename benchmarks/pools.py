"""From the request for a lease to the machine that a customer can log in to, when it waits in a warm pool.

Through the product: the API, the database's notifications, the reconciler, and the machine's own sshd and firewall.
Once on simulated machines, whose SSH costs nothing, and once on real machines of the local provider (`demo/city.py`). A
lease that found no machine ready in its pool is left out and counted: nothing is ready sooner than it was ordered.

Real machines boot and prove themselves on the host that we run on, which they do not at a provider. So each lease on
them is asked for when the pool is full again, and nothing boots until its machine was claimed.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from benchmarks.results import Figure, percentile
from demo import packages
from demo.city import City
from demo.prices import SKU
from demo.processes import wait_for

SIMULATED_CLAIMS = int(os.environ.get("BENCH_RUNS", "60"))
REAL_CLAIMS = int(os.environ.get("BENCH_REAL_RUNS", "6"))
SIMULATED_MACHINES, REAL_MACHINES = 60, 3
AIM = "< 2"
READY_SECONDS_MAX = 300.0
POLL_SECONDS = 0.01
COUNTED_AGAIN_SECONDS = 5.0
"""What a pool says of its machines is counted every 2 s: until then it has the one that was just claimed."""


async def measure() -> list[Figure]:
    found = []
    for machines in ("simulated", "real"):
        absent = packages.missing() if machines == "real" else []
        if absent:
            print("pools on real machines is left out: " + "; ".join(absent))
            continue
        # In a process of its own, because the city runs loops and handles signals by itself.
        command = [sys.executable, "-m", "benchmarks.pools", machines]
        ran = await asyncio.to_thread(subprocess.run, command, stdout=subprocess.PIPE, check=True)
        found += _figures(machines, json.loads(ran.stdout))
    return found


def main(machines: str) -> None:
    real = machines == "real"
    with TemporaryDirectory() as folder:
        city = City(Path(folder), real_machines=real, say=lambda _: None)
        try:
            city.start()
            with _client(city, city.operator_key) as operator, _client(city, city.api_key) as customer:
                kept, claims = (
                    (REAL_MACHINES, REAL_CLAIMS) if real else (SIMULATED_MACHINES, SIMULATED_CLAIMS)
                )
                _keep(city, operator, kept)
                full = kept if real else 1
                found = [_claim(city, operator, customer, number, full) for number in range(claims)]
                print(json.dumps(found))
        finally:
            city.stop()


def _client(city: City, key: str) -> httpx.Client:
    return httpx.Client(base_url=city.api_url, headers={"Authorization": f"Bearer {key}"}, timeout=30)


def _keep(city: City, operator: httpx.Client, machines: int) -> None:
    pool = {
        "name": "bench",
        "sku": SKU,
        "region": "eu",
        "policy": "fixed",
        "machines_min": machines,
        "machines_max": machines + 2,
        "step_max": machines,
        "idle_usd_per_day": "10000",
        "dry_run": False,
    }
    _answer(operator.post("/v1/operator/pools", json=pool))

    def filled() -> bool:
        return bool(_answer(operator.get("/v1/operator/pools/bench"))["verified"] >= machines)

    wait_for("a full pool", READY_SECONDS_MAX, filled, city.children["reconciler"])


def _claim(
    city: City, operator: httpx.Client, customer: httpx.Client, number: int, waiting: int
) -> dict[str, Any]:
    """One lease, requested while machines wait: seconds until it was ready, and whether it came from the pool."""

    def waits() -> bool:
        return bool(_answer(operator.get("/v1/operator/pools/bench"))["verified"] >= waiting)

    if waiting > 1:
        time.sleep(COUNTED_AGAIN_SECONDS)
    wait_for("machines in the pool", READY_SECONDS_MAX, waits, city.children["reconciler"])
    wanted = {"sku": SKU, "name": f"bench-{number}", "regions": ["eu"]}
    begun = time.monotonic()
    lease = _answer(customer.post("/v1/leases", json=wanted))
    path = f"/v1/leases/{lease['id']}"
    while _answer(customer.get(path))["state"] != "ready":
        if time.monotonic() - begun > READY_SECONDS_MAX:
            raise RuntimeError("a lease does not get ready")
        time.sleep(POLL_SECONDS)
    seconds = time.monotonic() - begun
    placements = _answer(customer.get(f"{path}/explanation"))["placements"]
    pooled = placements[-1]["pooled"]
    _answer(customer.post(f"{path}/release"))
    return {"seconds": seconds, "pooled": pooled is not None and pooled["machine_id"] is not None}


def _answer(response: httpx.Response) -> Any:
    response.raise_for_status()
    return response.json()


def _figures(machines: str, claims: list[dict[str, Any]]) -> list[Figure]:
    seconds = [claim["seconds"] for claim in claims if claim["pooled"]]
    note = f"of {len(seconds)}; {len(claims) - len(seconds)} found no machine ready"
    return [
        Figure(
            f"pools, {machines} machines: request to ready, p50", percentile(seconds, 0.5), "s", AIM, note
        ),
        Figure(
            f"pools, {machines} machines: request to ready, p99", percentile(seconds, 0.99), "s", AIM, note
        ),
        Figure(f"pools, {machines} machines: request to ready, max", max(seconds), "s", AIM, note),
    ]


if __name__ == "__main__":
    main(sys.argv[1])
