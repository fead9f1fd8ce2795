"""Lets machines go whose claim ended: the machine's side of a release.

Ending a claim is the customer's side. It takes effect at once, and whoever ends it needs no machine and may not
write one. So a machine can be left behind that nobody has a right to and that a provider goes on charging for;
this loop finds it by its claim. What becomes of it is decided by its purpose (`domain/machine.py`): an order that
nobody took yet is dropped, a node stays, any other machine is terminated, after the proof that its GPU memory is
overwritten where a customer was on it. A machine that failed was dealt with when it failed.
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
