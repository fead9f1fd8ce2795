"""Queries on metered time: meters, intervals and charges, and the views of them that a customer reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.leases import PAUSED
from control_plane.db.machines import SIGHTED_AT
from control_plane.db.node_openings import UNREADY_SINCE, WAS_NOT_OPENED
from control_plane.db.powers import SWITCHES_AT
from control_plane.db.reach import reach_values, within
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.domain.access import Reach
from control_plane.domain.ids import EnvironmentId, LeaseId, MachineId, OrganizationId, ProjectId
from control_plane.domain.lease import LeaseState
from control_plane.domain.metering import Interval, Meter, Use
from control_plane.domain.money import Nano
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.sla import SlaTier

USE = f"""l.ready_at, l.billed_until,
       CASE WHEN NOT {WAS_NOT_OPENED} THEN least({SIGHTED_AT}, {SWITCHES_AT}) END AS evidence_at, m.suspect_since,
       {UNREADY_SINCE} AS unready_since, l.release_at, l.units, l.nano_per_unit_hour, l.stopped_nano_per_unit_hour,
       l.switched_at, l.paused_at, l.committed_days, l.unused_unit_seconds,
       h.posted_nano + h.amount_nano AS set_aside_nano"""
"""SQL: the columns of `metering.Use`. Needs `USED`. A list that shows that the other price applies is the last
evidence until the price is changed from that list on.
"""
USED = """
JOIN claims c ON c.lease_id = l.id AND c.admitted_at IS NOT NULL AND NOT EXISTS (
  SELECT FROM claims later WHERE later.lease_id = l.id AND later.admitted_at > c.admitted_at)
JOIN machines m ON m.id = c.machine_id JOIN provider_accounts a ON a.name = m.account
JOIN holds h ON h.lease_id = l.id
"""
"""SQL: the machine that the customer of lease `l` was admitted to last, and its hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered(Use):
    """A lease to meter, with the columns that its intervals copy."""

    lease_id: LeaseId
    organization_id: OrganizationId
    project_id: ProjectId
    metered_until: datetime | None
    intervals: int

    @property
    def meter(self) -> Meter:
        return Meter(self, self.metered_until, self.intervals)


@dataclass(frozen=True, slots=True)
class IntervalRow:
    """An interval as it is stored."""

    lease_id: LeaseId
    number: int
    organization_id: OrganizationId
    project_id: ProjectId
    started_at: datetime
    ended_at: datetime
    unit_seconds_before: int
    unit_seconds: int
    final: bool
    stopped: bool
    unused: bool


# A lease whose bill is paused has nothing more to meter once its meter has reached the pause. Leases are taken before
# anything is joined to them, so that no more than `:limit` are.
_TO_METER = text(f"""
WITH due AS (
  SELECT l.* FROM leases l
  WHERE l.ready_at IS NOT NULL AND NOT l.meter_closed
    AND (l.billed_until IS NOT NULL OR CASE WHEN {PAUSED}
      THEN coalesce(l.metered_until, l.ready_at) < date_trunc('second', l.paused_at[cardinality(l.paused_at)])
      ELSE coalesce(l.metered_until, l.ready_at) < :hour END)
  ORDER BY l.id LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED
)
SELECT l.id AS lease_id, l.organization_id, l.project_id, l.metered_until, l.intervals, {USE}
FROM due l {USED} ORDER BY l.id
""")
# An interval is of the machine that the customer had been admitted to when it began.
_RECORD = text(f"""
WITH made AS (
  INSERT INTO intervals (lease_id, number, organization_id, project_id, machine_id, provider, region, started_at,
                         ended_at, unit_seconds_before, unit_seconds, final, stopped, unused, recorded_at)
  SELECT intervals.lease_id, number, intervals.organization_id, intervals.project_id, m.id, m.provider, m.region,
         started_at, ended_at, unit_seconds_before, unit_seconds, final, stopped, unused, :now
  FROM {Recordset(IntervalRow, "intervals")} CROSS JOIN LATERAL (
    SELECT c.machine_id FROM claims c WHERE c.lease_id = intervals.lease_id AND c.admitted_at <= intervals.started_at
    ORDER BY c.admitted_at DESC LIMIT 1
  ) had JOIN machines m ON m.id = had.machine_id
  RETURNING lease_id, number, organization_id, ended_at, final
), queued AS (
  INSERT INTO unrated (lease_id, number, organization_id) SELECT lease_id, number, organization_id FROM made
), last AS (
  SELECT DISTINCT ON (lease_id) lease_id, number, ended_at, final FROM made ORDER BY lease_id, number DESC
)
UPDATE leases SET metered_until = last.ended_at, intervals = last.number, meter_closed = last.final
FROM last WHERE leases.id = last.lease_id
""")
_SILENT = text(f"""
SELECT count(*) FROM leases
WHERE state = '{LeaseState.READY}'
  AND greatest(metered_until, ready_at, paused_at[cardinality(paused_at)]) < :before
""")


