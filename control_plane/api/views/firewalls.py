"""Firewalls of leases on the wire."""

from control_plane.domain.firewall import FirewallRule
from control_plane.domain.ids import LeaseId, Prefix, on_wire
from control_plane.services.firewalls import Shown
from control_plane.wire.firewalls import FirewallRuleView, FirewallView


def firewall_view(shown: Shown) -> FirewallView:
    firewall = shown.firewall
    return FirewallView(
        lease_id=on_wire(Prefix.LEASE, firewall.lease_id),
        state=shown.state.value,
        problem=None if firewall.problem is None else firewall.problem.value,
        provider=None if shown.provider is None else shown.provider.value,
        provider_applied_at=firewall.provider_applied_at,
        applied_at=firewall.applied_at,
        looked_at=firewall.looked_at,
        rules=tuple(firewall_rule_view(firewall.lease_id, rule) for rule in firewall.rules),
    )


def firewall_rule_view(lease_id: LeaseId, rule: FirewallRule) -> FirewallRuleView:
    return FirewallRuleView(
        id=on_wire(Prefix.FIREWALL_RULE, rule.id),
        lease_id=on_wire(Prefix.LEASE, lease_id),
        protocol=rule.protocol.value,
        ports=rule.ports,
        sources=rule.sources,
        created_at=rule.created_at,
    )
