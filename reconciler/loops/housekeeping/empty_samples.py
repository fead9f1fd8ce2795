"""Empties the partitions of samples whose hours are over.

Samples are what machines measured lately. They are kept for two full hours and the one that runs; history is kept
elsewhere (docs/telemetry.md). Where it is written to files, an hour that is not written yet stays for an hour more,
which is as long as its partition is not needed for what comes. After that it is emptied, and the report has an error.
"""

from datetime import timedelta

from control_plane.db import sample_archives, samples
from control_plane.domain.sample_archive import hours_to_keep, lost
from reconciler.loop import Loop, Report
from reconciler.world import World

NAME = "empty_samples"


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        unwritten = await sample_archives.unwritten(connection)
        given_up = lost(unwritten, now)
        gone = [hour for hour in given_up if await sample_archives.has_samples(connection, hour)]
        await sample_archives.lose(connection, given_up, now=now)
        emptied = await samples.empty(connection, now=now, kept_hours=hours_to_keep(unwritten, now))
    errors = [
        f"the samples of {hour:%Y-%m-%d %H}:00 UTC were emptied before they were archived" for hour in gone
    ]
    return Report(looked_at=emptied, acted_on=emptied, errors=errors)


LOOP = Loop(NAME, timedelta(minutes=5), activate)
