"""Queries on the overlays of clusters: who is a member, and what each member was last set up as.

Locks are taken in the order removals, changes, a node, overlay, so that nobody waits in a circle.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import document, read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.db.work import FREE, GIVE_BACK
from control_plane.domain.cluster import ClusterState
from control_plane.domain.ids import ClusterId, LaunchKey, NodeId, OrganizationId
from control_plane.domain.node import IN_CLUSTER

_HAVE_OVERLAYS = (ClusterState.READY, ClusterState.DELETING)


@dataclass(frozen=True, slots=True)
class Overlay:
    """The overlay of a cluster, and what its server was set up as."""

    cluster_id: ClusterId
    block: int
    is_ending: bool
    """Whether its cluster is being deleted."""
    public_key: str | None
    """Of the server; None before it is known."""
    next_key: str | None
    """The key that the server changes to."""
    old_key: str | None
    """The key that it has changed from, until no node lists it."""
    key_made_at: datetime | None
    key_waits_since: datetime | None
    key_asked_at: datetime | None
    """When an operator asked for another key of the server."""
    applied_version: str | None
    read_at: datetime | None
    tries: int
    """How often setting up the server has failed since then."""
    tried_at: datetime | None
    fence: int
    """Higher than that of any worker that held the overlay before."""
    quiet_digest: str | None
    """What `digest` was when nothing was left to do."""
    quiet_until: datetime | None
    """When the first member has to be read again, if nothing changes until then."""


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A node in the peer map."""

    node_id: NodeId
    organization_id: OrganizationId
    number: int
    public_key: str
    next_key: str | None
    endpoint: str | None
    pod_block: int | None
    applied_version: str | None
    peers_read_at: datetime | None
    peers_tries: int
    peers_tried_at: datetime | None
    launch_key: LaunchKey
    address: str | None
    ssh_port: int
    host_key: str | None


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A node that changes its key, and that waits for others."""

    node_id: NodeId
    organization_id: OrganizationId
    number: int
    next_key: str | None
    old_key: str | None
    holders: list[int]
    waits_since: datetime


@dataclass(frozen=True, slots=True)
class RemovalRow:
    """A node that was taken off the peer map, and that members may still list."""

    node_id: NodeId
    organization_id: OrganizationId
    public_key: str | None
    next_key: str | None
    old_key: str | None
    holders: list[int]
    removed_at: datetime


_ADD = text(f"""
INSERT INTO overlays (cluster_id, due_at)
SELECT id, :now FROM clusters k WHERE {among("k.state", (ClusterState.READY,))}
  AND NOT EXISTS (SELECT FROM overlays o WHERE o.cluster_id = k.id)
