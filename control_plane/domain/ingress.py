"""What a provider's firewall lets in to one machine. The machine's own firewall decides as well, always.

Addresses of our machines at providers with firewalls are of IPv4, so sources of IPv6 mean nothing there.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network

from control_plane.domain.firewall import KEPT_OPEN, RULES_MAX, FirewallRule, Protocol

EVERYBODY = "0.0.0.0/0"


@dataclass(frozen=True, slots=True, order=True)
class Ingress:
    """Ports that are open to a network."""

    protocol: Protocol
    first_port: int
    last_port: int
    source: str
    """A network of IPv4, such as `203.0.113.0/24`."""


KEPT = frozenset(Ingress(Protocol(protocol), port, port, EVERYBODY) for protocol, port in KEPT_OPEN)
"""SSH and WireGuard, which every machine is launched with."""


def ingress(rules: Iterable[FirewallRule], limit: int) -> frozenset[Ingress]:
    """What a provider that takes `limit` entries for a machine lets in, so that these rules have their effect.

    When the rules make more entries than that, each of their ports is opened to everybody there, and the machine alone
    decides about the sources. Raises ValueError for a limit under RULES_MAX, for which that may be too many.
    """
    if limit < RULES_MAX:
        raise ValueError(f"a firewall of {limit} entries cannot hold the rules of a lease")
    exact = frozenset(
        Ingress(rule.protocol, rule.first_port, rule.last_port, source)
        for rule in rules
        for source in rule.sources
        if isinstance(ip_network(source), IPv4Network)
    )
    if len(exact) <= limit:
        return exact
    return frozenset(Ingress(each.protocol, each.first_port, each.last_port, EVERYBODY) for each in exact)
