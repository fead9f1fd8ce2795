"""Queries on claims: a lease's right to a machine, or to a slot of one."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.nodes import still_leaves
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.domain.claim import Claim
from control_plane.domain.deadline import OverdueClaim
from control_plane.domain.ids import AccountName, ClaimId, LaunchKey, LeaseId, MachineId
from control_plane.domain.machine import MachineState
from control_plane.domain.progress import Step
from control_plane.domain.waiting import WaitsFor

_SELECT = f"SELECT {', '.join(f'c.{field.name}' for field in fields(Claim))} FROM claims c"
_MADE = Recordset(Claim, "made")

_INSERT = text(f"""
INSERT INTO claims (id, organization_id, project_id, lease_id, machine_id, slot, attempt, claimed_at, due_at,
                    deadline_at)
SELECT id, organization_id, project_id, lease_id, machine_id, slot, attempt, claimed_at, :now, :deadline_at
FROM {_MADE}
""")
_OF_MACHINE = f"{_SELECT} WHERE c.machine_id = :machine_id AND c.ended_at IS NULL ORDER BY c.id"
_OPEN_OF_MACHINE = text(_OF_MACHINE)
_LOCK_OPEN_OF_MACHINE = text(_OF_MACHINE + " FOR UPDATE")
_UNRELEASED = text(f"{_SELECT} WHERE c.machine_id = :machine_id AND c.released_at IS NULL ORDER BY c.id")
_LOCK_OPEN = text(
    f"{_SELECT} WHERE c.lease_id = ANY(:lease_ids) AND c.ended_at IS NULL ORDER BY c.id FOR UPDATE"
)
_TIME_TO_READY = text("""
SELECT l.ready_at - min(c.claimed_at) FROM leases l JOIN claims c ON c.lease_id = l.id
WHERE l.id = :lease_id AND l.ready_at = :now GROUP BY l.ready_at
""")


async def time_to_ready(connection: Connection, lease_id: LeaseId, *, now: datetime) -> timedelta | None:
    """How long a lease took that became ready just now: from the first order of a machine, failed machines included.

    None for a lease that was ready before, and whose machine was replaced.
    """
    return await read_one(connection, _TIME_TO_READY, timedelta, lease_id=lease_id, now=now)


async def insert(
    connection: Connection, claims: Sequence[Claim], *, now: datetime, deadline_at: datetime | None = None
) -> None:
    """Store new claims.

    `deadline_at` is the time by which their customers have to be admitted, for machines that are verified already.
    Other claims get theirs from `machine_verified`.
    """
    if claims:
        await write(connection, _INSERT, made=_MADE.document(claims), now=now, deadline_at=deadline_at)


async def open_of_machine(connection: Connection, machine_id: MachineId) -> list[Claim]:
    return await read(connection, _OPEN_OF_MACHINE, Claim, machine_id=machine_id)


async def unreleased_of_machine(connection: Connection, machine_id: MachineId) -> list[Claim]:
    """Claims that are open, or that have ended but are not released yet."""
    return await read(connection, _UNRELEASED, Claim, machine_id=machine_id)


async def lock_open(connection: Connection, *, lease_ids: Sequence[LeaseId]) -> list[Claim]:
    """The open claims of these leases, locked in the order of their ids. Lock the leases first."""
    return await read(connection, _LOCK_OPEN, Claim, lease_ids=list(lease_ids))


async def lock_open_of_machine(connection: Connection, machine_id: MachineId) -> list[Claim]:
    """The open claims on a machine, locked in the order of their ids. Lock their leases first."""
    return await read(connection, _LOCK_OPEN_OF_MACHINE, Claim, machine_id=machine_id)


_IN_USE = text("""
SELECT DISTINCT machine_id FROM claims
WHERE machine_id = ANY(:ids) AND ended_at IS NULL AND admitted_at IS NOT NULL
""")


async def in_use(connection: Connection, machine_ids: Sequence[MachineId]) -> frozenset[MachineId]:
    """Those of the machines to which a customer is admitted. They are not locked, and may be released meanwhile."""
    if not machine_ids:
        return frozenset()
    return frozenset(await read(connection, _IN_USE, MachineId, ids=list(machine_ids)))


# The API's role may update only `ended_at`, so ending and releasing together has a statement of its own.
_END = text("UPDATE claims SET ended_at = :now WHERE id = ANY(:ids) AND ended_at IS NULL")
_END_AND_RELEASE = text(f"""
UPDATE claims SET ended_at = :now, released_at = :now, {work.GIVE_BACK} WHERE id = ANY(:ids) AND ended_at IS NULL
""")
_TAKE_ENDED = text(f"""
{_SELECT} WHERE c.ended_at IS NOT NULL AND c.released_at IS NULL AND NOT {still_leaves("n.claim_id = c.id")}
ORDER BY c.ended_at, c.id LIMIT :limit FOR UPDATE SKIP LOCKED
""")
_RELEASED = text(f"UPDATE claims SET released_at = :now, {work.GIVE_BACK} WHERE id = ANY(:ids)")


async def end(connection: Connection, claim_ids: Sequence[ClaimId], *, now: datetime, released: bool) -> None:
    """End claims. `released` says that the same transaction also handles their machine."""
    if claim_ids:
        await write(connection, _END_AND_RELEASE if released else _END, ids=list(claim_ids), now=now)


async def take_ended(connection: Connection, *, kept_since: datetime, limit: int) -> list[Claim]:
    """Claims that have ended and are not released yet, locked for this transaction, oldest end first.

    Claims locked by others are skipped, and those that ended after `kept_since` whose node is still in its cluster.
    """
    return await read(connection, _TAKE_ENDED, Claim, kept_since=kept_since, limit=limit)


async def released(connection: Connection, claim_ids: Sequence[ClaimId], *, now: datetime) -> None:
    """Release ended claims: their machines have been handled."""
    await write(connection, _RELEASED, ids=list(claim_ids), now=now)


# Admitting customers. Claims on slots, and those of nodes, are admitted differently: see `admit_customers` and
# `join_nodes`.
_WAITS = "admitted_at IS NULL AND ended_at IS NULL"
_IS_LOGGED_IN_TO = (
    "NOT EXISTS (SELECT FROM leases l WHERE l.id = claims.lease_id AND l.node_pool_id IS NOT NULL)"
)
# A suspect machine admits nobody until another challenge clears it.
_ADMITS = f"m.state = '{MachineState.VERIFIED}' AND m.suspect_since IS NULL"
_STILL_ADMITS = f"EXISTS (SELECT FROM machines m WHERE m.id = claims.machine_id AND {_ADMITS})"
_TAKE_ADMITTING = work.take(
    "claims",
    f"""{_WAITS} AND (slot IS NOT NULL) = :slots AND {_IS_LOGGED_IN_TO} AND due_at <= :now AND deadline_at IS NOT NULL
    AND {work.UNTRIED}
    AND EXISTS (SELECT FROM machines m WHERE m.id = claims.machine_id AND m.account = :account AND {_ADMITS})""",
    order="due_at, id",
)
_BY_IDS = text(f"{_SELECT} WHERE c.id = ANY(:ids) ORDER BY c.due_at, c.id")
_RETRY = text(f"""
UPDATE claims SET tries = tries + 1, tried_at = :now, due_at = :due_at, waits_for = NULL, waits_since = NULL,
  {work.GIVE_BACK}
