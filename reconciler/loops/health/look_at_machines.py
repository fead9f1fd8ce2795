"""Looks at machines over SSH when something may be wrong with them: what we see ourselves confirms or ends a fault.

A machine that reports while its provider lists it as down is looked at as well: what works is billed, whatever a list
says (`domain/outage.py`).

A machine that cannot be reached has not failed (law 5): it is looked at again later, and `splitplane lease health` says
why we could not look. Its open faults stay as they are meanwhile.
"""

import asyncio
from datetime import timedelta
from uuid import UUID

from control_plane.db import health, machines
from control_plane.db.health import ToLookAt
from control_plane.domain.ids import AccountName
from control_plane.outcomes import downtimes
from control_plane.outcomes import health as outcomes
from data_plane.access.port import AccessError, Target
from data_plane.inspection.health import read_health_document
from reconciler.health_readings import of_look
from reconciler.loop import AccountLoop, Report, each
from reconciler.worlds.health import HealthWorld

NAME = "look_at_machines"
MACHINES_PER_ACTIVATION_MAX = 16
HELD_FOR = timedelta(minutes=2)
LOOK_SECONDS = 60
AGAIN_AFTER = timedelta(minutes=1)
"""When a look could not be made."""


async def activate(world: HealthWorld, account: AccountName) -> Report:
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        due = await health.take_due_looks(
            connection, account, token=token, until=now + HELD_FOR, now=now, limit=MACHINES_PER_ACTIVATION_MAX
        )
    report = Report(looked_at=len(due), more=len(due) == MACHINES_PER_ACTIVATION_MAX)
    await each(due, lambda machine: _look(world, machine, token, report), report)
    return report


async def _look(world: HealthWorld, machine: ToLookAt, token: UUID, report: Report) -> None:
    if machine.address is None or machine.host_key is None:
        raise ValueError(f"{machine.machine_id} is verified without an address or a host key")
    target = Target(machine.address, machine.ssh_port, machine.host_key, machine.launch_key)
    try:
        async with asyncio.timeout(LOOK_SECONDS), world.access.connect(target) as session:
            document = await read_health_document(session, world.agent)
    except (AccessError, TimeoutError) as error:
        why = f"{type(error).__name__}: {error}"
        due_at = world.now() + AGAIN_AFTER
        async with world.db.statement() as connection:
            await health.give_back_look(
                connection, machine.machine_id, token=token, due_at=due_at, why_not=why
            )
        report.notes.append(f"{machine.launch_key}: {why}")
        return
    now = world.now()
    async with world.db.transaction() as connection:
        await machines.lock(connection, [machine.machine_id])  # Before its health, as for every judgement.
        if not await health.give_back_look(connection, machine.machine_id, token=token):
            return  # Another worker has it now, and looks again.
        found = await outcomes.judge(
            connection,
            machine.machine_id,
            [of_look(document, now)],
            repair_id=world.new_id(),
            actor=world.actor(NAME),
            now=now,
        )
    if found is not None and not found.looked:
        async with world.db.transaction() as connection:  # Leases are locked before their machine.
            await downtimes.seen_working(connection, machine.machine_id, at=now)
    report.count(found is not None)


LOOP = AccountLoop(NAME, timedelta(seconds=15), activate, wakes=("repair_machines",))
