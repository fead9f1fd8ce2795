"""Consoles: request and read them. The reconciler asks providers and machines, as the API reaches neither."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from control_plane.db import claims, consoles, journal
from control_plane.db.connection import Connection
from control_plane.db.consoles import Requested
from control_plane.db.journal import Line
from control_plane.domain.access import Reach
from control_plane.domain.console import NO_MACHINE, Console, refusal
from control_plane.domain.ids import ConsoleId, LeaseId, OrganizationId
from control_plane.domain.lease import LeaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.services import lease_reach
from control_plane.world import World

__all__ = ["Console", "Line"]  # For controllers and views, which must not import the layer below.

STEPS_MAX = 200
_UNKNOWN = Refused(
    RefusalCode.NOT_FOUND, "The lease has no console with this id; one can be read for ten minutes."
)


@dataclass(frozen=True, slots=True)
class Shown:
    console: Console
    steps: Sequence[Line]
    """The latest lines of the lease's journal, oldest first."""


async def request(
    connection: Connection, world: World, organization_id: OrganizationId, lease_id: LeaseId, *, reach: Reach
) -> Console | Refused:
    """Request the console of a lease's machine. A lease without a machine has its answer at once."""
    lease = await lease_reach.locked(connection, organization_id, lease_id, reach=reach)
    if isinstance(lease, Refused):
        return lease
    if lease.kind is LeaseKind.NODE:
        why = f"The lease is a node of the node pool {lease.node_pool!r}, whose console is not shown."
        return Refused(RefusalCode.LEASE_IS_NODE, why)
    now = world.now()
    refused = refusal(lease.state, await consoles.count_recent(connection, lease.id, now=now))
    if refused is not None:
        return refused
    open_claims = await claims.lock_open(connection, lease_ids=[lease.id])
    claim_id = open_claims[0].id if open_claims else None
    console = Console(
        id=ConsoleId(world.new_id()),
        organization_id=lease.organization_id,
        lease_id=lease.id,
        requested_at=now,
        answered_at=None if claim_id else now,
        finding=None if claim_id else NO_MACHINE,
    )
    requested = Requested(console=console, project_id=lease.project_id, claim_id=claim_id)
    await consoles.insert(connection, requested)
    return console


async def show(
    world: World, organization_id: OrganizationId, lease_id: LeaseId, console_id: UUID, *, reach: Reach
) -> Shown | Refused:
    """A request of a lease, with what was found and what we recorded of the lease."""
    async with world.db.reading(organization_id) as connection:
        lease = await lease_reach.overview(connection, organization_id, lease_id, reach=reach)
        if isinstance(lease, Refused):
            return lease
        console = await consoles.get(connection, organization_id, lease_id, console_id, now=world.now())
        if console is None:
            return _UNKNOWN
        return Shown(console, await journal.latest(connection, lease_id, limit=STEPS_MAX))
