"""Queries on blocks: what is not ordered for a while because a provider refused an order."""

from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, write
from control_plane.domain.block import Block
from control_plane.domain.ids import AccountName, MachineId

_COLUMNS = ", ".join(field.name for field in fields(Block))
# One row per refused order, so that two refusals never wait for each other.
_INSERT = text(f"""
INSERT INTO offer_blocks (machine_id, {_COLUMNS})
VALUES (:machine_id, {", ".join(f":{field.name}" for field in fields(Block))})
ON CONFLICT (machine_id) DO NOTHING
""")
_IN_FORCE = text(f"""
SELECT machine_id, {_COLUMNS} FROM offer_blocks WHERE until > :now ORDER BY account, until DESC, machine_id
""")
_FORGET = text("DELETE FROM offer_blocks WHERE account = :account AND until <= :now")


@dataclass(frozen=True, slots=True)
class StoredBlock(Block):
    machine_id: MachineId
    """The machine whose order was refused."""


async def insert(connection: Connection, machine_id: MachineId, block: Block) -> None:
    """Store what follows from the refused order of a machine, once for each machine."""
    values = {field.name: getattr(block, field.name) for field in fields(Block)}
    await write(connection, _INSERT, machine_id=machine_id, **values)


async def in_force(connection: Connection, *, now: datetime) -> list[StoredBlock]:
    """The blocks that have not ended, in order of their accounts, those that last longest first."""
    return await read(connection, _IN_FORCE, StoredBlock, now=now)


async def forget(connection: Connection, account: AccountName, *, now: datetime) -> int:
    """Delete the blocks of an account that have ended. Returns how many there were."""
    return await write(connection, _FORGET, account=account, now=now)
