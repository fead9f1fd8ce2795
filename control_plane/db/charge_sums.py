"""Queries that add the charges of a period up."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.reach import reach_values, within
from control_plane.db.rows import read
from control_plane.domain.access import Reach
from control_plane.domain.ids import OrganizationId, ProjectId
from control_plane.domain.money import Nano
from control_plane.domain.usage_grouping import UsageGroup, UsageGrouping


@dataclass(frozen=True, slots=True)
class Total:
    amount_nano: Nano
    gpu_seconds: int
    machine_seconds: int
    """Of machines without GPUs."""
    charges: int
    """The number of charges."""


# Charges are added up before anything is joined to them: a plan that began with the leases read all charges of the
# month once for each of them.
_ADDED_UP = """
SELECT c.lease_id, c.project_id, c.sku, {day} AS day, count(*) AS charges,
       sum(c.unit_seconds) FILTER (WHERE NOT c.unused) AS unit_seconds, sum(c.amount_nano) AS amount_nano,
       sum(c.amount_nano) FILTER (WHERE c.unused) AS unused_nano
FROM charges c
WHERE c.organization_id = :organization_id AND c.started_at >= :since AND c.started_at < :until
  AND (CAST(:project_id AS uuid) IS NULL OR c.project_id = :project_id)
GROUP BY 1, 2, 3, 4
"""
_SECONDS = """
coalesce(sum(c.unit_seconds) FILTER (WHERE l.gpu_count > 0), 0)::bigint AS gpu_seconds,
coalesce(sum(c.unit_seconds) FILTER (WHERE l.gpu_count = 0), 0)::bigint AS machine_seconds
"""
_NO_DAY = "NULL::timestamp"
_GROUPED_BY = {
    UsageGrouping.ORGANIZATION: ("l.organization_id", "o.name"),
    UsageGrouping.PROJECT: ("c.project_id", "p.name"),
    UsageGrouping.LEASE: ("c.lease_id", "l.name"),
    UsageGrouping.SKU: ("NULL::uuid", "c.sku"),
    UsageGrouping.DAY: ("NULL::uuid", "to_char(c.day, 'YYYY-MM-DD')"),
    UsageGrouping.LABEL: ("NULL::uuid", "l.labels ->> CAST(:label AS text)"),
}
"""SQL: the id and the name of the group that charges `c` belong to."""
_GROUPS = {
    grouping: text(f"""
    WITH c AS MATERIALIZED ({
        _ADDED_UP.format(
            day="date_trunc('day', c.started_at AT TIME ZONE 'UTC')"
            if grouping is UsageGrouping.DAY
            else _NO_DAY
        )
    })
    SELECT {group_id} AS id, {name} AS name, sum(c.charges)::bigint AS charges, {_SECONDS},
           sum(c.amount_nano)::bigint AS amount_nano, coalesce(sum(c.unused_nano), 0)::bigint AS unused_nano
    FROM c JOIN leases l ON l.id = c.lease_id JOIN projects p ON p.id = c.project_id
      JOIN organizations o ON o.id = l.organization_id
    WHERE {within("l")}
    GROUP BY 1, 2
    ORDER BY {"2" if grouping is UsageGrouping.DAY else "6 DESC, 2, 1"}
    """)
    for grouping, (group_id, name) in _GROUPED_BY.items()
}
"""Days in their order; other groups by what they cost, the most expensive first."""
_TOTAL = text(f"""
WITH c AS MATERIALIZED ({_ADDED_UP.format(day=_NO_DAY)})
SELECT coalesce(sum(c.amount_nano), 0)::bigint AS amount_nano, {_SECONDS},
       coalesce(sum(c.charges), 0)::bigint AS charges
FROM c JOIN leases l ON l.id = c.lease_id
""")


async def total(
    connection: Connection, organization_id: OrganizationId, *, since: datetime, until: datetime
) -> Total:
    """The sums over the charges of a period."""
    values = {"organization_id": organization_id, "since": since, "until": until, "project_id": None}
    (found,) = await read(connection, _TOTAL, Total, **values)
    return found


async def groups(
    connection: Connection,
    organization_id: OrganizationId,
    reach: Reach,
    *,
    by: UsageGrouping,
    label: str | None,
    since: datetime,
    until: datetime,
    project_id: ProjectId | None,
) -> list[UsageGroup]:
    """The sums over the charges of a period that have something in common; `label` is the key to group by.

    With `project_id`, only those of the project.
    """
    values = {"organization_id": organization_id, "since": since, "until": until, "project_id": project_id}
    if by is UsageGrouping.LABEL:
        values["label"] = label
    return await read(connection, _GROUPS[by], UsageGroup, **values, **reach_values(reach))
