"""Makes the worlds of the API process and of the administrator's commands, so that they name no database class."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from control_plane.db import schema
from control_plane.db.clock import DatabaseClock, PostgresTime
from control_plane.db.connect import place
from control_plane.db.engine import Database, Role
from control_plane.db.errors import sentence
from control_plane.db.listen import Listener
from control_plane.db.privileges import LoginRefused
from control_plane.db.watch import DatabaseWatch
from control_plane.services.changes import Changes
from control_plane.vault.sealing.port import KeyMaker
from control_plane.world import World, utc_now
from tracing.tracer import NO_TRACER, Tracer

__all__ = ["LoginRefused"]  # For the process, which must not import the layer below.


class NotMigrated(Exception):  # noqa: N818 - it says what is the case
    """The database lacks something that this version needs; the message says what, and how to add it."""


class ClockDiffers(Exception):  # noqa: N818 - it says what is the case
    """The clock of this host is wrong, or the database's is; the message says by how much."""


@dataclass(frozen=True, slots=True)
class ApiProcess:
    """The world of the API, the watch that keeps its clock right, and what it hears of other processes' changes."""

    world: World
    watch: DatabaseWatch
    clock: DatabaseClock
    changes: Changes
    place: str
    """Where the database is, for logs."""


def _silent(_: str | None) -> None:
    """Nobody is told what changed."""


def api_process(
    url: str,
    *,
    connections: int,
    say: Callable[[str | None], None] = _silent,
    say_clock: Callable[[str | None], None] = _silent,
    tracer: Tracer = NO_TRACER,
    sealing: KeyMaker | None = None,
) -> ApiProcess:
    """What the API works with. For its role, the database filters every tenant table.

    `say` and `say_clock` are told what is wrong with the database and with the clock: see `DatabaseWatch`.
    """
    db = Database(url, role=Role.API, pool_size=connections, readers=connections, rings=True)
    clock = DatabaseClock(PostgresTime(db), host=utc_now)
    world = World(db, now=clock.now, clock_refusal=clock.refusal, tracer=tracer, sealing=sealing)
    watch = DatabaseWatch(db, clock, say=say, say_clock=say_clock)
    return ApiProcess(world, watch, clock, Changes(Listener(url, role=Role.API.value)), db.place)


async def check_login(url: str) -> None:
    """Raise LoginRefused when the API must not work under the login of this URL.

    A database that cannot be used now is no reason: the process looks again when it can (`DatabaseWatch`).
    """
    db = Database(url, role=Role.API, pool_size=1, readers=1)
    try:
        watch = DatabaseWatch(
            db, DatabaseClock(PostgresTime(db), host=utc_now), say=_silent, say_clock=_silent
        )
        await watch.look()
        watch.refuse_login()
    finally:
        await db.close()


@asynccontextmanager
async def administrator(url: str) -> AsyncIterator[World]:
    """The world of one administrator's command, on the database's clock. Raises NotMigrated and ClockDiffers."""
    db = Database(url, role=Role.ADMIN, pool_size=1, readers=1)
    try:
        async with db.reading() as connection:
            lacks = await schema.why_unusable(connection)
        if lacks is not None:
            raise NotMigrated(lacks)
        clock = DatabaseClock(PostgresTime(db), host=utc_now)
        await clock.reread()
        if (why := clock.refusal()) is not None:
            raise ClockDiffers(why)
        yield World(db, now=clock.now, clock_refusal=clock.refusal)
    finally:
        await db.close()


def fault(error: BaseException, url: str) -> str:
    """What is wrong with the database, for a person: no password, no value of a statement."""
    return sentence(error, place(url))
