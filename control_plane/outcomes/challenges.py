"""The consequences of a challenge of a machine's GPUs, stored in one transaction with the proof itself.

Each function locks the leases, claims and machine concerned, checks that the worker still holds the machine, decides
with the summary of its earlier challenges (`domain/proof.py`), and stores the result. The proof of a worker that
lost the machine meanwhile is discarded; the worker that holds the machine now challenges it again.

**The bill of a machine that fails.** A lease is billed until its customer releases it or its machine is lost
(law 6), but not for a machine that failed. The time before the first failure is billed; the time after it is free
if a second failure confirms it. The meter stops at the first failure until the second challenge (`meter_usage`), so
the bill needs no correction. If the machine then passes, or no other challenge can be made for a while (`put_off`),
that time is billed after all.

**Customers who wait.** A suspect machine admits nobody, and is challenged again soon. The deadline of the admission
waits for that (`deadline.of_claim`), and starts anew when the machine is cleared.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from control_plane.db import (
    challenges,
    claims,
    gpu_holders,
    journal,
    machines,
    permits,
    proof_records,
    proofs,
)
from control_plane.db.connection import Connection
from control_plane.db.proofs import Finding, NewProof
from control_plane.domain.actor import Actor
from control_plane.domain.claim import Claim
from control_plane.domain.deadline import ADMIT_MAX
from control_plane.domain.failure import FailReason
from control_plane.domain.ids import MachineId, Prefix, on_wire
from control_plane.domain.journal import OF_PROOF, Note
from control_plane.domain.machine import Machine, MachineEvent, MachineFailure
from control_plane.domain.proof import (
    DOUBT_LASTS,
    FAILING_WINDOW,
    Again,
    Drop,
    Held,
    Keep,
    OwnCode,
    ProofOutcome,
    doubt_lapses,
    held_back,
    while_running,
    while_starting,
)
from control_plane.domain.verification import Verdict
from control_plane.outcomes import machines as outcomes
from control_plane.outcomes.machines import Locked, Verification

NO_WAIT = timedelta(0)
SECOND_CHALLENGE = timedelta(minutes=3)
"""The time for setup that a machine has left at least after its first failure."""


@dataclass(frozen=True, slots=True)
class Challenged:
    """A machine after its challenge, held by the worker with this token."""

    machine: Machine
    """As it was when the worker took it."""
    token: UUID
    proof: NewProof


async def while_being_set_up(
    connection: Connection,
    challenged: Challenged,
    verification: Verification,
    *,
    chance: float,
    actor: Actor,
    now: datetime,
) -> Keep | Again | Drop | None:
    """Record the challenge of a machine that is being set up: it is verified, challenged again, or terminated.

    This also decides whether one of its GPUs is sold already, so that no customer's key is ever on a machine that
    reports another machine's GPU. None when the worker lost the machine. `chance` is random, uniform in [0, 1).
    """
    locked = await _lock(connection, challenged)
    if locked is None:
        return None
    machine = locked.machine
    proof = await _failed_if_sold_twice(connection, machine, challenged.proof, actor=actor, now=now)
    decision = while_starting(machine.record, proof.result(now), machine.proof, chance=chance)
    disproven = isinstance(decision, Drop) and decision.reason is FailReason.PROOF_FAILED
    await _store(connection, machine, proof, ended=disproven, actor=actor, now=now)
    match decision:
        case Keep(again=again):
            due_at = now + again
            await outcomes.verified(
                connection, machine, verification, actor=actor, now=now, proof_due_at=due_at
            )
            return decision
        case Again(after=after):
            failed = proof.outcome is ProofOutcome.FAILED
            deadline_at = now + SECOND_CHALLENGE if failed else None
            await machines.postpone(
                connection,
                machine.id,
                token=challenged.token,
                due_at=now + after,
                tried_at=now,
                deadline_at=deadline_at,
            )
        case Drop(reason=reason, why=why):
            failure = MachineFailure(MachineEvent.FAILED, reason, why)
            await outcomes.fail(connection, machine.id, failure, actor=actor, now=now)
    await outcomes.store_report(
        connection, machine, verification, verdict=Verdict.VERIFIED, why=None, now=now
    )
    return decision


async def while_in_use(
    connection: Connection,
    challenged: Challenged,
    *,
    chance: float,
    ended: int,
    dry_run: bool,
    actor: Actor,
    now: datetime,
) -> Keep | Again | Drop | Held | None:
    """Record the challenge of a verified machine, with or without customers. None when the worker lost the machine.

    `ended` counts the machines that the caller has terminated in this run. `chance` is random, uniform in [0, 1).
    """
    locked = await _lock(connection, challenged)
    if locked is None:
        # It was claimed while we locked. It is challenged again at once, and this proof is discarded.
        await _give_back(connection, challenged.machine, challenged.token, NO_WAIT, suspect=None, now=now)
        return None
    machine, token = locked.machine, challenged.token
    proof = challenged.proof if _admitted(locked.claims) else _without_excuse(challenged.proof, now)
    proof = await _failed_if_sold_twice(connection, machine, proof, actor=actor, now=now)
    decision: Keep | Again | Drop | Held = while_running(
        machine.record, proof.result(now), machine.proof, chance=chance
    )
    if isinstance(decision, Drop):
        decision = await _held_back(connection, machine, ended=ended, dry_run=dry_run, now=now) or decision
    await _store(connection, machine, proof, ended=isinstance(decision, Drop), actor=actor, now=now)
    match decision:
        case Keep(again=again):
            await _give_back(connection, machine, token, again, suspect=False, now=now)
        case Again(after=after, suspect=None):
            await put_off(connection, machine, token, after, actor=actor, now=now)
        case Again(after=after, suspect=suspect):
            await _give_back(connection, machine, token, after, suspect=suspect, now=now)
        case Held(again=again):
            # The reason concerns the whole account, so only operators read it, in the report of `challenge_machines`.
            minutes = int(again.total_seconds() // 60)
            why = f"it failed again and is not terminated yet; the next challenge is in {minutes} min"
            await _note(connection, machine, Note.PROOF_TERMINATION_HELD, why, actor=actor, now=now)
            await _give_back(connection, machine, token, again, suspect=True, now=now)
        case Drop(reason=reason, why=why):
            failed_since = machine.suspect_since or now
            failure = MachineFailure(MachineEvent.DISPROVEN, reason, why, failed_since=failed_since)
            await outcomes.fail(connection, machine.id, failure, actor=actor, now=now)
    return decision


async def put_off(
    connection: Connection,
    machine: Machine,
    token: UUID,
    after: timedelta,
    *,
    actor: Actor,
    now: datetime,
) -> None:
    """Give back a verified machine that could not be challenged now, to be challenged after `after`."""
    lapses = doubt_lapses(machine.record, machine.suspect_since, now)
    if lapses:
        minutes = int(DOUBT_LASTS.total_seconds() // 60)
        why = f"it failed, and could not be challenged again for {minutes} min; billing resumes"
        await _note(connection, machine, Note.PROOF_DOUBT_LAPSED, why, actor=actor, now=now)
    await _give_back(connection, machine, token, after, suspect=False if lapses else None, now=now)


async def after_its_claim(
    connection: Connection, challenged: Challenged, *, actor: Actor, now: datetime
) -> bool:
    """Record the challenge of a machine after its claim, and resume its termination. False when it did not wait."""
    proof, machine_id = challenged.proof, challenged.machine.id
    if not await challenges.still_held(connection, machine_id, token=challenged.token):
        return False
    machine = (await machines.lock(connection, [machine_id]))[machine_id]
    await _store(connection, machine, proof, ended=False, actor=actor, now=now)
    passed = proof.outcome is ProofOutcome.PASSED
    event = Note.MEMORY_OVERWRITTEN if passed else Note.MEMORY_NOT_SHOWN_OVERWRITTEN
    await _note(connection, machine, event, f"see {on_wire(Prefix.PROOF, proof.id)}", actor=actor, now=now)
    await challenges.erased(connection, machine.id, token=challenged.token, now=now)
    return True


async def occupied(connection: Connection, machine_id: MachineId) -> bool:
    """Whether a customer has been admitted to the machine: only then may its GPUs be in use."""
    return _admitted(await claims.open_of_machine(connection, machine_id))


def _admitted(open_claims: Sequence[Claim]) -> bool:
    return any(claim.admitted_at is not None for claim in open_claims)


async def _lock(connection: Connection, challenged: Challenged) -> Locked | None:
    """Lock everything that a decision may change; None when the worker lost the machine, or it was just claimed."""
    await gpu_holders.lock(connection, challenged.proof)
    locked = await outcomes.lock(connection, challenged.machine.id)
    held = await challenges.still_held(connection, challenged.machine.id, token=challenged.token)
    return locked if held else None


async def _held_back(
    connection: Connection, machine: Machine, *, ended: int, dry_run: bool, now: datetime
) -> Held | None:
    """Why a machine that failed is kept for now (law 5); None when it may be terminated."""
    others = await proof_records.failing_machines(
        connection, machine.account, since=now - FAILING_WINDOW, but=machine.id
    )
    permitted = await permits.valid(connection, now=now, account=machine.account)
    return held_back(failing=others + 1, ended=ended, dry_run=dry_run, permitted=bool(permitted))


def _without_excuse(proof: NewProof, now: datetime) -> NewProof:
    """The proof of a machine without an admitted customer: no customer's work excuses GPUs in use."""
    if not proof.result(now).void:
        return proof
    why = "the GPUs are in use, although no customer has been admitted to the machine"
    return _with_finding(proof, proof.outcome, OwnCode.BUSY_UNCLAIMED, why)


