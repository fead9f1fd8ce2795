"""The state machine of a node pool: nodes of one SKU in one cluster, each of which is a lease of its own.

    PENDING --opened--> READY --deleted--> DELETING --emptied--> GONE
       `------- gave up, deleted ------------^

A pool begins all or none: while it is PENDING, no node of it is opened in the cluster, and nobody pays for any. Once
all of its nodes are healthy together, all are opened and the pool is READY. From then on each node that joins is opened
alone. Nodes are bought, proven, lost and replaced one by one, so a lease stays the unit of money and evidence.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.backoff import delay
from control_plane.domain.cluster import ClusterState
from control_plane.domain.deadline import LOOKED_AT_WITHIN, TRIED_FIRST
from control_plane.domain.ids import ClusterId, EnvironmentId, LeaseId, NodePoolId, OrganizationId, ProjectId
from control_plane.domain.lease import LIVE as LIVE_LEASES
from control_plane.domain.lease import TERMINAL as ENDED_LEASES
from control_plane.domain.lease import EndReason, LeaseState
from control_plane.domain.node_marks import Taint
from control_plane.domain.organization import OPEN as OPEN_ORGANIZATIONS
from control_plane.domain.organization import OrganizationState
from control_plane.domain.refusal import RefusalCode
from control_plane.domain.request import CapacityRequest
from control_plane.domain.scope import Scope, ScopeKind
from control_plane.domain.transitions import Ignored, Moved
from control_plane.domain.transitions import step as step_table


class NodePoolState(StrEnum):
    PENDING = "pending"
    """Its nodes are being leased and are joining the cluster. None of them is opened."""
    READY = "ready"
    """All of its nodes were opened together. Since then, lost ones are replaced one by one."""
    DELETING = "deleting"
    """Its leases have ended, and its nodes leave the cluster."""
    GONE = "gone"
    """Every machine of it is confirmed gone."""


class NodePoolEvent(StrEnum):
    OPENED = "opened"
    """All of its nodes were healthy, and all were opened."""
    GAVE_UP = "gave_up"
    """Not all of its nodes were healthy in the time that its request says."""
    DELETED = "deleted"
    """Its customer deleted it, or its cluster or its organization has come to an end."""
    EMPTIED = "emptied"
    """Every lease of it has ended."""


_S = NodePoolState
_E = NodePoolEvent

NEXT: dict[tuple[NodePoolState, NodePoolEvent], NodePoolState] = {
    (_S.PENDING, _E.OPENED): _S.READY,
    (_S.PENDING, _E.GAVE_UP): _S.DELETING,
    (_S.PENDING, _E.DELETED): _S.DELETING,
    (_S.READY, _E.DELETED): _S.DELETING,
    (_S.DELETING, _E.EMPTIED): _S.GONE,
}

LIVE = frozenset({_S.PENDING, _S.READY, _S.DELETING})
"""States in which a pool has its name."""
WANTED = frozenset({_S.PENDING, _S.READY})
"""States in which a pool is to have nodes."""
TERMINAL = frozenset({_S.GONE})

KEEPS_POOLS = frozenset({ClusterState.BUILDING, ClusterState.READY})
"""States of a cluster in which its pools go on."""
_FAILURES = frozenset(
    {EndReason.NO_CAPACITY, EndReason.MACHINE_LOST, EndReason.EVICTED, EndReason.PROOF_FAILED}
)
SERVED = timedelta(hours=1)
"""A lease that was ready for so long counts as no failure when it is lost."""
FAILURES_COUNT_FOR = timedelta(hours=24)
BACK_OFF_FIRST, BACK_OFF_CEILING = timedelta(minutes=1), timedelta(hours=1)

REPLACEMENT_WAIT_SECONDS = 604_800
"""How long the lease of a node waits for a machine once its pool is ready: the pool goes on without it meanwhile."""


def step(
    state: NodePoolState, event: NodePoolEvent
) -> Moved[NodePoolState, NodePoolEvent] | Ignored[NodePoolState, NodePoolEvent]:
    return step_table(NEXT, state, event)


@dataclass(frozen=True, slots=True)
class NodePool:
    """A node pool as it is stored now."""

    id: NodePoolId
    organization_id: OrganizationId
    project_id: ProjectId
    project: str
    """The project's name."""
    environment_id: EnvironmentId
    environment: str
    """The environment's name."""
    cluster_id: ClusterId
    cluster: str
    """The cluster's name."""
    name: str
    request: CapacityRequest
    """What each of its nodes is to be."""
    nodes: int
    """How many nodes are wanted."""
    node_labels: Mapping[str, str]
    node_taints: tuple[Taint, ...]
    wait_timeout_seconds: int
    """How long after its creation it tries to get ready."""
    state: NodePoolState
    generation: int
    due_at: datetime
    """When it was to be looked at. Much later than that, an outage of ours kept us from it."""
    waiting_since: datetime | None
    """Since when a node that it lacks is not admitted; None while that is not so."""
    waiting_code: RefusalCode | None
    waiting_why: str | None
    why: str | None
    """Why it is being deleted, as a sentence; None before."""
    created_at: datetime
    ready_at: datetime | None
    gone_at: datetime | None

    @property
    def scope(self) -> Scope:
        """Where roles have to be bound that count for it."""
        return Scope(ScopeKind.ENVIRONMENT, self.project_id, self.environment_id)

    @property
    def gives_up_at(self) -> datetime:
        """When it is given up, unless it is ready by then."""
        return self.created_at + timedelta(seconds=self.wait_timeout_seconds)

    @property
    def lease_wait_seconds(self) -> int:
        """How long a new lease of it waits for a machine."""
        return REPLACEMENT_WAIT_SECONDS if self.ready_at else self.wait_timeout_seconds


