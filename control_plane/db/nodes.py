"""Queries on nodes: machines on their way into a cluster, in it, and out of it. A state changes only through `move`."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.rows import document, read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.cluster import ClusterState
from control_plane.domain.failure import FailReason
from control_plane.domain.ids import (
    ClaimId,
    ClusterId,
    LaunchKey,
    LeaseId,
    MachineId,
    NodeId,
    NodePoolId,
    OrganizationId,
    ProjectId,
)
from control_plane.domain.machine import MachineState
from control_plane.domain.node import IN_CLUSTER, JoinStep, LeaveReason, LeaveStep, Node, NodeEvent, NodeState
from control_plane.domain.node_key import KEY_LIFE
from control_plane.domain.overlay import MEMBERS_MAX, SERVER_NUMBER
from control_plane.domain.transitions import Moved

_COLUMNS = ", ".join(f"n.{field.name}" for field in fields(Node))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A verified machine that was bought as a node, and is none yet."""

    organization_id: OrganizationId
    project_id: ProjectId
    cluster_id: ClusterId
    node_pool_id: NodePoolId
    lease_id: LeaseId
    claim_id: ClaimId
    machine_id: MachineId


_LOCK_NUMBERS = text("SELECT pg_advisory_xact_lock(hashtext('splitplane nodes'))")
_CANDIDATES = text(f"""
SELECT c.organization_id, c.project_id, p.cluster_id, p.id AS node_pool_id, c.lease_id, c.id AS claim_id, c.machine_id
FROM claims c JOIN leases l ON l.id = c.lease_id JOIN node_pools p ON p.id = l.node_pool_id
  JOIN clusters k ON k.id = p.cluster_id JOIN machines m ON m.id = c.machine_id
WHERE c.ended_at IS NULL AND c.admitted_at IS NULL AND m.state = '{MachineState.VERIFIED}' AND m.suspect_since IS NULL
  AND k.state = '{ClusterState.READY}' AND NOT EXISTS (SELECT FROM nodes n WHERE n.claim_id = c.id)
  AND k.id <> ALL(:full)
ORDER BY c.claimed_at, c.id LIMIT :limit
""")
_FULL = text(f"""
SELECT k.id, k.name FROM clusters k WHERE k.state = '{ClusterState.READY}'
  AND (SELECT count(*) FROM nodes n WHERE n.cluster_id = k.id AND {among("n.state", IN_CLUSTER)})
    >= {MEMBERS_MAX - SERVER_NUMBER}
ORDER BY k.name
""")
# The lowest number that no node in the cluster has. Without one nothing is stored.
_INSERT = text(f"""
INSERT INTO nodes (id, organization_id, project_id, cluster_id, node_pool_id, lease_id, claim_id, machine_id, name,
                   state, number, due_at, created_at, deadline_at)
SELECT :id, :organization_id, :project_id, :cluster_id, :node_pool_id, :lease_id, :claim_id, :machine_id, :name,
       '{NodeState.JOINING}', min(free), :now, :now, :deadline_at
FROM generate_series({SERVER_NUMBER + 1}, {MEMBERS_MAX}) AS free
WHERE NOT EXISTS (
  SELECT FROM nodes WHERE cluster_id = :cluster_id AND number = free AND {among("state", IN_CLUSTER)})
HAVING min(free) IS NOT NULL
""")
_GET = text(f"SELECT {_COLUMNS} FROM nodes n WHERE n.id = :id")
_LOCK = text(f"SELECT {_COLUMNS} FROM nodes n WHERE n.id = :id FOR UPDATE")
_MOVE = text(f"""
UPDATE nodes SET state = :after, generation = generation + 1, due_at = :now, tries = 0, failing_why = NULL,
  {work.GIVE_BACK}, leave_reason = coalesce(:reason, leave_reason), leave_why = coalesce(:why, leave_why),
  ready_at = CASE WHEN :after = '{NodeState.READY}' THEN CAST(:now AS timestamptz) ELSE ready_at END,
  leaving_at = CASE WHEN :after = '{NodeState.LEAVING}' THEN CAST(:now AS timestamptz) ELSE leaving_at END,
  gone_at = CASE WHEN :after = '{NodeState.GONE}' THEN CAST(:now AS timestamptz) END
WHERE id = :id AND state = :before AND generation = :seen
""")


