"""Queries on nodes that are being opened: their leases begin first (`reconciler/node_opening.py`)."""

from dataclasses import fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.rows import document, read, read_one, write
from control_plane.domain.ids import ClaimId, NodeId, NodePoolId
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
WAS_NOT_OPENED = f"""EXISTS (SELECT FROM nodes n WHERE n.claim_id = c.id AND NOT EXISTS (
    SELECT FROM node_steps s WHERE s.node_id = n.id AND s.step = '{JoinStep.OPENED}'))"""
"""SQL: whether claim `c` is on a node that no pod could use yet."""
UNREADY_SINCE = "(SELECT max(n.unready_since) FROM nodes n WHERE n.claim_id = c.id)"
"""SQL: since when claim `c` is on a node that is not ready; null while it is ready, and for others."""
_UNREADY_SINCE = text("""
SELECT unready_since FROM nodes WHERE claim_id = :claim_id AND unready_since IS NOT NULL ORDER BY 1 DESC LIMIT 1
""")
_WAS_NOT_OPENED = text(f"SELECT {WAS_NOT_OPENED} FROM claims c WHERE c.id = :claim_id")
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


async def was_not_opened(connection: Connection, claim_id: ClaimId) -> bool:
    """Whether a claim is on a node that no pod could use yet. False for claims that are on no node."""
    return bool(await read_one(connection, _WAS_NOT_OPENED, bool, claim_id=claim_id))


async def unready_since(connection: Connection, claim_id: ClaimId) -> datetime | None:
    """Since when a claim is on a node that is not ready; None while it is ready, and for claims that are on no node."""
    return await read_one(connection, _UNREADY_SINCE, datetime, claim_id=claim_id)


async def note_step(
    connection: Connection, node_id: NodeId, taken: JoinStep, evidence: object, *, now: datetime
) -> bool:
    """Store the evidence of a step that every worker may take, also at a node that nobody holds.

    Returns whether this was the first time.
    """
    return (
        await write(connection, _NOTE_STEP, id=node_id, step=taken, now=now, evidence=document(evidence)) == 1
    )