WHERE id = :id AND {work.HELD}
""")
_WAIT = text(f"""
UPDATE claims SET due_at = :due_at, waits_for = CAST(:waits_for AS text),
  waits_since = CASE WHEN CAST(:waits_for AS text) IS NULL THEN NULL
    WHEN waits_for = CAST(:waits_for AS text) THEN waits_since ELSE CAST(:now AS timestamptz) END, {work.GIVE_BACK}
WHERE id = :id AND {work.HELD}
""")
_HELD = text(f"SELECT id FROM claims WHERE id = :id AND {work.HELD}")
_STEP = text(f"""
UPDATE claims SET step = coalesce(:step, step), work_until = :until,
  waits_for = CASE WHEN CAST(:step AS text) IS NULL THEN waits_for END,
  waits_since = CASE WHEN CAST(:step AS text) IS NULL THEN waits_since END,
  step_at = CASE WHEN CAST(:step AS text) IS NULL THEN step_at ELSE CAST(:now AS timestamptz) END
WHERE id = :id AND {work.HELD} AND ended_at IS NULL AND {_STILL_ADMITS}
""")
_MACHINE_VERIFIED = text("""
UPDATE claims SET due_at = :now, deadline_at = :deadline_at
WHERE machine_id = :machine_id AND admitted_at IS NULL AND ended_at IS NULL
""")
_ADMITTED = text(f"""
UPDATE claims SET admitted_at = :now, step = '{Step.CERTIFICATES_ACCEPTED}', step_at = :now, tries = 0,
  waits_for = NULL, waits_since = NULL, {work.GIVE_BACK}
