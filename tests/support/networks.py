"""Networks for tests of the hub."""

from ipaddress import IPv4Network

from data_plane.mesh.port import Network


def a_network(number: int, block: int | None = None) -> Network:
    """The network with this number; its range is that of the block, or of the number."""
    first = int(IPv4Network("10.64.0.0/10").network_address)
    return Network(number, IPv4Network((first + ((number if block is None else block) << 10), 22)))
