"""Queries on GPU proofs: storing and reading them, and finding the machines that are challenged next.

A proof is stored twice: with all its evidence, for the customer whose machine it was, and as a line of the
provider's record, which names no customer and is read across all tenants. The statement that stores a proof also
updates the summary on the machine's row (`domain/proof.py`, `Record`).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import machines, work
from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, LeaseId, MachineId, OrganizationId
from control_plane.domain.machine import Machine, MachineState
from control_plane.domain.placement import Disproven
from control_plane.domain.proof import COUNTED_AS_FAILURE, Occasion, OwnCode, ProofOutcome, Result

# Storing


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a challenge found."""

    code: str
    gpu: int | None
    """Index of the GPU; None when the finding concerns the whole machine."""
    why: str


@dataclass(frozen=True, slots=True)
class Rate:
    """What one GPU achieved in one try of a timed phase."""

    gpu: int
    phase: str
    seconds: float
    work: float
    """In the units of the phase: see docs/gpu-proof.md."""


@dataclass(frozen=True, slots=True)
class NewProof:
    """A proof to store. Its JSON values are bounded, and PostgreSQL accepts all of them."""

    id: UUID
    occasion: Occasion
    outcome: ProofOutcome
    source: str
    driver: str
    reference: str
    attested: bool
    code: str | None
    why: str | None
    findings: Sequence[Finding]
    hints: Sequence[Finding]
    rates: Sequence[Rate]
    gpu_uuids: Sequence[str]
    devices: Sequence[str]
    """Identities that its GPUs attested."""
    proven_bytes: Sequence[int]
    seconds: float
    evidence: dict[str, object]

    def result(self, at: datetime) -> Result:
        """The part of the challenge that decisions need."""
        hinted = bool(self.hints)
        return Result(self.occasion, self.outcome, at, self.code, self.why, hinted, self.attested)


_COLUMNS = [field.name for field in fields(NewProof)]
_LISTS = ("findings", "hints", "rates")
_JSON = frozenset({*_LISTS, "evidence"})
_VALUES = ", ".join(f"CAST(:{name} AS jsonb)" if name in _JSON else f":{name}" for name in _COLUMNS)
# The proof belongs to the lease that has or last had the whole machine; a node's proof belongs to no lease.
_INSERT = text(f"""
WITH proof AS (
  INSERT INTO proofs ({", ".join(_COLUMNS)}, organization_id, project_id, lease_id, machine_id, account, offer_key,
                      gpu_model, at)
  SELECT {_VALUES}, claimant.organization_id, claimant.project_id, claimant.lease_id, m.id, m.account, m.offer_key,
         m.gpu_model, :now
  FROM machines m LEFT JOIN LATERAL (
    SELECT c.organization_id, c.project_id, c.lease_id FROM claims c
    WHERE c.machine_id = m.id AND c.slot IS NULL ORDER BY c.claimed_at DESC, c.id DESC LIMIT 1) claimant ON true
  WHERE m.id = :machine_id
  RETURNING id, machine_id, account, offer_key, gpu_model, occasion, outcome, code, why, at
), recorded AS (
  INSERT INTO proof_records (proof_id, machine_id, account, offer_key, gpu_model, occasion, outcome, code, why, ended,
                             at)
  SELECT id, machine_id, account, offer_key, gpu_model, occasion, outcome, code, why, :ended, at FROM proof
)
UPDATE machines SET passes = :passes, first_passed_at = :first_passed_at, last_passed_at = :last_passed_at,
  attested = :last_attested, failed = :failed, unanswered = :unanswered, last_challenged_at = :last_challenged_at
WHERE id = :machine_id
""")


async def insert(
    connection: Connection, machine: Machine, proof: NewProof, *, ended: bool, now: datetime
) -> None:
    """Store a proof, its line in the provider's record, and the machine's new summary.

    `machine` is locked, with its current row. `ended` says that it is terminated because of this proof.
    """
    record = machine.record.after(proof.result(now))
    values = {name: getattr(proof, name) for name in _COLUMNS}
    values |= {name: Recordset.document(values[name]) for name in _LISTS}
    values["evidence"] = json.dumps(proof.evidence)
    await write(
        connection,
        _INSERT,
        **values,
        machine_id=machine.id,
        ended=ended,
        passes=record.passes,
        first_passed_at=record.first_passed_at,
        last_passed_at=record.last_passed_at,
        last_attested=record.attested,
        failed=record.failed,
        unanswered=record.unanswered,
        last_challenged_at=record.last_at,
        now=now,
    )


# Machines that are challenged next

_TAKE_DUE = work.take(
    "machines",
    f"account = :account AND state = '{MachineState.VERIFIED}' AND proof_due_at <= :now",
    order="proof_due_at, id",
)
# The hold ends with the wait, so the machine is terminated in time even if the worker dies.
_TAKE_ERASING = work.take(
    "machines",
    f"account = :account AND state = '{MachineState.TERMINATING}' AND erasing_until > :now AND due_at <= :now",
    order="erasing_until, id",
    until="erasing_until",
)
_TAKEN = text(f"{machines.SELECT} WHERE m.work_token = :token ORDER BY m.id")