@dataclass(frozen=True, slots=True)
class Member:
    """A lease of a pool."""

    lease_id: LeaseId
    state: LeaseState
    created_at: datetime
    ready_at: datetime | None = None
    """When its node was opened; None before."""
    let_go_at: datetime | None = None
    """When it lost its machine, or ended without one; None before."""
    end_reason: EndReason | None = None
    billed_until: datetime | None = None
    """When its bill ended: for a node that was lost, when it stopped being ready."""
    is_leaving_later: bool = False
    """Whether its node is to leave once another one is ready in its place (`repair.py`)."""

    def failed_since(self, moment: datetime) -> bool:
        """Whether it ended after a moment, by nobody's wish and before it served for long."""
        if self.let_go_at is None or self.let_go_at < moment or self.end_reason not in _FAILURES:
            return False
        return self.ready_at is None or (self.billed_until or self.let_go_at) - self.ready_at < SERVED


@dataclass(frozen=True, slots=True)
class Delete:
    """The pool ends, with all of its leases."""

    event: NodePoolEvent
    why: str


@dataclass(frozen=True, slots=True)
class Release:
    """These leases are more than the pool wants."""

    lease_ids: tuple[LeaseId, ...]


@dataclass(frozen=True, slots=True)
class Replace:
    """The pool lacks so many leases."""

    count: int


