"""The firewall of a lease: which ports of its machine are open to whom. Everything else is closed.

A rule opens ports and never closes any, so the order of rules means nothing. SSH and WireGuard are open on every
machine, whatever the rules say: without them nobody could change the rules, and the machine would leave its network.
The rules belong to the lease. Every machine that it gets has them before its customer is admitted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_network
from uuid import UUID

from control_plane.domain.ids import ClaimId, FirewallRuleId, LeaseId, OrganizationId, ProjectId
from control_plane.domain.refusal import RefusalCode, Refused

RULES_MAX = 50
SOURCES_MAX = 4
"""Of one rule, so that the audit log has a rule as a whole."""
PORT_MAX = 65_535
KEPT_OPEN = {("tcp", 22): "SSH", ("udp", 51_820): "WireGuard"}
"""Open to everybody on every machine; a rule for them would promise what it does not do."""
LOOK_EVERY = timedelta(hours=1)
"""How often a machine's rules are compared with those that it was given."""
_RETRY_FIRST, _RETRY_MAX = timedelta(seconds=5), timedelta(minutes=5)


class Protocol(StrEnum):
    TCP = "tcp"
    UDP = "udp"


class ProviderFirewall(StrEnum):
    """What a provider filters before a machine."""

    NONE = "none"
    FOLLOWS = "follows"
    FIXED = "fixed"
    UNKNOWN = "unknown"


class FirewallProblem(StrEnum):
    """Why a machine does not have the rules of its lease."""

    UNREACHABLE = "unreachable"
    FAILED = "failed"
    CHANGED = "changed"
    PROVIDER = "provider"


class FirewallState(StrEnum):
    """Where the rules of a lease are."""

    WAITING = "waiting"
    PENDING = "pending"
    APPLIED = "applied"
    CHANGED = "changed"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class FirewallRule:
    id: FirewallRuleId
    protocol: Protocol
    first_port: int
    last_port: int
    sources: tuple[str, ...]
    """Networks in their canonical notation, such as `203.0.113.0/24`."""
    created_at: datetime

    @property
    def ports(self) -> str:
        return (
            str(self.first_port)
            if self.first_port == self.last_port
            else f"{self.first_port}-{self.last_port}"
        )

    def opens_the_same(self, other: "FirewallRule") -> bool:
        mine = (self.protocol, self.first_port, self.last_port, self.sources)
        return mine == (other.protocol, other.first_port, other.last_port, other.sources)


@dataclass(frozen=True, slots=True)
class Admitted:
    """The claim whose customer can log in now, and what the provider of its machine filters."""

    claim_id: ClaimId
    provider: ProviderFirewall | None
    """None where the offer of the machine is not on record any more."""


@dataclass(frozen=True, slots=True)
class Firewall:
    """The rules of a lease, and what is known of them on its machine."""

    lease_id: LeaseId
    organization_id: OrganizationId
    project_id: ProjectId
    version: int
    """Grows with each change of the rules."""
    rules: tuple[FirewallRule, ...]
    changed_at: datetime | None
    """When the rules were changed last; None while they are as at the beginning."""
    claim_id: ClaimId | None
    """Whose machine got rules last."""
    applied_version: int | None
    """Which version that machine got; None: none yet."""
    applied_at: datetime | None
    looked_at: datetime | None
    """When somebody last saw what the machine has."""
    machine_problem: FirewallProblem | None
    provider_claim_id: ClaimId | None = None
    """For whose machine the provider's firewall was changed last."""
    provider_version: int | None = None
    """Which version it follows; None: none yet."""
    provider_applied_at: datetime | None = None
    provider_failed: bool = False
    """Whether the provider did not change it when it was asked last."""

    def state(self, admitted: Admitted | None, *, ended: bool) -> FirewallState:
        if ended:
            return FirewallState.ENDED
        if admitted is None:
            return FirewallState.WAITING
        if self.claim_id != admitted.claim_id or self.applied_version != self.version:
            return FirewallState.PENDING
        if not self._followed(admitted):
            return FirewallState.PENDING
        changed = self.machine_problem is FirewallProblem.CHANGED
        return FirewallState.CHANGED if changed else FirewallState.APPLIED

    @property
    def problem(self) -> FirewallProblem | None:
        failed = FirewallProblem.PROVIDER if self.provider_failed else None
        return self.machine_problem or failed

    def _followed(self, admitted: Admitted) -> bool:
        """Whether the provider's firewall has the rules. It is as it has to be while there were never any."""
        if admitted.provider is not ProviderFirewall.FOLLOWS or self.version == 0:
            return True
        return self.provider_claim_id == admitted.claim_id and self.provider_version == self.version


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks to open, with its texts read."""

    protocol: Protocol
    first_port: int
    last_port: int
    sources: tuple[str, ...]


def read(protocol: str, ports: str, sources: Sequence[str]) -> Wanted | Refused:
    """The rule that a request describes. The wire has checked the shapes of its texts."""
    first, _, last = ports.partition("-")
    wanted = Protocol(protocol), int(first), int(last or first)
    if not 1 <= wanted[1] <= wanted[2] <= PORT_MAX:
        why = f"{ports} is no range of ports: it goes from 1 to {PORT_MAX}, the lower port first."
        return Refused(RefusalCode.PORTS_INVALID, why)
    for (kept, port), name in KEPT_OPEN.items():
        if kept == wanted[0] and wanted[1] <= port <= wanted[2]:
            why = f"{name} ({kept}/{port}) is open on every machine and cannot be limited; leave port {port} out."
            return Refused(RefusalCode.PORTS_KEPT_OPEN, why)
    read_sources = []
    for source in sources:
        network = _network(source)
        if isinstance(network, Refused):
            return network
        read_sources.append(network)
    ordered = sorted(set(read_sources), key=lambda network: (network.version, network))
    return Wanted(*wanted, tuple(str(network) for network in ordered))


def _network(source: str) -> IPv4Network | IPv6Network | Refused:
    try:
        return ip_network(source)
    except ValueError:
        pass
    try:
        meant = str(ip_network(source, strict=False))
    except ValueError:
        why = f"{source[:60]!r} is no network; give one such as 203.0.113.0/24, 203.0.113.7 or 2001:db8::/32."
    else:
        why = f"{source[:60]!r} has bits behind its prefix; {meant} is the network around it."
    return Refused(RefusalCode.SOURCE_INVALID, why)


def refusal(rules: Sequence[FirewallRule], wanted: FirewallRule) -> Refused | None:
    """Why a rule cannot be added to those of a lease."""
    for rule in rules:
        if rule.opens_the_same(wanted):
            why = f"A rule of this lease opens {wanted.protocol}/{wanted.ports} to the same sources already."
            return Refused(RefusalCode.FIREWALL_RULE_DUPLICATE, why)
    if len(rules) >= RULES_MAX:
        why = f"A lease has at most {RULES_MAX} firewall rules; delete one, or open a range of ports."
        return Refused(RefusalCode.FIREWALL_RULES_TOO_MANY, why)
    return None


def without(rules: Sequence[FirewallRule], rule_id: UUID) -> tuple[FirewallRule, ...] | None:
    """The rules less one; None when there is no such rule."""
    left = tuple(rule for rule in rules if rule.id != rule_id)
    return None if len(left) == len(rules) else left


def next_try(tries: int) -> timedelta:
    """How long to wait after a machine did not take its rules for the `tries`-th time, from 1 on."""
    return min(_RETRY_FIRST * (1 << min(tries - 1, 10)), _RETRY_MAX)