async def lock_numbers(connection: Connection) -> None:
    """Let no other transaction give out numbers or keys of overlays."""
    await read(connection, _LOCK_NUMBERS, object)


@dataclass(frozen=True, slots=True)
class Full:
    """A cluster whose overlay has no number left."""

    id: ClusterId
    name: str


async def full_clusters(connection: Connection) -> list[Full]:
    return await read(connection, _FULL, Full)


async def candidates(
    connection: Connection, *, limit: int, without: Collection[ClusterId] = ()
) -> list[Candidate]:
    """Verified machines of node pools in clusters that can take them, those that were claimed first first."""
    return await read(connection, _CANDIDATES, Candidate, limit=limit, full=list(without))


async def insert(
    connection: Connection,
    node_id: NodeId,
    candidate: Candidate,
    *,
    name: str,
    now: datetime,
    deadline_at: datetime,
) -> bool:
    """Store a node with the lowest free number. False when the overlay is full. The caller holds `lock_numbers`."""
    values = {field.name: getattr(candidate, field.name) for field in fields(Candidate)}
    return bool(
        await write(connection, _INSERT, id=node_id, name=name, now=now, deadline_at=deadline_at, **values)
    )


async def get(connection: Connection, node_id: NodeId) -> Node | None:
    return await read_one(connection, _GET, Node, id=node_id)


async def lock(connection: Connection, node_id: NodeId) -> Node | None:
    """Lock a node. Lease, claim and machine are locked before it."""
    return await read_one(connection, _LOCK, Node, id=node_id)


async def move(
    connection: Connection,
    node: Node,
    moved: Moved[NodeState, NodeEvent],
    *,
    now: datetime,
    reason: LeaveReason | None = None,
    why: str | None = None,
) -> bool:
    """Move a node, and make it due. False when somebody has moved it since it was read."""
    values = {"id": node.id, "before": moved.before, "after": moved.after, "seen": node.generation}
    return bool(await write(connection, _MOVE, **values, now=now, reason=reason, why=why))


# Steps, with their evidence

_STEPS = text("SELECT step FROM node_steps WHERE node_id = :id")
_ADD_STEP = text(f"""
INSERT INTO node_steps (node_id, step, organization_id, at, evidence)
SELECT id, :step, organization_id, :now, CAST(:evidence AS jsonb) FROM nodes WHERE id = :id AND {work.HELD}
ON CONFLICT DO NOTHING
""")
_PROGRESS = text(
    f"""UPDATE nodes SET tries = 0, failing_why = NULL, work_until = :until,
      deadline_at = greatest(deadline_at, :deadline_at) WHERE id = :id AND {work.HELD}"""
)


async def steps(connection: Connection, node_id: NodeId) -> frozenset[str]:
    """The steps of joining and of leaving that have evidence."""
    return frozenset(await read(connection, _STEPS, str, id=node_id))


async def take_step(
    connection: Connection,
    node_id: NodeId,
    taken: JoinStep | LeaveStep,
    evidence: object,
    *,
    token: UUID,
    now: datetime,
    until: datetime,
    deadline_at: datetime | None = None,
) -> bool:
    """Store the evidence of a step, and hold the node until `until`. False when another worker holds the node.

    `deadline_at` can extend its deadline.
    """
    values = {"until": until, "deadline_at": deadline_at}
    if not await write(connection, _PROGRESS, id=node_id, token=token, **values):
        return False
    await write(
        connection, _ADD_STEP, id=node_id, step=taken, now=now, evidence=document(evidence), token=token
    )
    return True


# What workers hold

