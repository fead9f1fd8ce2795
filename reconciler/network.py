"""The place of a claim's machine in its tenant's private network, written down before the hub hears of it.

The hub takes a network's whole list of peers at once, so only one worker may speak to it for a network at a time:
of two lists under way, the older one could drop the machine that the newer one adds.
"""

from datetime import timedelta

from control_plane.db import mesh
from control_plane.domain.ids import ClaimId, OrganizationId
from data_plane.access.port import Unreachable
from data_plane.mesh.port import Hub, HubIdentity, MeshLink, Network, Peer, link
from reconciler.worlds.mesh import MeshWorld

HELD_FOR = timedelta(seconds=45)
"""Longer than a hub call ever takes."""


class NetworkBusy(Unreachable):
    """Another replica speaks to the hub for this network; come back in a moment."""


async def join(
    world: MeshWorld, organization_id: OrganizationId, claim_id: ClaimId, public_key: str
) -> MeshLink:
    """Give a claim's machine its address, make the hub know it, and answer what the machine needs to join.

    Raises AccessError when the hub cannot be reached, NetworkBusy when it is another replica's turn.
    """
    async with world.db.transaction() as connection:
        network = Network(await mesh.network_number(connection, organization_id))
        slot = await mesh.slot_for(connection, organization_id, claim_id)
        address = network.address_of(slot)
        await mesh.put_peer(connection, organization_id, mesh.Peer(claim_id, slot, address, public_key))
    return link(network, await sync(world, organization_id, network), address)


async def sync(world: MeshWorld, organization_id: OrganizationId, network: Network) -> HubIdentity:
    """Make the hub's peers of a network exactly those that are written down now."""
    return await world.hub_sync.covering(
        organization_id, lambda: _sync(world, world.hub, organization_id, network)
    )


async def _sync(world: MeshWorld, hub: Hub, organization_id: OrganizationId, network: Network) -> HubIdentity:
    token = world.new_id()
    now = world.now()
    async with world.db.transaction() as connection:
        if not await mesh.take(connection, organization_id, token=token, now=now, until=now + HELD_FOR):
            raise NetworkBusy("another replica speaks to the hub for this network")
    async with world.db.reading() as connection:
        listed = await mesh.peers(connection, organization_id)
    synced_at = None
    try:
        identity = await hub.sync(network, [Peer(peer.address, peer.public_key) for peer in listed])
        synced_at = now
    finally:
        async with world.db.transaction() as connection:
            if synced_at is not None:
                # A claim that ended during the hub's call has marked the network as changed, and that mark must
                # outlive this: under the network's lock, a list that has changed since does not count as synced.
                await mesh.network_number(connection, organization_id)
                if await mesh.peers(connection, organization_id) != listed:
                    synced_at = None
            await mesh.give_back(connection, organization_id, token=token, synced_at=synced_at)
    return identity
