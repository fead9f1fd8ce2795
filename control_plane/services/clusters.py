"""Kubernetes clusters: operators create and delete them, and organizations see those that they may use."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from control_plane.db import clusters, organizations, server_hosts
from control_plane.db.connection import Connection
from control_plane.db.engine import acting_for
from control_plane.domain.cluster import Cluster, ClusterEvent, ClusterState, looks_like_an_id, step
from control_plane.domain.ids import ClusterId, MalformedIdError, OrganizationId, Prefix, off_wire, on_wire
from control_plane.domain.organization import OPEN
from control_plane.domain.overlay import BLOCKS
from control_plane.domain.refusal import RefusalCode, Refused, choose
from control_plane.domain.transitions import Ignored
from control_plane.world import World


async def create(
    connection: Connection,
    world: World,
    *,
    name: str,
    region: str,
    dedicated_to: OrganizationId | None,
    platform: OrganizationId,
) -> Cluster | Refused:
    """Create a cluster on a free server host of the region; the reconciler builds it.

    The connection acts for `platform`, the operators' organization.
    """
    if looks_like_an_id(name):
        why = f"{name!r} begins with {Prefix.CLUSTER}_, as the id of a cluster does; choose another name."
        return Refused(RefusalCode.NAME_RESERVED, why)
    if dedicated_to is not None and not await _is_open(connection, dedicated_to, back_to=platform):
        why = f"There is no open organization {on_wire(Prefix.ORGANIZATION, dedicated_to)}."
        return Refused(RefusalCode.ORGANIZATION_UNKNOWN, why)
    await clusters.lock_plan(connection)
    if await clusters.named(connection, name) is not None:
        return Refused(RefusalCode.NAME_TAKEN, f"There is a cluster called {name!r} already.")
    cluster_id = ClusterId(world.new_id())
    stored = await clusters.insert(
        connection,
        cluster_id=cluster_id,
        organization_id=dedicated_to,
        name=name,
        region=region,
        overlays=BLOCKS,
        now=world.now(),
    )
    if not stored:
        why = f"There are {BLOCKS} clusters already, which is as many as there are ranges of addresses."
        return Refused(RefusalCode.CLUSTERS_TOO_MANY, why)
    if await server_hosts.take(connection, cluster_id, region=region) is None:
        return await _no_host(connection, region)
    return await _get(connection, cluster_id)


async def _is_open(
    connection: Connection, organization_id: OrganizationId, *, back_to: OrganizationId
) -> bool:
    async with acting_for(connection, organization_id, back_to=back_to):
        found = await organizations.get(connection, organization_id)
    return found is not None and found.state in OPEN


async def _no_host(connection: Connection, region: str) -> Refused:
    free = [host.region for host in await server_hosts.every(connection) if host.cluster_id is None]
    why = (
        f"No server host is free in {region!r}; {choose(region, free)}, or add a host."
        if free
        else "No server host is free; add one, or delete a cluster."
    )
    return Refused(RefusalCode.SERVER_HOSTS_IN_USE, why)


async def _get(connection: Connection, cluster_id: ClusterId) -> Cluster:
    found = await clusters.get(connection, cluster_id)
    if found is None:
        raise LookupError(f"there is no cluster {cluster_id}")
    return found


async def delete(
    connection: Connection, world: World, word: str, *, platform: OrganizationId
) -> Cluster | Refused:
    """Delete a cluster, by its name or its id; its nodes leave, and then its server is dismantled.

    Deleting one again changes nothing. The connection acts for `platform`, the operators' organization.
    """
    found = await _lookup(connection, platform, word)
    locked = None if found is None else await clusters.lock(connection, found.id)
    if locked is None:
        return _not_found(word)
    moved = step(locked.state, ClusterEvent.DELETED)
    if isinstance(moved, Ignored):
        return locked
    await clusters.move(connection, locked, moved, now=world.now())
    return await _get(connection, locked.id)


async def rotate_key(
    connection: Connection, world: World, word: str, *, platform: OrganizationId
) -> Cluster | Refused:
    """Have the WireGuard key of a cluster's server changed at once, by the cluster's name or its id.

    While that is asked for already, nothing changes. The connection acts for `platform`, the operators' organization.
    """
    found = await _lookup(connection, platform, word)
    if found is None:
        return _not_found(word)
    if found.state is not ClusterState.READY:
        why = f"The cluster is {found.state}; the key of a server whose cluster is ready can be changed."
        return Refused(RefusalCode.CLUSTER_NOT_READY, why)
    await clusters.ask_for_server_key(connection, found.id, now=world.now())
    return await _get(connection, found.id)


async def page(
    world: World, organization_id: OrganizationId, *, after: tuple[datetime, UUID] | None, limit: int
) -> Sequence[Cluster]:
    """The clusters that an organization may use, oldest first; for the operators' organization all of them."""
    async with world.db.reading(organization_id) as connection:
        return await clusters.page(connection, organization_id, after=after, limit=limit)


async def show(world: World, organization_id: OrganizationId, word: str) -> Cluster | Refused:
    """One of the clusters that an organization may use, by its name or its id."""
    async with world.db.reading(organization_id) as connection:
        return await find(connection, organization_id, word)


async def find(connection: Connection, organization_id: OrganizationId, word: str) -> Cluster | Refused:
    """A cluster that the organization may use, by its name or its id."""
    return await _lookup(connection, organization_id, word) or _not_found(word)


async def _lookup(connection: Connection, organization_id: OrganizationId, word: str) -> Cluster | None:
    if not looks_like_an_id(word):
        return await clusters.show_named(connection, organization_id, word)
    try:
        cluster_id = ClusterId(off_wire(Prefix.CLUSTER, word))
    except MalformedIdError:
        return None
    return await clusters.show(connection, organization_id, cluster_id)


def _not_found(word: str) -> Refused:
    return Refused(RefusalCode.NOT_FOUND, f"There is no cluster {word!r}.")


_NAMED_MAX = 100


async def chosen(connection: Connection, organization_id: OrganizationId, word: str) -> Cluster | Refused:
    """The cluster that a request names beside its path. A refusal says which ready ones there are to choose from."""
    found = await _lookup(connection, organization_id, word)
    if found is not None:
        return found
    page = await clusters.page(connection, organization_id, after=None, limit=_NAMED_MAX)
    known = [cluster.name for cluster in page if cluster.state is ClusterState.READY]
    why = f"There is no cluster {word!r} that your organization may use; {choose(word, known)}."
    return Refused(RefusalCode.CLUSTER_UNKNOWN, why)


async def filtered_by(
    connection: Connection, organization_id: OrganizationId, word: str | None
) -> ClusterId | Refused | None:
    """The cluster to which a list is limited; None for all of them."""
    if word is None:
        return None
    found = await chosen(connection, organization_id, word)
    return found if isinstance(found, Refused) else found.id