_TAKE = work.take("nodes", "state = :state AND due_at <= :now", order="due_at, id")
_TAKEN = text(f"SELECT {_COLUMNS} FROM nodes n WHERE n.id = ANY(:ids) ORDER BY n.created_at, n.id")
_FAIL = text(f"""
UPDATE nodes SET failing_why = :why, tries = tries + 1, tried_at = :now, due_at = :due_at, {work.GIVE_BACK}
WHERE id = :id AND {work.HELD}
""")
_WAIT = text(f"""
UPDATE nodes SET failing_why = coalesce(:why, failing_why), due_at = :due_at,
  deadline_at = greatest(deadline_at, :deadline_at), {work.GIVE_BACK}
WHERE id = :id AND {work.HELD}
""")
_FREE_ABANDONED = text(f"""
UPDATE nodes SET deadline_at = greatest(deadline_at, :deadline_at), {work.GIVE_BACK}
WHERE state = '{NodeState.JOINING}' AND work_until <= :now
""")
_HELD = work.still_held("nodes")
_RENEW = text(f"UPDATE nodes SET work_until = :until WHERE id = ANY(:ids) AND {work.HELD}")


async def take(
    connection: Connection, state: NodeState, *, token: UUID, now: datetime, until: datetime, limit: int
) -> list[Node]:
    """Hold nodes that are due in this state."""
    ids = await read(connection, _TAKE, UUID, state=state, token=token, now=now, until=until, limit=limit)
    return await read(connection, _TAKEN, Node, ids=ids)


async def free_abandoned(connection: Connection, *, now: datetime, deadline_at: datetime) -> None:
    """Give back joining nodes whose worker died, with some more time: it was not the machine that was late."""
    await write(connection, _FREE_ABANDONED, now=now, deadline_at=deadline_at)


async def renew(connection: Connection, ids: Sequence[NodeId], *, token: UUID, until: datetime) -> bool:
    """Hold nodes for longer. False when this worker holds none of them any more."""
    return bool(await write(connection, _RENEW, ids=ids, token=token, until=until))


async def is_held(connection: Connection, node_id: NodeId, *, token: UUID) -> bool:
    """Lock a node if this worker still holds it."""
    return await read_one(connection, _HELD, NodeId, id=node_id, token=token) is not None


async def fail(
    connection: Connection, node_id: NodeId, why: str, *, token: UUID, now: datetime, due_at: datetime
) -> None:
    """Give a node back after a step that failed now."""
    await write(connection, _FAIL, id=node_id, why=why, token=token, now=now, due_at=due_at)


async def wait(
    connection: Connection,
    node_id: NodeId,
    *,
    token: UUID,
    due_at: datetime,
    why: str | None = None,
    deadline_at: datetime | None = None,
) -> None:
    """Give a node back that has to wait, without a failed try. `deadline_at` can extend its deadline."""
    await write(connection, _WAIT, id=node_id, token=token, due_at=due_at, why=why, deadline_at=deadline_at)


# What a worker needs to know about a node besides its row


@dataclass(frozen=True, slots=True)
class Place:
    """The machine and the pool of a node."""

    account: str
    launch_key: LaunchKey
    machine_state: MachineState
    address: str | None
    ssh_port: int
    host_key: str | None
    fail_reason: FailReason | None
    missed_since: datetime | None
    claim_ended: bool
    has_tunnels: bool
    """Whether it was set up in its overlay, or could not be, while the cluster's server answers there."""
    gpu_count: int
    vcpus: int
    """As they were bought."""
    memory_gib: int
    disk_gib: int
    """Of its SKU."""
    pool: str
    node_labels: dict[str, str]
    node_taints: list[dict[str, str]]


_PLACE = text("""
SELECT m.account, m.launch_key, m.state AS machine_state, m.address, m.ssh_port, m.host_key, m.fail_reason,
  m.missed_since, c.ended_at IS NOT NULL AS claim_ended,
  (n.applied_version IS NOT NULL OR n.peers_tries > 0)
    AND NOT EXISTS (SELECT FROM overlays v WHERE v.cluster_id = n.cluster_id AND v.tries > 0) AS has_tunnels,
  m.gpu_count, m.vcpus, m.memory_gib, s.disk_gib, p.name AS pool,
  p.node_labels, p.node_taints
FROM nodes n JOIN machines m ON m.id = n.machine_id JOIN claims c ON c.id = n.claim_id
  JOIN node_pools p ON p.id = n.node_pool_id JOIN leases l ON l.id = n.lease_id JOIN skus s ON s.name = l.sku
WHERE n.id = :id
""")


