"""What the loops do about the tunnels of nodes, on real tunnels: a server, a hub, and nodes on the internet and behind NAT."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from control_plane.db.engine import Database
from control_plane.domain.overlay import SERVER_NUMBER, address_of
from data_plane.access.port import Target
from data_plane.mesh.hub import SshHub
from data_plane.mesh.members import SshMembers
from data_plane.mesh.node import make_node_key, read_peers
from data_plane.mesh.port import NETWORKS_MAX
from reconciler.loops.clusters.sync_overlay import READ_AGAIN_AFTER
from tests.support import clusters, node_pools
from tests.support.clock import Clock
from tests.support.node_cluster import Cluster
from tests.support.rows import rows
from tests.support.stage import set_stage
from tests.support.underlay import Host, Underlay, missing_requirements, reaches, underlay

pytestmark = [
    pytest.mark.machines,
    pytest.mark.database,
    pytest.mark.xdist_group("overlay"),
    pytest.mark.skipif(bool(missing_requirements()), reason="; ".join(missing_requirements())),
]

_OPERATING = Path("docs/operating.md").read_text()
OURS, THEIRS = ("open", "nat1", "nat2"), ("bob1", "bob2")
OUTSIDE = {"hub": 1, "server": 2, "open": 11, "nat1": 12, "nat2": 13, "bob1": 22, "bob2": 23}
ANSWERS = r"""
import os, socket, struct, sys, time

link = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
link.settimeout(0.02)
blank = struct.pack("!BBHHH", 8, 0, 0, 78, 1) + os.urandom(16)
total = sum(struct.unpack("!12H", blank))
total = (total >> 16) + (total & 0xFFFF)
echo = blank[:2] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + blank[4:]
while not os.path.exists("/run/enough"):
    try:
        link.sendto(echo, (sys.argv[1], 0))
        packet = link.recv(2048)
        if packet[20] == 0 and packet[28:44] == blank[8:]:
            print(time.monotonic())
    except OSError:
        pass
    time.sleep(0.02)
