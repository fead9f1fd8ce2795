"""Queries on GPU proofs: storing them, what they add up to, and whose turn it is to be challenged.

A proof is stored twice: with all its evidence among its customer's facts, and as a line of its
provider's record, which says nothing of the customer and is read across all tenants.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db.engine import rows
from control_plane.db.machines import SELECT, machine_of
from control_plane.domain.ids import AccountName, MachineId, LeaseId, OrganizationId
from control_plane.domain.machine import Machine
from control_plane.domain.placement import Disproven
from control_plane.domain.proof import VOID, Occasion, ProofOutcome, Record

# Of the last two weeks with proofs: what is older makes no tier. Answers of an emulation are held against a machine
# like failures; what is shown after the end is not, nor a challenge that the customer's own work spoilt.
_RECORD_OF_INSTANCE = """
SELECT count(*) FILTER (WHERE passed) AS passes, min(at) FILTER (WHERE passed) AS first_passed_at, last_passed_at,
  coalesce(bool_or(attested) FILTER (WHERE passed AND at = last_passed_at), false) AS attested,
  count(*) FILTER (WHERE since AND outcome IN ('failed', 'emulated')) AS failed,
  count(*) FILTER (WHERE since AND outcome = 'unanswered' AND NOT void) AS unanswered,
  max(at) FILTER (WHERE NOT void) AS last_at
FROM (
  SELECT *, last_passed_at IS NULL OR at > last_passed_at AS since FROM (
    SELECT p.at, p.outcome, p.attested, p.outcome = 'passed' AS passed,
           coalesce(p.code IN ({void}), false) AS void,
           max(p.at) FILTER (WHERE p.outcome = 'passed') OVER () AS last_passed_at
    FROM proofs p WHERE p.machine_id = {machine} AND p.occasion <> 'end'
      AND p.at > (SELECT max(at) - interval '15 days' FROM proofs WHERE machine_id = {machine})
  ) each_proof
) judged GROUP BY last_passed_at
"""


def record_of_machine(machine: str) -> str:
    """SQL of what the challenges of one machine add up to; `machine` is an SQL expression."""
    void = ", ".join(f"'{code}'" for code in sorted(VOID))
    return _RECORD_OF_INSTANCE.format(machine=machine, void=void)


_RECORD = text(record_of_machine(":machine_id"))


def record_of(row: Any) -> Record:
    return Record(
        passes=row.passes,
        first_passed_at=row.first_passed_at,
        last_passed_at=row.last_passed_at,
        attested=row.attested,
        failed=row.failed,
        unanswered=row.unanswered,
        last_at=row.last_at,
    )


async def record(connection: AsyncConnection, machine_id: MachineId) -> Record:
    """What the challenges of a machine add up to."""
    found = await rows(connection, _RECORD, machine_id=machine_id)
    return record_of(found[0]) if found else Record()


@dataclass(frozen=True, slots=True)
class Stored:
    """A proof as it is written down. JSON values are bounded, and hold nothing that PostgreSQL refuses."""

    id: UUID
    occasion: Occasion
    outcome: ProofOutcome
    source: str
    driver: str
    reference: str
    attested: bool
    code: str | None
    why: str | None
    findings: Sequence[Mapping[str, Any]]
    hints: Sequence[Mapping[str, Any]]
    rates: Sequence[Mapping[str, Any]]
    gpu_uuids: Sequence[str]
    devices: Sequence[str]
    """Identities that its GPUs attested."""
    proven_bytes: Sequence[int]
    seconds: float
    evidence: Mapping[str, Any]


_INSERT = text("""
WITH proof AS (
  INSERT INTO proofs (id, organization_id, lease_id, machine_id, account, offer_key, gpu_model, occasion, outcome,
                      source, driver, reference, attested, code, why, findings, hints, rates, gpu_uuids, devices,
                      proven_bytes, seconds, evidence, at)
  SELECT :id, i.organization_id, i.lease_id, i.id, i.account, i.offer_key, l.gpu_model, :occasion, :outcome,
         :source, :driver, :reference, :attested, :code, :why, CAST(:findings AS jsonb), CAST(:hints AS jsonb),
         CAST(:rates AS jsonb), :gpu_uuids, :devices, :proven_bytes, :seconds, CAST(:evidence AS jsonb), :now
  FROM machines i JOIN leases l ON l.id = i.lease_id WHERE i.id = :machine_id
  RETURNING id, machine_id, account, offer_key, gpu_model, occasion, outcome, code, why, at
)
INSERT INTO proof_records (proof_id, machine_id, account, offer_key, gpu_model, occasion, outcome, code, why, ended,
                           at)
