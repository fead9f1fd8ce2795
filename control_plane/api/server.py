"""The API as a process: reads its settings, opens the database in the API's role, listens twice."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import uvicorn
from litestar import Litestar

from control_plane import settings as configuration
from control_plane.api.app import create_app
from control_plane.api.observe import Metrics, MetricsListener, configure_logging
from control_plane.services import process
from control_plane.settings import Settings


def application() -> Litestar:
    """The app as the server's worker builds it, from the environment."""
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
    uvicorn.run(
        "control_plane.api.server:application",
        factory=True,
        host=settings.listen.host,
        port=settings.listen.port,
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=10,
    )
