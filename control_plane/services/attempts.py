"""How an attempt ends well or badly, for instance and lease together. Used by the loops.

Every function locks the lease first, then its attempts: the order all transactions keep.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db import instances, journal, leases, proofs
from control_plane.domain.ids import InstanceId, LeaseId
from control_plane.domain.instance import WANTED, FailReason, Instance, InstanceEvent, InstanceMove, Step
from control_plane.domain.instance import step as instance_step
from control_plane.domain.lease import Lease, LeaseEvent, LeaseMove, LeaseState
from control_plane.domain.lease import step as lease_step
from control_plane.domain.machine import Moved


@dataclass(frozen=True, slots=True)
class Failed:
    """Why an attempt is over."""

    event: InstanceEvent
    reason: FailReason
    why: str
    gone_evidence: str | None = None
    """For events that close the row."""
    billed_until: datetime | None = None
    """Of a ready lease whose machine failed its GPU proof: since when that speaks against it."""


async def fail(
    connection: AsyncConnection,
    lease_id: LeaseId,
    instance_id: InstanceId,
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
    attempt = _find(await instances.lock_open(connection, [lease_id]), instance_id)
    if lease is None or attempt is None:
        return False
    if seen is not None and attempt.generation != seen:
        return False
    if failed.event is InstanceEvent.REJECTED and attempt.provider_ref is not None:
        return (
            False  # The provider said no, and its inventory shows the machine: only that can prove its end.
        )
    moved = instance_step(attempt.state, failed.event)
    if not isinstance(moved, Moved):
        return False
    move = InstanceMove(
        attempt.id,
        attempt.generation,
        moved,
        why=failed.why,
        fail_reason=failed.reason,
        gone_evidence=failed.gone_evidence,
    )
    await instances.move(connection, [move], actor=actor, now=now)
    if attempt.state in WANTED:
        await _without_machine(connection, lease, attempt, failed, actor=actor, now=now)
    return True


def _find(attempts: list[Instance], instance_id: InstanceId) -> Instance | None:
    return next((attempt for attempt in attempts if attempt.id == instance_id), None)


async def _without_machine(
    connection: AsyncConnection, lease: Lease, attempt: Instance, failed: Failed, *, actor: str, now: datetime
) -> None:
    event = LeaseEvent.ATTEMPT_FAILED
    if lease.state is LeaseState.READY:
        disproven = failed.event is InstanceEvent.DISPROVEN
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


async def failed_since(connection: AsyncConnection, attempts: Iterable[Instance]) -> datetime | None:
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
    instance: Instance,
    verification: Verification,
    *,
    actor: str,
    now: datetime,
    proof_due_at: datetime | None = None,
) -> bool:
    """The machine is what was sold, and admits its customer: from this moment the lease is ready, and billed.

    `proof_due_at` is when its GPUs are challenged next; None when its SKU demands no proof.
    """
    lease = (await leases.lock(connection, [instance.lease_id])).get(instance.lease_id)
    if lease is None:
        return False
    ready = lease_step(lease.state, LeaseEvent.VERIFIED)
    done = instance_step(instance.state, InstanceEvent.VERIFIED)
    if not isinstance(ready, Moved) or not isinstance(done, Moved):
        return False
    move = InstanceMove(
        instance.id, instance.generation, done, step=Step.KEYS_INSTALLED, proof_due_at=proof_due_at
    )
    if not await instances.move(connection, [move], actor=actor, now=now):
        return False
    await leases.move(connection, [LeaseMove(lease.id, lease.generation, ready)], actor=actor, now=now)
    await store(connection, instance, verification, verdict="verified", why=None, now=now)
    return True


async def mismatched(
    connection: AsyncConnection,
    instance: Instance,
    verification: Verification,
    *,
    why: str,
    actor: str,
    now: datetime,
) -> bool:
    """The machine is not what was sold: keep the evidence, end it, try elsewhere."""
    failed = Failed(InstanceEvent.FAILED, FailReason.GPU_MISMATCH, why)
    if not await fail(connection, instance.lease_id, instance.id, failed, actor=actor, now=now):
        return False
    await store(connection, instance, verification, verdict="mismatch", why=why, now=now)
    return True


async def store(
    connection: AsyncConnection,
    instance: Instance,
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
        instance.organization_id,
        instance.lease_id,
        instance.id,
        verdict=verdict,
        why=why,
        source=verification.source,
        reading=verification.reading,
        now=now,
    )
