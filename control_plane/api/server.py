"""The API as a process: it reads its settings, opens the database in the API's role, and listens on two ports."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress

from litestar import Litestar

from control_plane import server_process
from control_plane import settings as configuration
from control_plane.api import observe
from control_plane.api.app import create_app
from control_plane.api.auth import Authenticator
from control_plane.api.observe import (
    Metrics,
    MetricsListener,
    note_clock,
    note_database,
    note_login_refused,
    note_start,
    note_stop,
    note_traces,
)
from control_plane.api.streams import Streams
from control_plane.pool_metrics import PoolCollector
from control_plane.server_process import (
    LOGIN_REFUSED,
    Bounds,
    allow_open_files,
    check_free,
    configure_logging,
    end_with_parent,
    keep_what_stays,
)
from control_plane.services import health, process
from control_plane.services.key_ring import KEEP_SECONDS
from control_plane.services.sealing import key_maker
from control_plane.services.signing_in import SigningIn, signing_in
from control_plane.settings import Settings
from tracing import starting as tracing

STORE_USES_SECONDS = 30.0
"""How often it is stored when API keys were used."""
HEAD_BYTES_MAX = 65_536
"""What a connection may make the server keep before the head of its request is complete."""
BACKLOG = 1_024
STOP_SECONDS = 10
"""How long requests in progress may take after the signal to stop."""
STREAMS_STOP_SECONDS = 5
"""How long event streams may take to end after that signal, before it is passed on."""


def application() -> Litestar:
    """The app as the server's worker builds it, from the environment."""
    end_with_parent()
    configuration.refuse_secrets(os.environ)
    settings = configuration.read(os.environ)
    configure_logging(settings.log_level)
    allow_open_files()
    served = process.api_process(
        settings.database_url,
        connections=settings.database_connections,
        say=note_database,
        say_clock=note_clock,
        tracer=tracing.tracer(os.environ, "splitplane-api", note_traces),
        sealing=key_maker(settings),
    )
    metrics = metrics_of(served)
    signs_in = signing_in(settings, served.world)

    @asynccontextmanager
    async def process_lifespan(app: Litestar) -> AsyncIterator[None]:
        listen = settings.metrics_listen
        _end_streams_first(app.state.context.streams)
        authenticator = app.state.context.authenticator
        background = [
            asyncio.create_task(served.watch.keep()),
            asyncio.create_task(served.changes.run()),
            asyncio.create_task(_keep_uses(authenticator)),
            asyncio.create_task(app.state.context.refusals.keep()),
            asyncio.create_task(_keep_signing_keys(signs_in)),
        ]
        budgets = app.state.context.budgets
        # Before the first request: a process that knows no other one takes the whole burst for its share.
        await served.watch.look()
        await budgets.share()
        background.append(asyncio.create_task(budgets.keep()))
        background[0].add_done_callback(_end_if_refused)
        try:
            with closing(MetricsListener(metrics, host=listen.host, port=listen.port)):
                keep_what_stays()
                note_start(
                    listen=str(settings.listen),
                    metrics_listen=str(listen),
                    database=served.place,
                    traces=served.world.tracer.on,
                )
                yield
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await served.world.db.close()
            served.world.tracer.close()
            note_stop()

    return create_app(
        served.world,
        settings,
        metrics=metrics,
        changes=served.changes,
        signing_in=signs_in,
        lifespan=[process_lifespan],
    )


async def _keep_signing_keys(signs_in: SigningIn | None) -> None:
    """Make the next key of access tokens when it is needed, and keep all under the newest master key."""
    while signs_in is not None:
        try:
            await signs_in.keys.keep()
            await signs_in.keys.renew()
        except Exception as error:
            if not health.is_database_trouble(error) and not health.is_key_manager_trouble(error):
                raise
            observe.log.warning("signing_keys_not_kept", error=type(error).__name__)
        await asyncio.sleep(KEEP_SECONDS)


async def _keep_uses(authenticator: Authenticator) -> None:
    """Store now and then when API keys were used."""
    while True:
        await asyncio.sleep(STORE_USES_SECONDS)
        try:
            await authenticator.store_uses()
        except Exception as error:
            if not health.is_database_trouble(error):
                raise


def metrics_of(served: process.ApiProcess) -> Metrics:
    """The metrics of the process, with those that are read where they are known."""
    metrics = Metrics()
    metrics.clock_difference.set_function(lambda: served.clock.difference().total_seconds())
    metrics.registry.register(PoolCollector(served.world.db.pools))
    return metrics


def _end_if_refused(watching: asyncio.Task[None]) -> None:
    """End the worker, and with it the server, under a login that could read every tenant's rows.

    Nobody is answered any more, not even requests in progress.
    """
    if not watching.cancelled() and isinstance(error := watching.exception(), process.LoginRefused):
        note_login_refused(str(error))
        os._exit(LOGIN_REFUSED)


def _end_streams_first(streams: Streams) -> None:
    """Let SIGTERM end the event streams before Granian waits for the requests in progress.

    Granian handles SIGTERM and SIGINT alike, and waits for streams, which do not end by themselves, until it kills the
    worker. So SIGTERM is ours, and SIGINT stays Granian's. The worker leaves the terminal's process group, because
    Ctrl-C would otherwise reach it as SIGINT beside the SIGTERM of its parent.
    """
    os.setpgid(0, 0)
    stopping: set[asyncio.Task[None]] = set()

    async def stop() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(streams.stop(), STREAMS_STOP_SECONDS)
        signal.raise_signal(signal.SIGINT)

    def begin() -> None:
        stopping.add(asyncio.create_task(stop()))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, begin)


def serve(settings: Settings) -> None:
    """Serve until a signal stops it. There is one worker process; run more of these for more capacity.

    Raises LoginRefused for a database login that could go around row-level security, and
    SettingsError when one of the two ports cannot be listened on, or the file of the sealing key not be used.
    """
    signing_in(settings, process.api_process(settings.database_url, connections=1).world)
    key_maker(settings)  # In the worker, which makes its own, a wrong file would end in a traceback.
    asyncio.run(process.check_login(settings.database_url))
    check_free("SPLITPLANE_LISTEN", settings.listen)
    check_free("SPLITPLANE_METRICS_LISTEN", settings.metrics_listen)
    bounds = Bounds(
        head_seconds=settings.idle_seconds,
        head_bytes=HEAD_BYTES_MAX,
        backlog=BACKLOG,
        # Every open stream is a connection.
        connections=max(settings.connections_max, settings.streams_max + BACKLOG),
        stop_seconds=STOP_SECONDS,
    )
    server_process.serve("control_plane.api.server:application", settings.listen, bounds)
