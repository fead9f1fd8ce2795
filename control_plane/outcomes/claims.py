"""How a lease gets a machine: it claims one that is ordered for it or exists already, and its customer is admitted.

These functions run in the caller's open transaction, under the locks that each of them names.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from control_plane.db import attempts, claims, holds, journal, leases, machines
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor
from control_plane.domain.attempt import Attempt, AttemptOutcome
from control_plane.domain.auto_release import release_at
from control_plane.domain.claim import Claim, why_not
from control_plane.domain.deadline import ADMIT_MAX, NOT_TAKEN_AFTER, OverdueClaim
from control_plane.domain.funding import first_look
from control_plane.domain.ids import ClaimId, LeaseId, MachineId
from control_plane.domain.lease import Lease, LeaseEvent, LeaseMove, LeaseState, step
from control_plane.domain.machine import Machine, MachineFailure, MachineOrder
from control_plane.domain.transitions import Moved
from control_plane.outcomes import leases as lease_outcomes
from control_plane.outcomes import machines as machine_outcomes


@dataclass(frozen=True, slots=True)
class Placed:
    """A lease, and the machine that is ordered for it."""

    lease: Lease
    order: MachineOrder
    claim_id: ClaimId


async def place(connection: Connection, placed: Sequence[Placed], *, actor: Actor, now: datetime) -> int:
    """Store the intent to buy a machine for each lease, with its attempt and its claim; returns how many.

    The leases are locked. Nothing is requested from a provider before this is committed (law 1).
    """
    moves = [
        move
        for each in placed
        for move in _placing(
            each.lease, f"{each.order.native_type} at {each.order.account} in {each.order.region}"
        )
    ]
    moved = await leases.move(connection, moves, actor=actor, now=now)
    starting = [each for each in placed if each.lease.id in moved]
    await machines.insert(
        connection, [each.order for each in starting], now=now, deadline_at=now + NOT_TAKEN_AFTER
    )
    await attempts.insert(
        connection, [_attempt(each.lease, each.order.id, each.order.offer_key, now) for each in starting]
    )
    await claims.insert(
        connection,
        [_claim(each.lease, each.claim_id, each.order.id, None, now) for each in starting],
        now=now,
    )
    await journal.note_intended(connection, [each.order.id for each in starting], actor=actor, now=now)
    return len(starting)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A lease, and the machine of a pool that was chosen for it."""

    lease: Lease
    machine_id: MachineId
    claim_id: ClaimId


async def claim_pooled(
    connection: Connection, wanted: Sequence[Wanted], *, actor: Actor, now: datetime
) -> frozenset[LeaseId]:
    """Let leases claim machines of pools; returns those that did. The others lost their machine to somebody else.

    The leases are locked. All of the machines are locked before the first one is claimed, in the order of their ids.
    """
    await machines.lock(connection, [each.machine_id for each in wanted])
    claimed: set[LeaseId] = set()
    for each in wanted:
        claim = await claim_machine(
            connection,
            each.lease,
            each.machine_id,
            slot=None,
            claim_id=each.claim_id,
            actor=actor,
            now=now,
        )
        if isinstance(claim, Claim):
            claimed.add(each.lease.id)
    return frozenset(claimed)


async def claim_machine(
    connection: Connection,
    lease: Lease,
    machine_id: MachineId,
    *,
    slot: int | None,
    claim_id: ClaimId,
    actor: Actor,
    now: datetime,
) -> Claim | str:
    """Let a lease claim a machine of a pool, or a slot of a node; the reason when it cannot.

    The lease is locked. Its customer is admitted next, as on a machine that was ordered for the lease.
    """
    machine = (await machines.lock(connection, [machine_id])).get(machine_id)
    if machine is None:
        return "there is no such machine"
    # Read under the machine's lock, so that claims on one machine are made one after the other.
    taken = [claim.slot for claim in await claims.unreleased_of_machine(connection, machine_id)]
    refusal = why_not(lease, machine, taken, slot, now)
    if refusal is not None:
        return refusal
    moves = _placing(lease, _where(machine, slot))
    if not await leases.move(connection, moves, actor=actor, now=now):
        return f"the lease is {lease.state}"
    claim = _claim(lease, claim_id, machine_id, slot, now)
    await attempts.insert(connection, [_attempt(lease, machine_id, machine.offer_key, now)])
    await claims.insert(connection, [claim], now=now, deadline_at=now + ADMIT_MAX)
    return claim


