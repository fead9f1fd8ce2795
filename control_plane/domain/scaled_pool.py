"""What NodePool and ScalingPolicy objects in a cluster ask for, and what they are told.

An object is a wish, and the node pool with its leases is what is done about it: that record is what is billed, and it
alone says which nodes there are. Both have the same name. Whoever writes objects is a customer of the cluster, so
everything in them is bounded here, or admitted like any other request for capacity.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.ids import (
    ClusterId,
    LeaseId,
    NodePoolId,
    OrganizationId,
    ProjectId,
    ScaledPoolId,
)
from control_plane.domain.lease import LeaseState
from control_plane.domain.money import Nano
from control_plane.domain.node_marks import Taint
from control_plane.domain.node_pool import NodePoolState
from control_plane.domain.request import CapacityRequest
from control_plane.domain.scaling import Bound, Plan, Policy

MISSING_EMPTY_FOR = timedelta(minutes=10)
"""How long the nodes of a pool are empty before they leave whose object is gone although nobody deleted it."""
TRIED_AGAIN_AFTER = timedelta(seconds=30)
"""The time after a refusal until nodes are asked for again."""
PODS_NAMED_MAX = 3
"""In a message about pods."""
WITHIN = timedelta(hours=1)
"""In which what objects of an organization lead to is bounded, in all clusters together."""
ORDERED_MAX = 256
"""Nodes that are ordered WITHIN, before its objects get no more."""
UNUSED_MAX = 16
"""Nodes ordered WITHIN that got a machine and were given up before they were ready, or within UNUSED_FOR of that. Such
a machine costs us more than its customer."""
UNUSED_FOR = timedelta(minutes=10)
MADE_MAX = 64
"""Node pools that are made WITHIN, before objects get no more."""


@dataclass(frozen=True, slots=True)
class NodePoolWish:
    """A NodePool object."""

    name: str
    uid: str
    is_deleted: bool
    """Whether somebody deleted it, and it waits for us."""
    is_held: bool
    """Whether it waits for us when it is deleted."""
    request: CapacityRequest
    nodes: int
    environment: str | None
    """Its name; None: the default one."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolBounds:
    name: str
    nodes_min: int
    nodes_max: int


@dataclass(frozen=True, slots=True)
class PolicyWish:
    """A ScalingPolicy object."""

    name: str
    created_at: datetime
    pools: tuple[PoolBounds, ...]
    policy: Policy


@dataclass(frozen=True, slots=True)
class Deciding:
    """Which policy decides about which pool."""

    of_pool: Mapping[str, tuple[PolicyWish, PoolBounds]]
    taken: Mapping[str, str]
    """Why a policy is not accepted, by its name."""


def deciding(policies: Collection[PolicyWish]) -> Deciding:
    """A pool has one policy. Of two that name it, the older one is in force and the other one is not accepted."""
    of_pool: dict[str, tuple[PolicyWish, PoolBounds]] = {}
    taken: dict[str, str] = {}
    for wish in sorted(policies, key=lambda each: (each.created_at, each.name)):
        other = next(
            ((of_pool[each.name][0].name, each.name) for each in wish.pools if each.name in of_pool), None
        )
        if other is not None:
            policy, pool = other
            taken[wish.name] = f"the ScalingPolicy {policy} scales {pool} already, and is the older one"
            continue
        of_pool.update({bounds.name: (wish, bounds) for bounds in wish.pools})
    return Deciding(of_pool, taken)


@dataclass(frozen=True, slots=True)
class Pace:
    """What an organization did WITHIN, in all of its clusters together and through the API as well."""

    ordered: int
    """Nodes."""
    unused: int
    """Of these, nodes that got a machine and were given up before they were ready, or soon after that."""
    made: int
    """Node pools."""

    def no_more_nodes(self) -> tuple[str, str] | None:
        """Why objects get no more nodes for now, as a code and a sentence; None when they may."""
        if self.unused >= UNUSED_MAX:
            why = (
                f"{self.unused} nodes that the organization ordered within an hour were given up unused, before they"
                f" were ready or within ten minutes of it; {UNUSED_MAX} is the limit"
            )
            return "unused_nodes_too_many", why
        if self.ordered >= ORDERED_MAX:
            why = f"the organization ordered {self.ordered} nodes within an hour; {ORDERED_MAX} is the limit"
            return "ordered_nodes_too_many", why
        return None

    def no_more_pools(self) -> str | None:
        """Why no object gets a node pool for now; None when it may."""
        if self.made < MADE_MAX:
            return None
        return (
            f"the organization made {self.made} node pools within an hour; {MADE_MAX} is the limit, and this one"
            " follows later"
        )


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is so, or is not, with the reason."""

    kind: str
    is_so: bool
    reason: str
    """One word in CamelCase, for programs."""
    message: str
    """A sentence for people."""
    since: datetime


def so(kind: str, reason: str, message: str, since: datetime) -> Condition:
    return Condition(kind, is_so=True, reason=reason, message=message, since=since)


def not_so(kind: str, reason: str, message: str, since: datetime) -> Condition:
    return Condition(kind, is_so=False, reason=reason, message=message, since=since)


class ConditionKind(StrEnum):
    ACCEPTED = "Accepted"
    """Whether the object is done something about."""
    READY = "Ready"
    """Whether as many nodes are open as there are to be."""
    ADMITTED = "Admitted"
    """Whether the organization's limits, quota and balance allow the nodes that are asked for."""
    CAPACITY_AVAILABLE = "CapacityAvailable"
    """Whether providers sell what is asked for now."""
    LIMIT_REACHED = "LimitReached"
    BUDGET_REACHED = "BudgetReached"
    PODS_UNPLACEABLE = "PodsUnplaceable"
    """Whether pods wait for which no node would do."""


