"""The rules of a firewall: what may be opened, what is refused, and where the rules are."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from uuid import UUID

from control_plane.domain.audit import DETAIL_LENGTH_MAX
from control_plane.domain.firewall import (
    RULES_MAX,
    SOURCES_MAX,
    Admitted,
    Firewall,
    FirewallProblem,
    FirewallRule,
    FirewallState,
    Protocol,
    ProviderFirewall,
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


def test_the_state_says_whether_the_machine_of_now_and_its_provider_have_the_rules_of_now() -> None:
    mine, other = ClaimId(UUID(int=5)), ClaimId(UUID(int=6))
    lease, organization, project = UUID(int=1), UUID(int=2), UUID(int=3)
    applied = Firewall(
        LeaseId(lease), OrganizationId(organization), ProjectId(project), 3, (), NOW, mine, 3, NOW, NOW, None
    )
    behind = replace(applied, applied_version=2)
    changed = replace(applied, machine_problem=FirewallProblem.CHANGED)
    unseen = replace(applied, machine_problem=FirewallProblem.UNREACHABLE)
    followed = replace(applied, provider_claim_id=mine, provider_version=3)
    follows, fixed = ProviderFirewall.FOLLOWS, ProviderFirewall.FIXED
    for firewall, claim, provider, ended, state in (
        (applied, mine, fixed, False, FirewallState.APPLIED),
        (behind, mine, fixed, False, FirewallState.PENDING),
        (applied, other, fixed, False, FirewallState.PENDING),
        (applied, None, None, False, FirewallState.WAITING),
        (applied, mine, fixed, True, FirewallState.ENDED),
        (changed, mine, None, False, FirewallState.CHANGED),
        (replace(changed, version=4), mine, fixed, False, FirewallState.PENDING),
        (unseen, mine, fixed, False, FirewallState.APPLIED),
        (applied, mine, follows, False, FirewallState.PENDING),
        (followed, mine, follows, False, FirewallState.APPLIED),
        (replace(followed, provider_version=2), mine, follows, False, FirewallState.PENDING),
        (replace(followed, provider_claim_id=other), mine, follows, False, FirewallState.PENDING),
        (replace(applied, version=0, applied_version=0), mine, follows, False, FirewallState.APPLIED),
    ):
        with case(firewall, claim, provider, ended):
            admitted = None if claim is None else Admitted(claim, provider)
            assert firewall.state(admitted, ended=ended) is state


def test_the_problem_is_that_of_the_machine_before_that_of_the_provider() -> None:
    lease, organization, project = LeaseId(UUID(int=1)), OrganizationId(UUID(int=2)), ProjectId(UUID(int=3))
    fine = Firewall(lease, organization, project, 0, (), None, None, None, None, None, None)
    failed = replace(fine, provider_failed=True)
    both = replace(failed, machine_problem=FirewallProblem.UNREACHABLE)
    found = [firewall.problem for firewall in (fine, failed, both)]
    assert found == [None, FirewallProblem.PROVIDER, FirewallProblem.UNREACHABLE]


def test_tries_grow_apart_up_to_five_minutes() -> None:
    waits = [next_try(tries) for tries in range(1, 9)]
    assert waits[:3] == [timedelta(seconds=seconds) for seconds in (5, 10, 20)]
    assert waits == sorted(waits)
    assert waits[-1] == next_try(10_000) == timedelta(minutes=5)
