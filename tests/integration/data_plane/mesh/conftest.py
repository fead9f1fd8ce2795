"""A cluster on real tunnels: a server, nodes of two organizations on the internet and behind NAT, and a hub."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from uuid import UUID

import pytest_asyncio

from control_plane.domain.ids import OrganizationId
from control_plane.domain.overlay import address_of, pods_of
from control_plane.domain.peer_map import Configuration, Member, Overlay, Relay, configurations
from data_plane.access.port import Target
from data_plane.mesh.hub import SshHub
from data_plane.mesh.node import make_node_key
from data_plane.mesh.port import HubIdentity
from data_plane.mesh.tunnels import Interface
from reconciler.overlay import configure, sync_relay
from tests.support.underlay import Host, HostAccess, Underlay, underlay

ALICE, BOB = OrganizationId(UUID(int=1)), OrganizationId(UUID(int=2))
BLOCK = 5
NUMBERS = {"server": 1, "open": 11, "nat1": 12, "nat2": 13, "bob": 21, "bob_nat": 22}
OF = {"server": None, "open": ALICE, "nat1": ALICE, "nat2": ALICE, "bob": BOB, "bob_nat": BOB}
RELAY_NUMBER = 7


def address(name: str) -> str:
    return address_of(BLOCK, NUMBERS[name])


def pod(name: str) -> str:
    """The address of a pod on a node."""
    return pods_of(NUMBERS[name]).replace(".0/24", ".1")


@dataclass
class Cluster:
    """What is wanted, and the hosts that it is applied to."""

    internet: Underlay
    hub: SshHub
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    relay: Relay | None = None

    def host(self, name: str) -> Host:
        return self.internet.hosts[name]

    def overlay(self) -> Overlay:
        ordered = sorted(self.members, key=NUMBERS.__getitem__)
        nodes: dict[OrganizationId | None, list[Member]] = {
            who: [self.members[name] for name in ordered if OF[name] == who] for who in (ALICE, BOB)
        }
        relays = {} if self.relay is None else {ALICE: self.relay}
        return Overlay(BLOCK, [self.members["server"]], nodes, relays)

    def configurations(self) -> dict[str, Configuration]:
        names = {number: name for name, number in NUMBERS.items()}
        return {names[one.member.number]: one for one in configurations(self.overlay())}

    async def apply(self, *names: str) -> dict[str, Interface]:
        """Apply the configurations of the named members, or of all, at the same time."""
        overlay, wanted = self.overlay(), self.configurations()
        chosen = names or tuple(wanted)
        found = await asyncio.gather(*(configure(self.host(name), overlay, wanted[name]) for name in chosen))
        return dict(zip(chosen, found, strict=True))

    async def sync_relay(self) -> HubIdentity:
        identity = await sync_relay(self.hub, self.overlay(), ALICE, RELAY_NUMBER)
        self.relay = Relay(identity.public_key, identity.endpoint)
        return identity


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster() -> AsyncIterator[Cluster]:
    async with underlay() as internet:
        await asyncio.gather(
            *(
                internet.connect(name, number)
                for name, number in (("hub", 1), ("server", 2), ("open", 11), ("bob", 21))
            ),
            *(internet.connect_behind_nat(name, NUMBERS[name]) for name in ("nat1", "nat2", "bob_nat")),
        )
        target = Target("198.51.100.1", 22, "", "hub")
        found = Cluster(internet, SshHub(HostAccess(internet.hosts["hub"]), target))
        keys = await asyncio.gather(*(make_node_key(internet.hosts[name]) for name in NUMBERS))
        outside = {
            "server": "198.51.100.2:51820",
            "open": "198.51.100.11:51820",
            "bob": "198.51.100.21:51820",
        }
        for name, key in zip(NUMBERS, keys, strict=True):
            found.members[name] = Member(NUMBERS[name], key, NUMBERS[name], outside.get(name))
        await found.sync_relay()
        await found.apply()
        await asyncio.gather(*(_run_a_pod(internet.hosts[name], name) for name in NUMBERS))
        yield found


async def _run_a_pod(host: Host, name: str) -> None:
    """The bridge of pods, with an address that answers."""
    await host.sh(
        'ip link add cni0 type bridge; ip address add "$1/24" dev cni0; ip link set cni0 up', pod(name)
    )
    await host.sh("echo 1 > /proc/sys/net/ipv4/ip_forward")  # As K3s sets it.
