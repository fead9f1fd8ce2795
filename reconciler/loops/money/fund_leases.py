"""Renews the holds of running leases ahead of time; warns, and then ends, those that cannot be funded.

A hold is a promise that the next hour is paid for. It is renewed when half of it is used, so a
balance is never overspent: the last hold is used up before the lease ends.
"""

from datetime import datetime, timedelta
from uuid import UUID

from control_plane.db import leases, ledger, organizations
from control_plane.db.ledger import Funded
from control_plane.domain.funding import RENEW_BELOW, End, Funding, Keep, Renew, Warn, decide
from control_plane.domain.lease import LeaseEvent
from control_plane.domain.metering import gpu_seconds_total
from control_plane.domain.money import Nano, accrued
from control_plane.services.leases import end_lease
from reconciler.loop import Loop, Report, World

NAME = "fund_leases"
PAGE = 1_000
_FIRST = UUID(int=0)


async def activate(world: World) -> Report:
    now = world.now()
    report = Report()
    after = _FIRST
    while True:
        async with world.db.reading() as connection:
            page = await ledger.ready_leases(connection, after=after, limit=PAGE)
        report.looked_at += len(page)
        for funded in page:
            if _half_used(funded, now):
                await _fund(world, funded, report, now)
        if len(page) < PAGE:
            return report
        after = page[-1].lease_id


def _funding(funded: Funded, available: Nano, now: datetime) -> Funding:
    used = accrued(funded.nano_per_gpu_hour, gpu_seconds_total(funded.ready_at, funded.gpu_count, now))
    return Funding(
        nano_per_gpu_hour=funded.nano_per_gpu_hour,
        gpu_count=funded.gpu_count,
        held_nano=funded.held_nano,
        unposted_nano=Nano(used - funded.posted_nano),
        available_nano=available,
        warned=funded.warned,
    )


def _half_used(funded: Funded, now: datetime) -> bool:
    """Whether the hold needs a look, whatever the balance is."""
    funding = _funding(funded, Nano(0), now)
    return funding.held_nano - funding.unposted_nano < funding.cost_of(RENEW_BELOW)


async def _fund(world: World, funded: Funded, report: Report, now: datetime) -> None:
    """Decide again under the locks, and act."""
    async with world.db.transaction() as connection:
        lease = (await leases.lock(connection, [funded.lease_id])).get(funded.lease_id)
        standing = await organizations.standing(connection, funded.organization_id, lock=True)
        fresh = await ledger.funded(connection, funded.lease_id)
        if lease is None or standing is None or fresh is None:
            return  # Ended meanwhile.
        match decide(_funding(fresh, standing.available_nano, now)):
            case Renew(more_nano=more):
                await ledger.extend_hold(connection, lease.id, more)
            case Warn(why=why):
                await ledger.record_warning(connection, lease.id, why=why, actor=world.actor(NAME), now=now)
                report.notes.append(f"{lease.id}: {why}")
            case End(why=why):
                await end_lease(
                    connection, lease, LeaseEvent.UNFUNDED, why=why, actor=world.actor(NAME), now=now
                )
                report.notes.append(f"{lease.id}: ended, {why}")
            case Keep():
                return
    report.acted_on += 1


LOOP = Loop(NAME, timedelta(seconds=30), activate, wakes=("end_machines", "meter_usage"))
