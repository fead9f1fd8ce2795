"""Queries on attempts, the entries in a lease's history."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.machines import SIGHTED_AT
from control_plane.db.rows import Recordset, read, write
from control_plane.db.tables.marks import among
from control_plane.domain.attempt import Attempt, AttemptOutcome
from control_plane.domain.block import REFUSED
from control_plane.domain.failure import OURS, FailReason
from control_plane.domain.ids import LeaseId
from control_plane.domain.machine import MachineState
from control_plane.domain.offer_key import record_key
from control_plane.domain.placement import Failure
from control_plane.domain.progress import Step


@dataclass(frozen=True, slots=True)
class AttemptOverview(Attempt):
    """An attempt with the current state of its machine."""

    provider: str
    region: str
    native_type: str
    state: MachineState
    step: Step
    """The last completed step: of the claim if it has begun, of the machine otherwise."""
    asked_at: datetime | None
    sighted_at: datetime | None
    provider_words: str | None
    """Why its machine failed in the provider's own words, where there are any. Only operators read it."""


_MADE = Recordset(Attempt, "made")
_INSERT = text(f"""
INSERT INTO attempts (lease_id, number, organization_id, project_id, machine_id, offer_key, started_at)
SELECT made.lease_id, made.number, l.organization_id, l.project_id, made.machine_id, made.offer_key, made.started_at
FROM {_MADE} JOIN leases l ON l.id = made.lease_id
""")
_OF_LEASES = text(f"""
SELECT t.lease_id, t.number, t.machine_id, t.offer_key, t.started_at, t.ended_at, t.outcome, t.fail_reason, t.fail_why,
  m.provider, m.region, m.native_type, m.state, coalesce(c.step, m.step) AS step, m.asked_at,
  {SIGHTED_AT} AS sighted_at,
  CASE WHEN m.fail_reason = t.fail_reason AND m.fail_why <> t.fail_why THEN m.fail_why END AS provider_words
FROM attempts t JOIN machines m ON m.id = t.machine_id JOIN provider_accounts a ON a.name = m.account
LEFT JOIN claims c ON c.lease_id = t.lease_id AND c.attempt = t.number
WHERE t.lease_id = ANY(:lease_ids) ORDER BY t.lease_id, t.number
""")


async def insert(connection: Connection, attempts: Sequence[Attempt]) -> None:
    """Store attempts that begin. Each belongs to its lease's organization and project."""
    if attempts:
        await write(connection, _INSERT, made=_MADE.document(attempts))


async def of_leases(connection: Connection, lease_ids: Sequence[LeaseId]) -> list[AttemptOverview]:
    """Every attempt of these leases, the oldest of each lease first."""
    return await read(connection, _OF_LEASES, AttemptOverview, lease_ids=list(lease_ids))


# An attempt keeps its outcome: when the machine is lost after its customer was admitted, only the reason is added.
_CLOSE = text("""
UPDATE attempts SET outcome = :outcome, ended_at = :now WHERE lease_id = ANY(:lease_ids) AND outcome IS NULL
""")
_FAIL = text(f"""
UPDATE attempts SET fail_reason = :reason, fail_why = :why, outcome = coalesce(outcome, '{AttemptOutcome.FAILED}'),
  ended_at = coalesce(ended_at, :now)
WHERE lease_id = :lease_id AND number = :number
""")
# The latest attempt on an offer counts, and it failed when its outcome was stored. How long its machine took to
# terminate says nothing about when to try again, and must not hide the result of a later attempt. An attempt that
# failed because of us does not count, and does not hide an earlier one that failed because of the offer.
_FAILURES = text(f"""
SELECT DISTINCT ON (lease_id, offer_key) lease_id, offer_key, fail_reason AS reason, ended_at AS at,
  count(*) OVER (PARTITION BY lease_id, offer_key) AS times
FROM attempts WHERE lease_id = ANY(:lease_ids) AND fail_reason IS NOT NULL AND NOT {among("fail_reason", OURS)}
ORDER BY lease_id, offer_key, number DESC
""")
_EXCUSED = text(f"""
SELECT t.lease_id, count(*) AS count FROM attempts t
WHERE t.lease_id = ANY(:lease_ids) AND ({among("t.fail_reason", REFUSED)} OR t.number <= (
  SELECT max(had.number) FROM attempts had
  WHERE had.lease_id = t.lease_id AND had.outcome = '{AttemptOutcome.ADMITTED}'))
GROUP BY t.lease_id
""")


async def close(
    connection: Connection, lease_ids: Sequence[LeaseId], outcome: AttemptOutcome, *, now: datetime
) -> None:
    """Store the outcome of those attempts of these leases that are under way."""
    await write(connection, _CLOSE, lease_ids=list(lease_ids), outcome=outcome, now=now)


async def fail(
    connection: Connection, lease_id: LeaseId, number: int, reason: FailReason, why: str, *, now: datetime
) -> None:
    """Record why an attempt failed, or why its machine was lost after the customer had been admitted."""
    values = {"lease_id": lease_id, "number": number, "reason": reason, "why": why}
    await write(connection, _FAIL, **values, now=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FailedOn(Failure):
    lease_id: LeaseId
    offer_key: str


async def failures(connection: Connection, lease_ids: Sequence[LeaseId]) -> dict[LeaseId, dict[str, Failure]]:
    """Where each lease failed before; the latest failure counts.

    By record key, since a machine that failed says something about its supplier; a refused order is about its offer
    alone, so those are by offer key.
    """
    latest: dict[LeaseId, dict[str, Failure]] = {}
    for failed in await read(connection, _FAILURES, _FailedOn, lease_ids=list(lease_ids)):
        key = failed.offer_key if failed.reason in REFUSED else record_key(failed.offer_key)
        of_lease = latest.setdefault(failed.lease_id, {})
        before = of_lease.get(key, failed)
        times = failed.times if before is failed else before.times + failed.times
        last = max(before, failed, key=lambda each: each.at)
        of_lease[key] = Failure(last.reason, last.at, times)
    return latest


@dataclass(frozen=True, slots=True)
class _Excused:
    lease_id: LeaseId
    count: int


async def excused(connection: Connection, lease_ids: Sequence[LeaseId]) -> dict[LeaseId, int]:
    """How many attempts of each lease do not count as failed; leases without one are absent.

    These are the orders that no provider took, and all attempts up to the last machine that the customer used.
    """
    found = await read(connection, _EXCUSED, _Excused, lease_ids=list(lease_ids))
    return {each.lease_id: each.count for each in found}
