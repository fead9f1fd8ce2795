"""Private networks, relays of clusters, and the hub that joins their machines.

Every machine of a private network has one WireGuard tunnel, to the hub. The hub forwards packets between
machines of the same network. Everything about a network on the hub follows from its number and its range, so
that replicas agree about it without talking to each other. Two networks may have the same range, because no
packet gets from one to the other.

A relay is a network, too: that of the nodes of one cluster and organization that are behind NAT. They have tunnels with
other members of their cluster besides, in the same range of addresses, and each has a range for its pods.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Protocol

NETWORK_PREFIX = 22
"""A private network's range is a /22."""
OVERLAY_PREFIX = 20
"""The range of a relay is that of its cluster's overlay, a /20."""
ENDPOINT = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")
"""`host:port` as WireGuard's tools read it."""
NETWORKS_MAX = 4_096
"""So many private networks have a place on one hub at the same time."""
RELAYS_MAX = 4_096
"""So many relays do besides. Their places come after those of networks, so that neither can take one of the other's."""
PEERS_MAX = (1 << (32 - NETWORK_PREFIX)) - 4
"""Of a private network, 1,020: all addresses but the network's, the hub's, the broadcast address and one spare."""
FIRST_PORT = 20_000
"""Private networks listen on the UDP ports 20000 to 24095 and relays on 24096 to 28191, below the range that Linux uses
for outgoing connections (32768 and up), so that no other socket takes one of these ports by chance."""


@dataclass(frozen=True, slots=True, order=True)
class Network:
    """A network on the hub. Two networks never have the same number, unless `drop` came between."""

    number: int
    """Its place on the hub: below NETWORKS_MAX for a private network, and the next RELAYS_MAX for relays."""
    subnet: IPv4Network
    """Its range of addresses."""
    pods: IPv4Network | None = None
    """Of a relay: the range of all pods of its cluster."""

    def __post_init__(self) -> None:
        if not 0 <= self.number < NETWORKS_MAX + RELAYS_MAX:
            raise ValueError(f"network {self.number} is outside 0 to {NETWORKS_MAX + RELAYS_MAX - 1}")
        if self.subnet.prefixlen not in {NETWORK_PREFIX, OVERLAY_PREFIX}:
            raise ValueError(f"{self.subnet} is no /{NETWORK_PREFIX} and no /{OVERLAY_PREFIX}")

    @property
    def peers_max(self) -> int:
        return self.subnet.num_addresses - 4

    @property
    def hub_address(self) -> str:
        return str(self.subnet.network_address + 1)

    @property
    def hub_port(self) -> int:
        """The UDP port on the hub's outside address."""
        return FIRST_PORT + self.number

    def address_of(self, k: int) -> str:
        """The address of machine `k`, 1 to `peers_max`."""
        if not 1 <= k <= self.peers_max:
            raise ValueError(f"machine {k} is outside 1 to {self.peers_max}")
        return str(self.subnet.network_address + 1 + k)

    def holds(self, address: str) -> bool:
        """Whether this is the address of a machine in this network."""
        offset = int(IPv4Address(address)) - int(self.subnet.network_address)
        return 2 <= offset <= self.peers_max + 1


@dataclass(frozen=True, slots=True)
class Peer:
    """A machine as the hub knows it."""

    address: str
    """Inside the network: `Network.address_of(k)`. The hub accepts packets from this address with this key only."""
    public_key: str
    """WireGuard public key, base64, from `machine.mesh_public_key`."""
    pods: IPv4Network | None = None
    """The range of its pods, if it is a node of a cluster."""
    next_key: str | None = None
    """The key that a node is about to change to: the hub answers its handshakes, and accepts no packet with it yet."""


@dataclass(frozen=True, slots=True)
class OverlayPlace:
    """Where a member is in the overlay of its cluster."""

    address: str
    """Its own address, such as `10.64.16.7`."""
    range: str
    """All addresses of the overlay, such as `10.64.16.0/20`."""
    pods: str
    """The range of all pods of the cluster, such as `10.48.0.0/12`."""
    servers: tuple[str, ...] = ()
    """The addresses of the other members that are servers of ours."""
    port: int = 51_820
    """The UDP port that it listens on."""


@dataclass(frozen=True, slots=True)
class OverlayPeer:
    """The other end of a tunnel, as a member of an overlay lists it."""

    public_key: str
    allowed: tuple[str, ...]
    """Exactly the ranges that packets may come from and are sent to. May be empty."""
    endpoint: str | None = None
    """`host:port`, UDP. None when only the other end can open the tunnel."""
    keepalive: bool = False
    """Whether this end sends a packet every 25 s, so that its NAT does not forget the tunnel."""


@dataclass(frozen=True, slots=True)
class HubIdentity:
    """How machines reach and recognise the hub in one network. Every network has its own key."""

    public_key: str
    endpoint: str
    """`host:port`, UDP, as machines reach it."""


@dataclass(frozen=True, slots=True)
class MeshLink:
    """What a machine needs to join a network. None of it is secret."""

    address: str
    """The machine's own address in the network, such as `10.64.12.7`."""
    network: str
    """The network's range, such as `10.64.12.0/22`."""
    hub_address: str
    """The hub's address in the network."""
    hub_public_key: str
    """WireGuard public key, base64."""
    hub_endpoint: str
    """`host:port`, UDP, on the internet. An IPv6 host is in brackets."""


def link(network: Network, hub: HubIdentity, address: str) -> MeshLink:
    """What the machine at `address` needs to join."""
    return MeshLink(
        address=address,
        network=str(network.subnet),
        hub_address=network.hub_address,
        hub_public_key=hub.public_key,
        hub_endpoint=hub.endpoint,
    )


ReadAuthorities = Callable[[], Awaitable[Sequence[str]]]
"""The public keys of SSH authorities that are to be trusted now, one OpenSSH line each."""


class Hub(Protocol):
    """Forwards packets inside each network, and never between two networks. Raises AccessError."""

    async def sync(self, network: Network, peers: Sequence[Peer], *, fence: int | None = None) -> HubIdentity:
        """Make the network's peers exactly these. Creates the network if needed.

        A network that was synced with a higher `fence` fails the step; without one, nothing is compared.

        Call it with the whole list whenever the list may have changed; the tunnels of unchanged peers are not
        disturbed. Raises StepFailed, and changes nothing, for two peers with the same key or address, an address
        outside the network, or a malformed key.
        """
        ...

    async def drop(self, network: Network, *, fence: int | None = None) -> None:
        """Remove the network and its key. Does nothing if there is no such network.

        A `fence` counts as in `sync`, and is remembered.
        """
        ...

    async def trust(self, read: ReadAuthorities) -> Sequence[str]:
        """Have the hub's sshd trust exactly the SSH authorities that `read` answers; returns them.

        They are read when we are logged in: what was read before a login that took its time may be outdated.
        """
        ...
