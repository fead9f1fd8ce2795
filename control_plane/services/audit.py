"""The audit log: writing what requests and administrators do, and reading it."""

from control_plane.db import audit
from control_plane.db.connection import Connection
from control_plane.db.engine import acting_for
from control_plane.domain.audit import Act
from control_plane.world import World


async def record(connection: Connection, world: World, act: Act, *, surely: bool) -> None:
    """Write the lines of an act in the transaction of its effect, which acts for the act's organization.

    Unless it `surely` took effect, it did when the transaction has written a row: one that found nothing to change is
    answered with a refusal, which has a line of its own.
    """
    if not surely and not await audit.has_changed(connection):
        return
    now = world.now()
    await audit.insert(connection, [act.line(world.new_id(), now)])
    for other in act.others:
        if act.organization_id is None:
            await audit.insert(connection, [act.line_of(other, world.new_id(), now)])
        else:
            async with acting_for(connection, other, back_to=act.organization_id):
                await audit.insert(connection, [act.line_of(other, world.new_id(), now)])
