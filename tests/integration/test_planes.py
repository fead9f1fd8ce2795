"""The control plane is killed for a minute while customers work on real machines of two providers."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from demo.city import City
from demo.packages import missing
from demo.prices import SKU
from demo.processes import wait_for

pytestmark = [
    pytest.mark.machines,
    pytest.mark.skipif(bool(missing()), reason="; ".join(missing())),
]

AWAY_SECONDS = 60
"""How long nothing of the control plane runs."""
GAP_SECONDS_MAX = 5.0
"""By how much the lines of a program that writes one every half second may be apart on a busy machine."""
COUNTING = "nohup sh -c 'while :; do date +%s.%N >> ticks; sleep 0.5; done' > /dev/null 2>&1 &"
PINGING = "nohup ping -D -n -O -i 0.5 {address} > pings 2>&1 &"


class Customer:
    """Types commands, as in the README."""

    def __init__(self, city: City) -> None:
        self._city = city

    def types(self, *arguments: str) -> str:
        command = [str(Path(sys.executable).with_name("splitplane")), *arguments]
        done = subprocess.run(
            command,
            env=self._city.customer_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def on(self, lease: str, command: str) -> str:
        return self.types("lease", "ssh", lease, "--", command)

    def lease(self, name: str) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.types("lease", "show", name, "--json"))
        return shown


@pytest.fixture
def city(tmp_path: Path) -> Iterator[City]:
    city = City(tmp_path, real_machines=True, say=print)
    try:
        city.start()
        yield city
    finally:
        city.kill()


def _longest_gap(moments: list[float]) -> float:
    return max(later - sooner for sooner, later in pairwise(moments))


def test_machines_tunnels_and_programs_outlive_the_control_plane_and_its_meter_loses_nothing(
    city: City,
) -> None:
    customer = Customer(city)
    providers = {"a": "local", "b": "lambda_cloud"}
    for name, provider in providers.items():
        customer.types("lease", "create", SKU, "--name", name, "--provider", provider)
    address = customer.lease("b")["machine"]["mesh_address"]
    for name in providers:
        customer.on(name, COUNTING)
    customer.on("a", PINGING.format(address=address))
    customer.on("a", "timeout 30 sh -c 'until grep -q \"bytes from\" pings; do sleep 0.1; done'")

    killed_at = time.time()
    for process in ("api", "reconciler"):
        city.children[process].kill()
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{city.api_url}/healthz")
    wait_for("the end of the outage", AWAY_SECONDS + 5, lambda: time.time() >= killed_at + AWAY_SECONDS)
    city.start_reconciler()
    city.start_api()
    back_at = time.time()

    for name in providers:
        assert customer.lease(name)["state"] == "ready"
        ticks = [float(line) for line in customer.on(name, "cat ticks").split()]
        assert ticks[0] < killed_at < back_at < ticks[-1]
        assert _longest_gap(ticks) < GAP_SECONDS_MAX, f"the customer's program on {name} stood still"
    pings = customer.on("a", "cat pings").splitlines()
    answered = [float(line[1:].partition("]")[0]) for line in pings if "bytes from" in line]
    assert answered[0] < killed_at < back_at < answered[-1]
    assert _longest_gap(answered) < GAP_SECONDS_MAX, "the tunnel stood still"

    customer.types("lease", "release", *providers, "--yes")
    for name in providers:
        customer.types("lease", "watch", name, "--until", "ended")
    rows = json.loads(customer.types("usage", "--json"))["items"]
    for name in providers:
        _no_second_is_missing([row for row in rows if row["lease_name"] == name], killed_at, back_at)


def _no_second_is_missing(rows: list[dict[str, Any]], since: float, until: float) -> None:
    """The charges of a lease follow each other without a gap, from before `since` until after `until`."""
    spans = [
        [datetime.fromisoformat(row[end]).timestamp() for end in ("started_at", "ended_at")] for row in rows
    ]
    assert spans[0][0] < since < until < spans[-1][1]
    assert [begin for begin, _ in spans[1:]] == [end for _, end in spans[:-1]]
    assert sum(row["unit_seconds"] for row in rows) == spans[-1][1] - spans[0][0], "each machine has one GPU"
