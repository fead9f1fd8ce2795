"""Tenants never meet (law 13): the database itself enforces it, and the tests cover every table."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from control_plane.db import (
    api_keys,
    charge_sums,
    lease_overviews,
    machines,
    organizations,
    principals,
    projects,
    proofs,
    roles,
    ssh_keys,
    usage,
)
from control_plane.db.connection import Connection
from control_plane.db.engine import Database, Role
from control_plane.db.tables.every import FACTS, metadata
from control_plane.db.tables.marks import Tenancy, marks_of
from control_plane.db.tables.policies import Policy, policies_of
from control_plane.db.tables.telemetry import SAMPLE_SLOTS
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.ids import ApiKeyId, LeaseId, MachineId, OrganizationId, ProjectId, ServiceAccountId
from control_plane.domain.subject import Subject, SubjectKind
from tests.integration.db.sample import OURS, TENANT_TABLES, A, B, a_row, insert, tables_of
from tests.support.clock import START
from tests.support.rows import rows

pytestmark = pytest.mark.database
every_tenant_table = pytest.mark.parametrize("table", TENANT_TABLES)
WRITABLE = [name for name in TENANT_TABLES if "UPDATE" in marks_of(metadata.tables[name]).api]
"""Tables of tenants that the API's role may update."""
UPDATED = [(name, column) for name in TENANT_TABLES for column in marks_of(metadata.tables[name]).api_updates]
"""Single columns that it may update where it may not update the row."""
MACHINE = {tenant: MachineId(a_row("machines", tenant)["id"]) for tenant in (A, B, OURS)}
"""Each tenant has a claim on its own; nobody has one on ours."""


@contextmanager
def expect_refusal(*words: str) -> Iterator[None]:
    with pytest.raises(DBAPIError) as refused:
        yield
    assert any(word in str(refused.value.orig) for word in words), refused.value.orig


async def _tenants_seen(database: Database, table: str, tenant: UUID | None) -> set[UUID | None]:
    """Whose rows are visible; every kind of connection has to agree."""
    column = "id" if table == "organizations" else "organization_id"
    seen = await _seen(database, f"SELECT {column} AS value FROM {table}", tenant)
    return set(seen)


async def _seen(database: Database, statement: str, tenant: UUID | None) -> list[Any]:
    """The values that a statement returns; every kind of connection has to agree."""
    seen = []
    for door in (database.transaction(tenant), database.reading(tenant)):
        async with door as connection:
            seen.append(sorted(str(row.value) for row in await rows(connection, text(statement))))
    assert all(one == seen[0] for one in seen)
    return [None if value == "None" else UUID(value) for value in seen[0]]


# The database is what the tables' marks say.


OFFERED_TO_ONE = (
    *("billing_details", "invoices", "invoice_lines", "credit_notes", "credit_note_lines"),
    *("credit_terms", "price_agreements", "sla_decisions"),
)
"""What operators make for one organization each, and for everybody never."""


async def test_every_table_has_a_tenant_as_its_marks_say(owner: Database) -> None:
    async with owner.reading() as connection:
        found = await rows(
            connection,
            text("""
            SELECT c.relname AS name, max(CASE WHEN a.attnotnull THEN 'always' ELSE 'or none' END)
                   FILTER (WHERE a.attname = 'organization_id') AS tenant
            FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
            WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relnamespace = 'public'::regnamespace
            GROUP BY c.relname
            """),
        )
    tenants = {row.name: row.tenant for row in found if row.name != "alembic_version"}
    wanted = dict.fromkeys(metadata.tables)
    always = {*tables_of(Tenancy.TENANT, Tenancy.WATCHED), *OFFERED_TO_ONE}
    wanted |= dict.fromkeys(tables_of(Tenancy.MIXED, Tenancy.OURS_VISIBLE, Tenancy.OFFERED), "or none")
    wanted |= dict.fromkeys(always, "always")
    assert tenants == wanted | {"organizations": None}


def test_every_table_that_is_no_customers_says_why() -> None:
    for table in metadata.tables.values():
        assert bool(marks_of(table).reason) is (marks_of(table).tenancy is Tenancy.SHARED), table.name