ON CONFLICT DO NOTHING
""")
# The time is in it, so that a database which was restored from a backup goes on above what members have seen.
_TAKE = text(f"""
UPDATE overlays SET work_token = :token, work_until = :until, fence = greatest(fence + 1, :milliseconds)
WHERE cluster_id = ANY(ARRAY(
  SELECT cluster_id FROM overlays WHERE due_at <= :now AND {FREE}
    AND EXISTS (SELECT FROM clusters k WHERE k.id = overlays.cluster_id AND {among("k.state", _HAVE_OVERLAYS)})
  ORDER BY due_at, cluster_id LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING cluster_id
""")
_TAKEN = text(f"""
SELECT o.cluster_id, k.overlay AS block, k.state = '{ClusterState.DELETING}' AS is_ending, o.public_key,
  o.next_key, o.old_key, o.key_made_at, o.key_waits_since, k.server_key_asked_at AS key_asked_at,
  o.applied_version, o.read_at, o.tries, o.tried_at, o.fence, o.quiet_digest, o.quiet_until
FROM overlays o JOIN clusters k ON k.id = o.cluster_id WHERE o.cluster_id = ANY(:ids) ORDER BY o.cluster_id
""")
# Rows as text: parentheses, and quotes around values that contain such, keep two lists of rows from reading the same.
# When members were read, and their handshakes, are no part of it.
_DIGEST = text(f"""
SELECT encode(sha256(convert_to(ROW(
  (SELECT ROW(state, server_key_asked_at)::text FROM clusters WHERE id = :cluster_id),
  (SELECT ROW(public_key, next_key, old_key, applied_version, tries)::text
    FROM overlays WHERE cluster_id = :cluster_id),
  (SELECT string_agg(ROW(name, address, ssh_port, host_key, outside)::text, ';' ORDER BY name)
    FROM server_hosts WHERE cluster_id = :cluster_id),
  (SELECT string_agg(ROW(number, organization_id, public_key, endpoint, applied_version, unneeded_since)::text, ';'
    ORDER BY number) FROM relays WHERE cluster_id = :cluster_id),
  (SELECT string_agg(ROW(n.id, n.organization_id, n.number, n.public_key, n.next_key, n.old_key, n.endpoint,
      n.pod_block, n.applied_version, n.peers_tries, n.removed_at, n.holders, n.key_holders, m.launch_key, m.address,
      m.ssh_port, m.host_key)::text, ';' ORDER BY n.id)
    FROM nodes n JOIN machines m ON m.id = n.machine_id
    WHERE n.cluster_id = :cluster_id AND {among("n.state", IN_CLUSTER)})
)::text, 'UTF8')), 'hex') AS digest
""")
_HELD = "work_token = :token"
_STILL = f"EXISTS (SELECT FROM overlays o WHERE o.cluster_id = :cluster_id AND o.{_HELD})"
_MEMBERS = text(f"""
SELECT n.id AS node_id, n.organization_id, n.number, n.public_key, n.next_key, n.endpoint, n.pod_block,
  n.applied_version, n.peers_read_at, n.peers_tries, n.peers_tried_at, m.launch_key, m.address, m.ssh_port, m.host_key
FROM nodes n JOIN machines m ON m.id = n.machine_id
WHERE n.cluster_id = :cluster_id AND {among("n.state", IN_CLUSTER)} AND n.public_key IS NOT NULL
  AND n.removed_at IS NULL
ORDER BY n.number
""")
_REMOVALS = f"""
SELECT id AS node_id, organization_id, public_key, next_key, old_key, holders, removed_at FROM nodes
WHERE cluster_id = :cluster_id AND {among("state", IN_CLUSTER)} AND removed_at IS NOT NULL
  AND jsonb_array_length(holders) > 0
ORDER BY id
"""
_READ_REMOVALS, _LOCK_REMOVALS = text(_REMOVALS), text(f"{_REMOVALS} FOR NO KEY UPDATE")
_CHANGES = f"""
SELECT id AS node_id, organization_id, number, next_key, old_key, key_holders AS holders,
  key_waits_since AS waits_since
FROM nodes
WHERE cluster_id = :cluster_id AND {among("state", IN_CLUSTER)} AND removed_at IS NULL
  AND jsonb_array_length(key_holders) > 0
ORDER BY id
"""
_READ_CHANGES, _LOCK_CHANGES = text(_CHANGES), text(f"{_CHANGES} FOR NO KEY UPDATE")
_KEEP_KEY = text(f"UPDATE overlays SET public_key = :public_key WHERE cluster_id = :cluster_id AND {_HELD}")
_ANNOUNCE = text(f"""
UPDATE overlays SET next_key = :next_key, key_made_at = :made_at, key_waits_since = :now
WHERE cluster_id = :cluster_id AND {_HELD}
""")
_SWITCHED = text(f"""
UPDATE overlays SET old_key = public_key, public_key = next_key, next_key = NULL, key_waits_since = :now
WHERE cluster_id = :cluster_id AND {_HELD}
""")
_END = text(f"""
UPDATE overlays SET next_key = NULL, old_key = NULL, key_made_at = NULL, key_waits_since = NULL
WHERE cluster_id = :cluster_id AND {_HELD}
""")
_ANSWERED = text(f"""
UPDATE clusters SET server_key_asked_at = NULL WHERE id = :cluster_id AND server_key_asked_at <= :made_at AND {_STILL}
""")
_SERVER_APPLIED = text(f"""
UPDATE overlays SET applied_version = :version, read_at = :read_at, tries = 0
WHERE cluster_id = :cluster_id AND {_HELD}
""")
_SERVER_FAILED = text(f"""
UPDATE overlays SET tries = tries + 1, tried_at = :now WHERE cluster_id = :cluster_id AND {_HELD}
""")
_NODE_APPLIED = text(f"""
UPDATE nodes SET applied_version = :version, peers_read_at = :read_at, peers_tries = 0, handshake_at = :handshake_at
WHERE id = :node_id AND removed_at IS NULL AND {_STILL}
""")
_NODE_FAILED = text(f"""
UPDATE nodes SET peers_tries = peers_tries + 1, peers_tried_at = :now WHERE id = :node_id AND {_STILL}
""")
_KEEP_HOLDERS = text(f"""
UPDATE nodes SET holders = CAST(:holders AS jsonb), due_at = least(due_at, :now) WHERE id = :node_id AND {_STILL}
""")
_KEEP_KEY_HOLDERS = text(f"""
UPDATE nodes SET key_holders = CAST(:holders AS jsonb),
  key_due_at = CASE WHEN :done THEN least(key_due_at, CAST(:now AS timestamptz)) ELSE key_due_at END
WHERE id = :node_id AND {_STILL}
""")
_RENEW = text(f"UPDATE overlays SET work_until = :until WHERE cluster_id = :cluster_id AND {_HELD}")
_GIVE_BACK = text(f"""
UPDATE overlays SET due_at = :due_at, failing_why = :why, quiet_digest = :quiet_digest, quiet_until = :quiet_until,
  {GIVE_BACK}
WHERE cluster_id = :cluster_id AND {_HELD}
""")
_SOON = text("UPDATE overlays SET due_at = least(due_at, :now) WHERE cluster_id = :cluster_id")
_DELETE = text("DELETE FROM overlays WHERE cluster_id = :cluster_id")


async def add_missing(connection: Connection, *, now: datetime) -> None:
    """Add a row for each ready cluster that has none."""
    await write(connection, _ADD, now=now)


async def take(
    connection: Connection, *, token: UUID, now: datetime, until: datetime, limit: int
) -> list[Overlay]:
    """Hold overlays that are due."""
    milliseconds = int(now.timestamp() * 1_000)
    values = {"token": token, "now": now, "until": until, "limit": limit, "milliseconds": milliseconds}
    ids = await read(connection, _TAKE, UUID, **values)
    return await read(connection, _TAKEN, Overlay, ids=ids)


async def get(connection: Connection, cluster_id: ClusterId) -> Overlay | None:
    """The overlay of a cluster; None before there was anything in it."""
    return await read_one(connection, _TAKEN, Overlay, ids=[cluster_id])


async def members(connection: Connection, cluster_id: ClusterId) -> list[MemberRow]:
    """The nodes in the peer map, in the order of their numbers."""
    return await read(connection, _MEMBERS, MemberRow, cluster_id=cluster_id)


async def removals(connection: Connection, cluster_id: ClusterId) -> list[RemovalRow]:
    """Nodes that were taken off the peer map and that members may still list."""
    return await read(connection, _READ_REMOVALS, RemovalRow, cluster_id=cluster_id)


async def lock_removals(connection: Connection, cluster_id: ClusterId) -> list[RemovalRow]:
    """The same, locked: members are read side by side, and each is struck off once."""
    return await read(connection, _LOCK_REMOVALS, RemovalRow, cluster_id=cluster_id)


async def changes(connection: Connection, cluster_id: ClusterId) -> list[ChangeRow]:
    """Nodes that change their keys, and that others have not followed yet."""
    return await read(connection, _READ_CHANGES, ChangeRow, cluster_id=cluster_id)


async def lock_changes(connection: Connection, cluster_id: ClusterId) -> list[ChangeRow]:
    """The same, locked. Removals are locked before."""
    return await read(connection, _LOCK_CHANGES, ChangeRow, cluster_id=cluster_id)


async def keep_server_key(
    connection: Connection, cluster_id: ClusterId, public_key: str, *, token: UUID
) -> None:
    await write(connection, _KEEP_KEY, cluster_id=cluster_id, public_key=public_key, token=token)


async def announce_server_key(
    connection: Connection,
    cluster_id: ClusterId,
    next_key: str,
    *,
    token: UUID,
    made_at: datetime,
    now: datetime,
) -> bool:
    """Put the next key of the server on the peer map. False when the hold was lost.

    `made_at` is from before the server was asked for the key.
    """
    values = {"cluster_id": cluster_id, "next_key": next_key, "made_at": made_at, "now": now}
    return bool(await write(connection, _ANNOUNCE, token=token, **values))


async def server_switched(
    connection: Connection, cluster_id: ClusterId, *, token: UUID, now: datetime
) -> bool:
    """The server uses its next key. False when the hold was lost."""
    return bool(await write(connection, _SWITCHED, cluster_id=cluster_id, token=token, now=now))


async def end_server_key(
    connection: Connection, cluster_id: ClusterId, *, token: UUID, made_at: datetime | None
) -> None:
    """The change is over. What was asked for until `made_at` is answered; None for a change that is given up."""
    if made_at is not None:
        await write(connection, _ANSWERED, cluster_id=cluster_id, token=token, made_at=made_at)
    await write(connection, _END, cluster_id=cluster_id, token=token)


async def server_applied(
    connection: Connection, cluster_id: ClusterId, version: str, *, token: UUID, read_at: datetime
) -> None:
    values = {"cluster_id": cluster_id, "version": version, "token": token, "read_at": read_at}
    await write(connection, _SERVER_APPLIED, **values)


async def node_applied(
    connection: Connection,
    cluster_id: ClusterId,
    node_id: NodeId,
    version: str,
    *,
    token: UUID,
    read_at: datetime,
    handshake_at: datetime | None,
) -> None:
    """`handshake_at`: the last one of its tunnel with the server, by its own word."""
    values = {"cluster_id": cluster_id, "node_id": node_id, "version": version, "token": token}
    await write(connection, _NODE_APPLIED, **values, read_at=read_at, handshake_at=handshake_at)


async def server_failed(connection: Connection, cluster_id: ClusterId, *, token: UUID, now: datetime) -> None:
    """Note that the server could not be set up now."""
    await write(connection, _SERVER_FAILED, cluster_id=cluster_id, token=token, now=now)


async def node_failed(
    connection: Connection, cluster_id: ClusterId, node_id: NodeId, *, token: UUID, now: datetime
) -> None:
    """Note that a node could not be set up now."""
    await write(connection, _NODE_FAILED, cluster_id=cluster_id, node_id=node_id, token=token, now=now)


async def keep_holders(
    connection: Connection,
    cluster_id: ClusterId,
    node_id: NodeId,
    holders: Sequence[int],
    *,
    token: UUID,
    now: datetime,
) -> None:
    """Who may still list the keys of a removed node. The node is looked at again at once."""
    values = {"cluster_id": cluster_id, "node_id": node_id, "token": token, "now": now}
    await write(connection, _KEEP_HOLDERS, **values, holders=document(list(holders)))


async def keep_key_holders(
    connection: Connection,
    cluster_id: ClusterId,
    node_id: NodeId,
    holders: Sequence[int],
    *,
    token: UUID,
    now: datetime,
) -> None:
    """Who still has to follow the change of a node's key. When nobody is left, the change goes on at once."""
    values = {"cluster_id": cluster_id, "node_id": node_id, "token": token, "now": now}
    await write(connection, _KEEP_KEY_HOLDERS, **values, holders=document(list(holders)), done=not holders)


async def renew(connection: Connection, cluster_id: ClusterId, *, token: UUID, until: datetime) -> bool:
    """Hold an overlay longer. False when the hold was lost."""
    return bool(await write(connection, _RENEW, cluster_id=cluster_id, token=token, until=until))


async def digest(connection: Connection, cluster_id: ClusterId) -> str:
    """Of all rows that the work on an overlay follows from: while it is the same, only time brings something to do."""
    (found,) = await read(connection, _DIGEST, str, cluster_id=cluster_id)
    return found


async def give_back(
    connection: Connection,
    cluster_id: ClusterId,
    *,
    token: UUID,
    due_at: datetime,
    why: str | None,
    quiet: tuple[str, datetime] | None = None,
) -> None:
    """`quiet`: the digest from before the rows were read, and until when nothing is to be done while it is the same."""
    digest, until = quiet or (None, None)
    values = {"cluster_id": cluster_id, "token": token, "due_at": due_at, "why": why}
    await write(connection, _GIVE_BACK, **values, quiet_digest=digest, quiet_until=until)


async def soon(connection: Connection, cluster_id: ClusterId, *, now: datetime) -> None:
    """Have the peer map of a cluster applied at the next activation."""
    await write(connection, _SOON, cluster_id=cluster_id, now=now)


async def delete(connection: Connection, cluster_id: ClusterId) -> None:
    """Nothing of the overlay is left."""
    await write(connection, _DELETE, cluster_id=cluster_id)
