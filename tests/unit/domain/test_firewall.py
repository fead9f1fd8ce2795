"""The rules of a firewall: what may be opened, what is refused, and where the rules are."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from uuid import UUID

from control_plane.domain.audit import DETAIL_LENGTH_MAX
from control_plane.domain.firewall import (
    RULES_MAX,
    SOURCES_MAX,
    Firewall,
    FirewallProblem,
    FirewallRule,
    FirewallState,
    Protocol,
    Wanted,
    next_try,
    read,
    refusal,
    without,
)
from control_plane.domain.ids import ClaimId, FirewallRuleId, LeaseId, OrganizationId, ProjectId
from control_plane.domain.refusal import RefusalCode, Refused
from tests.support.cases import case

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
SOURCES = ("203.0.113.0/24",)


def a_rule(number: int = 1, port: int = 8080, protocol: Protocol = Protocol.TCP) -> FirewallRule:
    return FirewallRule(FirewallRuleId(UUID(int=number)), protocol, port, port, SOURCES, NOW)


def test_a_request_is_read_into_ports_and_canonical_networks() -> None:
    for protocol, ports, sources, expected in (
        ("tcp", "8080", SOURCES, (8080, 8080, SOURCES)),
        ("udp", "6000-6010", ("203.0.113.7",), (6000, 6010, ("203.0.113.7/32",))),
        ("tcp", "1-21", ("::/0", "0.0.0.0/0"), (1, 21, ("0.0.0.0/0", "::/0"))),
        ("tcp", "65535", ("2001:DB8:0::/32", "2001:db8::/32"), (65535, 65535, ("2001:db8::/32",))),
        ("udp", "22", SOURCES, (22, 22, SOURCES)),
        ("tcp", "51820", SOURCES, (51820, 51820, SOURCES)),
    ):
        with case(protocol, ports, sources):
            assert read(protocol, ports, sources) == Wanted(Protocol(protocol), *expected)


def test_what_cannot_be_opened_is_refused_with_what_to_change() -> None:
    for protocol, ports, sources, code, word in (
        ("tcp", "65536", SOURCES, RefusalCode.PORTS_INVALID, "65535"),
        ("tcp", "9000-8000", SOURCES, RefusalCode.PORTS_INVALID, "lower port first"),
        ("tcp", "22", SOURCES, RefusalCode.PORTS_KEPT_OPEN, "SSH"),
        ("tcp", "1-65535", SOURCES, RefusalCode.PORTS_KEPT_OPEN, "22"),
        ("udp", "50000-60000", SOURCES, RefusalCode.PORTS_KEPT_OPEN, "WireGuard"),
        ("tcp", "80", ("203.0.113.7/24",), RefusalCode.SOURCE_INVALID, "203.0.113.0/24"),
        ("tcp", "80", ("1.2.3",), RefusalCode.SOURCE_INVALID, "'1.2.3'"),
        ("tcp", "80", (*SOURCES, "2001:db8::/129"), RefusalCode.SOURCE_INVALID, "2001:db8::/129"),
    ):
        with case(protocol, ports, sources):
            refused = read(protocol, ports, sources)
            assert isinstance(refused, Refused)
            assert refused.code is code
            assert word in refused.why


def test_a_lease_has_no_two_equal_rules_and_a_bounded_number() -> None:
    rules = [a_rule(number, number) for number in range(100, 100 + RULES_MAX - 1)]
    assert refusal(rules, a_rule()) is None
    again = refusal(rules, a_rule(1, 100))
    assert again is not None
    assert again.code is RefusalCode.FIREWALL_RULE_DUPLICATE
    assert refusal(rules, a_rule(1, 100, Protocol.UDP)) is None
    full = refusal([*rules, a_rule(2)], a_rule(3, 9000))
    assert full is not None
    assert full.code is RefusalCode.FIREWALL_RULES_TOO_MANY


def test_a_rule_is_deleted_by_its_id() -> None:
    rules = (a_rule(1), a_rule(2))
    assert without(rules, UUID(int=1)) == (a_rule(2),)
    assert without(rules, UUID(int=3)) is None


def test_the_audit_log_has_the_longest_sources_as_a_whole() -> None:
    longest = str(ip_network("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff/128"))
    assert len(", ".join([longest] * SOURCES_MAX)) <= DETAIL_LENGTH_MAX


def test_the_state_says_whether_the_machine_of_now_has_the_rules_of_now() -> None:
    mine, other = ClaimId(UUID(int=5)), ClaimId(UUID(int=6))
    lease, organization, project = UUID(int=1), UUID(int=2), UUID(int=3)
    applied = Firewall(
        LeaseId(lease), OrganizationId(organization), ProjectId(project), 3, (), NOW, mine, 3, NOW, NOW, None
    )
    behind = replace(applied, applied_version=2)
    changed = replace(applied, problem=FirewallProblem.CHANGED)
    unseen = replace(applied, problem=FirewallProblem.UNREACHABLE)
    for firewall, admitted, ended, state in (
        (applied, mine, False, FirewallState.APPLIED),
        (behind, mine, False, FirewallState.PENDING),
        (applied, other, False, FirewallState.PENDING),
        (applied, None, False, FirewallState.WAITING),
        (applied, mine, True, FirewallState.ENDED),
        (changed, mine, False, FirewallState.CHANGED),
        (replace(changed, version=4), mine, False, FirewallState.PENDING),
        (unseen, mine, False, FirewallState.APPLIED),
    ):
        with case(firewall, admitted, ended):
            assert firewall.state(admitted=admitted, ended=ended) is state


def test_tries_grow_apart_up_to_five_minutes() -> None:
    waits = [next_try(tries) for tries in range(1, 9)]
    assert waits[:3] == [timedelta(seconds=seconds) for seconds in (5, 10, 20)]
    assert waits == sorted(waits)
    assert waits[-1] == next_try(10_000) == timedelta(minutes=5)