SELECT id, machine_id, account, offer_key, gpu_model, occasion, outcome, code, why, :ended, at FROM proof
""")


async def insert(
    connection: AsyncConnection, machine_id: MachineId, proof: Stored, *, ended: bool, now: datetime
) -> None:
    """Store a proof and its line in the provider's record. `ended`: its machine is ended because of it."""
    values = {
        "id": proof.id,
        "machine_id": machine_id,
        "occasion": proof.occasion.value,
        "outcome": proof.outcome.value,
        "source": proof.source,
        "driver": proof.driver,
        "reference": proof.reference,
        "attested": proof.attested,
        "code": proof.code,
        "why": proof.why,
        "findings": json.dumps(list(proof.findings)),
        "hints": json.dumps(list(proof.hints)),
        "rates": json.dumps(list(proof.rates)),
        "gpu_uuids": list(proof.gpu_uuids),
        "devices": list(proof.devices),
        "proven_bytes": list(proof.proven_bytes),
        "seconds": proof.seconds,
        "evidence": json.dumps(proof.evidence),
        "ended": ended,
        "now": now,
    }
    await connection.execute(_INSERT, values)


# Whose turn it is

_CLAIM_DUE = text("""
UPDATE machines SET claim_token = :token, claimed_until = :until
WHERE id IN (
  SELECT id FROM machines
  WHERE account = :account AND state = 'verified' AND proof_due_at <= :now
    AND (claimed_until IS NULL OR claimed_until <= :now)
  ORDER BY proof_due_at, id LIMIT :limit FOR UPDATE SKIP LOCKED)
RETURNING id
""")
# Claimed no longer than the wait lasts: whoever does the work, the end is asked for in time.
_CLAIM_ERASING = text("""
UPDATE machines SET claim_token = :token, claimed_until = erasing_until
WHERE id IN (
  SELECT id FROM machines
  WHERE account = :account AND state = 'ending' AND erasing_until > :now AND due_at <= :now
    AND (claimed_until IS NULL OR claimed_until <= :now)
  ORDER BY erasing_until, id LIMIT :limit FOR UPDATE SKIP LOCKED)
RETURNING id
""")
_CLAIMED = text(SELECT + " WHERE i.claim_token = :token ORDER BY i.id")


async def claim_due(
    connection: AsyncConnection,
    account: AccountName,
    *,
    token: UUID,
    until: datetime,
    now: datetime,
    limit: int,
) -> list[Machine]:
    """Hold machines in use whose next challenge is due, until `until` or until they move."""
    values = {"account": account, "token": token, "until": until, "now": now, "limit": limit}
    return await _claimed(connection, token, await rows(connection, _CLAIM_DUE, **values))


async def claim_erasing(
    connection: AsyncConnection, account: AccountName, *, token: UUID, now: datetime, limit: int
) -> list[Machine]:
    """Hold machines whose end waits for the proof that their memory is overwritten, until the wait is over."""
    values = {"account": account, "token": token, "now": now, "limit": limit}
    return await _claimed(connection, token, await rows(connection, _CLAIM_ERASING, **values))


async def _claimed(connection: AsyncConnection, token: UUID, taken: Sequence[Any]) -> list[Machine]:
    return [machine_of(row) for row in await rows(connection, _CLAIMED, token=token)] if taken else []


_STILL_CLAIMED = text("SELECT id FROM machines WHERE id = :id AND claim_token = :token FOR UPDATE")
_AGAIN = text("""
UPDATE machines SET due_at = :due_at, deadline_at = greatest(deadline_at, :deadline_at),
  claim_token = NULL, claimed_until = NULL
WHERE id = :id AND claim_token = :token
""")
_NEXT = text("""
UPDATE machines SET proof_due_at = :due_at, claim_token = NULL, claimed_until = NULL,
  suspect_since = CASE WHEN NOT CAST(:judged AS boolean) THEN suspect_since
                       WHEN CAST(:suspect AS boolean) THEN coalesce(suspect_since, :now) END
WHERE id = :id AND claim_token = :token
""")
_ERASED = text("""
UPDATE machines SET erasing_until = NULL, tries = 0, due_at = :now, claim_token = NULL, claimed_until = NULL
WHERE id = :id AND claim_token = :token
""")


