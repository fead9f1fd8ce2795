"""Changes the WireGuard key of a cluster's server, by the steps of `domain/server_key.py`.

sync_overlay calls it with an overlay that it holds, before it computes the peer map, so that the nodes get the map with
the new key in the same activation in which the server switches to it.
"""

from dataclasses import dataclass
from uuid import UUID

from control_plane.db import nodes, overlays, relays
from control_plane.db.overlays import Overlay
from control_plane.domain import peer_map
from control_plane.domain.cluster import ServerHost
from control_plane.domain.node_key import KeyStep
from control_plane.domain.peer_map import Member
from control_plane.domain.server_key import ServerKeyChange, next_step
from data_plane.access.port import AccessError, StepFailed
from data_plane.mesh.members import OTHER_KEY
from reconciler.overlay import map_of, server_member
from reconciler.overlay_hold import LOST, hold
from reconciler.relays import Kept
from reconciler.server_hosts import target
from reconciler.worlds.clusters import ClusterWorld


@dataclass(frozen=True, slots=True)
class ServerKey:
    """The keys of a server that are on the peer map."""

    public_key: str
    next_key: str | None = None

    def member(self, outside: str) -> Member:
        return server_member(self.public_key, outside, self.next_key)


async def change_key(
    world: ClusterWorld,
    row: Overlay,
    public_key: str,
    host: ServerHost,
    *,
    token: UUID,
    problems: list[str],
) -> ServerKey:
    """Take the step that is due, if one is; the keys after it. What fails is a problem, and is tried again."""
    key = ServerKey(public_key, row.next_key)
    change = ServerKeyChange(
        row.next_key, row.old_key, row.key_made_at, row.key_waits_since, row.key_asked_at
    )
    follow_all = change.waits_since is not None and await _follow_all(world, row, key, host)
    step = next_step(change, world.now(), follow_all=follow_all)
    try:
        if step is KeyStep.ANNOUNCE:
            return await _announce(world, row, key, host, token)
        if step is KeyStep.SWITCH:
            return await _switch(world, row, key, host, token)
        if step is KeyStep.FINISH:
            async with world.db.transaction() as connection:
                await overlays.end_server_key(connection, row.cluster_id, token=token, made_at=change.made_at)
    except AccessError as error:
        problems.append(f"key of the server: {type(error).__name__}: {error}")
    return key


async def _follow_all(world: ClusterWorld, row: Overlay, key: ServerKey, host: ServerHost) -> bool:
    """Whether every node was set up with the keys that are on the map."""
    async with world.db.reading() as connection:
        found = await overlays.members(connection, row.cluster_id)
        known = await relays.of_cluster(connection, row.cluster_id)
    identities = Kept({relay.organization_id: relay for relay in known}, []).relays
    versions = peer_map.versions(map_of(row.block, key.member(host.outside), found, identities))
    return all(member.applied_version == versions[member.number] for member in found)


async def _announce(
    world: ClusterWorld, row: Overlay, key: ServerKey, host: ServerHost, token: UUID
) -> ServerKey:
    made_at = world.now()
    next_key = await world.members.make_next_key(target(host), fresh=True)
    async with world.db.transaction() as connection:
        await nodes.lock_numbers(connection)
        announced = await overlays.announce_server_key(
            connection, row.cluster_id, next_key, token=token, made_at=made_at, now=world.now()
        )
    if not announced:
        raise AccessError(LOST)
    return ServerKey(key.public_key, next_key)


async def _switch(
    world: ClusterWorld, row: Overlay, key: ServerKey, host: ServerHost, token: UUID
) -> ServerKey:
    """The machine first: until the switch is stored, whoever takes the overlay over does it again."""
    if key.next_key is None:
        raise ValueError("the server has no next key")
    await hold(world, row.cluster_id, token)
    try:
        await world.members.switch_key(target(host), key.next_key)
    except StepFailed as error:
        if error.exit_status != OTHER_KEY:
            raise
        async with world.db.statement() as connection:  # It lost that key, so it makes another one.
            await overlays.end_server_key(connection, row.cluster_id, token=token, made_at=None)
        raise
    async with world.db.statement() as connection:
        switched = await overlays.server_switched(connection, row.cluster_id, token=token, now=world.now())
    if not switched:
        raise AccessError(LOST)
    return ServerKey(key.next_key)
