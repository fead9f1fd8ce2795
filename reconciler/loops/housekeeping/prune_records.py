"""Deletes what is no longer needed: stored answers of requests, and reports of replicas that stopped long ago.

Facts (the journal, usage, the ledger, verification reports) are never deleted.
"""

from datetime import timedelta

from control_plane.db import idempotency, loops
from reconciler.loop import Loop, Report
from reconciler.world import World

NAME = "prune_records"
ANSWERS_KEPT = timedelta(days=7)
"""How long the answer of an Idempotency-Key is kept; docs/operating.md promises this time."""
REPORTS_KEPT = timedelta(days=1)
DROPPED_PER_ACTIVATION_MAX = 1_000


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        dropped = await idempotency.forget(
            connection, before=now - ANSWERS_KEPT, limit=DROPPED_PER_ACTIVATION_MAX
        )
        await loops.forget(connection, before=now - REPORTS_KEPT)
    return Report(looked_at=dropped, acted_on=dropped, more=dropped == DROPPED_PER_ACTIVATION_MAX)


LOOP = Loop(NAME, timedelta(minutes=10), activate)
