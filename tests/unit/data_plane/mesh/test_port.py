"""The networks of tenants, and who is where in them."""

from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.mesh.port import FIRST_PORT, NETWORKS_MAX, PEERS_MAX, RELAYS_MAX, Network
from tests.support.networks import a_network

networks = st.integers(0, NETWORKS_MAX - 1).map(a_network)


def test_addresses_and_port_follow_from_number_and_range() -> None:
    network = Network(3, IPv4Network("10.64.12.0/22"))
    assert network.hub_address == "10.64.12.1"
    assert network.address_of(1) == "10.64.12.2"
    assert network.hub_port == 20_003


@given(networks, networks)
def test_two_networks_have_two_ports(one: Network, other: Network) -> None:
    assert (one.hub_port == other.hub_port) == (one.number == other.number)


@given(networks, st.integers(1, PEERS_MAX))
def test_every_machine_has_a_usable_address_of_its_own(network: Network, k: int) -> None:
    address = network.address_of(k)
    assert IPv4Address(address) in network.subnet.hosts()
    assert address != network.hub_address
    assert network.holds(address)


def test_the_first_and_the_last_address_of_a_network_belong_to_no_machine() -> None:
    network = a_network(7)
    subnet = network.subnet
    for address in (subnet.network_address, subnet.network_address + 1, subnet.broadcast_address, subnet[-2]):
        assert not network.holds(str(address))
    for k in (0, PEERS_MAX + 1, -1):
        with pytest.raises(ValueError, match="outside"):
            network.address_of(k)
    for number in (-1, NETWORKS_MAX + RELAYS_MAX):
        with pytest.raises(ValueError, match="outside"):
            Network(number, network.subnet)
    with pytest.raises(ValueError, match="no /22 and no /20"):
        Network(7, IPv4Network("10.64.0.0/24"))
    assert FIRST_PORT + NETWORKS_MAX + RELAYS_MAX < 32_768, "would meet Linux's range for outgoing ports"
