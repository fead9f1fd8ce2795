"""Ends the leases that reached a limit of their own: the time to live or the amount that their customers set.

The moment was computed when the lease became ready (`control_plane/domain/auto_release.py`), and its bill stops then,
however late this loop comes.
"""

from datetime import timedelta
from functools import partial

from control_plane.db import lease_endings
from control_plane.domain.auto_release import why
from control_plane.domain.ids import LeaseId
from control_plane.domain.lease import LeaseEvent
from control_plane.outcomes.leases import end
from reconciler.loop import Loop, Report, each
from reconciler.world import World

NAME = "release_leases"
RELEASED_PER_ACTIVATION_MAX = 200


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.reading() as connection:
        due = await lease_endings.due_for_release(connection, now=now, limit=RELEASED_PER_ACTIVATION_MAX)
    report = Report(looked_at=len(due))
    for lease_id in due:  # One by one: together they would take every connection of the pool.
        await each([lease_id], partial(_release, world, report), report)
    report.more = len(due) == RELEASED_PER_ACTIVATION_MAX and report.acted_on > 0
    return report


async def _release(world: World, report: Report, lease_id: LeaseId) -> None:
    """End one lease, in a transaction of its own: it locks the organization's standing."""
    async with world.db.transaction() as connection:
        lease = await lease_endings.take_releasing(connection, lease_id, now=world.now())
        now = world.now()  # Not when the activation began: use may have been metered since.
        if lease is None or lease.ready_at is None or lease.release_at is None:
            return  # It ended meanwhile, or another replica ends it.
        reason = why(lease.auto_release, lease.ready_at, lease.release_at)
        report.count(
            await end(
                connection, lease, LeaseEvent.AUTO_RELEASED, why=reason, actor=world.actor(NAME), now=now
            )
        )


LOOP = Loop(NAME, timedelta(seconds=2), activate, wakes=("release_machines", "meter_usage"))