async def take_meters(connection: Connection, *, hour: datetime, limit: int) -> list[Metered]:
    """Leases with something to meter, locked for this transaction.

    There is something to meter when unmetered time lies before the current hour, which starts at `hour`, or when
    billing has stopped and the rest is not metered yet.
    """
    return await read(connection, _TO_METER, Metered, hour=hour, limit=limit)


async def record_intervals(
    connection: Connection, intervals: Sequence[tuple[Metered, Interval]], *, now: datetime
) -> None:
    """Store intervals, queue them for rating and advance the meters, in one statement."""
    if not intervals:
        return
    stored = [
        IntervalRow(
            lease_id=metered.lease_id,
            number=interval.number,
            organization_id=metered.organization_id,
            project_id=metered.project_id,
            started_at=interval.started_at,
            ended_at=interval.ended_at,
            unit_seconds_before=interval.unit_seconds_before,
            unit_seconds=interval.unit_seconds,
            final=interval.final,
            stopped=interval.stopped,
            unused=interval.unused,
        )
        for metered, interval in intervals
    ]
    await write(connection, _RECORD, intervals=Recordset.document(stored), now=now)


async def silent(connection: Connection, *, before: datetime) -> int:
    """How many running leases have a meter that has not advanced since `before`."""
    return await read_one(connection, _SILENT, int, before=before) or 0


@dataclass(frozen=True, slots=True)
class Unrated:
    """An interval that waits for its price."""

    lease_id: LeaseId
    number: int
    organization_id: OrganizationId
    project_id: ProjectId
    environment_id: EnvironmentId
    nano_per_unit_hour: Nano
    started_at: datetime
    unit_seconds_before: int
    unit_seconds: int
    final: bool


@dataclass(frozen=True, slots=True)
class NewCharge:
    """The price of an interval."""

    id: UUID
    lease_id: LeaseId
    number: int
    amount_nano: Nano


RATE = "CASE WHEN i.stopped THEN l.stopped_nano_per_unit_hour ELSE l.nano_per_unit_hour END"
"""SQL: the price of interval `i` of lease `l`, of a unit for an hour."""
# By organization, so that a batch locks few standings, and a second replica takes those of others. Rows are deleted by
# their place in the table: statistics of a queue are often of when it was empty, and a join then reads it for each row.
_TAKE_UNRATED = text(f"""
WITH taken AS (
  DELETE FROM unrated WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM unrated ORDER BY organization_id, lease_id, number LIMIT :limit FOR UPDATE SKIP LOCKED
  ))
  RETURNING lease_id, number
)
SELECT i.lease_id, i.number, i.organization_id, i.project_id, l.environment_id, {RATE} AS nano_per_unit_hour,
       i.started_at, i.unit_seconds_before, i.unit_seconds, i.final
FROM taken JOIN intervals i USING (lease_id, number) JOIN leases l ON l.id = i.lease_id
ORDER BY i.organization_id, i.lease_id, i.number
""")
# In the order of leases, because each charge locks its lease against deletion, and all code locks leases in this order.
_CHARGE = text(f"""
WITH priced AS MATERIALIZED (
  SELECT charges.id, charges.amount_nano, i.lease_id, i.number, i.organization_id, i.project_id, i.machine_id,
         i.provider, i.region, i.started_at, i.ended_at, i.unit_seconds, i.stopped,
         i.unused, date_trunc('month', i.started_at, 'UTC') AS month
  FROM {Recordset(NewCharge, "charges")} JOIN intervals i USING (lease_id, number)
), booked AS MATERIALIZED (
  SELECT *, max(CASE WHEN first_of_month THEN booking_period(organization_id, month) END)
              OVER (PARTITION BY organization_id, month) AS period
  FROM (SELECT *, row_number() OVER (PARTITION BY organization_id, month) = 1 AS first_of_month FROM priced) numbered
), made AS (
INSERT INTO charges (id, organization_id, project_id, lease_id, number, machine_id, provider, region, sku, purchase,
                     sla, price_book, started_at, ended_at, unit_seconds, stopped, unused, nano_per_unit_hour,
                     list_nano_per_unit_hour, amount_nano, period, rated_at)
SELECT i.id, i.organization_id, i.project_id, i.lease_id, i.number, i.machine_id, i.provider, i.region, l.sku,
       l.purchase, l.sla, l.price_book, i.started_at, i.ended_at, i.unit_seconds, i.stopped, i.unused,
       {RATE}, CASE WHEN i.stopped THEN {RATE} ELSE l.list_nano_per_unit_hour END, i.amount_nano,
       i.period, :now
FROM booked i JOIN leases l ON l.id = i.lease_id
ORDER BY i.lease_id, i.number
RETURNING organization_id, project_id, lease_id, number
)
INSERT INTO charge_names (lease_id, number, organization_id, project, lease, labels, node_pool)
SELECT made.lease_id, made.number, made.organization_id, p.name, l.name, l.labels,
       (SELECT name FROM node_pools WHERE id = l.node_pool_id)
FROM made JOIN leases l ON l.id = made.lease_id JOIN projects p ON p.id = made.project_id
""")


