"""Gives up attempts that are past their deadline, so that their lease can try elsewhere.

A launch whose answer was lost and whose machine never showed, a machine that never boots, one that
boots and never answers: each state on the way has a time after which it counts as stuck. The attempt
goes to ENDING, not to GONE: its machine may still appear, and then it is ended.

An order that the provider does not take, because it throttles us or cannot be reached, is put back
again and again. It is given up too, or the lease would wait for one account while others have stock.
"""

from datetime import timedelta

from control_plane.db import machines
from control_plane.domain.machine import FailReason, Machine, MachineEvent, MachineState
from control_plane.services import attempts
from reconciler.loop import Loop, Report, World

NAME = "expire_machines"
EXPIRED_PER_ACTIVATION_MAX = 100
NOT_TAKEN_AFTER = timedelta(minutes=5)

_STUCK = {
    MachineState.LAUNCHING: (
        FailReason.LAUNCH_ANSWER_LOST,
        "no complete list showed its launch key in time",
    ),
    MachineState.BOOTING: (FailReason.NEVER_BOOTED, "it did not run and show an address in time"),
    MachineState.BOOTSTRAPPING: (FailReason.UNREACHABLE, "it could not be reached and set up in time"),
}


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        stuck = await machines.stuck(
            connection, now=now, intended_before=now - NOT_TAKEN_AFTER, limit=EXPIRED_PER_ACTIVATION_MAX
        )
    report = Report(looked_at=len(stuck), more=len(stuck) == EXPIRED_PER_ACTIVATION_MAX)
    for machine in stuck:
        async with world.db.transaction() as connection:
            if await attempts.fail(
                connection,
                machine.lease_id,
                machine.id,
                _failed(machine),
                actor=world.actor(NAME),
                now=now,
                seen=machine.generation,
            ):
                report.acted_on += 1
    return report


def _failed(machine: Machine) -> attempts.Failed:
    if machine.state is MachineState.INTENDED:
        minutes = int(NOT_TAKEN_AFTER.total_seconds() // 60)
        return attempts.Failed(
            MachineEvent.NEVER_ASKED,
            FailReason.NOT_TAKEN,
            f"{machine.account} did not take the order for {minutes} minutes",
            gone_evidence="nothing was bought: every request was put back",
        )
    reason, why = _STUCK[machine.state]
    return attempts.Failed(MachineEvent.FAILED, reason, why)


LOOP = Loop(NAME, timedelta(seconds=5), activate, wakes=("place_leases", "terminate_machines"))
