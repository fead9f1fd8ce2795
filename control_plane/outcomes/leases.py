"""How a lease ends, and how it loses its machine: changes the lease, its claim and its attempt together.

These functions run in the caller's open transaction, under the locks that each of them names. They do not change
machines: `outcomes/machines.py` decides what happens to the machines of claims that have ended.
"""

from datetime import datetime

from control_plane.db import accounts, attempts, claims, leases, machines
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor
from control_plane.domain.attempt import AttemptOutcome
from control_plane.domain.claim import Claim, billed_until
from control_plane.domain.lease import BILLED, Lease, LeaseEvent, LeaseMove, LeaseState, step
from control_plane.domain.machine import Machine, MachineEvent, MachineFailure
from control_plane.domain.transitions import Moved


async def end(
    connection: Connection, lease: Lease, event: LeaseEvent, *, why: str, actor: Actor, now: datetime
) -> bool:
    """End a locked lease, with its claim and its attempt. False when it is ending already.

    It is billed until now, or until its machine became suspect if another challenge confirmed the failure.
    """
    moved = step(lease.state, event)
    if not isinstance(moved, Moved):
        return False
    open_claims = await claims.lock_open(connection, lease_ids=[lease.id])
    until = await _billed_until(connection, lease, open_claims, now)
    await claims.end(connection, [claim.id for claim in open_claims], now=now, released=False)
    await attempts.close(connection, [lease.id], AttemptOutcome.ABANDONED, now=now)
    # Last, because it locks the organization's standing: see the order of locks in `db/leases.py`.
    move = LeaseMove(lease.id, lease.generation, moved, why=why, billed_until=until)
    return bool(await leases.move(connection, [move], actor=actor, now=now))


async def _billed_until(
    connection: Connection, lease: Lease, open_claims: list[Claim], now: datetime
) -> datetime | None:
    """When billing stops for a lease that ends now; None when it was never ready."""
    if lease.ready_at is None or not open_claims:
        return None
    machine = await machines.get(connection, open_claims[0].machine_id)
    return now if machine is None else billed_until(lease.ready_at, machine, now)


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
    """Give up a lease's machine: a starting lease tries another one, and a ready lease ends.

    Lease, claim and machine are locked; `machine` is its state before it failed. The claim ends and is released.
    """
    await attempts.fail(connection, lease.id, claim.attempt, failure.reason, failure.why, now=now)
    await claims.end(connection, [claim.id], now=now, released=True)
    moved = step(lease.state, _event(lease.state, failure))
    if not isinstance(moved, Moved):
        return
    ready_at = lease.ready_at
    until = None if ready_at is None else billed_until(ready_at, machine, now, failure)
    move = LeaseMove(lease.id, lease.generation, moved, why=failure.why, billed_until=until)
    await leases.move(connection, [move], actor=actor, now=now)


def _event(state: LeaseState, failure: MachineFailure) -> LeaseEvent:
    if state not in BILLED:
        return LeaseEvent.ATTEMPT_FAILED
    disproven = failure.event is MachineEvent.DISPROVEN
    return LeaseEvent.PROOF_FAILED if disproven else LeaseEvent.MACHINE_LOST


async def unhealthy_accounts(connection: Connection) -> dict[str, str]:
    """Accounts at which nothing is bought now, each with the reason."""
    reasons: dict[str, str] = {}
    for account in await accounts.every(connection):
        if account.freeze is not None:
            reasons[account.name] = f"The account is frozen: {account.freeze.why}"
        elif account.failing_since is not None:
            reasons[account.name] = f"The account does not answer: {account.failing_why}"
    return reasons