"""
"""Prints the times of answers to echoes, until somebody has had enough."""


@dataclass
class _Access:
    """`Access` to the hosts, by their addresses on the internet."""

    internet: Underlay

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncIterator[Host]:
        (name,) = [name for name, number in OUTSIDE.items() if target.address == f"198.51.100.{number}"]
        yield self.internet.hosts[name]


@dataclass
class _Tunnels:
    """A cluster whose nodes are opened by simulation, and whose tunnels are real from then on."""

    cluster: Cluster
    internet: Underlay
    numbers: dict[str, int]
    overlay: int

    def host(self, name: str) -> Host:
        return self.internet.hosts[name]

    def address(self, name: str) -> str:
        return address_of(self.overlay, self.numbers[name])

    async def run(self, *names: str) -> None:
        for name in names:
            for report in await self.cluster.stage.run(name):
                assert not report.errors
            self.cluster.stage.clock.advance(3)

    async def due(self, column: str, *names: str) -> None:
        statement = text(f"UPDATE nodes SET {column} = :now WHERE number = ANY(:numbers)")
        values = {"now": self.cluster.stage.clock.now(), "numbers": [self.numbers[name] for name in names]}
        async with self.cluster.stage.db.transaction() as connection:
            await connection.execute(statement, values)

    async def rows(self) -> dict[str, Any]:
        async with self.cluster.stage.db.reading() as connection:
            found = await rows(connection, text("SELECT * FROM nodes"))
        names = {number: name for name, number in self.numbers.items()}
        return {names[row.number]: row for row in found}


@pytest.fixture
async def tunnels(db: Database, api_db: Database, clock: Clock) -> AsyncIterator[_Tunnels]:
    stage = await set_stage(db, clock, api_db=api_db)
    cluster = Cluster(stage)
    owner, other = await cluster.build(), await stage.organization()
    for whose, names in ((owner, OURS), (other, THEIRS)):
        await node_pools.pool(stage, whose, nodes=len(names))
    await cluster.play_until(lambda: len(cluster.open_nodes) == len(OURS + THEIRS))
    await cluster.play(10)
    async with underlay() as internet:
        await asyncio.gather(*(internet.connect(name, OUTSIDE[name]) for name in ("hub", "server", "open")))
        hidden = (*OURS[1:], *THEIRS)
        await asyncio.gather(*(internet.connect_behind_nat(name, OUTSIDE[name]) for name in hidden))
        yield await _made_real(cluster, internet, {owner: list(OURS), other: list(THEIRS)})


async def _made_real(cluster: Cluster, internet: Underlay, names: dict[Any, list[str]]) -> _Tunnels:
    stage, access = cluster.stage, _Access(internet)
    hub = SshHub(access, Target(f"198.51.100.{OUTSIDE['hub']}", 22, "", "hub"))
    stage.world = dataclasses.replace(stage.world, members=SshMembers(access), hub=hub)
    found = _Tunnels(cluster, internet, {"server": SERVER_NUMBER}, 0)
    async with stage.db.reading() as connection:
        stored = await rows(connection, text("SELECT * FROM nodes ORDER BY number"))
        (row,) = await rows(connection, text("SELECT overlay FROM clusters"))
    found.overlay = row.overlay
    async with stage.db.transaction() as connection:
        for node in stored:
            name = names[node.organization_id].pop(0)
            found.numbers[name] = node.number
            address, key = f"198.51.100.{OUTSIDE[name]}", await make_node_key(internet.hosts[name])
            await connection.execute(
                text("UPDATE machines SET address = :address WHERE id = :id"),
                {"address": address, "id": node.machine_id},
            )
            await connection.execute(
                text(
                    "UPDATE nodes SET public_key = :key, endpoint = NULL, applied_version = NULL WHERE id = :id"
                ),
                {"key": key, "id": node.id},
            )
        await connection.execute(text("UPDATE overlays SET public_key = NULL, applied_version = NULL"))
        await connection.execute(
            text("UPDATE server_hosts SET address = :address, outside = :address"),
            {"address": f"198.51.100.{OUTSIDE['server']}"},
        )
    return found


async def test_the_loops_find_out_who_is_behind_nat_relay_them_and_change_their_keys(
    tunnels: _Tunnels, record_testsuite_property: Callable[[str, object], None]
) -> None:
    await tunnels.run("sync_overlay", "sync_overlay")
    everybody = (*OURS, *THEIRS)
    await tunnels.due("tunnels_due_at", *everybody)
    gateway = tunnels.host("nat of nat1")
    await gateway.sh("ip link set up0 mtu 1400")
    await tunnels.run("check_tunnels")
    await gateway.sh("ip link set up0 mtu 1500")
    found = await tunnels.rows()
    assert {name for name, row in found.items() if row.endpoint} == {"open"}, "what was heard from outside"
    assert found["nat2"].tunnels["largest_packet"] == 1_420
    assert "more than 1340 bytes are lost" in found["nat1"].tunnels["problem"]
    await tunnels.run("sync_overlay", "sync_overlay")

    inside = "for space in /run/netns/*; do nsenter --net=$space -- wg show all peers; done"
    relayed: dict[str, set[str]] = {}
    for line in (await tunnels.host("hub").sh(inside)).splitlines():
        device, key = line.split()
        relayed.setdefault(device, set()).add(key)
    keys = {name: row.public_key for name, row in found.items()}
    expected = {frozenset({keys["nat1"], keys["nat2"]}), frozenset({keys["bob1"], keys["bob2"]})}
    assert {frozenset(peers) for peers in relayed.values()} == expected, "a relay for each organization"
    assert min(int(device.removeprefix("spmesh")) for device in relayed) >= NETWORKS_MAX

    mine = {tunnels.address(name) for name in ("open", "nat2", "server")}
    theirs = {tunnels.address(name) for name in THEIRS}
    nat1 = tunnels.host("nat1")
    assert await reaches(nat1, *mine) == mine
    assert await reaches(nat1, *theirs, seconds=1) == set()
    assert await reaches(tunnels.host("bob1"), tunnels.address("bob2")) == {tunnels.address("bob2")}

    pause = await _key_changed(tunnels)
    record_testsuite_property("pause_seconds", round(pause, 2))
    assert await reaches(nat1, *mine) == mine
    assert (await read_peers(nat1)).public_key == (await tunnels.rows())["nat1"].public_key != keys["nat1"]
    listed = (await read_peers(tunnels.host("server"))).keys
    assert keys["nat1"] not in listed
    assert pause < 60, "the tunnels did not come back by themselves"

    pause = await _server_key_changed(tunnels)
    record_testsuite_property("server_pause_seconds", round(pause, 2))
    assert await reaches(nat1, *mine) == mine
    assert pause < 60, "the tunnels with the server did not come back by themselves"
    await _relay_key_removed(tunnels)
    assert await reaches(nat1, *mine) == mine


async def _key_changed(tunnels: _Tunnels) -> float:
    """Change the key of a node behind NAT by the loops. Returns for how long another one had no answer, in seconds."""
    await tunnels.due("key_due_at", "nat1")
    async with _watched(tunnels, "nat2", "nat1") as pauses:
        for _ in range(2):
            await tunnels.run("rotate_node_keys", "sync_overlay")
        await tunnels.run("rotate_node_keys")
        row = (await tunnels.rows())["nat1"]
        assert (row.next_key, row.old_key, row.key_holders) == (None, None, None)
    return max(pauses)


async def _server_key_changed(tunnels: _Tunnels) -> float:
    """An operator has the server's key changed. Returns for how long it did not answer a node behind NAT, in seconds."""
    old = (await read_peers(tunnels.host("server"))).public_key
    await clusters.key_asked(tunnels.cluster.stage, "eu-1")
    async with _watched(tunnels, "nat1", "server") as pauses:
        await tunnels.run(*["sync_overlay"] * 3)
    new = (await read_peers(tunnels.host("server"))).public_key
    assert new != old
    for name in ("nat1", "open", "bob1"):
        listed = (await read_peers(tunnels.host(name))).keys
        assert (new in listed, old in listed) == (True, False), name
    return max(pauses)


