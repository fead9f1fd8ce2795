"""What the end of an organization means for its leases, its money and its data.

These functions run in the caller's open transaction. The organization is locked, before everything else.
"""

from collections import Counter
from datetime import datetime
from uuid import UUID

from control_plane.db import erasure, holds, leases, organization_events, organizations
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import LeaseEvent, LeaseState
from control_plane.domain.money import Nano
from control_plane.domain.organization import Ended, OrganizationEvent, OrganizationState, step
from control_plane.domain.transitions import Moved
from control_plane.outcomes.leases import end_all
from control_plane.outcomes.secrets import destroy_keys


async def end_leases(
    connection: Connection,
    organization_id: OrganizationId,
    event: LeaseEvent,
    *,
    why: str,
    actor: Actor,
    now: datetime,
) -> Ended:
    """End every live lease of an organization. Returns how many of each kind, and how much is no longer held."""
    ending = await leases.count_ending(connection, organization_id)
    live = await leases.lock_live(connection, organization_id)
    ids = [lease.id for lease in live]
    held = await holds.amount(connection, ids)
    await end_all(connection, live, event, why=why, actor=actor, now=now)
    states = Counter(lease.state for lease in live)
    return Ended(
        waiting_leases=states[LeaseState.PLACING],
        starting_leases=states[LeaseState.STARTING],
        ready_leases=states[LeaseState.READY],
        ending_leases=ending,
        released_nano=Nano(held - await holds.amount(connection, ids)),
    )


async def settle(
    connection: Connection, organization_id: OrganizationId, *, actor: Actor, now: datetime
) -> bool:
    """Close the books of a closing organization, and state its balance. False while anything is still open."""
    found = await organizations.lock(connection, organization_id)
    moved = None if found is None else step(found.state, OrganizationEvent.SETTLED)
    if found is None or not isinstance(moved, Moved):
        return False
    if not (await organizations.unsettled(connection, organization_id)).is_complete:
        return False
    await organizations.move(connection, organization_id, moved, seen=found.generation)
    reason = "every lease has ended, all usage is posted and nothing is held"
    await organization_events.insert(
        connection, organization_id, moved, Ended(), reason=reason, actor=actor, now=now
    )
    return True


async def erase(
    connection: Connection,
    organization_id: OrganizationId,
    *,
    destruction_id: UUID,
    actor: Actor,
    now: datetime,
) -> bool:
    """Erase the personal data of a deleted organization, and destroy the keys of its secrets. False when it is erased.

    Facts stay: the ledger, charges, the journal and the organization's own record. They name ids.
    """
    found = await organizations.lock(connection, organization_id)
    if found is None or found.state is not OrganizationState.DELETED or found.erased_at is not None:
        return False
    await erasure.erase(connection, organization_id)
    why = "the organization was deleted"
    await destroy_keys(
        connection, organization_id, destruction_id=destruction_id, why=why, actor=actor, now=now
    )
    name = f"deleted-{organization_id.hex}"  # Names are unique, and the old one is free again.
    await organizations.erased(connection, organization_id, name=name, now=now)
    return True
