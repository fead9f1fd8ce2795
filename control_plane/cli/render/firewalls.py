"""Firewalls on the screen."""

from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, table
from control_plane.cli.words import ago, both
from control_plane.wire.firewalls import FirewallRuleView, FirewallView

_STATES = {
    "waiting": "The lease has no machine to log in to yet; it will have these rules from the beginning.",
    "pending": "The machine or its provider does not have these rules yet.",
    "applied": "The machine has these rules.",
    "changed": "Somebody with root changed the rules on the machine; the next change here replaces theirs.",
    "ended": "The lease has ended.",
}
_PROBLEMS = {
    "unreachable": "the machine could not be reached, and is tried again",
    "failed": "the machine did not take the rules, keeps those that it had, and is tried again",
    "changed": "it has other rules than it was given",
    "provider": "the provider did not change its firewall, and is asked again",
}
_PROVIDERS = {
    "none": "filters nothing; the machine decides alone",
    "follows": "filters by these rules as well",
    "fixed": "lets in SSH and WireGuard alone; other ports are reachable through private networks and tunnels",
    "unknown": "may filter by rules of its own, which do not follow these",
}
_CLOSED_THERE = ("fixed", "unknown")
_EVERYBODY = {"0.0.0.0/0": "anywhere (IPv4)", "::/0": "anywhere (IPv6)"}
_KEPT_OPEN = (("tcp/22", "anywhere", "SSH, always open"), ("udp/51820", "anywhere", "WireGuard, always open"))


def firewall_page(firewall: FirewallView, now: datetime) -> RenderableType:
    rows = [
        *_KEPT_OPEN,
        *((_ports(rule), _sources(rule), rule.id) for rule in firewall.rules),
    ]
    state = _STATES.get(firewall.state, firewall.state)
    problem = None if firewall.problem is None else _PROBLEMS.get(firewall.problem, firewall.problem)
    return Group(
        table(("PORTS", "FROM", "RULE"), rows, whole=("RULE",)),
        Text(),
        facts(
            ("State", state),
            ("Problem", problem),
            ("Provider", _provider(firewall.provider)),
            ("Applied", None if firewall.applied_at is None else both(firewall.applied_at, now)),
            ("Last look", None if firewall.looked_at is None else ago(firewall.looked_at, now)),
        ),
    )


def firewall_rule_page(rule: FirewallRuleView, provider: str | None) -> RenderableType:
    """`provider` is what the provider of the lease's machine filters."""
    return facts(
        ("Rule", rule.id),
        ("Lease", rule.lease_id),
        ("Ports", _ports(rule)),
        ("From", _sources(rule)),
        ("Provider", _provider(provider) if provider in _CLOSED_THERE else None),
    )


def _provider(word: str | None) -> str | None:
    return None if word is None else _PROVIDERS.get(word, word)


def _ports(rule: FirewallRuleView) -> str:
    return f"{rule.protocol}/{rule.ports}"


def _sources(rule: FirewallRuleView) -> str:
    if set(rule.sources) == _EVERYBODY.keys():
        return "anywhere"
    return ", ".join(_EVERYBODY.get(source, source) for source in rule.sources)
