"""What a provider lets in so that the rules of a lease have their effect, within what it can hold."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from control_plane.domain.firewall import RULES_MAX, SOURCES_MAX, FirewallRule, Protocol
from control_plane.domain.ids import FirewallRuleId
from control_plane.domain.ingress import EVERYBODY, KEPT, Ingress, ingress

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def a_rule(port: int, *sources: str) -> FirewallRule:
    return FirewallRule(FirewallRuleId(UUID(int=port)), Protocol.TCP, port, port + 1, sources, NOW)


def entry(port: int, source: str) -> Ingress:
    return Ingress(Protocol.TCP, port, port + 1, source)


def test_each_source_of_ipv4_is_an_entry_and_those_of_ipv6_are_none() -> None:
    rules = [a_rule(80, "198.51.100.0/24", "203.0.113.7/32", "::/0"), a_rule(90, "2001:db8::/32")]
    assert ingress(rules, RULES_MAX) == {entry(80, "198.51.100.0/24"), entry(80, "203.0.113.7/32")}
    assert ingress([], RULES_MAX) == frozenset()


def test_rules_that_are_too_many_open_their_ports_to_everybody_there_and_always_fit() -> None:
    sources = [f"198.51.100.{number}/32" for number in range(SOURCES_MAX)]
    rules = [a_rule(100 * number, *sources) for number in range(1, RULES_MAX + 1)]
    exact = ingress(rules, RULES_MAX * SOURCES_MAX)
    assert len(exact) == RULES_MAX * SOURCES_MAX
    assert EVERYBODY not in {each.source for each in exact}
    assert ingress(rules, RULES_MAX * SOURCES_MAX - 1) == ingress(rules, RULES_MAX)
    assert ingress(rules, RULES_MAX) == {entry(100 * number, EVERYBODY) for number in range(1, RULES_MAX + 1)}
    with pytest.raises(ValueError, match="cannot hold"):
        ingress(rules, RULES_MAX - 1)


def test_ssh_and_wireguard_are_kept_open() -> None:
    assert {(each.protocol, each.first_port, each.last_port, each.source) for each in KEPT} == {
        (Protocol.TCP, 22, 22, EVERYBODY),
        (Protocol.UDP, 51_820, 51_820, EVERYBODY),
    }
