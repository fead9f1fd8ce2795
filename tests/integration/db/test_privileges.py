"""A process refuses to work under a login that could go around row-level security, and says why in one sentence."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from control_plane import server_process
from control_plane.api import server
from control_plane.db import embedded, privileges, roles
from control_plane.db.clock import DatabaseClock, PostgresTime
from control_plane.db.engine import Database, Role
from control_plane.db.watch import DatabaseWatch
from control_plane.services import process
from control_plane.world import utc_now
from tests.support.database import login_url

pytestmark = pytest.mark.database
SECONDS_MAX = 60


@asynccontextmanager
async def a_login(url: str, *changes: str) -> AsyncIterator[str]:
    """A login for the API, changed by these statements, in which {0} is its name. Yields its URL."""
    name = f"login_{os.getpid()}_{abs(hash(changes)) % 10**9}"
    owner = await asyncpg.connect(url)
    try:
        await owner.execute(f"CREATE ROLE {name} LOGIN NOINHERIT; GRANT {Role.API} TO {name}")
        for change in changes:
            await owner.execute(change.format(name))
        yield embedded.with_login(url, name)
    finally:
        await owner.execute(f"REASSIGN OWNED BY {name} TO postgres; DROP OWNED BY {name}; DROP ROLE {name}")
        await owner.close()


async def _refusal(url: str, role: Role = Role.API) -> str | None:
    db = Database(url, role=role, pool_size=1, readers=1)
    try:
        async with db.reading() as connection:
            return await privileges.why_refused(connection, role)
    finally:
        await db.close()


@pytest.mark.parametrize("role", [Role.API, Role.RECONCILER, Role.INGEST])
async def test_a_login_that_is_only_a_member_of_its_role_may_work(database_url: str, role: Role) -> None:
    assert await _refusal(login_url(database_url, role), role) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("ALTER ROLE {0} SUPERUSER", "is a superuser"),
        ("ALTER ROLE {0} BYPASSRLS", "has BYPASSRLS"),
        ("ALTER ROLE {0} CREATEROLE", "has CREATEROLE or REPLICATION"),
        ("ALTER ROLE {0} REPLICATION", "has CREATEROLE or REPLICATION"),
        ("ALTER TABLE leases OWNER TO {0}", "owns the table leases"),
        ("ALTER SCHEMA public OWNER TO {0}", "owns the schema public"),
        ("ALTER FUNCTION refuse_edit() OWNER TO {0}", "owns the function refuse_edit"),
        (f"GRANT {roles.OWNER} TO {{0}}", "or may take the role that does"),
        (f"GRANT {roles.OWNER} TO {{0}} WITH ADMIN TRUE, INHERIT FALSE, SET FALSE", "or may take the role"),
        (f"GRANT {roles.LOOKUPS} TO {{0}}", "owns the function"),
        (f"GRANT {roles.BACKUP} TO {{0}}", f"may take the role {roles.BACKUP}"),
        (f"GRANT {Role.RECONCILER} TO {{0}}", f"may take the role {Role.RECONCILER}"),
        (f"GRANT {Role.ADMIN} TO {{0}}", f"may take the role {Role.ADMIN}"),
        ("GRANT postgres TO {0}", "or may take the role"),
        ("GRANT pg_read_all_data TO {0}", "may take the role pg_read_all_data"),
        ("GRANT pg_execute_server_program TO {0}", "may take the role pg_execute_server_program"),
    ],
)
async def test_a_login_that_could_go_around_row_level_security_may_not(
    database_url: str, change: str, words: str
) -> None:
    async with a_login(database_url, change) as url:
        refusal = await _refusal(url)
    assert refusal is not None
    assert words in refusal
    assert refusal.endswith("(docs/operating.md, Logins of the database).")
    assert refusal.count(". ") == 1, "one sentence of what is wrong, and one of what to do"


async def test_a_login_that_may_take_such_a_role_by_way_of_another_one_may_not(database_url: str) -> None:
    """Membership is followed through any number of roles, also those that inherit nothing."""
    between = f"between_{os.getpid()}"
    owner = await asyncpg.connect(database_url)
    try:
        await owner.execute(f"CREATE ROLE {between} NOINHERIT; GRANT {Role.RECONCILER} TO {between}")
        async with a_login(database_url, f"GRANT {between} TO {{0}}") as url:
            assert f"may take the role {Role.RECONCILER}" in (await _refusal(url) or "")
    finally:
        await owner.execute(f"DROP ROLE {between}")
        await owner.close()


async def test_a_connection_that_acts_in_another_role_may_not_work(database_url: str) -> None:
    url = login_url(database_url, Role.API)
    db = Database(url, role=Role.API, pool_size=1, readers=1)
    try:
        async with db.reading() as connection:
            refusal = await privileges.why_refused(connection, Role.RECONCILER)
    finally:
        await db.close()
    assert refusal is not None


async def test_a_process_whose_database_was_away_at_its_start_is_refused_when_it_comes_back(
    database_url: str,
) -> None:
    """The API's worker and the reconciler's process both ask their watch."""
    db = Database(database_url, role=Role.API, pool_size=1, readers=1)
    clock = DatabaseClock(PostgresTime(db), host=utc_now)
    watch = DatabaseWatch(db, clock, say=lambda _: None, say_clock=lambda _: None)
    try:
        watch.refuse_login()
        assert "superuser" in (await watch.look() or "")
        with pytest.raises(privileges.LoginRefused, match="superuser"):
            await watch.keep()
    finally:
        await db.close()


async def test_a_database_that_is_away_refuses_nobody() -> None:
    await process.check_login("postgresql://nobody@127.0.0.1:1/none")


@pytest.mark.parametrize(
    "command",
    [("control_plane", "serve"), ("reconciler", "run", "--only", "money"), ("control_plane.ingest",)],
    ids=["api", "reconciler", "ingest"],
)
def test_each_process_ends_with_2_and_one_sentence(database_url: str, command: tuple[str, ...]) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", *command],
        env={
            "SPLITPLANE_DATABASE_URL": database_url,
            "SPLITPLANE_LISTEN": "127.0.0.1:1",
            "SPLITPLANE_RECONCILER_METRICS_LISTEN": "127.0.0.1:0",
        },
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == 2, ran.stderr
    last = ran.stderr.strip().splitlines()[-1]
    assert re.search(
        r"The database login postgres is a superuser, to whom PostgreSQL applies no row-level", last
    )
    assert "Traceback" not in ran.stderr


async def test_the_apis_worker_ends_at_once_when_its_watch_refuses_the_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)

    async def refused() -> None:
        raise privileges.LoginRefused("The database login postgres is a superuser.")

    watching = asyncio.create_task(refused())
    await asyncio.wait([watching])
    server._end_if_refused(watching)
    assert ended == [server_process.LOGIN_REFUSED]
