"""How machines are ordered, verified, given up and released: changes machine, claims and leases together.

Locks are always taken in the order lease, claim, machine, standing, hold. The claims of a machine tell which leases
to lock, so they are read first without a lock, and compared with the claims that are locked later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import claims, journal, leases, machines, offer_blocks, verification_reports
from control_plane.db.connection import Connection
from control_plane.domain import machine_failure
from control_plane.domain.actor import Actor
from control_plane.domain.block import block_after
from control_plane.domain.claim import Claim
from control_plane.domain.deadline import ADMIT_MAX, NOT_TAKEN_AFTER
from control_plane.domain.failure import FailReason
from control_plane.domain.ids import LeaseId, MachineId
from control_plane.domain.journal import Note
from control_plane.domain.lease import Lease
from control_plane.domain.machine import (
    Machine,
    MachineEvent,
    MachineFailure,
    MachineMove,
    MachineOrder,
    release,
    step,
)
from control_plane.domain.node import LEAVE_MAX
from control_plane.domain.progress import last_of_machine
from control_plane.domain.transitions import Moved
from control_plane.domain.verification import Verdict
from control_plane.outcomes import leases as lease_outcomes


async def order(
    connection: Connection, orders: Sequence[MachineOrder], *, actor: Actor, now: datetime
) -> None:
    """Store intended machines that no lease claims yet: for a pool, or as nodes."""
    await machines.insert(connection, orders, now=now, deadline_at=now + NOT_TAKEN_AFTER)
    await journal.note_intended(connection, [order.id for order in orders], actor=actor, now=now)


@dataclass(frozen=True, slots=True)
class Locked:
    """A machine with its open claims and their leases, locked."""

    machine: Machine
    claims: Sequence[Claim]
    leases: Mapping[LeaseId, Lease]


async def lock(connection: Connection, machine_id: MachineId) -> Locked | None:
    """Lock a machine with its open claims and their leases, before anything else is locked.

    None when it was claimed meanwhile, because the new claim's lease would have had to be locked first. The next
    activation tries again.
    """
    expected = await claims.open_of_machine(connection, machine_id)
    of = await leases.lock(connection, [claim.lease_id for claim in expected])
    found = await claims.lock_open_of_machine(connection, machine_id)
    machine = (await machines.lock(connection, [machine_id])).get(machine_id)
    # A machine is locked before it is claimed, so no claim can be added from now on.
    added = await claims.open_of_machine(connection, machine_id) != found
    if machine is None or added or any(claim.lease_id not in of for claim in found):
        return None
    return Locked(machine, found, of)


async def fail(
    connection: Connection,
    machine_id: MachineId,
    failure: MachineFailure,
    *,
    actor: Actor,
    now: datetime,
    seen: int | None = None,
) -> bool:
    """Give up a machine. Leases that were starting on it try another one; leases that used it end. What the failure
    says about other orders is stored as a block.

    The failure is checked against the machine as it is now; with `seen`, only while the machine has that generation.
    False when the failure no longer applies.
    """
    locked = await lock(connection, machine_id)
    if locked is None or seen not in (None, locked.machine.generation):
        return False
    move = machine_failure.move_of(locked.machine, locked.claims, failure)
    if move is None:
        return False
    await machines.move(connection, [move], actor=actor, now=now)
    block = block_after(locked.machine, failure.reason, now=now, scope=failure.scope)
    if block is not None and not failure.blocked:
        await offer_blocks.insert(connection, machine_id, block)
    # Always in one order, so that two batches cannot wait for each other's standings.
    for claim in sorted(locked.claims, key=lambda claim: claim.organization_id):
        lease = locked.leases[claim.lease_id]
        await lease_outcomes.lose_machine(
            connection, lease, claim, locked.machine, failure, actor=actor, now=now
        )
    return True


NO_GPUS = "no_gpus"
"""Why the GPUs of a machine were neither read nor proven."""


@dataclass(frozen=True, slots=True)
class Verification:
    """A machine's reading of its GPUs, as it is stored."""

    report_id: UUID
    source: str
    reading: str
    """JSON text, already parsed and bounded."""


async def verified(
    connection: Connection,
    machine: Machine,
    verification: Verification | None,
    *,
    actor: Actor,
    now: datetime,
    proof_due_at: datetime | None = None,
) -> bool:
    """Record that the machine is what was ordered, so its customers can be admitted. False when it moved meanwhile.

    `proof_due_at` is when its GPUs are challenged next; None when its SKU demands no proof. `verification` is None for
    a machine without GPUs, which has nothing to read.
    """
    moved = step(machine.state, MachineEvent.VERIFIED)
    if not isinstance(moved, Moved):
        return False
    await claims.lock_open_of_machine(connection, machine.id)
    last = last_of_machine(machine.proof, machine.gpu_count)
    move = MachineMove(machine.id, machine.generation, moved, step=last, proof_due_at=proof_due_at)
    if not await machines.move(connection, [move], actor=actor, now=now):
        return False
    await claims.machine_verified(connection, machine.id, now=now, deadline_at=now + ADMIT_MAX)
    if verification is None:
        note = Note.PROOF_SKIPPED
        await journal.note_machine(connection, machine.id, event=note, why=NO_GPUS, actor=actor, now=now)
    else:
        await store_report(connection, machine, verification, verdict=Verdict.VERIFIED, why=None, now=now)
    return True


async def mismatched(
    connection: Connection,
    machine: Machine,
    verification: Verification,
    *,
    why: str,
    actor: Actor,
    now: datetime,
) -> bool:
    """Give up a machine that is not what was ordered, and store the evidence."""
    failure = MachineFailure(MachineEvent.FAILED, FailReason.GPU_MISMATCH, why)
    if not await fail(connection, machine.id, failure, actor=actor, now=now, seen=machine.generation):
        return False
    await store_report(connection, machine, verification, verdict=Verdict.MISMATCH, why=why, now=now)
    return True


async def store_report(
    connection: Connection,
    machine: Machine,
    verification: Verification,
    *,
    verdict: Verdict,
    why: str | None,
    now: datetime,
) -> None:
    """Store a reading with its verdict."""
    await verification_reports.insert(
        connection,
        verification.report_id,
        machine.id,
        verdict=verdict,
        why=why,
        source=verification.source,
        reading=verification.reading,
        now=now,
    )


async def release_ended(connection: Connection, *, actor: Actor, now: datetime, limit: int) -> int:
    """Release the machines of up to `limit` claims that have ended; returns how many claims those were.

    Claims locked by others are skipped, and those whose node is still leaving its cluster.
    """
    ended = await claims.take_ended(connection, kept_since=now - LEAVE_MAX, limit=limit)
    held = await machines.lock(connection, [claim.machine_id for claim in ended])
    moves = [
        release(
            held[claim.machine_id],
            admitted=claim.admitted_at is not None,
            why="the claim on it ended",
            now=now,
        )
        for claim in ended
    ]
    await machines.move(connection, [move for move in moves if move is not None], actor=actor, now=now)
    await claims.released(connection, [claim.id for claim in ended], now=now)
    return len(ended)
