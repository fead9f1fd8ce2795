"""The API as a process: it reads its settings, opens the database in the API's role, and listens on two ports."""

import ctypes
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

from granian import Granian
from granian.constants import Interfaces, Loops
from granian.log import LogLevels
from litestar import Litestar

from control_plane import settings as configuration
from control_plane.api.app import create_app
from control_plane.api.observe import Metrics, MetricsListener, configure_logging
from control_plane.services import process
from control_plane.settings import Settings

STOP_SECONDS = 10
"""How long requests in progress may take after the signal to stop. Streams are cut then."""


_PR_SET_PDEATHSIG = 1
"""prctl(2), linux/prctl.h."""


def _end_with_parent() -> None:
    """Stop with the parent process: Granian's worker would otherwise outlive a parent that is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def application() -> Litestar:
    """The app as the server's worker builds it, from the environment."""
    _end_with_parent()
    configuration.refuse_secrets(os.environ)
    settings = configuration.read(os.environ)
    configure_logging(settings.log_level)
    world = process.api_world(settings.database_url, connections=settings.database_connections)
    metrics = Metrics()

    @asynccontextmanager
    async def process_lifespan(_: Litestar) -> AsyncIterator[None]:
        listen = settings.metrics_listen
        with closing(MetricsListener(metrics, host=listen.host, port=listen.port)):
            try:
                yield
            finally:
                await world.db.close()

    return create_app(world, settings, metrics=metrics, lifespan=[process_lifespan])


def serve(settings: Settings) -> None:
    """Serve until a signal stops it. There is one worker process; run more of these for more capacity."""
    Granian(
        "control_plane.api.server:application",
        factory=True,
        address=settings.listen.host,
        port=settings.listen.port,
        interface=Interfaces.ASGI,
        loop=Loops.uvloop,
        workers=1,
        log_access=False,
        log_level=LogLevels.warning,
        websockets=False,
        workers_kill_timeout=STOP_SECONDS,
    ).serve()
