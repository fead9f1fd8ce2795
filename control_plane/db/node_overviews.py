"""What customers read of the nodes of their pools, and what operators read of all nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.agents import EVIDENCE
from control_plane.db.connection import Connection
from control_plane.db.reach import reach_values, within
from control_plane.db.rows import convert, read, read_one
from control_plane.domain.access import Reach
from control_plane.domain.agent import AgentEvidence
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import (
    ClusterId,
    LeaseId,
    MachineId,
    NodeId,
    NodePoolId,
    OrganizationId,
    ProjectId,
)
from control_plane.domain.node import LeaveReason, NodeState


@dataclass(frozen=True, slots=True)
class NodeStep:
    """A step that a node has taken into its cluster or out of it."""

    step: str
    at: datetime


@dataclass(frozen=True, slots=True)
class NodeOverview:
    """A node with its pool, its lease and its steps."""

    id: NodeId
    name: str
    project_id: ProjectId
    project: str
    cluster_id: ClusterId
    cluster: str
    node_pool_id: NodePoolId
    node_pool: str
    lease_id: LeaseId
    lease: str
    machine_id: MachineId
    gpu_model: GpuModel | None
    gpu_count: int
    state: NodeState
    steps: tuple[NodeStep, ...]
    """In the order in which they were taken."""
    failing_why: str | None
    conditions: Mapping[str, str]
    """The conditions that its cluster last told, by type. They are the word of the node. `TunnelProblem` and
    `GpusMissing` are ours."""
    agent: AgentEvidence | None
    """What its agent reported last; None before there is one."""
    leave_reason: LeaveReason | None
    leave_why: str | None
    created_at: datetime
    ready_at: datetime | None
    unready_since: datetime | None
    leaving_at: datetime | None
    gone_at: datetime | None


@dataclass(frozen=True, slots=True)
class StepEvidence:
    """What was stored when a node had taken a step."""

    step: str
    at: datetime
    evidence: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class _Behind:
    """What operators see of a node besides."""

    organization_id: OrganizationId
    organization: str
    account: str
    address: str | None
    evidence: tuple[StepEvidence, ...]
    """In the order in which the steps were taken."""
    vcpus: int
    """As they were bought."""
    memory_gib: int
    capacity: Mapping[str, str]
    """What it says that it has, as its cluster last told it."""
    version: str | None
    number: int
    endpoint: str | None
    peers_read_at: datetime | None
    handshake_at: datetime | None
    holders: tuple[int, ...] | None
    """The members of the overlay that may still have its key; None before it has to go."""
    key_asked_at: datetime | None
    tries: int
    deadline_at: datetime


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node as operators see it."""

    overview: NodeOverview
    behind: _Behind


@dataclass(frozen=True, slots=True)
class Whose:
    """Which node, and whose."""

    organization_id: OrganizationId
    id: NodeId


_IDS_OF_ALL = text("""
SELECT organization_id, id FROM node_ids(
  CAST(:cluster_id AS uuid), CAST(:states AS text[]), CAST(:id AS uuid), CAST(:name AS text),
  CAST(:before_at AS timestamptz), CAST(:before_id AS uuid), :limit)
""")
_OBJECT = "(CASE jsonb_typeof({0}) WHEN 'object' THEN {0} ELSE '{{}}' END)"
_TOLD = """coalesce((SELECT jsonb_object_agg(c.key, c.value) FROM jsonb_each_text({0}) c
            WHERE c.value IS NOT NULL), '{{}}')"""
