"""Projects on a real database, in the role of the API: every organization has one, and names are its own."""

import pytest

from control_plane.db.engine import Database
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.ids import OrganizationId
from control_plane.domain.project import DEFAULT_NAME, Project
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.services import organizations, projects
from control_plane.world import World, uuid7
from tests.support.clock import Clock

pytestmark = pytest.mark.database


@pytest.fixture
def world(api_db: Database, clock: Clock) -> World:
    return World(api_db, now=clock.now)


async def _organization(world: World) -> OrganizationId:
    organization_id = OrganizationId(uuid7())
    async with world.db.transaction(organization_id) as connection:
        made = await organizations.create(connection, world, organization_id, f"org-{organization_id.hex}")
    assert made is None
    return organization_id


async def _create(world: World, organization_id: OrganizationId, name: str) -> Project | Refused:
    async with world.db.transaction(organization_id) as connection:
        return await projects.create(connection, world, organization_id, name=name)


async def _of_lease(world: World, organization_id: OrganizationId, name: str | None) -> Project | Refused:
    async with world.db.reading(organization_id) as connection:
        return await projects.of_lease(connection, organization_id, name, reach=EVERYWHERE)


async def _names(world: World, organization_id: OrganizationId) -> list[str]:
    return [
        found.name
        for found in await projects.page(world, organization_id, after=None, limit=100, reach=EVERYWHERE)
    ]


async def test_an_organization_starts_with_one_project_and_leases_that_name_none_belong_to_it(
    world: World,
) -> None:
    organization_id = await _organization(world)
    assert await _names(world, organization_id) == [DEFAULT_NAME]
    default = await _of_lease(world, organization_id, None)
    assert isinstance(default, Project)
    assert (default.name, default.organization_id) == (DEFAULT_NAME, organization_id)


async def test_a_lease_names_a_project_and_an_unknown_one_is_refused_with_a_code(world: World) -> None:
    organization_id = await _organization(world)
    made = await _create(world, organization_id, "research")
    assert await _of_lease(world, organization_id, "research") == made
    refused = await _of_lease(world, organization_id, "reserch")
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.PROJECT_UNKNOWN
    assert "'reserch'" in refused.why


async def test_a_name_is_taken_once_in_an_organization_and_free_in_the_next(world: World) -> None:
    acme, other = await _organization(world), await _organization(world)
    assert isinstance(await _create(world, acme, "research"), Project)
    for name in ("research", DEFAULT_NAME):
        refused = await _create(world, acme, name)
        assert isinstance(refused, Refused), name
        assert refused.code is RefusalCode.NAME_TAKEN
    assert isinstance(await _create(world, other, "research"), Project)


async def test_nobody_reads_or_names_the_projects_of_another_organization(world: World) -> None:
    acme, other = await _organization(world), await _organization(world)
    await _create(world, acme, "secret")
    assert await _names(world, other) == [DEFAULT_NAME]
    assert isinstance(await _of_lease(world, other, "secret"), Refused)


async def test_projects_are_paged_in_the_order_in_which_they_were_made(world: World, clock: Clock) -> None:
    organization_id = await _organization(world)
    for number in range(5):
        clock.advance(number % 2)  # Some are made at the same moment.
        await _create(world, organization_id, f"p{number}")
    names: list[str] = []
    after = None
    while page := await projects.page(world, organization_id, after=after, limit=2, reach=EVERYWHERE):
        names += [found.name for found in page]
        after = (page[-1].created_at, page[-1].id)
    assert names == [DEFAULT_NAME, *(f"p{number}" for number in range(5))]
