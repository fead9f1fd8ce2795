"""The reconciler's HTTP listener: `/metrics` for Prometheus, `/healthz` and `/readyz` for whoever supervises it.

It has threads of its own, so a scrape does not wait for the loops. The answers about health are computed on the event
loop of the loops themselves: when that does not answer, the process is not healthy, whatever this thread thinks.
"""

import asyncio
import json
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import TimeoutError as NoAnswer
from socketserver import ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import REGISTRY, make_wsgi_app

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

ANSWER_SECONDS_MAX = 2.0
"""How long the event loop may take to answer before the process counts as stuck."""
REQUEST_SECONDS_MAX = 10
"""How long a client may take to send its request."""

WELL, NOT_WELL = "200 OK", "503 Service Unavailable"

Reasons = Callable[[], Iterable[str]]
"""Returns why the process cannot do its work now, as sentences; nothing when it can."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    address_family = socket.AF_INET


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_SECONDS_MAX

    def log_message(self, *_: object) -> None:
        """Keep requests out of the log, which is JSON lines."""


class Listener:
    """Serves until it is closed."""

    def __init__(self, host: str, port: int, *, loop: asyncio.AbstractEventLoop, not_ready: Reasons) -> None:
        """Raises OSError when it cannot listen there."""
        self._loop = loop
        self._not_ready = not_ready
        self._metrics = make_wsgi_app(REGISTRY)
        server = _Server6 if ":" in host else _Server
        self._server = make_server(host.strip("[]"), port, self._answer, server, handler_class=_Handler)
        self.port = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, name="listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        match environ["PATH_INFO"]:
            case "/metrics":
                shown: Iterable[bytes] = self._metrics(environ, start_response)
                return shown
            case "/healthz" | "/readyz" as path:
                status, body = _health(path, self._reasons())
                start_response(status, [("Content-Type", "application/json")])
                return [json.dumps(body).encode()]
            case _:
                start_response("404 Not Found", [("Content-Type", "text/plain")])
                return [b"/metrics, /healthz, /readyz\n"]

    def _reasons(self) -> list[str] | None:
        """Why the process is not ready, by its event loop; None when that does not answer."""

        async def ask() -> list[str]:
            return list(self._not_ready())

        asked = asyncio.run_coroutine_threadsafe(ask(), self._loop)
        try:
            return asked.result(ANSWER_SECONDS_MAX)
        except NoAnswer:
            asked.cancel()
            return None


def _health(path: str, reasons: list[str] | None) -> tuple[str, dict[str, object]]:
    """The status and the body of an answer about health; no reasons at all mean that the event loop is stuck."""
    if reasons is None:
        return NOT_WELL, {"status": "stuck"}
    if path == "/healthz":
        return WELL, {"status": "up"}
    if reasons:
        return NOT_WELL, {"status": "not_ready", "reasons": reasons}
    return WELL, {"status": "ready"}
