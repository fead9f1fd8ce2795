"""The reconciler as a process: it waits for its database, runs its loops, and stops in a bounded time.

    waiting --the database answers and is migrated--> running --a signal--> stopping
       ^                                                |
       `---- the database was dropped or replaced ------'

A database that is away for a while changes nothing: the loops fail and run again. One that lacks our tables, or is
another one than before, ends the loops, and the process waits and begins anew.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

import structlog

from control_plane.db import accounts
from control_plane.db.clock import DatabaseClock, PostgresTime
from control_plane.db.engine import Database
from control_plane.db.errors import is_database_trouble, sentence
from control_plane.db.listen import Listener
from control_plane.db.watch import RETRY_SECONDS, DatabaseWatch
from control_plane.vault.errors import KeyManagerError
from control_plane.world import utc_now
from reconciler.health import CLOCK_DIFFERENCE, Health, note_clock, note_database, note_not_started
from reconciler.registry import AnyLoop
from reconciler.runner import FINISH_SECONDS_MAX, UNWIND_SECONDS_MAX, Runner
from reconciler.world import World

STOP_SECONDS_MAX = FINISH_SECONDS_MAX + UNWIND_SECONDS_MAX + 8
"""How long the process may take to end after a signal. Supervisors often kill after 30 s. What does not end by then,
such as a thread that waits for a provider, is left behind: that is as safe as a crash."""
FORCED = 1
"""The exit code when the process had to be ended that way."""

BuildWorld = Callable[[DatabaseClock], Awaitable[World]]

log = structlog.get_logger()


class Process:
    """Waits for the database and runs the loops, again and again, until it is stopped."""

    def __init__(
        self,
        db: Database,
        build: BuildWorld,
        loops: Iterable[AnyLoop],
        health: Health,
        listen: Callable[[], Listener] | None = None,
    ) -> None:
        """`build` makes the world of the loops. It may raise what the database raises, and is then called again.

        `listen` makes what hears PostgreSQL's notifications, once for each time that the loops begin.
        """
        self._listen = listen
        self._db = db
        self._build = build
        self._loops = tuple(loops)
        self._health = health
        self._clock = DatabaseClock(PostgresTime(db), host=utc_now)
        self._watch = DatabaseWatch(db, self._clock, say=note_database, say_clock=note_clock)
        self._stopping = asyncio.Event()
        self._installation: str | None = None
        """The database that the loops run on."""

    async def run(self) -> None:
        """Run until `stop` is called. Raises LoginRefused before the first loop runs."""
        self._health.watch, self._health.clock = self._watch, self._clock
        CLOCK_DIFFERENCE.set_function(lambda: self._clock.difference().total_seconds())
        watching = asyncio.create_task(self._keep_watching())
        try:
            while not self._stopping.is_set():
                await self._run_once()
        finally:
            watching.cancel()

    def stop(self) -> None:
        """End the loops, and the process. What is under way may finish, for a bounded time."""
        self._stopping.set()
        if self._health.runner is not None:
            self._health.runner.stop()

    async def _run_once(self) -> None:
        """Wait until the database is usable, and run the loops while it stays the same database."""
        fault = await self._watch.look()
        self._watch.refuse_login()
        world = None if fault is not None else await self._built()
        if world is None:
            await self._pause()
            return
        if self._stopping.is_set():
            return
        runner = self._health.runner = Runner(
            world, self._loops, None if self._listen is None else self._listen()
        )
        log.info("loops_started", loops=len(self._loops))
        try:
            await runner.run()
        finally:
            self._health.runner = None
            log.info("loops_stopped")

    async def _built(self) -> World | None:
        """The world of the loops; None when the database or the key manager failed meanwhile.

        Whatever else fails would fail again, so it ends the process: what started it sees that, and a deployment rolls
        back. A process that waited instead would look healthy and do nothing.
        """
        try:
            self._installation = await self._installed()
            return await self._build(self._clock)
        except Exception as error:
            if not (is_database_trouble(error) or isinstance(error, KeyManagerError)):
                raise
            note_not_started(error, self._db.place)
            return None

    async def _keep_watching(self) -> None:
        while True:
            if (runner := self._health.runner) is not None:
                fault = await self._watch.look()
                if self._watch.unusable or (fault is None and await self._is_replaced()):
                    log.warning("database_replaced", why="the loops begin anew when it is usable")
                    runner.stop()
            await asyncio.sleep(self._watch.pause_seconds)

    async def _is_replaced(self) -> bool:
        """Whether this is another database than the one that the loops began with: their launch keys are not its."""
        try:
            return await self._installed() != self._installation
        except Exception as error:  # noqa: BLE001 - this look found nothing out, and the next one follows
            log.warning("installation_not_read", why=sentence(error, self._db.place))
            return False

    async def _installed(self) -> str:
        async with self._db.reading() as connection:
            return await accounts.installation(connection)

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), RETRY_SECONDS)


def stop_on_signals(process: Process) -> None:
    """Let SIGTERM and SIGINT stop the process, in STOP_SECONDS_MAX at most, even when its event loop is stuck."""

    def stop() -> None:
        process.stop()
        force = threading.Timer(STOP_SECONDS_MAX, _force)
        force.daemon = True
        force.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def _force() -> None:
    log.error("stop_forced", seconds=STOP_SECONDS_MAX)
    os._exit(FORCED)
