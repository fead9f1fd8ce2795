"""One organization's rows are out of another one's reach in raw SQL too, table by table, by the API's real login."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from sqlalchemy import Index, Table, UniqueConstraint
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.db import roles
from control_plane.db.engine import Role
from control_plane.db.tables.every import SHARED, metadata
from control_plane.db.tables.marks import Tenancy, marks_of
from tests.integration.db.sample import OURS, TENANT_TABLES, A, B, a_row, tables_of
from tests.support.clock import START
from tests.support.database import login_url

pytestmark = pytest.mark.database
FILTERED = sorted({*TENANT_TABLES, "organizations", "machines"})
"""Tables whose rows are filtered by their organization."""
OPERATORS = tables_of(Tenancy.PLATFORM)
"""Tables whose rows only operators see."""
WRITTEN_BY_OPERATORS = {table for table in OPERATORS if "INSERT" in marks_of(metadata.tables[table]).api}
_ACT = "SELECT set_config('app.organization_id', $1, false)"


@asynccontextmanager
async def connected(url: str, *, role: str | None = None, tenant: UUID | None = None) -> AsyncIterator[Any]:
    """A raw connection, as a process opens it."""
    settings = {} if role is None else {"role": role}
    connection = await asyncpg.connect(url, server_settings=settings)
    try:
        if tenant is not None:
            await connection.execute(_ACT, str(tenant))
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def acting_as_a(url: str) -> AsyncIterator[Any]:
    """The API's own login, in the API's role, acting for A."""
    async with connected(login_url(url, Role.API), role=Role.API.value, tenant=A) as connection:
        yield connection


def column_of_tenant(table: str) -> str:
    return "id" if table == "organizations" else "organization_id"


def of_b(table: str) -> str:
    """SQL: the rows of B."""
    if table == "machines":
        return f"id = '{a_row('machines', B)['id']}'"
    return f"{column_of_tenant(table)} = '{B}'"


def columns_read(table: str) -> str:
    return ", ".join(marks_of(metadata.tables[table]).api_reads or ("*",))


REFUSED = (asyncpg.InsufficientPrivilegeError,)
"""Both a missing right and row-level security are SQLSTATE 42501."""


# Reading


@pytest.mark.parametrize("table", FILTERED)
async def test_no_way_to_read_shows_a_row_of_another_organization(filled_url: str, table: str) -> None:
    read = f"SELECT {columns_read(table)} FROM {table} WHERE {of_b(table)}"
    async with acting_as_a(filled_url) as a:
        assert await a.fetch(read) == []
        prepared = await a.prepare(read)
        assert await prepared.fetch() == []
        copied = CopiedRows()
        await a.copy_from_query(read, output=copied.add)
        assert copied.bytes == b""
        async with a.transaction():
            cursor = await a.cursor(read)
            assert await cursor.fetch(9) == []
        assert await a.fetchval(f"SELECT count(*) FROM ({read}) counted") == 0


class CopiedRows:
    def __init__(self) -> None:
        self.bytes = b""

    async def add(self, data: bytes) -> None:
        self.bytes += data


@pytest.mark.parametrize("table", FILTERED)
async def test_a_whole_table_cannot_be_copied(filled_url: str, table: str) -> None:
    """COPY of a table, unlike COPY of a query, refuses rather than filters where row-level security is off."""
    async with acting_as_a(filled_url) as a:
        copied = CopiedRows()
        columns = marks_of(metadata.tables[table]).api_reads
        await a.copy_from_table(table, columns=columns, output=copied.add)
        assert str(B).encode() not in copied.bytes
        await a.execute("SET row_security = off")
        with pytest.raises(REFUSED, match="row-level security"):
            await a.copy_from_table(table, columns=columns, output=copied.add)


@pytest.mark.parametrize("table", FILTERED)
async def test_a_prepared_statement_and_an_open_cursor_follow_the_organization_that_is_acted_for(
    filled_url: str, table: str
) -> None:
    """A plan is made once and kept: it must not keep the organization of whoever ran it first."""
    column = "id" if table == "machines" else column_of_tenant(table)
    mine = {A: a_row(table, A)["id"] if table == "machines" else A}
    mine[B] = a_row(table, B)["id"] if table == "machines" else B
    async with acting_as_a(filled_url) as a:
        await a.execute("SET plan_cache_mode = force_generic_plan")
        prepared = await a.prepare(f"SELECT DISTINCT {column} AS tenant FROM {table}")
        for tenant in (A, B, A):
            await a.execute(_ACT, str(tenant))
            seen = {row["tenant"] for row in await prepared.fetch()}
            assert seen - {None} == {mine[tenant]}
        await a.execute(_ACT, "")
        assert {row["tenant"] for row in await prepared.fetch()} <= {None}


# Writing


@pytest.mark.parametrize("table", FILTERED)
async def test_no_row_is_inserted_for_another_organization(filled_url: str, table: str) -> None:
    row = a_row(table, B, 31)
    async with acting_as_a(filled_url) as a, rolled_back(a):
        with pytest.raises(REFUSED):
            await a.execute(insertion(table, row), *encoded(table, row))
    async with acting_as_a(filled_url) as a, rolled_back(a):
        with pytest.raises(
            (*REFUSED, asyncpg.FeatureNotSupportedError)
        ):  # No COPY FROM into a filtered table.
            await a.copy_records_to_table(table, records=[encoded(table, row)], columns=list(row))


def encoded(table: str, row: dict[str, Any]) -> list[Any]:
    """The values as asyncpg takes them."""
    columns = metadata.tables[table].columns
    return [
        json.dumps(value) if isinstance(columns[name].type, JSONB) else value for name, value in row.items()
    ]


def insertion(table: str, row: dict[str, Any]) -> str:
    values = ", ".join(f"${number}" for number in range(1, len(row) + 1))
    return f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})"


@asynccontextmanager
async def rolled_back(connection: Any) -> AsyncIterator[None]:
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield
    finally:
        await transaction.rollback()


@pytest.mark.parametrize("table", FILTERED)
async def test_no_row_of_another_organization_is_updated_locked_or_deleted(
    filled_url: str, table: str
) -> None:
    marks = marks_of(metadata.tables[table])
    column = next(iter(marks.api_updates), column_of_tenant(table) if table != "machines" else "id")
    for statement in (
        f"UPDATE {table} SET {column} = {column} WHERE {of_b(table)}",
        f"DELETE FROM {table} WHERE {of_b(table)}",
        f"SELECT 1 FROM {table} WHERE {of_b(table)} FOR UPDATE",
        f"SELECT 1 FROM {table} WHERE {of_b(table)} FOR KEY SHARE",
        f"MERGE INTO {table} USING (SELECT 1) one ON {of_b(table)} WHEN MATCHED THEN DELETE",
    ):
        async with acting_as_a(filled_url) as a, rolled_back(a):
            try:
                status = await a.execute(statement)
            except REFUSED:
                continue
            assert status.rpartition(" ")[2] == "0", statement
    async with acting_as_a(filled_url) as a, rolled_back(a):
        with pytest.raises(REFUSED):
            await a.execute(f"TRUNCATE {table} CASCADE")


@pytest.mark.parametrize("table", FILTERED)
async def test_no_row_is_given_to_another_organization(filled_url: str, table: str) -> None:
    column = column_of_tenant(table) if table != "machines" else "id"
    async with acting_as_a(filled_url) as a, rolled_back(a):
        with pytest.raises(REFUSED):
            await a.execute(f"UPDATE {table} SET {column} = '{B}'")


# Rows of operators


async def test_a_customer_reads_and_writes_no_row_of_operators_in_raw_sql(filled_url: str) -> None:
    """A bug that let a customer's request order the end of machines is refused by the database as well."""
    for table in OPERATORS:
        row = a_row(table, OURS, 81)
        async with acting_as_a(filled_url) as a:
            assert await a.fetch(f"SELECT * FROM {table}") == [], table
            async with rolled_back(a):
                why = "row-level security" if table in WRITTEN_BY_OPERATORS else "permission denied"
                with pytest.raises(REFUSED, match=why):
                    await a.execute(insertion(table, row), *encoded(table, row))
            key = next(iter(metadata.tables[table].primary_key)).name
            with pytest.raises(REFUSED):
                await a.execute(f"UPDATE {table} SET {key} = {key}")
            with suppress(*REFUSED):  # Of most of these tables nobody may, whoever they act for.
                assert await a.execute(f"DELETE FROM {table}") == "DELETE 0", table
            await a.execute(_ACT, "")
            assert await a.fetch(f"SELECT * FROM {table}") == [], table
            async with rolled_back(a):
                with pytest.raises(REFUSED, match=why):
                    await a.execute(insertion(table, row), *encoded(table, row))


