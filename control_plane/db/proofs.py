"""Queries on GPU proofs: storing and reading them.

A proof is stored twice: with all its evidence, for the customer whose machine it was, and as a line of the
provider's record, which names no customer and is read across all tenants (`db/proof_records.py`). The statement that
stores a proof also updates the summary on the machine's row (`domain/proof.py`, `Record`).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.journal import OWNER
from control_plane.db.reach import reach_values, within
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.domain.access import Reach
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, LeaseId, MachineId, OrganizationId
from control_plane.domain.machine import Machine
from control_plane.domain.proof import Occasion, ProofOutcome, Result


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
_INSERT = text(f"""
WITH proof AS (
  INSERT INTO proofs ({", ".join(_COLUMNS)}, organization_id, project_id, lease_id, machine_id, account, offer_key,
                      gpu_model, at)
  SELECT {_VALUES}, owner.organization_id, owner.project_id, owner.lease_id, m.id, m.account, m.offer_key,
         m.gpu_model, :now
  FROM machines m {OWNER.format(machine="m.id")} WHERE m.id = :machine_id
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


def _columns_of(kind: type[Proof]) -> str:
    return ", ".join(field.name for field in fields(kind))


_PAGE = text(f"""
SELECT {_columns_of(Proof)} FROM proofs WHERE organization_id = :organization_id AND lease_id = :lease_id
  AND (CAST(:before_at AS timestamptz) IS NULL OR (at, id) < (:before_at, CAST(:before_id AS uuid)))
ORDER BY at DESC, id DESC LIMIT :limit
""")
_DETAIL = text(f"""
SELECT {_columns_of(ProofDetail)} FROM proofs p WHERE organization_id = :organization_id AND id = :id
  AND (CAST(:everywhere AS boolean) OR EXISTS (SELECT FROM leases l WHERE l.id = p.lease_id AND {within("l")}))
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


async def get(
    connection: Connection, organization_id: OrganizationId, proof_id: UUID, reach: Reach
) -> ProofDetail | None:
    """One proof with its evidence; None when its lease is out of reach."""
    values = {"organization_id": organization_id, "id": proof_id, **reach_values(reach)}
    return await read_one(connection, _DETAIL, ProofDetail, **values)
