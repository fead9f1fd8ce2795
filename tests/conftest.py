"""Fixtures every layer shares. A database test takes `database_url`; anything above takes what it builds on that."""

import gc
import os
from collections.abc import AsyncIterator
from functools import partial

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy.engine import make_url

from control_plane.db.engine import Database, Role
from tests.support.clock import Clock
from tests.support.database import ensure_template, fresh_database, login_url, start_server
from tests.support.rewinding import Rewinding, Rewound, keep

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


@pytest.fixture(scope="session")
async def rewinding(server_url: str, template: str) -> AsyncIterator[Rewinding]:
    """Migrated, empty databases that are used again."""
    async with fresh_database(server_url, template) as url:
        await keep(url)
        databases = Rewinding(server_url, make_url(url).database or "")
        yield databases
        await databases.close()


@pytest.fixture
async def rewound(request: pytest.FixtureRequest, rewinding: Rewinding) -> AsyncIterator[Rewound]:
    """A migrated, empty database for this test alone.

    A test that takes its URL may do more than change rows, so that nobody gets the database after it.
    """
    lent = rewinding.copied() if "database_url" in request.fixturenames else rewinding.database()
    async with lent as database:
        yield database


@pytest.fixture
def database_url(rewound: Rewound) -> str:
    return rewound.url


@pytest.fixture
def db(rewound: Rewound) -> Database:
    """The reconciler's view: every tenant."""
    return rewound.database("every tenant", partial(_connected, Role.RECONCILER))


@pytest.fixture
def ingest_db(rewound: Rewound) -> Database:
    """The ingest process's view: what its functions answer."""
    return rewound.database("ingest", partial(_connected, Role.INGEST))


@pytest.fixture
def api_db(rewound: Rewound) -> Database:
    """The API's view: one tenant at a time, filtered by the database."""
    return rewound.database("one tenant", partial(_connected, Role.API))


def _connected(role: Role, url: str) -> Database:
    return Database(login_url(url, role), role=role, pool_size=5, readers=3)


@pytest.fixture
def clock() -> Clock:
    return Clock()