_BESIDE_ANOTHER: dict[str, dict[str, Any]] = {"maintenances": {"ended_at": START, "ended_by": "operator"}}
"""What a second row needs where a machine has one that is open at the most."""


async def test_the_platforms_organization_reads_and_writes_the_rows_of_operators(filled_url: str) -> None:
    platform = a_row("organizations", UUID(int=0x9), platform=True)
    async with connected(filled_url) as connection, rolled_back(connection):
        await connection.execute(insertion("organizations", platform), *encoded("organizations", platform))
        await connection.execute(_ACT, str(platform["id"]))
        await connection.execute(f"SET LOCAL ROLE {Role.API}")
        for table in OPERATORS:
            row = a_row(table, OURS, 82, **_BESIDE_ANOTHER.get(table, {}))
            if table in WRITTEN_BY_OPERATORS:
                await connection.execute(insertion(table, row), *encoded(table, row))
            found = await connection.fetch(f"SELECT * FROM {table}")
            assert len(found) == (2 if table in WRITTEN_BY_OPERATORS else 1), table


# References


def _references() -> Iterator[tuple[Table, Any]]:
    """The foreign keys that refer to a table whose rows have an organization."""
    for table in metadata.sorted_tables:
        for key in table.foreign_key_constraints:
            if key.referred_table.name not in SHARED | {"organizations", "machines"}:
                yield table, key


