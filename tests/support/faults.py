"""Machines on a stage that are not healthy."""

from dataclasses import replace
from datetime import datetime

from sqlalchemy import text

from control_plane.domain.machine import Machine
from control_plane.world import uuid7
from data_plane.documents.health import GpuHealth, Health
from tests.support.stage import Stage

GOOD = GpuHealth(0, uuid=None, bus_id="0000:3b:00.0", lost=False)
LOST = replace(GOOD, lost=True)
_TAKE_OUT = text("""
INSERT INTO maintenances (id, machine_id, since, taken_by, why, planned_at) VALUES (:id, :machine, :now, 'test', 'fan', :at)
""")
_WANTS_A_SPARE = text("""
INSERT INTO repairs (id, machine_id, opened_at, fault, step, step_at, why, due_at, spare_wanted_at)
VALUES (:id, :machine, :now, 'gpu_lost', 'replace', :now, '', :now, :now)
""")


def shows(stage: Stage, machine: Machine, card: GpuHealth) -> None:
    """What a look at the machine shows from now on about its only GPU."""
    document = Health(
        source="nvml",
        at=int(stage.clock.now().timestamp()),
        gpus=(card,),
        xids=(),
        xids_dropped=0,
        events=False,
        kernel_log="kmsg",
        readings=(),
    )
    stage.access.machine(machine.address or "").health = document


async def taken_out(stage: Stage, machine: Machine, planned_at: datetime) -> None:
    """An operator takes it out for work that is planned."""
    values = {"id": uuid7(), "machine": machine.id, "now": stage.clock.now(), "at": planned_at}
    async with stage.db.transaction() as connection:
        await connection.execute(_TAKE_OUT, values)


async def planned_by_provider(stage: Stage, machine: Machine, planned_at: datetime) -> None:
    """Its provider announces work that is planned."""
    assert machine.provider_ref is not None
    stage.cloud.plan_work(machine.provider_ref, planned_at)


async def wants_a_spare(stage: Stage, machine: Machine) -> None:
    """It is under repair, and another one is to be ready before it is taken away."""
    values = {"id": uuid7(), "machine": machine.id, "now": stage.clock.now()}
    async with stage.db.transaction() as connection:
        await connection.execute(_WANTS_A_SPARE, values)
