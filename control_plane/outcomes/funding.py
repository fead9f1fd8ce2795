"""The facts that the funding of a ready lease is decided on, and setting more aside for it."""

from dataclasses import replace
from datetime import datetime

from control_plane.db import holds, organizations
from control_plane.db.connection import Connection
from control_plane.db.holds import Funded
from control_plane.domain import metering
from control_plane.domain.admission import Standing, not_spending
from control_plane.domain.funding import HOLD, Funding
from control_plane.domain.lease import Lease
from control_plane.domain.money import Nano, dollars_down, dollars_up
from control_plane.domain.organization import EFFECTS
from control_plane.domain.refusal import RefusalCode, Refused


def funding(funded: Funded, standing: Standing, now: datetime) -> Funding:
    """A hold has to cover the most that may have been used. Its price is the one that applies at `now`."""
    used, stopped = metering.used_until(funded, now), funded.is_stopped(now)
    return Funding(
        nano_per_unit_hour=funded.price(stopped=stopped),
        units=funded.units,
        held_nano=funded.held_nano,
        unposted_nano=Nano(funded.cost_until(used.at_most) - funded.posted_nano),
        available_nano=standing.available_nano,
        warned=funded.warned,
        spends=EFFECTS[standing.state].spends,
        on_nano_per_unit_hour=funded.nano_per_unit_hour if stopped else None,
        stopped_nano_per_unit_hour=funded.stopped_nano_per_unit_hour
        if funded.can_stop and not stopped
        else None,
        most_left_nano=_most_left(funded, used.at_most),
        kept_for=None if funded.kept_until is None else funded.kept_until - now,
    )


def _most_left(funded: Funded, used_until: datetime) -> Nano | None:
    """What of the price of its term a lease can still cost; None without a term."""
    most = funded.most_nano
    return None if most is None else Nano(most - funded.cost_until(used_until))


async def fund_start(connection: Connection, lease: Lease, *, now: datetime) -> Refused | None:
    """Set aside an hour at the price of a machine that is on, before a stopped one is started.

    Locks the standing, after the lease that the caller holds. A lease that is not ready any more needs nothing.
    """
    standing = await organizations.standing(connection, lease.organization_id, lock=True)
    funded = await holds.funded(connection, lease.id)
    if standing is None or funded is None:
        return None
    if not EFFECTS[standing.state].spends:
        return not_spending(standing.state)
    found = replace(funding(funded, standing, now), nano_per_unit_hour=lease.nano_per_unit_hour)
    more = Nano(found.cost_of(HOLD) - found.left_nano)
    if more > found.available_nano:
        available, needed = dollars_down(found.available_nano), dollars_up(more)
        why = f"{available} USD is available, and the first hour after the start needs {needed} USD more; top up."
        return Refused(RefusalCode.BALANCE_TOO_LOW, why)
    await holds.keep(connection, lease.id, until=None)
    if more > 0:
        await holds.extend(connection, lease.id, more)
    await holds.unwarn(connection, lease.id)
    return None