async def still_claimed(connection: AsyncConnection, machine_id: MachineId, *, token: UUID) -> bool:
    """Lock a machine if it is still in our hands. Whoever lost it drops what it found."""
    return bool(await rows(connection, _STILL_CLAIMED, id=machine_id, token=token))


async def again(
    connection: AsyncConnection,
    machine_id: MachineId,
    *,
    token: UUID,
    due_at: datetime,
    deadline_at: datetime | None = None,
) -> None:
    """Give a machine that is being set up, or erased, back to be challenged again. Not a failed try of ours.

    `deadline_at` puts the end of its patience off; it never comes nearer.
    """
    values = {"id": machine_id, "token": token, "due_at": due_at, "deadline_at": deadline_at}
    await connection.execute(_AGAIN, values)


async def next_challenge(
    connection: AsyncConnection,
    machine_id: MachineId,
    *,
    token: UUID,
    due_at: datetime,
    suspect: bool | None,
    now: datetime,
) -> None:
    """Give a machine in use back, to be challenged again at `due_at`.

    `suspect` says whether something is held against it from now on, or still; None leaves that as it is.
    """
    values = {
        "id": machine_id,
        "token": token,
        "due_at": due_at,
        "judged": suspect is not None,
        "suspect": bool(suspect),
        "now": now,
    }
    await connection.execute(_NEXT, values)


async def erased(connection: AsyncConnection, machine_id: MachineId, *, token: UUID, now: datetime) -> None:
    """A machine's end waits no longer."""
    await connection.execute(_ERASED, {"id": machine_id, "token": token, "now": now})


# GPUs that two machines show

# Two workers that find the same GPU at the same moment wait for each other here, before they hold anything else.
_LOCK_GPUS = text("""
SELECT pg_advisory_xact_lock(hashtextextended(gpu, 4711)) FROM (SELECT gpu FROM unnest(CAST(:gpus AS text[])) gpu
  ORDER BY gpu) ordered
""")
_SHOWN_BY_OTHERS = text("""
SELECT DISTINCT i.id, i.organization_id, i.lease_id, i.account
FROM machines i JOIN proofs p ON p.machine_id = i.id
WHERE i.state IN ('bootstrapping', 'verified') AND i.id <> :machine_id
  AND p.outcome = 'passed'
  AND (p.gpu_uuids && CAST(:uuids AS text[]) OR p.devices && CAST(:devices AS text[]))
ORDER BY i.id
""")
_CHALLENGE_NOW = text("""
UPDATE machines SET proof_due_at = :now WHERE id = :id AND state = 'verified' AND proof_due_at > :now
""")


@dataclass(frozen=True, slots=True)
class Holder:
    """A machine that has shown a GPU."""

    machine_id: MachineId
    organization_id: OrganizationId
    lease_id: LeaseId
    account: AccountName


async def lock_gpus(connection: AsyncConnection, proof: Stored) -> None:
    """Until the transaction's end nobody else judges a machine that shows one of its GPUs. Lock them first of all."""
    gpus = [*proof.gpu_uuids, *proof.devices]
    if gpus:
        await rows(connection, _LOCK_GPUS, gpus=gpus)


async def holders(connection: AsyncConnection, machine_id: MachineId, proof: Stored) -> list[Holder]:
    """Other live machines that passed with one of its GPUs, by UUID or by what it attested. They are locked."""
    values = {"uuids": list(proof.gpu_uuids), "devices": list(proof.devices)}
    found = await rows(connection, _SHOWN_BY_OTHERS, machine_id=machine_id, **values)
    return [
        Holder(
            MachineId(row.id),
            OrganizationId(row.organization_id),
            LeaseId(row.lease_id),
            AccountName(row.account),
        )
        for row in found
    ]


async def challenge_now(connection: AsyncConnection, machine_id: MachineId, *, now: datetime) -> None:
    await connection.execute(_CHALLENGE_NOW, {"id": machine_id, "now": now})


