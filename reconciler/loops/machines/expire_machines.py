"""Gives up machines that are past a deadline, so that their leases can be served elsewhere.

Each state before the customer's admission has a deadline: for a launch whose answer was lost and whose machine never
appeared, a machine that never boots, one that boots but never answers, and a verified one to which its customer
cannot be admitted. The last one waits while the machine is suspect because of its GPU proof, for a while: it admits
nobody then, and is challenged again soon. A machine that may exist moves to TERMINATING and not to GONE: it may still
appear, and is then terminated.

An order that the provider does not accept, because it throttles us or is unreachable, is put back repeatedly. It has
a deadline too; otherwise a lease would wait for one account while others have stock. So has a claim on a slot: it is
given up without its node.

A machine that nobody looked at since its deadline gets another one, because an outage of ours says nothing about it
(`domain/deadline.py`).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from control_plane.db import claims, machine_deadlines
from control_plane.domain import deadline
from control_plane.domain.deadline import Extend, GiveUp, OverdueClaim, OverdueMachine, Wait
from control_plane.domain.ids import ClaimId, MachineId
from control_plane.domain.machine import MachineFailure
from control_plane.domain.proof import DOUBT_LASTS
from control_plane.outcomes import claims as claim_outcomes
from control_plane.outcomes import machines as outcomes
from reconciler.loop import Loop, Report, each
from reconciler.world import World

NAME = "expire_machines"
EXPIRED_PER_ACTIVATION_MAX = 100


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        late = await machine_deadlines.overdue(connection, now=now, limit=EXPIRED_PER_ACTIVATION_MAX)
        waiting = await claims.overdue(
            connection, now=now, suspect_before=now - DOUBT_LASTS, limit=EXPIRED_PER_ACTIVATION_MAX
        )
    report = Report(looked_at=len(late) + len(waiting))
    extended = await _expire_machines(world, late, report, now)
    extended += await _expire_claims(world, waiting, report, now)
    if extended:
        minutes = int(deadline.TRIED_FIRST.total_seconds() // 60)
        report.notes.append(
            f"{extended} past their deadline were not attended to, and get {minutes} more minutes"
        )
    # A full batch of those for which it is too early to decide is not worth another look at once.
    full = EXPIRED_PER_ACTIVATION_MAX in (len(late), len(waiting))
    report.more = full and extended + report.acted_on > 0 and not report.errors
    return report


async def _expire_machines(
    world: World, late: Sequence[OverdueMachine], report: Report, now: datetime
) -> int:
    """Decide on machines past their deadline; returns how many got another one."""
    extended: list[MachineId] = []
    for machine in late:
        match deadline.of_machine(machine, now):
            case GiveUp(failure=failure):
                await each([machine], partial(_fail, world, report, failure), report)
            case Extend():
                extended.append(machine.id)
            case Wait():
                pass
    if extended:
        async with world.db.transaction() as connection:
            await machine_deadlines.extend(connection, extended, until=now + deadline.TRIED_FIRST, now=now)
    return len(extended)


async def _fail(world: World, report: Report, failure: MachineFailure, machine: OverdueMachine) -> None:
    actor, seen, now = world.actor(NAME), machine.generation, world.now()
    async with world.db.transaction() as connection:
        failed = await outcomes.fail(connection, machine.id, failure, actor=actor, now=now, seen=seen)
    report.acted_on += failed


async def _expire_claims(world: World, waiting: Sequence[OverdueClaim], report: Report, now: datetime) -> int:
    """Decide on claims whose customers were not admitted in time; returns how many got another deadline."""
    extended: list[ClaimId] = []
    for claim in waiting:
        match deadline.of_claim(claim, now):
            case GiveUp(failure=failure):
                await each([claim], partial(_give_up, world, report, failure), report)
            case Extend():
                extended.append(claim.id)
            case Wait():
                pass
    if extended:
        async with world.db.transaction() as connection:
            await claims.extend(connection, extended, until=now + deadline.TRIED_FIRST, now=now)
    return len(extended)


async def _give_up(world: World, report: Report, failure: MachineFailure, claim: OverdueClaim) -> None:
    now = world.now()
    async with world.db.transaction() as connection:
        given_up = await claim_outcomes.give_up(connection, claim, failure, actor=world.actor(NAME), now=now)
    report.acted_on += given_up


LOOP = Loop(NAME, timedelta(seconds=5), activate, wakes=("place_leases", "terminate_machines"))
