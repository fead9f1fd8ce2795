"""How far samples were written to each store outside."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, write
from control_plane.db.samples import Cursor

_BEGIN = text("""
INSERT INTO sample_exports (target, received_at, claim_id, sequence)
VALUES (:target, :begin, CAST(:nobody AS uuid), 0) ON CONFLICT (target) DO NOTHING
""")
_CURSOR = text("SELECT received_at, claim_id, sequence FROM sample_exports WHERE target = :target")
_MOVE = text("""
UPDATE sample_exports SET received_at = :received_at, claim_id = CAST(:claim_id AS uuid), sequence = :sequence
WHERE target = :target AND (received_at, claim_id, sequence) = (:was_at, CAST(:was_claim AS uuid), :was_sequence)
""")
_NOBODY = UUID(int=0)


async def cursor(connection: Connection, target: str, *, begin: datetime) -> Cursor:
    """How far the target is; one that is new begins at `begin`."""
    await write(connection, _BEGIN, target=target, begin=begin, nobody=_NOBODY)
    (found,) = await read(connection, _CURSOR, Cursor, target=target)
    return found


async def move(connection: Connection, target: str, was: Cursor, reached: Cursor) -> bool:
    """Move the cursor on. False when another replica moved it meanwhile."""
    values = {"received_at": reached.received_at, "claim_id": reached.claim_id, "sequence": reached.sequence}
    before = {"was_at": was.received_at, "was_claim": was.claim_id, "was_sequence": was.sequence}
    return bool(await write(connection, _MOVE, target=target, **values, **before))
