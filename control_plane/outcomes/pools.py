"""How machines that wait for a lease are ended: those of pools, and those that were reserved in vain."""

from collections.abc import Sequence
from datetime import datetime

from control_plane.db import claims, machines
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor
from control_plane.domain.ids import MachineId
from control_plane.domain.machine import Machine, release
from control_plane.domain.pool_plan import Ending


async def end(
    connection: Connection, endings: Sequence[Ending], *, actor: Actor, now: datetime
) -> list[MachineId]:
    """End machines that no lease ever claimed; returns which ones. Locks them, and then looks for claims again."""
    locked = await machines.lock(connection, [each.machine_id for each in endings])
    moves = []
    for each in endings:
        machine = locked.get(each.machine_id)
        if machine is None or await claims.unreleased_of_machine(connection, machine.id):
            continue
        move = release(machine, admitted=False, why=each.why, now=now)
        if move is not None:
            moves.append(move)
    moved = await machines.move(connection, moves, actor=actor, now=now)
    return sorted(moved)


async def end_reserved(
    connection: Connection, found: Sequence[Machine], *, actor: Actor, now: datetime
) -> list[MachineId]:
    """End machines whose lease has ended, or recovered, before it needed them."""
    why = "the lease that it was reserved for does not need it any more"
    return await end(connection, [Ending(each.id, why) for each in found], actor=actor, now=now)
