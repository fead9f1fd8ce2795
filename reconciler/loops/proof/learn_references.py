"""Learns how fast honest GPUs are from the proofs that were passed, so that cheats have less room.

References begin as estimates from data sheets, with a wide band. Every passed proof says how fast its GPUs
were, on our clock. What at least two unrelated providers show alike replaces the estimate; what they no longer
agree on goes back to it (`data_plane/proof/learning.py` has the rules and their limits). The table is made
anew each time from the proofs of the last weeks: a crash loses nothing, and a wrong reference leaves with the
proofs that it came from.
"""

from datetime import timedelta

from control_plane.db import references
from control_plane.db.references import Learnt
from data_plane.proof.learning import Sample, learn
from data_plane.proof.reference import TIMED_PHASES, driver_major
from reconciler.loop import Loop, Report, World
from reconciler.references import of_driver

NAME = "learn_references"
LEARNT_FROM = timedelta(days=14)
DEVICES_PER_ACTIVATION_MAX = 200_000
"""Medians of one device in one phase."""
DEVICES_OF_ONE_MAX = 1_000
"""Of those, of one provider's devices of one model in one phase."""


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        shown = await references.shown(
            connection,
            since=now - LEARNT_FROM,
            each_max=DEVICES_OF_ONE_MAX,
            limit=DEVICES_PER_ACTIVATION_MAX,
        )
    lessons = learn(
        Sample(
            one.provider,
            one.device_uuid,
            one.gpu_model,
            driver_major(one.driver),
            one.phase,
            one.rate,
        )
        for one in shown
        if one.phase in TIMED_PHASES
    )
    learnt = [
        Learnt(
            lesson.model,
            lesson.driver_major,
            lesson.phase,
            lesson.rate,
            len(lesson.standings),
            now.date().isoformat(),
        )
        for lesson in lessons
        if lesson.rate is not None
    ]
    async with world.db.transaction() as connection:
        changed = await references.replace(connection, learnt)
    report = Report(looked_at=len(shown), acted_on=changed)
    if len(shown) == DEVICES_PER_ACTIVATION_MAX:
        report.errors.append(f"more than {DEVICES_PER_ACTIVATION_MAX:,} readings; the rest was not looked at")
    report.notes += [
        f"{lesson.model}, {of_driver(lesson.driver_major)}, {lesson.phase}: {lesson.reason}"
        for lesson in lessons
        if lesson.reason is not None
    ]
    return report


LOOP = Loop(NAME, timedelta(hours=1), activate)
