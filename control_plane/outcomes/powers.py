"""What it means that a customer's request to reboot, stop or start a machine has come out."""

from datetime import datetime

from control_plane.db import journal, leases, powers
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor
from control_plane.domain.journal import Note
from control_plane.domain.power import PowerChange, PowerEvent, PowerState, Settle, step
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
    await leases.lock(connection, [change.lease_id])
    if not await powers.move(connection, change.claim_id, change.generation, moved, why=settled.why, now=now):
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