async def test_every_table_filters_its_rows_as_its_marks_say(owner: Database) -> None:
    async with owner.reading() as connection:
        found = await rows(
            connection,
            text("""
            SELECT c.relname AS name, c.relispartition AS is_part, c.relrowsecurity AND c.relforcerowsecurity AS filtered, p.policyname AS policy, p.roles[1] AS role,
                   array_length(p.roles, 1) AS roles, p.permissive, p.cmd, p.qual, p.with_check
            FROM pg_class c LEFT JOIN pg_policies p ON p.tablename = c.relname AND p.schemaname = 'public'
            WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace AND c.relname <> 'alembic_version'
            """),
        )
    policies: dict[str, set[Policy]] = {table: set() for table in metadata.tables}
    parts: defaultdict[str, set[Policy]] = defaultdict(set)
    for row in found:
        assert row.filtered is (row.policy is not None), f"{row.name} has policies without effect, or none"
        if row.policy is not None:
            assert (row.roles, row.permissive) == (1, "PERMISSIVE")
            shown, written = (each and " ".join(each.split()) for each in (row.qual, row.with_check))
            of_parts = parts if row.is_part else policies
            of_parts[row.name].add(Policy(row.policy, row.role, row.cmd, shown, written))
    for table in metadata.tables.values():
        assert policies[table.name] == set(policies_of(table)), table.name
    assert len(parts) == SAMPLE_SLOTS
    for name, of_part in parts.items():
        assert {policy.role for policy in of_part} == {roles.BACKUP, roles.LOOKUPS}, name


async def test_no_view_goes_around_the_filter(owner: Database) -> None:
    async with owner.reading() as connection:
        found = await rows(
            connection,
            text(
                "SELECT relname FROM pg_class WHERE relkind IN ('v', 'm') AND relnamespace = 'public'::regnamespace"
            ),
        )
    assert not found


# What each role sees.


@pytest.mark.parametrize("table", [*TENANT_TABLES, "organizations"])
async def test_a_tenant_sees_its_own_rows_and_nobody_sees_none(
    api: Database, reconciler: Database, table: str
) -> None:
    tenancy = marks_of(metadata.tables[table]).tenancy
    shown: set[UUID | None] = {None} if tenancy is Tenancy.OURS_VISIBLE else set()
    ours: set[UUID | None] = set() if tenancy is Tenancy.TENANT else {None}
    assert await _tenants_seen(api, table, A) == {A} | shown
    assert await _tenants_seen(api, table, B) == {B} | shown
    assert await _tenants_seen(api, table, None) == shown
    assert await _tenants_seen(reconciler, table, None) == {A, B} | ours


async def test_a_tenant_sees_machines_that_it_has_or_had_a_claim_on_and_no_others(
    api: Database, reconciler: Database, owner: Database
) -> None:
    every = "SELECT id AS value FROM machines"
    assert await _seen(api, every, A) == [MACHINE[A]]
    assert await _seen(api, every, B) == [MACHINE[B]]
    assert await _seen(api, every, None) == []
    assert set(await _seen(reconciler, every, None)) == set(MACHINE.values())
    async with api.reading(A) as connection:
        assert await machines.get(connection, MACHINE[A]) is not None
        assert await machines.get(connection, MACHINE[B]) is None
        assert await machines.get(connection, MACHINE[OURS]) is None
    ended = text("UPDATE claims SET ended_at = :at WHERE organization_id = :tenant")
    async with owner.transaction() as connection:
        await connection.execute(ended, {"at": START, "tenant": A})
    assert await _seen(api, every, A) == [MACHINE[A]], "its own history is not hidden from it"
    async with owner.transaction() as connection:
        await connection.execute(ended, {"at": None, "tenant": A})


