"""Queries on node pools. A state changes only through `move`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import scaled_pools, work
from control_plane.db.connection import Connection
from control_plane.db.reach import reach_values, within
from control_plane.db.rows import document, read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain import node_pool
from control_plane.domain.access import Reach
from control_plane.domain.cluster import ClusterState
from control_plane.domain.ids import ClusterId, LeaseId, NodePoolId, OrganizationId, ProjectId
from control_plane.domain.lease import LIVE as LIVE_LEASES
from control_plane.domain.lease import TERMINAL as ENDED_LEASES
from control_plane.domain.lease import LeaseState
from control_plane.domain.node import JoinStep, NodeState
from control_plane.domain.node_pool import (
    KEEPS_POOLS,
    LIVE,
    WANTED,
    Member,
    NodePool,
    NodePoolEvent,
    NodePoolState,
)
from control_plane.domain.organization import OPEN, OrganizationState
from control_plane.domain.refusal import Refused
from control_plane.domain.scaled_pool import ScaledPool
from control_plane.domain.transitions import Moved

_COLUMNS = """
p.id, p.organization_id, p.project_id, (SELECT name FROM projects WHERE id = p.project_id) AS project,
p.environment_id, (SELECT name FROM environments WHERE id = p.environment_id) AS environment,
p.cluster_id, (SELECT name FROM clusters WHERE id = p.cluster_id) AS cluster, p.name, p.request, p.nodes, p.node_labels,
p.node_taints, p.wait_timeout_seconds, p.state, p.generation, p.due_at, p.waiting_since, p.waiting_code, p.waiting_why,
p.why, p.created_at, p.ready_at, p.gone_at"""
_INSERT = text(f"""
INSERT INTO node_pools (id, organization_id, project_id, environment_id, cluster_id, name, request, nodes, node_labels,
                        node_taints, wait_timeout_seconds, state, due_at, created_at)
VALUES (:id, :organization_id, :project_id, :environment_id, :cluster_id, :name, CAST(:request AS jsonb), :nodes,
        CAST(:node_labels AS jsonb), CAST(:node_taints AS jsonb), :wait_timeout_seconds, '{NodePoolState.PENDING}',
        :created_at, :created_at)
ON CONFLICT (organization_id, project_id, cluster_id, name) WHERE {among("state", LIVE)} DO NOTHING
""")
_GET = text(f"SELECT {_COLUMNS} FROM node_pools p WHERE p.id = :id")
_LOCK = text(f"SELECT {_COLUMNS} FROM node_pools p WHERE p.id = :id FOR NO KEY UPDATE")
# Nodes that leave once others are ready in their place: few, whatever the size of the fleet.
_LEAVING_LATER = """
SELECT c.lease_id FROM repairs r JOIN claims c ON c.machine_id = r.machine_id
WHERE r.closed_at IS NULL AND r.spare_wanted_at IS NOT NULL AND c.ended_at IS NULL
"""
_MEMBERS = text(f"""
SELECT id AS lease_id, state, created_at, ready_at, end_reason, billed_until,
  id IN ({_LEAVING_LATER}) AS is_leaving_later,
  CASE WHEN end_reason IS NOT NULL
       THEN coalesce((SELECT max(c.ended_at) FROM claims c WHERE c.lease_id = l.id), ended_at) END AS let_go_at
FROM leases l WHERE node_pool_id = :id ORDER BY id
""")
_RESIZE = text("""
UPDATE node_pools SET nodes = :nodes, generation = generation + 1, waiting_since = NULL, waiting_code = NULL,
  waiting_why = NULL WHERE id = :id
""")
_MOVE = text(f"""
UPDATE node_pools SET state = :after, generation = generation + 1, due_at = :now, tries = 0, {work.GIVE_BACK},
  waiting_since = NULL, waiting_code = NULL, waiting_why = NULL, why = coalesce(:why, why),
  ready_at = CASE WHEN :after = '{NodePoolState.READY}' THEN CAST(:now AS timestamptz) ELSE ready_at END,
  gone_at = CASE WHEN :after = '{NodePoolState.GONE}' THEN CAST(:now AS timestamptz) END
WHERE id = :id AND state = :before AND generation = :seen
""")
_WAIT = text("""
UPDATE node_pools SET waiting_since = coalesce(waiting_since, :now), waiting_code = :code, waiting_why = :why,
  due_at = :due_at WHERE id = :id
