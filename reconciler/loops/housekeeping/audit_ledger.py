"""Adds up the whole ledger, whose sum has to be 0, in statements of a bounded size.

A crash in the middle loses the sum so far, and the next activation begins anew. Nothing is written. A difference is an
error in the loop's report and a metric; it is never corrected here, because somebody has to find out whose money it is.
"""

from datetime import timedelta
from uuid import UUID

from control_plane.db import figures
from control_plane.domain.money import Nano, usd
from reconciler.figures import FIGURES, Audit
from reconciler.loop import Loop, Report
from reconciler.world import World

NAME = "audit_ledger"
POSTINGS_PER_STATEMENT = 50_000


async def activate(world: World) -> Report:
    last, count, total = (UUID(int=0), -1), 0, 0
    async with world.db.reading() as connection:
        while part := await figures.postings_after(connection, *last, limit=POSTINGS_PER_STATEMENT):
            last = part.last_transaction, part.last_line
            count, total = count + part.count, total + part.nano
    FIGURES.audit = Audit(world.now(), count, Nano(total))
    errors = [f"The sum of all postings is {usd(Nano(total))} USD instead of 0."] if total else []
    return Report(looked_at=count, errors=errors)


LOOP = Loop(NAME, timedelta(minutes=10), activate, lasts=timedelta(minutes=10))
