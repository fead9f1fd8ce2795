"""Queries on the reference times of GPU proofs: what passed proofs showed, and what was learnt from it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db.engine import rows


@dataclass(frozen=True, slots=True)
class Shown:
    """The pace of one device in one phase, per second: the median of its passed proofs."""

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
    """The day its rate last changed, ISO 8601."""


# Of one phase the best try of a proof counts. Accounts of one provider are one owner. A machine speaks of the GPUs that
# it first passed with: UUIDs are its word, and with new ones every time it would outvote the others. And no provider
# has more to say of one model than `each_max` devices, or it would push the others out of what is looked at.
_SHOWN = text("""
SELECT provider, device_uuid, gpu_model, driver, phase, rate FROM (
  SELECT *, row_number() OVER (PARTITION BY provider, gpu_model, phase ORDER BY device_uuid, driver) AS number FROM (
    SELECT provider, device_uuid, gpu_model, driver, phase, percentile_cont(0.5) WITHIN GROUP (ORDER BY rate) AS rate
    FROM (
      SELECT a.provider, p.gpu_uuids[r.gpu + 1] AS device_uuid, p.gpu_model, p.driver, r.phase,
             max(r.work / r.seconds) AS rate
      FROM proofs p JOIN provider_accounts a ON a.name = p.account
      JOIN LATERAL (SELECT f.gpu_uuids FROM proofs f WHERE f.machine_id = p.machine_id AND f.outcome = 'passed'
                    ORDER BY f.at, f.id LIMIT 1) first ON first.gpu_uuids = p.gpu_uuids,
           jsonb_to_recordset(p.rates) AS r(gpu int, phase text, seconds double precision, work double precision)
      WHERE p.outcome = 'passed' AND p.at > :since AND r.seconds > 0
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
# The whole table at once; a reference that did not change is not written.
_REPLACE = text("""
WITH wanted AS (
  SELECT * FROM jsonb_to_recordset(CAST(:references AS jsonb)) AS w(
    gpu_model text, driver_major int, phase text, rate double precision, providers int, learnt_on text)
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
SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM put) AS changed
""")


async def shown(connection: AsyncConnection, *, since: datetime, each_max: int, limit: int) -> list[Shown]:
    """What each device has shown since then; of one model and phase at most `each_max` readings of one provider."""
    found = await rows(connection, _SHOWN, since=since, each_max=each_max, limit=limit)
    return [Shown(**row._mapping) for row in found]  # noqa: SLF001 - a row as keywords


async def learnt(connection: AsyncConnection) -> list[Learnt]:
    return [_learnt(row) for row in await rows(connection, _LEARNT)]


def _learnt(row: Any) -> Learnt:
    return Learnt(row.gpu_model, row.driver_major, row.phase, row.rate, row.providers, row.learnt_on)


async def replace(connection: AsyncConnection, references: Sequence[Learnt]) -> int:
    """Make these all that is learnt. Answers how many changed, came or went."""
    document = json.dumps([asdict(one) for one in references])
    return int((await rows(connection, _REPLACE, references=document))[0].changed)
