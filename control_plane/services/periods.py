"""Accounting periods: finance lists them, closes them, and has them reopened by two people."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from control_plane.db import invoices, organizations, periods
from control_plane.db.connection import Connection
from control_plane.db.periods import PeriodRecord
from control_plane.domain import period as domain
from control_plane.domain.ids import OrganizationId
from control_plane.domain.period import (
    MAIN_ISSUER,
    NEXT,
    Missing,
    Period,
    PeriodEvent,
    PeriodState,
    month_after,
    month_of,
)
from control_plane.domain.refusal import Refused
from control_plane.world import World


@dataclass(frozen=True, slots=True)
class ShownPeriod:
    period: Period
    missing: Missing | None
    """What has to happen before it can be closed; None when it is closed already, or not over."""


async def page(world: World, platform: OrganizationId) -> Sequence[ShownPeriod]:
    """The periods from the month in which the platform's organization was created, newest first."""
    now = world.now()
    async with world.db.reading(platform) as connection:
        found = {period.month: period for period in await periods.stored(connection, MAIN_ISSUER)}
        created = await organizations.get(connection, platform)
        first = min([*found, month_of(now if created is None else created.created_at)])
        shown = [
            await _shown(connection, found.get(month, Period(MAIN_ISSUER, month, PeriodState.OPEN)), now)
            for month in _months(first, now)
        ]
    return shown[::-1]


def _months(first: datetime, now: datetime) -> Sequence[datetime]:
    months = [first]
    while (following := month_after(months[-1])) <= now:
        months.append(following)
    return months


async def _shown(connection: Connection, period: Period, now: datetime) -> ShownPeriod:
    if period.state is PeriodState.CLOSED or now < month_after(period.month):
        return ShownPeriod(period, None)
    return ShownPeriod(period, await periods.missing(connection, period.issuer, period.month))


async def close(connection: Connection, world: World, month: datetime, *, by: str) -> ShownPeriod | Refused:
    """Begin to close a period, and close it if nothing is missing from it.

    Refused for a month that is not over, and for one that is closed.
    """
    now = world.now()
    period = await periods.lock(connection, MAIN_ISSUER, month)
    missing = await periods.missing(connection, MAIN_ISSUER, month)
    events = domain.closing(period, missing, now)
    if isinstance(events, Refused):
        return events
    for event in events:
        period = replace(period, state=NEXT[period.state, event], changed_at=now, changed_by=by)
        await periods.record(connection, period, PeriodRecord(world.new_id(), event, now, by))
    if events:
        await periods.save(connection, period)
    return await _shown(connection, period, now)


async def reopen(
    connection: Connection, world: World, month: datetime, *, by: str, reason: str
) -> ShownPeriod | Refused:
    """Ask for a closed period to be reopened, or agree to what somebody else asked for.

    Refused for a period that is not closed, for one with invoices, and for the person who asked.
    """
    now = world.now()
    period = await periods.lock(connection, MAIN_ISSUER, month)
    invoiced = await invoices.any_of(connection, MAIN_ISSUER, month)
    event = domain.reopening(period, by, invoiced=invoiced)
    if isinstance(event, Refused):
        return event
    if event is PeriodEvent.REOPENING_REQUESTED:
        after = replace(
            period, reopening_requested_at=now, reopening_requested_by=by, reopening_reason=reason
        )
    else:
        after = Period(period.issuer, month, NEXT[period.state, event], changed_at=now, changed_by=by)
    await periods.save(connection, after)
    await periods.record(connection, after, PeriodRecord(world.new_id(), event, now, by, reason))
    return await _shown(connection, after, now)
