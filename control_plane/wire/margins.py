"""Margins: what customers were charged in a month, less what providers bill us."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import Money, Timestamp, View
from control_plane.wire.finance import MonthText
from control_plane.wire.sla_terms import SlaTierWord
from control_plane.wire.vocabulary import LeaseIdText, MachineIdText, OrganizationIdText, one_of

LINES_MAX = 1_000

MarginByWord = Annotated[
    str,
    one_of(
        "MarginBy",
        "By what margins are added up.",
        lease="By lease.",
        sku="By the SKU of the leases.",
        provider="By the provider of the machines.",
        organization="By the organization of the leases.",
        sla="By the service level of the leases.",
    ),
]
PercentText = Annotated[str, Meta(examples=["41.25"], extra_json_schema={"pattern": r"^-?[0-9]+\.[0-9]{2}$"})]


class MarginAmounts(View):
    """What was charged and what it cost."""

    revenue: Money
    """What customers were charged for their use in the month."""
    cost: Money
    """What providers bill for the machines by their own rules."""
    unsold_cost: Money
    """The part of the cost for time in which no lease held a machine."""
    idle_cost: Money
    """The part of that for machines that waited in warm pools."""
    left_behind_cost: Money
    """The part of the cost for what outlived its machine, such as a volume."""
    margin: Money
    """The revenue less the cost."""
    margin_percent: PercentText | None
    """The margin in percent of the revenue, rounded down to two places; null without revenue."""


class MarginLineView(View):
    """The margin of one lease, SKU, provider, organization or service level, or what unsold time costs."""

    key: str | None
    """The id of the lease or the organization, or the name of the SKU, the provider or the service level; null for
    machines in warm pools, other unsold time and what was left behind, which by provider are a part of each provider's
    own line."""
    name: str
    """What people call it."""
    amounts: MarginAmounts
    """What was charged and what it cost."""


class IdleCostView(View):
    """What machines cost while they waited in warm pools for the leases of a service level."""

    sla: SlaTierWord | None
    """The only level that the pool serves, or else that of the lease that claimed the machine; null when none did."""
    cost: Money
    """What they cost from their order to their claim or their end."""


class LeftBehindView(View):
    """Something that a launch made beside its machine, that outlived it, and that its provider charges for."""

    account: str
    """The provider account."""
    kind: str
    """What it is, in the provider's word, such as `volume`."""
    provider_ref: str
    """The provider's id of it."""
    cost_per_hour: Money
    """What it costs, as lists named it when it was first seen."""
    first_seen_at: Timestamp
    """When a list showed it first."""
    last_seen_at: Timestamp | None
    """When a list showed it last; null while lists show it."""
    since: Timestamp
    """From when it counts here: when its machine was gone, or when it was first seen where no record has its launch."""
    until: Timestamp | None
    """When a list lacked it; null while lists show it."""
    cost: Money
    """What it cost in the month."""
    machine_id: MachineIdText | None
    """The machine that it was made for; null where no record has its launch."""
    lease_id: LeaseIdText | None
    """The lease that held the machine last; null where none did."""
    lease: str | None
    """The name of that lease."""
    organization_id: OrganizationIdText | None
    """The organization of that lease."""
    organization: str | None
    """The name of that organization."""


class MarginView(View):
    """The margins of a month over all customers."""

    month: MonthText
    """The month."""
    until: Timestamp
    """Up to when machines are counted: the end of the month, or now. Charges follow up to an hour later."""
    by: MarginByWord
    """By what it is added up."""
    machines: int
    """How many machines existed in the month."""
    total: MarginAmounts
    """The sum of all lines and of the others."""
    uncertain_cost: Money
    """By how much the cost may be off, because no provider tells when its bill of a machine begins and ends."""
    idle: tuple[IdleCostView, ...]
    """What warm pools cost, by service level; nothing where none cost anything."""
    lines: tuple[MarginLineView, ...]
    """Those that cost most first, at most as many as asked for, then machines in warm pools, unsold time, and what was
    left behind."""
    others: MarginAmounts
    """The sum of the lines that are left out."""
    others_count: int
    """How many lines are left out."""
    left_behind: tuple[LeftBehindView, ...]
    """What outlived its machine, such as volumes: what cost most first, as many as asked for."""
    left_behind_count: int
    """How many there are."""
