"""Databases for tests of the database itself: by the owner, by two tenants, or empty."""

from collections.abc import AsyncIterator

import pytest

from control_plane.db.engine import Database, Role
from tests.integration.db.sample import A, B, fill
from tests.support.database import fresh_database, login_url


@pytest.fixture(scope="module")
async def filled_url(server_url: str, template: str) -> AsyncIterator[str]:
    """Rows of two tenants in every table. Shared by the tests of a module: they change nothing for good."""
    async with fresh_database(server_url, template) as url:
        owner = Database(url, role=None, pool_size=1, readers=1)
        async with owner.transaction() as connection:
            await fill(connection, A, B)
        await owner.close()
        yield url


@pytest.fixture
async def owner(filled_url: str) -> AsyncIterator[Database]:
    database = Database(filled_url, role=None, pool_size=2, readers=1)
    yield database
    await database.close()


@pytest.fixture
async def api(filled_url: str) -> AsyncIterator[Database]:
    database = Database(login_url(filled_url, Role.API), role=Role.API, pool_size=2, readers=1)
    yield database
    await database.close()


@pytest.fixture
async def reconciler(filled_url: str) -> AsyncIterator[Database]:
    database = Database(login_url(filled_url, Role.RECONCILER), role=Role.RECONCILER, pool_size=2, readers=1)
    yield database
    await database.close()


@pytest.fixture
async def own(database_url: str) -> AsyncIterator[Database]:
    """The owner's view of a database of this test's own."""
    database = Database(database_url, role=None, pool_size=10, readers=1)
    yield database
    await database.close()
