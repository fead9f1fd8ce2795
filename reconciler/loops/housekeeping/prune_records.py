"""Deletes what is no longer needed: stored answers of requests, reports of replicas that stopped long ago, and orphans
that went long ago.

Facts (the journal, usage, the ledger, verification reports) are never deleted.
"""

from datetime import timedelta

from control_plane.db import idempotency, loops, orphans
from reconciler.loop import Loop, Report
from reconciler.world import World

NAME = "prune_records"
ANSWERS_KEPT = timedelta(days=7)
"""How long the answer of an Idempotency-Key is kept; docs/operating.md promises this time."""
ANSWERS_MAX = 100_000
ANSWER_BYTES_MAX = 256 * 2**20
"""How many answers, and how many bytes of them, are kept for an organization; beyond that its oldest ones go early. At
the rate that an organization may send, an answer is still kept for minutes, in which clients repeat their requests."""
REPORTS_KEPT = timedelta(days=1)
ORPHANS_KEPT = timedelta(days=30)
"""How long an orphan that is gone is kept; docs/operating.md promises this time."""
DROPPED_PER_ACTIVATION_MAX = 1_000


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        dropped = (
            await idempotency.forget(connection, before=now - ANSWERS_KEPT, limit=DROPPED_PER_ACTIVATION_MAX),
            await orphans.forget(connection, before=now - ORPHANS_KEPT, limit=DROPPED_PER_ACTIVATION_MAX),
            await idempotency.forget_surplus(
                connection,
                most=ANSWERS_MAX,
                most_bytes=ANSWER_BYTES_MAX,
                limit=DROPPED_PER_ACTIVATION_MAX,
            ),
        )
        await loops.forget(connection, before=now - REPORTS_KEPT)
    more = max(dropped) == DROPPED_PER_ACTIVATION_MAX
    return Report(looked_at=sum(dropped), acted_on=sum(dropped), more=more)


LOOP = Loop(NAME, timedelta(minutes=10), activate)