def test_an_organization_without_a_foreign_key_is_that_of_a_row_that_has_one() -> None:
    """Where the column has no reference of its own, another one of the table, which is never null, includes it."""
    found = set()
    for table in metadata.tables.values():
        column = table.columns.get("organization_id")
        if (
            column is None
            or column.nullable
            or any(key.column.table.name == "organizations" for key in column.foreign_keys)
        ):
            continue
        if not any(
            column.name in key.column_keys and not any(each.nullable for each in key.columns)
            for key in table.foreign_key_constraints
        ):
            found.add(table.name)
    assert found == {"samples"}  # They come by the million, and are written by the name of a claim.


# References that the database holds within an organization in another way, or that need not be.
_OTHERWISE = {
    ("provider_accounts", "secrets"): "no row of a customer; the secret is of the platform's organization",
    ("account_requests", "secrets"): "no row of a customer; the secret is of the platform's organization",
    ("audit_keys", "secrets"): "no row of a customer; the secret is of the platform's organization",
    ("ssh_authorities", "secrets"): "no row of a customer; the secret is of the platform's organization",
    ("clusters", "secrets"): "only operators write clusters; the secret is of the platform's organization",
    ("server_hosts", "clusters"): "no row of a customer",
    ("overlays", "clusters"): "no row of a customer",
    ("reconciliation_batches", "reconciliations"): "no row of a customer",
    ("reconciliation_customers", "reconciliation_batches"): "no row of a customer",
    ("reconciliation_differences", "reconciliation_batches"): "no row of a customer",
    ("supplier_upload_parts", "supplier_uploads"): "no row of a customer",
    ("supplier_invoice_parts", "supplier_invoices"): "no row of a customer",
    ("supplier_postings", "supplier_invoices"): "no row of a customer",
    ("pool_decisions", "pools"): "no row of a customer",
    ("pool_hours", "pools"): "no row of a customer",
    ("preemption_decisions", "preemptions"): "no row of a customer",
    ("machines", "pools"): "a machine belongs to no customer, and only the reconciler writes machines",
    (
        "node_pools",
        "clusters",
    ): "a cluster may be everybody's; the service looks it up by what the tenant may see",
    (
        "cluster_tenants",
        "clusters",
    ): "a cluster may be everybody's; only the reconciler writes cluster_tenants",
    (
        "kubeconfigs",
        "clusters",
    ): "a cluster may be everybody's; the service looks it up by what the tenant may see",
    ("relays", "clusters"): "a cluster may be everybody's; only the reconciler writes relays",
    ("nodes", "clusters"): "a cluster may be everybody's; only the reconciler writes nodes",
    ("scaled_pools", "clusters"): "a cluster may be everybody's; only the reconciler writes scaled_pools",
    ("scaling_turns", "clusters"): "no row of a customer",
}


