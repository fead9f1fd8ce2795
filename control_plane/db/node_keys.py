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
from control_plane.domain.node_key import ASKED_WAITED_FOR, KEY_LIFE, WAITED_FOR, KeyChange


@dataclass(frozen=True, slots=True)
class ChangeOf:
    """A node whose change of key is to begin or to go on."""

    node_id: NodeId
    next_key: str | None
    old_key: str | None
    holders: list[int] | None
    waits_since: datetime | None
    asked_at: datetime | None
    made_at: datetime | None

    @property
    def change(self) -> KeyChange:
        return KeyChange(
            self.next_key, self.old_key, self.holders, self.waits_since, self.asked_at, self.made_at
        )


_DUE = f"state = '{NodeState.READY}' AND public_key IS NOT NULL AND removed_at IS NULL AND key_due_at <= :now"
_TAKE = work.take("nodes", _DUE, order="key_asked_at, key_due_at, id")
_TAKEN = text("""
SELECT id AS node_id, next_key, old_key, key_holders AS holders, key_waits_since AS waits_since,
  key_asked_at AS asked_at, key_made_at AS made_at
FROM nodes WHERE id = ANY(:ids) ORDER BY key_asked_at, id
""")
_CHANGING = text(f"""
SELECT count(*) FROM nodes
WHERE cluster_id = :cluster_id AND {among("state", IN_CLUSTER)} AND key_holders IS NOT NULL
""")
_HELD = f"WHERE id = :id AND {work.HELD}"
# An operator may ask at any moment, also while a worker holds the node, so each statement reads what is stored now.
_DUE_AT = (
    "key_due_at = CASE WHEN key_asked_at IS NULL THEN CAST(:due_at AS timestamptz) ELSE :asked_due_at END"
)
_ANNOUNCE = text(f"""
UPDATE nodes SET next_key = :next_key, key_holders = CAST(:holders AS jsonb), key_waits_since = :now,
  key_made_at = :made_at, {_DUE_AT}, {work.GIVE_BACK} {_HELD}
""")
_SWITCHED = text(f"""
UPDATE nodes SET old_key = public_key, public_key = next_key, next_key = NULL, key_waits_since = :now,
  key_holders = CAST(:holders AS jsonb), {_DUE_AT}, {work.GIVE_BACK} {_HELD}
""")
_OVER = "next_key = NULL, old_key = NULL, key_holders = NULL, key_waits_since = NULL, key_made_at = NULL"
_FINISH = text(f"""
UPDATE nodes SET {_OVER}, key_asked_at = CASE WHEN key_asked_at > key_made_at THEN key_asked_at END,
  key_due_at = CASE WHEN key_asked_at > key_made_at THEN :now ELSE CAST(:due_at AS timestamptz) END,
  {work.GIVE_BACK} {_HELD}
""")
_GIVE_UP = text(f"UPDATE nodes SET {_OVER}, key_due_at = :due_at, {work.GIVE_BACK} {_HELD}")
_ASK = text(f"""
UPDATE nodes SET key_asked_at = :now, key_due_at = :now
WHERE id = :id AND state = '{NodeState.READY}' AND removed_at IS NULL AND key_asked_at IS NULL
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
    made_at: datetime,
) -> bool:
    """Put the next key of a node on the peer map. `holders` have to list it. False when the hold was lost.

    `made_at` is from before the machine was asked for it.
    """
    values = {"next_key": next_key, "holders": document(sorted(holders)), "now": now, "made_at": made_at}
    return bool(await write(connection, _ANNOUNCE, id=node_id, token=token, **values, **_due(now)))


def _due(now: datetime) -> dict[str, datetime]:
    return {"due_at": now + WAITED_FOR, "asked_due_at": now + ASKED_WAITED_FOR}


async def switched(
    connection: Connection,
    node_id: NodeId,
    holders: Iterable[int],
    *,
    token: UUID,
    now: datetime,
) -> bool:
    """A node uses its next key. `holders` have to drop the old one. False when another worker holds the node."""
    values = {"holders": document(sorted(holders)), "now": now}
    return bool(await write(connection, _SWITCHED, id=node_id, token=token, **values, **_due(now)))


async def finish(connection: Connection, node_id: NodeId, *, token: UUID, now: datetime) -> bool:
    """The change is over. If an operator asked for a later key than this one, the next change is due at once."""
    return bool(await write(connection, _FINISH, id=node_id, token=token, now=now, due_at=now + KEY_LIFE))


async def give_up(connection: Connection, node_id: NodeId, *, token: UUID, due_at: datetime) -> bool:
    """The change is given up before the node has switched. It is begun again at `due_at`."""
    return bool(await write(connection, _GIVE_UP, id=node_id, token=token, due_at=due_at))


async def ask(connection: Connection, node_id: NodeId, *, now: datetime) -> bool:
    """Have the key of an open node changed at once. False when that is asked for already, or it is not open."""
    return bool(await write(connection, _ASK, id=node_id, now=now))


async def wait(connection: Connection, node_id: NodeId, *, token: UUID, due_at: datetime) -> None:
    """Give the node back without having done anything."""
    await write(connection, _WAIT, id=node_id, token=token, due_at=due_at)
