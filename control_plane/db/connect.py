"""Opens connections to PostgreSQL, for every pool in the same way.

A database host that vanishes sends nothing, so the kernel has to ask: after 10 s of silence it probes an idle
connection, and it gives up a connection after 20 s without an acknowledgement. Both pools then open new ones.
"""

import asyncio
import socket
from collections.abc import Mapping
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

CONNECT_SECONDS_MAX = 10.0
ANSWER_SECONDS_MAX = 20.0
"""How long a statement may take before its connection counts as dead and is closed. It is longer than the server's
own limit (`engine.STATEMENT_TIMEOUT_MS`), so only a server that does not answer at all runs into it."""
SCHEMES = ("postgresql", "postgres", "postgresql+asyncpg")

_KEEPALIVE = (
    # Linux' names, tcp(7). Elsewhere, those that are missing are left at the system's default.
    ("TCP_KEEPIDLE", 10),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 2),
    ("TCP_USER_TIMEOUT", 20_000),
)


class DatabaseUrlError(ValueError):
    """The URL names no PostgreSQL database. The message does not contain the URL, which may hold a password."""


def check_url(url: str) -> None:
    """Raise DatabaseUrlError for a URL with which no connection can be tried."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise DatabaseUrlError(
            "its port must be a number up to 65535, and an IPv6 address needs brackets"
        ) from error
    if parts.scheme not in SCHEMES:
        raise DatabaseUrlError("it must begin with postgresql://")
    if port is not None and not host:
        raise DatabaseUrlError("it has a port and no host")


def place(url: str) -> str:
    """Where the database is, for logs: `host:port`, or the folder of the socket. Never a user or a password."""
    parts = urlsplit(url)
    host = parts.hostname or unquote(parse_qs(parts.query).get("host", ["localhost"])[0])
    if host.startswith("/"):
        return host
    return f"[{host}]:{parts.port or 5432}" if ":" in host else f"{host}:{parts.port or 5432}"


class _Connection(asyncpg.Connection):  # type: ignore[misc] # asyncpg has no type hints.
    """asyncpg's connection, whose socket notices a server that vanished."""

    def __init__(self, protocol: object, transport: asyncio.Transport, *rest: object) -> None:
        super().__init__(protocol, transport, *rest)
        found = transport.get_extra_info("socket")
        if found is None or found.family == socket.AF_UNIX:
            return
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def connect(
    url: str, *, settings: Mapping[str, str], record_class: type[asyncpg.Record] = asyncpg.Record
) -> asyncpg.Connection:
    """A connection of asyncpg. Raises what asyncpg raises, and TimeoutError when the server does not answer."""
    # asyncpg does not accept SQLAlchemy's driver name in the URL.
    dsn = urlsplit(url)._replace(scheme="postgresql").geturl()
    async with asyncio.timeout(CONNECT_SECONDS_MAX):
        return await asyncpg.connect(
            dsn,
            server_settings=dict(settings),
            connection_class=_Connection,
            record_class=record_class,
            timeout=CONNECT_SECONDS_MAX,
        )
