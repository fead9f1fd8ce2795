"""Queries on the places of projects in clusters: which are needed, which are ready, and which are left over."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.cluster import ClusterState
from control_plane.domain.enforcement import EnforcementAction
from control_plane.domain.ids import ClusterId, ClusterTenantId, OrganizationId, ProjectId
from control_plane.domain.node import NodeState
from control_plane.domain.node_pool import LIVE as LIVE_POOL
from control_plane.domain.node_pool import WANTED as WANTED_POOL


@dataclass(frozen=True, slots=True)
class ClusterTenant:
    """The place of a project in a cluster, as it is stored now."""

    id: ClusterTenantId
    organization_id: OrganizationId
    project_id: ProjectId
    cluster_id: ClusterId
    tries: int
    ready_at: datetime | None
    leaves: bool
    """Whether the project has had neither a node pool nor a kubeconfig there for so long that the place goes."""


@dataclass(frozen=True, slots=True)
class Leased:
    """The nodes of a project in a cluster, with what they have together as it was sold."""

    names: tuple[str, ...]
    digest: str
    """Of the names, of how many nodes pools may have, and of what the workloads on nodes are asked for."""
    gpus: int
    vcpus: int
    memory_gib: int
    nodes_to_come: int
    """How many more nodes objects in the cluster may have bought for pods; so are the amounts that follow."""
    gpus_to_come: int
    vcpus_to_come: int
    memory_gib_to_come: int


_NEEDED = f"""
(EXISTS (SELECT FROM node_pools p WHERE p.cluster_id = t.cluster_id AND p.project_id = t.project_id
           AND {among("p.state", LIVE_POOL)})
 OR EXISTS (SELECT FROM kubeconfigs k WHERE k.cluster_id = t.cluster_id AND k.project_id = t.project_id
              AND k.removed_at IS NULL))
"""
_LEAVES = f"(coalesce(t.unneeded_since <= :unneeded_before, false) AND NOT {_NEEDED})"
_ADD = text(f"""
INSERT INTO cluster_tenants (id, organization_id, project_id, cluster_id, created_at, due_at)
SELECT gen_random_uuid(), needed.organization_id, needed.project_id, needed.cluster_id, :now, :now
FROM (
  SELECT organization_id, project_id, cluster_id FROM node_pools WHERE {among("state", LIVE_POOL)}
  UNION SELECT organization_id, project_id, cluster_id FROM kubeconfigs WHERE removed_at IS NULL
) needed JOIN clusters c ON c.id = needed.cluster_id AND c.state = '{ClusterState.READY}'
ON CONFLICT (cluster_id, project_id) DO NOTHING
""")
_COLUMNS = f"""
t.id, t.organization_id, t.project_id, t.cluster_id, t.tries,
t.ready_at, {_LEAVES} AS leaves
"""
_TAKE = work.take("cluster_tenants", "due_at <= :now", order="due_at, id")
_TAKEN = text(f"SELECT {_COLUMNS} FROM cluster_tenants t WHERE t.id = ANY(:ids) ORDER BY t.due_at, t.id")
_LEAVE = text(f"""
UPDATE cluster_tenants t SET ready_at = NULL WHERE t.id = :id AND {work.HELD} AND {_LEAVES} RETURNING t.id
""")
_KEPT = text(f"""
UPDATE cluster_tenants SET ready_at = coalesce(ready_at, :ready_at), node_digest = :digest, tries = 0,
  due_at = CASE WHEN due_at > :read_at THEN due_at ELSE :due_at END, {work.GIVE_BACK}
WHERE id = :id AND {work.HELD}
""")
_FAILED = text(f"""
UPDATE cluster_tenants SET tries = tries + 1, tried_at = :now, due_at = :due_at, {work.GIVE_BACK}
WHERE id = :id AND {work.HELD}
""")
_DOUBTED = text("UPDATE cluster_tenants SET due_at = :now WHERE id = :id")
_LOCK = work.still_held("cluster_tenants")
# Nothing is needed in a cluster that is gone.
_DELETE = text(f"""
DELETE FROM cluster_tenants t WHERE t.id = :id
  AND (NOT {_NEEDED} OR EXISTS (SELECT FROM clusters c WHERE c.id = t.cluster_id AND c.state = '{ClusterState.GONE}'))
