"""Closes ending leases whose machines are all confirmed gone. Until then a lease is an open liability (law 3)."""

from datetime import timedelta

from control_plane.db import lease_endings, leases
from control_plane.domain.lease import LeaseEvent, LeaseMove, step
from control_plane.domain.transitions import Moved
from reconciler import traced
from reconciler.loop import Loop, Report
from reconciler.world import World

NAME = "close_leases"
CLOSED_PER_ACTIVATION_MAX = 200


async def activate(world: World) -> Report:
    async with world.db.transaction() as connection:
        finished = await lease_endings.take_finished(connection, limit=CLOSED_PER_ACTIVATION_MAX)
        moves = []
        for lease in finished:
            moved = step(lease.state, LeaseEvent.MACHINES_GONE)
            if isinstance(moved, Moved):
                moves.append(LeaseMove(lease.id, lease.generation, moved))
        closed = await leases.move(connection, moves, actor=world.actor(NAME), now=world.now())
        steps = await traced.of_leases(world, connection, NAME, sorted(closed))
    for lease_id in closed:
        steps.note(lease_id, LeaseEvent.MACHINES_GONE)
    return Report(
        looked_at=len(finished), acted_on=len(closed), more=len(finished) == CLOSED_PER_ACTIVATION_MAX
    )


LOOP = Loop(NAME, timedelta(seconds=2), activate)
