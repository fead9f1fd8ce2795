"""Queries on nodes that are being opened: their leases begin first (`reconciler/node_opening.py`)."""

from dataclasses import fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.rows import document, read, write
from control_plane.domain.ids import NodeId, NodePoolId
from control_plane.domain.node import JoinStep, Node, NodeState

_COLUMNS = ", ".join(f"n.{field.name}" for field in fields(Node))
_HEALTHY_IN = text(f"""
SELECT {_COLUMNS} FROM nodes n JOIN claims c ON c.id = n.claim_id JOIN machines m ON m.id = n.machine_id
WHERE n.node_pool_id = :node_pool_id AND n.state = '{NodeState.JOINING}' AND c.ended_at IS NULL
  AND m.suspect_since IS NULL AND n.unready_since IS NULL
  AND EXISTS (SELECT FROM node_steps s WHERE s.node_id = n.id AND s.step = '{JoinStep.HEALTHY}')
ORDER BY n.id
""")
_UNOPENED = text(f"""
SELECT {_COLUMNS} FROM nodes n JOIN claims c ON c.id = n.claim_id
WHERE n.state = '{NodeState.READY}' AND c.ended_at IS NULL
  AND NOT EXISTS (SELECT FROM node_steps s WHERE s.node_id = n.id AND s.step = '{JoinStep.OPENED}')
ORDER BY n.ready_at, n.id LIMIT :limit
""")
_KEEP_UNREADY = text(f"UPDATE nodes SET unready_since = :since WHERE id = :id AND {work.HELD}")
_NOTE_STEP = text("""
INSERT INTO node_steps (node_id, step, organization_id, at, evidence)
SELECT id, :step, organization_id, :now, CAST(:evidence AS jsonb) FROM nodes WHERE id = :id
ON CONFLICT DO NOTHING
""")


async def healthy_in(connection: Connection, pool_id: NodePoolId) -> list[Node]:
    """The joining nodes of a pool that may be opened. Their claims are open, and no machine is suspect."""
    return await read(connection, _HEALTHY_IN, Node, node_pool_id=pool_id)


async def keep_unready(
    connection: Connection, node_id: NodeId, since: datetime | None, *, token: UUID
) -> None:
    """Since when a node that waits to be opened is not healthy any more; None when it is."""
    await write(connection, _KEEP_UNREADY, id=node_id, since=since, token=token)


async def unopened(connection: Connection, *, limit: int) -> list[Node]:
    """Nodes whose leases have begun, and that were not opened yet, the oldest first."""
    return await read(connection, _UNOPENED, Node, limit=limit)


async def note_step(
    connection: Connection, node_id: NodeId, taken: JoinStep, evidence: object, *, now: datetime
) -> None:
    """Store the evidence of a step that every worker may take, also at a node that nobody holds."""
    await write(connection, _NOTE_STEP, id=node_id, step=taken, now=now, evidence=document(evidence))
