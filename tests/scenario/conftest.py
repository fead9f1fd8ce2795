import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import pytest
from sqlalchemy.engine import make_url

from control_plane.db.engine import Database, Role
from control_plane.db.tables.every import FACTS
from reconciler import registry
from reconciler.worlds.complete import CompleteWorld
from tests.scenario.lively import build
from tests.support.clock import Clock
from tests.support.database import fresh_database
from tests.support.rewinding import Rewinding, Rewound, keep
from tests.support.stage import Stage, set_stage
from tests.support.writes import WatchedDatabase, Writes


@pytest.fixture
async def stage(db: Database, api_db: Database, clock: Clock) -> Stage:
    """API services in the API's role, every loop in the reconciler's, one fake provider."""
    return await set_stage(db, clock, api_db=api_db)


@dataclass(frozen=True)
class Moment:
    """A stage at one moment, which can be copied as often as needed."""

    stage: Stage
    databases: Rewinding
    _of: dict[int, Rewound] = field(default_factory=dict[int, Rewound])
    """The database that a copy lives on, by the id of its stage."""

    @asynccontextmanager
    async def again(self) -> AsyncIterator[Stage]:
        async with self.databases.database() as rewound:
            stage = self.stage.copy(rewound.database("first", _connect))
            self._of[id(stage)] = rewound
            yield stage
            del self._of[id(stage)]

    def replicas(self, stage: Stage, count: int) -> list[CompleteWorld]:
        """Reconciler processes beside a copy of this moment, with connections of their own."""
        rewound = self._of[id(stage)]
        return [
            stage.replica(f"replica {n}", rewound.database(f"replica {n}", _connect)) for n in range(count)
        ]


@pytest.fixture(scope="session")
async def lively(server_url: str, template: str) -> AsyncIterator[Moment]:
    """Every loop has something to do, and a lease is at every point of its life. Built once, copied for each use."""
    async with fresh_database(server_url, template) as url:
        db = _connect(url)
        stage = await build(db, Clock())
        await db.close()
        await keep(url)
        databases = Rewinding(server_url, make_url(url).database or "")
        yield Moment(stage, databases)
        await databases.close()


def _connect(url: str) -> Database:
    return Database(url, role=Role.RECONCILER, pool_size=5, readers=2)


@pytest.fixture(scope="session")
async def written(lively: Moment) -> dict[str, Writes]:
    """The tables that each loop writes when it has something to do, by the loop's name: measured, not listed.

    Append-only tables are left out. Two loops that only add lines to the same journal cannot undo each other's
    work, and nearly every loop adds some.
    """
    found = {}
    for name in registry.discovered():
        async with lively.again() as stage:
            watched = WatchedDatabase(stage.db)
            world = dataclasses.replace(stage.world, db=cast("Database", watched))
            await stage.run(name, world=world)
            found[name] = Writes(frozenset(watched.changed - FACTS), frozenset(watched.added - FACTS))
    return found
