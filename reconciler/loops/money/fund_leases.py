"""Renews the holds of running leases ahead of time; first warns, then stops or ends leases that cannot be funded.

A hold guarantees that the next hour is paid for. It is renewed when half of it is used, so a balance is never
overspent. The price determines when that is, so an activation checks only the holds that are due.

After an outage, the meter waits for this loop: use beyond a hold is billed only once the hold was renewed, so it does
not matter which of the money's loops comes back first (docs/decisions/0015).
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from control_plane.db import balance_alerts, holds, journal, leases, organizations
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor
from control_plane.domain.admission import Standing
from control_plane.domain.funding import (
    Decision,
    End,
    Funding,
    Keep,
    Reduce,
    Renew,
    Resume,
    Stop,
    StopTimes,
    Warn,
    decide,
    next_look,
)
from control_plane.domain.ids import ClaimId, LeaseId, OrganizationId
from control_plane.domain.journal import Note
from control_plane.domain.lease import Lease, LeaseEvent
from control_plane.domain.money import Nano, usd
from control_plane.domain.power import Power
from control_plane.outcomes.funding import funding
from control_plane.outcomes.leases import end
from control_plane.outcomes.powers import lock_power, request_stop
from reconciler.loop import Loop, Report, each
from reconciler.world import World

NAME = "fund_leases"
FUNDED_PER_ACTIVATION_MAX = 200


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.reading() as connection:
        due = await holds.due(connection, now=now, limit=FUNDED_PER_ACTIVATION_MAX)
    report = Report(looked_at=len(due))
    for lease_id in (
        due
    ):  # One by one, so that leases that share a balance are funded in the order in which they are due.
        await each([lease_id], partial(_fund, world, report), report)
    report.more = len(due) == FUNDED_PER_ACTIVATION_MAX and not report.errors
    return report


async def _fund(world: World, report: Report, lease_id: LeaseId) -> None:
    """Decide on one lease, act, and store when to check it again."""
    actor = world.actor(NAME)
    async with world.db.transaction() as connection:
        lease = (await leases.lock(connection, [lease_id])).get(lease_id)
        now = world.now()  # Not when the activation began: use may have been metered since.
        funded = await holds.funded_due(connection, lease_id, now=now)
        if lease is None or funded is None:
            return  # It ended meanwhile, or another replica has checked it.
        # Ending a lease, or stopping its machine, takes locks that come before the standing's, so it is decided without
        # the standing's lock.
        standing = await _standing(connection, funded.organization_id, lock=False)
        decision = decide(funding(funded, standing, now), world.stop_times)
        if isinstance(decision, End):
            await end(connection, lease, LeaseEvent.UNFUNDED, why=decision.why, actor=actor, now=now)
        else:
            power = await lock_power(connection, lease, now=now) if isinstance(decision, Stop) else None
            standing = await _standing(connection, funded.organization_id, lock=True)
            looked = _Looked(lease, funding(funded, standing, now), power, world.stop_times)
            decision = await _carry_out(connection, looked, actor, now)
        if not isinstance(decision, Keep | Renew):
            await balance_alerts.make_due(connection, funded.organization_id, now=now)
    _report_decision(report, lease_id, decision)


@dataclass(frozen=True, slots=True)
class _Looked:
    """A locked lease, with its funding under the standing's lock."""

    lease: Lease
    funding: Funding
    power: tuple[ClaimId, Power] | None
    """Its machine's power, locked; None unless the machine is to be stopped."""
    times: StopTimes


async def _carry_out(connection: Connection, looked: _Looked, actor: Actor, now: datetime) -> Decision:
    """Decide again under the standing's lock. The lease continues until its next check."""
    lease_id, found, decision = looked.lease.id, looked.funding, decide(looked.funding, looked.times)
    match decision:
        case Renew(more_nano=more):
            await holds.extend(connection, lease_id, more)
            found = replace(found, held_nano=Nano(found.held_nano + more))
        case Reduce(less_nano=less, why=why):
            await holds.reduce(connection, lease_id, less)
            found = replace(found, held_nano=Nano(found.held_nano - less))
            await journal.note_lease(
                connection, lease_id, event=Note.FUNDING_WARNED, why=why, actor=actor, now=now
            )
        case Warn(why=why):
            await holds.warn(connection, lease_id, now=now)
            await journal.note_lease(
                connection, lease_id, event=Note.FUNDING_WARNED, why=why, actor=actor, now=now
            )
        case Stop() if await _stop(connection, looked, decision, actor, now):
            found = replace(found, held_nano=Nano(found.held_nano + decision.more_nano))
        case Resume():
            await holds.keep(connection, lease_id, until=None)
            await holds.unwarn(connection, lease_id)
        case Keep(unwarns=True):
            await holds.unwarn(connection, lease_id)
        case End() | Stop():
            decision = Keep()  # The balance was used a moment ago. There is time for another check.
        case Keep():
            pass
    await holds.look_again(connection, lease_id, due_at=next_look(found, now))
    return decision


async def _stop(connection: Connection, looked: _Looked, stop: Stop, actor: Actor, now: datetime) -> bool:
    """Have a machine stopped, and set aside what its data costs. False when its power is changing already."""
    until = now + stop.kept_for
    why = f"{stop.why} The machine is stopped, and its data is kept until {until:%Y-%m-%d %H:%M} UTC."
    if looked.power is None or not await request_stop(
        connection, looked.lease, looked.power, why=why, actor=actor, now=now
    ):
        return False
    await holds.keep(connection, looked.lease.id, until=until)
    await holds.warn(connection, looked.lease.id, now=now)
    if stop.more_nano:
        await holds.extend(connection, looked.lease.id, stop.more_nano)
    return True


def _report_decision(report: Report, lease_id: LeaseId, decision: Decision) -> None:
    match decision:
        case Keep():
            return
        case Warn(why=why) | Reduce(why=why):
            report.notes.append(f"{lease_id}: {why}")
        case Stop(why=why):
            report.notes.append(f"{lease_id}: its machine is stopped, {why}")
        case End(why=why, unbilled_nano=unbilled):
            beyond = f" {usd(unbilled)} USD of use beyond its hold is not billed." if unbilled else ""
            report.notes.append(f"{lease_id}: ended, {why}{beyond}")
        case Renew() | Resume():
            pass
    report.acted_on += 1


async def _standing(connection: Connection, organization_id: OrganizationId, *, lock: bool) -> Standing:
    standing = await organizations.standing(connection, organization_id, lock=lock)
    if standing is None:
        raise LookupError(f"organization {organization_id} has no standing")
    return standing


LOOP = Loop(NAME, timedelta(seconds=30), activate, wakes=("release_machines", "meter_usage"))