@dataclass(frozen=True, slots=True)
class ScaledPool:
    """A NodePool object as it was last acted upon."""

    id: ScaledPoolId
    organization_id: OrganizationId
    project_id: ProjectId
    cluster_id: ClusterId
    name: str
    object_uid: str
    node_pool_id: NodePoolId
    policy: str | None
    """The ScalingPolicy that decides its number of nodes; None: the object does."""
    nodes_min: int
    nodes_max: int
    room: Mapping[str, int] | None
    """The least that open nodes of it were seen to have for pods, by resource (CPU in thousandths, memory in bytes);
    None before the first one."""
    empty_since: Mapping[str, datetime]
    """Since when nodes are known to be empty, by the ids of their leases."""
    looked_at: datetime | None
    vain: Mapping[str, datetime]
    """Until when nothing is bought for pods, by their names, for which a node of it was bought in vain."""
    missing_since: datetime | None
    """Since when the object is gone although nobody was seen deleting it; None while it is there."""
    scaled_at: datetime | None
    scaled_why: str | None
    refused_at: datetime | None
    """When nodes that it lacks were last refused; None when they are not."""
    refused_code: str | None
    refused_why: str | None
    spent_nano: int
    """What pools of its name were charged in the month of `spent_at`, as far as it was rated by then."""
    spent_at: datetime | None
    """None while no budget per month needs it."""
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class PoolNode:
    """A lease of a scaled pool that nobody ended, with its node."""

    lease_id: LeaseId
    node_pool_id: NodePoolId
    state: LeaseState
    gpus: int
    nano_per_hour: Nano
    waiting_since: datetime | None
    waiting_why: str | None
    node: str | None
    """The name of its open node; None while it has none."""
    open_since: datetime | None
    """Since when its lease is ready; None before."""


def continued(before: Sequence[Condition], found: Sequence[Condition]) -> tuple[Condition, ...]:
    """Conditions with the time since which each is as it is."""
    was = {each.kind: each for each in before}
    return tuple(_since(was.get(each.kind), each) for each in found)


def _since(before: Condition | None, found: Condition) -> Condition:
    if before is None or before.is_so is not found.is_so:
        return found
    return Condition(found.kind, found.is_so, found.reason, found.message, before.since)


def capacity(nodes: Collection[PoolNode], now: datetime) -> Condition:
    """Whether nodes wait for stock, in the words of the offers and the providers that have none."""
    waiting = [node for node in nodes if node.state is LeaseState.PLACING and node.waiting_since is not None]
    kind = ConditionKind.CAPACITY_AVAILABLE
    if not waiting:
        return so(kind, "NothingWaits", "No node waits for stock.", now)
    first = min(waiting, key=lambda node: (node.waiting_since or now, node.lease_id))
    message = f"{_nodes(len(waiting))} for stock: {first.waiting_why}"
    return not_so(kind, "NoCapacity", message, first.waiting_since or now)


def _nodes(count: int) -> str:
    return "1 node waits" if count == 1 else f"{count} nodes wait"


def admitted(pools: Collection[ScaledPool], now: datetime) -> Condition:
    refused = sorted((pool for pool in pools if pool.refused_at is not None), key=lambda pool: pool.name)
    if not refused:
        return so(ConditionKind.ADMITTED, "Admitted", "What was asked for was admitted.", now)
    first = refused[0]
    reason = "".join(part.capitalize() for part in (first.refused_code or "refused").split("_"))
    return not_so(ConditionKind.ADMITTED, reason, f"{first.name}: {first.refused_why}", now)


def bounded(plan: Plan, now: datetime) -> tuple[Condition, Condition]:
    """LimitReached and BudgetReached."""
    return (
        _held(
            ConditionKind.LIMIT_REACHED, Bound.LIMIT, plan, "No limit keeps nodes from being ordered.", now
        ),
        _held(
            ConditionKind.BUDGET_REACHED,
            Bound.BUDGET,
            plan,
            "The budget keeps no node from being ordered.",
            now,
        ),
    )


def _held(kind: ConditionKind, bound: Bound, plan: Plan, otherwise: str, now: datetime) -> Condition:
    reasons = [held.why for held in plan.held if held.bound is bound]
    if not reasons:
        return not_so(kind, "Within", otherwise, now)
    return so(kind, "Reached", f"Pods wait, and {'; '.join(reasons[:PODS_NAMED_MAX])}.", now)


def unplaceable(unplaced: Mapping[str, str], now: datetime) -> Condition:
    kind = ConditionKind.PODS_UNPLACEABLE
    if not unplaced:
        return not_so(kind, "AllFit", "Each pod that waits fits a node pool.", now)
    named = [f"{pod}: {why}" for pod, why in sorted(unplaced.items())[:PODS_NAMED_MAX]]
    more = len(unplaced) - len(named)
    rest = f"; and {more} more" if more > 0 else ""
    return so(kind, "NoPoolFits", f"{'; '.join(named)}{rest}", now)


def ready(nodes: Collection[PoolNode], wanted: int, now: datetime) -> Condition:
    count = sum(node.node is not None for node in nodes)
    message = f"{count} of {wanted} nodes are open for pods."
    is_so = count >= wanted
    return Condition(ConditionKind.READY, is_so, "Ready" if is_so else "NodesComing", message, now)


def ended_reason(state: NodePoolState, why: str | None) -> tuple[str, str]:
    """What a NodePool is told whose node pool was deleted by somebody else than its own deletion."""
    return (
        "Deleted",
        f"its node pool is {state}: {why or 'it was deleted'}; delete this object, and create it again if you want it",
    )