async def take_due(
    connection: Connection, account: AccountName, *, token: UUID, until: datetime, now: datetime, limit: int
) -> list[Machine]:
    """Hold verified machines whose next challenge is due, until `until` or until they move."""
    taken = await read(
        connection, _TAKE_DUE, UUID, account=account, token=token, until=until, now=now, limit=limit
    )
    return await read(connection, _TAKEN, Machine, token=token) if taken else []


async def take_erasing(
    connection: Connection, account: AccountName, *, token: UUID, now: datetime, limit: int
) -> list[Machine]:
    """Hold machines whose termination waits for the proof that their memory is overwritten, until that wait is over."""
    taken = await read(connection, _TAKE_ERASING, UUID, account=account, token=token, now=now, limit=limit)
    return await read(connection, _TAKEN, Machine, token=token) if taken else []


_STILL_HELD = work.still_held("machines")
_NEXT = text(f"""
UPDATE machines SET proof_due_at = :due_at, {work.GIVE_BACK},
  suspect_since = CASE WHEN NOT CAST(:judged AS boolean) THEN suspect_since
                       WHEN CAST(:suspect AS boolean) THEN coalesce(suspect_since, :now) END
WHERE id = :id AND {work.HELD}
""")
_ERASED = text(f"""
UPDATE machines SET erasing_until = NULL, tries = 0, due_at = :now, {work.GIVE_BACK} WHERE id = :id AND {work.HELD}
""")


async def still_held(connection: Connection, machine_id: MachineId, *, token: UUID) -> bool:
    """Lock a machine if this worker still holds it. A worker that lost it discards its result."""
    return await read_one(connection, _STILL_HELD, UUID, id=machine_id, token=token) is not None


async def next_challenge(
    connection: Connection,
    machine_id: MachineId,
    *,
    token: UUID,
    due_at: datetime,
    suspect: bool | None,
    now: datetime,
) -> None:
    """Give a verified machine back, to be challenged next at `due_at`.

    `suspect` says whether the machine is suspect now; None leaves that as it was.
    """
    values = {"due_at": due_at, "judged": suspect is not None, "suspect": bool(suspect), "now": now}
    await write(connection, _NEXT, id=machine_id, token=token, **values)


async def erased(connection: Connection, machine_id: MachineId, *, token: UUID, now: datetime) -> None:
    """Give a machine back whose termination need not wait any longer."""
    await write(connection, _ERASED, id=machine_id, token=token, now=now)


# GPUs that two machines report

# Workers that find the same GPU at the same moment run one after the other from here, before any other lock.
_LOCK_GPUS = text("""
SELECT pg_advisory_xact_lock(hashtextextended(gpu, 4711)) FROM (SELECT gpu FROM unnest(CAST(:gpus AS text[])) gpu
  ORDER BY gpu) ordered
""")
_HOLDERS = text(f"""
SELECT DISTINCT m.id AS machine_id, m.account
FROM machines m JOIN proofs p ON p.machine_id = m.id
WHERE {among("m.state", {MachineState.BOOTSTRAPPING, MachineState.VERIFIED})} AND m.id <> :machine_id
  AND p.outcome = '{ProofOutcome.PASSED}'
  AND (p.gpu_uuids && CAST(:uuids AS text[]) OR p.devices && CAST(:devices AS text[]))
ORDER BY m.id
""")
_CHALLENGE_NOW = text(f"""
UPDATE machines SET proof_due_at = :now
WHERE id = :id AND state = '{MachineState.VERIFIED}' AND proof_due_at > :now
""")


@dataclass(frozen=True, slots=True)
class Holder:
    """A machine that has passed a proof with a GPU."""

    machine_id: MachineId
    account: AccountName


async def lock_gpus(connection: Connection, proof: NewProof) -> None:
    """Until the transaction ends, let no other worker judge a machine that reports one of these GPUs.

    Take this lock before all others.
    """
    gpus = [*proof.gpu_uuids, *proof.devices]
    if gpus:
        await connection.execute(_LOCK_GPUS, {"gpus": gpus})


async def holders(connection: Connection, machine_id: MachineId, proof: NewProof) -> list[Holder]:
    """Other live machines that passed with one of these GPUs, by UUID or by attested identity."""
    return await read(
        connection,
        _HOLDERS,
        Holder,
        machine_id=machine_id,
        uuids=list(proof.gpu_uuids),
        devices=list(proof.devices),
    )


async def challenge_now(connection: Connection, machine_id: MachineId, *, now: datetime) -> None:
    """Bring the next challenge of a verified machine forward to now."""
    await write(connection, _CHALLENGE_NOW, id=machine_id, now=now)


# The record of a provider

