"""Reads what providers announce about machines: reboots, stops, retirements of hardware.

Once every five minutes for each account whose provider tells, by one complete list, which draws from the budget of its
lists of machines. A list that fails changes nothing, and is an error of the loop: its next one decides. What a list no
longer has ends when a second one lacks it too. `control_plane/domain/planned_work.py` decides what a list changes.

From then on it is as if an operator had planned the work: the machine is unfit for new leases, its customer is told
when, and is given another one then where the terms promise it (`control_plane/domain/repair.py`), and the clocks of
promises know when it was announced.
"""

from datetime import timedelta

from control_plane.db import maintenances
from control_plane.domain.ids import AccountName
from control_plane.outcomes import planned_work
from providers.base import ProviderError
from providers.optional import TellsPlannedWork
from reconciler.loop import AccountLoop, Report
from reconciler.worlds.machines import MachineWorld

NAME = "read_planned_work"
EVERY = timedelta(minutes=5)


async def activate(world: MachineWorld, account: AccountName) -> Report:
    provider = world.accounts[account]
    if not provider.capabilities.planned_work or not isinstance(provider, TellsPlannedWork):
        return Report()
    asked_at = world.now()
    next_at = asked_at + EVERY
    async with world.db.transaction() as connection:
        if not await maintenances.take_turn(connection, account, now=asked_at, next_at=next_at):
            return Report()
    try:
        listed = await provider.planned_work()
    except ProviderError as error:
        return Report(errors=[f"{type(error).__name__}: {error}"])
    async with world.db.transaction() as connection:
        if not await maintenances.keeps_turn(connection, account, next_at=next_at):
            return Report(notes=["another replica has read a newer list meanwhile, so this one is dropped"])
        found = await planned_work.apply(
            connection, account, listed, world.new_id, actor=world.actor(NAME), now=world.now()
        )
    report = Report(looked_at=len(listed), acted_on=found.count)
    if found.left_out:
        report.notes.append(
            f"{found.left_out} announcements do not count: impossible times, or too many of a machine"
        )
    return report


LOOP = AccountLoop(NAME, EVERY, activate, lasts=timedelta(minutes=2), wakes=("judge_health",))
