"""Queries on what was found about the tunnels of open nodes."""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.rows import document, read, read_one, write
from control_plane.domain.ids import NodeId
from control_plane.domain.node import NodeState

_DUE = f"state = '{NodeState.READY}' AND public_key IS NOT NULL AND removed_at IS NULL AND tunnels_due_at <= :now"
_TAKE = work.take("nodes", _DUE, order="tunnels_due_at, id")
_MISSES = text("SELECT coalesce(CAST(tunnels ->> 'misses' AS integer), 0) FROM nodes WHERE id = :id")
_STORE = text(f"""
UPDATE nodes SET tunnels = CAST(:tunnels AS jsonb), endpoint = :endpoint, tunnels_due_at = :due_at, {work.GIVE_BACK}
WHERE id = :id AND {work.HELD}
""")
_WAIT = text(f"UPDATE nodes SET tunnels_due_at = :due_at, {work.GIVE_BACK} WHERE id = :id AND {work.HELD}")


async def take(
    connection: Connection, *, token: UUID, now: datetime, until: datetime, limit: int
) -> list[NodeId]:
    """Hold open nodes whose tunnels are to be looked at."""
    return await read(connection, _TAKE, NodeId, token=token, now=now, until=until, limit=limit)


async def misses(connection: Connection, node_id: NodeId) -> int:
    """How many looks in a row have heard nothing from outside."""
    return await read_one(connection, _MISSES, int, id=node_id) or 0


async def store(
    connection: Connection,
    node_id: NodeId,
    tunnels: Mapping[str, object],
    endpoint: str | None,
    *,
    token: UUID,
    due_at: datetime,
) -> bool:
    """Store what a look found, and give the node back. False when another worker holds it."""
    values = {"tunnels": document(tunnels), "endpoint": endpoint, "due_at": due_at}
    return bool(await write(connection, _STORE, id=node_id, token=token, **values))


async def wait(connection: Connection, node_id: NodeId, *, token: UUID, due_at: datetime) -> None:
    """Give a node back that could not be looked at."""
    await write(connection, _WAIT, id=node_id, token=token, due_at=due_at)
