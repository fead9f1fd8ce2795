"""Queries on envelopes, on what is used within them, and on the warnings of leases that are outside.

What is used is read and changed under the lock of the organization's standing, so that two requests together cannot
exceed a limit.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, document, read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.envelope import Envelope, Level
from control_plane.domain.envelope_rules import Applied, Use
from control_plane.domain.envelope_watch import Warned, Watched
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import EnvelopeId, EnvironmentId, LeaseId, OrganizationId, ProjectId
from control_plane.domain.lease import LIVE
from control_plane.domain.money import SECONDS_PER_HOUR, Nano


@dataclass(frozen=True, slots=True)
class EnvelopeScope:
    """Where an envelope is stated."""

    organization_id: OrganizationId
    level: Level
    project_id: ProjectId | None = None
    environment_id: EnvironmentId | None = None


@dataclass(frozen=True, slots=True)
class StoredEnvelope:
    id: EnvelopeId
    level: Level
    limits: Envelope
    revision: int
    """Counts its changes."""
    set_at: datetime
    set_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Used:
    gpus_of_model: dict[GpuModel, int]
    nano_per_hour: Nano
    month_nano: Nano
    over_since: datetime | None

    @property
    def use(self) -> Use:
        return Use(self.gpus_of_model, self.nano_per_hour, self.month_nano, self.over_since)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row(_Used):
    environment_id: EnvironmentId
    id: EnvelopeId
    level: Level
    limits: Envelope


def _within(table: str, scope: str = "e") -> str:
    """SQL: a row of the table lies in the scope of an envelope."""
    return (
        f"{table}.organization_id = {scope}.organization_id"
        f" AND ({scope}.project_id IS NULL OR {table}.project_id = {scope}.project_id)"
        f" AND ({scope}.environment_id IS NULL OR {table}.environment_id = {scope}.environment_id)"
    )


_MONTH_END = "(CAST(:month AS timestamptz) AT TIME ZONE 'UTC' + interval '1 month') AT TIME ZONE 'UTC'"
# What of the holds of terms is for later months: all but `admission.month_part`.
_FOR_LATER = f"""
  coalesce((SELECT sum(greatest(0, h.amount_nano - ceil(CAST(l.nano_per_unit_hour AS numeric) * l.units
                    * greatest(0, ceil(extract(epoch FROM {_MONTH_END} - greatest(
                        CAST(:month AS timestamptz), coalesce(l.metered_until, l.ready_at, l.created_at)))))
                    / {SECONDS_PER_HOUR})))
            FROM leases l JOIN holds h ON h.lease_id = l.id AND h.organization_id = l.organization_id
            WHERE {_within("l")} AND {among("l.state", LIVE)} AND l.committed_days IS NOT NULL
              AND h.released_at IS NULL), 0)::bigint"""
_MONTH_NANO = f"""
  coalesce((SELECT sum(charged_nano) FROM month_spends m WHERE {_within("m")} AND m.month = :month), 0)::bigint
  - {_FOR_LATER}
  + CASE WHEN e.project_id IS NULL
      THEN (SELECT held_nano FROM standings s WHERE s.organization_id = e.organization_id)
      ELSE coalesce((SELECT sum(h.amount_nano) FROM holds h JOIN leases l ON l.id = h.lease_id
                     WHERE h.organization_id = e.organization_id AND h.released_at IS NULL AND {_within("l")}),
                    0)::bigint END"""
_HELD = f"""
  coalesce((SELECT jsonb_object_agg(gpu_model, gpus) FROM (
    SELECT h.gpu_model, sum(h.gpus) AS gpus FROM capacity_held h WHERE h.gpu_model IS NOT NULL AND {_within("h")}
    GROUP BY h.gpu_model
  ) held), '{{}}') AS gpus_of_model,
  coalesce((SELECT sum(h.nano_per_hour) FROM capacity_held h WHERE {_within("h")}), 0)::bigint AS nano_per_hour"""
# The spend of the month is added up only where it is limited.
_APPLIED = text(f"""
SELECT v.id AS environment_id, e.id, e.level, e.limits, e.over_since, {_HELD},
  CASE WHEN e.limits ->> 'spend_nano_per_month' IS NULL THEN 0 ELSE {_MONTH_NANO} END AS month_nano
