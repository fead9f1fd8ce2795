"""Queries on what few nodes may do at the same time. One that may keeps its turn until it is given back."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import TextClause, text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.nodes import lock_numbers
from control_plane.db.rows import write
from control_plane.domain.node import JoinStep, Node, NodeState


def _turn(which: str, before: JoinStep) -> TextClause:
    """Let node `n` have a turn unless `:limit` others have, of those for which `which` holds, before this step."""
    return text(f"""
UPDATE nodes n SET turn_token = work_token WHERE n.id = :id AND n.{work.HELD} AND :limit > (
  SELECT count(*) FROM nodes o JOIN machines m ON m.id = o.machine_id
  WHERE o.id <> n.id AND o.state = '{NodeState.JOINING}' AND o.turn_token = o.work_token AND o.work_until > :now
    AND {which} AND NOT EXISTS (SELECT FROM node_steps s WHERE s.node_id = o.id AND s.step = '{before}'))
""")


_SEND = _turn("m.account = (SELECT account FROM machines WHERE id = n.machine_id)", JoinStep.PREPARED)
_START = _turn(
    f"""o.cluster_id = n.cluster_id
    AND EXISTS (SELECT FROM node_steps s WHERE s.node_id = o.id AND s.step = '{JoinStep.TUNNELLED}')""",
    JoinStep.STARTED,
)


async def may_be_sent_files(
    connection: Connection, node: Node, *, limit: int, token: UUID, now: datetime
) -> bool:
    """Whether files are sent to less than `limit` other machines of its provider account. Then it has its turn."""
    return await _has_turn(connection, _SEND, node, limit=limit, token=token, now=now)


async def may_start(connection: Connection, node: Node, *, limit: int, token: UUID, now: datetime) -> bool:
    """Whether less than `limit` other agents of its cluster start. Then it has its turn."""
    return await _has_turn(connection, _START, node, limit=limit, token=token, now=now)


async def _has_turn(
    connection: Connection, statement: TextClause, node: Node, *, limit: int, token: UUID, now: datetime
) -> bool:
    await lock_numbers(connection)  # Two workers that count at the same time would not see each other.
    return bool(await write(connection, statement, id=node.id, limit=limit, token=token, now=now))
