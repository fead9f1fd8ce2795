"""The peer map of a fleet: how long it takes to plan, and how soon real tunnels carry packets.

The first part computes. The second one has fifty nodes in network namespaces of this machine, on wireguard-go, and
measures what a node notices: from its key to its first handshake, the gap of a key rotation.
"""

import asyncio
import os
import time
from dataclasses import replace
from uuid import UUID

from benchmarks.results import Figure, median
from control_plane.domain.ids import OrganizationId
from control_plane.domain.overlay import address_of
from control_plane.domain.peer_map import (
    Holder,
    Member,
    Overlay,
    Relay,
    Version,
    configurations,
    versions,
)
from data_plane.mesh.node import largest_packet, make_next_key, make_node_key, switch_key
from reconciler.overlay import configure
from tests.support.underlay import Host, Underlay, missing_requirements, underlay

FLEETS = (1_000, 10_000, 100_000)
GROUP = 50
"""Nodes of one organization in one cluster."""
CLUSTER = 4_000
"""Nodes of one cluster."""
SERVERS = 3
HOSTS = int(os.environ.get("BENCH_HOSTS", "50"))
PINGS_EVERY_SECONDS = 0.02
ROTATIONS = 5
WATCHED_SECONDS = 6


def _key(*parts: int) -> str:
    return "-".join(map(str, parts)).ljust(44, "x")