async def test_a_tenant_sees_its_agents_and_operators_see_every_one(
    api: Database, reconciler: Database, owner: Database
) -> None:
    assert await _tenants_seen(api, "agents", A) == {A}
    assert await _tenants_seen(api, "agents", B) == {B}
    assert await _tenants_seen(api, "agents", None) == set()
    assert await _tenants_seen(reconciler, "agents", None) == {A, B}
    platform = text("UPDATE organizations SET platform = :platform WHERE id = :tenant")
    async with owner.transaction() as connection:
        await connection.execute(platform, {"platform": True, "tenant": A})
    assert await _tenants_seen(api, "agents", A) == {A, B}
    async with owner.transaction() as connection:
        await connection.execute(platform, {"platform": False, "tenant": A})


async def test_a_tenant_sees_the_clusters_for_everybody_and_for_itself(
    api: Database, reconciler: Database
) -> None:
    assert await _tenants_seen(api, "clusters", A) == {None, A}
    assert await _tenants_seen(api, "clusters", B) == {None, B}
    assert await _tenants_seen(api, "clusters", None) == {None}
    assert await _tenants_seen(reconciler, "clusters", None) == {None, A, B}


@pytest.mark.parametrize("owner", [None, A, B])
async def test_a_tenant_makes_and_changes_no_cluster_for_anybody(api: Database, owner: UUID | None) -> None:
    with expect_refusal("row-level security"):
        async with api.transaction(A) as connection:
            await insert(connection, "clusters", a_row("clusters", A, 9, organization_id=owner, overlay=9))
    with expect_refusal("row-level security"):
        async with api.transaction(A) as connection:
            await connection.execute(text("UPDATE clusters SET state = 'deleting'"))


async def test_a_tenant_cannot_reach_a_machine_through_a_claim_that_it_writes_itself(api: Database) -> None:
    with expect_refusal("permission denied"):
        async with api.transaction(A) as connection:
            lease = a_row("leases", A, 2)
            await insert(connection, "leases", lease)
            claim = a_row("claims", A, 2, lease_id=lease["id"], machine_id=MACHINE[OURS])
            await insert(connection, "claims", claim)


async def test_a_tenant_does_not_learn_what_its_machine_is_by_way_of_anothers_claim(api: Database) -> None:
    joined = """
    SELECT m.id AS value FROM machines m LEFT JOIN claims c ON c.machine_id = m.id
    UNION ALL SELECT machine_id FROM claims UNION ALL SELECT machine_id FROM attempts
    """
    assert set(await _seen(api, joined, A)) == {MACHINE[A]}


# What the API's role may write.


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


@pytest.mark.parametrize("table", tables_of(Tenancy.MIXED, Tenancy.OURS_VISIBLE))
async def test_a_tenant_writes_no_row_that_is_ours(api: Database, table: str) -> None:
    with expect_refusal("row-level security", "permission denied"):
        async with api.transaction(A) as connection:
            await insert(connection, table, a_row(table, A, 9, organization_id=None))


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO machines SELECT * FROM machines",
        "UPDATE machines SET state = state",
        "UPDATE machines SET passes = passes + 1",
        "DELETE FROM machines",
        "SELECT id FROM machines FOR UPDATE",
    ],
)
async def test_the_api_writes_no_machine_and_locks_none(api: Database, statement: str) -> None:
    with expect_refusal("permission denied"):
        async with api.transaction(A) as connection:
            await connection.execute(text(statement))


async def _count(connection: Connection, statement: str, **values: object) -> int:
    return (await connection.execute(text(statement), values)).rowcount


@pytest.mark.parametrize("table", WRITABLE)
async def test_a_tenants_update_reaches_only_its_own_rows(api: Database, table: str) -> None:
    async with api.transaction(A) as connection:
        statement = f"UPDATE {table} SET organization_id = :tenant"
        assert await _count(connection, statement, tenant=A) == 1
        assert await _count(connection, statement + " WHERE organization_id = :other", tenant=B, other=B) == 0


