"""Releases machines whose claim has ended.

A claim ends at once, and the API that ends it may not write to machines. So a machine without a claim can remain, for
which the provider still charges us; this loop finds it by its ended claim. `domain/machine.py` decides what happens to
it: an order that was not requested yet is dropped, a node stays, and any other machine is terminated; if a customer
was admitted to it, only after the proof that its GPU memory is overwritten. A failed machine was handled when it
failed.
"""

from datetime import timedelta

from control_plane.outcomes import machines
from reconciler.loop import Loop, Report
from reconciler.world import World

NAME = "release_machines"
CLAIMS_PER_ACTIVATION_MAX = 100


async def activate(world: World) -> Report:
    async with world.db.transaction() as connection:
        released = await machines.release_ended(
            connection, actor=world.actor(NAME), now=world.now(), limit=CLAIMS_PER_ACTIVATION_MAX
        )
    return Report(looked_at=released, acted_on=released, more=released == CLAIMS_PER_ACTIVATION_MAX)


LOOP = Loop(
    NAME,
    timedelta(seconds=1),
    activate,
    wakes=("terminate_machines", "erase_machines", "close_leases"),
)
