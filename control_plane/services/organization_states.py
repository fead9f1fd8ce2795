"""Changes of an organization's state, as operators ask for them: suspend, resume, close, delete.

Each runs in a transaction of the operator's own organization, `by`, and is recorded with its actor and its reason. The
organization is locked first, so that requests which came before are waited for, and later ones see the new state.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from control_plane.db import (
    api_keys,
    issued,
    organization_events,
    organizations,
    sessions,
)
from control_plane.db.connection import Connection
from control_plane.db.engine import acting_for
from control_plane.db.organization_events import Recorded
from control_plane.db.organizations import Organization
from control_plane.domain.actor import Actor
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import LeaseEvent
from control_plane.domain.organization import (
    NEVER_OF_THE_PLATFORM,
    NEXT,
    REPEATED,
    Ended,
    OrganizationEvent,
    step,
)
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.session import SessionEnd
from control_plane.domain.ssh_certificate import Revocation
from control_plane.domain.transitions import Moved
from control_plane.outcomes import organizations as outcomes
from control_plane.world import World

__all__ = ["Changed", "Recorded"]  # For controllers, which must not import the layer below.

_NOT_FOUND = Refused(RefusalCode.NOT_FOUND, "There is no such organization.")


_SHUTS_OUT = {
    OrganizationEvent.SUSPENDED: Revocation.ORGANIZATION_SUSPENDED,
    OrganizationEvent.CLOSURE_REQUESTED: Revocation.ORGANIZATION_CLOSED,
}
"""What ends the SSH certificates of an organization at once."""
Effect = Callable[[datetime], Awaitable[Ended]]
"""What a change does beside moving the state, at this moment."""


@dataclass(frozen=True, slots=True)
class Changed:
    """An organization after a change, and the record of the change."""

    organization: Organization
    recorded: Recorded


@dataclass(frozen=True, slots=True)
class Order:
    """An operator's decision on an organization."""

    organization_id: OrganizationId
    by: OrganizationId
    """The operator's own organization."""
    reason: str
    actor: Actor


async def suspend(
    connection: Connection, world: World, order: Order, *, end_leases: bool
) -> Changed | Refused:
    """Let an organization spend nothing new. With `end_leases`, end its leases now."""

    async def effect(now: datetime) -> Ended:
        if not end_leases:
            return Ended()
        return await _end_leases(connection, order, LeaseEvent.ORGANIZATION_SUSPENDED, now)

    return await _change(connection, world, order, OrganizationEvent.SUSPENDED, effect)


async def resume(connection: Connection, world: World, order: Order) -> Changed | Refused:
    """End a suspension."""

    async def effect(_: datetime) -> Ended:
        return Ended()

    return await _change(connection, world, order, OrganizationEvent.RESUMED, effect)


async def close(connection: Connection, world: World, order: Order) -> Changed | Refused:
    """Close an organization for good: revoke its keys and end its leases. A second closure has no effect."""

    async def effect(now: datetime) -> Ended:
        ended = await _end_leases(connection, order, LeaseEvent.ORGANIZATION_CLOSED, now)
        keys = await api_keys.revoke_all(connection, order.organization_id, now=now)
        await sessions.end_all(connection, order.organization_id, SessionEnd.ORGANIZATION_CLOSED, now=now)
        return replace(ended, api_keys=keys)

    return await _change(connection, world, order, OrganizationEvent.CLOSURE_REQUESTED, effect)


async def delete(connection: Connection, world: World, order: Order) -> Changed | Refused:
    """Have the personal data of a closed organization erased, by the reconciler. A second deletion has no effect."""

    async def effect(_: datetime) -> Ended:
        return Ended()

    return await _change(connection, world, order, OrganizationEvent.DELETED, effect)


async def page(
    world: World, organization_id: OrganizationId, *, after: int | None, limit: int
) -> Sequence[Recorded] | Refused:
    """The record of an organization, oldest change first, for operators."""
    async with world.db.reading(organization_id) as connection:
        if await organizations.get(connection, organization_id) is None:
            return _NOT_FOUND
        return await organization_events.page(connection, organization_id, after=after, limit=limit)


async def _end_leases(connection: Connection, order: Order, event: LeaseEvent, now: datetime) -> Ended:
    return await outcomes.end_leases(
        connection, order.organization_id, event, why=order.reason, actor=order.actor, now=now
    )


async def _change(
    connection: Connection, world: World, order: Order, event: OrganizationEvent, effect: Effect
) -> Changed | Refused:
    async with acting_for(connection, order.organization_id, back_to=order.by):
        found = await organizations.lock(connection, order.organization_id)
        if found is None:
            return _NOT_FOUND
        refused = _refusal(found, event)
        if refused is not None:
            return refused
        moved = step(found.state, event)
        if isinstance(moved, Moved):
            now = world.now()
            await organizations.move(connection, found.id, moved, seen=found.generation)
            if event in _SHUTS_OUT:
                await issued.revoke_all(connection, found.id, _SHUTS_OUT[event], now=now)
            ended = await effect(now)
            await organization_events.insert(
                connection, found.id, moved, ended, reason=order.reason, actor=order.actor, now=now
            )
        return await _changed(connection, found.id, event)


def _refusal(found: Organization, event: OrganizationEvent) -> Refused | None:
    if found.platform and event in NEVER_OF_THE_PLATFORM:
        why = f"{found.name!r} is the organization of those who run this installation; it stays as it is."
        return Refused(RefusalCode.PLATFORM_ORGANIZATION, why)
    possible = [state for state, known in NEXT if known is event]
    if found.state in possible or found.state in REPEATED.get(event, ()):
        return None
    states = " or ".join(possible)
    why = f"The organization is {found.state}; this is possible while it is {states}."
    return Refused(RefusalCode.ORGANIZATION_STATE, why)


async def _changed(
    connection: Connection, organization_id: OrganizationId, event: OrganizationEvent
) -> Changed:
    organization = await organizations.get(connection, organization_id)
    recorded = await organization_events.latest(connection, organization_id, event)
    if organization is None or recorded is None:
        raise LookupError(f"organization {organization_id} has no record of {event}")
    return Changed(organization, recorded)