# The record of a provider

# Under a lock, so that replicas who judge machines of one account count each other's.
_LOCK_ACCOUNT = text("SELECT pg_advisory_xact_lock(hashtextextended(:account, 4712))")
# A machine that is only silent fails too, once it was silent often enough: a fault of ours mostly looks like that.
_FAILING = text("""
SELECT count(*) AS machines FROM (
  SELECT machine_id FROM proof_records
  WHERE account = :account AND (ended OR outcome IN ('failed', 'emulated')) AND occasion <> 'end' AND at > :since
    AND code IS DISTINCT FROM 'gpu_shown_elsewhere'
  UNION
  SELECT id FROM machines WHERE account = :account AND state = 'verified' AND suspect_since IS NOT NULL
) failing WHERE machine_id <> :but
""")
# One that passed and was ended made only a lesser tier than was sold, which no offer had promised.
_DISPROVEN = text("""
SELECT offer_key, array_agg(proof_id ORDER BY at, proof_id) AS proofs FROM proof_records
WHERE ended AND outcome <> 'passed' AND at > :since AND code IS DISTINCT FROM 'gpu_shown_elsewhere'
GROUP BY offer_key
""")


async def failing_machines(
    connection: AsyncConnection, account: AccountName, *, since: datetime, but: MachineId
) -> int:
    """How many machines of an account, `but` one, failed or were ended since then, or stand failed now.

    One asker at a time.
    """
    await rows(connection, _LOCK_ACCOUNT, account=account)
    found = await rows(connection, _FAILING, account=account, since=since, but=but)
    return int(found[0].machines)


async def disproven(connection: AsyncConnection, *, since: datetime) -> dict[str, Disproven]:
    """The offers of which machines were ended for their proof since then."""
    found = await rows(connection, _DISPROVEN, since=since)
    return {row.offer_key: Disproven(tuple(row.proofs)) for row in found}


# Reading

_SUMMARY = """id, lease_id, machine_id, account, gpu_model, occasion, outcome, source, driver, reference, attested,
 code, why, findings, hints, rates, gpu_uuids, proven_bytes, seconds, at"""
_PAGE = text(f"""
SELECT {_SUMMARY} FROM proofs WHERE organization_id = :organization_id AND lease_id = :lease_id
  AND (CAST(:before_at AS timestamptz) IS NULL OR (at, id) < (:before_at, CAST(:before_id AS uuid)))
ORDER BY at DESC, id DESC LIMIT :limit
""")
_SHOW = text(f"SELECT {_SUMMARY}, evidence FROM proofs WHERE organization_id = :organization_id AND id = :id")
_RECORD_PAGE = text("""
SELECT proof_id, machine_id, account, offer_key, gpu_model, occasion, outcome, code, why, ended, at FROM proof_records
WHERE (CAST(:account AS text) IS NULL OR account = :account) AND (CAST(:outcome AS text) IS NULL OR outcome = :outcome)
  AND (CAST(:before_at AS timestamptz) IS NULL OR (at, proof_id) < (:before_at, CAST(:before_id AS uuid)))
ORDER BY at DESC, proof_id DESC LIMIT :limit
""")


async def page(
    connection: AsyncConnection,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    *,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[Any]:
    """The proofs of a lease's machines, newest first."""
    before_at, before_id = before or (None, None)
    values = {"organization_id": organization_id, "lease_id": lease_id, "limit": limit}
    return list(await rows(connection, _PAGE, before_at=before_at, before_id=before_id, **values))


async def show(connection: AsyncConnection, organization_id: OrganizationId, proof_id: UUID) -> Any | None:
    """One proof with its evidence."""
    found = await rows(connection, _SHOW, organization_id=organization_id, id=proof_id)
    return found[0] if found else None


async def record_page(
    connection: AsyncConnection,
    *,
    account: str | None,
    outcome: ProofOutcome | None,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[Any]:
    """How the machines of our providers answered, newest first."""
    before_at, before_id = before or (None, None)
    named = None if outcome is None else outcome.value
    values = {"account": account, "outcome": named, "limit": limit}
    return list(await rows(connection, _RECORD_PAGE, before_at=before_at, before_id=before_id, **values))
