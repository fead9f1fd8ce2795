"""Queries on the record of organizations: who changed the state of which one, why, and what that ended."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.journal import ACTOR, actor_values
from control_plane.db.rows import read, read_one, write
from control_plane.domain.actor import Actor, ActorKind
from control_plane.domain.ids import OrganizationId
from control_plane.domain.money import Nano
from control_plane.domain.organization import Ended, OrganizationEvent, OrganizationState
from control_plane.domain.transitions import Moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded(Ended):
    """A change of an organization's state as it is stored."""

    number: int
    at: datetime
    actor_kind: ActorKind
    actor: str
    request_id: str | None
    event: OrganizationEvent
    state_before: OrganizationState
    state_after: OrganizationState
    reason: str
    held_nano: Nano
    """What was still held after it."""
    balance_nano: Nano
    """The balance after it."""


_ENDED = "waiting_leases, starting_leases, ready_leases, ending_leases, api_keys, released_nano"
_SELECT = f"""
SELECT number, at, actor_kind, actor, request_id, event, state_before, state_after, reason, held_nano, balance_nano,
       {_ENDED}
FROM organization_events WHERE organization_id = :organization_id
"""
_INSERT = text(f"""
INSERT INTO organization_events (organization_id, at, actor_kind, actor, request_id, event, state_before, state_after,
                                 reason, held_nano, balance_nano, {_ENDED})
SELECT s.organization_id, :now, {ACTOR}, :event, :before, :after, :reason, s.held_nano, s.posted_nano,
       :waiting_leases, :starting_leases, :ready_leases, :ending_leases, :api_keys, :released_nano
FROM standings s WHERE s.organization_id = :organization_id
""")
_LATEST = text(f"{_SELECT} AND event = :event ORDER BY number DESC LIMIT 1")
_PAGE = text(f"""
{_SELECT} AND (CAST(:after AS bigint) IS NULL OR number > :after) ORDER BY number LIMIT :limit
""")


async def insert(
    connection: Connection,
    organization_id: OrganizationId,
    moved: Moved[OrganizationState, OrganizationEvent],
    ended: Ended,
    *,
    reason: str,
    actor: Actor,
    now: datetime,
) -> None:
    """Record a change, with what it ended, and with the balance and the holds as they are now."""
    await write(
        connection,
        _INSERT,
        organization_id=organization_id,
        event=moved.event.value,
        before=moved.before.value,
        after=moved.after.value,
        reason=reason,
        waiting_leases=ended.waiting_leases,
        starting_leases=ended.starting_leases,
        ready_leases=ended.ready_leases,
        ending_leases=ended.ending_leases,
        api_keys=ended.api_keys,
        released_nano=ended.released_nano,
        now=now,
        **actor_values(actor),
    )


async def latest(
    connection: Connection, organization_id: OrganizationId, event: OrganizationEvent
) -> Recorded | None:
    """The last change by this event; None when there was none."""
    return await read_one(connection, _LATEST, Recorded, organization_id=organization_id, event=event.value)


async def page(
    connection: Connection, organization_id: OrganizationId, *, after: int | None, limit: int
) -> list[Recorded]:
    """The changes of an organization, oldest first, behind the number `after`."""
    return await read(connection, _PAGE, Recorded, organization_id=organization_id, after=after, limit=limit)