def test_a_row_refers_only_to_rows_of_its_own_organization() -> None:
    otherwise = set()
    for table, key in _references():
        columns = {element.parent.name: element.column.name for element in key.elements}
        if columns.get("organization_id") != "organization_id":
            otherwise.add((table.name, key.referred_table.name))
    assert otherwise == set(_OTHERWISE)


_WRONG_POSTINGS: tuple[tuple[str, type[asyncpg.PostgresError], UUID | None, UUID | None, int], ...] = (
    ("account of another organization", asyncpg.ForeignKeyViolationError, B, None, -5),
    ("which is no account", asyncpg.ForeignKeyViolationError, None, None, -5),
    ("out of balance by 1 nano-USD", asyncpg.CheckViolationError, A, None, -4),
    ("posting of another project", asyncpg.ForeignKeyViolationError, A, a_row("projects", A)["id"], -5),
)
"""What the second posting of a transaction is refused for, the owner of its account or None for an id that no account
has, its project and its amount."""


@pytest.mark.parametrize(("role", "tenant"), [(Role.API, A), (Role.RECONCILER, None)])
async def test_postings_that_do_not_fit_their_transaction_are_refused(
    filled_url: str, role: Role, tenant: UUID | None
) -> None:
    async with connected(login_url(filled_url, role), role=role.value, tenant=tenant) as connection:
        for words, error, owner, project, amount in _WRONG_POSTINGS:
            async with rolled_back(connection):
                made = await _a_transaction(connection)
                with pytest.raises(error, match=words):
                    await connection.execute(
                        "INSERT INTO postings (transaction_id, line, organization_id, project_id, account_id, amount_nano)"
                        " VALUES ($1, 1, $2, NULL, $3, 5), ($1, 2, $2, $4, $5, $6)",
                        made,
                        A,
                        a_row("ledger_accounts", A)["id"],
                        project,
                        a_row("ledger_accounts", owner)["id"] if owner else UUID(int=1),
                        amount,
                    )


async def test_no_statement_leaves_a_transaction_out_of_balance(filled_url: str) -> None:
    async with acting_as_a(filled_url) as connection, rolled_back(connection):
        made = await _a_transaction(connection)
        with pytest.raises(asyncpg.CheckViolationError, match="out of balance by 5 nano-USD"):
            await connection.execute(
                "INSERT INTO postings (transaction_id, line, organization_id, account_id, amount_nano)"
                " VALUES ($1, 1, $2, $3, 5)",
                made,
                A,
                a_row("ledger_accounts", A)["id"],
            )


async def _a_transaction(connection: Any) -> UUID:
    """A transaction without postings. Returns its id."""
    made = a_row("transactions", A, 41)
    await connection.execute(
        "INSERT INTO transactions (id, organization_id, key, kind, effective_at, period, recorded_at,"
        " number, wallet_after_nano, receivable_after_nano)"
        " VALUES ($1, $2, $3, $4, now(), date_trunc('month', now(), 'UTC'), now(), 41, 0, 0)",
        made["id"],
        A,
        made["key"],
        made["kind"],
    )
    return UUID(str(made["id"]))


# Oracles: what an error tells


_MAY_COLLIDE = {
    "uq_organizations_name": "names of organizations are unique; only operators create organizations",
    "uq_api_keys_secret_sha256": "whoever knows the digest of a secret knows the secret",
    "uq_organizations_id_platform": "contains the id",
    "uq_ssh_certificates_serial": "the random bits of the id",
    "uq_clusters_live_name": "only operators write clusters",
    "uq_clusters_live_overlay": "only operators write clusters",
    "uq_server_hosts_cluster_id": "only operators write server hosts",
    "uq_role_bindings_platform": "contains the id of the subject",
    "uq_invoices_issuer_number": "only finance writes invoices",
    "uq_credit_notes_issuer_number": "only finance writes credit notes",
    "uq_pools_name": "only operators write pools",
    "uq_pools_sku_region_sla": "only operators write pools",
    "uq_maintenances_open": "only operators take machines out",
}
"""Unique constraints across organizations, on tables that the API's role may write. Ids are left out: they are random,
so whoever can name one has seen it."""


