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
from tests.scenario.lively import build
from tests.support.clock import Clock
from tests.support.database import fresh_database
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
    server_url: str
    template: str
    urls: dict[int, str] = field(default_factory=dict[int, str])

    def url_of(self, stage: Stage) -> str:
        """The URL of the database that a copy of this moment lives on."""
        return self.urls[id(stage)]

    @asynccontextmanager
    async def again(self) -> AsyncIterator[Stage]:
        async with fresh_database(self.server_url, self.template) as url:
            db = Database(url, role=Role.RECONCILER, pool_size=5, readers=2)
            try:
                stage = self.stage.copy(db)
                self.urls[id(stage)] = url
                yield stage
            finally:
                self.urls.clear()
                await db.close()


@pytest.fixture(scope="session")
async def lively(server_url: str, template: str) -> AsyncIterator[Moment]:
    """Every loop has something to do, and a lease is at every point of its life. Built once, copied for each use."""
    async with fresh_database(server_url, template) as url:
        db = Database(url, role=Role.RECONCILER, pool_size=5, readers=2)
        stage = await build(db, Clock())
        await db.close()
        yield Moment(stage, server_url, make_url(url).database or "")


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