""")
_RENEW = text(f"UPDATE cluster_tenants SET work_until = :until WHERE id = ANY(:ids) AND {work.HELD}")
_WAIT = text(f"UPDATE cluster_tenants SET due_at = :due_at, {work.GIVE_BACK} WHERE id = :id AND {work.HELD}")
_IS_READY = text("""
SELECT ready_at IS NOT NULL FROM cluster_tenants WHERE cluster_id = :cluster_id AND project_id = :project_id
""")
_SCALED = f"""
FROM scaled_pools sp JOIN node_pools p ON p.id = sp.node_pool_id AND {among("p.state", WANTED_POOL)}
WHERE sp.cluster_id = {{cluster}} AND sp.project_id = {{project}}
"""
_SCALED_OF_SKU = _SCALED.replace("WHERE", "JOIN skus s ON s.name = p.request->>'sku' WHERE", 1)
_DIGEST = f"""md5(concat(string_agg(n.name, ',' ORDER BY n.name), '/',
  (SELECT string_agg(concat(sp.name, '=', sp.nodes_max), ',' ORDER BY sp.name) {_SCALED}), '/',
  (SELECT a.words FROM asked a WHERE a.cluster_id = {{cluster}} AND a.project_id = {{project}})))"""
_ASKED_OF_NODES = f"""
FROM machine_signals(:now) s JOIN nodes n ON n.claim_id = s.claim_id AND n.state = '{NodeState.READY}'
"""
_WORDS = f"""
asked AS MATERIALIZED (
  SELECT n.cluster_id, n.project_id,
    string_agg(concat_ws(' ', n.name, s.action, s.reason, s.until, s.ends_at), ',' ORDER BY n.name) AS words
  {_ASKED_OF_NODES} GROUP BY n.cluster_id, n.project_id)
"""
"""What all nodes are asked for, by place: once for a statement, however many places it is about."""
_OPEN = f"n.cluster_id = {{cluster}} AND n.project_id = {{project}} AND n.state = '{NodeState.READY}'"
_LEASED = text(f"""
WITH {_WORDS}, to_come AS (
  SELECT greatest(0, sp.nodes_max - (SELECT count(*) FROM nodes n
                                     WHERE n.node_pool_id = p.id AND n.state = '{NodeState.READY}')) AS nodes,
    s.gpu_count AS gpus, s.vcpus, s.memory_gib
  {_SCALED_OF_SKU.format(cluster=":cluster_id", project=":project_id")}
)
SELECT coalesce(array_agg(n.name ORDER BY n.name), '{{}}') AS names,
  {_DIGEST.format(cluster=":cluster_id", project=":project_id")} AS digest,
  coalesce(sum(l.gpu_count), 0) AS gpus, coalesce(sum(s.vcpus), 0) AS vcpus,
  coalesce(sum(s.memory_gib), 0) AS memory_gib,
  (SELECT coalesce(sum(nodes), 0) FROM to_come)::bigint AS nodes_to_come,
  (SELECT coalesce(sum(nodes * gpus), 0) FROM to_come)::bigint AS gpus_to_come,
  (SELECT coalesce(sum(nodes * vcpus), 0) FROM to_come)::bigint AS vcpus_to_come,
  (SELECT coalesce(sum(nodes * memory_gib), 0) FROM to_come)::bigint AS memory_gib_to_come
FROM nodes n JOIN leases l ON l.id = n.lease_id JOIN skus s ON s.name = l.sku
WHERE {_OPEN.format(cluster=":cluster_id", project=":project_id")}
""")
_ASKED = text(f"""
SELECT n.name AS node, s.action, s.reason, s.until, s.ends_at {_ASKED_OF_NODES}
WHERE n.cluster_id = :cluster_id AND n.project_id = :project_id ORDER BY n.name
""")
_NEEDED_AGAIN = text(
    f"UPDATE cluster_tenants t SET unneeded_since = NULL WHERE t.unneeded_since IS NOT NULL AND {_NEEDED}"
)
_UNNEEDED = text(
    f"UPDATE cluster_tenants t SET unneeded_since = :now WHERE t.unneeded_since IS NULL AND NOT {_NEEDED}"
)
_CHANGED = text(f"""
WITH {_WORDS}
UPDATE cluster_tenants t SET due_at = :now
WHERE t.due_at > :now AND t.node_digest <>
  (SELECT {_DIGEST.format(cluster="t.cluster_id", project="t.project_id")} FROM nodes n
   WHERE {_OPEN.format(cluster="t.cluster_id", project="t.project_id")})
