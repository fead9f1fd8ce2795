"""Environments, which divide a project."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from control_plane.db import environments
from control_plane.db.connection import Connection
from control_plane.domain.access import Reach
from control_plane.domain.environment import DEFAULT_NAME, Environment, looks_like_an_id
from control_plane.domain.ids import (
    EnvironmentId,
    MalformedIdError,
    Prefix,
    off_wire,
)
from control_plane.domain.project import Project
from control_plane.domain.refusal import RefusalCode, Refused, choose
from control_plane.domain.scope import Scope, ScopeKind
from control_plane.world import World

_NAMED_MAX = 200
"""So many environments are compared with a name that is unknown."""


async def add_default_environment(connection: Connection, world: World, project: Project) -> None:
    """Give a new project its first environment."""
    await environments.insert(connection, _new(world, project, DEFAULT_NAME))


def _new(world: World, project: Project, name: str) -> Environment:
    return Environment(
        EnvironmentId(world.new_id()), project.organization_id, project.id, name, created_at=world.now()
    )


async def create(
    connection: Connection, world: World, project: Project, *, name: str
) -> Environment | Refused:
    if looks_like_an_id(name):
        why = f"{name!r} begins with {Prefix.ENVIRONMENT}_, as the id of an environment does; choose another name."
        return Refused(RefusalCode.NAME_RESERVED, why)
    environment = _new(world, project, name)
    if await environments.insert(connection, environment):
        return environment
    why = f"There is an environment called {name!r} in the project {project.name!r} already."
    return Refused(RefusalCode.NAME_TAKEN, why)


async def page(
    world: World,
    project: Project,
    *,
    reach: Reach,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[Environment]:
    """The environments of a project that are within reach, oldest first."""
    async with world.db.reading(project.organization_id) as connection:
        return await environments.page(
            connection, project.organization_id, project.id, reach, after=after, limit=limit
        )


async def of_lease(
    connection: Connection, project: Project, word: str | None, *, reach: Reach
) -> Environment | Refused:
    """The environment of a new lease: the one that its request names, or the project's default one."""
    if word is None:
        found: Environment | None = await environments.default(
            connection, project.organization_id, project.id
        )
    else:
        found = await find(connection, project, word)
    if found is not None and reach.contains(scope_of(found)):
        return found
    known = await environments.page(
        connection, project.organization_id, project.id, reach, after=None, limit=_NAMED_MAX
    )
    names = [environment.name for environment in known]
    if word is None:
        why = f"You may not create leases in the default environment of the project {project.name!r}"
        return Refused(RefusalCode.ENVIRONMENT_UNKNOWN, f"{why}; {choose('', names)}.")
    why = f"There is no environment {word!r} in the project {project.name!r}; {choose(word, names)}."
    return Refused(RefusalCode.ENVIRONMENT_UNKNOWN, why)


async def find(connection: Connection, project: Project, word: str) -> Environment | None:
    """The project's environment of this name or this id."""
    if not looks_like_an_id(word):
        return await environments.named(connection, project.organization_id, project.id, word)
    try:
        environment_id = EnvironmentId(off_wire(Prefix.ENVIRONMENT, word))
    except MalformedIdError:
        return None
    found = await environments.get(connection, project.organization_id, environment_id)
    return found if found is not None and found.project_id == project.id else None


def scope_of(environment: Environment) -> Scope:
    return Scope(ScopeKind.ENVIRONMENT, environment.project_id, environment.id)
