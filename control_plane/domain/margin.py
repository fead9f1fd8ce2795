"""Margins: what customers were charged in a month, less what providers bill us for the machines.

Time of a machine belongs to the lease that holds it, from its claim to the end of that: also the time in which the
machine boots. The rest is unsold. Unsold time in which a machine waited in a warm pool belongs to the service level
that asked for it. What launches made beside their machines and was left behind, such as volumes, is a line of its own.
All parts add up to what the providers bill, to the nano-dollar.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from control_plane.domain.child_cost import ChildCost
from control_plane.domain.cost_record import CostRecord, Holder
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.money import NOTHING, Nano
from control_plane.domain.provider_cost import bounds_between
from control_plane.domain.sla import SlaTier

_WHOLE = 10_000


class MarginBy(StrEnum):
    """By what margins are added up."""

    LEASE = "lease"
    SKU = "sku"
    PROVIDER = "provider"
    ORGANIZATION = "organization"
    SLA = "sla"


@dataclass(frozen=True, slots=True)
class Margin:
    revenue_nano: Nano = NOTHING
    """What customers were charged."""
    cost_nano: Nano = NOTHING
    """What providers bill."""
    unsold_nano: Nano = NOTHING
    """The part of the cost for time in which no lease held a machine."""
    idle_nano: Nano = NOTHING
    """The part of that for machines that waited in warm pools."""
    left_nano: Nano = NOTHING
    """The part of the cost for what outlived its machine."""

    @property
    def margin_nano(self) -> Nano:
        return Nano(self.revenue_nano - self.cost_nano)

    @property
    def basis_points(self) -> int | None:
        """The margin in hundredths of a percent of the revenue, rounded down; None without revenue."""
        return self.margin_nano * _WHOLE // self.revenue_nano if self.revenue_nano else None

    def plus(self, other: "Margin") -> "Margin":
        return Margin(
            Nano(self.revenue_nano + other.revenue_nano),
            Nano(self.cost_nano + other.cost_nano),
            Nano(self.unsold_nano + other.unsold_nano),
            Nano(self.idle_nano + other.idle_nano),
            Nano(self.left_nano + other.left_nano),
        )


@dataclass(frozen=True, slots=True)
class Line:
    """What a margin is of."""

    key: str
    """The id of the lease or the organization, the name of the SKU, the provider or the service level; empty for time
    that belongs to none of them."""
    name: str
    """What people call it."""


UNSOLD = Line("", "unsold time")
IDLE = Line("", "warm pools")
LEFT_BEHIND = Line("", "left behind")
"""What outlived its machine. It is no part of the line of the lease that it came from: that lease was over."""


def idle_line(tier: SlaTier | None) -> Line:
    """The line of machines that waited in warm pools for a service level, or for all of them."""
    return IDLE if tier is None else Line("", f"{IDLE.name}, {tier}")


@dataclass(slots=True)
class Margins:
    """The margins of a month, added up machine by machine."""

    by: MarginBy
    since: datetime
    until: datetime
    lines: dict[Line, Margin]
    total: Margin = Margin()
    uncertain_nano: Nano = NOTHING
    """By how much the cost may be off, because no provider tells when its bill of a machine begins and ends."""
    machines: int = 0
    idle: dict[SlaTier | None, Nano] = field(default_factory=dict[SlaTier | None, Nano])
    """What machines cost while they waited in warm pools, by the service level that asked; None where none did."""
    left: list[tuple[ChildCost, Nano]] = field(default_factory=list[tuple[ChildCost, Nano]])
    """What outlived its machine, and what it cost in the month."""

    def add_child(self, child: ChildCost) -> None:
        """Add what something that outlived its machine cost in the month."""
        bounds = bounds_between(child.terms, child.life, self.since, self.until)
        self.uncertain_nano = Nano(self.uncertain_nano + bounds.width_nano)
        cost = child.cost(self.since, self.until)
        if not cost:
            return
        line = Line(child.provider, child.provider) if self.by is MarginBy.PROVIDER else LEFT_BEHIND
        part = Margin(cost_nano=cost, left_nano=cost)
        self.lines[line] = self.lines.get(line, Margin()).plus(part)
        self.total = self.total.plus(part)
        self.left.append((child, cost))

    def add(self, record: CostRecord) -> None:
        """Add what a machine cost in the month, and what was charged for it."""
        for line, part in _parts(self.by, record, self.since, self.until):
            self.lines[line] = self.lines.get(line, Margin()).plus(part)
            self.total = self.total.plus(part)
            if part.idle_nano:
                tier = record.idle_for
                self.idle[tier] = Nano(self.idle.get(tier, NOTHING) + part.idle_nano)
        bounds = bounds_between(record.terms, record.life, self.since, self.until)
        self.uncertain_nano = Nano(self.uncertain_nano + bounds.width_nano)
        self.machines += 1


def margins(by: MarginBy, since: datetime, until: datetime) -> Margins:
    """The margins of no machine yet."""
    return Margins(by, since, until, {})


def ordered(lines: Mapping[Line, Margin]) -> list[tuple[Line, Margin]]:
    """The lines: those that cost most first."""
    return sorted(lines.items(), key=lambda item: (-item[1].cost_nano, item[0].key))


def together(found: Iterable[tuple[Line, Margin]]) -> Margin:
    """The sum of some lines."""
    total = Margin()
    for _, margin in found:
        total = total.plus(margin)
    return total


def _parts(
    by: MarginBy, record: CostRecord, since: datetime, until: datetime
) -> Iterator[tuple[Line, Margin]]:
    of_provider = Line(record.provider, record.provider)
    holders = {holder.lease_id: holder for holder in record.holders}
    for charged in record.charged:
        holder = holders[charged.lease_id]
        yield _line(by, holder, of_provider), Margin(revenue_nano=charged.amount_nano)
    for begin, end, held_by in record.stretches(since, until):
        cost = record.cost(begin, end)
        unsold = cost
        for holder, part in _divided(cost, held_by, record.gpu_count):
            unsold = Nano(unsold - part)
            yield _line(by, holder, of_provider), Margin(cost_nano=part)
        if unsold and record.is_idle(begin):
            yield (
                _idle_line(by, record.idle_for, of_provider),
                Margin(cost_nano=unsold, unsold_nano=unsold, idle_nano=unsold),
            )
        elif unsold:
            line = of_provider if by is MarginBy.PROVIDER else UNSOLD
            yield line, Margin(cost_nano=unsold, unsold_nano=unsold)


def _idle_line(by: MarginBy, tier: SlaTier | None, of_provider: Line) -> Line:
    if by is MarginBy.PROVIDER:
        return of_provider
    return Line(tier, tier) if by is MarginBy.SLA and tier is not None else idle_line(tier)


def _divided(cost: Nano, held_by: tuple[Holder, ...], gpu_count: int) -> Iterator[tuple[Holder, Nano]]:
    """The cost of a time, for those who held the machine then: all of it, or as many of its GPUs as they have.

    What is left of a division goes to the first one when they hold the whole machine together, and is unsold otherwise.
    """
    whole = next((holder for holder in held_by if holder.slot is None), None)
    if whole is not None:
        yield whole, cost
        return
    held = sum(holder.units for holder in held_by)
    units = max(gpu_count, held)
    left = cost if held == units else Nano(cost * held // units)
    for holder in held_by[1:]:
        part = Nano(cost * holder.units // units)
        left = Nano(left - part)
        yield holder, part
    if held_by:
        yield held_by[0], left


def _line(by: MarginBy, holder: Holder, of_provider: Line) -> Line:
    match by:
        case MarginBy.LEASE:
            return Line(on_wire(Prefix.LEASE, holder.lease_id), f"{holder.organization}/{holder.lease}")
        case MarginBy.SKU:
            return Line(holder.sku, holder.sku)
        case MarginBy.PROVIDER:
            return of_provider
        case MarginBy.ORGANIZATION:
            return Line(on_wire(Prefix.ORGANIZATION, holder.organization_id), holder.organization)
        case MarginBy.SLA:
            return Line(holder.sla, holder.sla)