@pytest.mark.parametrize(("table", "column"), UPDATED)
async def test_a_tenants_update_of_single_columns_reaches_only_its_own_rows_and_no_other_column(
    api: Database, table: str, column: str
) -> None:
    async with api.transaction(A) as connection:
        statement = f"UPDATE {table} SET {column} = {column}"
        assert await _count(connection, statement) == 1
        assert await _count(connection, statement + " WHERE organization_id = :other", other=B) == 0
    may = marks_of(metadata.tables[table]).api_updates
    for other in metadata.tables[table].columns:
        if other.name not in may:
            with expect_refusal("permission denied"):
                async with api.transaction(A) as connection:
                    await _count(connection, f"UPDATE {table} SET {other.name} = {other.name}")


@pytest.mark.parametrize("table", WRITABLE)
async def test_a_tenant_cannot_give_its_rows_away(api: Database, table: str) -> None:
    with expect_refusal("row-level security"):
        async with api.transaction(A) as connection:
            await _count(connection, f"UPDATE {table} SET organization_id = :tenant", tenant=B)


async def test_a_tenant_cannot_delete_the_keys_of_another_one(api: Database) -> None:
    async with api.transaction(A) as connection:
        key = a_row("ssh_keys", B)["id"]
        assert not await ssh_keys.delete(connection, OrganizationId(B), key, EVERYWHERE, now=START)


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


@pytest.mark.parametrize("door", ["transaction", "reading"])
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
        async with narrow.transaction(A):
            pass
        async with narrow.transaction() as connection:
            assert (await rows(connection, whose))[0].tenant == ""
        async with narrow._writers.connection("") as writer:
            assert (await writer.execute(whose)).all()[0].tenant == ""
    finally:
        await narrow.close()


async def test_a_caller_that_is_cancelled_leaves_neither_a_tenant_nor_half_a_write(filled_url: str) -> None:
    narrow = Database(filled_url, role=Role.API, pool_size=1, readers=1)
    inside = asyncio.Event()

    async def write() -> None:
        async with narrow.transaction(A) as connection:
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


async def test_a_connection_that_was_cut_gets_its_tenant_anew(filled_url: str, owner: Database) -> None:
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
        found = await principals.of_secret(connection, row["secret_sha256"], now=START)
        assert found is not None
        assert (found.organization_id, found.api_key_id) == (A, row["id"])
        assert found.subject == Subject(
            SubjectKind.SERVICE_ACCOUNT, ServiceAccountId(row["service_account_id"])
        )
        [role] = found.roles
        assert (role.role, role.scope.lease_id) == ("admin", a_row("leases", A)["id"])
        assert await principals.of_secret(connection, b"another secret", now=START) is None


async def test_a_revoked_key_has_no_owner(own: Database, api_db: Database) -> None:
    async with own.transaction() as connection:
        await insert(connection, "organizations", a_row("organizations", A))
        await insert(connection, "service_accounts", a_row("service_accounts", A))
        await insert(connection, "api_keys", a_row("api_keys", A, revoked_at=START))
    async with api_db.reading() as connection:
        secret = a_row("api_keys", A)["secret_sha256"]
        assert await principals.of_secret(connection, secret, now=START) is None


async def test_keys_are_looked_up_before_there_is_a_tenant_by_the_api_only(reconciler: Database) -> None:
    for look_up in (
        partial(principals.of_secret, secret_sha256=b"any", now=START),
        partial(principals.of_keys, key_ids=[], now=START),
        partial(organizations.ids, after=None, limit=1),
    ):
        with expect_refusal("permission denied"):
            async with reconciler.reading() as connection:
                await look_up(connection)


async def test_of_the_keys_of_all_tenants_the_valid_ones_are_found(own: Database, api_db: Database) -> None:
    async with own.transaction() as connection:
        for tenant, number, revoked_at in ((A, 1, START), (A, 2, None), (B, 3, START)):
            if number != 2:
                await insert(connection, "organizations", a_row("organizations", tenant))
                await insert(connection, "service_accounts", a_row("service_accounts", tenant))
            await insert(connection, "api_keys", a_row("api_keys", tenant, number, revoked_at=revoked_at))
    keys = [ApiKeyId(a_row("api_keys", tenant, number)["id"]) for tenant, number in ((A, 1), (A, 2), (B, 3))]
    async with api_db.reading() as connection:
        assert [owner.api_key_id for owner in await principals.of_keys(connection, keys, now=START)] == [
            keys[1]
        ]
        assert await principals.of_keys(connection, keys[2:], now=START) == []


