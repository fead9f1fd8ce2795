"""Fixtures every layer shares. A database test takes `database_url`; anything above takes what it builds on that."""

import gc
import os
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, settings

from control_plane.db.engine import Database, Role
from tests.support.clock import Clock
from tests.support.database import ensure_template, fresh_database, login_url, start_server

pytest_plugins = ["tests.support.groups", "tests.support.kubernetes.fixtures"]

# gRPC writes a line to standard error when a process that has loaded it forks, also into the output of other tests.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# How fast a busy machine makes examples is no property of the code.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")


def pytest_collection_finish() -> None:
    """What is there when the tests begin stays to their end, so collections need not look at it again.

    They took a fifth of the time of a run.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session")
def server_url() -> str:
    return start_server()


@pytest.fixture(scope="session")
async def template(server_url: str) -> str:
    return await ensure_template(server_url)


@pytest.fixture
async def database_url(server_url: str, template: str) -> AsyncIterator[str]:
    """A migrated, empty database of this test's own."""
    async with fresh_database(server_url, template) as url:
        yield url


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    """The reconciler's view: every tenant."""
    database = Database(
        login_url(database_url, Role.RECONCILER), role=Role.RECONCILER, pool_size=5, readers=3
    )
    yield database
    await database.close()


@pytest.fixture
async def api_db(database_url: str) -> AsyncIterator[Database]:
    """The API's view: one tenant at a time, filtered by the database."""
    database = Database(login_url(database_url, Role.API), role=Role.API, pool_size=5, readers=3)
    yield database
    await database.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()
