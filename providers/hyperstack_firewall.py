"""The firewall of a machine at Hyperstack, whose rules belong to that machine alone and end with it.

A rule is made and deleted by itself; none can be changed. How many a machine may have is not documented
(docs.hyperstack.cloud, "VM firewall rules", and the official OpenAPI document, read 2026-11-23).
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from control_plane.domain.firewall import Protocol
from control_plane.domain.ids import ProviderRef
from providers.base import Ingress, Verb
from providers.rest import Rest, ignored


class SecurityRule(msgspec.Struct):
    id: int
    direction: str = ""
    protocol: str = ""
    ethertype: str = ""
    remote_ip_prefix: str | None = None
    port_range_min: int | None = None
    port_range_max: int | None = None


class MachineWithRules(msgspec.Struct):
    security_rules: list[SecurityRule] = []


class Shown(msgspec.Struct):
    status: bool
    instance: MachineWithRules


class Added(msgspec.Struct):
    status: bool


async def apply_ingress(rest: Rest, provider_ref: ProviderRef, wanted: frozenset[Ingress]) -> bool:
    """Read a machine's rules, and make or delete one. New ones come first: nothing is closed that is to stay open."""
    path = ("core/virtual-machines", provider_ref)
    listed = await rest.call(Verb.FIREWALL, "GET", path, Shown, lambda shown: shown.instance.security_rules)
    missing = wanted - {_ingress(rule) for rule in listed}
    if missing:
        body = rule_for(min(missing))
        await rest.call(Verb.FIREWALL, "POST", (*path, "sg-rules"), Added, ignored, body=body)
        return False
    surplus = _surplus(listed, wanted)
    if surplus is None:
        return True
    await rest.call(Verb.FIREWALL, "DELETE", (*path, "sg-rules", str(surplus)), Added, ignored)
    return False


def _surplus(listed: Iterable[SecurityRule], wanted: frozenset[Ingress]) -> int | None:
    """A rule that opens something which is not wanted, or that opens it twice."""
    seen = set[Ingress]()
    for rule in sorted(listed, key=lambda rule: rule.id):
        if rule.direction != "ingress" or rule.protocol == "icmp":
            continue
        found = _ingress(rule)
        if found is None or found not in wanted or found in seen:
            return rule.id
        seen.add(found)
    return None


def _ingress(rule: SecurityRule) -> Ingress | None:
    """What a rule opens; None for what is no rule of ours."""
    first, last, source = rule.port_range_min, rule.port_range_max, rule.remote_ip_prefix
    ours = rule.direction == "ingress" and rule.ethertype == "IPv4" and rule.protocol in set(Protocol)
    if not ours or first is None or last is None or source is None:
        return None
    return Ingress(Protocol(rule.protocol), first, last, source)


def rule_for(opened: Ingress) -> dict[str, Any]:
    """A rule as Hyperstack takes it, also with a launch."""
    return {
        "direction": "ingress",
        "ethertype": "IPv4",
        "protocol": opened.protocol.value,
        "remote_ip_prefix": opened.source,
        "port_range_min": opened.first_port,
        "port_range_max": opened.last_port,
    }