""")


async def add_needed(connection: Connection, *, now: datetime) -> int:
    """Store each project that needs a place in a ready cluster and has none. Returns how many."""
    return await write(connection, _ADD, now=now)


async def take(
    connection: Connection,
    *,
    token: UUID,
    now: datetime,
    until: datetime,
    unneeded_before: datetime,
    limit: int,
) -> list[ClusterTenant]:
    """Hold those that are due. What nobody needs since `unneeded_before` leaves."""
    ids = await read(connection, _TAKE, UUID, token=token, now=now, until=until, limit=limit)
    return await read(connection, _TAKEN, ClusterTenant, ids=ids, unneeded_before=unneeded_before)


async def renew(
    connection: Connection, ids: Sequence[ClusterTenantId], *, token: UUID, until: datetime
) -> bool:
    """Hold places for longer. False when this worker holds none of them any more."""
    return bool(await write(connection, _RENEW, ids=ids, token=token, until=until))


async def leave(
    connection: Connection, tenant_id: ClusterTenantId, *, token: UUID, unneeded_before: datetime
) -> bool:
    """Store that the place is about to be removed, before it is. False when it is needed again."""
    values = {"id": tenant_id, "token": token, "unneeded_before": unneeded_before}
    return await read_one(connection, _LEAVE, UUID, **values) is not None


async def kept(
    connection: Connection,
    tenant_id: ClusterTenantId,
    *,
    ready_at: datetime | None,
    digest: str,
    token: UUID,
    read_at: datetime,
    due_at: datetime,
    now: datetime,
) -> bool:
    """Give it back after everything there was put right for its nodes; `ready_at` counts when it was not ready yet.

    False when another worker holds it, or did. Then what was put there may be of the past, as it was at `read_at`, and
    the place is due at once.
    """
    values = {"id": tenant_id, "ready_at": ready_at, "digest": digest, "token": token, "due_at": due_at}
    if await write(connection, _KEPT, read_at=read_at, **values):
        return True
    await write(connection, _DOUBTED, id=tenant_id, now=now)
    return False


async def wait(connection: Connection, tenant_id: ClusterTenantId, *, token: UUID, due_at: datetime) -> None:
    """Give it back until a moment."""
    await write(connection, _WAIT, id=tenant_id, token=token, due_at=due_at)


async def failed(
    connection: Connection,
    tenant_id: ClusterTenantId,
    *,
    token: UUID,
    now: datetime,
    due_at: datetime,
) -> None:
    """Give it back after a try that failed, or that was not enough. One that another worker holds, or did, is due at
    once: a part of the try may have taken place.
    """
    if not await write(connection, _FAILED, id=tenant_id, token=token, now=now, due_at=due_at):
        await write(connection, _DOUBTED, id=tenant_id, now=now)


async def removed(connection: Connection, tenant_id: ClusterTenantId, *, token: UUID, now: datetime) -> bool:
    """Delete the row of a place of which nothing is left. When it is needed again, it is made anew instead, unless
    its cluster is gone.
    """
    if await read_one(connection, _LOCK, UUID, id=tenant_id, token=token) is None:
        return False
    if await write(connection, _DELETE, id=tenant_id):
        return True
    await wait(connection, tenant_id, token=token, due_at=now)
    return False


async def is_ready(connection: Connection, cluster_id: ClusterId, project_id: ProjectId) -> bool:
    """Whether the project's namespace is there, with our rules in force."""
    values = {"cluster_id": cluster_id, "project_id": project_id}
    return bool(await read_one(connection, _IS_READY, bool, **values))


async def leased(
    connection: Connection, cluster_id: ClusterId, project_id: ProjectId, *, now: datetime
) -> Leased:
    """The nodes on which pods of the project may run."""
    values = {"cluster_id": cluster_id, "project_id": project_id, "now": now}
    return (await read(connection, _LEASED, Leased, **values))[0]


@dataclass(frozen=True, slots=True)
class AskedOfNode:
    """What the workloads on a node are asked for now."""

    node: str
    """Its name in the cluster."""
    action: EnforcementAction
    reason: str
    """As in `MachineSignal`."""
    until: datetime
    ends_at: datetime | None


async def asked(
    connection: Connection, cluster_id: ClusterId, project_id: ProjectId, *, now: datetime
) -> list[AskedOfNode]:
    """What the workloads on the project's nodes are asked for, at most one action of a node."""
    values = {"cluster_id": cluster_id, "project_id": project_id, "now": now}
    return await read(connection, _ASKED, AskedOfNode, **values)


async def note_changes(connection: Connection, *, now: datetime) -> None:
    """Store since when nobody needs which, and make those due whose nodes, or what these are asked for, have changed
    since they were put right.
    """
    await write(connection, _NEEDED_AGAIN)
    await write(connection, _UNNEEDED, now=now)
    await write(connection, _CHANGED, now=now)
