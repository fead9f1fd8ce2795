"""One private network per tenant, and the hub that joins its machines.

Every machine of a tenant holds one WireGuard tunnel, to the hub; the hub forwards between machines of
the same tenant. Networks are numbered, and everything about a network follows from its number, so two
replicas that compute it agree without talking.

10.64.0.0/10 is carved into 4,096 networks of /22, each with the hub and up to 1,020 machines. That
range keeps clear of what the machines use anyway: 10.42/16 and 10.43/16 (K3s), 172.17/16 (Docker),
172.31/16 (AWS's default VPC), and the 192.168/16 and low 10/16s that clouds like for private networks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Protocol

RANGE = IPv4Network("10.64.0.0/10")
NETWORK_PREFIX = 22
NETWORKS_MAX = 1 << (NETWORK_PREFIX - RANGE.prefixlen)
PEERS_MAX = (1 << (32 - NETWORK_PREFIX)) - 4
"""1,020: the network's address, the hub's, the broadcast address and one spare are not for machines."""
FIRST_PORT = 20_000
"""Networks listen on UDP 20000 to 24095, below Linux's range for outgoing ports (32768 and up), so that
no passing socket can hold a network's port."""


@dataclass(frozen=True, slots=True, order=True)
class Network:
    """A tenant's network, 0 to NETWORKS_MAX - 1. A number is used by one tenant only, ever or after `drop`."""

    number: int

    def __post_init__(self) -> None:
        if not 0 <= self.number < NETWORKS_MAX:
            raise ValueError(f"network {self.number} is outside 0 to {NETWORKS_MAX - 1}")

    @property
    def subnet(self) -> IPv4Network:
        first = int(RANGE.network_address) + (self.number << (32 - NETWORK_PREFIX))
        return IPv4Network((first, NETWORK_PREFIX))

    @property
    def hub_address(self) -> str:
        return str(self.subnet.network_address + 1)

    @property
    def hub_port(self) -> int:
        """UDP, on the hub's outside address."""
        return FIRST_PORT + self.number

    def address_of(self, k: int) -> str:
        """The address of machine `k`, 1 to PEERS_MAX."""
        if not 1 <= k <= PEERS_MAX:
            raise ValueError(f"machine {k} is outside 1 to {PEERS_MAX}")
        return str(self.subnet.network_address + 1 + k)

    def holds(self, address: str) -> bool:
        """Whether a machine of this network may have this address."""
        offset = int(IPv4Address(address)) - int(self.subnet.network_address)
        return 2 <= offset <= PEERS_MAX + 1


@dataclass(frozen=True, slots=True)
class Peer:
    """A machine as the hub knows it."""

    address: str
    """Inside the network: `Network.address_of(k)`. The hub accepts this address from this key only."""
    public_key: str
    """WireGuard public key, base64, from `machine.mesh_public_key`."""


@dataclass(frozen=True, slots=True)
class HubIdentity:
    """How machines recognise the hub in one network. Every network has its own key."""

    public_key: str
    endpoint: str
    """`host:port`, UDP, as machines reach it."""


@dataclass(frozen=True, slots=True)
class MeshLink:
    """What a machine needs to join its tenant's network. Everything here is public."""

    address: str
    """The machine's own address inside, such as `10.64.12.7`."""
    network: str
    """The tenant's network, such as `10.64.12.0/22`."""
    hub_address: str
    """The hub's address inside the network."""
    hub_public_key: str
    """WireGuard public key, base64."""
    hub_endpoint: str
    """`host:port` outside, UDP; an IPv6 host in brackets."""


def link(network: Network, hub: HubIdentity, address: str) -> MeshLink:
    """What the machine at `address` needs to join."""
    return MeshLink(
        address=address,
        network=str(network.subnet),
        hub_address=network.hub_address,
        hub_public_key=hub.public_key,
        hub_endpoint=hub.endpoint,
    )


class Hub(Protocol):
    """The meeting point of the tenants' networks; two networks never meet there.

    Raises AccessError.
    """

    async def sync(self, network: Network, peers: Sequence[Peer]) -> HubIdentity:
        """Make the network's peers exactly these, creating the network if needed.

        Level-triggered: call it with the whole list whenever it may have changed. Tunnels of peers that
        stay are not disturbed. Two peers with one key or one address, an address outside the network, or
        a malformed key is StepFailed and changes nothing.
        """
        ...

    async def drop(self, network: Network) -> None:
        """Forget the network with its key. One that does not exist is no error."""
        ...
