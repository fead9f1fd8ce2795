"""How the power of a leased machine comes out, and what that does to the price of its lease."""

from dataclasses import replace
from datetime import datetime

from control_plane.db import claims, downtimes, health, journal, leases, powers
from control_plane.db.connection import Connection
from control_plane.db.downtimes import Downtime
from control_plane.domain import auto_release
from control_plane.domain.actor import Actor
from control_plane.domain.ids import ClaimId
from control_plane.domain.journal import Note
from control_plane.domain.lease import Lease
from control_plane.domain.outage import CONSEQUENCES
from control_plane.domain.power import Power, PowerChange, PowerEvent, PowerState, Settle, step
from control_plane.domain.transitions import Moved


async def settle(
    connection: Connection, change: PowerChange, settled: Settle, *, actor: Actor, now: datetime
) -> bool:
    """Store how a change came out, with a line in the lease's journal. False when it has moved meanwhile.

    Locks the lease.
    """
    moved = step(change.state, settled.event)
    if not isinstance(moved, Moved):
        return False
    lease = (await leases.lock(connection, [change.lease_id])).get(change.lease_id)
    # The lists lock a machine before its power as well.
    down = await downtimes.of_machine(connection, change.machine_id) if settled.switches_at else None
    if lease is None or not await powers.move(
        connection, change.claim_id, change.generation, moved, why=settled.why, now=now
    ):
        return False
    if settled.switches_at is not None and down is None:
        await switch_price(connection, lease, settled.switches_at)
    if settled.switches_at is not None and down is not None:
        await count_as_stopped(connection, lease, down, settled.switches_at)
        why = _OFF if moved.after is PowerState.OFF else _RUNS
        await downtimes.end(connection, change.machine_id, why=why, actor=actor, now=now)
    if change.state is PowerState.REBOOTING and settled.event is PowerEvent.DONE:
        await health.was_reset(connection, change.machine_id, now=now)
    note, why = _line(change, settled)
    await journal.note_lease(connection, change.lease_id, event=note, why=why, actor=actor, now=now)
    return True


async def lock_power(connection: Connection, lease: Lease, *, now: datetime) -> tuple[ClaimId, Power] | None:
    """Lock the power of a locked lease's machine; None when it has none at this moment."""
    found = await claims.lock_open(connection, lease_ids=[lease.id])
    return (found[0].id, await powers.ensure(connection, found[0].id, now=now)) if found else None


async def request_stop(
    connection: Connection,
    lease: Lease,
    locked: tuple[ClaimId, Power],
    *,
    why: str,
    actor: Actor,
    now: datetime,
) -> bool:
    """Have the machine stopped whose power is locked. False when it is off, or changing already."""
    claim_id, power = locked
    moved = step(power.state, PowerEvent.STOP)
    if not isinstance(moved, Moved):
        return False
    await powers.move(connection, claim_id, power.generation, moved, now=now)
    await journal.note_lease(connection, lease.id, event=Note.POWER_REQUESTED, why=why, actor=actor, now=now)
    return True


async def switch_price(connection: Connection, lease: Lease, at: datetime) -> Lease:
    """Change the price of a locked lease from `at` on, and with it the moment at which a limit of its cost is reached.

    Returns the lease with this change. One that is not ready any more keeps its prices.
    """
    switched_at = await leases.switch(connection, lease.id, at)
    if switched_at is None or lease.ready_at is None:
        return lease
    switched = replace(lease, switched_at=(*lease.switched_at, switched_at))
    await _set_limit(connection, switched)
    return switched


async def pause_bill(
    connection: Connection, lease: Lease, since: datetime, until: datetime, *, counts: bool
) -> Lease:
    """Let the time between two moments cost the customer of a locked lease nothing. Whether it `counts` for promises is
    stored with it.

    Returns the lease with this change. One that is not ready any more stays as it is.
    """
    paused_at = await leases.pause(connection, lease.id, since, until, counts=counts)
    if paused_at is None:
        return lease
    paused = replace(lease, paused_at=paused_at)
    await _set_limit(connection, paused)
    return paused


async def count_as_stopped(connection: Connection, lease: Lease, down: Downtime, at: datetime) -> None:
    """Charge a locked lease the price of a stopped machine from the last list on that showed it running; but from `at`
    on, and nothing before, if the time until then is not billed (`outage.py`).
    """
    consequence = CONSEQUENCES[down.cause]
    if not consequence.billed:
        lease = await pause_bill(connection, lease, down.since, at, counts=consequence.counts)
    await switch_price(connection, lease, down.since if consequence.billed else at)


async def _set_limit(connection: Connection, lease: Lease) -> None:
    """Store when a lease whose prices have changed reaches the limit of its cost."""
    if lease.ready_at is not None and lease.auto_release.spend_nano is not None:
        release_at = auto_release.release_at(lease.auto_release, lease.tariff(lease.ready_at))
        await leases.set_auto_release(connection, lease.id, lease.auto_release, release_at)


def _line(change: PowerChange, settled: Settle) -> tuple[Note, str]:
    """The line of the journal about how a change came out."""
    match settled.event:
        case PowerEvent.FOUND_ON:
            return (
                Note.POWER_CHANGED,
                "the provider lists the machine as running, so its full price applies again",
            )
        case PowerEvent.DONE:
            return Note.POWER_CHANGED, _DONE[change.state]
        case _:
            return Note.POWER_FAILED, f"{change.action} failed: {settled.why}"


_OFF = "it counts as stopped, at its price while stopped"
_RUNS = "its provider lists it as running; the time in which it listed it as failed is not billed"
_DONE = {
    PowerState.REBOOTING: "the machine was rebooted and answers again",
    PowerState.STOPPING: "the provider lists the machine as stopped",
    PowerState.STARTING: "the machine was started and answers again",
}