WHERE id = :id AND {work.HELD} AND admitted_at IS NULL AND ended_at IS NULL AND {_STILL_ADMITS}
""")
_NODE_OPENED = text(f"""
UPDATE claims SET admitted_at = :now, tries = 0, {work.GIVE_BACK} WHERE id = :id AND {_WAITS} AND {_STILL_ADMITS}
""")
# Nobody is admitted to a suspect machine, so the deadline waits until it is cleared, or was suspect for too long. Nodes
# have a deadline of their own (`domain/node_deadline.py`).
_OVERDUE = text("""
SELECT c.id, c.lease_id, c.machine_id, c.slot, c.claimed_at, c.deadline_at, c.tried_at AS attended_until,
       m.suspect_since, m.last_challenged_at
FROM claims c JOIN machines m ON m.id = c.machine_id JOIN leases l ON l.id = c.lease_id
WHERE c.admitted_at IS NULL AND c.ended_at IS NULL AND c.deadline_at <= :now AND l.node_pool_id IS NULL
  AND (c.work_until IS NULL OR c.work_until <= :now) AND (m.suspect_since > :suspect_before) IS NOT TRUE
ORDER BY c.deadline_at, c.id LIMIT :limit
""")
_EXTEND = text(
    f"UPDATE claims SET deadline_at = :until WHERE id = ANY(:ids) AND deadline_at <= :now AND {_WAITS}"
)
_MACHINE_CLEARED = text("""
UPDATE claims SET deadline_at = greatest(deadline_at, :deadline_at)
WHERE machine_id = :machine_id AND admitted_at IS NULL AND ended_at IS NULL AND deadline_at IS NOT NULL
""")
_TARGETS = text("""
SELECT c.id AS claim_id, m.launch_key, m.address, m.ssh_port, m.host_key, m.mesh_key
FROM claims c JOIN machines m ON m.id = c.machine_id WHERE c.id = ANY(:ids)
""")


async def take_admitting(
    connection: Connection,
    account: AccountName,
    *,
    token: UUID,
    until: datetime,
    now: datetime,
    limit: int,
    slots: bool = False,
) -> list[Claim]:
    """Hold, until `until`, claims on verified machines of an account whose customers wait to be admitted.

    Takes claims on whole machines, or with `slots` those on slots of nodes. A claim that was tried since its deadline
    is no longer taken.
    """
    values = {"account": account, "token": token, "until": until, "now": now, "limit": limit, "slots": slots}
    ids = await read(connection, _TAKE_ADMITTING, ClaimId, **values)
    return await read(connection, _BY_IDS, Claim, ids=ids) if ids else []


@dataclass(frozen=True, slots=True)
class Target:
    """The machine that the customer of a claim is admitted to."""

    claim_id: ClaimId
    launch_key: LaunchKey
    address: str | None
    ssh_port: int
    host_key: str | None
    mesh_key: str | None
    """With which it joins a private network, where it made the key before anybody claimed it."""


async def targets(connection: Connection, claim_ids: Sequence[ClaimId]) -> dict[ClaimId, Target]:
    if not claim_ids:
        return {}
    found = await read(connection, _TARGETS, Target, ids=list(claim_ids))
    return {target.claim_id: target for target in found}


async def retry(
    connection: Connection, claim_id: ClaimId, *, token: UUID, now: datetime, due_at: datetime
) -> None:
    """Give a claim back after a try that failed now. Has no effect when another worker holds it."""
    await write(connection, _RETRY, id=claim_id, token=token, now=now, due_at=due_at)


async def wait(
    connection: Connection,
    claim_id: ClaimId,
    *,
    token: UUID,
    due_at: datetime,
    waits_for: WaitsFor | None,
    now: datetime,
) -> None:
    """Give a claim back that has to wait for something of ours: no failed try. None for what is over in a moment."""
    values = {"due_at": due_at, "waits_for": waits_for, "now": now}
    await write(connection, _WAIT, id=claim_id, token=token, **values)


async def is_held(connection: Connection, claim_id: ClaimId, *, token: UUID) -> bool:
    """Whether this worker still holds the claim. Locks nothing: the lease has to be locked first."""
    return bool(await read(connection, _HELD, ClaimId, id=claim_id, token=token))


async def record_step(
    connection: Connection,
    claim_id: ClaimId,
    step: Step | None,
    *,
    token: UUID,
    now: datetime,
    until: datetime,
) -> bool:
    """Store a step that the customer reads (None: no new step), and hold the claim until `until`.

    False when another worker holds the claim, when it has ended, or when its machine admits nobody now.
    """
    values = {"id": claim_id, "step": step, "token": token, "now": now, "until": until}
    return bool(await write(connection, _STEP, **values))


async def machine_verified(
    connection: Connection, machine_id: MachineId, *, now: datetime, deadline_at: datetime
) -> None:
    """Let the customers of a machine's open claims be admitted from now on; they have to be by `deadline_at`."""
    await write(connection, _MACHINE_VERIFIED, machine_id=machine_id, now=now, deadline_at=deadline_at)


