"""What the processes that serve HTTP with Granian have in common."""

import ctypes
import gc
import multiprocessing
import os
import resource
import signal
import socket
import sys
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog
from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops
from granian.http import HTTP1Settings
from granian.log import LogLevels

from control_plane.settings import Address, SettingsError

GARBAGE_OBJECTS = 10_000
"""New objects after which the youngest generation is collected. A request makes some hundreds, and frees nearly all."""
FILES_SPARE = 256
"""Open files besides the connections of clients: the database's, the log, the libraries."""
LOGIN_REFUSED = 2
"""The exit code of a worker that must not work under its database login."""
_PR_SET_PDEATHSIG = 1
"""prctl(2), linux/prctl.h."""


def configure_logging(level: str = "info") -> None:
    """JSON lines on standard error: constant event names, fields, UTC times."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(serializer=_to_json),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
        cache_logger_on_first_use=True,
    )


def _to_json(event: Any, **_: Any) -> bytes:
    return msgspec.json.encode(event, enc_hook=str)


def end_with_parent() -> None:
    """End at once with the parent process, as in a crash: Granian's worker would otherwise outlive one that is killed.

    A worker that finished its requests first would have nobody who ends it when one of them hangs, and would keep the
    ports from the process that a supervisor starts in the place of the killed one.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()  # It may be gone already, and its end is signalled no more.
    if parent is not None and os.getppid() != parent.pid:
        os._exit(1)


def keep_what_stays() -> None:
    """Take what was made at the start out of garbage collection, and collect less often.

    Nearly all objects of the process are modules, routes and schemas that live as long as it does. Looking at all of
    them again while requests wait was a large part of the time of the slowest requests (docs/benchmarks.md).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS, 20, 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a process takes from its clients."""

    head_seconds: int
    """How long the head of a request may take, with the idle time before it, which Granian counts as part of it."""
    head_bytes: int
    backlog: int
    """How many connections wait to be accepted."""
    connections: int
    """How many are accepted at most, as far as open files allow."""
    stop_seconds: int
    """How long requests that are under way may take once a signal stops the process."""


def serve(application: str, listen: Address, bounds: Bounds) -> None:
    """Serve an application, which is named as `module:function`, with one worker until a signal stops it."""
    allow_open_files()
    Granian(
        application,
        factory=True,
        address=listen.host,
        port=listen.port,
        interface=Interfaces.ASGI,
        loop=Loops.uvloop,
        http=HTTPModes.http1,
        http1_settings=HTTP1Settings(
            header_read_timeout=bounds.head_seconds * 1_000, max_buffer_size=bounds.head_bytes
        ),
        backlog=bounds.backlog,
        backpressure=connections_max(bounds.connections),
        workers=1,
        log_access=False,
        log_level=LogLevels.warning,
        websockets=False,
        workers_kill_timeout=bounds.stop_seconds,
    ).serve()


def allow_open_files() -> None:
    """Raise the soft limit of open files to the hard one: each connection of a client is an open file."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def check_free(variable: str, address: Address) -> None:
    """Take the port for a moment, because the server's worker could not say in one sentence why it cannot.

    Raises SettingsError.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address.host, address.port))
    except OSError as error:
        raise SettingsError(f"{variable} is {address}, where we cannot listen: {error.strerror}") from error


def connections_max(wanted: int) -> int:
    """How many connections are accepted: each of them is an open file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if hard == resource.RLIM_INFINITY else max(1, min(wanted, hard - FILES_SPARE))
