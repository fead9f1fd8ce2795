"""Queries on NodePool objects of clusters: which are acted upon, with which nodes, and which cluster is due."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.rows import document, read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.cluster import ClusterState
from control_plane.domain.ids import ClusterId, NodePoolId, OrganizationId, ProjectId, ScaledPoolId
from control_plane.domain.lease import LIVE as LIVE_LEASES
from control_plane.domain.lease import EndReason
from control_plane.domain.node import NodeState
from control_plane.domain.node_pool import NodePool
from control_plane.domain.period import month_of
from control_plane.domain.scaled_pool import UNUSED_FOR, WITHIN, Pace, PoolNode, ScaledPool

_ADD_TURNS = text(f"""
INSERT INTO scaling_turns (id, due_at) SELECT id, :now FROM clusters WHERE state = '{ClusterState.READY}'
ON CONFLICT (id) DO NOTHING
""")
_DROP_TURNS = text(f"""
DELETE FROM scaling_turns t USING clusters c WHERE c.id = t.id AND c.state <> '{ClusterState.READY}'
""")
_TAKE = work.take("scaling_turns", "due_at <= :now", order="due_at, id")
# What was changed while the cluster was looked at, the look may have missed.
_GIVE_BACK = text(f"""
UPDATE scaling_turns SET tries = 0, tried_at = NULL, {work.GIVE_BACK},
  due_at = CASE WHEN changed_at >= CAST(:began_at AS timestamptz) THEN CAST(:now AS timestamptz)
    WHEN watch_until > CAST(:now AS timestamptz) THEN CAST(:watched_at AS timestamptz)
    ELSE CAST(:due_at AS timestamptz) END
WHERE id = :id AND {work.HELD}
""")
# One that does not answer is tried again when its time has come.
_CHANGED = text("""
UPDATE scaling_turns SET changed_at = CAST(:now AS timestamptz),
  due_at = CASE WHEN tries = 0 THEN least(due_at, CAST(:now AS timestamptz)) ELSE due_at END
