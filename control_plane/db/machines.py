"""Queries on machines. A state changes only through `move`."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db.engine import rows
from control_plane.domain.ids import AccountName, MachineId, LaunchKey, LeaseId, OrganizationId, ProviderRef
from control_plane.domain.machine import FailReason, Machine, MachineMove, MachineState, Step
from control_plane.domain.placement import Failure, Offer

# `sighted_at` as evidence: while no list misses the machine, the account's last listing shows it.
SELECT = """
SELECT i.id, i.organization_id, i.lease_id, i.account, i.provider, i.region, i.native_region, i.native_type,
  i.launch_key, i.state, i.generation, i.tries, i.host_key, i.provider_ref, i.address, i.ssh_port, i.asked_at,
  CASE WHEN i.sighted_at IS NULL OR i.missed_since IS NOT NULL OR i.state = 'gone' THEN i.sighted_at
       ELSE greatest(i.sighted_at, a.listing_asked_at) END AS sighted_at,
  i.missed_since, i.missed_lists, i.step, i.fail_reason, i.fail_why,
  i.suspect_since, i.erasing_until
FROM machines i JOIN provider_accounts a ON a.name = i.account
"""


def machine_of(row: Any) -> Machine:
    return Machine(
        id=MachineId(row.id),
        organization_id=OrganizationId(row.organization_id),
        lease_id=LeaseId(row.lease_id),
        account=AccountName(row.account),
        provider=row.provider,
        region=row.region,
        native_region=row.native_region,
        native_type=row.native_type,
        launch_key=LaunchKey(row.launch_key),
        state=MachineState(row.state),
        generation=row.generation,
        tries=row.tries,
        host_key=row.host_key,
        provider_ref=None if row.provider_ref is None else ProviderRef(row.provider_ref),
        address=row.address,
        ssh_port=row.ssh_port,
        asked_at=row.asked_at,
        sighted_at=row.sighted_at,
        missed_since=row.missed_since,
        missed_lists=row.missed_lists,
        step=None if row.step is None else Step(row.step),
        fail_reason=None if row.fail_reason is None else FailReason(row.fail_reason),
        fail_why=row.fail_why,
        suspect_since=row.suspect_since,
        erasing_until=row.erasing_until,
    )


_INSERT = text("""
WITH made AS (
  INSERT INTO machines (id, organization_id, lease_id, account, provider, region, native_region, native_type,
                         offer_key, cost_nano_per_hour, launch_key, state, due_at, created_at, step, step_at)
  SELECT id, organization_id, lease_id, account, provider, region, native_region, native_type,
         offer_key, cost_nano_per_hour, launch_key, 'intended', :now, :now, 'placed', :now
  FROM jsonb_to_recordset(CAST(:machines AS jsonb)) AS m(
    id uuid, organization_id uuid, lease_id uuid, account text, provider text, region text, native_region text,
    native_type text, offer_key text, cost_nano_per_hour bigint, launch_key text)
  RETURNING id, organization_id, lease_id, account, native_type, region
)
INSERT INTO journal (organization_id, lease_id, machine_id, at, actor, event, state_after, why)
SELECT organization_id, lease_id, id, :now, :actor, 'intended', 'intended',
       native_type || ' at ' || account || ' in ' || region FROM made
""")


def intended(
    machine_id: MachineId,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    launch_key: LaunchKey,
    offer: Offer,
) -> dict[str, Any]:
    """A row for `insert`."""
    return {
        "id": str(machine_id),
        "organization_id": str(organization_id),
        "lease_id": str(lease_id),
        "account": offer.account,
        "provider": offer.provider,
        "region": offer.region,
        "native_region": offer.native_region,
        "native_type": offer.native_type,
        "offer_key": offer.key,
        "cost_nano_per_hour": offer.cost_nano_per_hour,
        "launch_key": launch_key,
    }


async def insert(
    connection: AsyncConnection, machines: Sequence[dict[str, Any]], *, actor: str, now: datetime
) -> None:
    """Write intents. The lease's guarded move to STARTING belongs to the same transaction."""
    if machines:
        await connection.execute(_INSERT, {"machines": json.dumps(machines), "actor": actor, "now": now})