def _cluster(block: int, nodes: int) -> Overlay:
    """A cluster in which half of the nodes are behind NAT."""
    servers = [Member(n, _key(block, 0, n), endpoint=f"192.0.2.{n}:51820") for n in range(1, SERVERS + 1)]
    groups: dict[OrganizationId | None, list[Member]] = {}
    for place in range(nodes):
        endpoint = None if place % 2 else f"203.0.113.{place % 250}:51820"
        member = Member(SERVERS + 1 + place, _key(block, 1, place), place, endpoint)
        groups.setdefault(OrganizationId(UUID(int=place // GROUP)), []).append(member)
    relays = {who: Relay(_key(block, 2, who.int), "192.0.2.9:20001") for who in groups if who is not None}
    return Overlay(block, servers, groups, relays)


def _fleet(nodes: int) -> list[Overlay]:
    return [_cluster(block, min(CLUSTER, nodes - at)) for block, at in enumerate(range(0, nodes, CLUSTER))]


def _computed(nodes: int) -> list[Figure]:
    fleet = _fleet(nodes)
    begun = time.perf_counter()
    tunnels = sum(len(one.peers) for overlay in fleet for one in configurations(overlay))
    planned = time.perf_counter()
    applied: list[dict[Holder, Version]] = [versions(overlay) for overlay in fleet]
    versioned = time.perf_counter()
    # One node has left: who has to be told is its group with its relay, and the servers.
    fleet[0] = _cluster(0, min(CLUSTER, nodes) - 1)
    stale = sum(
        had.get(holder) != version
        for had, overlay in zip(applied, fleet, strict=True)
        for holder, version in versions(overlay).items()
    )
    compared = time.perf_counter()
    return [
        Figure(
            f"{nodes:,} nodes: every configuration", planned - begun, "s", note=f"{tunnels:,} peers listed"
        ),
        Figure(f"{nodes:,} nodes: every version", versioned - planned, "s"),
        Figure(
            f"{nodes:,} nodes: differences after one left", compared - versioned, "s", note=f"{stale} to tell"
        ),
    ]


async def measure() -> list[Figure]:
    figures = [figure for nodes in FLEETS for figure in _computed(nodes)]
    if missing_requirements():
        print("; ".join(missing_requirements()))
        return figures
    async with underlay() as internet:
        return [*figures, *await _tunnels(internet)]


async def _tunnels(internet: Underlay) -> list[Figure]:
    server = await internet.connect("server", 1)
    hosts = [await internet.connect(f"node{n}", n) for n in range(2, 2 + HOSTS)]
    keys = await asyncio.gather(*(make_node_key(host) for host in (server, *hosts)))
    servers = [Member(1, keys[0], endpoint="198.51.100.1:51820")]
    nodes = [Member(n, key, n, f"198.51.100.{n}:51820") for n, key in enumerate(keys[1:], start=2)]
    overlay = Overlay(0, servers, {OrganizationId(UUID(int=1)): nodes})
    wanted = {one.member.number: one for one in configurations(overlay)}
    begun = time.perf_counter()
    await configure(server, overlay, wanted[1])

    async def join(host: Host, number: int) -> float:
        at = time.perf_counter()
        await configure(host, overlay, wanted[number])
        await _answered(host)
        return time.perf_counter() - at

    alone = await join(hosts[0], 2)
    rest = await asyncio.gather(*(join(host, n) for n, host in enumerate(hosts[1:], start=3)))
    whole = time.perf_counter() - begun
    at = time.perf_counter()
    await configure(hosts[0], overlay, wanted[2])
    again = time.perf_counter() - at
    return [
        Figure("one node: key known to first answer of the server", alone, "s"),
        Figure(f"{HOSTS - 1} nodes at once: the same, p50", median(rest), "s"),
        Figure(f"{HOSTS - 1} nodes at once: the same, slowest", max(rest), "s"),
        Figure(f"{HOSTS} nodes, each with {HOSTS} tunnels: until all of them are in", whole, "s"),
        Figure("applying a configuration that is in place", again, "s"),
        *await _rotation(overlay, hosts[0], server),
    ]


async def _answered(host: Host) -> None:
    if await largest_packet(host, address_of(0, 1)) is None:
        raise RuntimeError(f"the server does not answer {host.name}")


_SILENCE = r"""
import os, select, socket, struct, sys, time

peer, seconds, every = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
link = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
blank = struct.pack("!BBHHH", 8, 0, 0, 78, 1) + os.urandom(16)
total = sum(struct.unpack("!12H", blank))
total = (total >> 16) + (total & 0xFFFF)
echo = blank[:2] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + blank[4:]
end, last, longest = time.monotonic() + seconds, time.monotonic(), 0
while time.monotonic() < end:
    link.sendto(echo, (peer, 0))
    again = time.monotonic() + every
    while select.select([link], [], [], max(0, again - time.monotonic()))[0]:
        packet, sender = link.recvfrom(2048)
        if packet[20] == 0 and packet[28:44] == blank[8:]:
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
print(max(longest, time.monotonic() - last))
"""


async def _rotation(overlay: Overlay, host: Host, server: Host) -> list[Figure]:
    """How long the server does not answer a node that changes its key. The server is told at once afterwards."""
    gaps = []
    for _ in range(ROTATIONS):
        key = await make_next_key(host)
        overlay = await _told(_with(overlay, next_key=key), server)
        watch = asyncio.create_task(
            host.sh(
                'program=$1; shift; exec python3 -I -c "$program" "$@"',
                *(_SILENCE, address_of(0, 1), str(WATCHED_SECONDS), str(PINGS_EVERY_SECONDS)),
            )
        )
        await asyncio.sleep(WATCHED_SECONDS / 3)
        await switch_key(host, key)
        overlay = await _told(_with(overlay, public_key=key, next_key=None), server)
        gaps.append(float(await watch))
    return [
        Figure(f"a key rotation: longest silence of the server, p50 of {ROTATIONS}", median(gaps), "s"),
        Figure(f"a key rotation: longest silence of the server, worst of {ROTATIONS}", max(gaps), "s"),
    ]


def _with(overlay: Overlay, **values: str | None) -> Overlay:
    """The overlay with other keys of its first node."""
    ((who, (first, *others)),) = overlay.nodes.items()
    keys = {"public_key": first.public_key, "next_key": first.next_key} | values
    changed = replace(first, public_key=str(keys["public_key"]), next_key=keys["next_key"])
    return Overlay(overlay.block, overlay.servers, {who: [changed, *others]})


async def _told(overlay: Overlay, server: Host) -> Overlay:
    await configure(server, overlay, next(configurations(overlay)))
    return overlay
