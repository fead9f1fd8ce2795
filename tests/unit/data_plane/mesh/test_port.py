import base64
import subprocess
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.access.port import StepFailed, Unreachable
from data_plane.mesh import hub_scripts
from data_plane.mesh.hub_scripts import peers_text
from data_plane.mesh.port import FIRST_PORT, NETWORKS_MAX, PEERS_MAX, RANGE, Hub, Network, Peer, link
from data_plane.simulation.hub import FakeHub

networks = st.integers(0, NETWORKS_MAX - 1).map(Network)


def a_key(seed: int) -> str:
    return base64.b64encode(seed.to_bytes(32, "big")).decode()


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


def test_the_edges_are_nobodys() -> None:
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


def test_the_list_of_peers_is_lines() -> None:
    network = Network(1)
    good = Peer(network.address_of(1), a_key(1))
    assert peers_text(network, [good]) == f"{a_key(1)} 10.64.4.2/32\n"
    with pytest.raises(ValueError, match="more than"):
        peers_text(network, [good] * (PEERS_MAX + 1))


@pytest.mark.parametrize(
    "peer",
    [
        Peer(Network(2).address_of(1), a_key(2)),
        Peer(Network(1).hub_address, a_key(2)),
        Peer("0.0.0.0/0", a_key(2)),
        Peer(Network(1).address_of(1), a_key(2)),
        Peer(Network(1).address_of(2), a_key(1)),
        Peer(Network(1).address_of(2), "key"),
        Peer(Network(1).address_of(2), f"{a_key(2)}\n"),
        Peer(Network(1).address_of(2), f"{a_key(2)}\nPostUp = sh"),
        Peer(Network(1).address_of(2), base64.b64encode(bytes(33)).decode()),
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
    good = Peer(Network(1).address_of(1), a_key(1))
    with pytest.raises(ValueError, match=r"address|key|WireGuard|Unexpected"):
        peers_text(Network(1), [good, peer])


@pytest.mark.parametrize("script", [hub_scripts.UP, hub_scripts.SYNC.script, hub_scripts.DROP.script])
def test_the_scripts_are_sh(script: str) -> None:
    subprocess.run(["sh", "-n"], input=script.encode(), check=True)


async def test_the_hub_on_paper_is_level_triggered() -> None:
    fake = FakeHub()
    hub: Hub = fake
    one, two = Peer(Network(1).address_of(1), a_key(1)), Peer(Network(1).address_of(2), a_key(2))
    identity = await hub.sync(Network(1), [one, two])
    assert fake.meets(Network(1), one.address, two.address)
    assert not fake.meets(Network(2), one.address, two.address)
    assert await hub.sync(Network(1), [one]) == identity
    assert not fake.meets(Network(1), one.address, two.address)
    assert await hub.sync(Network(2), []) != identity
    await hub.drop(Network(1))
    await hub.drop(Network(1))
    assert (await hub.sync(Network(1), [one])).public_key != identity.public_key

    made = link(Network(1), identity, one.address)
    assert (made.network, made.hub_address, made.hub_endpoint) == (
        "10.64.4.0/22",
        "10.64.4.1",
        identity.endpoint,
    )


async def test_the_hub_on_paper_fails_as_told_and_changes_nothing() -> None:
    hub = FakeHub(fail_next=[Unreachable("cut")])
    with pytest.raises(Unreachable):
        await hub.sync(Network(1), [])
    assert hub.networks == {}
    await hub.sync(Network(1), [])
    with pytest.raises(StepFailed):
        await hub.sync(Network(1), [Peer("10.0.0.1", a_key(1))])
