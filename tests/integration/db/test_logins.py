"""A process gets another login of the database without a pause, with the statements of docs/operating.md."""

import os
import re
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError

from control_plane.db import embedded
from control_plane.db.engine import Database, Role
from control_plane.db.errors import is_database_trouble
from control_plane.db.privileges import why_refused
from tests.integration.db.sample import A

pytestmark = pytest.mark.database
PAGE = Path("docs/operating.md")


def _statements(number: int, names: dict[str, str]) -> list[str]:
    """The statements of a block below `Another password`, for logins of this test: others share the server."""
    part = PAGE.read_text().partition("**Another password.**")[2]
    block = re.findall(r"(?:^    .+\n)+", part, re.MULTILINE)[number]
    for name in sorted(names, key=len, reverse=True):
        block = re.sub(rf"\b{name}\b", names[name], block)
    return [line.strip() for line in block.splitlines()]


async def test_a_second_login_takes_over_and_nothing_of_the_first_one_is_left(
    server_url: str, filled_url: str
) -> None:
    first, second = f"login_{os.getpid()}_first", f"login_{os.getpid()}_second"
    names = {"api_login": first, "api_login_2": second}
    root = await asyncpg.connect(filled_url)
    try:
        await embedded.create_login(server_url, first, Role.API)
        before = Database(embedded.with_login(filled_url, first), role=Role.API, pool_size=1, readers=1)
        async with before.reading(A) as connection:
            assert await why_refused(connection, Role.API) is None

        for statement in _statements(0, names):
            await root.execute(statement)
        after = Database(embedded.with_login(filled_url, second), role=Role.API, pool_size=1, readers=1)
        for login in (before, after):
            async with login.reading(A) as connection:
                assert await why_refused(connection, Role.API) is None

        for statement in _statements(1, names):
            await root.execute(statement)
        with pytest.raises((DBAPIError, asyncpg.PostgresError, OSError)) as refused:
            async with before.reading(A):
                pass
        assert is_database_trouble(refused.value)
        async with after.reading(A) as connection:
            assert await why_refused(connection, Role.API) is None
        assert await root.fetchval("SELECT count(*) FROM pg_roles WHERE rolname = $1", first) == 0
        await before.close()
        await after.close()
    finally:
        for name in (first, second):
            await root.execute(f"DROP ROLE IF EXISTS {name}")
        await root.close()
