"""Asks once a day for the running month and the last one to be reconciled, and shows what came of it as metrics.

`reconcile_periods` examines them, as it does for finance, whose requests count here too. What customers came to that
agree is not stored, because that would be a row of every customer for every day. A difference is no error of
this loop: it is a note in its report, and the alert `SplitplaneReconciliationDifference` fires (docs/operating.md). Two
replicas ask once, because the second one waits for the first and finds its request.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from control_plane.db import organizations, reconciliation_batches, reconciliations
from control_plane.db.reconciliation_batches import LastDone
from control_plane.domain.ids import OrganizationId, Prefix, on_wire
from control_plane.domain.money import Nano, usd
from control_plane.domain.period import month_text
from control_plane.domain.reconciliation import IN_TOTAL, Amounts, differences
from control_plane.domain.reconciliation_schedule import is_due, watched_months
from control_plane.outcomes.reconciliations import ask
from reconciler.figures import FIGURES, Reconciled
from reconciler.loop import Loop, Report
from reconciler.world import World

NAME = "request_reconciliations"


async def activate(world: World) -> Report:
    now = world.now()
    months = watched_months(now)
    async with world.db.reading() as connection:
        platform = await organizations.platform(connection)
        last = await reconciliations.last_asked(connection, months)
    if platform is None:
        return Report()  # Nobody runs the installation yet, so nothing is sold.
    report = Report(looked_at=len(months))
    if any(is_due(last.get(month), now) for month in months):
        await _ask(world, report, platform, months, now)
    await _show(world, report, months)
    return report


async def _ask(
    world: World, report: Report, platform: OrganizationId, months: Sequence[datetime], now: datetime
) -> None:
    async with world.db.transaction() as connection:
        await reconciliations.lock(connection)
        last = await reconciliations.last_asked(connection, months)
        for month in months:
            if is_due(last.get(month), now):
                await ask(
                    connection,
                    platform,
                    month,
                    reconciliation_id=world.new_id(),
                    by=NAME,
                    all_customers=False,
                    now=now,
                )
                report.count(1)


async def _show(world: World, report: Report, months: Sequence[datetime]) -> None:
    """Show what the last reconciliations came to that are done."""
    shown: list[Reconciled] = []
    async with world.db.reading() as connection:
        for done in await reconciliation_batches.last_done(connection, months):
            amounts = Amounts()
            for batch in await reconciliation_batches.batches(connection, [done.id]):
                amounts = amounts.plus(batch.amounts)
            in_total = sum(abs(sides.difference_nano) for sides in differences(amounts, IN_TOTAL))
            difference = Nano(done.difference_nano + in_total)
            month = "running" if done.period == months[0] else "last"
            shown.append(Reconciled(month, done.examined_at, done.differing_customers, difference))
            if difference:
                report.notes.append(_note(done, difference))
    FIGURES.reconciled = shown


def _note(done: LastDone, difference: Nano) -> str:
    return (
        f"The books of {month_text(done.period)} differ by {usd(difference)} USD,"
        f" customers: {done.differing_customers}; {on_wire(Prefix.RECONCILIATION, done.id)}."
    )


LOOP = Loop(NAME, timedelta(minutes=10), activate)