""")
_DUE_AGAIN = text("""
UPDATE node_pools SET waiting_since = NULL, waiting_code = NULL, waiting_why = NULL, due_at = :due_at WHERE id = :id
""")
_LIVE_MEMBERS = (
    f"SELECT count(*) FROM leases l WHERE l.node_pool_id = p.id AND {among('l.state', LIVE_LEASES)}"
)
_STAYING_MEMBERS = f"{_LIVE_MEMBERS} AND l.id NOT IN ({_LEAVING_LATER})"
_OPEN_MEMBERS = f"SELECT FROM leases l WHERE l.node_pool_id = p.id AND NOT ({among('l.state', ENDED_LEASES)})"
# A steady pool is not taken at all: what is to be done about a pool is seen in its rows. This finds exactly the pools
# about which `domain/node_pool.py` decides something.
_DUE = text(f"""
SELECT p.id FROM node_pools p
WHERE {among("p.state", LIVE)} AND p.due_at <= :now AND (
  ({among("p.state", WANTED)} AND p.nodes <> ({_STAYING_MEMBERS}))
  OR ({among("p.state", WANTED)} AND NOT EXISTS (
        SELECT FROM organizations o, clusters c WHERE o.id = p.organization_id AND c.id = p.cluster_id
          AND {among("o.state", OPEN)} AND {among("c.state", KEEPS_POOLS)}))
  OR (p.state = '{NodePoolState.PENDING}'
      AND p.created_at + make_interval(secs => p.wait_timeout_seconds) <= :now)
  OR (p.state = '{NodePoolState.DELETING}' AND (({_LIVE_MEMBERS}) > 0 OR NOT EXISTS ({_OPEN_MEMBERS})))
)
ORDER BY p.due_at, p.id LIMIT :limit
""")
_TAKE = text(f"""
SELECT {_COLUMNS} FROM node_pools p WHERE p.id = :id AND p.due_at <= :now FOR NO KEY UPDATE SKIP LOCKED
""")
_WHERE_IT_IS = text("""
SELECT o.state AS organization, c.name AS cluster, c.state AS cluster_state
FROM organizations o, clusters c WHERE o.id = :organization_id AND c.id = :cluster_id
""")
# What customers read, and operators


@dataclass(frozen=True, slots=True)
class Counts:
    """How far the leases of a pool are."""

    leases: int
    """Those that are not ended by anybody."""
    with_machine: int
    """Of these, those that have a machine."""
    joining: int
    """Of these, those whose machine is joining the cluster."""
    healthy: int
    """Of these, those that are healthy there, and are not open yet."""
    ready: int
    """Of these, those whose node is open; they are billed."""
    nano_per_hour: int
    """What the live leases cost per hour, in nano-USD."""
    ending: int
    """Those whose machine may still be there."""


@dataclass(frozen=True, slots=True)
class PoolOverview:
    """A pool with what became of it."""

    pool: NodePool
    counts: Counts
    scaling: ScaledPool | None = None
    """The object in the cluster that it follows, as it was last looked at; None for a pool of the API."""


@dataclass(frozen=True, slots=True)
class PoolReport:
    """A pool as operators see it."""

    overview: PoolOverview
    organization: str
    """The name of the organization that it belongs to."""


@dataclass(frozen=True, slots=True)
class WhosePool:
    """Which pool, and whose."""

    organization_id: OrganizationId
    id: NodePoolId


_WITH_MACHINE = among("l.state", (LeaseState.STARTING, LeaseState.READY))
_COUNTS = text(f"""
SELECT p.id,
  count(l.id) FILTER (WHERE {among("l.state", LIVE_LEASES)}) AS leases,
  count(l.id) FILTER (WHERE {_WITH_MACHINE}) AS with_machine,
  count(n.id) AS joining,
  count(n.id) FILTER (WHERE EXISTS (
    SELECT FROM node_steps s WHERE s.node_id = n.id AND s.step = '{JoinStep.HEALTHY}')) AS healthy,
  count(l.id) FILTER (WHERE l.state = '{LeaseState.READY}') AS ready,
  coalesce(sum(l.nano_per_unit_hour * l.units) FILTER (WHERE {among("l.state", LIVE_LEASES)}), 0)::bigint
    AS nano_per_hour,
  count(l.id) FILTER (WHERE l.state = '{LeaseState.ENDING}') AS ending
FROM node_pools p LEFT JOIN leases l ON l.node_pool_id = p.id
  LEFT JOIN LATERAL (
    SELECT id FROM nodes WHERE lease_id = l.id AND state = '{NodeState.JOINING}' AND l.state = '{LeaseState.STARTING}'
    ORDER BY created_at DESC LIMIT 1) n ON true
