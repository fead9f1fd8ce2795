"""Projects, which divide an organization's leases and their costs."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from control_plane.db import projects
from control_plane.db.connection import Connection
from control_plane.domain.access import Reach
from control_plane.domain.ids import MalformedIdError, OrganizationId, Prefix, ProjectId, off_wire
from control_plane.domain.project import DEFAULT_NAME, Project, looks_like_an_id
from control_plane.domain.refusal import RefusalCode, Refused, choose
from control_plane.services.environments import add_default_environment
from control_plane.services.networks import add_default_network
from control_plane.world import World

_NAMED_MAX = 200
"""So many projects are compared with a name that is unknown."""


async def create(
    connection: Connection, world: World, organization_id: OrganizationId, *, name: str
) -> Project | Refused:
    """Create a project with an environment and a network. A refusal must roll the transaction back."""
    if looks_like_an_id(name):
        return _reserved(name)
    project = Project(ProjectId(world.new_id()), organization_id, name, world.now())
    if await projects.insert(connection, project):
        await add_default_environment(connection, world, project)
        network = await add_default_network(connection, world, project)
        return network if isinstance(network, Refused) else project
    return _taken(name)


async def rename(
    connection: Connection,
    organization_id: OrganizationId,
    word: str,
    *,
    name: str,
    reach: Reach,
) -> Project | Refused:
    """Rename a project, which keeps its id, its leases and their costs. A refusal must roll the transaction back."""
    project = await of_path(connection, organization_id, word, reach=reach)
    if isinstance(project, Refused) or project.name == name:
        return project
    if project.name == DEFAULT_NAME:
        why = f"The project {DEFAULT_NAME!r} keeps its name, by which leases find it that name no project."
        return Refused(RefusalCode.NAME_RESERVED, why)
    if looks_like_an_id(name):
        return _reserved(name)
    return replace(project, name=name) if await projects.rename(connection, project, name) else _taken(name)


async def find(
    world: World, organization_id: OrganizationId, word: str, *, reach: Reach
) -> Project | Refused:
    """The project that a request names by its name or its id, when it or a part of it is within reach."""
    async with world.db.reading(organization_id) as connection:
        return await named(connection, organization_id, word, reach=reach)


async def show(
    world: World, organization_id: OrganizationId, word: str, *, reach: Reach
) -> Project | Refused:
    """One project, by its name or its id."""
    async with world.db.reading(organization_id) as connection:
        return await of_path(connection, organization_id, word, reach=reach)


async def of_path(
    connection: Connection, organization_id: OrganizationId, word: str, *, reach: Reach
) -> Project | Refused:
    """The project that is the subject of a request, not a part of its body: without it there is nothing here."""
    found = await named(connection, organization_id, word, reach=reach)
    return Refused(RefusalCode.NOT_FOUND, found.why) if isinstance(found, Refused) else found


def _taken(name: str) -> Refused:
    return Refused(RefusalCode.NAME_TAKEN, f"There is a project called {name!r} already.")


def _reserved(name: str) -> Refused:
    why = f"{name!r} begins with {Prefix.PROJECT}_, as the id of a project does; choose another name."
    return Refused(RefusalCode.NAME_RESERVED, why)


async def page(
    world: World,
    organization_id: OrganizationId,
    *,
    reach: Reach,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[Project]:
    """An organization's projects, oldest first; `after` is creation time and id of the previous page's last project."""
    async with world.db.reading(organization_id) as connection:
        return await projects.page(connection, organization_id, reach, after=after, limit=limit)


async def of_lease(
    connection: Connection, organization_id: OrganizationId, name: str | None, *, reach: Reach
) -> Project | Refused:
    """The project of a new lease: the one that its request names, or the organization's default one."""
    if name is not None:
        return await named(connection, organization_id, name, reach=reach)
    found = await projects.default(connection, organization_id)
    if reach.enters(found.id):
        return found
    why = "You may not create leases in the default project; name the project that you work in."
    return Refused(RefusalCode.PROJECT_UNKNOWN, why)


async def named(
    connection: Connection, organization_id: OrganizationId, name: str, *, reach: Reach
) -> Project | Refused:
    """The organization's project of this name or this id, when it or a part of it is within reach."""
    if looks_like_an_id(name):
        return await _of_id(connection, organization_id, name, reach)
    found = await projects.named(connection, organization_id, name)
    if found is not None and reach.enters(found.id):
        return found
    known = await projects.page(connection, organization_id, reach, after=None, limit=_NAMED_MAX)
    why = f"There is no project called {name!r}; {choose(name, (project.name for project in known))}."
    return Refused(RefusalCode.PROJECT_UNKNOWN, why)


async def _of_id(
    connection: Connection, organization_id: OrganizationId, text: str, reach: Reach
) -> Project | Refused:
    try:
        project_id = ProjectId(off_wire(Prefix.PROJECT, text))
    except MalformedIdError:
        why = f"{text!r} is not the id of a project, which is {Prefix.PROJECT}_ and 32 hexadecimal digits."
        return Refused(RefusalCode.PROJECT_UNKNOWN, why)
    found = await projects.get(connection, organization_id, project_id)
    if found is not None and reach.enters(found.id):
        return found
    return Refused(RefusalCode.PROJECT_UNKNOWN, f"There is no project with the id {text!r}.")
