"""Private networks of a project, which the machines of its leases join."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from control_plane.db import networks
from control_plane.db.connection import Connection
from control_plane.domain.ids import MalformedIdError, NetworkId, Prefix, off_wire
from control_plane.domain.network import BLOCKS, DEFAULT_NAME, Member, Network, looks_like_an_id
from control_plane.domain.project import Project
from control_plane.domain.refusal import RefusalCode, Refused, choose
from control_plane.world import World

NETWORKS_MAX = 100
"""So many networks a project can have."""
_USERS_NAMED_MAX = 3


async def add_default_network(connection: Connection, world: World, project: Project) -> Network | Refused:
    """Give a new project its first network. Refused when the organization has no free range left."""
    return await _insert(connection, world, project, DEFAULT_NAME, {})


async def create(
    connection: Connection, world: World, project: Project, *, name: str, labels: Mapping[str, str]
) -> Network | Refused:
    if looks_like_an_id(name):
        why = f"{name!r} begins with {Prefix.NETWORK}_, as the id of a network does; choose another name."
        return Refused(RefusalCode.NAME_RESERVED, why)
    return await _insert(connection, world, project, name, labels)


async def _insert(
    connection: Connection, world: World, project: Project, name: str, labels: Mapping[str, str]
) -> Network | Refused:
    organization_id, now = project.organization_id, world.now()
    await networks.lock_plan(connection, organization_id)
    if await networks.exists(connection, organization_id, project.id, name):
        why = f"There is a network called {name!r} in the project {project.name!r} already."
        return Refused(RefusalCode.NAME_TAKEN, why)
    if await networks.count(connection, organization_id, project.id) >= NETWORKS_MAX:
        why = (
            f"The project {project.name!r} has {NETWORKS_MAX} networks already; delete one that nobody uses."
        )
        return Refused(RefusalCode.NETWORKS_TOO_MANY, why)
    network_id = NetworkId(world.new_id())
    block = await networks.insert(
        connection,
        network_id=network_id,
        organization_id=organization_id,
        project_id=project.id,
        name=name,
        labels=labels,
        now=now,
    )
    if block is None:
        why = f"The organization has {BLOCKS} networks already, with one for each project; delete one that nobody uses."
        return Refused(RefusalCode.NETWORKS_TOO_MANY, why)
    return Network(network_id, organization_id, project.id, name, block, labels, now)


async def page(
    world: World, project: Project, *, after: tuple[datetime, UUID] | None, limit: int
) -> Sequence[Network]:
    """The networks of a project, oldest first; the first one is the default network."""
    async with world.db.reading(project.organization_id) as connection:
        return await networks.page(connection, project.organization_id, project.id, after=after, limit=limit)


async def show(world: World, project: Project, word: str) -> Network | Refused:
    """One network of a project, by its name or its id."""
    async with world.db.reading(project.organization_id) as connection:
        return await of_path(connection, project, word)


async def members(
    world: World, project: Project, word: str, *, after: int, limit: int
) -> Sequence[Member] | Refused:
    """The machines in a network by their addresses; `after` is the host number of the previous page's last one."""
    async with world.db.reading(project.organization_id) as connection:
        found = await of_path(connection, project, word)
        if isinstance(found, Refused):
            return found
        return await networks.members(connection, found, after=after, limit=limit)


async def label(world: World, project: Project, word: str, labels: Mapping[str, str]) -> Network | Refused:
    """Replace the labels of a network. Setting the same labels again changes nothing."""
    async with world.db.transaction(project.organization_id) as connection:
        found = await of_path(connection, project, word)
        if isinstance(found, Refused):
            return found
        await networks.set_labels(connection, found, labels)
        return replace(found, labels=labels)


async def delete(world: World, project: Project, word: str) -> Refused | None:
    """Delete a network that no lease uses. The hub forgets it some time later (`loops/mesh/sync_hub.py`)."""
    async with world.db.transaction(project.organization_id) as connection:
        found = await of_path(connection, project, word)
        if isinstance(found, Refused):
            return found
        if found.name == DEFAULT_NAME:
            why = f"The network {DEFAULT_NAME!r} stays: leases join it that name no network."
            return Refused(RefusalCode.NAME_RESERVED, why)
        if not await networks.seize(connection, found):
            return _not_found(project, word)
        users = await networks.users(connection, found, limit=_USERS_NAMED_MAX + 1)
        if users:
            return Refused(RefusalCode.NETWORK_IN_USE, _in_use(found, users))
        await networks.delete(connection, found, now=world.now())
        return None


def _in_use(network: Network, users: Sequence[str]) -> str:
    others = " and others" if len(users) > _USERS_NAMED_MAX else ""
    named = ", ".join(users[:_USERS_NAMED_MAX]) + others
    return f"Leases use the network {network.name!r}: {named}. Release them; once they have ended, it can be deleted."


async def of_lease(connection: Connection, project: Project, word: str | None) -> Network | Refused:
    """The network of a new lease: the one that its request names, or the project's default one.

    It cannot be deleted until the transaction ends.
    """
    if word is None:
        found: Network | None = await networks.default(connection, project.organization_id, project.id)
    else:
        found = await _find(connection, project, word)
    if found is not None and await networks.hold(connection, found):
        return found
    known = await networks.page(
        connection, project.organization_id, project.id, after=None, limit=NETWORKS_MAX
    )
    names = choose(word or "", [network.name for network in known])
    why = f"There is no network {word!r} in the project {project.name!r}; {names}."
    return Refused(RefusalCode.NETWORK_UNKNOWN, why)


async def of_path(connection: Connection, project: Project, word: str) -> Network | Refused:
    """The network that is the subject of a request."""
    return await _find(connection, project, word) or _not_found(project, word)


def _not_found(project: Project, word: str) -> Refused:
    why = f"There is no network {word!r} in the project {project.name!r}."
    return Refused(RefusalCode.NOT_FOUND, why)


async def _find(connection: Connection, project: Project, word: str) -> Network | None:
    if not looks_like_an_id(word):
        return await networks.named(connection, project.organization_id, project.id, word)
    try:
        network_id = NetworkId(off_wire(Prefix.NETWORK, word))
    except MalformedIdError:
        return None
    return await networks.get(connection, project.organization_id, project.id, network_id)