FROM environments v JOIN envelopes e ON e.organization_id = v.organization_id
  AND (e.project_id IS NULL OR e.project_id = v.project_id)
  AND (e.environment_id IS NULL OR e.environment_id = v.id)
WHERE v.id = ANY(:environment_ids)
""")
_COLUMNS = "id, level, limits, revision, set_at, set_by"
_OF_SCOPE = """organization_id = :organization_id AND level = :level
  AND project_id IS NOT DISTINCT FROM CAST(:project_id AS uuid)
  AND environment_id IS NOT DISTINCT FROM CAST(:environment_id AS uuid)"""
_GET = text(f"SELECT {_COLUMNS} FROM envelopes WHERE {_OF_SCOPE}")
_ABOVE = text(f"""
SELECT {_COLUMNS} FROM envelopes WHERE organization_id = :organization_id AND level = ANY(:levels)
  AND (project_id IS NULL OR project_id = CAST(:project_id AS uuid))
""")
_PUT = text(f"""
INSERT INTO envelopes (id, organization_id, level, project_id, environment_id, limits, set_at, set_by)
VALUES (:id, :organization_id, :level, :project_id, :environment_id, CAST(:limits AS jsonb), :now, :by)
ON CONFLICT (organization_id, level, project_id, environment_id) DO UPDATE SET
  limits = EXCLUDED.limits, revision = envelopes.revision + 1, set_at = EXCLUDED.set_at, set_by = EXCLUDED.set_by,
  watched_at = NULL
RETURNING {_COLUMNS}
""")
_USE = text(f"""
SELECT {_HELD}, {_MONTH_NANO} AS month_nano,
  (SELECT over_since FROM envelopes o WHERE o.id = CAST(:id AS uuid)) AS over_since
FROM (SELECT CAST(:organization_id AS uuid) AS organization_id, CAST(:project_id AS uuid) AS project_id,
             CAST(:environment_id AS uuid) AS environment_id) e
""")
_OVER = text("UPDATE envelopes SET over_since = :over_since WHERE id = :id")


def month_of(now: datetime) -> datetime:
    """The first instant of the calendar month (UTC)."""
    return now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


async def applied(
    connection: Connection, environment_ids: Collection[EnvironmentId], *, now: datetime
) -> dict[EnvironmentId, tuple[Applied, ...]]:
    """The envelopes of every level that leases of these environments have to stay within, with their use."""
    found = await read(
        connection, _APPLIED, _Row, environment_ids=sorted(set(environment_ids)), month=month_of(now)
    )
    by_environment: dict[EnvironmentId, list[Applied]] = {each: [] for each in environment_ids}
    for row in found:
        by_environment[row.environment_id].append(Applied(row.level, row.limits, row.use, row.id))
    return {each: tuple(envelopes) for each, envelopes in by_environment.items()}


async def get(connection: Connection, scope: EnvelopeScope) -> StoredEnvelope | None:
    return await read_one(connection, _GET, StoredEnvelope, **_values(scope))


async def above(connection: Connection, scope: EnvelopeScope) -> tuple[tuple[Level, Envelope], ...]:
    """The envelopes of the wider levels that a scope lies in."""
    wider = list(Level)[: list(Level).index(scope.level)]
    found = await read(
        connection,
        _ABOVE,
        StoredEnvelope,
        organization_id=scope.organization_id,
        project_id=scope.project_id,
        levels=wider,
    )
    return tuple((each.level, each.limits) for each in found)


async def put(
    connection: Connection,
    scope: EnvelopeScope,
    envelope_id: EnvelopeId,
    limits: Envelope,
    *,
    by: str,
    now: datetime,
) -> StoredEnvelope:
    """State or replace the envelope of a scope. `envelope_id` is its id if it is new."""
    made = await read_one(
        connection,
        _PUT,
        StoredEnvelope,
        id=envelope_id,
        limits=document(limits),
        by=by,
        now=now,
        **_values(scope),
    )
    if made is None:
        raise LookupError(f"the envelope of {scope} was not stored")
    return made


async def use(
    connection: Connection, scope: EnvelopeScope, envelope_id: EnvelopeId | None, *, now: datetime
) -> Use:
    """What the live leases of a scope use, whether or not it has an envelope."""
    found = await read_one(connection, _USE, _Used, id=envelope_id, month=month_of(now), **_values(scope))
    return Use() if found is None else found.use


def _values(scope: EnvelopeScope) -> dict[str, object]:
    return {
        "organization_id": scope.organization_id,
        "level": scope.level,
        "project_id": scope.project_id,
        "environment_id": scope.environment_id,
    }


async def set_over_since(
    connection: Connection, envelope_id: EnvelopeId, over_since: datetime | None
) -> None:
    """Note since when a scope is over a limit. The caller holds the standing's lock."""
    await write(connection, _OVER, id=envelope_id, over_since=over_since)


