"""`python -m tests.support.hostile_tenant`: plays a hostile tenant against an installation that runs, such as staging.

It needs two organizations that were made for it, and takes an API key of an owner of each. What it makes there stays,
except for the leases and node pools, which it ends. Ways through the sign-in of people are left out, because people sign in there.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx

from tests.support.hostile_tenant.play import PAUSE_SECONDS, Verdict, play, playable, witnessed
from tests.support.hostile_tenant.things import (
    NotPlantedError,
    Things,
    plant,
    ssh_public_key,
    with_certificate,
    with_nodes,
    with_places,
)
from tests.support.hostile_tenant.way import Stand
from tests.support.hostile_tenant.ways import WAYS

READY_SECONDS_MAX = 900
"""So long a lease may take until it is ready, or has ended. A machine has to be there for an SSH certificate."""
LINES_SECONDS = 5
"""So long it may take until refusals are in the audit log, where one second is usual."""
_KEYS = ("ATTACKER_API_KEY", "VICTIM_API_KEY", "OPERATOR_API_KEY")


def _client(url: str, secret: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {secret}"}, timeout=30)


async def _tenant(http: httpx.AsyncClient, marker: str, sku: str, cluster: str | None) -> Things:
    things = await plant(http, marker, sku=sku)
    await _settled(http, things)
    things = await with_certificate(http, things)
    if cluster is not None:
        things = await with_nodes(http, things, cluster, sku=sku)
        await _issued(http, things)
    await asyncio.sleep(LINES_SECONDS)
    return await with_places(http, things)


async def _settled(http: httpx.AsyncClient, things: Things) -> None:
    """Wait until nothing of the leases changes by itself: two are ready, and the released one has ended."""
    states: dict[str, str] = {}
    for _ in range(READY_SECONDS_MAX):
        leases = (await http.get("/v1/leases", params={"project": things["project"]})).json()["items"]
        states = {lease["id"]: lease["state"] for lease in leases}
        live = [states.pop(things[lease], "none") for lease in ("lease", "second lease")]
        if live == ["ready", "ready"] and set(states.values()) <= {"ended"}:
            return
        await asyncio.sleep(1)
    raise NotPlantedError(f"after {READY_SECONDS_MAX} s the leases are {live} and {list(states.values())}")


async def _issued(http: httpx.AsyncClient, things: Things) -> None:
    """Wait until there is a kubeconfig that could be rotated."""
    for _ in range(READY_SECONDS_MAX):
        if (await http.get(f"/v1/kubeconfigs/{things['kubeconfig']}")).json()["state"] != "wanted":
            return
        await asyncio.sleep(1)
    raise NotPlantedError(f"after {READY_SECONDS_MAX} s the kubeconfig is not issued")


async def _lines(http: httpx.AsyncClient, request_ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    await asyncio.sleep(LINES_SECONDS)
    found: dict[str, Mapping[str, Any]] = {}
    query = {"outcome": "refused", "limit": "200"}
    while True:
        page = (await http.get("/v1/audit-events", params=query)).raise_for_status().json()
        found |= {line["request_id"]: line for line in page["items"] if line["request_id"] in request_ids}
        if page["next_cursor"] is None:
            return found
        query["cursor"] = page["next_cursor"]


async def _released(http: httpx.AsyncClient, things: Things) -> None:
    of_project = {"project": things["project"]}
    for pool in (await http.get("/v1/node-pools")).json()["items"]:
        if pool["name"].startswith(things.marker):
            await http.post(f"/v1/node-pools/{pool['id']}/deletion")
    for lease in (await http.get("/v1/leases", params=of_project)).json()["items"]:
        await http.post(f"/v1/leases/{lease['id']}/release")


async def _played(arguments: argparse.Namespace) -> list[Verdict]:
    attacker, victim, operator = (os.environ.get(name, "") for name in _KEYS)
    async with _client(arguments.url, attacker) as http, _client(arguments.url, victim) as theirs:
        mine = await _tenant(http, "attacker-" + os.urandom(6).hex(), arguments.sku, arguments.cluster)
        planted = await _tenant(theirs, "planted-" + os.urandom(6).hex(), arguments.sku, arguments.cluster)
        stand = Stand(
            http,
            attacker,
            mine,
            replace(planted, secrets=planted.secrets | {victim}),
            common={
                "sku": arguments.sku,
                "cluster": arguments.cluster or "",
                "attackers lease": mine["released lease"],
                "attackers ready lease": mine["lease"],
                "attackers ssh key": mine["ssh key"],
                "attackers user": mine["user"],
                "attackers public key": mine["public key"],
                "attacker": (await http.get("/v1/me")).json()["subject"],
                "fresh public key": ssh_public_key("fresh"),
                "new public key": ssh_public_key("new"),
            },
            operator=_client(arguments.url, operator) if operator else None,
        )
        try:
            ways = playable(WAYS, stand)
            print(
                f"{len(ways)} ways, about {PAUSE_SECONDS * len(ways) // 60 + 1:g} minutes; {len(WAYS) - len(ways)} are left out"
            )
            return await play(
                ways, stand, digest=lambda: witnessed(theirs, planted), lines=lambda ids: _lines(http, ids)
            )
        finally:
            await _released(http, mine)
            await _released(theirs, planted)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.hostile_tenant",
        description="Let one organization try to reach another one. Set ATTACKER_API_KEY and VICTIM_API_KEY to keys of"
        " owners of two organizations that were made for this, and OPERATOR_API_KEY to try the operators' endpoints too.",
    )
    parser.add_argument("--url", required=True, help="the API, such as https://staging.example.com")
    parser.add_argument(
        "--sku", required=True, help="a cheap SKU: six leases of it are made, and released at the end"
    )
    parser.add_argument(
        "--cluster",
        help="a shared cluster that is ready: node pools and kubeconfigs are made there; without it, such ways are left out",
    )
    arguments = parser.parse_args()
    missing = [name for name in _KEYS[:2] if not os.environ.get(name)]
    if missing:
        parser.error(f"set {' and '.join(missing)}")
    try:
        verdicts = asyncio.run(_played(arguments))
    except (NotPlantedError, httpx.HTTPError) as error:
        print(f"cannot play: {error}", file=sys.stderr)
        return 2
    for verdict in verdicts:
        line = "" if verdict.line is None else f"  {verdict.line['event']} {verdict.line['code']}"
        print(f"{'refused' if verdict.refused else 'REACHED':8} {verdict.way.name}{line}")
        for fault in verdict.faults:
            print(f"         {fault}")
    reached = sum(not verdict.refused for verdict in verdicts)
    print(f"{len(verdicts) - reached} refused, {reached} not")
    return 1 if reached else 0


if __name__ == "__main__":
    sys.exit(main())
