"""Margins of a month over all customers, for finance."""

from dataclasses import dataclass
from datetime import datetime

from control_plane.db import child_costs, machine_costs
from control_plane.domain.child_cost import ChildCost
from control_plane.domain.ids import OrganizationId
from control_plane.domain.margin import (
    LEFT_BEHIND,
    UNSOLD,
    Line,
    Margin,
    MarginBy,
    Margins,
    margins,
    ordered,
    together,
)
from control_plane.domain.money import Nano
from control_plane.domain.period import month_after, month_of, month_text
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.world import World


@dataclass(frozen=True, slots=True)
class MarginReport:
    month: datetime
    until: datetime
    """The end of the month, or now while it is not over."""
    found: Margins
    lines: tuple[tuple[Line, Margin], ...]
    """Those that cost most, then machines that waited in warm pools, unsold time, and what was left behind."""
    others: Margin
    """The sum of those that are left out."""
    others_count: int
    left: tuple[tuple[ChildCost, Nano], ...]
    """What outlived its machine, with what it cost in the month; those that cost most."""
    left_count: int
    """How many there are."""


async def report(
    world: World, platform: OrganizationId, month: datetime | None, by: MarginBy, *, lines: int
) -> MarginReport | Refused:
    """The margins of a month: so many lines at most, and what belongs to none of them; the others are summed. As many
    of what was left behind are named.

    `platform` is the operators' organization. None as the month is the current one. Refused for one that has not begun.
    """
    now = world.now()
    month = month_of(now) if month is None else month
    if now < month:
        return Refused(RefusalCode.PERIOD_IN_FUTURE, f"{month_text(month)} has not begun.")
    found = margins(by, month, min(now, month_after(month)))
    async with world.db.reading(platform) as connection:
        async for records in machine_costs.of_month(connection, since=found.since, until=found.until):
            for record in records:
                found.add(record)
        async for children in child_costs.of_month(connection, since=found.since, until=found.until):
            for child in children:
                found.add_child(child)
    sold = [each for each in ordered(found.lines) if each[0].key]
    unsold = [each for each in ordered(found.lines) if not each[0].key]
    unsold.sort(key=lambda each: (each[0] == LEFT_BEHIND, each[0] == UNSOLD))
    left_out = sold[lines:]
    left = sorted(found.left, key=lambda each: (-each[1], each[0].account, each[0].ref))
    return MarginReport(
        month=month,
        until=found.until,
        found=found,
        lines=(*sold[:lines], *unsold),
        others=together(left_out),
        others_count=len(left_out),
        left=tuple(left[:lines]),
        left_count=len(left),
    )