_MOVE = text("""
WITH wanted AS (
  SELECT * FROM jsonb_to_recordset(CAST(:moves AS jsonb)) AS m(
    id uuid, seen int, event text, before text, after text, why text, host_key text, asked_at timestamptz,
    deadline_at timestamptz, provider_ref text, provider_state text, address text, ssh_port int, step text,
    fail_reason text, gone_evidence text, due_at timestamptz, proof_due_at timestamptz, erasing_until timestamptz)
), moved AS (
  UPDATE machines i SET
    state = w.after, generation = i.generation + 1, tries = 0, claim_token = NULL, claimed_until = NULL,
    host_key = coalesce(w.host_key, i.host_key), asked_at = coalesce(w.asked_at, i.asked_at),
    deadline_at = coalesce(w.deadline_at, i.deadline_at), provider_ref = coalesce(w.provider_ref, i.provider_ref),
    provider_state = coalesce(w.provider_state, i.provider_state), address = coalesce(w.address, i.address),
    ssh_port = coalesce(w.ssh_port, i.ssh_port), step = coalesce(w.step, i.step),
    step_at = CASE WHEN w.step IS NULL THEN i.step_at ELSE CAST(:now AS timestamptz) END,
    fail_reason = coalesce(w.fail_reason, i.fail_reason),
    fail_why = CASE WHEN w.fail_reason IS NULL THEN i.fail_why ELSE w.why END,
    gone_evidence = coalesce(w.gone_evidence, i.gone_evidence),
    gone_at = CASE WHEN w.after = 'gone' THEN CAST(:now AS timestamptz) ELSE i.gone_at END,
    due_at = coalesce(w.due_at, CAST(:now AS timestamptz)),
    proof_due_at = coalesce(w.proof_due_at, i.proof_due_at), erasing_until = coalesce(w.erasing_until, i.erasing_until)
  FROM wanted w
  WHERE i.id = w.id AND i.state = w.before AND i.generation = w.seen
  RETURNING i.id, i.organization_id, i.lease_id, w.event, w.before, w.after, w.why, w.gone_evidence
), noted AS (
  INSERT INTO journal (organization_id, lease_id, machine_id, at, actor, event, state_before, state_after, why)
  SELECT organization_id, lease_id, id, :now, :actor, event, before, after, coalesce(why, gone_evidence) FROM moved
)
SELECT id FROM moved
""")


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _move_row(move: MachineMove) -> dict[str, Any]:
    return {
        "id": str(move.id),
        "seen": move.seen,
        "event": move.moved.event,
        "before": move.moved.before,
        "after": move.moved.after,
        "why": move.why,
        "host_key": move.host_key,
        "asked_at": _text(move.asked_at),
        "deadline_at": _text(move.deadline_at),
        "provider_ref": move.provider_ref,
        "provider_state": move.provider_state,
        "address": move.address,
        "ssh_port": move.ssh_port,
        "step": move.step,
        "fail_reason": move.fail_reason,
        "gone_evidence": move.gone_evidence,
        "due_at": _text(move.due_at),
        "proof_due_at": _text(move.proof_due_at),
        "erasing_until": _text(move.erasing_until),
    }


async def move(
    connection: AsyncConnection, moves: Sequence[MachineMove], *, actor: str, now: datetime
) -> frozenset[MachineId]:
    """Apply the moves of which nobody moved the machine since; answers the machines that did move."""
    if not moves:
        return frozenset()
    document = json.dumps([_move_row(one) for one in moves])
    moved = await rows(connection, _MOVE, moves=document, actor=actor, now=now)
    return frozenset(MachineId(row.id) for row in moved)


# Whatever happened to the row meanwhile: a machine that exists is never forgotten. The journal line makes
# the late answer visible; the state stays what it is, and an ENDING row now knows what to terminate.
_ADOPT = text("""
WITH adopted AS (
  UPDATE machines SET provider_ref = :ref, due_at = :now
  WHERE id = :id AND provider_ref IS NULL AND state <> 'gone'
  RETURNING id, organization_id, lease_id, state
)
INSERT INTO journal (organization_id, lease_id, machine_id, at, actor, event, state_before, state_after, why)
SELECT organization_id, lease_id, id, :now, :actor, 'reference_learnt', state, state, :why FROM adopted
""")


async def adopt(
    connection: AsyncConnection,
    machine_id: MachineId,
    ref: ProviderRef,
    *,
    actor: str,
    why: str,
    now: datetime,
) -> bool:
    """Record the provider's reference on a row that has none, in any open state."""
    result = await connection.execute(
        _ADOPT, {"id": machine_id, "ref": ref, "actor": actor, "why": why, "now": now}
    )
    return bool(result.rowcount)


_GET = text(SELECT + " WHERE i.id = :id")
_OF_LEASES = text(SELECT + " WHERE i.lease_id = ANY(:lease_ids) ORDER BY i.created_at, i.id")
_OPEN_OF_LEASES = text(
    SELECT + " WHERE i.lease_id = ANY(:lease_ids) AND i.state <> 'gone' ORDER BY i.id FOR UPDATE OF i"
)
_OPEN_OF_ACCOUNT = text(
    SELECT + " WHERE i.account = :account AND i.state <> 'gone' AND i.state <> 'intended' ORDER BY i.id"
)
_INTENDED = text(
    SELECT
    + """ WHERE i.account = :account AND i.state = 'intended' AND i.due_at <= :now
    ORDER BY i.due_at, i.id LIMIT :limit FOR UPDATE OF i SKIP LOCKED"""
)
_CURRENT = text(
    """
SELECT DISTINCT ON (i.lease_id) i.* FROM (
"""
    + SELECT
    + """ WHERE i.lease_id = ANY(:lease_ids)) i
JOIN machines o ON o.id = i.id ORDER BY i.lease_id, o.created_at DESC, i.id DESC
"""
)