def _unique(table: Table) -> Iterator[tuple[str, list[str]]]:
    for constraint in table.constraints:
        if isinstance(constraint, UniqueConstraint):
            yield str(constraint.name), [column.name for column in constraint.columns]
    for index in table.indexes:
        if isinstance(index, Index) and index.unique:
            yield str(index.name), [str(expression) for expression in index.expressions]


def _is_written_by_the_api(table: Table) -> bool:
    marks = marks_of(table)
    return bool(marks.api or marks.api_updates)


def test_what_is_unique_is_unique_within_an_organization() -> None:
    """Otherwise a refusal tells a tenant what another one has, such as the name of a lease."""
    across = set()
    for table in metadata.tables.values():
        if table.name in SHARED or not _is_written_by_the_api(table):
            continue
        for name, columns in _unique(table):
            if "organization_id" not in {column.rpartition(".")[2] for column in columns}:
                across.add(name)
    assert {name for name in across if not name.startswith(("uq_claims_", "uq_nodes_"))} == set(_MAY_COLLIDE)
    assert marks_of(metadata.tables["claims"]).api_updates == ("ended_at",), "it cannot make a claim collide"
    nodes = marks_of(metadata.tables["nodes"])
    assert (nodes.api, nodes.api_updates) == (frozenset(), ("key_asked_at", "key_due_at")), "nor a node"


def _probes() -> list[tuple[str, str, str]]:
    """Table, referring column and referred table, of references that the API may write for a customer."""
    found = []
    for table, key in _references():
        marks = marks_of(table)
        if marks.tenancy is Tenancy.OFFERED:
            continue  # A customer's insert is refused before its references are looked at.
        if "INSERT" in marks.api and (table.name, key.referred_table.name) not in _OTHERWISE:
            column = [element.parent.name for element in key.elements][-1]
            found.append((table.name, column, key.referred_table.name))
    return sorted(found)


@pytest.mark.parametrize(("table", "column", "referred"), _probes())
async def test_a_reference_to_anothers_row_fails_as_one_to_no_row(
    filled_url: str, table: str, column: str, referred: str
) -> None:
    refusals = []
    for target in (a_row(referred, B)["id"], UUID(int=0xDEAD)):
        row = a_row(table, A, 51) | {column: target}
        if column == "user_id" and "service_account_id" in row:
            row["service_account_id"] = None
        if (table, column) == ("leases", "node_pool_id"):
            row["network_id"] = None
        if column == "rotates":
            row["rotates"] = target
            if table == "kubeconfigs":
                row["overlap_seconds"] = 0
        async with acting_as_a(filled_url) as a, rolled_back(a):
            with pytest.raises(asyncpg.PostgresError) as refused:
                await a.execute(insertion(table, row), *encoded(table, row))
            refusals.append((refused.value.sqlstate, refused.value.constraint_name))
    assert refusals[0] == refusals[1]
    assert refusals[0][0] in {"23503", "23505"}, "no such row, or a row of its own is in the way"


# Roles and settings


async def test_the_apis_login_can_take_no_other_role(filled_url: str) -> None:
    others = [name for name in (*roles.ALL, "postgres", "pg_read_all_data") if name != Role.API]
    async with acting_as_a(filled_url) as a:
        for other in others:
            for take in (f"SET ROLE {other}", f"SET SESSION AUTHORIZATION {other}"):
                with pytest.raises(asyncpg.PostgresError, match="permission denied"):
                    await a.execute(take)
        for give in (f"GRANT {roles.OWNER} TO {Role.API}", f"ALTER ROLE {Role.API} BYPASSRLS"):
            with pytest.raises(asyncpg.PostgresError, match="permission denied"):
                await a.execute(give)