@dataclass(frozen=True, slots=True)
class MonthSpend:
    """What is added to what an environment spent in `month`, which starts then."""

    organization_id: OrganizationId
    project_id: ProjectId
    environment_id: EnvironmentId
    month: datetime
    charged_nano: Nano


_COUNT_MONTH = text(f"""
INSERT INTO month_spends (organization_id, project_id, environment_id, month, charged_nano)
SELECT organization_id, project_id, environment_id, month, charged_nano FROM {Recordset(MonthSpend, "spends")}
ORDER BY environment_id, month ON CONFLICT (organization_id, month, environment_id)
  DO UPDATE SET charged_nano = month_spends.charged_nano + EXCLUDED.charged_nano
""")


async def count_month(connection: Connection, spends: Sequence[MonthSpend]) -> None:
    """Add to what environments spent in a month, of which each is there once. The caller holds the standings' locks."""
    if spends:
        await write(connection, _COUNT_MONTH, spends=Recordset.document(spends))


async def take_unrated(connection: Connection, *, limit: int) -> list[Unrated]:
    """Take intervals out of the queue, in this transaction: if it rolls back, they stay queued."""
    return await read(connection, _TAKE_UNRATED, Unrated, limit=limit)


async def insert_charges(connection: Connection, charges: Sequence[NewCharge], *, now: datetime) -> None:
    """Store charges, and what things are called now. All other columns are copied from the interval and the lease.

    A charge is booked in the period in which its time began, or in the first later one that is not closed.
    """
    if charges:
        await write(connection, _CHARGE, charges=Recordset.document(charges), now=now)


@dataclass(frozen=True, slots=True)
class Charge:
    """A charge as its customer reads it."""

    id: UUID
    lease_id: LeaseId
    lease_name: str
    number: int
    """The number of its interval in the lease."""
    project_id: ProjectId
    project: str
    """The project's name."""
    machine_id: MachineId
    provider: str
    region: str
    sku: str
    purchase: PurchaseKind
    sla: SlaTier
    price_book: int
    started_at: datetime
    ended_at: datetime
    gpu_count: int
    """Of the lease; it does not change any more when the lease is metered."""
    unit_seconds: int
    stopped: bool
    """Whether the machine was stopped, and charged as that."""
    unused: bool
    """Whether it is what its customer did not use of a term."""
    nano_per_unit_hour: Nano
    amount_nano: Nano
    organization_id: OrganizationId
    gpu_model: str | None
    """None for a machine without GPUs."""
    labels: Mapping[str, str]
    """The labels that the lease has now; a charge itself never changes."""
    node_pool: str | None
    """The name of the node pool that the lease is a node of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseUsage(Use):
    """What a lease used in a period, with the facts needed to add the part that is not rated yet."""

    id: LeaseId
    name: str
    project_id: ProjectId
    project: str
    """The project's name."""
    sku: str
    sla: SlaTier
    gpu_count: int
    node_pool: str | None
    """The name of the node pool that it is a node of."""
    metered_until: datetime | None
    unit_seconds: int
    """Rated in the period, of the machine while it was on; the same of the amount."""
    amount_nano: Nano
    stopped_unit_seconds: int
    stopped_amount_nano: Nano
    rest_unit_seconds: int
    """Rated in the period of a term that its customer did not use; the same of the amount."""
    rest_amount_nano: Nano


