"""Pods' packets in VXLAN, as flannel carries them, on real tunnels: who gets through, and who is refused."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from data_plane.mesh.node import leave_overlay
from data_plane.mesh.pod_filter import TABLE
from tests.integration.data_plane.mesh.conftest import NUMBERS, Cluster, address, pod
from tests.support.underlay import Host, missing_requirements, reaches

pytestmark = [
    pytest.mark.machines,
    pytest.mark.xdist_group("overlay"),
    pytest.mark.skipif(bool(missing_requirements()), reason="; ".join(missing_requirements())),
]

OUTSIDE = {"hub": "198.51.100.1", "server": "198.51.100.2", "open": "198.51.100.11", "bob": "198.51.100.21"}
DEVICE = """
ip link add flannel.1 address "$1" type vxlan id 1 dev "$2" local "$3" dstport 8472 nolearning
ip address add "$4" dev flannel.1
ip link set flannel.1 mtu 1370 up
"""
WAY = """
ip neigh replace "$1" lladdr "$2" nud permanent dev flannel.1
bridge fdb replace "$2" dev flannel.1 dst "$3"
"""
ROUTE = 'ip route replace "$1" via "$2" dev flannel.1 onlink'


def gateway(name: str) -> str:
    """The address of a member's own VXLAN device."""
    return pod(name).removesuffix(".1") + ".0"


def mac(name: str) -> str:
    return f"02:00:00:00:00:{NUMBERS.get(name, 99):02x}"


async def route(host: Host, target: str, through: str) -> None:
    """Send packets for the target (an address or a range) in VXLAN to another member."""
    await host.sh(ROUTE, target, gateway(through))


async def find_others(cluster: Cluster, name: str) -> None:
    host = cluster.host(name)
    for other in NUMBERS:
        if other != name:
            await host.sh(WAY, gateway(other), mac(other), address(other))
            await route(host, f"{gateway(other)}/24", other)


@asynccontextmanager
async def flannel(cluster: Cluster) -> AsyncIterator[None]:
    """Every member has a device as flannel makes it, and knows those of all members: every kubelet can read them."""

    async def begin(name: str) -> None:
        host = cluster.host(name)
        await host.sh(DEVICE, mac(name), "spoverlay", address(name), f"{gateway(name)}/32")
        await find_others(cluster, name)

    await asyncio.gather(*(begin(name) for name in NUMBERS))
    try:
        yield
    finally:
        await asyncio.gather(*(cluster.host(name).sh("ip link del flannel.1") for name in NUMBERS))


async def arrived(hosts: Iterable[Host]) -> int:
    """How many echo requests have reached these hosts."""
    total = 0
    for host in hosts:
        head, values = [line.split() for line in (await host.sh("grep ^Icmp: /proc/net/snmp")).splitlines()]
        total += int(values[head.index("InEchos")])
    return total


async def test_pods_of_one_organization_reach_each_other_and_the_server_in_vxlan(cluster: Cluster) -> None:
    async with flannel(cluster):
        alices, strangers = ("open", "nat1", "nat2"), {pod("bob"), pod("bob_nat")}
        for name in alices:
            assert await reaches(cluster.host(name), *strangers, source=pod(name), seconds=1) == set(), name
        for name, others in (
            ("open", ("nat1", "server")),
            ("nat1", ("nat2", "server")),
            ("server", ("bob_nat",)),
        ):
            wanted = {pod(other) for other in others}
            assert await reaches(cluster.host(name), *wanted, source=pod(name)) == wanted, name
            # A process of the machine itself sends from the address of its VXLAN device.
            assert await reaches(cluster.host(name), *wanted, source=gateway(name)) == wanted, name


# Attacks by the node `open`, or by the host of the hub, which stands for anybody on the internet. Each returns whether it
# has succeeded.


async def tenant_to_tenant(cluster: Cluster) -> bool:
    """Through the server, with an accomplice who sends the answers the same way."""
    await route(cluster.host("open"), pod("bob"), "server")
    await route(cluster.host("bob"), pod("open"), "server")
    return bool(await reaches(cluster.host("open"), pod("bob"), source=pod("open"), seconds=1))


async def through_the_server_to_the_internet(cluster: Cluster) -> bool:
    node, hub = cluster.host("open"), cluster.host("hub")
    await route(node, OUTSIDE["hub"], "server")
    before = await arrived([hub])
    await reaches(node, OUTSIDE["hub"], source=pod("open"), seconds=0.5)
    await node.sh('ip route del "$1" dev flannel.1', OUTSIDE["hub"])
    return await arrived([hub]) > before


async def as_a_pod_of_somebody_else(cluster: Cluster) -> bool:
    before = await arrived([cluster.host("server")])
    await reaches(cluster.host("open"), pod("server"), source=pod("bob"), seconds=0.5)
    return await arrived([cluster.host("server")]) > before


async def to_public_addresses_without_a_tunnel(cluster: Cluster) -> bool:
    """From an address in the overlay that the victim takes VXLAN from: nothing on the way asks whose it is."""
    hub, arrivals = cluster.host("hub"), []
    for victim, forged in (("server", "open"), ("bob", "server")):
        before = await arrived([cluster.host(victim)])
        await hub.sh('ip address add "$1" dev lo', address(forged))
        await hub.sh(DEVICE, mac("hub"), "up0", address(forged), "10.48.99.0/32")
        await hub.sh(WAY, gateway(victim), mac(victim), OUTSIDE[victim])
        await route(hub, pod(victim), victim)
        await reaches(hub, pod(victim), source=pod("open"), seconds=0.5)
        await hub.sh('ip link del flannel.1; ip address del "$1" dev lo', address(forged))
        arrivals.append(await arrived([cluster.host(victim)]) > before)
    assert len(set(arrivals)) == 1, "one of the two is protected otherwise"
    return all(arrivals)


