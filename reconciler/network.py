"""Adds the machine of a claim to its lease's private network: stores its address, then updates the hub.

An update of the hub contains all peers of a network, so only one worker at a time may update a network: of two
concurrent updates, the older one could remove the machine that the newer one adds. Each worker has a higher fence than
the one before, and the hub refuses a lower one: a worker that stalled does not bring a removed machine back.
"""

from dataclasses import asdict
from datetime import datetime, timedelta
from uuid import UUID

from control_plane.db import mesh
from control_plane.domain.ids import ClaimId, NetworkId
from control_plane.domain.network import range_of
from data_plane.access.port import AccessError, Unreachable
from data_plane.mesh.port import NETWORKS_MAX, Hub, HubIdentity, MeshLink, Network, Peer, link
from reconciler.worlds.mesh import MeshWorld

HELD_FOR = timedelta(seconds=45)
"""Longer than any call to the hub takes."""


class HubAway(Unreachable):
    """The hub failed or cannot be reached. It is ours, so the machine that waits for it is not to blame."""


class HubFull(HubAway):
    """Every place on the hub has a network."""


class NetworkBusy(Unreachable):
    """Another replica is updating the hub for this network; try again in a moment."""


async def join(world: MeshWorld, claim_id: ClaimId, public_key: str) -> MeshLink:
    """Assign a claim's machine its address, add it to the hub, and return what the machine needs to join.

    Raises AccessError when the hub cannot be reached or is full, NetworkBusy when another replica is updating the
    network.
    """
    async with world.db.transaction() as connection:
        wanted = await mesh.of_claim(connection, claim_id)
        number = await mesh.hub_number(
            connection, wanted.network_id, wanted.organization_id, numbers=NETWORKS_MAX
        )
        if number is None:
            raise HubFull(f"all {NETWORKS_MAX - 1} places for networks on the hub are taken")
        network = Network(number, range_of(wanted.block))
        host_number = await mesh.host_number_for(connection, wanted.network_id, claim_id)
        address = network.address_of(host_number)
        peer = mesh.Peer(claim_id, host_number, address, public_key)
        await mesh.put_peer(connection, wanted.organization_id, wanted.network_id, peer, now=world.now())
    return link(network, await sync(world, wanted.network_id, network), address)


async def sync(world: MeshWorld, network_id: NetworkId, network: Network) -> HubIdentity:
    """Make the hub's peers of a network exactly those that are stored now."""
    return await world.hub_sync.covering(network_id, lambda: _sync(world, world.hub, network_id, network))


async def _sync(world: MeshWorld, hub: Hub, network_id: NetworkId, network: Network) -> HubIdentity:
    token = world.new_id()
    now, fence = await _take(world, network_id, token)
    async with world.db.reading() as connection:
        listed = await mesh.peers(connection, network_id)
    synced_at, said = None, {}
    try:
        identity = await hub.sync(
            network, [Peer(peer.address, peer.public_key) for peer in listed], fence=fence
        )
        synced_at, said = now, asdict(identity)
    except AccessError as error:
        raise HubAway(f"the hub: {type(error).__name__}: {error}") from error
    finally:
        async with world.db.transaction() as connection:
            if synced_at is not None:
                # A claim that ended during the call to the hub has marked the network as changed, and that mark must
                # stay. So, under the network's lock, a list that has changed since does not count as synced.
                await mesh.lock(connection, network_id)
                if await mesh.peers(connection, network_id) != listed:
                    synced_at = None
            await mesh.give_back(connection, network_id, token=token, synced_at=synced_at, **said)
    return identity


async def drop(world: MeshWorld, network_id: NetworkId, network: Network) -> bool:
    """Take a network that no machine is in off the hub, and free its place. False when a machine joins meanwhile.

    A machine that joins while the hub drops the network finds it held, and tries again: the network is then built
    anew, with another key of the hub.
    """
    token = world.new_id()
    _, fence = await _take(world, network_id, token)
    dropped = False
    try:
        async with world.db.reading() as connection:
            joined = await mesh.has_peers(connection, network_id)
        if not joined:
            await world.hub.drop(network, fence=fence)
            dropped = True
    finally:
        async with world.db.transaction() as connection:
            forgotten = False
            if dropped and await mesh.lock(connection, network_id):
                joined = await mesh.has_peers(connection, network_id)
                forgotten = not joined and await mesh.forget(connection, network_id, token=token)
            if not forgotten:
                await mesh.give_back(connection, network_id, token=token, synced_at=None)
                if dropped:
                    await mesh.lost(connection, network_id)
    return forgotten


async def _take(world: MeshWorld, network_id: NetworkId, token: UUID) -> tuple[datetime, int]:
    """Let no other replica update the hub for the network. Returns the time and the fence. Raises NetworkBusy."""
    now = world.now()
    async with world.db.transaction() as connection:
        fence = await mesh.take(connection, network_id, token=token, now=now, until=now + HELD_FOR)
    if fence is None:
        raise NetworkBusy("another replica is updating the hub for this network")
    return now, fence
