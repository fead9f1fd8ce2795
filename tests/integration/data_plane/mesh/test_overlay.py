"""The overlay of a cluster on real tunnels between hosts of their own, some behind NAT."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from control_plane.domain.peer_map import Holder, Relay, holders_of
from control_plane.domain.peer_removal import Holding, Reading, Removal, still_holding
from data_plane.access.port import StepFailed, Unreachable
from data_plane.mesh.node import (
    apply_peers,
    differs,
    largest_packet,
    leave_overlay,
    make_next_key,
    make_node_key,
    read_peers,
    switch_key,
)
from data_plane.mesh.pod_filter import TABLE
from data_plane.mesh.port import Peer
from data_plane.mesh.tunnels import Tunnel
from reconciler.overlay import peers_of, place_of, relay_network, sync_relay
from tests.integration.data_plane.mesh.conftest import NUMBERS, OF, RELAY_NUMBER, Cluster, address, pod
from tests.support.networks import a_network
from tests.support.underlay import Host, missing_requirements, reaches

pytestmark = [
    pytest.mark.machines,
    pytest.mark.xdist_group("overlay"),  # They share the hosts.
    pytest.mark.skipif(bool(missing_requirements()), reason="; ".join(missing_requirements())),
]

EVERYBODY = {address(name) for name in NUMBERS}
ALICES = ("open", "nat1", "nat2")
STARTED = "stat -c %Y /run/active-units/wg-quick@spoverlay.service"
CUT, RESTORE = "iptables -A INPUT -i up0 -j DROP", "iptables -F INPUT"


def friends(name: str) -> set[str]:
    """The addresses that a member is to reach, and no other."""
    names = [other for other in NUMBERS if "server" in {name, other} or OF[name] == OF[other]]
    return {address(other) for other in names}


async def echoes(host: Host) -> int:
    """How many echo requests have arrived."""
    head, values = [line.split() for line in (await host.sh("grep ^Icmp: /proc/net/snmp")).splitlines()]
    return int(values[head.index("InEchos")])


@asynccontextmanager
async def restored(cluster: Cluster) -> AsyncIterator[None]:
    """Whatever a test changes is as before after it."""
    members, relay = dict(cluster.members), cluster.relay
    try:
        yield
    finally:
        cluster.members.update(members)
        cluster.relay = relay
        for host in cluster.internet.hosts.values():
            host.away = False
        await cluster.apply()


async def test_members_reach_exactly_those_that_the_map_gives_them(cluster: Cluster) -> None:
    async def seen_from(name: str) -> None:
        host, known = cluster.host(name), friends(name)
        assert await reaches(host, *known) == known, name
        assert await reaches(host, *EVERYBODY - known, seconds=1) == set(), name

    await asyncio.gather(*(seen_from(name) for name in NUMBERS))


async def test_nodes_behind_nat_have_no_tunnel_with_each_other_but_one_with_their_relay(
    cluster: Cluster,
) -> None:
    keys = {name: cluster.members[name].public_key for name in NUMBERS}
    inside = f"nsenter --net=/run/netns/splitplane-{RELAY_NUMBER} -- wg show all peers"
    listed = {line.split()[1] for line in (await cluster.host("hub").sh(inside)).splitlines()}
    assert listed == {keys["nat1"], keys["nat2"]}
    wanted = {address("server"), address("open"), address("nat2")}
    assert await reaches(cluster.host("nat1"), *wanted) == wanted
    found = await read_peers(cluster.host("nat1"))
    assert cluster.relay is not None
    assert found.keys == {keys["server"], keys["open"], cluster.relay.public_key}
    assert all(tunnel.keepalive and not tunnel.silent for tunnel in found.tunnels)
    assert not any(tunnel.keepalive for tunnel in (await read_peers(cluster.host("open"))).tunnels)


async def test_a_node_that_forges_its_configuration_reaches_nobody(cluster: Cluster) -> None:
    bob, victims = cluster.host("bob"), [cluster.host(name) for name in ALICES]
    targets = {where(name) for name in ALICES for where in (address, pod)}
    assert cluster.relay is not None
    doors = [(cluster.relay.public_key, cluster.relay.endpoint)]
    doors += [
        (cluster.members[name].public_key, str(cluster.members[name].endpoint)) for name in ("server", "open")
    ]
    async with restored(cluster):
        before = [await echoes(host) for host in (*victims, cluster.host("server"))]
        for key, endpoint in doors:
            forge = 'wg set spoverlay peer "$1" endpoint "$2" allowed-ips 0.0.0.0/0; ip route replace default dev spoverlay'
            await bob.sh(forge, key, endpoint)
            own = reaches(bob, *targets, seconds=1)
            # From a stolen address nothing comes back, so what counts is what arrives.
            aims = targets | {address("server"), pod("server")}
            stolen = [
                reaches(bob, *aims, source=source, seconds=1) for source in (address("nat1"), pod("open"))
            ]
            assert await asyncio.gather(own, *stolen) == [set()] * 3
        assert [await echoes(host) for host in (*victims, cluster.host("server"))] == before
        await bob.sh("ip route del default dev spoverlay")


async def test_two_organizations_that_work_together_do_not_meet_through_a_server(cluster: Cluster) -> None:
    bob, accomplice, server = (cluster.host(name) for name in ("bob", "open", "server"))
    key = cluster.members["server"].public_key
    let_in = 'wg set spoverlay peer "$1" allowed-ips "$2/32,$3/32"'
    async with restored(cluster):
        await bob.sh(let_in, key, address("server"), address("open"))
        await accomplice.sh(let_in, key, address("server"), address("bob"))
        assert await reaches(bob, address("open"), address("server"), seconds=1) == {address("server")}
        await server.sh(f"nft delete table {TABLE}")
        assert await reaches(bob, address("open"), seconds=1) == set(), "the routing rule needs the filter"
        await server.sh("ip rule del priority 7650")
        assert await reaches(bob, address("open")) == {address("open")}, (
            "neither the rule nor the filter was what kept them apart"
        )


async def test_what_differs_on_a_machine_is_repaired_and_nothing_else_is_touched(cluster: Cluster) -> None:
    host, key = cluster.host("open"), cluster.members["server"].public_key
    other = cluster.members["nat1"].public_key
    overlay, configuration = cluster.overlay(), cluster.configurations()["open"]
    place, peers = place_of(overlay, configuration), peers_of(configuration)
    await reaches(host, *friends("open"))

    def settled(tunnels: tuple[Tunnel, ...]) -> set[tuple[object, ...]]:
        return {
            (one.public_key, one.allowed, one.keepalive, one.handshake_seconds is None) for one in tunnels
        }

    good = await apply_peers(host, place, peers)
    before = await host.sh(f"{STARTED}; stat -c %i /etc/wireguard/spoverlay.sections")
    assert settled((await apply_peers(host, place, peers)).tunnels) == settled(good.tunnels)
    assert await host.sh(f"{STARTED}; stat -c %i /etc/wireguard/spoverlay.sections") == before
    breaks = (
        f"wg set spoverlay peer {key} remove",
        f"wg set spoverlay peer {cluster.members['bob'].public_key} allowed-ips {address('bob')}/32",
        f"wg set spoverlay peer {other} allowed-ips {address('nat1')}/32,{address('server')}/32",
        f"wg set spoverlay peer {key} persistent-keepalive 25",
    )
    for damage in breaks:
        await host.sh(damage)
        assert differs(await read_peers(host), peers), damage
        assert not differs(await apply_peers(host, place, peers), peers), damage
    kept = {one.public_key for one in (await read_peers(host)).tunnels if one.handshake_seconds is not None}
    assert kept >= good.keys - {key}, "a repair has cut tunnels that were right"
    assert await host.sh(STARTED) == before.splitlines()[0] + "\n", (
        "a repair of peers has restarted the interface"
    )


async def test_an_interface_that_is_not_as_it_was_made_is_repaired(cluster: Cluster) -> None:
    host = cluster.host("open")
    good, started = await read_peers(host), await host.sh(STARTED)
    breaks = (
        "ip link set spoverlay mtu 9000",
        "ip rule del priority 7650",
        "ip route flush table 7650",
        "ip route del unreachable 10.48.0.0/12; ip route del 10.64.80.0/20",
        "wg genkey > /run/other; wg set spoverlay private-key /run/other",
        "wg set spoverlay listen-port 7",
        "ip link del spoverlay",
    )
    for damage in breaks:
        assert await host.sh(STARTED) == started, (
            "a repair has restarted the interface, which cuts every tunnel"
        )
        await host.sh(damage)
        found = (await cluster.apply("open"))["open"]
        assert (found.public_key, found.port, found.keys) == (good.public_key, good.port, good.keys), damage
        state = await host.sh("ip link show spoverlay; ip rule; ip route show table 7650; ip route")
        for fact in (
            "mtu 1420",
            "iif spoverlay lookup 7650",
            "blackhole default",
            "unreachable 10.48.0.0/12",
        ):
            assert fact in state, (damage, fact)
        assert "10.64.80.0/20 dev spoverlay" in state, damage
    # The others notice that their sessions are gone when nothing is answered for 15 s; here they are made to.
    for name in ("server", "nat1", "nat2"):
        await cluster.host(name).sh("wg set spoverlay peer $1 remove", cluster.members["open"].public_key)
    await cluster.apply()
    assert await reaches(host, *friends("open")) == friends("open")


async def test_a_server_and_a_hub_that_move_are_reached_at_their_new_addresses(cluster: Cluster) -> None:
    node, beyond = cluster.host("nat1"), {address("server"), address("nat2")}
    move = 'ip address del "198.51.100.$1/24" dev up0; ip address add "198.51.100.$2/24" dev up0'
    await cluster.host("server").sh(move, "2", "102")
    await cluster.host("hub").sh(move, "1", "101")
    async with restored(cluster):
        try:
            assert await reaches(node, *beyond, seconds=1) == set()
            cluster.members["server"] = replace(cluster.members["server"], endpoint="198.51.100.102:51820")
            assert cluster.relay is not None
            cluster.relay = Relay(cluster.relay.public_key, f"198.51.100.101:{20_000 + RELAY_NUMBER}")
            await cluster.apply("nat1", "nat2")
            assert await reaches(node, *beyond) == beyond
        finally:
            await cluster.host("server").sh(move, "102", "2")
            await cluster.host("hub").sh(move, "101", "1")
    assert await reaches(node, *beyond) == beyond


async def test_a_lost_peer_disturbs_nobody_and_comes_back_by_itself(cluster: Cluster) -> None:
    lost, others = cluster.host("open"), friends("nat1") - {address("open")}
    await lost.sh(CUT)
    try:
        assert await reaches(cluster.host("nat1"), *friends("nat1"), seconds=1) == others
    finally:
        await lost.sh(RESTORE)
    assert await reaches(cluster.host("nat1"), *friends("nat1")) == friends("nat1")


async def test_direct_tunnels_live_while_the_hub_is_dead_and_relayed_ones_come_back_with_it(
    cluster: Cluster,
) -> None:
    relayed = {address("nat2")}
    hub = cluster.host("hub")
    await hub.sh(CUT)
    try:
        assert await reaches(cluster.host("open"), *friends("open")) == friends("open")
        assert await reaches(cluster.host("nat1"), *friends("nat1"), seconds=1) == friends("nat1") - relayed
    finally:
        await hub.sh(RESTORE)
    assert await reaches(cluster.host("nat1"), *friends("nat1")) == friends("nat1")


async def test_a_path_that_carries_less_than_the_tunnels_need_is_found(cluster: Cluster) -> None:
    node, gateway = cluster.host("nat2"), cluster.host("nat of nat2")
    assert await largest_packet(node, address("server")) == 1_420
    await gateway.sh("ip link set up0 mtu 1400")
    try:
        assert await largest_packet(node, address("server")) == 1_340
    finally:
        await gateway.sh("ip link set up0 mtu 1500")


async def test_a_rotation_replaces_a_key_at_every_end(cluster: Cluster) -> None:
    host, old = cluster.host("nat1"), cluster.members["nat1"].public_key
    key = await make_next_key(host)
    assert key == await make_next_key(host) != old
    with pytest.raises(StepFailed, match="another next key"):
        await switch_key(host, cluster.members["bob"].public_key)
    cluster.members["nat1"] = replace(cluster.members["nat1"], next_key=key)
    await cluster.apply()
    await cluster.sync_relay()
    assert await reaches(host, *friends("nat1")) == friends("nat1"), "announcing a key has cut a tunnel"
    for _ in range(2):
        await switch_key(host, key)
    cluster.members["nat1"] = replace(cluster.members["nat1"], public_key=key, next_key=None)
    await cluster.apply()
    await cluster.sync_relay()
    assert await reaches(host, *friends("nat1")) == friends("nat1")
    assert await make_node_key(host) == key
    for name in ("server", "open"):
        assert key in (await read_peers(cluster.host(name))).keys
        assert old not in (await read_peers(cluster.host(name))).keys
    assert await make_next_key(host) not in {old, key}


async def test_a_removed_node_is_cut_off_by_all_who_were_told_and_the_others_are_listed(
    cluster: Cluster,
) -> None:
    removed = cluster.members["open"]
    holders = holders_of(cluster.overlay(), removed)
    assert holders == {NUMBERS[name] for name in ("server", "nat1", "nat2")}
    at = datetime(2026, 11, 22, tzinfo=UTC)
    removal = Removal(frozenset(removed.keys), holders, at)
    readings: dict[Holder, Reading] = {}

    async def tell() -> None:
        for name in NUMBERS:
            if NUMBERS[name] in holders:
                try:
                    found = (await cluster.apply(name))[name]
                except Unreachable:
                    continue
                readings[NUMBERS[name]] = Reading(found.keys, at + timedelta(seconds=1))

    await reaches(cluster.host("open"), *friends("open"))
    async with restored(cluster):
        del cluster.members["open"]
        cluster.host("nat2").away = True
        await tell()
        assert still_holding(removal, readings) == (Holding(NUMBERS["nat2"], at, None),)
        assert await reaches(cluster.host("open"), *EVERYBODY, seconds=1) == {
            address("open"),
            address("nat2"),
        }
        cluster.host("nat2").away = False
        await tell()
        assert still_holding(removal, readings) == ()
        assert await reaches(cluster.host("open"), *EVERYBODY, seconds=1) == {address("open")}


async def test_what_a_worker_brings_that_stalled_is_refused_by_machines_and_by_the_hub(
    cluster: Cluster,
) -> None:
    host, overlay = cluster.host("open"), cluster.overlay()
    place, old = (
        place_of(overlay, cluster.configurations()["open"]),
        peers_of(cluster.configurations()["open"]),
    )
    removed = cluster.members["nat1"].public_key
    new = [peer for peer in old if peer.public_key != removed]
    async with restored(cluster):
        await apply_peers(host, place, old, fence=1_763_000_000_000)
        await apply_peers(host, place, new, fence=1_763_000_000_001)
        # wireguard-go lists peers in an order of its own each time.
        kept = "wg show spoverlay allowed-ips | sort; cat /etc/wireguard/spoverlay.*"
        state = await host.sh(kept)
        with pytest.raises(StepFailed, match="set up by a later worker"):
            await apply_peers(host, place, old, fence=1_763_000_000_000)
        assert await host.sh(kept) == state
        assert removed not in (await apply_peers(host, place, new, fence=1_763_000_000_001)).keys
        # A file that a killed machine left empty refuses nothing.
        await host.sh(": > /etc/wireguard/spoverlay.fence")
        await apply_peers(host, place, new, fence=7)
        listed = f"nsenter --net=/run/netns/splitplane-{RELAY_NUMBER} -- wg show all peers"
        without = replace(overlay, nodes={**overlay.nodes, OF["nat1"]: []})
        assert OF["nat1"] is not None
        await sync_relay(cluster.hub, without, OF["nat1"], RELAY_NUMBER, fence=2)
        with pytest.raises(StepFailed, match="set up by a later worker"):
            await sync_relay(cluster.hub, overlay, OF["nat1"], RELAY_NUMBER, fence=1)
        with pytest.raises(StepFailed, match="set up by a later worker"):
            await cluster.hub.drop(relay_network(overlay, RELAY_NUMBER), fence=1)
        assert await cluster.host("hub").sh(listed) == ""
        # What comes late makes no relay again that was dropped.
        await cluster.hub.drop(relay_network(overlay, RELAY_NUMBER + 1), fence=3)
        with pytest.raises(StepFailed, match="set up by a later worker"):
            await sync_relay(cluster.hub, overlay, OF["nat1"], RELAY_NUMBER + 1, fence=2)
        await cluster.sync_relay()


async def test_the_hub_refuses_what_a_stalled_worker_brings_for_a_private_network(cluster: Cluster) -> None:
    network, hub = a_network(9), cluster.hub
    staying, removed = [
        Peer(network.address_of(k), cluster.members[name].public_key)
        for k, name in ((1, "open"), (2, "nat1"))
    ]
    shown = f"nsenter --net=/run/netns/splitplane-{network.number} -- wg show spmesh{network.number} peers"

    async def is_listed() -> bool:
        return removed.public_key in await cluster.host("hub").sh(shown)

    await hub.sync(network, [staying, removed], fence=1)
    assert await is_listed()
    await hub.sync(network, [staying], fence=3)
    with pytest.raises(StepFailed, match="set up by a later worker"):
        await hub.sync(network, [staying, removed], fence=2)
    with pytest.raises(StepFailed, match="set up by a later worker"):
        await hub.drop(network, fence=2)
    assert not await is_listed()
    await hub.drop(network, fence=4)
    with pytest.raises(StepFailed, match="set up by a later worker"):
        await hub.sync(network, [staying, removed], fence=3)
    assert (await cluster.host("hub").sh(f"cd /etc/splitplane/mesh; ls {network.number}.*")).split() == [
        "9.fence"
    ]


async def test_a_node_that_leaves_keeps_neither_interface_nor_keys(cluster: Cluster) -> None:
    host = cluster.host("bob_nat")
    for _ in range(2):
        await leave_overlay(host)
    left = "ls /etc/wireguard; ip link show spoverlay 2>/dev/null || true; ip rule show priority 7650"
    assert await host.sh(left) == ""
    with pytest.raises(StepFailed, match="no interface"):
        await read_peers(host)
    assert await largest_packet(host, address("server")) is None, (
        "that is no failure: it may be made in a moment"
    )
