"""The process of the verifier service, which runs until a signal.

python -m data_plane.proof.verifier.service serve
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Mapping

import structlog
from prometheus_client import start_http_server

from data_plane.proof.verifier.service import settings
from data_plane.proof.verifier.service.metrics import Metrics
from data_plane.proof.verifier.service.pool import WorkerDied
from data_plane.proof.verifier.service.server import VerifierServer
from data_plane.proof.verifier.service.tls import CertificatesError
from environment.reading import described

log = structlog.get_logger("verifier")


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m data_plane.proof.verifier.service",
        description="Checks what GPU provers answered. CPU work only: no database, no secret but its own key.",
        epilog=f"settings, read from the environment:\n\n{described(settings.ServerVariables)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=("serve",))
    parser.parse_args(arguments)
    structlog.configure(
        processors=[
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        chosen = settings.read_server(environ, cores=len(os.sched_getaffinity(0)))
        asyncio.run(_serve(chosen))
    except (settings.SettingsError, CertificatesError, WorkerDied) as error:
        print(f"verifier: {error}", file=sys.stderr)
        return 2
    return 0


async def _serve(chosen: settings.ServerSettings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    metrics = Metrics()
    metrics_port = _show(metrics, chosen.metrics_listen)
    server = VerifierServer(chosen, metrics)
    await server.start()
    log.info(
        "verifier_started",
        listen=chosen.listen,
        port=server.port,
        metrics_port=metrics_port,
        workers=chosen.workers,
        plaintext=chosen.tls is None,
    )
    await stop.wait()
    log.info("verifier_drains", seconds=chosen.drain_seconds)
    await server.drain()
    log.info("verifier_ended")


def _show(metrics: Metrics, listen: tuple[str, int]) -> int:
    """Serve `/metrics` in a thread of its own until the end of the process. Returns the port."""
    host, port = listen
    try:
        server, _ = start_http_server(port, host, registry=metrics.registry)
    except OSError as error:
        raise settings.SettingsError(
            f"SPLITPLANE_VERIFIER_METRICS_LISTEN is '{host}:{port}', where we cannot listen: {error.strerror}"
        ) from None
    return server.server_port


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
