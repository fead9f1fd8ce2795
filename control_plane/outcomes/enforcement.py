"""What the next step about a condition of a lease does: a row for each action, what its customer is told, and the stop
of a machine whose customer wanted it.

These functions run in the caller's open transaction. They lock the lease first where they stop its machine, and then
the finding.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import challenges, conditions, enforcement, health, journal, leases
from control_plane.db.connection import Connection
from control_plane.db.enforcement import NewAction, RunningAction
from control_plane.domain.actor import Actor
from control_plane.domain.enforcement import (
    INTERRUPTS,
    ActionEnd,
    Case,
    Close,
    EnforcementAction,
    Finding,
    FindingOutcome,
    StopMachine,
    Take,
)
from control_plane.domain.ids import EnforcementActionId, FindingId
from control_plane.domain.journal import Note
from control_plane.domain.lease import Lease, LeaseState
from control_plane.domain.notice import NoticeKind
from control_plane.domain.proof import CLAIMED_APART
from control_plane.outcomes import powers

_ASKS = {
    EnforcementAction.CHECK_MACHINE: "we look at the machine ourselves, and have its GPUs prove themselves",
    EnforcementAction.THROTTLE_ADMISSION: "the workload is asked to take new work more slowly",
    EnforcementAction.SMALLER_BATCH: "the workload is asked for smaller batches",
    EnforcementAction.STOP_ADMISSION: "the workload is asked to take no new work",
    EnforcementAction.EVICT: "the workload is asked to save what it has and to end",
}
"""What an action does or asks for."""


@dataclass(frozen=True, slots=True)
class Work:
    """What the steps of one run share."""

    connection: Connection
    armed: bool
    """Whether something is done; otherwise it is only stored what would be."""
    rules: str
    actor: Actor
    now: datetime


async def open_finding(work: Work, case: Case, finding_id: UUID, *, since: datetime, why: str) -> bool:
    """Store a condition that was found. False when another replica was faster."""
    new = FindingId(finding_id)
    return await enforcement.open_finding(work.connection, new, case, since=since, why=why, now=work.now)


async def take(work: Work, case: Case, seen: Finding, step: Take, action_id: UUID) -> bool:
    """Take an action about a finding, and end the one before. False when somebody else has moved the finding."""
    finding = await enforcement.lock_finding(work.connection, seen.id)
    if finding is None or finding.taken != seen.taken:
        return False
    await _end_last(work, finding, ActionEnd.SUPERSEDED, "the next action was taken")
    present = step.present
    await enforcement.take(
        work.connection,
        NewAction(
            id=EnforcementActionId(action_id),
            finding_id=finding.id,
            action=step.action,
            armed=work.armed,
            at=work.now,
            expires_at=step.expires_at,
            planned_at=step.planned_at,
            basis=present.basis,
            why=present.why,
            evidence=present.evidence,
            rules=work.rules,
        ),
    )
    step_at = finding.step_at if step.again else work.now
    await enforcement.step(work.connection, finding.id, _taken_why(step, armed=work.armed), step_at=step_at)
    if work.armed and not step.again:
        if step.action is EnforcementAction.CHECK_MACHINE:
            await _check(work, case)
        await _tell(work, case, step)
    return True


async def _check(work: Work, case: Case) -> None:
    """A look of ours and a challenge of its GPUs, where its SKU has them proven, are due now."""
    await challenges.challenge_now(work.connection, case.lease.machine_id, now=work.now, apart=CLAIMED_APART)
    await health.ask_look(work.connection, case.lease.machine_id, now=work.now)


def _taken_why(step: Take, *, armed: bool) -> str:
    word = step.action.value.replace("_", " ")
    return f"{word} was {'taken' if armed else 'decided, and not taken, because the detector is not armed'}"


async def _tell(work: Work, case: Case, step: Take) -> None:
    """A line of the journal for each action, and a notice for what the customer should know at once."""
    sentence = f"{case.detector.value.replace('_', ' ')}: {step.present.why}"
    ask = _ask(step)
    line = f"{sentence}; {ask}" if ask else sentence
    await journal.note_lease(
        work.connection,
        case.lease.lease_id,
        event=Note.ENFORCEMENT,
        why=line,
        actor=work.actor,
        now=work.now,
    )
    if step.action is EnforcementAction.NOTIFY or step.action in INTERRUPTS:
        stops = step.action is EnforcementAction.SHUTDOWN
        kind = NoticeKind.STOP_PLANNED if stops else NoticeKind.CONDITION_FOUND
        message = f"{line[0].upper()}{line[1:]}."
        await enforcement.notify(
            work.connection,
            case.lease.claim_id,
            kind,
            message,
            planned_at=step.planned_at,
            now=work.now,
        )


def _ask(step: Take) -> str:
    if step.action is EnforcementAction.SHUTDOWN and step.planned_at is not None:
        return f"the machine will be stopped at {step.planned_at:%Y-%m-%d %H:%M} UTC"
    asks = _ASKS.get(step.action, "")
    by = step.action is EnforcementAction.EVICT and step.planned_at is not None
    return f"{asks} by {step.planned_at:%Y-%m-%d %H:%M} UTC" if by else asks


async def close(work: Work, case: Case | None, seen: Finding, step: Close) -> bool:
    """Close a finding, and end its last action. False when somebody else has moved it.

    The customer is told that nothing is asked any more, if something was.
    """
    finding = await enforcement.lock_finding(work.connection, seen.id)
    if finding is None or finding.taken != seen.taken:
        return False
    ended = ActionEnd.DONE if step.outcome is FindingOutcome.CREDITED else ActionEnd.OVER
    in_force = await _end_last(work, finding, ended, step.why)
    await enforcement.close(work.connection, finding.id, step.outcome, step.why, now=work.now)
    was_told = in_force and finding.taken is not None and finding.taken.armed
    if was_told and case is not None:
        line = f"{finding.detector.value.replace('_', ' ')}: {step.why}; nothing is asked of the workload any more"
        await journal.note_lease(
            work.connection,
            case.lease.lease_id,
            event=Note.ENFORCEMENT,
            why=line,
            actor=work.actor,
            now=work.now,
        )
    return True


async def stop_machine(work: Work, case: Case, seen: Finding, step: StopMachine) -> bool:
    """Stop the machine of a lease at its announced time, and close the finding. False when it could not be.

    In a dry run nothing is stopped, and the finding is closed as if it were.
    """
    lease = None
    if work.armed:
        lease = await _to_stop(work, case)
        if lease is None:
            return False
    finding = await enforcement.lock_finding(work.connection, seen.id)
    if finding is None or finding.taken != seen.taken:
        return False
    if lease is not None:
        locked = await powers.lock_power(work.connection, lease, now=work.now)
        if locked is not None and locked[0] != finding.claim_id:
            return False  # It has another machine by now.
        why = f"the machine is stopped, because its customer wanted that: {step.present.why}"
        if locked is None or not await powers.request_stop(
            work.connection, lease, locked, why=why, actor=work.actor, now=work.now
        ):
            await enforcement.wait(work.connection, finding.id, "its power is changing already")
            return False
    await _end_last(work, finding, ActionEnd.DONE, "the machine is stopped")
    return await enforcement.close(
        work.connection, finding.id, FindingOutcome.STOPPED, "the machine is stopped", now=work.now
    )


async def _to_stop(work: Work, case: Case) -> Lease | None:
    """The lease, locked; None when it is not ready any more, or its customer does not want its machine stopped."""
    wanted = case.lease
    lease = (await leases.lock(work.connection, [wanted.lease_id])).get(wanted.lease_id)
    if lease is None or lease.state is not LeaseState.READY:
        return None
    after = await conditions.idle_stop(work.connection, wanted.organization_id, wanted.lease_id)
    return None if after is None else lease


async def _end_last(work: Work, finding: Finding, ended: ActionEnd, why: str) -> bool:
    """End the last action of a finding. Returns whether it was still in force."""
    if finding.taken is None or finding.taken.ended is not None:
        return False
    return await enforcement.end(
        work.connection, finding.taken.id, ended, by=work.actor.name, why=why, now=work.now
    )


async def end_action(connection: Connection, action: RunningAction, *, actor: Actor, now: datetime) -> bool:
    """End an action whose time is over, or that an operator wants undone. False when it had ended meanwhile."""
    undone = bool(action.by)
    ended = ActionEnd.UNDONE if undone else ActionEnd.EXPIRED
    why = action.why if undone else "its time is over"
    if not await enforcement.end(connection, action.id, ended, by=action.by or actor.name, why=why, now=now):
        return False
    if undone and action.armed:
        word = action.action.value.replace("_", " ")
        line = f"{action.detector.value.replace('_', ' ')}: {word} was undone by an operator: {why}"
        await journal.note_lease(
            connection, action.lease_id, event=Note.ENFORCEMENT, why=line, actor=actor, now=now
        )
    return True
