"""Queries on metered time: intervals, charges, and what a customer reads of them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db.engine import rows
from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.domain.metering import Interval, Meter
from control_plane.domain.money import Nano


@dataclass(frozen=True, slots=True)
class Metered:
    lease_id: LeaseId
    organization_id: OrganizationId
    meter: Meter
    ready: bool
    billed_until: datetime | None
    evidence_at: datetime | None
    """When the provider last listed the machine; None when it never did."""
    suspect_since: datetime | None
    """Since when the machine's GPU proofs speak against it; None while none does."""


_TO_METER = text("""
SELECT l.id, l.organization_id, l.ready_at, l.gpu_count, l.metered_until, l.intervals, l.state = 'ready' AS ready,
       l.billed_until,
       (SELECT max(CASE WHEN i.missed_since IS NOT NULL THEN i.sighted_at
                        ELSE greatest(i.sighted_at, a.listing_asked_at) END)
        FROM machines i JOIN provider_accounts a ON a.name = i.account
        WHERE i.lease_id = l.id AND i.state = 'verified') AS evidence_at,
       (SELECT min(i.suspect_since) FROM machines i WHERE i.lease_id = l.id AND i.state = 'verified') AS suspect_since
FROM leases l
WHERE l.ready_at IS NOT NULL AND NOT l.meter_closed
  AND (l.billed_until IS NOT NULL OR coalesce(l.metered_until, l.ready_at) < :hour)
ORDER BY l.metered_until, l.id LIMIT :limit FOR UPDATE OF l SKIP LOCKED
""")
_RECORD = text("""
WITH made AS (
  INSERT INTO intervals (lease_id, number, organization_id, started_at, ended_at, gpu_seconds_before, gpu_seconds,
                         final, recorded_at)
  SELECT lease_id, number, organization_id, started_at, ended_at, gpu_seconds_before, gpu_seconds, final, :now
  FROM jsonb_to_recordset(CAST(:intervals AS jsonb)) AS m(
    lease_id uuid, number int, organization_id uuid, started_at timestamptz, ended_at timestamptz,
    gpu_seconds_before bigint, gpu_seconds bigint, final boolean)
  RETURNING lease_id, number, organization_id, ended_at, final
), queued AS (
  INSERT INTO unrated (lease_id, number, organization_id) SELECT lease_id, number, organization_id FROM made
), last AS (
  SELECT DISTINCT ON (lease_id) lease_id, number, ended_at, final FROM made ORDER BY lease_id, number DESC
)
UPDATE leases SET metered_until = last.ended_at, intervals = last.number, meter_closed = last.final
FROM last WHERE leases.id = last.lease_id
""")


async def take_meters(connection: AsyncConnection, *, hour: datetime, limit: int) -> list[Metered]:
    """Leases with something to meter, locked for this transaction.

    That is time before the current hour, which starts at `hour`, or an end that is not metered yet.
    """
    return [
        Metered(
            lease_id=LeaseId(row.id),
            organization_id=OrganizationId(row.organization_id),
            meter=Meter(row.ready_at, row.gpu_count, row.metered_until, row.intervals),
            ready=row.ready,
            billed_until=row.billed_until,
            evidence_at=row.evidence_at,
            suspect_since=row.suspect_since,
        )
        for row in await rows(connection, _TO_METER, hour=hour, limit=limit)
    ]


async def record_intervals(
    connection: AsyncConnection,
    intervals: Sequence[tuple[LeaseId, OrganizationId, Interval]],
    *,
    now: datetime,
) -> None:
    """Write intervals, queue them for rating and move the meters on: one statement."""
    if not intervals:
        return
    document = [
        {
            "lease_id": str(lease_id),
            "organization_id": str(organization_id),
            "number": interval.number,
            "started_at": interval.started_at.isoformat(),
            "ended_at": interval.ended_at.isoformat(),
            "gpu_seconds_before": interval.gpu_seconds_before,
            "gpu_seconds": interval.gpu_seconds,
            "final": interval.final,
        }
        for lease_id, organization_id, interval in intervals
    ]
    await connection.execute(_RECORD, {"intervals": json.dumps(document), "now": now})


@dataclass(frozen=True, slots=True)
class Unrated:
    lease_id: LeaseId
    organization_id: OrganizationId
    sku: str
    nano_per_gpu_hour: Nano
    interval: Interval


_TAKE_UNRATED = text("""
WITH taken AS (
  DELETE FROM unrated WHERE (lease_id, number) IN (
    SELECT lease_id, number FROM unrated ORDER BY lease_id, number LIMIT :limit FOR UPDATE SKIP LOCKED)
  RETURNING lease_id, number
)
SELECT i.lease_id, i.number, i.organization_id, i.started_at, i.ended_at, i.gpu_seconds_before, i.gpu_seconds, i.final,
       l.sku, l.nano_per_gpu_hour
FROM taken JOIN intervals i USING (lease_id, number) JOIN leases l ON l.id = i.lease_id
ORDER BY i.organization_id, i.lease_id, i.number
""")
_CHARGE = text("""
INSERT INTO charges (id, organization_id, lease_id, number, sku, started_at, ended_at, gpu_seconds, nano_per_gpu_hour,
                     amount_nano, rated_at)
VALUES (:id, :organization_id, :lease_id, :number, :sku, :started_at, :ended_at, :gpu_seconds, :nano_per_gpu_hour,
        :amount_nano, :now)
""")


