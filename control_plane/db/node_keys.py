"""Queries on the changes of nodes' WireGuard keys. Who lists which key is in `db/overlays.py`."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.rows import document, read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.ids import ClusterId, NodeId
from control_plane.domain.node import IN_CLUSTER, NodeState
from control_plane.domain.node_key import KeyChange


@dataclass(frozen=True, slots=True)
class ChangeOf:
    """A node whose change of key is to begin or to go on."""

    node_id: NodeId
    next_key: str | None
    old_key: str | None
    holders: list[int] | None
    waits_since: datetime | None

    @property
    def change(self) -> KeyChange:
        return KeyChange(self.next_key, self.old_key, self.holders, self.waits_since)


_DUE = f"state = '{NodeState.READY}' AND public_key IS NOT NULL AND removed_at IS NULL AND key_due_at <= :now"
_TAKE = work.take("nodes", _DUE, order="key_due_at, id")
_TAKEN = text("""
SELECT id AS node_id, next_key, old_key, key_holders AS holders, key_waits_since AS waits_since
FROM nodes WHERE id = ANY(:ids) ORDER BY id
""")
_CHANGING = text(f"""
SELECT count(*) FROM nodes
WHERE cluster_id = :cluster_id AND {among("state", IN_CLUSTER)} AND key_holders IS NOT NULL
""")
_HELD = f"WHERE id = :id AND {work.HELD}"
_ANNOUNCE = text(f"""
UPDATE nodes SET next_key = :next_key, key_holders = CAST(:holders AS jsonb), key_waits_since = :now,
  key_due_at = :due_at, {work.GIVE_BACK} {_HELD}
""")
_SWITCHED = text(f"""
UPDATE nodes SET old_key = public_key, public_key = next_key, next_key = NULL, key_waits_since = :now,
  key_holders = CAST(:holders AS jsonb), key_due_at = :due_at, {work.GIVE_BACK} {_HELD}
""")
_END = text(f"""
UPDATE nodes SET next_key = NULL, old_key = NULL, key_holders = NULL, key_waits_since = NULL, key_due_at = :due_at,
  {work.GIVE_BACK} {_HELD}
""")
_WAIT = text(f"UPDATE nodes SET key_due_at = :due_at, {work.GIVE_BACK} {_HELD}")


async def take(
    connection: Connection, *, token: UUID, now: datetime, until: datetime, limit: int
) -> list[ChangeOf]:
    """Hold open nodes whose key is to be changed, or whose change can go on."""
    ids = await read(connection, _TAKE, UUID, token=token, now=now, until=until, limit=limit)
    return await read(connection, _TAKEN, ChangeOf, ids=ids)


async def changing_in(connection: Connection, cluster_id: ClusterId) -> int:
    """How many nodes of a cluster change their keys."""
    return await read_one(connection, _CHANGING, int, cluster_id=cluster_id) or 0


async def announce(
    connection: Connection,
    node_id: NodeId,
    next_key: str,
    holders: Iterable[int],
    *,
    token: UUID,
    now: datetime,
    due_at: datetime,
) -> bool:
    """Put the next key of a node on the peer map. `holders` have to list it. False when the hold was lost."""
    values = {"next_key": next_key, "holders": document(sorted(holders)), "now": now, "due_at": due_at}
    return bool(await write(connection, _ANNOUNCE, id=node_id, token=token, **values))


async def switched(
    connection: Connection,
    node_id: NodeId,
    holders: Iterable[int],
    *,
    token: UUID,
    now: datetime,
    due_at: datetime,
) -> bool:
    """A node uses its next key. `holders` have to drop the old one. False when another worker holds the node."""
    values = {"holders": document(sorted(holders)), "now": now, "due_at": due_at}
    return bool(await write(connection, _SWITCHED, id=node_id, token=token, **values))


async def end(connection: Connection, node_id: NodeId, *, token: UUID, due_at: datetime) -> bool:
    """The change is over, or is given up before the node has switched. The next one is due at `due_at`."""
    return bool(await write(connection, _END, id=node_id, token=token, due_at=due_at))


async def wait(connection: Connection, node_id: NodeId, *, token: UUID, due_at: datetime) -> None:
    """Give the node back without having done anything."""
    await write(connection, _WAIT, id=node_id, token=token, due_at=due_at)
