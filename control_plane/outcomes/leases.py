"""How a lease ends, loses its machine, or waits for another one: changes lease, claim and attempt together.

These functions run in the caller's open transaction, under the locks that each of them names. They do not change
machines: `outcomes/machines.py` decides what happens to the machines of claims that have ended.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from control_plane.db import (
    accounts,
    attempts,
    claims,
    holds,
    journal,
    leases,
    machines,
    node_openings,
    powers,
    sla_terms,
)
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor
from control_plane.domain.attempt import AttemptOutcome
from control_plane.domain.auto_release import release_at
from control_plane.domain.claim import Claim, release_bound, use_ended_at
from control_plane.domain.failure import FailReason
from control_plane.domain.ids import LeaseId
from control_plane.domain.journal import Note
from control_plane.domain.lease import (
    BILLED,
    BILLED_WHILE_LISTED,
    LIVE,
    Lease,
    LeaseEvent,
    LeaseKind,
    LeaseMove,
    step,
)
from control_plane.domain.machine import Machine, MachineEvent, MachineFailure
from control_plane.domain.metering import Bound, Ending, ending, unready_bound
from control_plane.domain.money import usd
from control_plane.domain.purchase import OnEviction
from control_plane.domain.transitions import Moved
from control_plane.outcomes.powers import switch_price


async def end(
    connection: Connection, lease: Lease, event: LeaseEvent, *, why: str, actor: Actor, now: datetime
) -> bool:
    """End a locked lease, with its claim and its attempt. False when it is ending already."""
    return bool(await end_all(connection, [lease], event, why=why, actor=actor, now=now))


async def end_all(
    connection: Connection,
    found: Sequence[Lease],
    event: LeaseEvent,
    *,
    why: str,
    actor: Actor,
    now: datetime,
) -> frozenset[LeaseId]:
    """End locked leases, with their claims and their attempts. Returns those that were not ending already.

    A lease is billed until now, or until its machine became suspect if another challenge confirmed the failure, but
    never beyond the money that was set aside for it. When somebody ends it, it is not billed for time in which nobody
    could list the machine. Nothing is billed of a node that no pod could use. A customer who releases a lease pays the
    rest of the term that was committed to.
    """
    moves = {lease.id: _ending_move(lease, event, why) for lease in found}
    moving = [lease for lease in found if moves[lease.id] is not None]
    if not moving:
        return frozenset()
    open_claims = await claims.lock_open(connection, lease_ids=[lease.id for lease in moving])
    of_lease = {claim.lease_id: claim for claim in open_claims}
    billing = {
        lease.id: await _released(connection, lease, event, of_lease.get(lease.id), now) for lease in moving
    }
    await claims.end(connection, [claim.id for claim in open_claims], now=now, released=False)
    await attempts.close(connection, [lease.id for lease in moving], AttemptOutcome.ABANDONED, now=now)
    # Last, because it locks the organization's standing: see the order of locks in `db/leases.py`.
    stopping = [(move, billing[lease_id]) for lease_id, move in moves.items() if move is not None]
    return await _stop_billing(connection, stopping, actor=actor, now=now)


def _ending_move(lease: Lease, event: LeaseEvent, why: str) -> LeaseMove | None:
    moved = step(lease.state, event)
    return LeaseMove(lease.id, lease.generation, moved, why=why) if isinstance(moved, Moved) else None


async def _released(
    connection: Connection, lease: Lease, event: LeaseEvent, claim: Claim | None, now: datetime
) -> Ending | None:
    """When billing stops for a lease that ends now; None when it was never ready."""
    if lease.replaced_since is not None:
        return Ending(lease.replaced_since)
    if lease.ready_at is None or claim is None:
        return None
    if await _was_not_opened(connection, lease, claim):
        return await _ending(connection, lease, lease.ready_at, lease.ready_at)
    machine = await machines.get(connection, claim.machine_id)
    if machine is None:
        return await _ending(connection, lease, lease.ready_at, now)
    had_since = claim.admitted_at or lease.ready_at
    used_until = use_ended_at(had_since, machine, now, release_at=lease.release_at)
    bounds = await _unready(connection, lease, lease.ready_at, claim)
    if event in BILLED_WHILE_LISTED:
        bounds += (release_bound(had_since, machine),)
    released_at = now if event is LeaseEvent.RELEASED else None
    return await _ending(connection, lease, lease.ready_at, used_until, *bounds, released_at=released_at)


async def _was_not_opened(connection: Connection, lease: Lease, claim: Claim) -> bool:
    return lease.kind is LeaseKind.NODE and await node_openings.was_not_opened(connection, claim.id)


async def _unready(
    connection: Connection, lease: Lease, ready_at: datetime, claim: Claim
) -> tuple[Bound, ...]:
    """The bound of a lease whose node is not ready."""
    if lease.kind is not LeaseKind.NODE:
        return ()
    since = await node_openings.unready_since(connection, claim.id)
    return () if since is None else (unready_bound(max(ready_at, since)),)


async def _ending(
    connection: Connection,
    lease: Lease,
    ready_at: datetime,
    used_until: datetime,
    *bounds: Bound,
    released_at: datetime | None = None,
) -> Ending:
    switches_at = await powers.switches_at(connection, lease.id)
    if switches_at is not None:  # A list shows it, and nobody has recorded it yet.
        lease = await switch_price(connection, lease, switches_at)
    set_aside = await holds.set_aside(connection, lease.id)
    return ending(lease.tariff(ready_at), set_aside, used_until, *bounds, released_at=released_at)


async def _stop_billing(
    connection: Connection,
    stopping: Sequence[tuple[LeaseMove, Ending | None]],
    *,
    actor: Actor,
    now: datetime,
) -> frozenset[LeaseId]:
    """Move leases out of the states in which they have machines. Returns those that had not moved meanwhile."""
    stopped = [_with_bill(move, billing) for move, billing in stopping]
    moved = await leases.move(connection, stopped, actor=actor, now=now)
    for move, billing in stopping:
        for unbilled in billing.unbilled if billing and move.id in moved else ():
            amount = usd(unbilled.amount_nano)
            why = f"{unbilled.seconds} s of use ({amount} USD) are not billed: {unbilled.why}"
            await journal.note_lease(
                connection, move.id, event=Note.USE_NOT_BILLED, why=why, actor=actor, now=now
            )
    return moved


def _with_bill(move: LeaseMove, billing: Ending | None) -> LeaseMove:
    """The bill of a lease that stays live is paused."""
    if billing is None:
        return move
    if move.moved.after in LIVE:
        return replace(move, paused_at=billing.billed_until)
    return replace(move, billed_until=billing.billed_until, unused_unit_seconds=billing.unused_unit_seconds)


async def lose_machine(
    connection: Connection,
    lease: Lease,
    claim: Claim,
    machine: Machine,
    failure: MachineFailure,
    *,
    actor: Actor,
    now: datetime,
) -> None:
    """Give up a lease's machine. A starting lease tries another one. A ready lease ends, or waits for another one with
    its bill paused: if the machine is not healthy, if its provider took it back and its customer asked for
    that, or if its service level promises a replacement.

    Lease, claim and machine are locked; `machine` is its state before it failed. The claim ends and is released.
    """
    await attempts.fail(connection, lease.id, claim.attempt, failure.reason, failure.why, now=now)
    await claims.end(connection, [claim.id], now=now, released=True)
    moved = step(lease.state, _event(lease, failure, replaces=await _replaces(connection, lease)))
    if not isinstance(moved, Moved):
        return
    billing = None
    if lease.ready_at is not None and lease.state in BILLED:
        had_since = claim.admitted_at or lease.ready_at
        used_until = use_ended_at(had_since, machine, now, failure, release_at=lease.release_at)
        if await _was_not_opened(connection, lease, claim):
            used_until = lease.ready_at
        bounds = await _unready(connection, lease, lease.ready_at, claim)
        billing = await _ending(connection, lease, lease.ready_at, used_until, *bounds)
    move = LeaseMove(lease.id, lease.generation, moved, why=failure.why)
    if lease.ready_at is not None and billing is not None and moved.after in LIVE:
        paused = replace(lease, paused_at=(*lease.paused_at, billing.billed_until))
        move = replace(move, release_at=release_at(lease.auto_release, paused.tariff(lease.ready_at)))
    await _stop_billing(connection, [(move, billing)], actor=actor, now=now)


async def preempt(
    connection: Connection, lease: Lease, claim: Claim, *, why: str, actor: Actor, now: datetime
) -> bool:
    """Take the machine of a ready interruptible lease back: it ends, or waits for another machine with its bill paused.

    Lease and claim are locked. The claim ends, and its machine is overwritten and ended like that of every other lease.
    False when the lease is not ready any more.
    """
    if lease.on_eviction is OnEviction.END:
        return await end(connection, lease, LeaseEvent.PREEMPTED, why=why, actor=actor, now=now)
    moved = step(lease.state, LeaseEvent.REPLACING)
    billing = await _released(connection, lease, LeaseEvent.PREEMPTED, claim, now)
    if not isinstance(moved, Moved) or lease.ready_at is None or billing is None:
        return False
    await claims.end(connection, [claim.id], now=now, released=False)
    paused = replace(lease, paused_at=(*lease.paused_at, billing.billed_until))
    until = release_at(lease.auto_release, paused.tariff(lease.ready_at))
    move = LeaseMove(lease.id, lease.generation, moved, why=why, release_at=until)
    return bool(await _stop_billing(connection, [(move, billing)], actor=actor, now=now))


async def _replaces(connection: Connection, lease: Lease) -> bool:
    """Whether the service level of a lease promises another machine in place of one that is lost."""
    if lease.sla_version is None or lease.kind is not LeaseKind.MACHINE:
        return False
    terms = await sla_terms.of_versions(connection, [lease.sla_version])
    promised = terms.get((lease.sla_version, lease.sla))
    return promised is not None and promised.replacement_seconds is not None


def _event(lease: Lease, failure: MachineFailure, *, replaces: bool) -> LeaseEvent:
    if lease.state not in BILLED:
        return LeaseEvent.ATTEMPT_FAILED
    if failure.reason is FailReason.EVICTED:
        replaces = lease.on_eviction is OnEviction.REPLACE
        return LeaseEvent.REPLACING if replaces else LeaseEvent.EVICTED
    if failure.reason is FailReason.UNHEALTHY and lease.kind is LeaseKind.MACHINE:
        return LeaseEvent.REPLACING
    if replaces:
        return LeaseEvent.REPLACING
    disproven = failure.event is MachineEvent.DISPROVEN
    return LeaseEvent.PROOF_FAILED if disproven else LeaseEvent.MACHINE_LOST


async def unhealthy_accounts(connection: Connection) -> dict[str, str]:
    """Accounts at which nothing is bought now, each with the reason."""
    reasons: dict[str, str] = {}
    for account in await accounts.every(connection):
        if account.freeze is not None:
            reasons[account.name] = f"The account is frozen: {account.freeze.why}"
        elif account.failing_since is not None:
            reasons[account.name] = f"The account fails: {account.failing_why}"
        elif account.drained_at is not None:
            reasons[account.name] = f"The account is drained: {account.drained_why}"
    return reasons
