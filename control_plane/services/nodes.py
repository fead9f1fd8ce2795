"""What customers read of the nodes of their pools: one, and a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import node_overviews
from control_plane.db.node_overviews import NodeOverview
from control_plane.domain.access import Reach
from control_plane.domain.ids import (
    ClusterId,
    MalformedIdError,
    NodeId,
    NodePoolId,
    OrganizationId,
    Prefix,
    off_wire,
)
from control_plane.domain.node import NodeState
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.services import clusters
from control_plane.world import World

__all__ = ["NodeOverview"]  # For controllers and views, which must not import the layer below.

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
    node_id, name = None, None
    try:
        node_id = NodeId(off_wire(Prefix.NODE, word))
    except MalformedIdError:
        name = word
    async with world.db.reading(organization_id) as connection:
        found = await node_overviews.show(
            connection, organization_id, node_id=node_id, name=name, reach=reach
        )
    return found or NOT_FOUND


async def page(
    world: World,
    organization_id: OrganizationId,
    only: NodeFilter,
    *,
    before: tuple[datetime, UUID] | None,
    limit: int,
    reach: Reach,
) -> Sequence[NodeOverview]:
    """The nodes of an organization within reach, newest first."""
    async with world.db.reading(organization_id) as connection:
        cluster_id: ClusterId | None = None
        if only.cluster is not None:
            cluster = await clusters.find(connection, organization_id, only.cluster)
            if isinstance(cluster, Refused):
                return []
            cluster_id = cluster.id
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
