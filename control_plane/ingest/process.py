"""The ingest process as the server's worker builds it, from the environment."""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence

import structlog

from control_plane.db import enforcement, samples
from control_plane.db.clock import DatabaseClock, PostgresTime
from control_plane.db.enforcement import MachineSignal
from control_plane.db.engine import Database, Role
from control_plane.db.errors import is_bad_value, is_database_trouble
from control_plane.db.privileges import LoginRefused
from control_plane.db.samples import NewSample, Sender
from control_plane.db.watch import DatabaseWatch
from control_plane.domain.ids import ClaimId
from control_plane.ingest import metrics as measured
from control_plane.ingest import settings as configuration
from control_plane.ingest.app import Ingest, Message, Receive, Scope, Send
from control_plane.ingest.batches import WRITERS, Batches
from control_plane.ingest.metrics import Metrics
from control_plane.ingest.senders import Senders
from control_plane.ingest.settings import Settings
from control_plane.ingest.signals import Signals
from control_plane.pool_metrics import PoolCollector
from control_plane.server_process import (
    LOGIN_REFUSED,
    allow_open_files,
    configure_logging,
    end_with_parent,
    keep_what_stays,
)
from control_plane.world import utc_now

log = structlog.get_logger("ingest")


async def check_login(url: str) -> None:
    """Raise LoginRefused when the process must not work under the login of this URL.

    A database that cannot be used now is no reason: the process looks again when it can.
    """
    db = Database(url, role=Role.INGEST, pool_size=1, readers=1)
    try:
        clock = DatabaseClock(PostgresTime(db), host=utc_now)
        watch = DatabaseWatch(db, clock, say=lambda _: None, say_clock=lambda _: None)
        await watch.look()
        watch.refuse_login()
    finally:
        await db.close()


class Process:
    """The application with what it works with. ASGI's lifespan starts and ends it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # Two statements for credentials beside those that write: neither waits for the other.
        self._db = Database(settings.database_url, role=Role.INGEST, pool_size=WRITERS, readers=2)
        self._clock = DatabaseClock(PostgresTime(self._db), host=utc_now)
        self._watch = DatabaseWatch(self._db, self._clock, say=_note_database, say_clock=_note_clock)
        self._metrics = Metrics()
        self._metrics.clock_difference.set_function(lambda: self._clock.difference().total_seconds())
        self._metrics.registry.register(PoolCollector(self._db.pools))
        self._batches = Batches(self._write, is_bad=is_bad_value, noted=self._metrics.wrote)
        self._signals = Signals(self._ask_signals, say=_note_signals)
        self._app = Ingest(
            senders=Senders(self._senders, stopwatch=time.monotonic),
            signals=self._signals,
            batches=self._batches,
            metrics=self._metrics,
            now=self._clock.now,
            stopwatch=time.monotonic,
            why_not_ready=self._why_not_ready,
            is_trouble=is_database_trouble,
            is_bad=is_bad_value,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await self._watch.look()
        watching = asyncio.create_task(self._watch.keep())
        watching.add_done_callback(_end_if_refused)
        writing = asyncio.create_task(self._batches.run())
        signalling = asyncio.create_task(self._signals.keep())
        listen = self._settings.metrics_listen
        close_metrics = measured.listen(self._metrics, listen.host, listen.port)
        keep_what_stays()
        log.info(
            "ingest_started",
            listen=str(self._settings.listen),
            metrics_listen=str(listen),
            database=self._db.place,
        )
        await send(_message("lifespan.startup.complete"))
        await receive()
        self._batches.stop()
        await writing
        watching.cancel()
        signalling.cancel()
        await asyncio.gather(watching, signalling, return_exceptions=True)
        close_metrics()
        await self._db.close()
        log.info("ingest_stopped")
        await send(_message("lifespan.shutdown.complete"))

    def _why_not_ready(self) -> str | None:
        """Machines can read it, so it does not say where the database is: the log does."""
        if self._watch.fault is not None:
            return "The database cannot be used now."
        if self._clock.refusal() is not None:
            return "The clock of the host and the clock of the database differ."
        return None

    async def _write(self, new: Sequence[NewSample]) -> int:
        async with self._db.transaction() as connection:
            return await samples.receive(connection, new, now=self._clock.now)

    async def _ask_signals(self) -> Mapping[ClaimId, MachineSignal]:
        async with self._db.reading() as connection:
            return await enforcement.signals(connection, now=self._clock.now())

    async def _senders(self, digests: Sequence[str]) -> Sequence[Sender]:
        async with self._db.reading() as connection:
            return await samples.senders(connection, digests)


def application() -> Process:
    """The app as the server's worker builds it, from the environment."""
    end_with_parent()
    settings = configuration.read(os.environ)
    configure_logging(settings.log_level)
    allow_open_files()
    return Process(settings)


def _message(kind: str) -> Message:
    return {"type": kind}


def _note_database(fault: str | None) -> None:
    if fault is None:
        log.info("database_usable")
    else:
        log.warning("database_not_usable", why=fault)


def _note_clock(refusal: str | None) -> None:
    if refusal is None:
        log.info("clock_right")
    else:
        log.error("clock_wrong", why=refusal)


def _note_signals(why: str | None) -> None:
    if why is None:
        log.info("signals_read_again")
    else:
        log.warning("signals_not_read", why=why)


def _end_if_refused(watching: asyncio.Task[None]) -> None:
    """End the worker, and with it the server, under a login that could read rows."""
    if not watching.cancelled() and isinstance(error := watching.exception(), LoginRefused):
        log.error("database_login_refused", why=str(error))
        os._exit(LOGIN_REFUSED)
