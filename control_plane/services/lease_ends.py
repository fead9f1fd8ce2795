"""Single leases that operators end, for whatever organization they are: an abused machine, a bill that nobody pays.

It runs in a transaction of the operator's own organization, `by`. The customer reads the reason with the lease.
"""

from dataclasses import dataclass

from control_plane.db import leases, organizations
from control_plane.db.connection import Connection
from control_plane.db.engine import acting_for
from control_plane.domain.actor import Actor
from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.domain.lease import Lease, LeaseEvent, LeaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.outcomes.leases import end as end_lease
from control_plane.services.lease_reach import NOT_FOUND
from control_plane.services.leases import follow
from control_plane.world import World


@dataclass(frozen=True, slots=True)
class EndOrder:
    """An operator's decision on a lease."""

    organization_id: OrganizationId
    """Whose lease it is."""
    lease_id: LeaseId
    by: OrganizationId
    """The operator's own organization."""
    reason: str
    actor: Actor


async def end(connection: Connection, world: World, order: EndOrder) -> Lease | Refused:
    """End a lease now: billing stops, and its machine is terminated. One that is ending already stays as it is."""
    async with acting_for(connection, order.organization_id, back_to=order.by):
        # The organization before the lease, as whoever ends all of its leases does.
        if await organizations.lock(connection, order.organization_id) is None:
            return NOT_FOUND
        lease = await _locked(connection, order)
        if lease is None:
            return NOT_FOUND
        if lease.kind is LeaseKind.NODE:
            return _of_node_pool(lease)
        why = f"an operator ended it: {order.reason}"
        if await end_lease(
            connection, lease, LeaseEvent.ENDED_BY_OPERATOR, why=why, actor=order.actor, now=world.now()
        ):
            await follow(connection, world, lease.id)
        return await _locked(connection, order) or lease


async def _locked(connection: Connection, order: EndOrder) -> Lease | None:
    lease = (await leases.lock(connection, [order.lease_id])).get(order.lease_id)
    return lease if lease is not None and lease.organization_id == order.organization_id else None


def _of_node_pool(lease: Lease) -> Refused:
    return Refused(
        RefusalCode.LEASE_OF_NODE_POOL,
        f"The lease is a node of the node pool {lease.node_pool!r} in the cluster {lease.cluster!r}, which"
        " would replace it; have its customer delete the pool, or suspend the organization and end its leases.",
    )
