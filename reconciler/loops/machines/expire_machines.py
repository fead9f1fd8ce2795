"""Gives up machines that are past a deadline, so that their leases can be served elsewhere.

Each state before the customer's admission has a deadline: for a launch whose answer was lost and whose machine never
appeared, a machine that never boots, one that boots but never answers, and a verified one to which its customer
cannot be admitted. A machine that may exist moves to TERMINATING and not to GONE: it may still appear, and is then
terminated.

An order that the provider does not accept, because it throttles us or is unreachable, is put back repeatedly. It has
a deadline too; otherwise a lease would wait for one account while others have stock.
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
    MachineState.BOOTING: (FailReason.NEVER_BOOTED, "it did not run with an address in time"),
    MachineState.BOOTSTRAPPING: (FailReason.UNREACHABLE, "it could not be reached and checked in time"),
}
_NOT_ADMITTED = MachineFailure(
    MachineEvent.FAILED, FailReason.UNREACHABLE, "its customer could not be admitted in time"
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
                connection, claim.machine_id, _NOT_ADMITTED, actor=world.actor(NAME), now=now
            )
    return report


def _failure(machine: Machine) -> MachineFailure:
    if machine.state is MachineState.INTENDED:
        minutes = int(NOT_TAKEN_AFTER.total_seconds() // 60)
        return MachineFailure(
            MachineEvent.NEVER_ASKED,
            FailReason.NOT_TAKEN,
            f"{machine.account} did not accept the order within {minutes} minutes",
            gone_evidence="nothing was bought: every request was put back",
        )
    reason, why = _STUCK[machine.state]
    return MachineFailure(MachineEvent.FAILED, reason, why)


LOOP = Loop(NAME, timedelta(seconds=5), activate, wakes=("place_leases", "terminate_machines"))
