"""Closing a month of 10,000 leases of 100 customers, step by step: metered, rated, closed, invoiced, reconciled.

Each lease is used for `HOURS` hours from within the first hour of the month on, so that it has one line more than
hours. In production, meter and prices keep up during the month; here all of it is due at once. Loops and services run
as one replica, one after the other, with durable commits. The run fails if anything is refused or does not reconcile.
"""

import time
from datetime import timedelta

from benchmarks import ground, used_leases
from benchmarks.results import Figure
from benchmarks.used_leases import CUSTOMERS, LEASES, MONTH, Clock
from control_plane.db.engine import Database, Role
from control_plane.domain.ids import OrganizationId
from control_plane.domain.invoice import Seller
from control_plane.domain.period import PeriodState, month_after
from control_plane.domain.refusal import Refused
from control_plane.services import invoices, periods, reconciliations
from control_plane.services.invoices import InvoiceRun
from control_plane.services.reconciliations import Found
from control_plane.world import World
from reconciler.loops.money import reconcile_periods
from reconciler.world import World as LoopWorld

HOURS = 8
_BY = "user_bench"


async def measure() -> list[Figure]:
    url = await ground.empty_database("bench_month_close")
    clock = Clock(MONTH)
    platform = await used_leases.customers(url, clock.now)
    await used_leases.plant(url)
    await used_leases.release(url, timedelta(hours=HOURS))
    clock.time = month_after(MONTH) + timedelta(hours=1)
    loops = used_leases.loop_world(url, clock.now)
    database = Database(ground.login_url(url, Role.API), role=Role.API)
    api = World(database, now=clock.now)
    figures, begun = [], time.perf_counter()

    def step(name: str, note: str) -> None:
        nonlocal begun
        figures.append(Figure(name, time.perf_counter() - begun, "s", note=note))
        begun = time.perf_counter()

    step("metered", f"{await used_leases.meter(loops):,} intervals")
    step("rated and posted", f"{await used_leases.rate(loops):,} charges")
    await _close(api, platform)
    step("period closed", "")
    step("invoices issued", f"{await _invoice(api, platform)} invoices")
    found = await _reconcile(api, loops, platform)
    step("reconciled", f"{found.customers} organizations, no difference")
    await database.close()
    await loops.db.close()
    total = sum(figure.value for figure in figures)
    return [*figures, Figure(f"a month of {LEASES:,} leases, in all", total, "s")]


async def _close(api: World, platform: OrganizationId) -> None:
    async with api.db.transaction(platform) as connection:
        closed = await periods.close(connection, api, MONTH, by=_BY)
    if isinstance(closed, Refused) or closed.period.state is not PeriodState.CLOSED:
        raise RuntimeError(f"the period is not closed: {closed}")


async def _invoice(api: World, platform: OrganizationId) -> int:
    """Issue the invoices of all customers, as the API does it: a batch of customers in each transaction."""
    issued, after = 0, None
    while True:
        asked = InvoiceRun(
            month=MONTH,
            draft=False,
            organization_id=None,
            after=after,
            seller=Seller("Neocloud Ltd", ("1 High Street", "London"), tax_id=None),
            number_prefix="INV",
            platform=platform,
            by=_BY,
        )
        async with api.db.transaction(platform) as connection:
            batch = await invoices.run(connection, api, asked)
        if isinstance(batch, Refused) or batch.refused:
            raise RuntimeError(f"invoices were refused: {batch}")
        issued += len(batch.invoices)
        after = batch.following
        if after is None:
            break
    if issued != CUSTOMERS:
        raise RuntimeError(f"{issued} invoices were issued")
    return issued


async def _reconcile(api: World, loops: LoopWorld, platform: OrganizationId) -> Found:
    async with api.db.transaction(platform) as connection:
        asked = await reconciliations.create(connection, api, platform, MONTH, by=_BY)
    if isinstance(asked, Refused):
        raise TypeError(f"the reconciliation was refused: {asked}")
    while (await reconcile_periods.activate(loops)).more:
        pass
    found = await reconciliations.get(api, platform, asked.asked.id)
    if isinstance(found, Refused) or found.is_running or found.differs:
        raise RuntimeError(f"the month does not reconcile: {found}")
    return found
