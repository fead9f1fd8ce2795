"""A private network joins the machines of leases, whichever provider they are from. Two networks never meet.

A network belongs to a project and has a range of addresses of its own in the organization. 10.64.0.0/10 is divided
into 4,096 blocks of /22 for this. The range avoids what machines use otherwise: 10.42/16 and 10.43/16 (K3s), 172.17/16
(Docker), 172.31/16 (AWS's default VPC), and 192.168/16 and the low 10/16s, which clouds prefer for private networks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Network

from control_plane.domain.ids import LeaseId, NetworkId, OrganizationId, Prefix, ProjectId

DEFAULT_NAME = "default"
"""The name of every project's first network. A lease joins it when its request names no network."""
PLAN = IPv4Network("10.64.0.0/10")
PREFIX_LENGTH = 22
BLOCKS = 1 << (PREFIX_LENGTH - PLAN.prefixlen)
"""How many ranges there are, and so how many networks an organization can have."""
MEMBERS_MAX = (1 << (32 - PREFIX_LENGTH)) - 4
"""All addresses but the network's, the hub's, the broadcast address and one spare."""


def looks_like_an_id(name: str) -> bool:
    """Whether the word is read as a network's id wherever one is named, so that none may be called so."""
    return name.startswith(f"{Prefix.NETWORK}_")


def range_of(block: int) -> IPv4Network:
    """The addresses of a block, 0 to `BLOCKS` - 1."""
    if not 0 <= block < BLOCKS:
        raise ValueError(f"block {block} is outside 0 to {BLOCKS - 1}")
    return IPv4Network((int(PLAN.network_address) + (block << (32 - PREFIX_LENGTH)), PREFIX_LENGTH))


@dataclass(frozen=True, slots=True)
class Network:
    id: NetworkId
    organization_id: OrganizationId
    project_id: ProjectId
    name: str
    """Unique among the networks of its project."""
    block: int
    """Its range of addresses, unique in its organization."""
    labels: Mapping[str, str]
    created_at: datetime
    members: int = 0
    """How many machines are in it now."""

    @property
    def range(self) -> IPv4Network:
        return range_of(self.block)


@dataclass(frozen=True, slots=True)
class Member:
    """The machine of a lease in a network."""

    lease_id: LeaseId
    lease_name: str
    host_number: int
    """Which of the network's addresses it has, from 1 on."""
    address: str
    joined_at: datetime
