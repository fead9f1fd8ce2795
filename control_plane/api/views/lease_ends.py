"""Leases that operators end, on the wire."""

from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.lease import Lease
from control_plane.wire.lease_ends import LeaseEndView


def lease_end_view(lease: Lease) -> LeaseEndView:
    return LeaseEndView(
        id=on_wire(Prefix.LEASE, lease.id),
        name=lease.name,
        organization_id=on_wire(Prefix.ORGANIZATION, lease.organization_id),
        state=lease.state.value,
        end_reason=None if lease.end_reason is None else lease.end_reason.value,
        end_why=lease.end_why,
        billed_until=lease.billed_until,
        ended_at=lease.ended_at,
    )
