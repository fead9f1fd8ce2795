"""Margins: what customers were charged in a month, less what providers bill us."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import Money, Timestamp, View
from control_plane.wire.finance import MonthText
from control_plane.wire.vocabulary import one_of

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
    margin: Money
    """The revenue less the cost."""
    margin_percent: PercentText | None
    """The margin in percent of the revenue, rounded down to two places; null without revenue."""


class MarginLineView(View):
    """The margin of one lease, SKU, provider or organization, or what unsold time costs."""

    key: str | None
    """The id of the lease or the organization, or the name of the SKU or the provider; null for unsold time, which by
    provider is a part of each provider's own line."""
    name: str
    """What people call it."""
    amounts: MarginAmounts
    """What was charged and what it cost."""


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
    lines: tuple[MarginLineView, ...]
    """Those that cost most first, at most as many as asked for, and unsold time last."""
    others: MarginAmounts
    """The sum of the lines that are left out."""
    others_count: int
    """How many lines are left out."""
