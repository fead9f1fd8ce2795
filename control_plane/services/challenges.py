"""What a challenge of a machine's GPUs leads to, written down with the proof itself. Used by the loops.

One transaction each: lock the lease and the machine, see that the machine is still in our hands, load
what its earlier challenges add up to, decide (`control_plane/domain/proof.py`), store. A proof whose
machine was taken over meanwhile is dropped; whoever has the machine now asks again.

**The bill of a machine that fails.** A lease is billed until its customer lets go or its machine is
lost (law 6), and nobody pays for a machine that failed. Between its last pass and its first failure
nothing speaks against it, so that time is paid for; from the first failure of the streak that ends it
no second is. The meter waits at that moment while the second look is due (`loops/meter_usage.py`), so
the bill needs no correction. A machine that then passes is cleared, and the time is billed after all;
so it is when no other look could be had for a while (`put_off`).
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db import machines, journal, leases, proofs
from control_plane.db.permits import standing
from control_plane.db.proofs import Stored
from control_plane.domain.ids import MachineId, LeaseId, OrganizationId, Prefix, on_wire
from control_plane.domain.machine import FailReason, Machine, MachineEvent
from control_plane.domain.lease import Lease
from control_plane.domain.proof import (
    DOUBT_LASTS,
    FAILING_WINDOW,
    Again,
    Drop,
    Held,
    Keep,
    OwnCode,
    ProofOutcome,
    Record,
    Result,
    doubt_lapses,
    held_back,
    while_running,
    while_starting,
)
from control_plane.services import attempts
from control_plane.services.attempts import Failed, Verification

SECOND_LOOK = timedelta(minutes=3)
"""What a machine that failed once has left at least, before the time for setting it up is over."""


@dataclass(frozen=True, slots=True)
class Challenged:
    """A machine after its challenge, in the hands of the worker with this token."""

    machine: Machine
    token: UUID
    proof: Stored
    result: Result


async def while_being_set_up(
    connection: AsyncConnection,
    one: Challenged,
    verification: Verification,
    *,
    chance: float,
    actor: str,
    now: datetime,
) -> Keep | Again | Drop | None:
    """Record the challenge of a machine that is being set up. None when it is not ours any more."""
    await proofs.lock_gpus(connection, one.proof)
    known = await _known(connection, one)
    if known is None:
        return None
    lease, record = known
    one = await _sold_once(connection, one, actor=actor, now=now)
    decided = while_starting(record, one.result, lease.proof, chance=chance)
    disproven = isinstance(decided, Drop) and decided.reason is FailReason.PROOF_FAILED
    await _store(connection, one, ended=disproven, actor=actor, now=now)
    match decided:
        case Keep(again=again):
            await attempts.verified(
                connection, one.machine, verification, actor=actor, now=now, proof_due_at=now + again
            )
            return decided
        case Again(after=after):
            failed = one.result.outcome is ProofOutcome.FAILED
            await proofs.again(
                connection,
                one.machine.id,
                token=one.token,
                due_at=now + after,
                deadline_at=now + SECOND_LOOK if failed else None,
            )
        case Drop(reason=reason, why=why):
            failure = Failed(MachineEvent.FAILED, reason, why)
            await attempts.fail(connection, lease.id, one.machine.id, failure, actor=actor, now=now)
    await attempts.store(connection, one.machine, verification, verdict="verified", why=None, now=now)
    return decided


async def while_in_use(
    connection: AsyncConnection,
    one: Challenged,
    *,
    chance: float,
    ended: int,
    dry_run: bool,
    actor: str,
    now: datetime,
) -> Keep | Again | Drop | Held | None:
    """Record the challenge of a machine that a customer has. None when it is not ours any more.

    `ended` counts what the caller has ended in this run.
    """
    await proofs.lock_gpus(connection, one.proof)
    known = await _known(connection, one)
    if known is None:
        return None
    lease, record = known
    one = await _sold_once(connection, one, actor=actor, now=now)
    decided: Keep | Again | Drop | Held = while_running(record, one.result, lease.proof, chance=chance)
    if isinstance(decided, Drop):
        others = await proofs.failing_machines(
            connection, one.machine.account, since=now - FAILING_WINDOW, but=one.machine.id
        )
        permits = await standing(connection, now=now, account=one.machine.account)
        held = held_back(failing=others + 1, ended=ended, dry_run=dry_run, permitted=bool(permits))
        decided = held or decided
    await _store(connection, one, ended=isinstance(decided, Drop), actor=actor, now=now)
    match decided:
        case Keep(again=again):
            await _next(connection, one, again, suspect=False, now=now)
        case Again(after=after, suspect=None):
            await put_off(connection, one.machine, one.token, record, after, actor=actor, now=now)
        case Again(after=after, suspect=suspect):
            await _next(connection, one, after, suspect=bool(suspect), now=now)
        case Held(again=again):
            # What holds it is the inside of our accounts: operators read that in `challenge_machines`' report.
            minutes = int(again.total_seconds() // 60)
            why = f"it failed again and is not ended yet; the next challenge is in {minutes} min"
            await _note(connection, one.machine, "proof_ending_held", why, actor=actor, now=now)
            await _next(connection, one, again, suspect=True, now=now)
        case Drop(reason=reason, why=why):
            since = await _suspect_since(connection, lease.id, one.machine.id)
            failure = Failed(MachineEvent.DISPROVEN, reason, why, billed_until=since or now)
            await attempts.fail(connection, lease.id, one.machine.id, failure, actor=actor, now=now)
    return decided


async def put_off(
    connection: AsyncConnection,
    machine: Machine,
    token: UUID,
    record: Record,
    after: timedelta,
    *,
    actor: str,
    now: datetime,
) -> None:
    """No challenge could be made: give the machine back until later. `record` is what is known of it."""
    lapses = doubt_lapses(record, machine.suspect_since, now)
    if lapses:
        minutes = int(DOUBT_LASTS.total_seconds() // 60)
        why = f"it failed, and could not be challenged again for {minutes} min; the bill goes on"
        await _note(connection, machine, "proof_doubt_lapsed", why, actor=actor, now=now)
    suspect = False if lapses else None
    await proofs.next_challenge(
        connection, machine.id, token=token, due_at=now + after, suspect=suspect, now=now
    )


async def after_its_lease(connection: AsyncConnection, one: Challenged, *, actor: str, now: datetime) -> bool:
    """Record what a machine showed after its lease; its end waits no longer. False when it did not wait."""
    if await _known(connection, one) is None:
        return False
    await _store(connection, one, ended=False, actor=actor, now=now)
    passed = one.result.outcome is ProofOutcome.PASSED
    event = "memory_overwritten" if passed else "memory_not_shown_overwritten"
    said = on_wire(Prefix.PROOF, one.proof.id)
    await _note(connection, one.machine, event, f"see {said}", actor=actor, now=now)
    await proofs.erased(connection, one.machine.id, token=one.token, now=now)
    return True


async def _known(connection: AsyncConnection, one: Challenged) -> tuple[Lease, Record] | None:
    lease = (await leases.lock(connection, [one.machine.lease_id])).get(one.machine.lease_id)
    if lease is None or not await proofs.still_claimed(connection, one.machine.id, token=one.token):
        return None
    return lease, await proofs.record(connection, one.machine.id)


async def _suspect_since(
    connection: AsyncConnection, lease_id: LeaseId, machine_id: MachineId
) -> datetime | None:
    """As it is written down now: the caller's machine is from before its claim."""
    of_lease = await machines.lock_open(connection, [lease_id])
    return next((each.suspect_since for each in of_lease if each.id == machine_id), None)


