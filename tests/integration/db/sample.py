"""Rows for every table, made from the tables themselves, so that a new table cannot be forgotten here."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from sqlalchemy import (
    BigInteger,
    Boolean,
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
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db.tables import SHARED, metadata
from tests.support.clock import START

A, B = UUID(int=0xA), UUID(int=0xB)
TENANT_TABLES = sorted(table.name for table in metadata.tables.values() if "organization_id" in table.columns)
OURS = UUID(int=0)
"""Stands for the tenant of shared rows."""

# What a type alone does not tell: words that CHECKs know, and figures that they want.
_VALUES: dict[str, Any] = {
    "leases.state": "placing",
    "machines.state": "intended",
    "transactions.kind": "top_up",
    "postings.account_kind": "wallet",
    "skus.gpu_model": "h100-sxm-80gb",
    "skus.capacity": "vm",
    "proofs.occasion": "start",
    "proofs.outcome": "passed",
    "ending_permits.until": START + timedelta(hours=1),
}


def _value(table: Table, column: Column[Any], tenant: UUID, number: int) -> Any:
    name = f"{table.name}.{column.name}"
    if name in _VALUES:
        return _VALUES[name]
    if column.name == "organization_id" or name == "organizations.id":
        return tenant
    if name == "networks.number":
        return tenant.int  # Unique over all tenants.
    for key in column.foreign_keys:
        return _value(key.column.table, key.column, OURS if key.column.table.name in SHARED else tenant, 1)
    return _BY_TYPE[type(column.type)](f"{name} {tenant.int}", number)


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


def a_row(table: str, tenant: UUID = A, number: int = 1, **other: Any) -> dict[str, Any]:
    """The least that the table takes; `number` tells rows of one tenant apart."""
    columns = metadata.tables[table].columns
    row = {
        column.name: _value(metadata.tables[table], column, tenant, number)
        for column in columns
        if column.name not in other
        and not column.nullable
        and column.server_default is None
        and column.identity is None
    }
    return row | other


def rows_of(table: str, tenant: UUID) -> list[dict[str, Any]]:
    """One row; of postings two, because they have to balance."""
    if table == "postings":
        return [a_row(table, tenant, 1, line=line, amount_nano=5 - 10 * line) for line in (0, 1)]
    return [a_row(table, tenant)]


async def insert(connection: AsyncConnection, table: str, *rows: Mapping[str, Any]) -> None:
    await connection.execute(metadata.tables[table].insert(), [dict(row) for row in rows])


async def fill(connection: AsyncConnection, *tenants: UUID) -> None:
    """A row in every table, for each tenant where a table has tenants. As the owner."""
    for table in metadata.sorted_tables:
        if table.name == "installation":
            continue  # The migration wrote its one row.
        owners = tenants if table.name in TENANT_TABLES or table.name == "organizations" else (OURS,)
        for tenant in owners:
            await insert(connection, table.name, *rows_of(table.name, tenant))
