"""What it means that a machine is no longer down: it runs again, or it counts as stopped by its customer."""

from datetime import datetime

from control_plane.db import downtimes, powers
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor
from control_plane.domain.downtime import CameUp, can_be_started
from control_plane.domain.ids import MachineId
from control_plane.domain.lease import Lease, LeaseState
from control_plane.domain.machine import Machine
from control_plane.domain.outage import CONSEQUENCES, SEEN_LASTS, Cause, Consequence
from control_plane.domain.power import PowerEvent, step
from control_plane.domain.transitions import Moved
from control_plane.outcomes import machines
from control_plane.outcomes import powers as power_outcomes

_AGAIN = "its provider lists it as running; the time in between is charged at the price while stopped"
_AGAIN_FREE = "its provider no longer lists it as down; the time in which it did is not billed"
_OFF = (
    "its provider has listed it as stopped for an hour: it counts as stopped since then, and can be started"
)


async def came_up(connection: Connection, up: CameUp, *, actor: Actor, now: datetime) -> bool:
    """End a machine's downtime: the time since it was last known to run, until a list showed it so again, costs what
    `outage.py` says. False when it was not down, was claimed or went down again meanwhile.
    """
    locked = await machines.lock(connection, up.id)
    if locked is None or locked.machine.down_since is None or locked.machine.back_since != up.since:
        return False
    since, until = locked.machine.sighted_at or now, up.since or now
    consequence = await _charge_downtime(connection, locked, since, until)
    why = _AGAIN if consequence.billed else _AGAIN_FREE
    await downtimes.end(connection, up.id, why=why, actor=actor, now=now)
    return True


async def seen_working(connection: Connection, machine_id: MachineId, *, at: datetime) -> bool:
    """Bill a machine that its provider lists as down, and that we saw working at `at`, until then.

    The time since it was last known to run is billed if we looked at it shortly before, or else as time in which it did
    not run (`outage.py`). False when it is not down, or went down afterwards.
    """
    locked = await machines.lock(connection, machine_id)
    if locked is None or locked.machine.down_since is None or not locked.machine.down_since <= at:
        return False
    since, down_since = locked.machine.sighted_at or at, locked.machine.down_since
    if since < down_since or at - since > SEEN_LASTS:
        await _charge_downtime(connection, locked, since, at)
    await downtimes.seen_working(connection, machine_id, at=at)
    return True


async def kept_off(connection: Connection, machine_id: MachineId, *, actor: Actor, now: datetime) -> bool:
    """Let a machine that is down count as stopped (`powers.count_as_stopped`), if a customer uses it who can start it.
    False when it can only be given up.
    """
    locked = await machines.lock(connection, machine_id)
    if locked is None or locked.machine.down_since is None:
        return False
    used = [claim for claim in locked.claims if claim.admitted_at is not None]
    offered = await powers.offered(connection, machine_id)
    if len(used) != 1 or not can_be_started(locked.leases[used[0].lease_id].kind, offered):
        return False
    (claim,) = used
    power = await powers.ensure(connection, claim.id, now=now)
    moved = step(power.state, PowerEvent.FOUND_OFF)
    if isinstance(moved, Moved):  # Otherwise its customer's request is under way, and comes out by itself.
        await powers.move(connection, claim.id, power.generation, moved, now=now)
        downtime = downtimes.Downtime(locked.machine.sighted_at or now, _cause(locked.machine))
        await power_outcomes.count_as_stopped(connection, locked.leases[claim.lease_id], downtime, now)
        await downtimes.end(connection, machine_id, why=_OFF, actor=actor, now=now)
    return True


async def _charge_downtime(
    connection: Connection, locked: machines.Locked, since: datetime, until: datetime
) -> Consequence:
    """Let the time in which a locked machine did not run cost its customers what `outage.py` says."""
    consequence = CONSEQUENCES[_cause(locked.machine)]
    for lease in locked.leases.values():
        if lease.state is not LeaseState.READY or since >= until:  # We saw it work since lists show it back.
            continue
        if not consequence.billed:
            await power_outcomes.pause_bill(connection, lease, since, until, counts=consequence.counts)
        elif not _is_off(lease):
            off = await power_outcomes.switch_price(connection, lease, since)
            await power_outcomes.switch_price(connection, off, until)
    return consequence


def _cause(machine: Machine) -> Cause:
    return machine.down_cause or Cause.UNCLEAR


def _is_off(lease: Lease) -> bool:
    """Whether the price while stopped applies."""
    return len(lease.switched_at) % 2 == 1
