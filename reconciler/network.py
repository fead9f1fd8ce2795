"""Adds the machine of a claim to its organization's private network: stores its address, then updates the hub.

An update of the hub contains all peers of a network, so only one worker at a time may update a network: of two
concurrent updates, the older one could remove the machine that the newer one adds.
"""

from datetime import timedelta

from control_plane.db import mesh
from control_plane.domain.ids import ClaimId, OrganizationId
from data_plane.access.port import AccessError, Unreachable
from data_plane.mesh.port import Hub, HubIdentity, MeshLink, Network, Peer, link
from reconciler.worlds.mesh import MeshWorld

HELD_FOR = timedelta(seconds=45)
"""Longer than any call to the hub takes."""


class HubAway(Unreachable):
    """The hub failed or cannot be reached. It is ours, so the machine that waits for it is not to blame."""


class NetworkBusy(Unreachable):
    """Another replica is updating the hub for this network; try again in a moment."""


async def join(
    world: MeshWorld, organization_id: OrganizationId, claim_id: ClaimId, public_key: str
) -> MeshLink:
    """Assign a claim's machine its address, add it to the hub, and return what the machine needs to join.

    Raises AccessError when the hub cannot be reached, NetworkBusy when another replica is updating the network.
    """
    async with world.db.transaction() as connection:
        network = Network(await mesh.network_number(connection, organization_id))
        host_number = await mesh.host_number_for(connection, organization_id, claim_id)
        address = network.address_of(host_number)
        await mesh.put_peer(
            connection, organization_id, mesh.Peer(claim_id, host_number, address, public_key)
        )
    return link(network, await sync(world, organization_id, network), address)


async def sync(world: MeshWorld, organization_id: OrganizationId, network: Network) -> HubIdentity:
    """Make the hub's peers of a network exactly those that are stored now."""
    return await world.hub_sync.covering(
        organization_id, lambda: _sync(world, world.hub, organization_id, network)
    )


async def _sync(world: MeshWorld, hub: Hub, organization_id: OrganizationId, network: Network) -> HubIdentity:
    token = world.new_id()
    now = world.now()
    async with world.db.transaction() as connection:
        if not await mesh.take(connection, organization_id, token=token, now=now, until=now + HELD_FOR):
            raise NetworkBusy("another replica is updating the hub for this network")
    async with world.db.reading() as connection:
        listed = await mesh.peers(connection, organization_id)
    synced_at = None
    try:
        identity = await hub.sync(network, [Peer(peer.address, peer.public_key) for peer in listed])
        synced_at = now
    except AccessError as error:
        raise HubAway(f"the hub: {type(error).__name__}: {error}") from error
    finally:
        async with world.db.transaction() as connection:
            if synced_at is not None:
                # A claim that ended during the call to the hub has marked the network as changed, and that mark must
                # stay. So, under the network's lock, a list that has changed since does not count as synced.
                await mesh.network_number(connection, organization_id)
                if await mesh.peers(connection, organization_id) != listed:
                    synced_at = None
            await mesh.give_back(connection, organization_id, token=token, synced_at=synced_at)
    return identity
