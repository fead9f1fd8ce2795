"""Private networks, and the hub that joins their machines.

Every machine of a network has one WireGuard tunnel, to the hub. The hub forwards packets between machines of the same
network. Everything about a network on the hub follows from its number and its range, so that replicas agree about it
without talking to each other. Two networks may have the same range, because no packet gets from one to the other.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Protocol

NETWORK_PREFIX = 22
"""A network's range is a /22."""
NETWORKS_MAX = 4_096
"""So many networks have a place on one hub at the same time."""
PEERS_MAX = (1 << (32 - NETWORK_PREFIX)) - 4
"""1,020: all addresses but the network's, the hub's, the broadcast address and one spare."""
FIRST_PORT = 20_000
"""Networks listen on the UDP ports 20000 to 24095, below the range that Linux uses for outgoing connections (32768 and
up), so that no other socket takes a network's port by chance."""


@dataclass(frozen=True, slots=True, order=True)
class Network:
    """A network on the hub. Two networks never have the same number, unless `drop` came between."""

    number: int
    """Its place on the hub, 0 to NETWORKS_MAX - 1."""
    subnet: IPv4Network
    """Its range of addresses."""

    def __post_init__(self) -> None:
        if not 0 <= self.number < NETWORKS_MAX:
            raise ValueError(f"network {self.number} is outside 0 to {NETWORKS_MAX - 1}")
        if self.subnet.prefixlen != NETWORK_PREFIX:
            raise ValueError(f"{self.subnet} is no /{NETWORK_PREFIX}")

    @property
    def hub_address(self) -> str:
        return str(self.subnet.network_address + 1)

    @property
    def hub_port(self) -> int:
        """The UDP port on the hub's outside address."""
        return FIRST_PORT + self.number

    def address_of(self, k: int) -> str:
        """The address of machine `k`, 1 to PEERS_MAX."""
        if not 1 <= k <= PEERS_MAX:
            raise ValueError(f"machine {k} is outside 1 to {PEERS_MAX}")
        return str(self.subnet.network_address + 1 + k)

    def holds(self, address: str) -> bool:
        """Whether this is the address of a machine in this network."""
        offset = int(IPv4Address(address)) - int(self.subnet.network_address)
        return 2 <= offset <= PEERS_MAX + 1


@dataclass(frozen=True, slots=True)
class Peer:
    """A machine as the hub knows it."""

    address: str
    """Inside the network: `Network.address_of(k)`. The hub accepts packets from this address with this key only."""
    public_key: str
    """WireGuard public key, base64, from `machine.mesh_public_key`."""


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

    async def sync(self, network: Network, peers: Sequence[Peer]) -> HubIdentity:
        """Make the network's peers exactly these. Creates the network if needed.

        Call it with the whole list whenever the list may have changed; the tunnels of unchanged peers are not
        disturbed. Raises StepFailed, and changes nothing, for two peers with the same key or address, an address
        outside the network, or a malformed key.
        """
        ...

    async def drop(self, network: Network) -> None:
        """Remove the network and its key. Does nothing if there is no such network."""
        ...

    async def trust(self, read: ReadAuthorities) -> Sequence[str]:
        """Have the hub's sshd trust exactly the SSH authorities that `read` answers; returns them.

        They are read when we are logged in: what was read before a login that took its time may be outdated.
        """
        ...