# What the loop that watches running leases needs.


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedEnvelope(_Used):
    """An envelope with the use of its scope."""

    id: EnvelopeId
    organization_id: OrganizationId
    project_id: ProjectId | None
    environment_id: EnvironmentId | None
    level: Level
    limits: Envelope

    @property
    def applied(self) -> Applied:
        return Applied(self.level, self.limits, self.use, self.id)


@dataclass(frozen=True, slots=True)
class _Warning:
    lease_id: LeaseId
    warned_at: datetime
    confirmed_at: datetime


@dataclass(frozen=True, slots=True)
class NewWarning:
    lease_id: LeaseId
    ends_at: datetime | None
    why: str


# An envelope whose leases were warned is due sooner, and one in which nothing is held has nobody to watch.
_IS_DUE = """(e.watched_at IS NULL OR e.watched_at <= :before OR (e.watched_at <= :warned_before
  AND EXISTS (SELECT FROM envelope_warnings w WHERE w.envelope_id = e.id)))"""
_DUE = text(f"""
SELECT e.id FROM envelopes e WHERE {_IS_DUE} AND (
  EXISTS (SELECT FROM capacity_held h WHERE (h.gpus > 0 OR h.gpu_model IS NULL) AND {_within("h")})
  OR EXISTS (SELECT FROM envelope_warnings w WHERE w.envelope_id = e.id))
ORDER BY e.watched_at NULLS FIRST, e.id LIMIT :limit
""")
_WATCHED = f"""
SELECT e.id, e.organization_id, e.project_id, e.environment_id, e.level, e.limits, e.over_since, {_HELD},
  {_MONTH_NANO} AS month_nano
FROM envelopes e WHERE e.id = :id"""
_READ_WATCHED = text(_WATCHED)
_TAKE_WATCHED = text(f"{_WATCHED} AND {_IS_DUE} FOR UPDATE OF e SKIP LOCKED")
_LEASES = text(f"""
SELECT l.id, l.project_id, l.environment_id, l.sku, l.proof AS tier, l.purchase, l.gpu_model, l.gpu_count,
       l.nano_per_unit_hour * l.units AS nano_per_hour,
       m.region, m.provider, l.created_at
FROM envelopes e JOIN leases l ON {_within("l")}
LEFT JOIN claims c ON c.lease_id = l.id AND c.ended_at IS NULL LEFT JOIN machines m ON m.id = c.machine_id
WHERE e.id = :id AND {among("l.state", LIVE)} ORDER BY l.id
""")
_WARNINGS = text("""
SELECT lease_id, warned_at, confirmed_at FROM envelope_warnings WHERE envelope_id = :id ORDER BY lease_id
""")
_WARN = text(f"""
INSERT INTO envelope_warnings (organization_id, envelope_id, lease_id, warned_at, confirmed_at, ends_at, why)
SELECT e.organization_id, e.id, w.lease_id, :now, :now, w.ends_at, w.why
FROM envelopes e, {Recordset(NewWarning, "w")} WHERE e.id = :id
ON CONFLICT (organization_id, envelope_id, lease_id) DO UPDATE SET
  warned_at = EXCLUDED.warned_at, confirmed_at = EXCLUDED.confirmed_at, ends_at = EXCLUDED.ends_at, why = EXCLUDED.why
""")
_CONFIRM = text("""
UPDATE envelope_warnings SET confirmed_at = :now WHERE envelope_id = :id AND lease_id = ANY(:lease_ids)
""")
_CLEAR = text("DELETE FROM envelope_warnings WHERE envelope_id = :id AND lease_id = ANY(:lease_ids)")
_LOOKED = text("UPDATE envelopes SET watched_at = :now, over_since = :over_since WHERE id = :id")


