"""Rows for every table, made from the tables and their marks, so that a new table cannot be forgotten here."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from control_plane.db.connection import Connection
from control_plane.db.samples import slot_of
from control_plane.db.tables.every import metadata
from control_plane.db.tables.marks import Tenancy, marks_of
from control_plane.domain.period import month_of
from tests.support.clock import START

A, B = UUID(int=0xA), UUID(int=0xB)
OURS = UUID(int=0)
"""Stands for the tenant of rows that belong to no customer."""


def tables_of(*tenancies: Tenancy) -> list[str]:
    """The tables with one of these marks, in order of name."""
    return sorted(table.name for table in metadata.tables.values() if marks_of(table).tenancy in tenancies)


TENANT_TABLES = [
    name
    for name in tables_of(Tenancy.TENANT, Tenancy.MIXED, Tenancy.OURS_VISIBLE)
    if name != "organizations"  # Its id is the tenant.
]
"""Tables whose rows have an organization."""

# What a type alone does not tell: words that CHECKs know, and figures that they want.
_VALUES: dict[str, Any] = {
    "leases.state": "placing",
    "role_bindings.scope": "lease",
    "ssh_authorities.state": "removed",
    "machines.state": "intended",
    "clusters.state": "building",
    "powers.state": "stopping",
    "machines.power": ["reboot", "start", "stop"],
    "offers.firewall": "none",
    "node_pools.state": "pending",
    "nodes.state": "joining",
    "node_steps.step": "opened",
    "export_files.name": "focus-1.2.csv",
    "invoices.usage_nano": 10_000_000,
    "invoice_lines.kind": "credit",
    "invoices.credits_nano": 0,
    "invoices.adjustment_nano": 0,
    "credit_notes.credits_nano": 0,
    "kubeconfigs.role": "view",
    "kubeconfigs.recipient": bytes(32),
    "server_hosts.ssh_port": 22,
    "envelopes.level": "environment",
    "quota_requests.level": "environment",
    "quota_requests.state": "pending",
    "admission_decisions.outcome": "allowed",
    "machines.step": "placed",
    "machines.purpose": "lease",
    "ledger_accounts.kind": "wallet",
    "transactions.kind": "usage",
    "skus.capacity": "vm",
    "skus.proof": "listed",
    "leases.proof": "listed",
    "machines.proof": "listed",
    "proofs.outcome": "passed",
    "proof_records.outcome": "passed",
    "health_changes.verdict_before": "healthy",
    "machine_health.verdict": "healthy",
    "samples.slot": slot_of(START),
    "termination_permits.until": START + timedelta(hours=1),
    "enforcement_actions.basis": "ours",
    "enforcement_actions.expires_at": START + timedelta(hours=1),
    "quotes.expires_at": START + timedelta(hours=1),
    "preemptions.state": "notified",
    "preemptions.interrupt_at": START + timedelta(hours=1),
}
_VALUES_BY_NAME: dict[str, Any] = {
    "gpu_model": "h100-sxm-80gb",
    "purchase": "on_demand",
    "ssh_keys": [],
    "findings": [],
    "hints": [],
    "rates": [],
    "period": month_of(START),
}
_REFERENCES = {
    "lease_id": "leases",
    "project_id": "projects",
    "machine_id": "machines",
    "account_id": "ledger_accounts",
}
"""Columns that name a row of another table, with or without a foreign key."""


def _value(table: Table, column: Column[Any], tenant: UUID, number: int) -> Any:
    name = f"{table.name}.{column.name}"
    if name in _VALUES:
        return _VALUES[name]
    if column.name in _VALUES_BY_NAME:
        return _VALUES_BY_NAME[column.name]
    if column.name == "organization_id" or name == "organizations.id":
        return tenant
    if name in ("clusters.overlay", "hub_networks.number", "relays.number", "ssh_certificates.serial"):
        return tenant.int  # Unique over all tenants.
    if name == "periods.month":
        return month_of(START + timedelta(days=31 * number))
    referred = _referred(column)
    if referred is not None:
        owner = OURS if marks_of(referred.table).tenancy in (Tenancy.SHARED, Tenancy.PLATFORM) else tenant
        if tenant == OURS and marks_of(referred.table).tenancy is Tenancy.TENANT:
            owner = A  # Every secret is of some organization.
        return _value(referred.table, referred, owner, 1)
    word = _first_known_word(table, column)
    return word or _BY_TYPE[type(column.type)](f"{name} {tenant.int}", number)


def _referred(column: Column[Any]) -> Column[Any] | None:
    if column.name in _REFERENCES:
        return metadata.tables[_REFERENCES[column.name]].c.id
    return next((key.column for key in column.foreign_keys), None)


def _first_known_word(table: Table, column: Column[Any]) -> str | None:
    """A word that the column's CHECK knows, of columns that hold words of the domain."""
    for check in table.constraints:
        if isinstance(check, CheckConstraint) and str(check.name).endswith(
            f"{table.name}_{column.name}_known"
        ):
            found = re.search(r"'(\w+)'", str(check.sqltext))
            return found and found.group(1)
    return None


