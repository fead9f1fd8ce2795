"""The address plan of clusters: every cluster has an overlay, which joins its servers and nodes by WireGuard tunnels.

An overlay has a range of addresses that no other overlay of the installation has, so that one server can tell clusters
apart. Its members have numbers, from which their addresses follow. Pods and services have the same ranges in every
cluster, because packets never pass from one cluster to another. Customers' private networks have their ranges in the
same plan (`domain/network.py`): a machine is in a private network or in an overlay, and never in both.
"""

from ipaddress import IPv4Address, IPv4Network

from control_plane.domain.network import PLAN

PREFIX_LENGTH = 20
BLOCKS = 1 << (PREFIX_LENGTH - PLAN.prefixlen)
"""1,024: how many overlays an installation can have."""
MEMBERS_MAX = (1 << (32 - PREFIX_LENGTH)) - 4
"""4,092: all addresses but the range's first two, the broadcast address and one spare. The second is the relays'."""
SERVER_NUMBER = 1
"""The number of a cluster's server among the members of its overlay. Nodes have higher ones."""
RELAY_NUMBER = 0
"""Stands for the relay of a node's organization among those that list the node."""
PODS = IPv4Network("10.48.0.0/12")
"""The pods of a whole cluster."""
POD_PREFIX_LENGTH = 24
POD_BLOCKS = 1 << (POD_PREFIX_LENGTH - PODS.prefixlen)
"""4,096: how many members of a cluster can have pods."""
SERVICES = IPv4Network("10.43.0.0/16")
"""Addresses of services, which each node translates itself: they never enter a tunnel."""


def range_of(block: int) -> IPv4Network:
    """The addresses of the overlay with this block, 0 to `BLOCKS` - 1."""
    if not 0 <= block < BLOCKS:
        raise ValueError(f"block {block} is outside 0 to {BLOCKS - 1}")
    return IPv4Network((int(PLAN.network_address) + (block << (32 - PREFIX_LENGTH)), PREFIX_LENGTH))


def address_of(block: int, number: int) -> str:
    """The address of a member, whose number is 1 to `MEMBERS_MAX`."""
    if not 0 <= block < BLOCKS:
        raise ValueError(f"block {block} is outside 0 to {BLOCKS - 1}")
    if not 1 <= number <= MEMBERS_MAX:
        raise ValueError(f"member {number} is outside 1 to {MEMBERS_MAX}")
    return str(IPv4Address(int(PLAN.network_address) + (block << (32 - PREFIX_LENGTH)) + 1 + number))


def pods_of(pod_block: int) -> str:
    """The range of one member's pods, such as `10.48.7.0/24`."""
    if not 0 <= pod_block < POD_BLOCKS:
        raise ValueError(f"pod block {pod_block} is outside 0 to {POD_BLOCKS - 1}")
    first = IPv4Address(int(PODS.network_address) + (pod_block << (32 - POD_PREFIX_LENGTH)))
    return f"{first}/{POD_PREFIX_LENGTH}"


def pod_block_of(pods: str) -> int:
    """The number of a range of pods: the inverse of `pods_of`. Raises ValueError for what is no such range."""
    network = IPv4Network(pods)
    if network.prefixlen != POD_PREFIX_LENGTH or not network.subnet_of(PODS):
        raise ValueError(f"{pods!r} is not the range of one member's pods")
    return (int(network.network_address) - int(PODS.network_address)) >> (32 - POD_PREFIX_LENGTH)
