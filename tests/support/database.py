"""The embedded PostgreSQL for tests: one server per machine user, one database per test, copied from a template.

The server's directory lies outside the checkout and is shared by parallel test workers; it keeps
nothing worth keeping, so durability is off, and it lies in memory where there is room: copying a database
is hundreds of small files, 14 ms there and 35 to 230 ms on a disk.
"""

import fcntl
import getpass
import hashlib
import itertools
import os
import select
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from control_plane.db import embedded
from control_plane.db.engine import Role
from control_plane.db.migrate import migrate

MEMORY_BYTES = 4 << 30
"""Free in memory, for the server to lie there. It takes under 1 GiB: 9 MB a database, and 128 MB of log."""
TEMPLATES_KEPT = 4
END_SECONDS = 10
"""How long a server may take to end at once."""
_counter = itertools.count()


def start_server() -> str:
    """The URL of the server's maintenance database; starts it when it is not running."""
    end_stranded(server_directory())
    return embedded.start(server_directory(), throwaway=True)


def end_stranded(directory: Path) -> None:
    """End the server of a directory if its programs are gone, and remove the directory.

    The server outlives the checkout that started it. Once that is deleted, with the programs in its .venv, the server
    still answers, and every statement fails that needs a library of it.
    """
    with (directory.parent / f".{directory.name}.stranded").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            process = int((directory / "postmaster.pid").read_text(encoding="utf-8").split()[0])
            program = str(Path(f"/proc/{process}/exe").readlink())
        except (OSError, ValueError, IndexError):
            return  # It does not run.
        if not program.endswith(" (deleted)"):
            return
        ended = os.pidfd_open(process)
        try:
            signal.pidfd_send_signal(ended, signal.SIGQUIT)
            select.select([ended], [], [], END_SECONDS)
        finally:
            os.close(ended)
        shutil.rmtree(directory, ignore_errors=True)


def server_directory() -> Path:
    return _room() / f"splitplane-test-pg-{getpass.getuser()}"


def login_url(url: str, role: Role) -> str:
    """The URL of a test's database for the login of a process in `role`, which has no right of its own."""
    return embedded.with_login(url, _login(role))


def _login(role: Role) -> str:
    return f"test_{role.removeprefix('splitplane_')}"


def _room() -> Path:
    """Memory, unless there is none to spare: containers often have 64 MB of it."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > MEMORY_BYTES:
        return memory
    return Path(tempfile.gettempdir())


def _schema_digest() -> str:
    migrations = Path("control_plane/db/migrations")
    text = b"".join(path.read_bytes() for path in sorted(migrations.rglob("*.py")))
    return hashlib.sha256(text).hexdigest()[:12]


async def ensure_template(url: str) -> str:
    """The name of a migrated template database; built once per schema, by whichever worker is first."""
    name = f"template_{_schema_digest()}"
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("SELECT pg_advisory_lock(4711)")
        await _sweep(connection)
        known = await connection.fetchval(
            "SELECT 1 FROM pg_database WHERE datname = $1 AND datistemplate", name
        )
        if not known:
            await connection.execute(f"DROP DATABASE IF EXISTS {name}")
            await connection.execute(f"CREATE DATABASE {name}")
            await migrate(embedded.named(url, name))
            await connection.execute(f"ALTER DATABASE {name} IS_TEMPLATE true")
        for role in Role:
            await embedded.create_login(url, _login(role), role)
    finally:
        await connection.execute("SELECT pg_advisory_unlock(4711)")
        await connection.close()
    return name


async def _sweep(connection: asyncpg.Connection) -> None:
    """Drop what runs that were killed left behind (a test's database names its process), and schemas of old.

    A template is kept for two checkouts at work beside each other, and the newest few are enough.
    """
    for row in await connection.fetch(r"SELECT datname FROM pg_database WHERE datname LIKE 'test\_%'"):
        if not _alive(int(row["datname"].split("_")[1])):
            await connection.execute(f"DROP DATABASE {row['datname']} WITH (FORCE)")
    templates = (
        r"SELECT datname FROM pg_database WHERE datname LIKE 'template\__%' AND oid > 16383 ORDER BY oid DESC"
    )
    for row in (await connection.fetch(templates))[TEMPLATES_KEPT:]:
        await connection.execute(f"ALTER DATABASE {row['datname']} IS_TEMPLATE false")
        await connection.execute(f"DROP DATABASE {row['datname']} WITH (FORCE)")


def _alive(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


@asynccontextmanager
async def fresh_database(url: str, template: str) -> AsyncIterator[str]:
    """A database of its own for one test, gone afterwards. Yields its URL."""
    name = f"test_{os.getpid()}_{next(_counter)}"
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        yield embedded.named(url, name)
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await connection.close()
