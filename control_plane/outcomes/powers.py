"""What it means that a customer's request to reboot, stop or start a machine is taken, and that it has come out."""

from dataclasses import replace
from datetime import datetime

from control_plane.db import journal, leases, powers
from control_plane.db.connection import Connection
from control_plane.domain import auto_release
from control_plane.domain.actor import Actor
from control_plane.domain.ids import ClaimId
from control_plane.domain.journal import Note
from control_plane.domain.lease import Lease
from control_plane.domain.power import PowerChange, PowerEvent, PowerState, Settle, step, switches_price
from control_plane.domain.transitions import Moved


async def move(
    connection: Connection,
    lease: Lease,
    claim_id: ClaimId,
    seen: int,
    moved: Moved[PowerState, PowerEvent],
    *,
    why: str | None = None,
    now: datetime,
) -> bool:
    """Apply a move of the power of a locked lease's machine, and change its price where the move does.

    False when it has moved meanwhile.
    """
    if not await powers.move(connection, claim_id, seen, moved, why=why, now=now):
        return False
    if switches_price(moved):
        await _switch_price(connection, lease, now)
    return True


async def _switch_price(connection: Connection, lease: Lease, now: datetime) -> None:
    """Change its price from now on, and with it the moment at which a limit of its cost is reached."""
    at = await leases.switch(connection, lease.id, now=now)
    if at is None or lease.ready_at is None or lease.auto_release.spend_nano is None:
        return
    switched = replace(lease, switched_at=(*lease.switched_at, at))
    release_at = auto_release.release_at(lease.auto_release, switched.tariff(lease.ready_at))
    await leases.set_auto_release(connection, lease.id, lease.auto_release, release_at)


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
    if lease is None or not await move(
        connection, lease, change.claim_id, change.generation, moved, why=settled.why, now=now
    ):
        return False
    done = settled.event is PowerEvent.DONE
    note = Note.POWER_CHANGED if done else Note.POWER_FAILED
    why = _DONE[moved.before] if done else f"{change.action} failed: {settled.why}"
    await journal.note_lease(connection, change.lease_id, event=note, why=why, actor=actor, now=now)
    return True


_DONE = {
    PowerState.REBOOTING: "the machine was rebooted and answers again",
    PowerState.STOPPING: "the provider lists the machine as stopped",
    PowerState.STARTING: "the machine was started and answers again",
}
