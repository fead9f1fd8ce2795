"""The simulated hub."""

import base64

import pytest
from hypothesis import strategies as st

from data_plane.access.port import StepFailed, Unreachable
from data_plane.mesh.port import NETWORKS_MAX, Hub, Peer, link
from data_plane.simulation.hub import FakeHub
from tests.support.networks import a_network

networks = st.integers(0, NETWORKS_MAX - 1).map(a_network)


def a_key(seed: int) -> str:
    return base64.b64encode(seed.to_bytes(32, "big")).decode()


async def test_the_simulated_hub_is_level_triggered() -> None:
    fake = FakeHub()
    hub: Hub = fake
    one, two = Peer(a_network(1).address_of(1), a_key(1)), Peer(a_network(1).address_of(2), a_key(2))
    identity = await hub.sync(a_network(1), [one, two])
    assert fake.meets(a_network(1), one.address, two.address)
    assert not fake.meets(a_network(2), one.address, two.address)
    assert await hub.sync(a_network(1), [one]) == identity
    assert not fake.meets(a_network(1), one.address, two.address)
    assert await hub.sync(a_network(2), []) != identity
    await hub.drop(a_network(1))
    await hub.drop(a_network(1))
    assert (await hub.sync(a_network(1), [one])).public_key != identity.public_key

    made = link(a_network(1), identity, one.address)
    assert (made.network, made.hub_address, made.hub_endpoint) == (
        "10.64.4.0/22",
        "10.64.4.1",
        identity.endpoint,
    )


async def test_the_simulated_hub_refuses_a_lower_fence_also_after_a_drop() -> None:
    hub, network = FakeHub(), a_network(1)
    await hub.sync(network, [], fence=2)
    await hub.drop(network, fence=3)
    with pytest.raises(StepFailed):
        await hub.sync(network, [], fence=2)
    with pytest.raises(StepFailed):
        await hub.drop(network, fence=2)
    assert hub.networks == {}
    await hub.sync(network, [], fence=4)


async def test_the_simulated_hub_fails_as_scripted_and_changes_nothing() -> None:
    hub = FakeHub(fail_next=[Unreachable("cut")])
    with pytest.raises(Unreachable):
        await hub.sync(a_network(1), [])
    assert hub.networks == {}
    await hub.sync(a_network(1), [])
    with pytest.raises(StepFailed):
        await hub.sync(a_network(1), [Peer("10.0.0.1", a_key(1))])