async def _relay_key_removed(tunnels: _Tunnels) -> None:
    """An operator removes the key of a relay, as docs/operating.md says."""
    async with tunnels.cluster.stage.db.reading() as connection:
        before = await rows(connection, text("SELECT number, public_key FROM relays"))
    assert "    rm /etc/splitplane/mesh/4096.key\n" in _OPERATING
    for relay in before:
        number = NETWORKS_MAX + relay.number
        await tunnels.host("hub").sh(f"rm /etc/splitplane/mesh/{number}.key")
    tunnels.cluster.stage.clock.advance(READ_AGAIN_AFTER.total_seconds())
    await tunnels.run("sync_overlay")
    listed = (await read_peers(tunnels.host("nat1"))).keys
    assert not {relay.public_key for relay in before} & listed
    async with tunnels.cluster.stage.db.reading() as connection:
        after = await rows(connection, text("SELECT public_key FROM relays"))
    assert len({relay.public_key for relay in after} & listed) == 1


@asynccontextmanager
async def _watched(tunnels: _Tunnels, name: str, other: str) -> AsyncIterator[list[float]]:
    """How long a host waited from one answer of another to the next, in seconds; known in the end."""
    host, address = tunnels.host(name), tunnels.address(other)
    await host.sh("rm -f /run/enough")
    program = 'program=$1; shift; exec python3 -I -c "$program" "$@"'
    watching = asyncio.create_task(host.sh(program, ANSWERS, address))
    pauses: list[float] = []
    assert await reaches(host, address)
    yield pauses
    assert await reaches(host, address)
    await host.sh("touch /run/enough")
    times = [float(line) for line in (await watching).splitlines()]
    pauses += [later - earlier for earlier, later in pairwise(times)]
