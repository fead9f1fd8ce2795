"""Tenants never meet: held by the database itself, for every table and not for a list of them (law 13)."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import UUID

import pytest
from sqlalchemy import text, update
from sqlalchemy.exc import DBAPIError

from control_plane.db import leases, organizations, proofs, usage
from control_plane.db.engine import Database, Role
from control_plane.db.tables import FACTS, SHARED, metadata
from control_plane.domain.ids import ApiKeyId, LeaseId, OrganizationId
from tests.integration.db.sample import TENANT_TABLES, A, B, a_row, insert
from tests.support.clock import START
from tests.support.rows import rows

pytestmark = pytest.mark.database
every_tenant_table = pytest.mark.parametrize("table", TENANT_TABLES)
WRITABLE = ["api_keys", "holds", "machines", "leases", "standings"]
"""Tables of tenants that the API's role may update."""


@contextmanager
def expect_refusal(*words: str) -> Iterator[None]:
    with pytest.raises(DBAPIError) as refused:
        yield
    assert any(word in str(refused.value.orig) for word in words), refused.value.orig


async def _tenants_seen(database: Database, table: str, tenant: UUID | None) -> set[UUID]:
    """Whose rows show, by every door of the database alike."""
    column = "id" if table == "organizations" else "organization_id"
    statement = text(f"SELECT {column} AS tenant FROM {table}")
    doors = [database.transaction(tenant), database.reading(tenant)]
    if tenant is not None:
        doors.append(database.fast_transaction(tenant))
    seen = []
    for door in doors:
        async with door as connection:
            seen.append({row.tenant for row in await rows(connection, statement)})
    assert all(one == seen[0] for one in seen)
    return seen[0]


async def test_every_table_has_a_tenant_or_says_why_not(owner: Database) -> None:
    async with owner.reading() as connection:
        found = await rows(
            connection,
            text("""
            SELECT c.relname AS name, bool_or(a.attname = 'organization_id' AND a.attnotnull) AS tenant
            FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
            WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace GROUP BY c.relname
            """),
        )
    without = {row.name for row in found if not row.tenant}
    assert without == set(SHARED) | {"organizations", "alembic_version"}


async def test_every_table_of_tenants_filters_its_rows(owner: Database) -> None:
    async with owner.reading() as connection:
        found = await rows(
            connection,
            text("""
            SELECT relname AS name FROM pg_class
            WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relrowsecurity
            """),
        )
    assert {row.name for row in found} == {*TENANT_TABLES, "organizations"}


async def test_no_view_goes_around_the_filter(owner: Database) -> None:
    async with owner.reading() as connection:
        found = await rows(
            connection,
            text(
                "SELECT relname FROM pg_class WHERE relkind IN ('v', 'm') AND relnamespace = 'public'::regnamespace"
            ),
        )
    assert not found


@pytest.mark.parametrize("table", [*TENANT_TABLES, "organizations"])
async def test_a_tenant_sees_its_own_rows_and_nobody_sees_none(
    api: Database, reconciler: Database, table: str
) -> None:
    assert await _tenants_seen(api, table, A) == {A}
    assert await _tenants_seen(api, table, B) == {B}
    assert await _tenants_seen(api, table, None) == set()
    assert await _tenants_seen(reconciler, table, None) == {A, B}


@every_tenant_table
async def test_a_tenant_cannot_write_a_row_of_another_one(api: Database, table: str) -> None:
    with expect_refusal("row-level security", "permission denied"):
        async with api.transaction(A) as connection:
            await insert(connection, table, a_row(table, B, 7))


@every_tenant_table
async def test_nobody_writes_no_row_at_all(api: Database, table: str) -> None:
    with expect_refusal("row-level security", "permission denied"):
        async with api.transaction() as connection:
            await insert(connection, table, a_row(table, A, 8))


@pytest.mark.parametrize("table", WRITABLE)
async def test_a_tenants_update_reaches_only_its_own_rows(api: Database, table: str) -> None:
    found = metadata.tables[table]
    async with api.transaction(A) as connection:
        changed = await connection.execute(update(found).values(organization_id=A))
        assert changed.rowcount == 1
        of_another = update(found).where(found.c.organization_id == B).values(organization_id=B)
        assert (await connection.execute(of_another)).rowcount == 0


@pytest.mark.parametrize("table", WRITABLE)
async def test_a_tenant_cannot_give_its_rows_away(api: Database, table: str) -> None:
    with expect_refusal("row-level security"):
        async with api.transaction(A) as connection:
            await connection.execute(update(metadata.tables[table]).values(organization_id=B))


async def test_a_tenant_cannot_delete_the_keys_of_another_one(api: Database) -> None:
    async with api.transaction(A) as connection:
        key = a_row("ssh_keys", B)["id"]
        assert not await organizations.delete_ssh_key(connection, OrganizationId(B), key)


async def test_a_pool_of_one_connection_never_shows_a_tenant_to_the_next_user(filled_url: str) -> None:
    narrow = Database(filled_url, role=Role.API, pool_size=1, readers=1)

    async def look(tenant: UUID | None) -> None:
        for _ in range(3):
            seen = await _tenants_seen(narrow, "leases", tenant)
            assert seen == (set() if tenant is None else {tenant})
            await asyncio.sleep(0)

    try:
        await asyncio.gather(*(look(tenant) for tenant in [A, B, None, B, A, None, None, B]))
    finally:
        await narrow.close()


