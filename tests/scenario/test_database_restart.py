"""The database is killed under load and comes back. The reconciler notices, waits, and goes on where it was.

A server of its own, real time, the real runner: what a virtual clock cannot show.
"""

import asyncio
import dataclasses
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from control_plane.db import embedded
from control_plane.db.engine import Database, Role
from control_plane.db.errors import is_database_trouble
from control_plane.db.migrate import migrate
from providers.fake import CAPABILITIES
from reconciler import registry
from reconciler.runner import Runner
from tests.support.clock import WallClock
from tests.support.rows import rows
from tests.support.stage import Stage, set_stage

pytestmark = pytest.mark.database

LEASES = 12
SECONDS_MAX = 25.0
_STATES = text("SELECT state, count(*) AS leases FROM leases GROUP BY state")


@pytest.fixture(autouse=True)
def short_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a dead worker become free after minutes, and the test cannot wait that long in real time."""
    second = timedelta(seconds=1)
    for module in (
        "loops.leases.admit_customers",
        "loops.machines.bootstrap_machines",
        "loops.machines.terminate_machines",
        "network",
    ):
        monkeypatch.setattr(f"reconciler.{module}.HELD_FOR", 3 * second)
    monkeypatch.setattr("reconciler.loops.machines.launch_machines.ASKED_SECONDS_MAX", 2)
    monkeypatch.setattr("control_plane.domain.sweep.LOOK_EXTRA", second)


@pytest.fixture
async def own_server() -> AsyncIterator[Path]:
    """A server that nobody else uses; its sockets' path has to be short."""
    with tempfile.TemporaryDirectory(prefix="sp-", ignore_cleanup_errors=True) as parent:
        directory = Path(parent) / "pg"
        url = await asyncio.to_thread(embedded.start, directory)
        await migrate(url)
        yield directory
        await asyncio.to_thread(embedded.stop, directory, immediately=True)


@asynccontextmanager
async def _running(stage: Stage) -> AsyncIterator[Runner]:
    runner = Runner(stage.world, registry.discovered().values())
    task = asyncio.create_task(runner.run())
    try:
        yield runner
        assert not task.done(), f"the runner died: {task.exception()!r}"
    finally:
        runner.stop()
        await asyncio.wait_for(task, timeout=20)


async def _eventually(true: Callable[[], Awaitable[bool]]) -> None:
    """Repeat the check until it holds, also while the database does not answer."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            try:
                if await true():
                    return
            except Exception as error:
                if not is_database_trouble(error):
                    raise
            await asyncio.sleep(0.05)


async def test_a_database_killed_under_load_loses_no_lease_and_no_machine(own_server: Path) -> None:
    url = embedded.start(own_server)
    db = Database(url, role=Role.RECONCILER, pool_size=12, readers=4)
    stage = await set_stage(
        db,
        WallClock(),
        capabilities=dataclasses.replace(CAPABILITIES, list_lag_seconds=0.0, boot_seconds_max=5.0),
    )
    organization_id = await stage.organization()
    await stage.run("refresh_offers")
    counts: dict[str, int] = {}

    async def all_are(state: str) -> bool:
        async with db.reading() as connection:
            found = {row.state: row.leases for row in await rows(connection, _STATES)}
        counts.clear()
        counts.update(found)
        return found == {state: LEASES}

    async def some_are_on_the_way() -> bool:
        await all_are("ready")
        return counts.get("starting", 0) > 0

    try:
        async with _running(stage):
            for _ in range(LEASES):
                await stage.lease(organization_id)
            await _eventually(some_are_on_the_way)
            await asyncio.to_thread(embedded.stop, own_server, immediately=True)
            await asyncio.sleep(1.0)  # Every loop meets a database that is away.
            await asyncio.to_thread(embedded.start, own_server)
            await _eventually(lambda: all_are("ready"))
            await stage.check()

            await stage.release_all()
            await asyncio.to_thread(embedded.stop, own_server, immediately=True)
            await asyncio.to_thread(embedded.start, own_server)
            await _eventually(lambda: all_are("ended"))

            async def everything_is_billed() -> bool:
                async with db.reading() as connection:
                    open_meters = text(
                        "SELECT count(*) AS n FROM leases WHERE NOT meter_closed AND ready_at IS NOT NULL"
                    )
                    unrated = text("SELECT count(*) AS n FROM unrated")
                    return not any([(await rows(connection, one))[0].n for one in (open_meters, unrated)])

            await _eventually(everything_is_billed)
        await stage.check_finished()
    except TimeoutError:
        pytest.fail(f"leases stand still: {counts}")
    finally:
        await db.close()