async def _failed_if_sold_twice(
    connection: Connection, machine: Machine, proof: NewProof, *, actor: Actor, now: datetime
) -> NewProof:
    """The same proof, or a failed one when another live machine has reported one of these GPUs.

    It is unknown which of the two machines cheats. The pass of this one does not count, and the other one is challenged
    at once, so a machine is not harmed when another one copies the UUID of its GPU. A machine that copies the UUID of a
    GPU that is not leased keeps the honest machine from being leased meanwhile, but the honest machine's account is not
    blamed (docs/gpu-proof.md).
    """
    if proof.outcome is not ProofOutcome.PASSED:
        return proof
    holders = await gpu_holders.of(connection, machine.id, proof)
    if not holders:
        return proof
    ours = any(holder.account == machine.account for holder in holders)
    code = OwnCode.SOLD_TWICE if ours else OwnCode.SHOWN_ELSEWHERE
    note = Note.GPU_SOLD_TWICE if ours else Note.GPU_SHOWN_ELSEWHERE
    for holder in holders:
        why = "another machine reports a GPU of this one; the other is refused, and this one is challenged"
        await journal.note_machine(connection, holder.machine_id, event=note, why=why, actor=actor, now=now)
        await challenges.challenge_now(connection, holder.machine_id, now=now)
    why = "another live machine has reported the same GPU"
    return _with_finding(proof, ProofOutcome.FAILED, code, why)