WHERE id = :id
""")
_TAKE_WATCHES = text("""
UPDATE scaling_turns SET watch_token = :token, watch_until = :until WHERE id = ANY(ARRAY(
  SELECT id FROM scaling_turns WHERE watch_token = :token OR watch_until IS NULL OR watch_until <= :now
  ORDER BY watch_token IS DISTINCT FROM :token, id LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING id
""")
_END_WATCHES = text(
    "UPDATE scaling_turns SET watch_token = NULL, watch_until = NULL WHERE watch_token = :token"
)
_FAIL = work.retry("scaling_turns")
_RENEW = text(f"UPDATE scaling_turns SET work_until = :until WHERE id = ANY(:ids) AND {work.HELD}")
_TRIES = text("SELECT tries FROM scaling_turns WHERE id = :id")
_TENANTS = text("""
SELECT organization_id, project_id FROM cluster_tenants WHERE cluster_id = :cluster_id AND ready_at IS NOT NULL
ORDER BY project_id
""")
_COLUMNS = """
id, organization_id, project_id, cluster_id, name, object_uid, node_pool_id, policy, nodes_min, nodes_max, room,
empty_since, looked_at, vain, missing_since, scaled_at, scaled_why, refused_at, refused_code, refused_why,
spent_nano, spent_at, conditions"""
_OF_CLUSTER = text(
    f"SELECT {_COLUMNS} FROM scaled_pools WHERE cluster_id = :cluster_id ORDER BY project_id, name"
)
_OF_PROJECT = text(f"""
SELECT {_COLUMNS} FROM scaled_pools WHERE cluster_id = :cluster_id AND project_id = :project_id ORDER BY name
""")
_OF_POOLS = text(f"SELECT {_COLUMNS} FROM scaled_pools WHERE node_pool_id = ANY(:ids)")
_FOLLOW = text("""
INSERT INTO scaled_pools (id, organization_id, project_id, cluster_id, name, object_uid, node_pool_id, created_at)
VALUES (:id, :organization_id, :project_id, :cluster_id, :name, :object_uid, :node_pool_id, :now)
ON CONFLICT (cluster_id, project_id, name) DO UPDATE SET
  object_uid = excluded.object_uid, node_pool_id = excluded.node_pool_id, missing_since = NULL, policy = NULL,
  nodes_min = 0, nodes_max = 0, empty_since = '{}', looked_at = NULL, vain = '{}', refused_at = NULL,
  refused_code = NULL, refused_why = NULL, conditions = '[]'
""")
_FOUND_AGAIN = text("UPDATE scaled_pools SET object_uid = :object_uid, missing_since = NULL WHERE id = :id")
_SCALED = text("""
UPDATE scaled_pools SET scaled_at = :now, scaled_why = :why, refused_at = NULL, refused_code = NULL, refused_why = NULL
WHERE id = :id
""")
_REFUSED = text("""
UPDATE scaled_pools SET refused_at = :now, refused_code = :code, refused_why = :why WHERE id = :id
""")
_ADMITTED = text("""
UPDATE scaled_pools SET refused_at = NULL, refused_code = NULL, refused_why = NULL
WHERE id = :id AND refused_at IS NOT NULL
""")
_KEEP = text("""
UPDATE scaled_pools SET policy = :policy, nodes_min = :nodes_min, nodes_max = :nodes_max,
  room = CAST(:room AS jsonb), empty_since = CAST(:empty_since AS jsonb), looked_at = :looked_at,
  vain = CAST(:vain AS jsonb),
  missing_since = :missing_since, conditions = CAST(:conditions AS jsonb)
WHERE id = :id
""")
_DELETE = text("DELETE FROM scaled_pools WHERE id = :id")
# A pool that was deleted and made again goes on with what its predecessors of the name cost.
_SPENT = text("""
UPDATE scaled_pools s SET spent_at = :now, spent_nano = coalesce((
  SELECT sum(c.amount_nano) FROM node_pools p
  JOIN leases l ON l.node_pool_id = p.id AND l.organization_id = p.organization_id
  JOIN charges c ON c.lease_id = l.id AND c.organization_id = l.organization_id AND c.started_at >= :since
  WHERE p.cluster_id = s.cluster_id AND p.organization_id = s.organization_id AND p.project_id = s.project_id
    AND p.name = s.name), 0)
WHERE s.id = ANY(:ids)
""")
_UNUSED_FOR = f"interval '{int(UNUSED_FOR.total_seconds())} seconds'"
_PACE = text(f"""
SELECT
  (SELECT count(*) FROM leases l WHERE l.organization_id = :organization_id AND l.created_at > :since
    AND l.node_pool_id IS NOT NULL) AS ordered,
  (SELECT count(*) FROM leases l WHERE l.organization_id = :organization_id AND l.created_at > :since
    AND l.node_pool_id IS NOT NULL AND l.end_reason = '{EndReason.RELEASED}'
    AND (l.ready_at IS NULL OR l.billed_until < l.ready_at + {_UNUSED_FOR})
    AND EXISTS (SELECT FROM claims c WHERE c.lease_id = l.id)) AS unused,
  (SELECT count(*) FROM node_pools p WHERE p.organization_id = :organization_id AND p.created_at > :since) AS made
""")
_NODES = text(f"""
SELECT l.id AS lease_id, l.node_pool_id, l.state, l.gpu_count AS gpus,
  (l.nano_per_unit_hour * l.units)::bigint AS nano_per_hour, l.waiting_since, l.waiting_why,
  n.name AS node, l.ready_at AS open_since
FROM leases l LEFT JOIN nodes n ON n.lease_id = l.id AND n.state = '{NodeState.READY}'
WHERE l.node_pool_id = ANY(:ids) AND {among("l.state", LIVE_LEASES)} ORDER BY l.id
""")


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A project with a namespace in a cluster."""

    organization_id: OrganizationId
    project_id: ProjectId


async def take_turns(
    connection: Connection, *, token: UUID, now: datetime, until: datetime, limit: int
) -> list[ClusterId]:
    """Hold the ready clusters that are due."""
    await write(connection, _DROP_TURNS)
    await write(connection, _ADD_TURNS, now=now)
    return await read(connection, _TAKE, ClusterId, token=token, now=now, until=until, limit=limit)


async def renew_turns(
    connection: Connection, ids: Sequence[ClusterId], *, token: UUID, until: datetime
) -> bool:
    return bool(await write(connection, _RENEW, ids=ids, token=token, until=until))


@dataclass(frozen=True, slots=True)
class Looked:
    """A look at a cluster, and when the next one is due unless something changes there."""

    began_at: datetime
    ended_at: datetime
    due_at: datetime
    watched_at: datetime
    """Instead of `due_at`, while the cluster is watched."""


async def end_turn(connection: Connection, cluster_id: ClusterId, looked: Looked, *, token: UUID) -> None:
    """Give a cluster back. It is due at once if something changed since the look began."""
    values = {"began_at": looked.began_at, "now": looked.ended_at}
    due = {"due_at": looked.due_at, "watched_at": looked.watched_at}
    await write(connection, _GIVE_BACK, id=cluster_id, token=token, **values, **due)


async def changed(connection: Connection, cluster_id: ClusterId, *, now: datetime) -> None:
    """Store that something changed in a cluster: it is looked at next."""
    await write(connection, _CHANGED, id=cluster_id, now=now)


async def take_watches(
    connection: Connection, *, token: UUID, now: datetime, until: datetime, limit: int
) -> list[ClusterId]:
    """The clusters that the process with this token watches until then: its own, and those that nobody does."""
    return await read(connection, _TAKE_WATCHES, ClusterId, token=token, now=now, until=until, limit=limit)


async def end_watches(connection: Connection, *, token: UUID) -> None:
    await write(connection, _END_WATCHES, token=token)


async def fail_turn(
    connection: Connection, cluster_id: ClusterId, *, token: UUID, now: datetime, due_at: datetime
) -> None:
    await write(connection, _FAIL, id=cluster_id, token=token, now=now, due_at=due_at)


async def tries(connection: Connection, cluster_id: ClusterId) -> int:
    """How often the cluster has failed to answer in a row."""
    found = await read(connection, _TRIES, int, id=cluster_id)
    return found[0] if found else 0


async def tenants(connection: Connection, cluster_id: ClusterId) -> list[TenantRow]:
    """The projects with a namespace in a cluster where our rules are in force."""
    return await read(connection, _TENANTS, TenantRow, cluster_id=cluster_id)


async def of_cluster(connection: Connection, cluster_id: ClusterId) -> list[ScaledPool]:
    return await read(connection, _OF_CLUSTER, ScaledPool, cluster_id=cluster_id)


async def of_project(
    connection: Connection, cluster_id: ClusterId, project_id: ProjectId
) -> list[ScaledPool]:
    return await read(connection, _OF_PROJECT, ScaledPool, cluster_id=cluster_id, project_id=project_id)


async def of_pools(connection: Connection, ids: Sequence[NodePoolId]) -> list[ScaledPool]:
    """Those of these node pools that an object in their cluster asks for."""
    return await read(connection, _OF_POOLS, ScaledPool, ids=ids)


async def follow(
    connection: Connection, pool_id: ScaledPoolId, pool: NodePool, object_uid: str, *, now: datetime
) -> None:
    """Store that a NodePool object has this node pool from now on, whatever its name had before."""
    await write(
        connection,
        _FOLLOW,
        id=pool_id,
        organization_id=pool.organization_id,
        project_id=pool.project_id,
        cluster_id=pool.cluster_id,
        name=pool.name,
        object_uid=object_uid,
        node_pool_id=pool.id,
        now=now,
    )


async def found_again(connection: Connection, pool_id: ScaledPoolId, object_uid: str) -> None:
    """Store that another object of the name, which asks for the same nodes, stands in for the one that is missing."""
    await write(connection, _FOUND_AGAIN, id=pool_id, object_uid=object_uid)


async def nodes(connection: Connection, ids: Sequence[NodePoolId]) -> list[PoolNode]:
    """The leases of node pools that nobody ended, with the names of their open nodes."""
    return await read(connection, _NODES, PoolNode, ids=ids)


async def scaled(connection: Connection, pool_id: ScaledPoolId, why: str, *, now: datetime) -> None:
    """Store when and why its number of nodes changed."""
    await write(connection, _SCALED, id=pool_id, why=why, now=now)


async def refused(
    connection: Connection, pool_id: ScaledPoolId, *, code: str, why: str, now: datetime
) -> None:
    """Store why it gets no more nodes."""
    await write(connection, _REFUSED, id=pool_id, code=code, why=why, now=now)


async def nothing_refused(connection: Connection, pool_id: ScaledPoolId) -> None:
    """Store that it lacks no nodes that were refused: nobody asks for them any more."""
    await write(connection, _ADMITTED, id=pool_id)


async def keep(connection: Connection, pool: ScaledPool) -> None:
    """Store what a look found: all but what was scaled or refused, which is stored with it."""
    await write(
        connection,
        _KEEP,
        id=pool.id,
        policy=pool.policy,
        nodes_min=pool.nodes_min,
        nodes_max=pool.nodes_max,
        room=None if pool.room is None else document(pool.room),
        empty_since=document(pool.empty_since),
        looked_at=pool.looked_at,
        vain=document(pool.vain),
        missing_since=pool.missing_since,
        conditions=document(pool.conditions),
    )


async def look_at_spent(connection: Connection, ids: Sequence[ScaledPoolId], *, now: datetime) -> None:
    """Store what each of these pools, and those of its name before it, were charged for this month (UTC) until now."""
    await write(connection, _SPENT, ids=ids, since=month_of(now), now=now)


async def pace(connection: Connection, organization_id: OrganizationId, *, now: datetime) -> Pace:
    found = await read_one(connection, _PACE, Pace, organization_id=organization_id, since=now - WITHIN)
    return found or Pace(0, 0, 0)


async def delete(connection: Connection, pool_id: ScaledPoolId) -> None:
    await write(connection, _DELETE, id=pool_id)
