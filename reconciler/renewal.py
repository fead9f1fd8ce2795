"""Renews the hold of a worker on rows while the work lasts.

Such a hold can be short: it outlives any slow call, but no process that was killed or that stalls, so that another
worker goes on seconds later. A worker that stalled may go on as well. So this is for work in which machines refuse
the later of two workers, or are not harmed by both (docs/decisions/0058).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

RENEWED_EVERY = timedelta(seconds=5)


@asynccontextmanager
async def renewed(
    renew: Callable[[], Awaitable[bool]], sleep: Callable[[float], Awaitable[None]]
) -> AsyncIterator[None]:
    """Call `renew` every few seconds until the block ends, or until it says that nothing is held any more."""
    renewing = asyncio.create_task(_keep(renew, sleep), name="renew hold")
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])


async def _keep(renew: Callable[[], Awaitable[bool]], sleep: Callable[[float], Awaitable[None]]) -> None:
    is_held = True
    while is_held:
        await sleep(RENEWED_EVERY.total_seconds())
        try:
            is_held = await renew()
        except Exception:  # noqa: BLE001 - the database is away, and the hold lasts for several tries
            is_held = True
