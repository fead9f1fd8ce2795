"""Turns the journal's transitions into intervals of billable time: full hours, and the rest at the end.

The times come from the lease's own moves, never from what a machine reports (law 6). One statement stores the
intervals, queues them for rating and advances the meter (law 8). A running lease whose meter stands still raises an
alarm, because uncounted usage is as wrong as usage counted twice.

The meter stores only certain use (`metering.used_until`). While a machine is suspect, its meter stops at the moment
it became suspect. Usually the machine is cleared or terminated within minutes, and a termination then needs no
correction. If it cannot be challenged again, because its GPUs are busy or it is unreachable, the suspicion ends
after half an hour and the meter continues.
"""

from datetime import datetime, timedelta

from control_plane.db import usage
from control_plane.domain import metering
from control_plane.domain.metering import HOUR, SILENT_AFTER, Interval
from reconciler.loop import Loop, Report
from reconciler.world import World

NAME = "meter_usage"
METERED_PER_ACTIVATION_MAX = 1_000


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        due = await usage.take_meters(
            connection, hour=metering.next_hour(now) - HOUR, limit=METERED_PER_ACTIVATION_MAX
        )
        made = [(metered, interval) for metered in due for interval in intervals(metered, now)]
        await usage.record_intervals(connection, made, now=now)
        silent = await usage.silent(connection, before=now - SILENT_AFTER)
    report = Report(looked_at=len(due), acted_on=len(made))
    report.more = len(due) == METERED_PER_ACTIVATION_MAX and bool(made)
    if silent:
        report.errors.append(f"{silent} running leases had no usage for over {SILENT_AFTER}")
    return report


def intervals(metered: usage.Metered, now: datetime) -> list[Interval]:
    """The intervals of a lease that can be closed at `now`."""
    return list(metering.due_intervals(metered.meter, metering.used_until(metered, now)))


LOOP = Loop(NAME, timedelta(seconds=2), activate, wakes=("rate_usage",))
