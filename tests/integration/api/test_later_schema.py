"""A rehearsal of every roll-out and every way back: this version works on while a later one's migration adds to its schema.

The later migration is not written yet, so it is all of them at once: each table gets a column that may be null and one that
has a default, and there is a table more (`migration_rules.py` refuses anything else). It comes in the middle of a lease's
life, under connections that have prepared their statements.
"""

import asyncpg
import pytest

from control_plane.db.tables.every import metadata
from control_plane.services import billing
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.endpoints import ENDPOINTS
from tests.support import laws
from tests.support.stage import Stage

pytestmark = pytest.mark.database
LISTS = sorted({one.path for one in ENDPOINTS if one.method == "GET" and "{" not in one.path})


async def _migrate_later(url: str) -> None:
    added = "ADD COLUMN later_text text, ADD COLUMN later_number integer NOT NULL DEFAULT 7"
    connection = await asyncpg.connect(url)
    try:
        for table in metadata.tables:
            await connection.execute(f"ALTER TABLE {table} {added}")
        await connection.execute("CREATE TABLE later (id uuid PRIMARY KEY)")
    finally:
        await connection.close()


async def _order(acme: Tenant) -> str:
    answer = await acme.http.post("/v1/leases", json={"sku": "h100x1", "ssh_key_ids": []})
    assert answer.status_code == 202, answer.text
    return str(answer.headers["location"])


async def _look_everywhere(*readers: Tenant) -> None:
    for path in LISTS:
        for reader in readers:
            answer = await reader.http.get(path)
            assert answer.status_code < 500, (path, answer.text)


async def test_this_version_works_on_while_a_later_migration_adds_to_its_schema(
    api: Api, stage: Stage, acme: Tenant, operator: Tenant, database_url: str
) -> None:
    before = await _order(acme)
    await stage.play(60)
    assert (await acme.http.get(before)).json()["status"]["state"] == "ready"
    await _look_everywhere(acme, operator)

    await _migrate_later(database_url)
    await _look_everywhere(acme, operator)
    after = await _order(acme)
    await stage.play(60)
    for lease in (before, after):
        assert (await acme.http.get(lease)).json()["status"]["state"] == "ready"
        assert (await acme.http.post(f"{lease}/release")).status_code < 300
    await stage.play(900, step=30)
    for lease in (before, after):
        assert (await acme.http.get(lease)).json()["status"]["state"] == "ended"
    await laws.check_finished(stage.db, stage.cloud)
    totals = await billing.reconcile(stage.api, acme.id)
    assert totals.rated_nano == totals.posted_nano > 0
