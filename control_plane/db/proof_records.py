"""Queries on the record of a provider: what became of the proofs of its machines, without any customer's name."""

from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one
from control_plane.db.tables.marks import among
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, MachineId
from control_plane.domain.machine import MachineState
from control_plane.domain.offer_key import record_key
from control_plane.domain.placement import Disproven
from control_plane.domain.proof import COUNTED_AS_FAILURE, Occasion, OwnCode, ProofOutcome

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
    """By record key, the machines that were terminated for their proof since `since`."""
    proofs: dict[str, tuple[UUID, ...]] = {}
    for offer in await read(connection, _DISPROVEN, _DisprovenOffer, since=since):
        key = record_key(offer.offer_key)
        proofs[key] = proofs.get(key, ()) + offer.proofs
    return {key: Disproven(found) for key, found in proofs.items()}


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


_RECORD_PAGE = text(f"""
SELECT {", ".join(field.name for field in fields(RecordLine))} FROM proof_records
WHERE (CAST(:account AS text) IS NULL OR account = :account) AND (CAST(:outcome AS text) IS NULL OR outcome = :outcome)
  AND (CAST(:before_at AS timestamptz) IS NULL OR (at, proof_id) < (:before_at, CAST(:before_id AS uuid)))
ORDER BY at DESC, proof_id DESC LIMIT :limit
""")


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