_BY_TYPE: dict[type[Any], Callable[[str, int], Any]] = {
    Uuid: lambda name, number: uuid5(NAMESPACE_OID, f"{name} {number}"),
    DateTime: lambda _, __: START,
    Boolean: lambda _, __: False,
    BigInteger: lambda _, number: number,
    Integer: lambda _, number: number,
    SmallInteger: lambda _, number: number,
    Double: lambda _, number: float(number),
    LargeBinary: lambda name, number: f"{name} {number}".encode(),
    JSONB: lambda _, __: {},
    ARRAY: lambda _, __: [],
    Text: lambda name, number: f"{name} {number}",
}
_ALWAYS = frozenset({"organization_id", "lease_id", "project_id", "environment_id", "service_account_id"})
"""Columns that a tenant's row has although they may be null in ours."""
_FILLED = frozenset(
    {"leases.network_id", *(f"{table}.gpu_model" for table in ("skus", "offers", "leases", "machines"))}
)
"""Columns that are null in other rows: a lease that is no node of a pool is in a network, and these have GPUs."""


def a_row(table: str, tenant: UUID = A, number: int = 1, **other: Any) -> dict[str, Any]:
    """The least that the table takes; `number` tells rows of one tenant apart."""
    found = metadata.tables[table]
    row = {
        column.name: _value(found, column, tenant, number)
        for column in found.columns
        if column.name not in other
        and (not column.nullable or column.name in _ALWAYS or f"{table}.{column.name}" in _FILLED)
        and column.server_default is None
        and column.identity is None
    }
    return row | other


def a_row_of_ours(table: str) -> dict[str, Any]:
    """The least that a table with rows of customers takes of a row that concerns only us: about a machine of ours."""
    columns = metadata.tables[table].columns
    nobodys = {name: None for name in _ALWAYS if name in columns}
    if "machine_id" in columns:
        nobodys["machine_id"] = a_row("machines", OURS)["id"]
    return a_row(table, OURS, 1, **nobodys)


def rows_of(table: str, tenant: UUID) -> list[dict[str, Any]]:
    """One row; of postings two, because they have to balance."""
    if table == "postings":
        return [a_row(table, tenant, 1, line=line, amount_nano=5 - 10 * line) for line in (0, 1)]
    return [a_row(table, tenant)]


async def insert(connection: Connection, table: str, *rows: Mapping[str, Any]) -> None:
    """Insert rows with the same columns, in one statement: postings balance at the end of each."""
    found = metadata.tables[table]
    values = [{name: _stored(found.columns[name], value) for name, value in row.items()} for row in rows]
    await connection.execute(found.insert().values(values))  # type: ignore[arg-type] # It is no text.


def _stored(column: Column[Any], value: Any) -> Any:
    """JSON as text, as connections take it."""
    return json.dumps(value) if isinstance(column.type, JSONB) and not isinstance(value, str) else value


async def fill(connection: Connection, *tenants: UUID) -> None:
    """A row in every table, for each tenant where a table has tenants, and ours where it has both. As the owner.

    Each tenant has a claim on a machine; nobody has one on ours.
    """
    for table in metadata.sorted_tables:
        if table.name == "installation":
            continue  # The migration wrote its one row.
        match marks_of(table).tenancy:
            case Tenancy.SHARED | Tenancy.PLATFORM:
                owners = [OURS]
            case Tenancy.CLAIMED:
                owners = [*tenants, OURS]
            case Tenancy.OFFERED:
                owners = [*tenants]
            case _:
                owners = [*tenants]
        for owner in owners:
            await insert(connection, table.name, *rows_of(table.name, owner))
        offers_to_all = (
            marks_of(table).tenancy is Tenancy.OFFERED and table.columns["organization_id"].nullable
        )
        if (
            offers_to_all
            or marks_of(table).tenancy is Tenancy.MIXED
            or table.name
            in (
                "audit_chains",
                "audit_checkpoints",
                "audit_events",
            )
        ):
            await insert(connection, table.name, a_row_of_ours(table.name))