async def get(connection: AsyncConnection, machine_id: MachineId) -> Machine | None:
    found = await rows(connection, _GET, id=machine_id)
    return machine_of(found[0]) if found else None


async def of_leases(connection: AsyncConnection, lease_ids: Sequence[LeaseId]) -> list[Machine]:
    """Every attempt of these leases, oldest first."""
    return [machine_of(row) for row in await rows(connection, _OF_LEASES, lease_ids=list(lease_ids))]


async def current(connection: AsyncConnection, lease_ids: Sequence[LeaseId]) -> dict[LeaseId, Machine]:
    """The latest attempt of each lease that has one."""
    found = await rows(connection, _CURRENT, lease_ids=list(lease_ids))
    return {machine.lease_id: machine for machine in map(machine_of, found)}


async def lock_open(connection: AsyncConnection, lease_ids: Sequence[LeaseId]) -> list[Machine]:
    """The attempts of these leases that may have a machine, locked. Lock the leases first."""
    return [machine_of(row) for row in await rows(connection, _OPEN_OF_LEASES, lease_ids=list(lease_ids))]


async def open_of_account(connection: AsyncConnection, account: AccountName) -> list[Machine]:
    """Every machine that may have a machine at this account."""
    return [machine_of(row) for row in await rows(connection, _OPEN_OF_ACCOUNT, account=account)]


async def take_intended(
    connection: AsyncConnection, account: AccountName, *, now: datetime, limit: int
) -> list[Machine]:
    """Intents due at this account, locked for this transaction; those in other hands are skipped."""
    found = await rows(connection, _INTENDED, account=account, now=now, limit=limit)
    return [machine_of(row) for row in found]


_CLAIM = text("""
UPDATE machines SET claim_token = :token, claimed_until = :until
WHERE id IN (
  SELECT id FROM machines
  WHERE account = :account AND state = :state AND due_at <= :now AND (claimed_until IS NULL OR claimed_until <= :now)
    AND (NOT CAST(:known AS boolean) OR provider_ref IS NOT NULL)
    AND (erasing_until IS NULL OR erasing_until <= :now)
    AND (state <> 'bootstrapping' OR deadline_at > :now)
  ORDER BY due_at, id LIMIT :limit FOR UPDATE SKIP LOCKED)
RETURNING id
""")
_CLAIMED = text(SELECT + " WHERE i.claim_token = :token ORDER BY i.due_at, i.id")


async def claim(
    connection: AsyncConnection,
    account: AccountName,
    state: MachineState,
    *,
    token: UUID,
    until: datetime,
    now: datetime,
    limit: int,
    with_reference: bool = False,
) -> list[Machine]:
    """Hold due machines for longer than a transaction: until `until`, or until they move.

    One that waits for the proof that its memory is overwritten is not due before, and one whose time for being
    set up is over is not any more.
    """
    taken = await rows(
        connection,
        _CLAIM,
        account=account,
        state=state.value,
        token=token,
        until=until,
        now=now,
        known=with_reference,
        limit=limit,
    )
    if not taken:
        return []
    return [machine_of(row) for row in await rows(connection, _CLAIMED, token=token)]


_RETRY = text("""
UPDATE machines SET tries = tries + 1, due_at = :due_at, claim_token = NULL, claimed_until = NULL
WHERE id = :id AND claim_token = :token
""")
_TERMINATE_ASKED = text("""
UPDATE machines SET terminate_asked_at = coalesce(terminate_asked_at, :now), tries = tries + 1, due_at = :due_at,
  claim_token = NULL, claimed_until = NULL
WHERE id = :id AND claim_token = :token
""")
_STEP = text("""
UPDATE machines SET step = coalesce(:step, step), claimed_until = :until,
  step_at = CASE WHEN CAST(:step AS text) IS NULL THEN step_at ELSE CAST(:now AS timestamptz) END
WHERE id = :id AND claim_token = :token
""")


async def retry(connection: AsyncConnection, machine_id: MachineId, *, token: UUID, due_at: datetime) -> None:
    """Give the claim back and come again later. Does nothing when the claim was lost."""
    await connection.execute(_RETRY, {"id": machine_id, "token": token, "due_at": due_at})


