"""What customers read of the nodes of their pools, and operators of all nodes: one, and a page."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import journal, node_keys, node_overviews
from control_plane.db.connection import Connection
from control_plane.db.engine import acting_for
from control_plane.db.node_overviews import NodeOverview, NodeReport, Whose
from control_plane.domain.access import Reach
from control_plane.domain.actor import Actor
from control_plane.domain.ids import (
    MalformedIdError,
    NodeId,
    NodePoolId,
    OrganizationId,
    Prefix,
    off_wire,
)
from control_plane.domain.journal import Note
from control_plane.domain.node import NodeState
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.services import clusters
from control_plane.world import World

__all__ = ["NodeOverview", "NodeReport"]  # For controllers and views, which must not import the layer below.

NOT_FOUND = Refused(RefusalCode.NOT_FOUND, "There is no such node.")


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """Which nodes are wanted; None is every one."""

    states: Sequence[NodeState] | None = None
    cluster: str | None = None
    pool_id: NodePoolId | None = None


async def show(
    world: World, organization_id: OrganizationId, word: str, *, reach: Reach
) -> NodeOverview | Refused:
    """A node of the organization, by its id or its name."""
    node_id, name = _named(word)
    async with world.db.reading(organization_id) as connection:
        found = await node_overviews.show(
            connection, organization_id, node_id=node_id, name=name, reach=reach
        )
    return found or NOT_FOUND


def _named(word: str) -> tuple[NodeId | None, str | None]:
    """An id or a name."""
    try:
        return NodeId(off_wire(Prefix.NODE, word)), None
    except MalformedIdError:
        return None, word


async def page(
    world: World,
    organization_id: OrganizationId,
    only: NodeFilter,
    *,
    before: tuple[datetime, UUID] | None,
    limit: int,
    reach: Reach,
) -> Sequence[NodeOverview] | Refused:
    """The nodes of an organization within reach, newest first."""
    async with world.db.reading(organization_id) as connection:
        cluster_id = await clusters.filtered_by(connection, organization_id, only.cluster)
        if isinstance(cluster_id, Refused):
            return cluster_id
        return await node_overviews.page(
            connection,
            organization_id,
            reach=reach,
            before=before,
            states=only.states,
            cluster_id=cluster_id,
            pool_id=only.pool_id,
            limit=limit,
        )


async def report(world: World, word: str) -> NodeReport | Refused:
    """A node of anybody's, by its id or its name, as operators see it."""
    node_id, name = _named(word)
    async with world.db.reading() as connection:
        places = await node_overviews.whose(connection, node_id=node_id, name=name, limit=1)
    found = await _reports(world, places)
    return found[0] if found else NOT_FOUND


async def reports(
    world: World,
    platform: OrganizationId,
    only: NodeFilter,
    *,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[NodeReport] | Refused:
    """The nodes of everybody, newest first, as operators see them. `platform` is their organization."""
    async with world.db.reading(platform) as connection:
        cluster_id = await clusters.filtered_by(connection, platform, only.cluster)
        if isinstance(cluster_id, Refused):
            return cluster_id
        places = await node_overviews.whose(
            connection, cluster_id=cluster_id, states=only.states, before=before, limit=limit
        )
    return await _reports(world, places)


async def _reports(world: World, places: Sequence[Whose]) -> Sequence[NodeReport]:
    """Each is read as its own tenant."""
    by_tenant: dict[OrganizationId, list[NodeId]] = defaultdict(list)
    for place in places:
        by_tenant[place.organization_id].append(place.id)
    found: list[NodeReport] = []
    for tenant, ids in by_tenant.items():
        async with world.db.reading(tenant) as connection:
            found += await node_overviews.reports(connection, ids)
    return sorted(found, key=lambda each: (each.overview.created_at, each.overview.id), reverse=True)


async def rotate_key(
    connection: Connection, world: World, word: str, *, actor: Actor, platform: OrganizationId
) -> NodeReport | Refused:
    """Have the WireGuard key of an open node changed at once, by its id or its name.

    While that is asked for already, nothing changes. The connection acts for `platform`, the operators' organization.
    """
    node_id, name = _named(word)
    places = await node_overviews.whose(connection, node_id=node_id, name=name, limit=1)
    if not places:
        return NOT_FOUND
    (place,) = places
    async with acting_for(connection, place.organization_id, back_to=platform):
        now = world.now()
        asked = await node_keys.ask(connection, place.id, now=now)
        (report,) = await node_overviews.reports(connection, [place.id])
        node = report.overview
        if node.state is not NodeState.READY:
            why = f"The node is {node.state}; the keys of nodes that are ready can be changed."
            return Refused(RefusalCode.NODE_NOT_READY, why)
        if asked:
            await journal.note_lease(
                connection,
                node.lease_id,
                event=Note.NODE_KEY_CHANGE_REQUESTED,
                why=f"an operator asked for another WireGuard key of {node.name}",
                actor=actor,
                now=now,
            )
    return report