async def test_a_role_at_platform_scope_needs_the_platforms_organization(own: Database) -> None:
    platform: dict[str, Any] = {
        "scope": "platform",
        "project_id": None,
        "environment_id": None,
        "lease_id": None,
    }
    binding = a_row("role_bindings", A, role="operator", **platform)
    async with own.transaction() as connection:
        await insert(connection, "organizations", a_row("organizations", A))
        await insert(connection, "organizations", a_row("organizations", B, platform=True))
        for tenant in (A, B):
            await insert(connection, "service_accounts", a_row("service_accounts", tenant))
    with expect_refusal("fk_role_bindings_platform_organization"):
        async with own.transaction() as connection:
            await insert(connection, "role_bindings", binding)
    async with own.transaction() as connection:
        await insert(connection, "role_bindings", a_row("role_bindings", B, role="operator", **platform))


async def test_the_public_process_can_make_no_organization_the_platforms(api_db: Database) -> None:
    with expect_refusal("row-level security"):
        async with api_db.transaction(A) as connection:
            await insert(connection, "organizations", a_row("organizations", A, platform=True))


async def test_the_lists_of_organizations_nodes_pools_and_kept_offers_have_ids_and_nothing_about_them(
    api_db: Database,
) -> None:
    answers = text("SELECT pg_get_function_result(CAST(:name AS regproc)) AS answers")
    async with api_db.reading() as connection:
        for name, columns in (
            ("organization_ids", "id uuid, created_at timestamp with time zone"),
            ("kept_offers", "offer_key text"),
            ("node_ids", "organization_id uuid, id uuid"),
            ("node_pool_ids", "organization_id uuid, id uuid"),
        ):
            [row] = await rows(connection, answers, name=name)
            assert row.answers == f"TABLE({columns})"
        assert await organizations.get(connection, OrganizationId(A)) is None


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
                UNION ALL SELECT organization_id, 'proof', id FROM proofs WHERE organization_id IS NOT NULL
                UNION ALL SELECT organization_id, 'proof of', lease_id FROM proofs WHERE organization_id IS NOT NULL
                """),
            )
        }
        theirs = LeaseId(ids[B, "lease"])
        assert await lease_overviews.show(connection, other, theirs) is not None
        assert await lease_overviews.show(connection, me, theirs) is None
        page = await lease_overviews.page(connection, me, EVERYWHERE, before=None, states=None, limit=100)
        assert {one.lease.organization_id for one in page} == {A}
        project = ProjectId(a_row("projects", B)["id"])
        assert await ssh_keys.of_project(connection, me, project) == []
        assert [key.id for key in await ssh_keys.every(connection, me, EVERYWHERE)] == [ids[A, "ssh_key"]]
        keys = await api_keys.page(connection, me, of=None, after=None, limit=9)
        assert [key.id for key in keys] == [a_row("api_keys", A)["id"]]
        assert await api_keys.count(connection, me, now=START) == 1
        mine = [
            project.id for project in await projects.page(connection, me, EVERYWHERE, after=None, limit=9)
        ]
        assert mine == [ProjectId(a_row("projects", A)["id"])]
        assert await projects.named(connection, me, a_row("projects", B)["name"]) is None
        of = LeaseId(ids[B, "proof of"])
        assert len(await proofs.page(connection, other, of, before=None, limit=9)) == 1
        assert await proofs.page(connection, me, of, before=None, limit=9) == []
        assert await proofs.get(connection, other, ids[B, "proof"], EVERYWHERE) is not None
        assert await proofs.get(connection, me, ids[B, "proof"], EVERYWHERE) is None
        for tenant in (me, other):
            (charge,) = await usage.charges(connection, tenant, EVERYWHERE, since=since, until=until, limit=9)
            assert charge.id == a_row("charges", tenant)["id"]
            assert (await charge_sums.total(connection, tenant, since=since, until=until)).charges == 1