async def place(connection: Connection, node_id: NodeId) -> Place:
    """Raises LookupError for an unknown node."""
    found = await read_one(connection, _PLACE, Place, id=node_id)
    if found is None:
        raise LookupError(f"there is no node {node_id}")
    return found


# What it told, and what was found

_KEY_TAKEN = text(f"""
SELECT EXISTS (
  SELECT FROM nodes WHERE cluster_id = :cluster_id AND id <> :id AND {among("state", IN_CLUSTER)}
    AND :public_key IN (public_key, next_key, old_key)
  UNION ALL SELECT FROM overlays WHERE cluster_id = :cluster_id
    AND :public_key IN (public_key, next_key, old_key)
  UNION ALL SELECT FROM relays WHERE cluster_id = :cluster_id AND public_key = :public_key) AS taken
""")
_KEEP_KEY = text(f"""
UPDATE nodes SET public_key = :public_key, endpoint = :endpoint, key_due_at = :key_due_at, tunnels_due_at = :now
WHERE id = :id AND {work.HELD}
""")
_KEEP_OBJECT = text(f"""
UPDATE nodes SET uid = :uid, pod_block = :pod_block, reported = CAST(:reported AS jsonb)
WHERE id = :id AND {work.HELD}
""")
_POD_BLOCK_TAKEN = text(f"""
SELECT EXISTS (SELECT FROM nodes WHERE cluster_id = :cluster_id AND id <> :id AND pod_block = :pod_block
               AND {among("state", IN_CLUSTER)}) AS taken
""")
_REPORT = text(f"""
UPDATE nodes SET reported = CAST(:reported AS jsonb), unready_since = :unready_since,
  due_at = :due_at, {work.GIVE_BACK}
WHERE id = :id AND {work.HELD}
""")


async def key_is_taken(connection: Connection, node: Node, public_key: str) -> bool:
    """Whether another member of the overlay, or a relay, has this key. The caller holds `lock_numbers`."""
    values = {"cluster_id": node.cluster_id, "id": node.id, "public_key": public_key}
    return bool(await read_one(connection, _KEY_TAKEN, bool, **values))


async def keep_key(
    connection: Connection,
    node_id: NodeId,
    public_key: str,
    endpoint: str | None,
    *,
    token: UUID,
    now: datetime,
) -> None:
    """Store its first key, and when that has to change."""
    values = {"public_key": public_key, "endpoint": endpoint, "key_due_at": now + KEY_LIFE, "now": now}
    await write(connection, _KEEP_KEY, id=node_id, token=token, **values)


async def pod_block_is_taken(connection: Connection, node: Node, pod_block: int) -> bool:
    """Whether another node has this range of pods, as its Node object is not deleted yet, or somebody changed it."""
    values = {"cluster_id": node.cluster_id, "id": node.id, "pod_block": pod_block}
    return bool(await read_one(connection, _POD_BLOCK_TAKEN, bool, **values))


async def keep_object(
    connection: Connection,
    node_id: NodeId,
    *,
    uid: str,
    pod_block: int | None,
    reported: Mapping[str, object],
    token: UUID,
) -> None:
    """Store what its Node object says."""
    values = {"uid": uid, "pod_block": pod_block, "reported": document(reported), "token": token}
    await write(connection, _KEEP_OBJECT, id=node_id, **values)


async def report(
    connection: Connection,
    node: Node,
    reported: Mapping[str, object],
    *,
    unready_since: datetime | None,
    token: UUID,
    due_at: datetime,
) -> None:
    """Store what a look at an open node found."""
    await write(
        connection,
        _REPORT,
        id=node.id,
        token=token,
        reported=document(reported),
        unready_since=unready_since,
        due_at=due_at,
    )


# Watching


