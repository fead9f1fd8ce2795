"""Empties the partitions of samples whose hours are over.

Samples are what machines measured lately. They are kept for `KEPT_HOURS` full hours and the one that runs; history is
kept elsewhere (docs/telemetry.md).
"""

from datetime import timedelta

from control_plane.db import samples
from reconciler.loop import Loop, Report
from reconciler.world import World

NAME = "empty_samples"
KEPT_HOURS = 2


async def activate(world: World) -> Report:
    async with world.db.transaction() as connection:
        emptied = await samples.empty(connection, now=world.now(), kept_hours=KEPT_HOURS)
    return Report(looked_at=emptied, acted_on=emptied)


LOOP = Loop(NAME, timedelta(minutes=5), activate)