def _placing(lease: Lease, where: str) -> list[LeaseMove]:
    moved = step(lease.state, LeaseEvent.PLACED)
    return [LeaseMove(lease.id, lease.generation, moved, why=where)] if isinstance(moved, Moved) else []


def _where(machine: Machine, slot: int | None) -> str:
    part = "" if slot is None else f"slot {slot} of "
    return (
        f"{part}a {machine.purpose} machine: {machine.native_type} at {machine.account} in {machine.region}"
    )


def _attempt(lease: Lease, machine_id: MachineId, offer_key: str, now: datetime) -> Attempt:
    return Attempt(
        lease_id=lease.id,
        number=lease.attempts + 1,
        machine_id=machine_id,
        offer_key=offer_key,
        started_at=now,
        ended_at=None,
        outcome=None,
        fail_reason=None,
        fail_why=None,
    )


def _claim(lease: Lease, claim_id: ClaimId, machine_id: MachineId, slot: int | None, now: datetime) -> Claim:
    return Claim(
        id=claim_id,
        organization_id=lease.organization_id,
        project_id=lease.project_id,
        lease_id=lease.id,
        machine_id=machine_id,
        slot=slot,
        attempt=lease.attempts + 1,
        tries=0,
        step=None,
        claimed_at=now,
        admitted_at=None,
        ended_at=None,
    )


async def admit(connection: Connection, claim: Claim, *, token: UUID, actor: Actor, now: datetime) -> bool:
    """Record that the customer can use the machine: from this moment the lease is ready, and billed, again if its
    machine was replaced.

    Locks the lease and the claim. False when another worker has the claim, or when it or its lease has ended.
    """
    lease = (await leases.lock(connection, [claim.lease_id])).get(claim.lease_id)
    ready = None if lease is None else step(lease.state, LeaseEvent.VERIFIED)
    if lease is None or not isinstance(ready, Moved):
        return False
    if not await claims.admitted(connection, claim.id, token=token, now=now):
        return False
    await _begin(connection, lease, ready, actor=actor, now=now)
    return True


async def open_node(
    connection: Connection, lease: Lease, claim_id: ClaimId, *, actor: Actor, now: datetime
) -> bool:
    """Record that a lease's node takes pods: from this moment the lease is ready, and billed.

    The lease is locked, and its node is held by the caller. False when the claim or the lease has ended, or when its
    machine is not what was sold any more.
    """
    ready = step(lease.state, LeaseEvent.VERIFIED)
    if not isinstance(ready, Moved) or not await claims.node_opened(connection, claim_id, now=now):
        return False
    await _begin(connection, lease, ready, actor=actor, now=now)
    return True


async def _begin(
    connection: Connection, lease: Lease, ready: Moved[LeaseState, LeaseEvent], *, actor: Actor, now: datetime
) -> None:
    await attempts.close(connection, [lease.id], AttemptOutcome.ADMITTED, now=now)
    replaced = lease.replaced_since is not None
    resumed = replace(lease, paused_at=(*lease.paused_at, now)) if replaced else lease
    until = release_at(lease.auto_release, resumed.tariff(lease.ready_at or now))
    move = LeaseMove(lease.id, lease.generation, ready, release_at=until)
    await leases.move(connection, [move], actor=actor, now=now)
    if replaced:  # What is left of its hold is what its first machine left.
        await holds.look_again(connection, lease.id, due_at=now)
    else:
        await holds.ready(connection, lease.id, due_at=first_look(now))


async def give_up(
    connection: Connection, claim: OverdueClaim, failure: MachineFailure, *, actor: Actor, now: datetime
) -> bool:
    """Give up a claim whose customer was not admitted in time, and its machine, unless the claim is on a slot.

    Its lease tries another machine. False when the customer was admitted meanwhile, or the claim ended.
    """
    if claim.slot is None:
        return await machine_outcomes.fail(connection, claim.machine_id, failure, actor=actor, now=now)
    lease = (await leases.lock(connection, [claim.lease_id])).get(claim.lease_id)
    waits = [
        each
        for each in await claims.lock_open(connection, lease_ids=[claim.lease_id])
        if each.id == claim.id and each.admitted_at is None
    ]
    node = (await machines.lock(connection, [claim.machine_id])).get(claim.machine_id)
    if lease is None or node is None or not waits:
        return False
    await lease_outcomes.lose_machine(connection, lease, waits[0], node, failure, actor=actor, now=now)
    return True
