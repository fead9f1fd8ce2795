"""Ends the leases that reached a limit of their own: the time to live or the amount that their customers set, or the
end of the term that these committed to. Of that, they are told a week and a day before.

The moment was computed when the lease became ready (`control_plane/domain/auto_release.py`), and its bill stops then,
however late this loop comes.
"""

from datetime import timedelta
from functools import partial

from control_plane.db import lease_endings, leases
from control_plane.db.lease_endings import EndingTerm
from control_plane.domain.auto_release import why
from control_plane.domain.ids import LeaseId
from control_plane.domain.lease import LeaseEvent
from control_plane.outcomes.leases import end
from reconciler.loop import Loop, Report, each
from reconciler.world import World

NAME = "release_leases"
RELEASED_PER_ACTIVATION_MAX = 200
TERM_ANNOUNCED_DAYS = (7, 1)
"""So many days before its term ends, a customer is told, unless the term is no longer than that."""


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.reading() as connection:
        due = await lease_endings.due_for_release(connection, now=now, limit=RELEASED_PER_ACTIVATION_MAX)
        terms = await lease_endings.ending_terms(
            connection, days=TERM_ANNOUNCED_DAYS, now=now, limit=RELEASED_PER_ACTIVATION_MAX
        )
    report = Report(looked_at=len(due) + len(terms))
    for lease_id in due:  # One by one: together they would take every connection of the pool.
        await each([lease_id], partial(_release, world, report), report)
    for term in terms:
        await each([term], partial(_announce, world, report), report)
    full = RELEASED_PER_ACTIVATION_MAX in (len(due), len(terms))
    report.more = full and report.acted_on > 0
    return report


async def _announce(world: World, report: Report, term: EndingTerm) -> None:
    """Tell the customer of one lease that its term ends. The lock of the lease keeps another replica from it."""
    async with world.db.transaction() as connection:
        now = world.now()
        locked = await leases.lock(connection, [term.id])
        again = await lease_endings.ending_terms(
            connection, days=TERM_ANNOUNCED_DAYS, now=now, limit=RELEASED_PER_ACTIVATION_MAX, lease_id=term.id
        )
        if not locked or not again:
            return
        message = (
            f"The term of {term.name} is over at {term.release_at:%Y-%m-%d %H:%M} UTC, and the lease ends then with all"
            " data on its machine; to go on, create another lease before that, and move your work."
        )
        await lease_endings.announce(connection, term.id, message, now=now)
        report.count(1)


async def _release(world: World, report: Report, lease_id: LeaseId) -> None:
    """End one lease, in a transaction of its own: it locks the organization's standing."""
    async with world.db.transaction() as connection:
        lease = await lease_endings.take_releasing(connection, lease_id, now=world.now())
        now = world.now()  # Not when the activation began: use may have been metered since.
        if lease is None or lease.ready_at is None or lease.release_at is None:
            return  # It ended meanwhile, or another replica ends it.
        reason = why(lease.auto_release, lease.tariff(lease.ready_at), lease.release_at)
        report.count(
            await end(
                connection, lease, LeaseEvent.AUTO_RELEASED, why=reason, actor=world.actor(NAME), now=now
            )
        )


LOOP = Loop(NAME, timedelta(seconds=2), activate, wakes=("release_machines", "meter_usage"))