# Taken so that replicas that judge machines of one account count each other's failures.
_LOCK_ACCOUNT = text("SELECT pg_advisory_xact_lock(hashtextextended(:account, 4712))")
_BLAMED = f"code IS DISTINCT FROM '{OwnCode.SHOWN_ELSEWHERE}'"
# A machine that only stays silent fails too, after enough unanswered challenges. Most of our own faults look like this.
_FAILING = text(f"""
SELECT count(*) FROM (
  SELECT machine_id FROM proof_records
  WHERE account = :account AND (ended OR {among("outcome", COUNTED_AS_FAILURE)}) AND occasion <> '{Occasion.END}'
    AND at > :since AND {_BLAMED}
  UNION
  SELECT id FROM machines
  WHERE account = :account AND state = '{MachineState.VERIFIED}' AND suspect_since IS NOT NULL
) failing WHERE machine_id <> :but
""")
# A machine that passed and was still terminated reached a lower tier than was sold, which its offer never promised.
_DISPROVEN = text(f"""
SELECT offer_key, array_agg(proof_id ORDER BY at, proof_id) AS proofs FROM proof_records
WHERE ended AND outcome <> '{ProofOutcome.PASSED}' AND at > :since AND {_BLAMED}
GROUP BY offer_key
""")


async def failing_machines(
    connection: Connection, account: AccountName, *, since: datetime, but: MachineId
) -> int:
    """How many machines of an account, except `but`, failed or were terminated since `since`, or are suspect now.

    Other calls for the same account wait until this transaction ends.
    """
    await connection.execute(_LOCK_ACCOUNT, {"account": account})
    return await read_one(connection, _FAILING, int, account=account, since=since, but=but) or 0


@dataclass(frozen=True, slots=True)
class _DisprovenOffer:
    offer_key: str
    proofs: tuple[UUID, ...]


async def disproven(connection: Connection, *, since: datetime) -> dict[str, Disproven]:
    """By offer key, the machines that were terminated for their proof since `since`."""
    found = await read(connection, _DISPROVEN, _DisprovenOffer, since=since)
    return {offer.offer_key: Disproven(offer.proofs) for offer in found}


# Reading


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof as its customer reads it."""

    id: UUID
    lease_id: LeaseId
    machine_id: MachineId
    account: AccountName
    gpu_model: GpuModel
    occasion: Occasion
    outcome: ProofOutcome
    source: str
    driver: str
    reference: str
    attested: bool
    code: str | None
    why: str | None
    findings: tuple[Finding, ...]
    hints: tuple[Finding, ...]
    rates: tuple[Rate, ...]
    gpu_uuids: tuple[str, ...]
    proven_bytes: tuple[int, ...]
    seconds: float
    at: datetime


@dataclass(frozen=True, slots=True)
class ProofDetail(Proof):
    """A proof with everything that is needed to check it again."""

    evidence: dict[str, object]


@dataclass(frozen=True, slots=True)
class RecordLine:
    """A line of a provider's record. It does not name the customer."""

    proof_id: UUID
    machine_id: MachineId
    account: AccountName
    offer_key: str
    gpu_model: GpuModel
    occasion: Occasion
    outcome: ProofOutcome
    code: str | None
    why: str | None
    ended: bool
    """Whether the machine was terminated because of this proof."""
    at: datetime


def _columns(kind: type[Proof | RecordLine]) -> str:
    return ", ".join(field.name for field in fields(kind))


_PAGE = text(f"""
SELECT {_columns(Proof)} FROM proofs WHERE organization_id = :organization_id AND lease_id = :lease_id
  AND (CAST(:before_at AS timestamptz) IS NULL OR (at, id) < (:before_at, CAST(:before_id AS uuid)))
ORDER BY at DESC, id DESC LIMIT :limit
""")
_DETAIL = text(f"""
SELECT {_columns(ProofDetail)} FROM proofs WHERE organization_id = :organization_id AND id = :id
""")
_RECORD_PAGE = text(f"""
SELECT {_columns(RecordLine)} FROM proof_records
WHERE (CAST(:account AS text) IS NULL OR account = :account) AND (CAST(:outcome AS text) IS NULL OR outcome = :outcome)
  AND (CAST(:before_at AS timestamptz) IS NULL OR (at, proof_id) < (:before_at, CAST(:before_id AS uuid)))
ORDER BY at DESC, proof_id DESC LIMIT :limit
""")


async def page(
    connection: Connection,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    *,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[Proof]:
    """The proofs of a lease's machines, newest first."""
    before_at, before_id = before or (None, None)
    values = {"organization_id": organization_id, "lease_id": lease_id, "limit": limit}
    return await read(connection, _PAGE, Proof, before_at=before_at, before_id=before_id, **values)


async def get(connection: Connection, organization_id: OrganizationId, proof_id: UUID) -> ProofDetail | None:
    """One proof with its evidence."""
    return await read_one(connection, _DETAIL, ProofDetail, organization_id=organization_id, id=proof_id)


async def record_page(
    connection: Connection,
    *,
    account: str | None,
    outcome: ProofOutcome | None,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[RecordLine]:
    """The results of our providers' machines, newest first."""
    before_at, before_id = before or (None, None)
    values = {"account": account, "outcome": outcome, "limit": limit}
    return await read(
        connection, _RECORD_PAGE, RecordLine, before_at=before_at, before_id=before_id, **values
    )