_OVERVIEW = f"""
SELECT n.id, n.name, n.project_id, (SELECT name FROM projects WHERE id = n.project_id) AS project, n.cluster_id,
  (SELECT name FROM clusters WHERE id = n.cluster_id) AS cluster, n.node_pool_id, p.name AS node_pool, n.lease_id,
  l.name AS lease, n.machine_id, l.gpu_model, l.gpu_count, n.state, n.failing_why, n.leave_reason,
  CASE n.leave_reason WHEN '{LeaveReason.LEASE_ENDED}' THEN coalesce(l.end_why, n.leave_why) ELSE n.leave_why END
    AS leave_why,
  n.created_at, n.ready_at, n.unready_since, n.leaving_at, n.gone_at,
  coalesce((SELECT jsonb_agg(jsonb_build_object('step', s.step, 'at', s.at) ORDER BY s.at, s.step)
            FROM node_steps s WHERE s.node_id = n.id), '[]') AS steps,
  {_TOLD.format(_OBJECT.format("n.reported -> 'conditions'"))}
    || CASE WHEN n.tunnels ->> 'problem' IS NULL THEN '{{}}' ELSE jsonb_build_object('TunnelProblem', 'True') END
    AS conditions,
  {EVIDENCE.format(claim_id="n.claim_id")} AS agent
"""
_OF = "FROM nodes n JOIN node_pools p ON p.id = n.node_pool_id JOIN leases l ON l.id = n.lease_id"
_REPORTS = text(f"""
{_OVERVIEW}, n.organization_id, (SELECT name FROM organizations WHERE id = n.organization_id) AS organization,
  m.account, m.address, m.vcpus, m.memory_gib, n.reported ->> 'version' AS version, n.number, n.endpoint,
  n.peers_read_at, n.handshake_at, n.holders, n.key_asked_at, n.tries, n.deadline_at,
  {_TOLD.format(_OBJECT.format("n.reported -> 'capacity'"))} AS capacity,
  coalesce((SELECT jsonb_agg(jsonb_build_object('step', s.step, 'at', s.at, 'evidence', {_OBJECT.format("s.evidence")})
                             ORDER BY s.at, s.step)
            FROM node_steps s WHERE s.node_id = n.id), '[]') AS evidence
{_OF} JOIN machines m ON m.id = n.machine_id
WHERE n.id = ANY(:ids)
""")
_SHOW = text(
    f"""
{_OVERVIEW} {_OF}
WHERE n.organization_id = :organization_id AND {within("p", lease=None)}
  AND (n.id = CAST(:id AS uuid) OR n.name = CAST(:name AS text))
"""
)
_PAGE = text(
    f"""
{_OVERVIEW} {_OF}
WHERE n.organization_id = :organization_id AND {within("p", lease=None)}
  AND (CAST(:before_at AS timestamptz) IS NULL OR (n.created_at, n.id) < (:before_at, CAST(:before_id AS uuid)))
  AND (CAST(:states AS text[]) IS NULL OR n.state = ANY(:states))
  AND (CAST(:cluster_id AS uuid) IS NULL OR n.cluster_id = :cluster_id)
  AND (CAST(:pool_id AS uuid) IS NULL OR n.node_pool_id = :pool_id)
ORDER BY n.created_at DESC, n.id DESC LIMIT :limit
"""
)


async def show(
    connection: Connection,
    organization_id: OrganizationId,
    *,
    node_id: NodeId | None = None,
    name: str | None = None,
    reach: Reach,
) -> NodeOverview | None:
    """A node within reach, by its id or by its name."""
    return await read_one(
        connection,
        _SHOW,
        NodeOverview,
        organization_id=organization_id,
        id=node_id,
        name=name,
        **reach_values(reach),
    )


async def page(
    connection: Connection,
    organization_id: OrganizationId,
    *,
    reach: Reach,
    before: tuple[datetime, UUID] | None = None,
    states: Sequence[NodeState] | None = None,
    cluster_id: ClusterId | None = None,
    pool_id: NodePoolId | None = None,
    limit: int,
) -> list[NodeOverview]:
    """Nodes within reach, newest first; `before` is time and id of the previous page's last one."""
    return await read(
        connection,
        _PAGE,
        NodeOverview,
        organization_id=organization_id,
        **reach_values(reach),
        before_at=before[0] if before else None,
        before_id=before[1] if before else None,
        states=None if states is None else list(states),
        cluster_id=cluster_id,
        pool_id=pool_id,
        limit=limit,
    )


async def whose(
    connection: Connection,
    *,
    cluster_id: ClusterId | None = None,
    states: Sequence[NodeState] | None = None,
    node_id: NodeId | None = None,
    name: str | None = None,
    before: tuple[datetime, UUID] | None = None,
    limit: int,
) -> list[Whose]:
    """Which nodes there are, of everybody, newest first. Each is read as its own tenant, by `reports`."""
    return await read(
        connection,
        _IDS_OF_ALL,
        Whose,
        cluster_id=cluster_id,
        states=None if states is None else list(states),
        id=node_id,
        name=name,
        before_at=before[0] if before else None,
        before_id=before[1] if before else None,
        limit=limit,
    )


async def reports(connection: Connection, ids: Sequence[NodeId]) -> list[NodeReport]:
    """These nodes of the connection's tenant, as operators see them."""
    found = (await connection.execute(_REPORTS, {"ids": list(ids)})).all()
    return [NodeReport(convert(row, NodeOverview), convert(row, _Behind)) for row in found]
