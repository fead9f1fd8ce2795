"""A machine's place in its tenant's private network, written down before the hub hears of it.

The hub takes a network's whole list of peers at once, so only one worker may speak to it for a network
at a time: of two lists under way, the older could drop the newer's machine.
"""

from datetime import timedelta

from control_plane.db import mesh
from control_plane.domain.ids import MachineId, OrganizationId
from data_plane.access.port import MeshLink, Unreachable
from data_plane.mesh.port import Hub, HubIdentity, Network, Peer, link
from reconciler.loop import World

CLAIM = timedelta(seconds=45)
"""Longer than a hub call ever takes."""


class NetworkBusy(Unreachable):
    """Another replica speaks to the hub for this network; come back in a moment."""


async def join(
    world: World, organization_id: OrganizationId, machine_id: MachineId, public_key: str
) -> MeshLink:
    """Give a machine its address, make the hub know it, and answer what the machine needs to join.

    Raises AccessError when the hub cannot be reached, NetworkBusy when it is another replica's turn.
    """
    async with world.db.transaction() as connection:
        network = Network(await mesh.network_number(connection, organization_id))
        slot = await mesh.slot_for(connection, organization_id, machine_id)
        address = network.address_of(slot)
        await mesh.put_peer(connection, organization_id, mesh.PeerRow(machine_id, slot, address, public_key))
    return link(network, await sync(world, organization_id, network), address)


async def sync(world: World, organization_id: OrganizationId, network: Network) -> HubIdentity:
    """Make the hub's peers of a network exactly those that are written down now."""
    return await world.hub_sync.covering(
        organization_id, lambda: _sync(world, world.hub, organization_id, network)
    )


async def _sync(world: World, hub: Hub, organization_id: OrganizationId, network: Network) -> HubIdentity:
    token = world.new_id()
    now = world.now()
    async with world.db.transaction() as connection:
        if not await mesh.claim(connection, organization_id, token=token, now=now, until=now + CLAIM):
            raise NetworkBusy("another replica speaks to the hub for this network")
    async with world.db.reading() as connection:
        told = await mesh.peers(connection, organization_id)
    synced_at = None
    try:
        identity = await hub.sync(network, [Peer(row.address, row.public_key) for row in told])
        synced_at = now
    finally:
        async with world.db.transaction() as connection:
            if synced_at is not None:
                # A machine that went while the hub was told of it has marked the network as changed. That mark
                # must outlive this: under the network's lock, a list that changed since does not count as told.
                await mesh.network_number(connection, organization_id)
                if await mesh.peers(connection, organization_id) != told:
                    synced_at = None
            await mesh.unclaim(connection, organization_id, token=token, synced_at=synced_at)
    return identity
