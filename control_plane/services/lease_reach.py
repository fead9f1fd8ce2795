"""Which leases a request may name: those of its organization, within the reach of its credential.

Any other lease is refused like one that does not exist, so that nobody learns that it does.
"""

from control_plane.db import lease_overviews, leases
from control_plane.db.connection import Connection
from control_plane.db.lease_overviews import Overview
from control_plane.domain.access import Reach
from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.domain.lease import Lease
from control_plane.domain.refusal import RefusalCode, Refused

NOT_FOUND = Refused(RefusalCode.LEASE_NOT_FOUND, "There is no such lease.")


async def locked(
    connection: Connection, organization_id: OrganizationId, lease_id: LeaseId, *, reach: Reach
) -> Lease | Refused:
    """The lease, locked for a change."""
    lease = (await leases.lock(connection, [lease_id])).get(lease_id)
    if lease is None or lease.organization_id != organization_id or not reach.contains(lease.scope):
        return NOT_FOUND
    return lease


async def overview(
    connection: Connection, organization_id: OrganizationId, lease_id: LeaseId, *, reach: Reach
) -> Overview | Refused:
    """The lease with the evidence about its machine, to be read."""
    found = await lease_overviews.show(connection, organization_id, lease_id)
    return NOT_FOUND if found is None or not reach.contains(found.lease.scope) else found