def _with_finding(proof: NewProof, outcome: ProofOutcome, code: OwnCode, why: str) -> NewProof:
    """The proof with a finding of our own, which comes first and explains the outcome."""
    findings = [Finding(code, None, why), *proof.findings]
    return replace(proof, outcome=outcome, code=code, why=why, findings=findings)


async def _store(
    connection: Connection, machine: Machine, proof: NewProof, *, ended: bool, actor: Actor, now: datetime
) -> None:
    """Store the proof, and a line in the journal that names it."""
    await proofs.insert(connection, machine, proof, ended=ended, now=now)
    finding = f" {proof.code}: {proof.why}" if proof.code else ""
    why = f"{on_wire(Prefix.PROOF, proof.id)} ({proof.occasion}){finding}"
    await _note(connection, machine, OF_PROOF[proof.outcome], why, actor=actor, now=now)


async def _note(
    connection: Connection, machine: Machine, event: Note, why: str, *, actor: Actor, now: datetime
) -> None:
    await journal.note_machine(connection, machine.id, event=event, why=why, actor=actor, now=now)


async def _give_back(
    connection: Connection,
    machine: Machine,
    token: UUID,
    after: timedelta,
    *,
    suspect: bool | None,
    now: datetime,
) -> None:
    """Give a verified machine back to be challenged after `after`, unless this worker lost it."""
    if machine.suspect_since is not None and suspect is False:
        await claims.machine_cleared(connection, machine.id, deadline_at=now + ADMIT_MAX)
    await challenges.next_challenge(
        connection, machine.id, token=token, due_at=now + after, suspect=suspect, now=now
    )