async def with_the_server_as_a_router(cluster: Cluster) -> bool:
    """By a neighbour in the server's own network."""
    hub, bob = cluster.host("hub"), cluster.host("bob")
    before = await arrived([bob])
    await hub.sh('ip route replace "$1" via "$2"', pod("bob"), OUTSIDE["server"])
    await reaches(hub, pod("bob"), source=pod("open"), seconds=0.5)
    await hub.sh('ip route del "$1"', pod("bob"))
    return await arrived([bob]) > before


async def from_and_to_addresses_of_pods_outside_vxlan(cluster: Cluster) -> bool:
    """A tunnel lets its own node's 256 addresses of pods through, each of which would be one more sender."""
    node, server = cluster.host("open"), cluster.host("server")
    await node.sh('ip route replace "$1" dev spoverlay', pod("server"))
    arrivals = []
    for source, target in ((pod("open"), address("server")), (address("open"), pod("server"))):
        before = await arrived([server])
        await reaches(node, target, source=source, seconds=0.5)
        arrivals.append(await arrived([server]) > before)
    await node.sh('ip route del "$1"', pod("server"))
    assert len(set(arrivals)) == 1, "one of the two is refused otherwise"
    return all(arrivals)


async def with_the_device_of_another_node(cluster: Cluster) -> bool:
    """A Node says which device is its own, and the server's flannel believes it."""
    node, server = cluster.host("open"), cluster.host("server")
    await node.sh('ip link set flannel.1 address "$1"; ip address add "$2/32" dev lo', mac("bob"), pod("bob"))
    await server.sh('bridge fdb replace "$1" dev flannel.1 dst "$2"', mac("bob"), address("open"))
    before = await arrived([node])
    await reaches(server, pod("bob"), source=pod("server"), seconds=0.5)
    has_arrived = await arrived([node]) > before
    await server.sh(WAY, gateway("bob"), mac("bob"), address("bob"))
    await node.sh(
        'ip link set flannel.1 address "$1"; ip address del "$2/32" dev lo', mac("open"), pod("bob")
    )
    await find_others(cluster, "open")  # The kernel forgets neighbours when a device changes its address.
    return has_arrived


BEGIN_POD = """
ip netns add pod
ip link add pod0 type veth peer name eth0 netns pod
ip link set pod0 master cni0 up
ip netns exec pod sh -c 'echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_dad; ip link set eth0 up'
for _ in $(seq 100); do
  node=$(ip -o -6 address show dev cni0 scope link -tentative | awk '{ sub("/.*", "", $4); print $4 }')
  [ -z "$node" ] || break
  sleep 0.1
done
echo "$node"
"""
# A port at which nobody listens: whoever gets there is told so.
CONNECT = """
import socket, sys
pod = socket.socket(socket.AF_INET6)
pod.settimeout(1)
try:
    pod.connect((sys.argv[1], 9, 0, socket.if_nametoindex("eth0")))
except ConnectionRefusedError:
    print("reached")
except TimeoutError:
    print("lost")
"""


async def from_a_pod_to_its_node_in_ipv6(cluster: Cluster) -> bool:
    """From the address that the kernel gives to every interface, whatever the cluster has."""
    node = cluster.host("open")
    address_of_node = (await node.sh(BEGIN_POD)).strip()
    assert address_of_node.startswith("fe80:"), "the bridge has such an address, too"
    try:
        said = await node.sh('ip netns exec pod python3 -I -c "$1" "$2"', CONNECT, address_of_node)
    finally:
        await node.sh("ip netns del pod; ip link del pod0 2>/dev/null || true")
    return said.strip() == "reached"


ATTACKS = (
    tenant_to_tenant,
    through_the_server_to_the_internet,
    as_a_pod_of_somebody_else,
    from_and_to_addresses_of_pods_outside_vxlan,
    to_public_addresses_without_a_tunnel,
    with_the_server_as_a_router,
    with_the_device_of_another_node,
    from_a_pod_to_its_node_in_ipv6,
)


async def test_nobody_gets_packets_to_strangers_by_vxlan_and_the_filter_is_what_refuses_them(
    cluster: Cluster,
) -> None:
    async def worked() -> list[str]:
        return [attack.__name__ for attack in ATTACKS if await attack(cluster)]

    async with flannel(cluster):
        assert await worked() == []
        for name in ("open", "server", "bob"):
            await cluster.host(name).sh(f"nft delete table {TABLE}")
        assert await worked() == [attack.__name__ for attack in ATTACKS], "something else refused them"
        await cluster.apply("open", "server", "bob")  # As the loop does, which reads every member again.
        assert await worked() == []


async def test_the_filter_is_there_before_the_interface_is_and_goes_with_the_member(cluster: Cluster) -> None:
    host = cluster.host("bob_nat")
    await host.sh(
        f"systemctl stop wg-quick@spoverlay.service; nft delete table {TABLE}"
    )  # As after a restart.
    await host.sh("systemctl start wg-quick@spoverlay.service")
    assert f"{address('server')} : accept" in await host.sh(f"nft list table {TABLE}")
    await host.sh("echo nonsense > /etc/wireguard/spoverlay.nft; systemctl stop wg-quick@spoverlay.service")
    with pytest.raises(AssertionError, match="nonsense"):
        await host.sh("systemctl start wg-quick@spoverlay.service")
    await cluster.apply("bob_nat")
    await leave_overlay(host)
    assert TABLE not in await host.sh("nft list tables")