WHERE p.id = ANY(:ids) GROUP BY p.id
""")


@dataclass(frozen=True, slots=True)
class _CountsOf(Counts):
    id: NodePoolId


@dataclass(frozen=True, slots=True)
class _WhereItIs:
    organization: OrganizationState
    cluster: str
    cluster_state: ClusterState


_SHOW = text(f"""
SELECT {_COLUMNS} FROM node_pools p
WHERE p.organization_id = :organization_id AND p.id = :id AND {within("p", lease=None)}
""")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM node_pools p
WHERE p.organization_id = :organization_id AND {within("p", lease=None)}
  AND (CAST(:before_at AS timestamptz) IS NULL OR (p.created_at, p.id) < (:before_at, CAST(:before_id AS uuid)))
  AND (CAST(:states AS text[]) IS NULL OR p.state = ANY(:states))
  AND (CAST(:project_id AS uuid) IS NULL OR p.project_id = :project_id)
  AND (CAST(:cluster_id AS uuid) IS NULL OR p.cluster_id = :cluster_id)
  AND (CAST(:name AS text) IS NULL OR p.name = :name)
ORDER BY p.created_at DESC, p.id DESC LIMIT :limit
""")

_IDS_OF_ALL = text("""
SELECT organization_id, id FROM node_pool_ids(
  CAST(:cluster_id AS uuid), CAST(:states AS text[]), CAST(:before_at AS timestamptz), CAST(:before_id AS uuid), :limit)
""")
_THESE = text(f"SELECT {_COLUMNS} FROM node_pools p WHERE p.id = ANY(:ids)")
_OWNERS = text("SELECT id, name FROM organizations WHERE id = ANY(:ids)")


@dataclass(frozen=True, slots=True)
class _Owner:
    id: OrganizationId
    name: str


async def insert(connection: Connection, pool: NodePool) -> bool:
    """Store a new pool. False when a live one of the project has the name in the cluster."""
    return bool(
        await write(
            connection,
            _INSERT,
            id=pool.id,
            organization_id=pool.organization_id,
            project_id=pool.project_id,
            environment_id=pool.environment_id,
            cluster_id=pool.cluster_id,
            name=pool.name,
            request=document(pool.request),
            nodes=pool.nodes,
            node_labels=document(pool.node_labels),
            node_taints=document(pool.node_taints),
            wait_timeout_seconds=pool.wait_timeout_seconds,
            created_at=pool.created_at,
        )
    )


async def get(connection: Connection, pool_id: NodePoolId) -> NodePool | None:
    return await read_one(connection, _GET, NodePool, id=pool_id)


async def lock(connection: Connection, pool_id: NodePoolId) -> NodePool | None:
    """Lock a pool. It is locked before its leases, after its organization."""
    return await read_one(connection, _LOCK, NodePool, id=pool_id)


async def members(connection: Connection, pool_id: NodePoolId) -> list[Member]:
    """All leases that the pool has or had, in the order of their ids."""
    return await read(connection, _MEMBERS, Member, id=pool_id)


_CAN_DO_WITHOUT = text(f"""
SELECT p.nodes <= (
  SELECT count(*) FROM leases o JOIN nodes n ON n.lease_id = o.id JOIN claims c ON c.id = n.claim_id
  WHERE o.node_pool_id = p.id AND o.id <> l.id AND o.state = '{LeaseState.READY}'
    AND n.state = '{NodeState.READY}' AND n.unready_since IS NULL AND c.ended_at IS NULL) AS enough
FROM leases l JOIN node_pools p ON p.id = l.node_pool_id WHERE l.id = :lease_id
""")


async def can_do_without(connection: Connection, lease_id: LeaseId) -> bool:
    """Whether the pool of a lease has as many ready nodes as it wants without that of this lease."""
    return bool(await read_one(connection, _CAN_DO_WITHOUT, bool, lease_id=lease_id))


async def resize(connection: Connection, pool_id: NodePoolId, nodes: int) -> None:
    """Store how many nodes a locked pool wants. What it waited for was about another number of nodes."""
    await write(connection, _RESIZE, id=pool_id, nodes=nodes)


async def move(
    connection: Connection,
    pool: NodePool,
    moved: Moved[NodePoolState, NodePoolEvent],
    *,
    now: datetime,
    why: str | None = None,
) -> bool:
    """Move a pool, and make it due. False when somebody has moved or resized it since it was read."""
    values = {"id": pool.id, "before": moved.before, "after": moved.after, "seen": pool.generation}
    return bool(await write(connection, _MOVE, **values, now=now, why=why))