async def machine_cleared(connection: Connection, machine_id: MachineId, *, deadline_at: datetime) -> None:
    """Give the customers who waited while a machine was suspect until `deadline_at` at least to be admitted.

    Call it before the machine is changed, because claims are locked before machines.
    """
    await write(connection, _MACHINE_CLEARED, machine_id=machine_id, deadline_at=deadline_at)


async def admitted(connection: Connection, claim_id: ClaimId, *, token: UUID, now: datetime) -> bool:
    """Record that the customer is admitted. False when `record_step` would return False."""
    return bool(await write(connection, _ADMITTED, id=claim_id, token=token, now=now))


async def node_opened(connection: Connection, claim_id: ClaimId, *, now: datetime) -> bool:
    """Record that a node takes its customer's pods. False when the claim has ended, or its machine admits nobody."""
    return bool(await write(connection, _NODE_OPENED, id=claim_id, now=now))


async def overdue(
    connection: Connection, *, now: datetime, suspect_before: datetime, limit: int
) -> list[OverdueClaim]:
    """Claims whose customers were not admitted in time, and which no worker holds now, oldest deadline first.

    Claims on machines that became suspect after `suspect_before` still wait for another challenge.
    `domain/deadline.py` decides.
    """
    values = {"now": now, "suspect_before": suspect_before, "limit": limit}
    return await read(connection, _OVERDUE, OverdueClaim, **values)


async def extend(
    connection: Connection, claim_ids: Sequence[ClaimId], *, until: datetime, now: datetime
) -> None:
    """Give claims that are past their deadline another one, unless their customers were admitted meanwhile."""
    await write(connection, _EXTEND, ids=list(claim_ids), until=until, now=now)
