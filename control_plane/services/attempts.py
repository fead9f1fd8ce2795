"""How an attempt ends well or badly, for machine and lease together. Used by the loops.

Every function locks the lease first, then its attempts: the order all transactions keep.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db import machines, journal, leases, proofs
from control_plane.domain.ids import MachineId, LeaseId
from control_plane.domain.machine import WANTED, FailReason, Machine, MachineEvent, MachineMove, Step
from control_plane.domain.machine import step as machine_step
from control_plane.domain.lease import Lease, LeaseEvent, LeaseMove, LeaseState
from control_plane.domain.lease import step as lease_step
from control_plane.domain.transitions import Moved


@dataclass(frozen=True, slots=True)
class Failed:
    """Why an attempt is over."""

    event: MachineEvent
    reason: FailReason
    why: str
    gone_evidence: str | None = None
    """For events that close the row."""
    billed_until: datetime | None = None
    """Of a ready lease whose machine failed its GPU proof: since when that speaks against it."""


async def fail(
    connection: AsyncConnection,
    lease_id: LeaseId,
    machine_id: MachineId,
    failed: Failed,
    *,
    actor: str,
    now: datetime,
    seen: int | None = None,
) -> bool:
    """End an attempt; its lease looks for another machine, or ends when it was running.

    The event is judged against the row as it is now; given `seen`, it counts only while the row has
    that generation. False when it does not apply any more.
    """
    lease = (await leases.lock(connection, [lease_id])).get(lease_id)
    attempt = _find(await machines.lock_open(connection, [lease_id]), machine_id)
    if lease is None or attempt is None:
        return False
    if seen is not None and attempt.generation != seen:
        return False
    if failed.event is MachineEvent.REJECTED and attempt.provider_ref is not None:
        return (
            False  # The provider said no, and its inventory shows the machine: only that can prove its end.
        )
    moved = machine_step(attempt.state, failed.event)
    if not isinstance(moved, Moved):
        return False
    move = MachineMove(
        attempt.id,
        attempt.generation,
        moved,
        why=failed.why,
        fail_reason=failed.reason,
        gone_evidence=failed.gone_evidence,
    )
    await machines.move(connection, [move], actor=actor, now=now)
    if attempt.state in WANTED:
        await _without_machine(connection, lease, attempt, failed, actor=actor, now=now)
    return True


def _find(attempts: list[Machine], machine_id: MachineId) -> Machine | None:
    return next((attempt for attempt in attempts if attempt.id == machine_id), None)


async def _without_machine(
    connection: AsyncConnection, lease: Lease, attempt: Machine, failed: Failed, *, actor: str, now: datetime
) -> None:
    event = LeaseEvent.ATTEMPT_FAILED
    if lease.state is LeaseState.READY:
        disproven = failed.event is MachineEvent.DISPROVEN
        event = LeaseEvent.PROOF_FAILED if disproven else LeaseEvent.MACHINE_LOST
    moved = lease_step(lease.state, event)
    if not isinstance(moved, Moved):
        return
    billed_until = None
    if lease.ready_at is not None:
        # A machine that was lost while running is billed through the last list that showed it, one that failed
        # its proof to when it first did, whatever it was lost for then.
        seen = failed.billed_until if event is LeaseEvent.PROOF_FAILED else attempt.sighted_at
        until = min(now, seen or lease.ready_at, await failed_since(connection, [attempt]) or now)
        billed_until = max(lease.ready_at, until)
    move = LeaseMove(lease.id, lease.generation, moved, why=failed.why, billed_until=billed_until)
    await leases.move(connection, [move], actor=actor, now=now)


async def failed_since(connection: AsyncConnection, attempts: Iterable[Machine]) -> datetime | None:
    """Since when a machine stands failed that failed again: nobody pays for what comes after. None when none does.

    It is running on because law 5 holds its ending. One failure alone takes nothing off a bill.
    """
    for attempt in attempts:
        if attempt.suspect_since is not None and (await proofs.record(connection, attempt.id)).confirmed:
            return attempt.suspect_since
    return None


@dataclass(frozen=True, slots=True)
class Verification:
    """How a machine read its GPUs, as stored."""

    report_id: UUID
    source: str
    reading: str
    """JSON text, parsed and bounded before it came here."""


async def verified(
    connection: AsyncConnection,
    machine: Machine,
    verification: Verification,
    *,
    actor: str,
    now: datetime,
    proof_due_at: datetime | None = None,
) -> bool:
    """The machine is what was sold, and admits its customer: from this moment the lease is ready, and billed.

    `proof_due_at` is when its GPUs are challenged next; None when its SKU demands no proof.
    """
    lease = (await leases.lock(connection, [machine.lease_id])).get(machine.lease_id)
    if lease is None:
        return False
    ready = lease_step(lease.state, LeaseEvent.VERIFIED)
    done = machine_step(machine.state, MachineEvent.VERIFIED)
    if not isinstance(ready, Moved) or not isinstance(done, Moved):
        return False
    move = MachineMove(
        machine.id, machine.generation, done, step=Step.KEYS_INSTALLED, proof_due_at=proof_due_at
    )
    if not await machines.move(connection, [move], actor=actor, now=now):
        return False
    await leases.move(connection, [LeaseMove(lease.id, lease.generation, ready)], actor=actor, now=now)
    await store(connection, machine, verification, verdict="verified", why=None, now=now)
    return True


async def mismatched(
    connection: AsyncConnection,
    machine: Machine,
    verification: Verification,
    *,
    why: str,
    actor: str,
    now: datetime,
) -> bool:
    """The machine is not what was sold: keep the evidence, end it, try elsewhere."""
    failed = Failed(MachineEvent.FAILED, FailReason.GPU_MISMATCH, why)
    if not await fail(connection, machine.lease_id, machine.id, failed, actor=actor, now=now):
        return False
    await store(connection, machine, verification, verdict="mismatch", why=why, now=now)
    return True


async def store(
    connection: AsyncConnection,
    machine: Machine,
    verification: Verification,
    *,
    verdict: str,
    why: str | None,
    now: datetime,
) -> None:
    """Keep a reading and what was made of it."""
    await journal.insert_report(
        connection,
        verification.report_id,
        machine.organization_id,
        machine.lease_id,
        machine.id,
        verdict=verdict,
        why=why,
        source=verification.source,
        reading=verification.reading,
        now=now,
    )
