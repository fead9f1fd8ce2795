"""Judges the promises of leases: stores what was broken, with its evidence, and what is to be given back.

A lease with promises is judged every few minutes while it lives, as soon as it ended, and then daily for some weeks,
because evidence may be late. Everything is computed from facts (`control_plane/domain/sla_clock.py`), and a breach is
unique by lease, promise and month, so a second run stores nothing. What is given back is settled once the month, or the
lease, is over and all of it is charged. Late evidence makes another assessment, up or down; nothing is edited.
"""

from datetime import timedelta

from control_plane.db import sla
from control_plane.outcomes import sla as outcomes
from reconciler.loop import Loop, Report
from reconciler.world import World

NAME = "judge_promises"
JUDGED_PER_ACTIVATION_MAX = 200


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        due = await sla.take_due(connection, now=now, limit=JUDGED_PER_ACTIVATION_MAX)
        if not due:
            return Report()
        judged = await outcomes.judge(connection, due, world.new_id, actor=world.actor(NAME), now=now)
    return Report(
        looked_at=len(due),
        acted_on=judged.found + judged.assessed,
        more=len(due) == JUDGED_PER_ACTIVATION_MAX,
    )


LOOP = Loop(NAME, timedelta(seconds=5), activate, wakes=("credit_breaches",))
"""Its work is found by an index; most activations find none."""