async def terminate_asked(
    connection: AsyncConnection, machine_id: MachineId, *, token: UUID, now: datetime, due_at: datetime
) -> None:
    await connection.execute(
        _TERMINATE_ASKED, {"id": machine_id, "token": token, "now": now, "due_at": due_at}
    )


async def record_step(
    connection: AsyncConnection,
    machine_id: MachineId,
    step: Step | None,
    *,
    token: UUID,
    now: datetime,
    until: datetime,
) -> bool:
    """Progress for the customer's eyes, None when there is none to show, and the claim held on until `until`.

    False when the claim was lost: somebody else does the work now.
    """
    values = {
        "id": machine_id,
        "step": None if step is None else step.value,
        "token": token,
        "now": now,
        "until": until,
    }
    result = await connection.execute(_STEP, values)
    return bool(result.rowcount)


_SIGHTED = text("""
UPDATE machines SET sighted_at = :asked_at, missed_since = NULL, missed_lists = 0
WHERE id = ANY(:ids) AND (sighted_at IS NULL OR missed_since IS NOT NULL)
""")
# A machine that is missed for the first time was last seen by the listing before.
_MISSED = text("""
UPDATE machines i SET
  sighted_at = CASE WHEN i.sighted_at IS NULL OR i.missed_since IS NOT NULL THEN i.sighted_at
                    ELSE greatest(i.sighted_at, a.listing_asked_at) END,
  missed_since = coalesce(i.missed_since, :asked_at), missed_lists = i.missed_lists + 1
FROM provider_accounts a WHERE a.name = i.account AND i.id = ANY(:ids)
""")


async def record_sighted(
    connection: AsyncConnection, machine_ids: Sequence[MachineId], *, asked_at: datetime
) -> None:
    if machine_ids:
        await connection.execute(_SIGHTED, {"ids": list(machine_ids), "asked_at": asked_at})


async def record_missed(
    connection: AsyncConnection, machine_ids: Sequence[MachineId], *, asked_at: datetime
) -> None:
    """Count one more complete list without them. Runs before the account's listing time moves on."""
    if machine_ids:
        await connection.execute(_MISSED, {"ids": list(machine_ids), "asked_at": asked_at})


# Who sets a machine up at its deadline finishes; the claim on it ends.
_STUCK = text(
    SELECT
    + """ WHERE (i.state IN ('launching', 'booting') AND i.deadline_at <= :now)
       OR (i.state = 'bootstrapping' AND i.deadline_at <= :now
           AND (i.claimed_until IS NULL OR i.claimed_until <= :now))
       OR (i.state = 'intended' AND i.created_at <= :intended_before)
    ORDER BY i.id LIMIT :limit"""
)
# The latest attempt on an offer counts, and it failed when it was given up: how long its machine took to boot
# or to go says nothing of when to try again, and must not hide what a later attempt found.
_FAILURES = text("""
SELECT DISTINCT ON (i.lease_id, i.offer_key) i.lease_id, i.offer_key, i.fail_reason, coalesce(
    (SELECT min(j.at) FROM journal j
     WHERE j.lease_id = i.lease_id AND j.machine_id = i.id AND j.state_after IN ('ending', 'gone')),
    i.created_at) AS at
FROM machines i WHERE i.lease_id = ANY(:lease_ids) AND i.fail_reason IS NOT NULL
ORDER BY i.lease_id, i.offer_key, i.created_at DESC, i.id DESC
""")


async def stuck(
    connection: AsyncConnection, *, now: datetime, intended_before: datetime, limit: int
) -> list[Machine]:
    """Attempts past their deadline, and intents from before `intended_before` that no provider took."""
    found = await rows(connection, _STUCK, now=now, intended_before=intended_before, limit=limit)
    return [machine_of(row) for row in found]


async def failures(
    connection: AsyncConnection, lease_ids: Sequence[LeaseId]
) -> dict[LeaseId, dict[str, Failure]]:
    """Where each lease failed before, by offer key; the latest failure per offer counts."""
    latest: dict[LeaseId, dict[str, Failure]] = {}
    for row in await rows(connection, _FAILURES, lease_ids=list(lease_ids)):
        failure = Failure(FailReason(row.fail_reason), row.at)
        latest.setdefault(LeaseId(row.lease_id), {})[row.offer_key] = failure
    return latest


_SOLD_AS = text("""
SELECT l.gpu_model, l.gpu_count FROM machines i JOIN leases l ON l.id = i.lease_id WHERE i.host_key = :host_key
""")


async def sold_as(connection: AsyncConnection, *, host_key: str) -> tuple[str, int]:
    """GPU model and count that the machine with this host key was ordered for."""
    row = (await rows(connection, _SOLD_AS, host_key=host_key))[0]
    return row.gpu_model, row.gpu_count
