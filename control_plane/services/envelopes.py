"""Envelopes: read one with what is used of it, and set one within those above it."""

from dataclasses import dataclass

from control_plane.db import envelopes as rows
from control_plane.db import organizations
from control_plane.db.connection import Connection
from control_plane.db.engine import acting_for
from control_plane.db.envelopes import EnvelopeScope, StoredEnvelope
from control_plane.domain.access import Reach
from control_plane.domain.envelope import Envelope, Level
from control_plane.domain.envelope_rules import Use
from control_plane.domain.ids import EnvelopeId, OrganizationId
from control_plane.domain.quota_request import too_wide
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.scope import Scope, ScopeKind
from control_plane.services import environments, projects
from control_plane.world import World

__all__ = ["EnvelopeScope"]  # For controllers, which must not import the layer below.


@dataclass(frozen=True, slots=True)
class ShownEnvelope:
    scope: EnvelopeScope
    stored: StoredEnvelope | None
    """None: nothing is limited at this level."""
    use: Use
    within: tuple[tuple[Level, Envelope], ...]
    """The envelopes of the wider levels."""


@dataclass(frozen=True, slots=True)
class Place:
    """What an envelope is about, as a request names it."""

    level: Level
    project: str | None = None
    environment: str | None = None


async def scope_of(
    connection: Connection, organization_id: OrganizationId, place: Place, *, reach: Reach, writes: bool
) -> EnvelopeScope | Refused:
    """The scope that a request names; a refusal when there is no such organization, project or environment."""
    if await organizations.get(connection, organization_id) is None:
        return Refused(RefusalCode.NOT_FOUND, "There is no such organization.")
    if place.project is None:
        if not reach.organization:
            why = "There is no envelope of the whole organization for you; name a project that you may see."
            return Refused(RefusalCode.NOT_FOUND, why)
        return EnvelopeScope(organization_id, place.level)
    project = await projects.of_path(connection, organization_id, place.project, reach=reach)
    if isinstance(project, Refused):
        return project
    if place.environment is None:
        # Who may read a part of a project may read what limits it.
        if writes and not reach.contains(Scope(ScopeKind.PROJECT, project.id)):
            return Refused(
                RefusalCode.NOT_FOUND, f"There is no envelope of the project {project.name!r} for you."
            )
        return EnvelopeScope(organization_id, place.level, project.id)
    environment = await environments.find(connection, project, place.environment)
    if environment is None or not reach.contains(environments.scope_of(environment)):
        why = f"There is no environment {place.environment!r} in the project {project.name!r}."
        return Refused(RefusalCode.NOT_FOUND, why)
    return EnvelopeScope(organization_id, place.level, project.id, environment.id)


async def show(
    world: World, organization_id: OrganizationId, place: Place, *, reach: Reach
) -> ShownEnvelope | Refused:
    async with world.db.reading(organization_id) as connection:
        scope = await scope_of(connection, organization_id, place, reach=reach, writes=False)
        return scope if isinstance(scope, Refused) else await shown(connection, world, scope)


async def put(
    world: World,
    organization_id: OrganizationId,
    place: Place,
    limits: Envelope,
    *,
    by: str,
    by_organization: OrganizationId,
    reach: Reach,
) -> ShownEnvelope | Refused:
    """Set the envelope of a scope. It must not be wider than those above it; those below may be, and do no harm.

    `by` is the id of whoever sets it, and `by_organization` their organization.
    """
    async with (
        world.db.transaction(by_organization) as connection,
        acting_for(connection, organization_id, back_to=by_organization),
    ):
        scope = await scope_of(connection, organization_id, place, reach=reach, writes=True)
        if isinstance(scope, Refused):
            return scope
        # Who is admitting waits.
        if await organizations.standing(connection, organization_id, lock=True) is None:
            return Refused(RefusalCode.NOT_FOUND, "There is no such organization.")
        why = too_wide(scope.level, limits, await rows.above(connection, scope))
        if why is not None:
            return Refused(RefusalCode.ENVELOPE_TOO_WIDE, why)
        await rows.put(connection, scope, EnvelopeId(world.new_id()), limits, by=by, now=world.now())
        return await shown(connection, world, scope)


async def shown(connection: Connection, world: World, scope: EnvelopeScope) -> ShownEnvelope:
    stored = await rows.get(connection, scope)
    use = await rows.use(connection, scope, stored.id if stored else None, now=world.now())
    return ShownEnvelope(scope, stored, use, await rows.above(connection, scope))
