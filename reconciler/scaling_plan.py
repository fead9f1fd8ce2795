"""The plans of a look at a project: its node pools by the policy that decides about them, and its pods put on nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from control_plane.domain.money import Nano
from control_plane.domain.period import month_of
from control_plane.domain.scaled_pool import MISSING_EMPTY_FOR, Deciding
from control_plane.domain.scaling import VAIN_WHY, Place, Plan, Policy, plan, still_known
from control_plane.domain.scaling import ScaledPool as PoolFacts
from data_plane.cluster.objects.tenant import Tenant
from reconciler.scaling_look import Inside, Stored, facts_of, places_of

BY_OBJECTS = ""
"""Pools of which the objects themselves say how many nodes there are."""
MISSING = " missing"
"""Pools whose objects are missing."""


@dataclass(frozen=True, slots=True)
class Planned:
    group: str
    """The name of a policy, or one of the above."""
    plan: Plan
    entries: Sequence[Stored]


def plans_of(
    tenant: Tenant, entries: Sequence[Stored], decided: Deciding, cluster: Inside, now: datetime
) -> list[Planned]:
    """Pods are put on the nodes of pools without a policy first, then on those of each policy, so none counts twice.

    It is computed from its arguments alone, and takes a while where there are many nodes.
    """
    groups: dict[str, list[Stored]] = {}
    for entry in entries:
        groups.setdefault(group_of(entry, decided), []).append(entry)
    vain = {pod for entry in entries for pod, until in entry.row.vain.items() if until > now}
    pods = [replace(pod, beyond=VAIN_WHY) if pod.name in vain else pod for pod in cluster.pending]
    planned: list[Planned] = []
    for group in sorted(groups):  # Those of objects first, and of missing ones.
        mine = groups[group]
        facts, places, empty_since = list[PoolFacts](), list[Place](), dict[str, datetime]()
        for entry in mine:
            low, high = bounds_of(entry, decided)
            facts.append(facts_of(entry, cluster, tenant, nodes_min=low, nodes_max=high))
            places += places_of(entry, cluster, tenant)
            empty_since |= known_of(entry, now)
        policy = _policy(group, mine, decided)
        spent = spent_by(mine, now)
        made = plan(policy, facts, places, pods, empty_since=empty_since, now=now, spent=spent)
        pods = [pod for pod in pods if pod.name not in made.placed]
        planned.append(Planned(group, made, mine))
    return planned


def group_of(entry: Stored, decided: Deciding) -> str:
    if entry.row.missing_since is not None:
        return MISSING
    chosen = decided.of_pool.get(entry.pool.name)
    return BY_OBJECTS if chosen is None else chosen[0].name


def _policy(group: str, entries: Sequence[Stored], decided: Deciding) -> Policy:
    if group in (BY_OBJECTS, MISSING):
        return Policy(group, empty_for=None if group == BY_OBJECTS else MISSING_EMPTY_FOR)
    return decided.of_pool[entries[0].pool.name][0].policy


def spent_by(entries: Sequence[Stored], now: datetime) -> Nano:
    """What pools were charged this month (UTC), as far as somebody looked."""
    month = month_of(now)
    rows = [entry.row for entry in entries]
    return Nano(sum(row.spent_nano for row in rows if row.spent_at is not None and row.spent_at >= month))


def bounds_of(entry: Stored, decided: Deciding) -> tuple[int, int]:
    """How many nodes a pool has at least and at most. Without a policy, no plan lets it grow."""
    chosen = decided.of_pool.get(entry.pool.name)
    if chosen is None or entry.row.missing_since is not None:
        return 0, entry.pool.nodes
    return chosen[1].nodes_min, chosen[1].nodes_max


def known_of(entry: Stored, now: datetime) -> Mapping[str, datetime]:
    return still_known(entry.row.empty_since, looked_at=entry.row.looked_at, now=now)
