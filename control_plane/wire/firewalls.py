"""Firewalls of leases: which ports of their machines are open to whom."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import Request, Timestamp, View
from control_plane.wire.vocabulary import LeaseIdText, one_of

FirewallRuleIdText = Annotated[
    str,
    Meta(
        description="The id of a firewall rule.",
        examples=["fw_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"],
        extra_json_schema={"pattern": "^fw_[0-9a-f]{32}$"},
    ),
]
ProtocolText = Annotated[
    str,
    Meta(
        pattern=r"^(tcp|udp)$(?!\n)",
        description="`tcp` or `udp`.",
        examples=["tcp"],
        extra={"must": "`tcp` or `udp`"},
    ),
]
PortsText = Annotated[
    str,
    Meta(
        pattern=r"^[1-9][0-9]{0,4}(-[1-9][0-9]{0,4})?$(?!\n)",
        description="A port such as `8080`, or a range such as `8000-8010`; from 1 to 65535.",
        examples=["8080"],
        extra={"must": "a port such as `8080`, or a range such as `8000-8010`"},
    ),
]
SourceText = Annotated[
    str,
    Meta(
        pattern=r"^[0-9A-Fa-f.:]{2,45}(/[0-9]{1,3})?$(?!\n)",
        description="A network or an address, of IPv4 or IPv6. `0.0.0.0/0` and `::/0` are everybody.",
        examples=["203.0.113.0/24"],
        extra={"must": "a network such as `203.0.113.0/24` or `2001:db8::/32`, or an address"},
    ),
]
FirewallStateWord = Annotated[
    str,
    one_of(
        "FirewallState",
        "Whether the machine of a lease has its rules.",
        waiting="The lease has no machine to log in to yet. It will have the rules from the beginning.",
        pending=(
            "The rules were changed, or the machine, and the machine or its provider does not have them yet: see "
            "`problem`."
        ),
        applied="The machine has the rules, and its provider too where its firewall follows them.",
        changed="Somebody with root changed them on the machine. The next change of the rules replaces that.",
        ended="The lease has ended.",
    ),
]
FirewallProblemWord = Annotated[
    str,
    one_of(
        "FirewallProblem",
        "What is wrong between a machine and its rules.",
        unreachable="The machine could not be reached when it was tried last. It is tried again.",
        failed="The machine did not take the rules, and keeps those that it had. It is tried again.",
        changed="At the last look, the machine had other rules than it was given.",
        provider="The provider did not change its firewall when it was asked last. It is asked again.",
    ),
]
FirewallProviderWord = Annotated[
    str,
    one_of(
        "FirewallProvider",
        "What the provider filters before a machine. The machine filters by its rules in any case.",
        none="Nothing: the machine alone decides.",
        follows="What the rules of the machine do not open. Its firewall follows them.",
        fixed=(
            "Everything but SSH and, where the provider can let it in, WireGuard. Other ports are reachable through "
            "private networks and tunnels alone."
        ),
        unknown="It may filter, by rules of our account or of another cloud, which do not follow those of the machine.",
    ),
]


class FirewallRuleRequest(Request):
    """Ports to be opened."""

    protocol: ProtocolText
    """`tcp` or `udp`."""
    ports: PortsText
    """A port, or a range of ports. tcp/22 and udp/51820 are open in any case and cannot be part of it."""
    sources: Annotated[tuple[SourceText, ...], Meta(min_length=1, max_length=4)]
    """To whom they are opened: one to four networks or addresses. `0.0.0.0/0` and `::/0` open them to everybody."""


class FirewallRuleView(View):
    """Ports of the machine of a lease that are open to somebody."""

    id: FirewallRuleIdText
    """The id of the rule."""
    lease_id: LeaseIdText
    """The lease. Every machine that it gets has the rule."""
    protocol: str
    """`tcp` or `udp`."""
    ports: str
    """A port, or the first and the last one: `8000-8010`."""
    sources: tuple[str, ...]
    """The networks that they are open to."""
    created_at: Timestamp
    """When the rule was made."""


class FirewallView(View):
    """Which ports of the machine of a lease are open to whom, besides SSH and WireGuard."""

    lease_id: LeaseIdText
    """The lease."""
    state: FirewallStateWord
    """Whether the machine has the rules."""
    problem: FirewallProblemWord | None
    """What is wrong; null when nothing is."""
    provider: FirewallProviderWord | None
    """What the provider filters before the machine; null while the lease has no machine to log in to."""
    provider_applied_at: Timestamp | None
    """When the provider's firewall was last seen to follow the rules; null before that, and where it follows none."""
    applied_at: Timestamp | None
    """When the lease's machine got rules last; null before that."""
    looked_at: Timestamp | None
    """When the machine's rules were seen last, there; null before that. They are looked at once an hour."""
    rules: tuple[FirewallRuleView, ...]
    """The rules, oldest first: at most 50. What no rule opens is closed."""
