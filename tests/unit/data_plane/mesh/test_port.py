"""The networks of tenants, and who is where in them."""

from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.mesh.port import FIRST_PORT, NETWORKS_MAX, PEERS_MAX, RANGE, Network

networks = st.integers(0, NETWORKS_MAX - 1).map(Network)


def test_thousands_of_tenants_fit() -> None:
    assert NETWORKS_MAX == 4096
    assert Network(0).subnet.with_prefixlen == "10.64.0.0/22"
    assert Network(3).hub_address == "10.64.12.1"
    assert Network(3).address_of(1) == "10.64.12.2"
    assert Network(4095).subnet.with_prefixlen == "10.127.252.0/22"
    assert Network(4095).hub_port == 24_095


@given(networks, networks)
def test_two_networks_share_nothing(one: Network, other: Network) -> None:
    assert one.subnet.subnet_of(RANGE)
    if one != other:
        assert not one.subnet.overlaps(other.subnet)
        assert one.hub_port != other.hub_port


@given(networks, st.integers(1, PEERS_MAX))
def test_every_machine_has_a_usable_address_of_its_own(network: Network, k: int) -> None:
    address = network.address_of(k)
    assert IPv4Address(address) in network.subnet.hosts()
    assert address != network.hub_address
    assert network.holds(address)


def test_the_first_and_the_last_address_of_a_network_belong_to_no_machine() -> None:
    network = Network(7)
    subnet = network.subnet
    for address in (subnet.network_address, subnet.network_address + 1, subnet.broadcast_address, subnet[-2]):
        assert not network.holds(str(address))
    for k in (0, PEERS_MAX + 1, -1):
        with pytest.raises(ValueError, match="outside"):
            network.address_of(k)
    for number in (-1, NETWORKS_MAX):
        with pytest.raises(ValueError, match="outside"):
            Network(number)
    assert FIRST_PORT + NETWORKS_MAX < 32_768, "would meet Linux's range for outgoing ports"
