"""Firewalls of leases: which ports of a machine are open to whom. The reconciler brings changes to the machine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from control_plane.db import firewalls
from control_plane.db.connection import Connection
from control_plane.domain.access import Reach
from control_plane.domain.firewall import (
    Firewall,
    FirewallRule,
    FirewallState,
    ProviderFirewall,
    Wanted,
    read,
    refusal,
    without,
)
from control_plane.domain.ids import FirewallRuleId, LeaseId, OrganizationId
from control_plane.domain.lease import Lease, LeaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.services import lease_reach
from control_plane.world import World

_UNKNOWN = Refused(RefusalCode.NOT_FOUND, "The lease has no firewall rule with this id.")


@dataclass(frozen=True, slots=True)
class Shown:
    firewall: Firewall
    state: FirewallState
    provider: ProviderFirewall | None
    """What is filtered before the machine; None while there is none to log in to."""


async def show(
    world: World, organization_id: OrganizationId, lease_id: LeaseId, *, reach: Reach
) -> Shown | Refused:
    async with world.db.reading(organization_id) as connection:
        found = await lease_reach.overview(connection, organization_id, lease_id, reach=reach)
        if isinstance(found, Refused):
            return found
        refused = _of_node(found.lease)
        if refused is not None:
            return refused
        firewall = await firewalls.get(connection, found.lease)
        admitted = await firewalls.admitted_claim(connection, found.lease)
    state = firewall.state(admitted, ended=found.lease.ended_at is not None)
    return Shown(firewall, state, None if admitted is None else admitted.provider)


async def add(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    *,
    protocol: str,
    ports: str,
    sources: Sequence[str],
    reach: Reach,
) -> FirewallRule | Refused:
    """Open ports of the machine of a lease."""
    wanted = read(protocol, ports, sources)
    if isinstance(wanted, Refused):
        return wanted
    firewall = await _locked(connection, organization_id, lease_id, reach)
    if isinstance(firewall, Refused):
        return firewall
    rule = _rule(world, wanted)
    refused = refusal(firewall.firewall.rules, rule)
    if refused is not None:
        return refused
    await firewalls.change(connection, firewall.lease, (*firewall.firewall.rules, rule), now=rule.created_at)
    return rule


def _rule(world: World, wanted: Wanted) -> FirewallRule:
    return FirewallRule(
        id=FirewallRuleId(world.new_id()),
        protocol=wanted.protocol,
        first_port=wanted.first_port,
        last_port=wanted.last_port,
        sources=wanted.sources,
        created_at=world.now(),
    )


async def delete(
    world: World,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    rule_id: UUID,
    *,
    reach: Reach,
    note: Callable[[FirewallRule], None],
) -> Refused | None:
    """Close what a rule opened, unless another rule opens it too.

    `note` gets the rule before its deletion is committed.
    """
    async with world.db.transaction(organization_id) as connection:
        firewall = await _locked(connection, organization_id, lease_id, reach)
        if isinstance(firewall, Refused):
            return firewall
        rules = firewall.firewall.rules
        left = without(rules, rule_id)
        if left is None:
            return _UNKNOWN
        await firewalls.change(connection, firewall.lease, left, now=world.now())
        note(next(rule for rule in rules if rule.id == rule_id))
        return None


@dataclass(frozen=True, slots=True)
class _Locked:
    lease: Lease
    firewall: Firewall


async def _locked(
    connection: Connection, organization_id: OrganizationId, lease_id: LeaseId, reach: Reach
) -> _Locked | Refused:
    """The firewall of a lease whose rules may be changed. The lease is locked, so that changes come one by one."""
    lease = await lease_reach.locked(connection, organization_id, lease_id, reach=reach)
    if isinstance(lease, Refused):
        return lease
    refused = _of_node(lease)
    if refused is not None:
        return refused
    if lease.ended_at is not None:
        return Refused(RefusalCode.STATE_CONFLICT, "The lease has ended, and its firewall with it.")
    return _Locked(lease, await firewalls.get(connection, lease))


def _of_node(lease: Lease) -> Refused | None:
    if lease.kind is not LeaseKind.NODE:
        return None
    why = (
        f"The lease is a node of the node pool {lease.node_pool!r}. Its ports belong to its cluster; "
        "use network policies there."
    )
    return Refused(RefusalCode.LEASE_IS_NODE, why)