@dataclass(frozen=True, slots=True)
class BackOff:
    """Its leases keep failing, so what it lacks is replaced later."""

    until: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Close:
    """Nothing of the pool is left."""


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Nobody looked at the pool when its time was over, so what it lacks may be our own fault."""

    due_at: datetime


Next = Delete | Release | Replace | BackOff | Close | LookAgain


def decide(
    pool: NodePool, members: Collection[Member], *, ended_why: str | None, now: datetime
) -> Next | None:
    """What has to be done about a pool now; None when nothing has.

    `ended_why` says why no pool can go on where this one is, such as that its cluster is being deleted.
    """
    if pool.state not in WANTED:
        return _decide_ending(pool, members)
    if ended_why is not None:
        return Delete(NodePoolEvent.DELETED, ended_why)
    if pool.state is _S.PENDING and now >= pool.gives_up_at:
        return _decide_overdue(pool, members, now)
    surplus = to_release(pool.nodes, members)
    if surplus:
        return Release(surplus)
    count = missing(pool.nodes, members)
    return (back_off(members, now) or Replace(count)) if count else None


def back_off(members: Collection[Member], now: datetime) -> BackOff | None:
    """A machine that fails costs us money, so each failure but the first doubles the wait for the next try."""
    failed = [member for member in members if member.failed_since(now - FAILURES_COUNT_FOR)]
    times = [member.let_go_at for member in failed if member.let_go_at is not None]
    if len(times) <= 1:  # One is chance.
        return None
    until = max(times) + delay(len(times) - 1, first=BACK_OFF_FIRST, ceiling=BACK_OFF_CEILING)
    if now >= until:
        return None
    hours = int(FAILURES_COUNT_FOR.total_seconds() // 3_600)
    return BackOff(
        until, f"{len(times)} leases of the pool failed within {hours} hours; it tries again later"
    )


def ended_why(organization: OrganizationState, cluster: str, cluster_state: ClusterState) -> str | None:
    """Why no pool goes on in this cluster or in this organization, as a sentence; None when pools do."""
    if organization not in OPEN_ORGANIZATIONS:
        return "the organization is closed"
    return None if cluster_state in KEEPS_POOLS else f"the cluster {cluster} is being deleted"


def _decide_ending(pool: NodePool, members: Collection[Member]) -> Next | None:
    live = tuple(member.lease_id for member in members if member.state in LIVE_LEASES)
    if pool.state is _S.DELETING and live:
        return Release(live)
    ended = all(member.state in ENDED_LEASES for member in members)
    return Close() if pool.state is _S.DELETING and ended else None


def _decide_overdue(pool: NodePool, members: Collection[Member], now: datetime) -> Next:
    """The moment passes whether or not anybody works (`deadline.py`), so a late look only sets another moment."""
    if now - max(pool.due_at, pool.gives_up_at) > LOOKED_AT_WITHIN:
        return LookAgain(now + TRIED_FIRST)
    return Delete(NodePoolEvent.GAVE_UP, _given_up_why(pool, members))


def _given_up_why(pool: NodePool, members: Collection[Member]) -> str:
    leased = sum(member.state is not LeaseState.PLACING for member in members if member.state in LIVE_LEASES)
    return (
        f"not all of its {pool.nodes} nodes were ready after {pool.wait_timeout_seconds:,} seconds;"
        f" {leased} of them had a machine"
    )


def _staying(members: Collection[Member]) -> list[Member]:
    return [member for member in members if member.state in LIVE_LEASES and not member.is_leaving_later]


def missing(nodes: int, members: Collection[Member]) -> int:
    """How many leases a pool of this size lacks, besides those whose nodes are to leave once others are ready."""
    return max(0, nodes - len(_staying(members)))


_FIRST_TO_GO: Sequence[LeaseState] = (LeaseState.PLACING, LeaseState.STARTING, LeaseState.READY)


def to_release(nodes: int, members: Collection[Member]) -> tuple[LeaseId, ...]:
    """The leases that end when a pool is to have no more than so many nodes.

    Those without a machine go first, then those whose node is not ready, then the ones that were created last: what
    has run the longest is the most likely to be missed. One whose node is to leave once another one is ready is not
    counted: it goes by itself.
    """
    staying = _staying(members)
    staying.sort(key=lambda member: (member.created_at, member.lease_id), reverse=True)
    staying.sort(key=lambda member: _FIRST_TO_GO.index(member.state))
    return tuple(member.lease_id for member in staying[: max(0, len(staying) - nodes)])


def to_release_when_scaled(nodes: int, members: Collection[Member]) -> tuple[LeaseId, ...]:
    """The leases that end when somebody wants fewer nodes: also those that are to leave, if enough others are ready."""
    surplus = to_release(nodes, members)
    kept = [member for member in _staying(members) if member.lease_id not in surplus]
    if sum(member.state is LeaseState.READY for member in kept) < nodes:
        return surplus
    leaving = [member for member in members if member.state in LIVE_LEASES and member.is_leaving_later]
    return (*surplus, *(member.lease_id for member in leaving))
