"""From the API's answer to the packet that passes, and to the packet that does not pass any more.

Through the product, on a real machine of the local provider (`demo/city.py`). Nothing listens at the port: a packet
that passes the machine's firewall is answered with a refusal at once, one that does not pass is never answered.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from benchmarks.results import Figure, median
from demo import packages
from demo.city import City
from demo.prices import SKU
from demo.processes import wait_for
from demo.story import CUSTOMER_KEY

RUNS = int(os.environ.get("BENCH_RUNS", "10"))
PORT = 8080
AIM = "<= 10"
ANSWERED_SECONDS_MAX = 0.1
"""A machine on this host answers within a millisecond; what it does not answer by then was dropped."""
GIVEN_UP_SECONDS = 60.0
READY_SECONDS_MAX = 300.0


async def measure() -> list[Figure]:
    absent = packages.missing()
    if absent:
        print("firewalls is left out: " + "; ".join(absent))
        return []
    # In a process of its own, because the city runs loops and handles signals by itself.
    command = [sys.executable, "-m", "benchmarks.firewalls"]
    found = await asyncio.to_thread(subprocess.run, command, stdout=subprocess.PIPE, check=True)
    return _figures(json.loads(found.stdout))


def main() -> None:
    with TemporaryDirectory() as folder:
        city = City(Path(folder), real_machines=True, say=lambda _: None)
        try:
            city.start()
            with httpx.Client(
                base_url=city.api_url, headers={"Authorization": f"Bearer {city.api_key}"}, timeout=30
            ) as client:
                lease = _leased(city, client)
                print(json.dumps([_run(client, lease) for _ in range(RUNS)]))
        finally:
            city.stop()


def _leased(city: City, client: httpx.Client) -> dict[str, Any]:
    """A lease whose customer can log in."""
    key = city.directory / "customer" / CUSTOMER_KEY
    key.parent.mkdir(parents=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = key.with_suffix(".pub").read_text().strip()
    reconciler = city.children["reconciler"]

    def offered() -> bool:
        offers = _answer(client.get("/v1/offers?provider=local"))["items"]
        return any(offer["available"] for offer in offers)

    def ready() -> bool:
        return bool(_answer(client.get(f"/v1/leases/{made['id']}"))["state"] == "ready")

    wait_for("the first offers", 60, offered, reconciler)
    _answer(client.post("/v1/ssh-keys", json={"name": "laptop", "public_key": public}))
    wanted = {"sku": SKU, "name": "bench", "providers": ["local"]}
    made = _answer(client.post("/v1/leases", json=wanted))
    wait_for("a ready lease", READY_SECONDS_MAX, ready, reconciler)
    found: dict[str, Any] = _answer(client.get(f"/v1/leases/{made['id']}"))
    return found


def _run(client: httpx.Client, lease: dict[str, Any]) -> tuple[float, float]:
    """Seconds until an opened port is reached, and until a closed one is not."""
    path, address = f"/v1/leases/{lease['id']}/firewall-rules", str(lease["machine"]["address"])
    if _passes(address):
        raise RuntimeError(f"tcp/{PORT} is open before any rule opens it")
    rule = _answer(client.post(path, json={"protocol": "tcp", "ports": str(PORT), "sources": ["0.0.0.0/0"]}))
    opened = _seconds_until(lambda: _passes(address))
    _seconds_until(lambda: _answer(client.get(path))["state"] == "applied")
    client.delete(f"{path}/{rule['id']}").raise_for_status()
    closed = _seconds_until(lambda: not _passes(address))
    _seconds_until(lambda: _answer(client.get(path))["state"] == "applied")
    return opened, closed


def _passes(address: str) -> bool:
    """Whether the firewall of a machine lets a connection in, which nobody accepts."""
    try:
        with socket.create_connection((address, PORT), timeout=ANSWERED_SECONDS_MAX):
            return True
    except ConnectionRefusedError:
        return True
    except TimeoutError:
        return False


def _seconds_until(holds: Callable[[], bool]) -> float:
    begun = time.monotonic()
    while not holds():
        if time.monotonic() - begun > GIVEN_UP_SECONDS:
            raise RuntimeError("the rule has no effect")
        time.sleep(0.01)
    return time.monotonic() - begun


def _answer(response: httpx.Response) -> Any:
    response.raise_for_status()
    return response.json()


def _figures(runs: list[tuple[float, float]]) -> list[Figure]:
    opened, closed = ([each[which] for each in runs] for which in (0, 1))
    note = f"of {len(runs)}"
    return [
        Figure("firewall: opened until a packet passes, p50", median(opened), "s", AIM, note),
        Figure("firewall: opened until a packet passes, max", max(opened), "s", AIM, note),
        Figure("firewall: closed until none passes, p50", median(closed), "s", AIM, note),
        Figure("firewall: closed until none passes, max", max(closed), "s", AIM, note),
    ]


if __name__ == "__main__":
    main()
