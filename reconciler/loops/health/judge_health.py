"""Judges the health of verified machines: by what our rows say about them, and by what their agents report.

A machine is judged when something is wrong with it, or may be: its provider lists it as down or not at all, it failed a
GPU proof, its provider takes it back, an operator or its customer says so, its agent reported something notable, or it
has an open fault. For the others there is nothing to do, so a healthy fleet of any size costs one query.

A changed verdict is stored with its evidence, written to the journal, told to the customer, and opens a repair. Nothing
else follows from it here: `repair_machines` decides what is done.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.db import health
from control_plane.db.samples import StoredSample, settled
from control_plane.domain.health_watch import Watched, assess
from control_plane.outcomes import health as outcomes
from reconciler.health_readings import of_sample
from reconciler.loop import Loop, Report, each
from reconciler.worlds.health import HealthWorld

NAME = "judge_health"
MACHINES_PER_PAGE_MAX = 1_000
SAMPLES_PER_PAGE_MAX = 1_000
"""A sample has up to 64 KiB, which its machine decides, and hours of them wait when nobody has judged for so long."""


async def activate(world: HealthWorld) -> Report:
    report, after = Report(), None
    while True:
        async with world.db.reading() as connection:
            before = await settled(connection, now=world.now())
            page = await health.worth_judging(
                connection, samples_before=before, after=after, limit=MACHINES_PER_PAGE_MAX
            )
            ids = [watched.machine_id for watched in page]
            samples, more = await health.new_samples(
                connection, ids, before=before, limit=SAMPLES_PER_PAGE_MAX
            )
        report.looked_at += len(page)
        report.more |= more
        cases = [_Case(watched, samples.get(watched.machine_id, ())) for watched in page]
        await each(
            [case for case in cases if case.matters(world.now())],
            lambda case: _judge(world, case, report),
            report,
        )
        if len(page) < MACHINES_PER_PAGE_MAX:
            return report
        after = page[-1].machine_id


@dataclass(frozen=True, slots=True)
class _Case:
    """A machine, and what its agent reported since it was judged last."""

    watched: Watched
    samples: Sequence[StoredSample]

    def matters(self, now: datetime) -> bool:
        """Whether there is anything to store."""
        return bool(self.samples) or assess(self.watched, [], now).changes(self.watched)


async def _judge(world: HealthWorld, case: _Case, report: Report) -> None:
    readings = [of_sample(sample) for sample in case.samples]
    until = max((sample.received_at for sample in case.samples), default=None)
    async with world.db.transaction() as connection:
        found = await outcomes.judge(
            connection,
            case.watched.machine_id,
            readings,
            samples_until=until,
            repair_id=world.new_id(),
            actor=world.actor(NAME),
            now=world.now(),
        )
    report.count(found is not None and found.judgement.verdict is not case.watched.verdict)


LOOP = Loop(NAME, timedelta(seconds=5), activate, wakes=("look_at_machines", "repair_machines"))
