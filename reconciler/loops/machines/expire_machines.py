"""Gives up machines that are past a deadline, so that whoever waits for them can be served elsewhere.

A launch whose answer was lost and whose machine never showed, a machine that never boots, one that boots
and never answers, one that is verified and cannot be made to let its customer in: each state on the way has a
time after which it counts as stuck. A machine that may exist goes to TERMINATING, not to GONE: it may still
appear, and then it is terminated.

An order that the provider does not take, because it throttles us or cannot be reached, is put back
again and again. It is given up too, or a lease would wait for one account while others have stock.
"""

from datetime import timedelta

from control_plane.db import claims, machines
from control_plane.domain.failure import FailReason
from control_plane.domain.machine import Machine, MachineEvent, MachineFailure, MachineState
from control_plane.outcomes import machines as outcomes
from reconciler.loop import Loop, Report
from reconciler.world import World

NAME = "expire_machines"
EXPIRED_PER_ACTIVATION_MAX = 100
NOT_TAKEN_AFTER = timedelta(minutes=5)

_STUCK = {
    MachineState.LAUNCHING: (
        FailReason.LAUNCH_ANSWER_LOST,
        "no complete list showed its launch key in time",
    ),
    MachineState.BOOTING: (FailReason.NEVER_BOOTED, "it did not run and show an address in time"),
    MachineState.BOOTSTRAPPING: (FailReason.UNREACHABLE, "it could not be reached and checked in time"),
}
_NOT_LET_IN = MachineFailure(
    MachineEvent.FAILED, FailReason.UNREACHABLE, "its customer could not be let in in time"
)


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        stuck = await machines.stuck(
            connection, now=now, intended_before=now - NOT_TAKEN_AFTER, limit=EXPIRED_PER_ACTIVATION_MAX
        )
        overdue = await claims.overdue(connection, now=now, limit=EXPIRED_PER_ACTIVATION_MAX)
    report = Report(
        looked_at=len(stuck) + len(overdue),
        more=EXPIRED_PER_ACTIVATION_MAX in (len(stuck), len(overdue)),
    )
    for machine in stuck:
        async with world.db.transaction() as connection:
            report.acted_on += await outcomes.fail(
                connection,
                machine.id,
                _failure(machine),
                actor=world.actor(NAME),
                now=now,
                seen=machine.generation,
            )
    for claim in overdue:
        async with world.db.transaction() as connection:
            report.acted_on += await outcomes.fail(
                connection, claim.machine_id, _NOT_LET_IN, actor=world.actor(NAME), now=now
            )
    return report


def _failure(machine: Machine) -> MachineFailure:
    if machine.state is MachineState.INTENDED:
        minutes = int(NOT_TAKEN_AFTER.total_seconds() // 60)
        return MachineFailure(
            MachineEvent.NEVER_ASKED,
            FailReason.NOT_TAKEN,
            f"{machine.account} did not take the order for {minutes} minutes",
            gone_evidence="nothing was bought: every request was put back",
        )
    reason, why = _STUCK[machine.state]
    return MachineFailure(MachineEvent.FAILED, reason, why)


LOOP = Loop(NAME, timedelta(seconds=5), activate, wakes=("place_leases", "terminate_machines"))