_CHARGES = text(f"""
SELECT c.id, c.lease_id, l.name AS lease_name, c.number, c.project_id, p.name AS project, c.machine_id, c.provider,
       c.region, c.sku, c.purchase, c.sla, c.price_book, c.started_at, c.ended_at, l.gpu_count, c.unit_seconds,
       c.stopped, c.unused, c.nano_per_unit_hour, c.amount_nano, c.organization_id, l.gpu_model, l.labels,
       (SELECT name FROM node_pools WHERE id = l.node_pool_id) AS node_pool
FROM charges c JOIN leases l ON l.id = c.lease_id JOIN projects p ON p.id = c.project_id
WHERE c.organization_id = :organization_id AND c.started_at >= :since AND c.started_at < :until
  AND {within("l")}
  AND (CAST(:project_id AS uuid) IS NULL OR c.project_id = :project_id)
  AND (CAST(:after_at AS timestamptz) IS NULL OR (c.started_at, c.id) > (:after_at, CAST(:after_id AS uuid)))
ORDER BY c.started_at, c.id LIMIT :limit
""")
_BY_LEASE = text(f"""
SELECT l.id, l.name, l.project_id, p.name AS project, l.sku, l.sla, l.gpu_count, l.metered_until, {USE},
       (SELECT name FROM node_pools WHERE id = l.node_pool_id) AS node_pool,
       coalesce(rated.unit_seconds, 0)::bigint AS unit_seconds, coalesce(rated.amount_nano, 0)::bigint AS amount_nano,
       coalesce(rated.stopped_unit_seconds, 0)::bigint AS stopped_unit_seconds,
       coalesce(rated.stopped_amount_nano, 0)::bigint AS stopped_amount_nano,
       coalesce(rated.rest_unit_seconds, 0)::bigint AS rest_unit_seconds,
       coalesce(rated.rest_amount_nano, 0)::bigint AS rest_amount_nano
FROM leases l {USED} JOIN projects p ON p.id = l.project_id
LEFT JOIN (SELECT lease_id, sum(unit_seconds) FILTER (WHERE NOT (stopped OR unused)) AS unit_seconds,
                  sum(amount_nano) FILTER (WHERE NOT (stopped OR unused)) AS amount_nano,
                  sum(unit_seconds) FILTER (WHERE unused) AS rest_unit_seconds,
                  sum(amount_nano) FILTER (WHERE unused) AS rest_amount_nano,
                  sum(unit_seconds) FILTER (WHERE stopped) AS stopped_unit_seconds,
                  sum(amount_nano) FILTER (WHERE stopped) AS stopped_amount_nano FROM charges
           WHERE organization_id = :organization_id AND started_at >= :since AND started_at < :until
           GROUP BY lease_id) rated ON rated.lease_id = l.id
WHERE l.organization_id = :organization_id AND l.ready_at IS NOT NULL AND l.ready_at < :until
  AND {within("l")}
  AND (CAST(:project_id AS uuid) IS NULL OR l.project_id = :project_id)
  AND (rated.lease_id IS NOT NULL OR NOT l.meter_closed)
ORDER BY l.created_at, l.id
""")


async def charges(
    connection: Connection,
    organization_id: OrganizationId,
    reach: Reach,
    *,
    since: datetime,
    until: datetime,
    project_id: ProjectId | None = None,
    after: tuple[datetime, UUID] | None = None,
    limit: int,
) -> list[Charge]:
    """Charges of a period in order of their start; `after` is start and id of the previous page's last charge.

    With `project_id`, only those of the project.
    """
    return await read(
        connection,
        _CHARGES,
        Charge,
        organization_id=organization_id,
        since=since,
        until=until,
        project_id=project_id,
        **reach_values(reach),
        after_at=after[0] if after else None,
        after_id=after[1] if after else None,
        limit=limit,
    )


async def by_lease(
    connection: Connection,
    organization_id: OrganizationId,
    reach: Reach,
    *,
    since: datetime,
    until: datetime,
    project_id: ProjectId | None = None,
) -> list[LeaseUsage]:
    """The charges of a period per lease, with the facts needed to add the part that is not rated yet.

    With `project_id`, only those of the project.
    """
    values = {"organization_id": organization_id, "since": since, "until": until, "project_id": project_id}
    return await read(connection, _BY_LEASE, LeaseUsage, **values, **reach_values(reach))