async def _sold_once(
    connection: AsyncConnection, one: Challenged, *, actor: str, now: datetime
) -> Challenged:
    """The same; or failed, when another live machine has shown one of these GPUs.

    Which of the two lies is not known: what this one shows is no pass, and the other one is challenged at once.
    A machine that copies the UUID of one that is leased does it no harm. One that copies the UUID of a free GPU keeps
    the honest one out while it is leased itself, but puts no blame on the other account (docs/gpu-proof.md).
    """
    if one.result.outcome is not ProofOutcome.PASSED:
        return one
    others = await proofs.holders(connection, one.machine.id, one.proof)
    if not others:
        return one
    ours = any(other.account == one.machine.account for other in others)
    code = OwnCode.SOLD_TWICE if ours else OwnCode.SHOWN_ELSEWHERE
    why = "another machine that is leased now has shown the same GPU"
    for other in others:
        await journal.note(
            connection,
            other.organization_id,
            other.lease_id,
            other.machine_id,
            event=code,
            why="another machine shows a GPU of this one; it is refused, and this one is challenged",
            actor=actor,
            now=now,
        )
        await proofs.challenge_now(connection, other.machine_id, now=now)
    finding = {"code": code, "gpu": None, "why": why}
    proof = replace(
        one.proof,
        outcome=ProofOutcome.FAILED,
        code=code,
        why=why,
        findings=[finding, *one.proof.findings],
    )
    return replace(
        one,
        proof=proof,
        result=replace(one.result, outcome=ProofOutcome.FAILED, code=code, why=why),
    )


async def _store(
    connection: AsyncConnection, one: Challenged, *, ended: bool, actor: str, now: datetime
) -> None:
    """The proof, and a line in the journal that names it."""
    await proofs.insert(connection, one.machine.id, one.proof, ended=ended, now=now)
    said = f" {one.proof.code}: {one.proof.why}" if one.proof.code else ""
    why = f"{on_wire(Prefix.PROOF, one.proof.id)} ({one.proof.occasion}){said}"
    await _note(connection, one.machine, f"proof_{one.proof.outcome}", why, actor=actor, now=now)


async def _note(
    connection: AsyncConnection, machine: Machine, event: str, why: str, *, actor: str, now: datetime
) -> None:
    tenant = OrganizationId(machine.organization_id)
    await journal.note(
        connection, tenant, machine.lease_id, machine.id, event=event, why=why, actor=actor, now=now
    )


async def _next(
    connection: AsyncConnection, one: Challenged, after: timedelta, *, suspect: bool, now: datetime
) -> None:
    await proofs.next_challenge(
        connection, one.machine.id, token=one.token, due_at=now + after, suspect=suspect, now=now
    )