async def take_unrated(connection: AsyncConnection, *, limit: int) -> list[Unrated]:
    """Take intervals out of the queue, in this transaction: they are rated in it or stay queued."""
    return [
        Unrated(
            lease_id=LeaseId(row.lease_id),
            organization_id=OrganizationId(row.organization_id),
            sku=row.sku,
            nano_per_gpu_hour=Nano(row.nano_per_gpu_hour),
            interval=Interval(
                number=row.number,
                started_at=row.started_at,
                ended_at=row.ended_at,
                gpu_seconds_before=row.gpu_seconds_before,
                gpu_seconds=row.gpu_seconds,
                final=row.final,
            ),
        )
        for row in await rows(connection, _TAKE_UNRATED, limit=limit)
    ]


async def insert_charge(
    connection: AsyncConnection, charge_id: UUID, unrated: Unrated, amount: Nano, *, now: datetime
) -> None:
    interval = unrated.interval
    values = {
        "id": charge_id,
        "organization_id": unrated.organization_id,
        "lease_id": unrated.lease_id,
        "number": interval.number,
        "sku": unrated.sku,
        "started_at": interval.started_at,
        "ended_at": interval.ended_at,
        "gpu_seconds": interval.gpu_seconds,
        "nano_per_gpu_hour": unrated.nano_per_gpu_hour,
        "amount_nano": amount,
        "now": now,
    }
    await connection.execute(_CHARGE, values)


_CHARGES = text("""
SELECT c.id, c.lease_id, l.name AS lease_name, c.sku, c.started_at, c.ended_at, c.gpu_seconds, c.nano_per_gpu_hour,
       c.amount_nano, c.number
FROM charges c JOIN leases l ON l.id = c.lease_id
WHERE c.organization_id = :organization_id AND c.started_at >= :since AND c.started_at < :until
  AND (CAST(:after_at AS timestamptz) IS NULL OR (c.started_at, c.id) > (:after_at, CAST(:after_id AS uuid)))
ORDER BY c.started_at, c.id LIMIT :limit
""")
_TOTAL = text("""
SELECT coalesce(sum(amount_nano), 0)::bigint AS amount_nano, coalesce(sum(gpu_seconds), 0)::bigint AS gpu_seconds,
       count(*) AS charges
FROM charges WHERE organization_id = :organization_id AND started_at >= :since AND started_at < :until
""")
_BY_LEASE = text("""
SELECT l.id, l.name, l.sku, l.nano_per_gpu_hour, l.gpu_count, l.state, l.ready_at, l.billed_until, l.metered_until,
       (SELECT min(i.suspect_since) FROM machines i WHERE i.lease_id = l.id AND i.state = 'verified') AS suspect_since,
       coalesce(c.gpu_seconds, 0)::bigint AS gpu_seconds, coalesce(c.amount_nano, 0)::bigint AS amount_nano
FROM leases l
LEFT JOIN (SELECT lease_id, sum(gpu_seconds) AS gpu_seconds, sum(amount_nano) AS amount_nano FROM charges
           WHERE organization_id = :organization_id AND started_at >= :since AND started_at < :until
           GROUP BY lease_id) c ON c.lease_id = l.id
WHERE l.organization_id = :organization_id AND l.ready_at IS NOT NULL AND l.ready_at < :until
  AND (c.lease_id IS NOT NULL OR NOT l.meter_closed)
ORDER BY l.created_at, l.id
""")


async def charges(
    connection: AsyncConnection,
    organization_id: OrganizationId,
    *,
    since: datetime,
    until: datetime,
    after: tuple[datetime, UUID] | None = None,
    limit: int,
) -> list[Any]:
    """Charge rows of a period in order of their start; `after` is the last row of the page before."""
    return list(
        await rows(
            connection,
            _CHARGES,
            organization_id=organization_id,
            since=since,
            until=until,
            after_at=after[0] if after else None,
            after_id=after[1] if after else None,
            limit=limit,
        )
    )


async def total(
    connection: AsyncConnection, organization_id: OrganizationId, *, since: datetime, until: datetime
) -> Any:
    """`amount_nano`, `gpu_seconds` and number of `charges` of a period."""
    return (await rows(connection, _TOTAL, organization_id=organization_id, since=since, until=until))[0]


async def by_lease(
    connection: AsyncConnection, organization_id: OrganizationId, *, since: datetime, until: datetime
) -> list[Any]:
    """Charges of a period per lease, with what is needed to add the part that is not rated yet."""
    found = await rows(connection, _BY_LEASE, organization_id=organization_id, since=since, until=until)
    return list(found)


_SILENT = text("""
SELECT count(*) AS silent FROM leases
WHERE state = 'ready' AND coalesce(metered_until, ready_at) < :before
""")


async def silent(connection: AsyncConnection, *, before: datetime) -> int:
    """Running leases whose meter stands still since before `before`."""
    return int((await rows(connection, _SILENT, before=before))[0].silent)
