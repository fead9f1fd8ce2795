"""Writes what machines measured to the operator's stores, by Prometheus remote write.

Each target has a cursor in the order in which samples were received, which moves on when the store took them. So a
store that was away gets what is still kept, oldest first, and a crash sends a batch again, which changes nothing there.
A store that calls samples wrong (400, such as for samples older than what it has) gets them no second time, as the
protocol demands, and gets those of other machines without them (`reconciler/remote_write/delivering.py`). A target that
is new begins now.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from control_plane.db import sample_exports, samples
from control_plane.db.samples import Cursor, NamedSample
from reconciler.loop import Loop, Report
from reconciler.remote_write.delivering import StoreBusyError, deliver
from reconciler.remote_write.encoding import HEADERS
from reconciler.worlds.telemetry import Target, TelemetryWorld

NAME = "write_samples"
SAMPLES_PER_REQUEST_MAX = 200
"""About 60,000 values of machines with 8 GPUs."""
REQUESTS_PER_ACTIVATION_MAX = 20
"""For each target."""


async def activate(world: TelemetryWorld) -> Report:
    errors: list[str] = []
    notes: list[str] = []
    looked_at, more = 0, False
    for target in world.targets:
        for _ in range(REQUESTS_PER_ACTIVATION_MAX):
            written, why = await _write(world, target)
            looked_at += written
            if why is not None:
                (errors if written == 0 else notes).append(f"{target.name}: {why}")
            more = written == SAMPLES_PER_REQUEST_MAX
            if not more:
                break
    return Report(looked_at=looked_at, acted_on=looked_at, errors=errors, notes=notes, more=more)


async def _write(world: TelemetryWorld, target: Target) -> tuple[int, str | None]:
    """Write one request. Returns for how many samples the cursor moved on, and what went wrong."""
    async with world.db.transaction() as connection:
        before = await samples.settled(connection, now=world.now())
        cursor = await sample_exports.cursor(connection, target.name, begin=before)
        found = await samples.received_since(connection, cursor, before=before, limit=SAMPLES_PER_REQUEST_MAX)
    if not found:
        return 0, None
    try:
        delivered = await deliver(found, partial(_put, world, target))
    except OSError as error:
        return 0, f"no answer: {error}"
    except StoreBusyError as error:
        return 0, f"it answers {error}; the samples wait"
    last = found[-1]
    async with world.db.transaction() as connection:
        await sample_exports.move(
            connection, target.name, cursor, Cursor(last.received_at, last.claim_id, last.sequence)
        )
    why = f"it answers {delivered.status}; {delivered.refused} samples are not sent again"
    return len(found), why if delivered.refused else None


async def _put(world: TelemetryWorld, target: Target, found: Sequence[NamedSample]) -> int:
    return await world.post(target.url, target.token_path, world.encoder.encode(found), HEADERS)


LOOP = Loop(NAME, timedelta(seconds=5), activate)
