"""The list of peers that a hub is given."""

import base64
from dataclasses import replace
from ipaddress import IPv4Network

import pytest
from hypothesis import strategies as st

from data_plane.mesh.hub_scripts import peers_text
from data_plane.mesh.port import NETWORKS_MAX, PEERS_MAX, Network, Peer
from tests.support.networks import a_network

networks = st.integers(0, NETWORKS_MAX - 1).map(a_network)


def a_key(seed: int) -> str:
    return base64.b64encode(seed.to_bytes(32, "big")).decode()


def test_the_list_of_peers_is_lines() -> None:
    network = a_network(1)
    good = Peer(network.address_of(1), a_key(1))
    assert peers_text(network, [good]) == f"{a_key(1)} 10.64.4.2/32\n"
    with pytest.raises(ValueError, match="more than"):
        peers_text(network, [good] * (PEERS_MAX + 1))


def test_a_relay_lists_nodes_with_their_pods_and_next_keys() -> None:
    relay = Network(1, IPv4Network("10.64.16.0/20"), pods=IPv4Network("10.48.0.0/12"))
    assert relay.peers_max == 4_092
    far = relay.address_of(relay.peers_max)
    peers = [
        Peer("10.64.16.2", a_key(1), IPv4Network("10.48.1.0/24"), next_key=a_key(3)),
        Peer(far, a_key(2)),
    ]
    assert peers_text(relay, peers).splitlines() == [
        f"{a_key(1)} 10.64.16.2/32 10.48.1.0/24",
        a_key(3),
        f"{a_key(2)} 10.64.31.253/32",
    ]
    wrong = (
        replace(peers[1], pods=IPv4Network("10.48.1.0/25")),
        replace(peers[1], pods=IPv4Network("10.42.1.0/24")),
        replace(peers[1], public_key=a_key(3)),
        replace(peers[1], next_key=a_key(1)),
        replace(peers[1], next_key="key"),
    )
    for peer in wrong:
        with pytest.raises(ValueError, match=r"pods|key|WireGuard"):
            peers_text(relay, [peers[0], peer])
    with pytest.raises(ValueError, match="no range of pods here"):
        peers_text(a_network(1), [replace(peers[0], address=a_network(1).address_of(1))])


@pytest.mark.parametrize(
    "peer",
    [
        Peer(a_network(2).address_of(1), a_key(2)),
        Peer(a_network(1).hub_address, a_key(2)),
        Peer("0.0.0.0/0", a_key(2)),
        Peer(a_network(1).address_of(1), a_key(2)),
        Peer(a_network(1).address_of(2), a_key(1)),
        Peer(a_network(1).address_of(2), "key"),
        Peer(a_network(1).address_of(2), f"{a_key(2)}\n"),
        Peer(a_network(1).address_of(2), f"{a_key(2)}\nPostUp = sh"),
        Peer(a_network(1).address_of(2), base64.b64encode(bytes(33)).decode()),
    ],
    ids=[
        "outside",
        "the hub's",
        "not an address",
        "address twice",
        "key twice",
        "not a key",
        "newline",
        "smuggled",
        "33 bytes",
    ],
)
def test_a_list_that_lets_one_machine_speak_for_another_is_refused(peer: Peer) -> None:
    good = Peer(a_network(1).address_of(1), a_key(1))
    with pytest.raises(ValueError, match=r"address|key|WireGuard|Unexpected"):
        peers_text(a_network(1), [good, peer])
