"""The rules of a lease, as its machine gets them."""

from collections.abc import Sequence

from control_plane.domain.firewall import FirewallRule
from data_plane.mesh.firewall import Opening


def openings(rules: Sequence[FirewallRule]) -> list[Opening]:
    return [Opening(rule.protocol.value, rule.first_port, rule.last_port, rule.sources) for rule in rules]
