"""Learns from passed proofs how fast honest GPUs are, so that cheating gets harder.

References begin as estimates from data sheets, with a wide band. Every passed proof measures its GPUs by our
clock. A rate that at least two unrelated providers agree on replaces the estimate, and the estimate returns when
they no longer agree (`data_plane/proof/learning.py` has the rules and their limits). Each run recomputes the whole
table from the proofs of the last weeks, so a crash loses nothing, and a wrong reference disappears with the proofs
that it came from.
"""

from datetime import timedelta

from control_plane.db import references
from control_plane.db.references import Learnt
from data_plane.proof.challenger.learning import Lesson, Sample, learn
from data_plane.proof.challenger.reference import TIMED_PHASES, driver_major
from reconciler.loop import Loop, Report
from reconciler.references import of_driver
from reconciler.world import World

NAME = "learn_references"
LEARNT_FROM = timedelta(days=14)
DEVICES_PER_ACTIVATION_MAX = 200_000
"""How many rates to read, each the median of one device in one phase."""
DEVICES_OF_ONE_MAX = 1_000
"""How many of them may come from one provider for one model and phase."""


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        rates = await references.device_rates(
            connection,
            since=now - LEARNT_FROM,
            each_max=DEVICES_OF_ONE_MAX,
            limit=DEVICES_PER_ACTIVATION_MAX,
        )
    lessons = learn(
        Sample(
            rate.provider, rate.device_uuid, rate.gpu_model, driver_major(rate.driver), rate.phase, rate.rate
        )
        for rate in rates
        if rate.phase in TIMED_PHASES
    )
    today = now.date().isoformat()
    learnt = [row for lesson in lessons if (row := _learnt(lesson, today)) is not None]
    async with world.db.transaction() as connection:
        changed = await references.replace(connection, learnt)
    report = Report(looked_at=len(rates), acted_on=changed)
    if len(rates) == DEVICES_PER_ACTIVATION_MAX:
        report.errors.append(f"more than {DEVICES_PER_ACTIVATION_MAX:,} rates; the rest was not read")
    report.notes += [
        f"{lesson.model}, {of_driver(lesson.driver_major)}, {lesson.phase}: {lesson.reason}"
        for lesson in lessons
        if lesson.reason is not None
    ]
    return report


def _learnt(lesson: Lesson, today: str) -> Learnt | None:
    """The reference that a lesson results in; None when the providers do not agree."""
    if lesson.rate is None:
        return None
    return Learnt(lesson.model, lesson.driver_major, lesson.phase, lesson.rate, len(lesson.standings), today)


LOOP = Loop(NAME, timedelta(hours=1), activate)