@pytest.mark.parametrize("role", [Role.API, Role.RECONCILER])
async def test_a_login_without_its_role_reads_nothing(filled_url: str, role: Role) -> None:
    async with connected(login_url(filled_url, role), role=role.value, tenant=A) as connection:
        for leave in ("RESET ROLE", "SET SESSION AUTHORIZATION DEFAULT"):
            await connection.execute(leave)
            assert await connection.fetchval("SELECT current_user") == role, (
                "the role is the connection's default"
            )
        await connection.execute("SET ROLE NONE")
        for table in metadata.tables:
            with pytest.raises(REFUSED):
                await connection.fetch(f"SELECT 1 FROM {table}")


@pytest.mark.parametrize("table", FILTERED)
async def test_a_process_cannot_change_the_rules_of_a_table(filled_url: str, table: str) -> None:
    async with acting_as_a(filled_url) as a:
        for change in (
            f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY",
            f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY",
            f"CREATE POLICY mine ON {table} USING (true)",
            f"DROP POLICY tenant ON {table}",
            f"CREATE VIEW public.through AS SELECT * FROM {table}",
            f"DROP TABLE {table}",
        ):
            with pytest.raises(REFUSED):
                await a.execute(change)


@pytest.mark.parametrize("table", FILTERED)
async def test_the_owner_of_a_table_sees_and_writes_no_row(filled_url: str, table: str) -> None:
    async with connected(filled_url, role=roles.OWNER, tenant=A) as owner:
        assert await owner.fetch(f"SELECT * FROM {table}") == []
        assert await owner.execute(f"DELETE FROM {table}") == "DELETE 0"
        row = a_row(table, A, 61)
        async with rolled_back(owner):
            with pytest.raises(REFUSED, match="row-level security"):
                await owner.execute(insertion(table, row), *encoded(table, row))


async def test_every_table_and_function_belongs_to_a_role_that_no_process_takes(filled_url: str) -> None:
    async with connected(filled_url) as connection:
        owners = await connection.fetch("""
            SELECT relname AS name, pg_get_userbyid(relowner) AS owner, false AS definer FROM pg_class
            WHERE relnamespace = 'public'::regnamespace
            UNION ALL SELECT proname, pg_get_userbyid(proowner), prosecdef FROM pg_proc
            WHERE pronamespace = 'public'::regnamespace
            """)
    for row in owners:
        assert row["owner"] == (roles.LOOKUPS if row["definer"] else roles.OWNER), row["name"]


@pytest.mark.parametrize("role", [roles.OWNER, roles.LOOKUPS, roles.BACKUP, *Role])
async def test_no_role_of_ours_can_log_in_or_go_around_row_level_security(filled_url: str, role: str) -> None:
    async with connected(filled_url) as connection:
        mighty = await connection.fetchval(
            "SELECT rolsuper OR rolbypassrls OR rolcanlogin OR rolcreaterole OR rolcreatedb OR rolreplication"
            " FROM pg_roles WHERE rolname = $1",
            role,
        )
    assert mighty is False


# Functions that run with their owner's rights