@dataclass(frozen=True, slots=True)
class OpenNode:
    """An open node, with what a look at it is compared with."""

    id: NodeId
    name: str
    account: str
    """The provider account of its machine."""
    uid: str | None
    unready_since: datetime | None
    address: str | None
    ssh_port: int
    host_key: str | None
    launch_key: LaunchKey
    public_key: str | None
    """Of its tunnels."""
    missed_since: datetime | None
    gpu_count: int
    vcpus: int
    memory_gib: int


_OPEN_IN = text(f"""
SELECT n.id, n.name, m.account, n.uid, n.unready_since, m.address, m.ssh_port, m.host_key, m.launch_key, n.public_key,
  m.missed_since, m.gpu_count, m.vcpus, m.memory_gib
FROM nodes n JOIN machines m ON m.id = n.machine_id JOIN claims c ON c.id = n.claim_id
WHERE n.cluster_id = :cluster_id AND n.state = '{NodeState.READY}' AND c.ended_at IS NULL ORDER BY n.id
""")
_GONE_AMONG = text(f"""
SELECT name FROM nodes WHERE cluster_id = :cluster_id AND name = ANY(:names) AND state = '{NodeState.GONE}'
ORDER BY name
""")


async def open_in(connection: Connection, cluster_id: ClusterId) -> list[OpenNode]:
    """All open nodes of a cluster whose claims are open, whoever holds them."""
    return await read(connection, _OPEN_IN, OpenNode, cluster_id=cluster_id)


async def gone_among(connection: Connection, cluster_id: ClusterId, names: Iterable[str]) -> list[str]:
    """The names among these whose nodes left the cluster."""
    return await read(connection, _GONE_AMONG, str, cluster_id=cluster_id, names=sorted(names))


# Counting

_LEFT_IN = text(f"SELECT count(*) FROM nodes WHERE cluster_id = :cluster_id AND {among('state', IN_CLUSTER)}")


async def left_in(connection: Connection, cluster_id: ClusterId) -> int:
    """How many nodes a cluster may still hold something of."""
    return await read_one(connection, _LEFT_IN, int, cluster_id=cluster_id) or 0


# Leaving

_WITHOUT_CLAIM = text(f"""
SELECT {_COLUMNS} FROM nodes n JOIN claims c ON c.id = n.claim_id
WHERE c.ended_at IS NOT NULL AND (n.state = '{NodeState.READY}'
  OR n.state = '{NodeState.JOINING}' AND (n.work_until IS NULL OR n.work_until <= :now))
ORDER BY c.ended_at, n.id LIMIT :limit
""")
_REMOVE = text(f"""
UPDATE nodes SET removed_at = :now, holders = CAST(:holders AS jsonb)
WHERE id = :id AND {work.HELD} AND removed_at IS NULL
""")
_HOLDERS = text("SELECT holders FROM nodes WHERE id = :id")


def still_leaves(which: str) -> str:
    """SQL: whether nodes `n` for which this condition holds keep their machines.

    They do until they have left their clusters, but not for ever: only if their claims ended after `:kept_since`.
    """
    return f"""EXISTS (SELECT FROM nodes n JOIN claims ended ON ended.id = n.claim_id
      WHERE {which} AND {among("n.state", IN_CLUSTER)} AND ended.ended_at > :kept_since)"""


async def without_claim(connection: Connection, *, now: datetime, limit: int) -> list[Node]:
    """Nodes that have not begun to leave although their claims have ended, oldest end first.

    Without those that somebody lets join right now: what is deleted meanwhile would be made anew.
    """
    return await read(connection, _WITHOUT_CLAIM, Node, now=now, limit=limit)


async def remove(
    connection: Connection, node_id: NodeId, holders: Iterable[int], *, token: UUID, now: datetime
) -> None:
    """Take a node off the peer map. `holders` are the numbers of the members that listed its keys."""
    await write(connection, _REMOVE, id=node_id, holders=document(sorted(holders)), token=token, now=now)


async def holders(connection: Connection, node_id: NodeId) -> frozenset[int] | None:
    """The members that were not yet seen without the node's keys; None before it was taken off the peer map."""
    found = await read(connection, _HOLDERS, list[int] | None, id=node_id)  # type: ignore[arg-type] # A union is a form, no class.
    return None if not found or found[0] is None else frozenset(found[0])
