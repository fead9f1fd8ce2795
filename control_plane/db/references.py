"""Queries on the reference times of GPU proofs: the rates of passed proofs, and the references learnt from them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, read_one
from control_plane.domain.proof import ProofOutcome


@dataclass(frozen=True, slots=True)
class DeviceRate:
    """How fast one device is in one phase, per second: the median of its passed proofs."""

    provider: str
    device_uuid: str
    gpu_model: str
    driver: str
    phase: str
    rate: float


@dataclass(frozen=True, slots=True)
class Learnt:
    """A reference time that unrelated providers agree on, as a rate per second."""

    gpu_model: str
    driver_major: int
    phase: str
    rate: float
    providers: int
    learnt_on: str
    """The day on which its rate last changed, ISO 8601."""


# The best try of each phase of a proof counts. Accounts of one provider are one source. A machine counts only with the
# GPUs that it first passed with: it chooses the UUIDs that it reports, and with new ones every time it would outvote
# the others. Of each model, at most `each_max` devices of a provider count, so that no provider crowds out the others.
_DEVICE_RATES = text(f"""
SELECT provider, device_uuid, gpu_model, driver, phase, rate FROM (
  SELECT *, row_number() OVER (PARTITION BY provider, gpu_model, phase ORDER BY device_uuid, driver) AS number FROM (
    SELECT provider, device_uuid, gpu_model, driver, phase, percentile_cont(0.5) WITHIN GROUP (ORDER BY rate) AS rate
    FROM (
      SELECT a.provider, p.gpu_uuids[r.gpu + 1] AS device_uuid, p.gpu_model, p.driver, r.phase,
             max(r.work / r.seconds) AS rate
      FROM proofs p JOIN provider_accounts a ON a.name = p.account
      JOIN LATERAL (SELECT f.gpu_uuids FROM proofs f
                    WHERE f.machine_id = p.machine_id AND f.outcome = '{ProofOutcome.PASSED}'
                    ORDER BY f.at, f.id LIMIT 1) first ON first.gpu_uuids = p.gpu_uuids,
           jsonb_to_recordset(p.rates) AS r(gpu int, phase text, seconds double precision, work double precision)
      WHERE p.outcome = '{ProofOutcome.PASSED}' AND p.at > :since AND r.seconds > 0
      GROUP BY p.id, a.provider, device_uuid, p.gpu_model, p.driver, r.phase
    ) best WHERE device_uuid IS NOT NULL
    GROUP BY provider, device_uuid, gpu_model, driver, phase
  ) device
) numbered WHERE number <= :each_max
ORDER BY gpu_model, driver, phase, provider, device_uuid LIMIT :limit
""")
_LEARNT = text("""
SELECT gpu_model, driver_major, phase, rate, providers, learnt_on FROM proof_references
ORDER BY gpu_model, driver_major, phase
""")
_WANTED = Recordset(Learnt, "wanted")
# Replaces the whole table; a reference that did not change is not written.
_REPLACE = text(f"""
WITH wanted AS (
  SELECT * FROM {_WANTED}
), gone AS (
  DELETE FROM proof_references r WHERE NOT EXISTS (
    SELECT FROM wanted w
    WHERE w.gpu_model = r.gpu_model AND w.driver_major = r.driver_major AND w.phase = r.phase)
  RETURNING 1
), put AS (
  INSERT INTO proof_references (gpu_model, driver_major, phase, rate, providers, learnt_on)
  SELECT gpu_model, driver_major, phase, rate, providers, learnt_on FROM wanted
  ON CONFLICT (gpu_model, driver_major, phase) DO UPDATE
  SET rate = excluded.rate, providers = excluded.providers, learnt_on = excluded.learnt_on
  WHERE proof_references.rate <> excluded.rate OR proof_references.providers <> excluded.providers
  RETURNING 1
)
SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM put)
""")


async def device_rates(
    connection: Connection, *, since: datetime, each_max: int, limit: int
) -> list[DeviceRate]:
    """The rates of each device since `since`; per model and phase, at most `each_max` rates of one provider."""
    return await read(connection, _DEVICE_RATES, DeviceRate, since=since, each_max=each_max, limit=limit)


async def learnt(connection: Connection) -> list[Learnt]:
    """All learnt reference times."""
    return await read(connection, _LEARNT, Learnt)


async def replace(connection: Connection, references: Sequence[Learnt]) -> int:
    """Make these the only learnt references. Returns how many were changed, added or removed."""
    return await read_one(connection, _REPLACE, int, wanted=_WANTED.document(references)) or 0
