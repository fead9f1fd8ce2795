"""Repairs machines that are not healthy, one step of the ladder at a time (`control_plane/domain/repair.py`).

Every step is stored with its reason before the next one is decided, and the customer is told before anything interrupts
them. Taking a machine away has a bound per run and a breaker per account and region, and an account that is not armed
only shows what would be done (law 5).
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from control_plane.db import repairs
from control_plane.db.repairs import Repair
from control_plane.outcomes import repairs as outcomes
from control_plane.outcomes.repairs import Done
from reconciler.loop import Loop, Report, each
from reconciler.worlds.health import HealthWorld

NAME = "repair_machines"
REPAIRS_PER_ACTIVATION_MAX = 100
HELD_FOR = timedelta(minutes=1)


async def activate(world: HealthWorld) -> Report:
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        due = await repairs.take_due(
            connection, token=token, until=now + HELD_FOR, now=now, limit=REPAIRS_PER_ACTIVATION_MAX
        )
    report = Report(looked_at=len(due), more=len(due) == REPAIRS_PER_ACTIVATION_MAX)
    run = _Run(world, token, report)
    for repair in due:
        # One after the other, so that each decision counts the machines that were taken away before.
        await each([repair], run.repair, report)
    return report


@dataclass
class _Run:
    """What the repairs of one activation share."""

    world: HealthWorld
    token: UUID
    report: Report
    taken: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """How many machines of each account and region were taken away."""

    async def repair(self, repair: Repair) -> None:
        async with self.world.db.transaction() as connection:
            done = await outcomes.advance(
                connection,
                repair,
                taken=self.taken,
                token=self.token,
                actor=self.world.actor(NAME),
                now=self.world.now(),
            )
        if done is Done.TAKEN_AWAY:
            self.report.notes.append(f"{repair.machine_id}: taken away")
        self.report.count(done is not Done.WAITED)


LOOP = Loop(
    NAME,
    timedelta(seconds=15),
    activate,
    wakes=("place_leases", "terminate_machines", "release_machines", "leave_nodes"),
)
