"""Margins of a month over all customers, for finance."""

from dataclasses import dataclass
from datetime import datetime

from control_plane.db import machine_costs
from control_plane.domain.ids import OrganizationId
from control_plane.domain.margin import UNSOLD, Line, Margin, MarginBy, Margins, margins, ordered, together
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
    """Those that cost most, then machines that waited in warm pools, and unsold time."""
    others: Margin
    """The sum of those that are left out."""
    others_count: int


async def report(
    world: World, platform: OrganizationId, month: datetime | None, by: MarginBy, *, lines: int
) -> MarginReport | Refused:
    """The margins of a month: so many lines at most, and unsold time; the others are summed.

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
    sold = [each for each in ordered(found.lines) if each[0].key]
    unsold = [each for each in ordered(found.lines) if not each[0].key]
    unsold.sort(key=lambda each: each[0] == UNSOLD)
    left_out = sold[lines:]
    return MarginReport(
        month, found.until, found, (*sold[:lines], *unsold), together(left_out), len(left_out)
    )