async def wait(
    connection: Connection, pool_id: NodePoolId, refused: Refused, *, now: datetime, due_at: datetime
) -> None:
    """Store why a node that the pool lacks is not admitted, and when to try again."""
    await write(connection, _WAIT, id=pool_id, code=refused.code, why=refused.why, now=now, due_at=due_at)


async def due_again(connection: Connection, pool_id: NodePoolId, *, due_at: datetime) -> None:
    """Nothing refuses the pool; look at it again at this time."""
    await write(connection, _DUE_AGAIN, id=pool_id, due_at=due_at)


async def due(connection: Connection, *, now: datetime, limit: int) -> list[NodePoolId]:
    """The pools about which something has to be done, the longest due first."""
    return await read(connection, _DUE, NodePoolId, now=now, limit=limit)


async def take(connection: Connection, pool_id: NodePoolId, *, now: datetime) -> NodePool | None:
    """One of them, locked for this transaction; None when another worker has it, or it is not due any more."""
    return await read_one(connection, _TAKE, NodePool, id=pool_id, now=now)


async def ended_why(connection: Connection, pool: NodePool) -> str | None:
    """Why no pool can go on in this cluster or in this organization; None when pools can."""
    values = {"organization_id": pool.organization_id, "cluster_id": pool.cluster_id}
    found = await read_one(connection, _WHERE_IT_IS, _WhereItIs, **values)
    if found is None:
        raise LookupError(f"{pool.name} is in no cluster")
    return node_pool.ended_why(found.organization, found.cluster, found.cluster_state)


async def show(
    connection: Connection, organization_id: OrganizationId, pool_id: NodePoolId, *, reach: Reach
) -> PoolOverview | None:
    """A pool of the organization within reach."""
    found = await read(
        connection, _SHOW, NodePool, organization_id=organization_id, id=pool_id, **reach_values(reach)
    )
    overviews = await _with_counts(connection, found)
    return overviews[0] if overviews else None


async def page(
    connection: Connection,
    organization_id: OrganizationId,
    *,
    reach: Reach,
    before: tuple[datetime, UUID] | None = None,
    states: Sequence[NodePoolState] | None = None,
    project_id: ProjectId | None = None,
    cluster_id: ClusterId | None = None,
    name: str | None = None,
    limit: int,
) -> list[PoolOverview]:
    """Pools within reach, newest first; `before` is time and id of the previous page's last one."""
    found = await read(
        connection,
        _PAGE,
        NodePool,
        organization_id=organization_id,
        **reach_values(reach),
        before_at=before[0] if before else None,
        before_id=before[1] if before else None,
        states=None if states is None else list(states),
        project_id=project_id,
        cluster_id=cluster_id,
        name=name,
        limit=limit,
    )
    return await _with_counts(connection, found)


async def whose(
    connection: Connection,
    *,
    cluster_id: ClusterId | None = None,
    states: Sequence[NodePoolState] | None = None,
    before: tuple[datetime, UUID] | None = None,
    limit: int,
) -> list[WhosePool]:
    """Which pools there are, of everybody, newest first. Each is read as its own tenant, by `reports`."""
    return await read(
        connection,
        _IDS_OF_ALL,
        WhosePool,
        cluster_id=cluster_id,
        states=None if states is None else list(states),
        before_at=before[0] if before else None,
        before_id=before[1] if before else None,
        limit=limit,
    )


async def reports(connection: Connection, ids: Sequence[NodePoolId]) -> list[PoolReport]:
    """These pools of the connection's tenant, as operators see them."""
    found = await _with_counts(connection, await read(connection, _THESE, NodePool, ids=list(ids)))
    organizations = [*{each.pool.organization_id for each in found}]
    names = {each.id: each.name for each in await read(connection, _OWNERS, _Owner, ids=organizations)}
    return [PoolReport(each, names[each.pool.organization_id]) for each in found]


async def _with_counts(connection: Connection, pools: Sequence[NodePool]) -> list[PoolOverview]:
    counts = await read(connection, _COUNTS, _CountsOf, ids=[pool.id for pool in pools])
    of_pool = {each.id: each for each in counts}
    followed = {each.node_pool_id: each for each in await scaled_pools.of_pools(connection, [*of_pool])}
    return [PoolOverview(pool, of_pool[pool.id], followed.get(pool.id)) for pool in pools]
