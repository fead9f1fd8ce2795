"""The usage of all customers on the screen."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from control_plane.cli.render.billing import sums_table
from control_plane.wire.billing import CustomerUsageView, UsageGroupView, UsageSumsView
from control_plane.wire.common import Money

NANO_PER_USD = 10**9


def usage_of_all_table(customers: Sequence[CustomerUsageView], by: str) -> RenderableType:
    """The usage of customers: a row for each of them or of their projects, or for what their charges have in common."""
    if not customers:
        return Text("There are no customers.")
    sums = [customer.usage for customer in customers]
    groups = list(_groups(customers, by))
    if by != "day":
        groups.sort(key=lambda group: -group.amount.nano)
    first = sums[0]
    return sums_table(
        UsageSumsView(
            by=by,
            label_key=first.label_key,
            since=first.since,
            until=first.until,
            groups=tuple(groups),
            gpu_seconds=sum(one.gpu_seconds for one in sums),
            machine_seconds=sum(one.machine_seconds for one in sums),
            amount=_usd(one.amount for one in sums),
            unused=_usd(one.unused for one in sums),
        )
    )


def _groups(customers: Sequence[CustomerUsageView], by: str) -> Iterator[UsageGroupView]:
    """The rows of the table. Customers without usage have none."""
    if by == "organization":
        yield from (group for customer in customers for group in customer.usage.groups)
    elif by == "project":
        yield from (
            _sum(f"{customer.organization}/{group.name}", [group])
            for customer in customers
            for group in customer.usage.groups
        )
    else:
        named: dict[str | None, list[UsageGroupView]] = {}
        for customer in customers:
            for group in customer.usage.groups:
                named.setdefault(group.name, []).append(group)
        names = sorted(named, key=lambda name: name or "")
        yield from (_sum(name, named[name]) for name in names)


def _sum(name: str | None, groups: Sequence[UsageGroupView]) -> UsageGroupView:
    return UsageGroupView(
        id=None,
        name=name,
        charges=sum(group.charges for group in groups),
        gpu_seconds=sum(group.gpu_seconds for group in groups),
        machine_seconds=sum(group.machine_seconds for group in groups),
        amount=_usd(group.amount for group in groups),
        unused=_usd(group.unused for group in groups),
    )


def _usd(amounts: Iterable[Money]) -> Money:
    nano = sum(amount.nano for amount in amounts)
    return Money(f"{nano // NANO_PER_USD}.{nano % NANO_PER_USD:09d}", nano)