@pytest.mark.parametrize("door", ["transaction", "reading", "fast_transaction"])
async def test_a_failed_statement_leaves_no_tenant_behind(filled_url: str, door: str) -> None:
    narrow = Database(filled_url, role=Role.API, pool_size=1, readers=1)
    try:
        with pytest.raises(DBAPIError):
            async with getattr(narrow, door)(A) as connection:
                await connection.execute(text("SELECT 1 / 0"), {})
        assert await _tenants_seen(narrow, "leases", None) == set()
        assert await _tenants_seen(narrow, "leases", B) == {B}
    finally:
        await narrow.close()


async def test_a_connection_forgets_its_tenant_at_the_commit(filled_url: str) -> None:
    narrow = Database(filled_url, role=Role.API, pool_size=1, readers=1)
    whose = text("SELECT coalesce(current_setting('app.organization_id', true), '') AS tenant")
    try:
        async with narrow.transaction(A), narrow.fast_transaction(A):
            pass
        async with narrow.transaction() as connection:
            assert (await rows(connection, whose))[0].tenant == ""
        async with narrow._fast_writers.one("") as writer:
            assert (await writer.execute(whose)).all()[0].tenant == ""
    finally:
        await narrow.close()


@pytest.mark.parametrize("door", ["transaction", "fast_transaction"])
async def test_a_caller_that_is_cancelled_leaves_neither_a_tenant_nor_half_a_write(
    filled_url: str, door: str
) -> None:
    narrow = Database(filled_url, role=Role.API, pool_size=1, readers=1)
    inside = asyncio.Event()

    async def write() -> None:
        async with getattr(narrow, door)(A) as connection:
            await connection.execute(text("UPDATE leases SET name = 'half'"), {})
            inside.set()
            await asyncio.Event().wait()

    try:
        task = asyncio.create_task(write())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await _tenants_seen(narrow, "leases", B) == {B}
        async with narrow.reading(A) as connection:
            assert not await rows(connection, text("SELECT id FROM leases WHERE name = 'half'"))
    finally:
        await narrow.close()


async def test_a_connection_that_was_cut_is_told_its_tenant_anew(filled_url: str, owner: Database) -> None:
    narrow = Database(filled_url, role=Role.API, pool_size=1, readers=1)
    try:
        assert await _tenants_seen(narrow, "leases", A) == {A}
        async with owner.transaction() as connection:
            cut = text("""
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'splitplane'
            """)
            await connection.execute(cut)
        seen = set()
        for _ in range(4):  # Each cut connection is one failed request, and then it is a new one.
            try:
                seen = await _tenants_seen(narrow, "leases", A)
            except DBAPIError:
                continue
        assert seen == {A}
    finally:
        await narrow.close()


async def test_the_owner_of_a_key_is_found_before_there_is_a_tenant(api: Database) -> None:
    row = a_row("api_keys", A)
    async with api.reading() as connection:
        found = await organizations.owner(connection, row["secret_sha256"])
        assert found == organizations.Owner(OrganizationId(A), ApiKeyId(row["id"]), operator=False)
        assert await organizations.owner(connection, b"another secret") is None


async def test_a_revoked_key_has_no_owner(own: Database, api_db: Database) -> None:
    async with own.transaction() as connection:
        await insert(connection, "organizations", a_row("organizations", A))
        await insert(connection, "api_keys", a_row("api_keys", A, revoked_at=START))
    async with api_db.reading() as connection:
        assert await organizations.owner(connection, a_row("api_keys", A)["secret_sha256"]) is None


async def test_the_look_up_of_keys_is_the_only_answer_around_the_filter_and_only_for_the_api(
    owner: Database, reconciler: Database
) -> None:
    async with owner.reading() as connection:
        found = await rows(
            connection,
            text("SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef"),
        )
    # The other one weighs a transaction's postings, and answers nothing.
    assert sorted(row.proname for row in found) == ["api_key_owner", "transaction_balances"]
    with expect_refusal("permission denied"):
        async with reconciler.reading() as connection:
            await organizations.owner(connection, b"any")


def test_every_fact_is_a_table() -> None:
    assert set(metadata.tables) >= FACTS


async def test_every_query_of_a_customer_has_its_filter_also_where_the_database_has_none(
    reconciler: Database,
) -> None:
    """Defence in depth: the reconciler's role sees every tenant, so here only the query's own filter works."""
    since, until = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
    me, other = OrganizationId(A), OrganizationId(B)
    async with reconciler.reading() as connection:
        ids = {
            (row.organization_id, row.kind): row.id
            for row in await rows(
                connection,
                text("""
                SELECT organization_id, 'lease' AS kind, id FROM leases
                UNION ALL SELECT organization_id, 'ssh_key', id FROM ssh_keys
                UNION ALL SELECT organization_id, 'proof', id FROM proofs
                UNION ALL SELECT organization_id, 'proof of', lease_id FROM proofs
                """),
            )
        }
        theirs = LeaseId(ids[B, "lease"])
        assert await leases.show(connection, other, theirs) is not None
        assert await leases.show(connection, me, theirs) is None
        page = await leases.page(connection, me, before=None, states=None, limit=100)
        assert {one.lease.organization_id for one in page} == {A}
        assert await organizations.ssh_keys(connection, me, ids=[ids[B, "ssh_key"]]) == []
        mine = [key.id for key in await organizations.ssh_keys(connection, me)]
        assert mine == [ids[A, "ssh_key"]]
        of = LeaseId(ids[B, "proof of"])
        assert len(await proofs.page(connection, other, of, before=None, limit=9)) == 1
        assert await proofs.page(connection, me, of, before=None, limit=9) == []
        assert await proofs.show(connection, other, ids[B, "proof"]) is not None
        assert await proofs.show(connection, me, ids[B, "proof"]) is None
        assert (await usage.total(connection, me, since=since, until=until)).charges == 1
        assert (await usage.total(connection, other, since=since, until=until)).charges == 1