async def due(
    connection: Connection, *, before: datetime, warned_before: datetime, limit: int
) -> list[EnvelopeId]:
    """Envelopes that nobody held the live leases against since `before`, the longest due first.

    Those with warned leases are due when that is longer ago than `warned_before`.
    """
    return await read(connection, _DUE, EnvelopeId, before=before, warned_before=warned_before, limit=limit)


async def take_watched(
    connection: Connection,
    envelope_id: EnvelopeId,
    *,
    before: datetime,
    warned_before: datetime,
    now: datetime,
) -> WatchedEnvelope | None:
    """One of them, locked for this transaction; None when another replica was faster, or has it."""
    return await read_one(
        connection,
        _TAKE_WATCHED,
        WatchedEnvelope,
        id=envelope_id,
        before=before,
        warned_before=warned_before,
        month=month_of(now),
    )


async def watched(
    connection: Connection, envelope_id: EnvelopeId, *, now: datetime
) -> WatchedEnvelope | None:
    return await read_one(connection, _READ_WATCHED, WatchedEnvelope, id=envelope_id, month=month_of(now))


async def live_leases(connection: Connection, envelope_id: EnvelopeId) -> list[Watched]:
    """The live leases in the scope of an envelope, in the order of their ids."""
    return await read(connection, _LEASES, Watched, id=envelope_id)


async def warned(connection: Connection, envelope_id: EnvelopeId) -> dict[LeaseId, Warned]:
    found = await read(connection, _WARNINGS, _Warning, id=envelope_id)
    return {each.lease_id: Warned(each.warned_at, each.confirmed_at) for each in found}


async def warn(
    connection: Connection, envelope_id: EnvelopeId, warnings: Sequence[NewWarning], *, now: datetime
) -> None:
    if warnings:
        await write(connection, _WARN, id=envelope_id, w=Recordset.document(warnings), now=now)


async def confirm(
    connection: Connection, envelope_id: EnvelopeId, lease_ids: Sequence[LeaseId], *, now: datetime
) -> None:
    """Store that these leases still are outside."""
    if lease_ids:
        await write(connection, _CONFIRM, id=envelope_id, lease_ids=list(lease_ids), now=now)


async def clear(connection: Connection, envelope_id: EnvelopeId, lease_ids: Sequence[LeaseId]) -> None:
    """Forget the warnings of leases that are within again, or have ended."""
    if lease_ids:
        await write(connection, _CLEAR, id=envelope_id, lease_ids=list(lease_ids))


async def looked(
    connection: Connection, envelope_id: EnvelopeId, over_since: datetime | None, *, now: datetime
) -> None:
    await write(connection, _LOOKED, id=envelope_id, over_since=over_since, now=now)