DEFINERS: dict[str, str] = {
    "audit_event_ids": "Auditors list the lines of all organizations. It answers ids; each is read as its own tenant.",
    "audit_refused_sign_ins": "A sign-in that was refused belongs to no organization. It adds lines to the platform's"
    " chain, of this one event, and answers nothing.",
    "audit_signing_key": "A trigger: the API may add no line to the platform's chain. It answers nothing.",
    "refused_api_keys": "A refused key opens no organization. It answers only whoever has the secret, for the audit log.",
    "api_key_principal": "No organization is known before the key is. It answers only whoever has the secret.",
    "api_key_principals": "The streams of a process belong to many tenants. It answers what the given keys may do.",
    "booking_period": "Customers see no period, and what they pay is booked in one. It answers a month.",
    "fleet_machines": "Operators read the machines of everybody, a page of hundreds or counts of all. It answers nothing"
    " unless the API acts for the platform's organization.",
    "kept_offers": "A quote ranks offers as a placement does. It answers keys of offers, and nothing about a tenant.",
    "ledger_balances": "Finance reads what all customers' wallets hold together. It answers sums per kind of account, and"
    " nothing unless the API acts for the platform's organization.",
    "ledger_entries": "Finance reads the entries of an account of all customers, hundreds at a time. It answers nothing"
    " unless the API acts for the platform's organization.",
    "ledger_wallets": "Finance reads what we owe each customer, hundreds at a time. It answers nothing unless the API"
    " acts for the platform's organization.",
    "child_costs": "Finance reads what was left behind at providers and whose it was, hundreds at a time. It answers"
    " nothing unless the API acts for the platform's organization.",
    "machine_costs": "Finance reads what machines cost and who held them, hundreds at a time. It answers nothing unless"
    " the API acts for the platform's organization.",
    "machine_for_provider": "Operators read what the provider of a machine is told, whoever has the machine. It answers"
    " nothing unless the API acts for the platform's organization.",
    "node_ids": "Operators list the nodes of everybody. It answers ids alone; each is read as its own tenant.",
    "node_pool_ids": "Operators list everybody's node pools. It answers ids alone; each is read as its own tenant.",
    "organization_ids": "Operators list the organizations. It answers ids alone; each is read as its own tenant.",
    "organization_names": "Lists of finance name customers by the hundred. It answers nothing unless the API acts"
    " for the platform's organization.",
    "billed_organization": "Finance names a charge or a lease. It answers whose that is, and nothing unless the API acts"
    " for the platform's organization.",
    "period_missing": "Whoever closes a period asks about all customers. It answers counts, and nothing unless the API"
    " acts for the platform's organization.",
    "quota_request_ids": "Operators list the quota requests. It answers ids alone; each is read as its own tenant.",
    "fleet_samples": "Operators read the samples of everybody's machines. It answers nothing unless the API acts for the"
    " platform's organization.",
    "machine_signals": "The ingest process reads no table. It answers what workloads are asked for, by claims' ids.",
    "sample_senders": "The ingest process reads no table. It answers ids to whoever knows the digest of a credential.",
    "empty_samples": "No role may truncate. It empties partitions of samples whose hours are over.",
    "skip_repeated_sample": "A trigger: whoever adds samples may not read them. It answers nothing.",
    "refuse_closed_period": "A trigger: customers see no period, and book in one. It answers nothing.",
    "refuse_posting_in_closed_period": "A trigger, likewise.",
    "session_principals": "As for keys: the open streams of a process belong to many tenants. It answers ids it was given.",
    "sign_in_users": "A person signs in before an organization is known. It answers users of a verified address alone.",
    "take_request_tokens": "A process takes tokens for many organizations in one statement. It answers how full the"
    " buckets are that it names, and can only empty them.",
    "transaction_balances": "A trigger: the sum must not depend on what the writer sees. It answers nothing.",
}
"""Every SECURITY DEFINER function, and why it is one. A new one needs a reason here."""


async def test_functions_with_their_owners_rights_are_few_and_each_has_its_reason(filled_url: str) -> None:
    async with connected(filled_url) as connection:
        found = await connection.fetch("""
            SELECT proname AS name, proconfig AS config, proacl::text AS rights,
                   prorettype = 'trigger'::regtype AS is_trigger
            FROM pg_proc WHERE prosecdef AND pronamespace = 'public'::regnamespace
            """)
    assert {row["name"] for row in found} == set(DEFINERS)
    for row in found:
        assert row["config"] == ["search_path=pg_catalog, public"], row["name"]
        if not row["is_trigger"]:  # A trigger function cannot be called.
            assert re.search(r"[{,]=X", row["rights"]) is None, f"everybody may call {row['name']}"


async def test_the_lookups_read_no_more_than_the_columns_that_they_need(filled_url: str) -> None:
    async with connected(filled_url, role=roles.LOOKUPS) as lookups:
        for table in metadata.tables.keys() - {"request_budgets", "api_processes"}:
            with pytest.raises(REFUSED):
                await lookups.fetch(f"SELECT * FROM {table}")
            with pytest.raises(REFUSED):
                await lookups.execute(f"DELETE FROM {table}")


async def test_no_view_and_no_rule_is_there_to_go_around_the_filter(filled_url: str) -> None:
    async with connected(filled_url) as connection:
        assert not await connection.fetch(
            "SELECT relname FROM pg_class WHERE relkind IN ('v', 'm', 'f') AND relnamespace = 'public'::regnamespace"
        )
        assert not await connection.fetch("SELECT rulename FROM pg_rules WHERE schemaname = 'public'")
