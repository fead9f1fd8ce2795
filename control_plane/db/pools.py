"""Queries on warm pools and on the machines that wait in them."""

from collections.abc import Collection, Sequence
from dataclasses import fields

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.machines import SIGHTED_AT
from control_plane.db.rows import Recordset, read, write
from control_plane.db.tables.marks import among
from control_plane.domain.ids import LeaseId
from control_plane.domain.machine import WANTED, MachineState, Purpose
from control_plane.domain.pool import Pool, PoolState
from control_plane.domain.pool_claim import PooledMachine

_COLUMNS = ", ".join(field.name for field in fields(Pool))
_MADE = Recordset(Pool, "made")
_INSERT = text(
    f"INSERT INTO pools ({_COLUMNS}, due_at) SELECT {_COLUMNS}, created_at FROM {_MADE} ON CONFLICT DO NOTHING"
)


async def insert(connection: Connection, pool: Pool) -> bool:
    """Store a new pool. False when its name, or its SKU and region, have a pool already."""
    return bool(await write(connection, _INSERT, made=_MADE.document([pool])))


_NAMED = text(f"""
SELECT {_COLUMNS} FROM pools WHERE name = ANY(:names) AND state <> '{PoolState.DELETED}' ORDER BY name
""")


async def named(connection: Connection, names: Collection[str]) -> list[Pool]:
    """The pools of these names that are not deleted."""
    return await read(connection, _NAMED, Pool, names=sorted(names))


WAITING_MAX = 300
"""So many machines are considered for the leases that are placed together."""

_OF_POOL = {"sku": "p.sku", "pool": "p.name AS pool", "pool_state": "p.state AS pool_state"}
_POOLED = ", ".join(
    f"{SIGHTED_AT} AS sighted_at"
    if field.name == "sighted_at"
    else _OF_POOL.get(field.name, f"m.{field.name}")
    for field in fields(PooledMachine)
)
# A machine that was claimed once is never claimed again.
_WAITING = text(f"""
SELECT {_POOLED} FROM machines m JOIN provider_accounts a ON a.name = m.account LEFT JOIN pools p ON p.id = m.pool_id
WHERE m.purpose = '{Purpose.POOL}' AND m.state <> '{MachineState.GONE}' AND {among("m.state", WANTED)}
  AND (p.sku = ANY(:skus) OR m.reserved_for = ANY(:leases))
  AND NOT EXISTS (SELECT FROM claims c WHERE c.machine_id = m.id)
ORDER BY m.state <> '{MachineState.VERIFIED}', m.created_at, m.id LIMIT :limit
""")


async def waiting(
    connection: Connection, skus: Collection[str], lease_ids: Sequence[LeaseId]
) -> list[PooledMachine]:
    """Machines that wait for leases of these SKUs, or for one of these leases, verified ones first. None is locked."""
    values = {"skus": sorted(skus), "leases": list(lease_ids)}
    return await read(connection, _WAITING, PooledMachine, **values, limit=WAITING_MAX)
