"""Turns the journal's transitions into intervals of billable time: full hours, and the rest at the end.

The times come from the lease's own moves, never from a machine's word (law 6). Intervals, the queue
for rating and the meter's position are one statement in one transaction (law 8). A running lease whose
meter stands still raises an alarm: usage that is not counted is as wrong as usage counted twice.

While a machine's GPU proof stands failed, its meter waits at that moment. Mostly it is cleared or ended within
minutes; if it is ended the bill stops there, and nothing has to be taken back. If it can be challenged no more,
since its GPUs are busy or it is out of reach, the doubt lapses after half an hour and the meter goes on.
"""

from datetime import datetime, timedelta

from control_plane.db import usage
from control_plane.domain.metering import SILENT_AFTER, due_intervals, next_hour
from reconciler.loop import Loop, Report, World

NAME = "meter_usage"
METERED_PER_ACTIVATION_MAX = 1_000


async def activate(world: World) -> Report:
    now = world.now()
    hour = next_hour(now) - timedelta(hours=1)
    async with world.db.transaction() as connection:
        due = await usage.take_meters(connection, hour=hour, limit=METERED_PER_ACTIVATION_MAX)
        intervals = [
            (metered.lease_id, metered.organization_id, interval)
            for metered in due
            for interval in due_intervals(
                metered.meter,
                evidence_at=_evidence_at(metered, now),
                ended_at=metered.billed_until,
            )
        ]
        await usage.record_intervals(connection, intervals, now=now)
        silent = await usage.silent(connection, before=now - SILENT_AFTER)
    report = Report(looked_at=len(due), acted_on=len(intervals))
    report.more = len(due) == METERED_PER_ACTIVATION_MAX and bool(intervals)
    if silent:
        report.errors.append(f"{silent} running leases had no usage for over {SILENT_AFTER}")
    return report


def _evidence_at(metered: usage.Metered, now: datetime) -> datetime:
    """Until when there is evidence that the customer had what was sold."""
    seen = metered.evidence_at or metered.meter.ready_at
    return min(now, seen, metered.suspect_since or now)


LOOP = Loop(NAME, timedelta(seconds=2), activate, wakes=("rate_usage",))
