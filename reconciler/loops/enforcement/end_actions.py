"""Ends actions whose time is over, does what operators want undone, and closes findings of leases that have ended.

An action ends by another row, and is never edited. What it asked of a workload is asked no longer from then on: the
machine removes the file within its next sample.
"""

from datetime import timedelta

from control_plane.db import conditions, enforcement
from control_plane.domain.enforcement import Close, FindingOutcome
from control_plane.outcomes import enforcement as outcomes
from control_plane.outcomes.enforcement import Work
from reconciler.loop import Loop, Report
from reconciler.worlds.enforcement import EnforcementWorld

NAME = "end_actions"
ENDED_PER_ACTIVATION_MAX = 200
GONE = Close(FindingOutcome.GONE, "the lease does not use this machine any more")
HOURS_KEPT = timedelta(days=1)
"""Beyond the days that are usual."""


async def activate(world: EnforcementWorld) -> Report:
    now, actor = world.now(), world.actor(NAME)
    report = Report()
    async with world.db.transaction() as connection:
        over = await enforcement.over(connection, now=now, limit=ENDED_PER_ACTIVATION_MAX)
        for action in over:
            report.count(await outcomes.end_action(connection, action, actor=actor, now=now))
        gone = await enforcement.gone(connection, limit=ENDED_PER_ACTIVATION_MAX)
        work = Work(connection, armed=False, rules=world.enforcement_rules.digest, actor=actor, now=now)
        for finding in gone:
            report.count(await outcomes.close(work, None, finding, GONE))
        usual = timedelta(days=world.enforcement_rules.throughput.usual_days)
        await conditions.forget_hours(connection, before=now - usual - HOURS_KEPT)
    report.looked_at = len(over) + len(gone)
    report.more = ENDED_PER_ACTIVATION_MAX in (len(over), len(gone))
    return report


LOOP = Loop(NAME, timedelta(seconds=5), activate, wakes=("enforce_rules",))
"""Its work is found by an index; most activations find none."""
