"""The status of NodePool and ScalingPolicy objects: how many nodes there are, at what price, and what is in the way."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.lease import LeaseState
from control_plane.domain.money import Nano, short_usd
from control_plane.domain.scaled_pool import (
    Condition,
    ConditionKind,
    PoolNode,
    admitted,
    bounded,
    capacity,
    continued,
    not_so,
    ready,
    so,
    unplaceable,
)
from control_plane.domain.scaling import Plan
from data_plane.cluster.objects import scaling as objects
from data_plane.cluster.port import Conflict, KubernetesPort, NotFound
from data_plane.cluster.resource import NODE_POOL, SCALING_POLICY, Object, Resource
from data_plane.documents.strict import shown
from reconciler.scaling_look import Stored
from reconciler.scaling_objects import conditions_of

ACCEPTED = ConditionKind.ACCEPTED


@dataclass(frozen=True, slots=True)
class Told:
    """Why an object has no node pool that follows it."""

    reason: str
    """One word in CamelCase."""
    message: str
    """A sentence."""


def conditions_of_pool(entry: Stored, now: datetime) -> list[Condition]:
    """What is so about a node pool that an object asks for."""
    return [
        ready(entry.nodes, entry.pool.nodes, now),
        admitted([entry.row], now),
        capacity(entry.nodes, now),
    ]


async def tell_node_pool(
    port: KubernetesPort, thing: Object, entry: Stored | None, told: Told | None, now: datetime
) -> None:
    if told is None:
        accepted = so(ACCEPTED, "Accepted", "It has a node pool, whose nodes are leases.", now)
    else:
        accepted = not_so(ACCEPTED, told.reason, told.message, now)
    more = [] if entry is None or told is not None else conditions_of_pool(entry, now)
    await _tell(port, NODE_POOL, thing, {} if entry is None else _facts(entry), [accepted, *more])


def _facts(entry: Stored) -> Object:
    row, pool = entry.row, entry.pool
    return {
        "nodePool": on_wire(Prefix.NODE_POOL, pool.id),
        "policy": row.policy,
        "nodes": pool.nodes,
        "orderedNodes": max(0, pool.nodes - _ready(entry.nodes)),
        "readyNodes": _ready(entry.nodes),
        "usdPerHour": _usd_per_hour(entry.nodes),
        "lastScaledAt": None if row.scaled_at is None else objects.moment(row.scaled_at),
        "lastScaledWhy": row.scaled_why,
    }


def _ready(nodes: Sequence[PoolNode]) -> int:
    return sum(node.state is LeaseState.READY and node.node is not None for node in nodes)


def _usd_per_hour(nodes: Sequence[PoolNode]) -> str:
    return short_usd(Nano(sum(node.nano_per_hour for node in nodes)))


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    entries: Sequence[Stored]
    """The pools that it scales."""
    named: Sequence[str]
    """The names of the pools that it is in force for."""
    plan: Plan
    pending: int
    """Pods of the project that wait for a node."""
    refused: str | None
    """Why it is not in force; None when it is."""
    spent: Nano | None
    """What its pools were charged this month; None where no budget needs it."""


async def tell_policy(port: KubernetesPort, thing: Object, facts: PolicyFacts, now: datetime) -> None:
    if facts.refused is not None:
        accepted = [not_so(ACCEPTED, "NotInForce", facts.refused, now)]
        await _tell(port, SCALING_POLICY, thing, {}, accepted)
        return
    nodes = [node for entry in facts.entries for node in entry.nodes]
    scaled = [entry.row.scaled_at for entry in facts.entries if entry.row.scaled_at is not None]
    status = {
        "nodes": sum(entry.pool.nodes for entry in facts.entries),
        "readyNodes": _ready(nodes),
        "gpus": sum(node.gpus for node in nodes),
        "usdPerHour": _usd_per_hour(nodes),
        "usdThisMonth": None if facts.spent is None else short_usd(facts.spent),
        "pendingPods": facts.pending,
        "lastScaledAt": objects.moment(max(scaled)) if scaled else None,
    }
    conditions = [
        _in_force(facts, now),
        admitted([entry.row for entry in facts.entries], now),
        capacity(nodes, now),
        *bounded(facts.plan, now),
        unplaceable(facts.plan.unplaced, now),
    ]
    await _tell(port, SCALING_POLICY, thing, status, conditions)


def _in_force(facts: PolicyFacts, now: datetime) -> Condition:
    missing = sorted(set(facts.named) - {entry.pool.name for entry in facts.entries})
    if missing:
        message = f"There is no accepted NodePool {', '.join(missing)}; the others are scaled."
        return Condition(ACCEPTED, bool(facts.entries), "PoolMissing", message, now)
    return so(ACCEPTED, "Accepted", "It decides the number of nodes of its pools.", now)


async def _tell(
    port: KubernetesPort,
    resource: Resource,
    thing: Object,
    status: Mapping[str, object],
    conditions: Sequence[Condition],
) -> None:
    """Write a status that is another one than before. Whoever deleted the object meanwhile needs none."""
    told = [
        objects.Condition(
            each.kind, each.is_so, each.reason, shown(each.message, objects.MESSAGE_MAX), each.since
        )
        for each in continued(conditions_of(thing), conditions)
    ]
    intent = objects.status_of(resource, thing, dict(status), told)
    if intent["status"] != thing.get("status"):
        with suppress(NotFound, Conflict):
            await port.apply_status(intent)
