"""Settles the journal of a database that was restored from a dump into another PostgreSQL cluster.

Every line names the transaction that wrote it (domain/position.py). Another cluster counts its transactions from its
own beginning, so restored lines can name transactions that are still to come there. Readers then remember every such
line by its number instead of all of them by one horizon. This moves the restored lines below all transactions of the
new cluster, in their order. A copy that keeps the count (a replica, a snapshot, point-in-time recovery, pg_upgrade)
needs nothing.
"""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db.roles import LOOKUPS, OWNER
from control_plane.domain.position import START

LINES_LOOKED_AT = 10_000
"""The newest lines, among which those of a restored journal are, so that no migration reads the whole journal."""
_LOOK = text(f"SET LOCAL ROLE {LOOKUPS}")
_STOP_LOOKING = text(f"SET LOCAL ROLE {OWNER}")
_TO_COME = "transaction >= CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint)"
_IS_RESTORED = text(f"""
SELECT EXISTS (SELECT FROM (SELECT transaction FROM journal ORDER BY number DESC LIMIT {LINES_LOOKED_AT}) newest
               WHERE {_TO_COME})
""")
_STEPS = (
    # The journal refuses edits, even its owner's. This changes no fact: only the order in which lines are read.
    # Even its owner sees no line while row-level security is forced. All of this is one transaction.
    "ALTER TABLE journal NO FORCE ROW LEVEL SECURITY",
    "ALTER TABLE journal DISABLE TRIGGER append_only",
    f"UPDATE journal SET transaction = transaction + ({START}) WHERE {_TO_COME}",
    "ALTER TABLE journal ENABLE TRIGGER append_only",
    "ALTER TABLE journal FORCE ROW LEVEL SECURITY",
)


async def settle(connection: AsyncConnection) -> bool:
    """Settle a restored journal, as the owner of the tables. False when there was nothing to do."""
    await connection.execute(_LOOK)  # The owner sees no row.
    is_restored = (await connection.execute(_IS_RESTORED)).scalar_one()
    await connection.execute(_STOP_LOOKING)
    if not is_restored:
        return False
    for step in _STEPS:
        await connection.execute(text(step))
    return True
