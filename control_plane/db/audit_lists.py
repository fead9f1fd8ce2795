"""Queries on the audit log for those who read it: lists with filters, and whose key a refused one was."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from uuid import UUID

from sqlalchemy import TextClause, text

from control_plane.db.audit import READ, SealedRow, sealed_of
from control_plane.db.connection import Connection
from control_plane.db.rows import read
from control_plane.domain.audit_chain import SealedLine
from control_plane.domain.ids import ApiKeyId, OrganizationId, ServiceAccountId, UserId


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which lines are listed; None: any."""

    since: datetime | None = None
    until: datetime | None = None
    event: str | None = None
    outcome: str | None = None
    subject: str | None = None
    """The id of a subject or a credential."""
    target: str | None = None


_CONDITIONS = {
    "since": "at >= :since",
    "until": "at < :until",
    "event": "event = :event",
    "outcome": "outcome = :outcome",
    "subject": "CAST(:subject AS text) IN (subject, credential)",
    "target": "targets @> ARRAY[CAST(:target AS text)]",
    "before_at": "(at, id) < (:before_at, CAST(:before_id AS uuid))",
}
"""SQL of the filters that are given. One that is not given would keep the database from using an index for another."""


@cache
def _page(given: frozenset[str]) -> TextClause:
    conditions = "".join(f" AND {_CONDITIONS[name]}" for name in sorted(given & _CONDITIONS.keys()))
    return text(
        f"{READ} audit_events WHERE organization_id = :organization_id{conditions}"
        " ORDER BY at DESC, id DESC LIMIT :limit"
    )


_IDS_OF_ALL = text("""
SELECT organization_id, id FROM audit_event_ids(
  CAST(:organization_id AS uuid), :platform, CAST(:since AS timestamptz), CAST(:until AS timestamptz), :event, :outcome,
  :subject, :target, CAST(:before_at AS timestamptz), CAST(:before_id AS uuid), :limit)
""")
_OF_IDS = text(f"{READ} audit_events WHERE id = ANY(:ids)")


@dataclass(frozen=True, slots=True)
class Place:
    """Which line, and whose."""

    organization_id: OrganizationId | None
    id: UUID


async def page(
    connection: Connection,
    organization_id: OrganizationId,
    wanted: Filter,
    *,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[SealedLine]:
    """Lines of an organization, newest first, behind time and id of `before`."""
    given = {name: value for name, value in _values(wanted, before, limit).items() if value is not None}
    found = await read(
        connection, _page(frozenset(given)), SealedRow, organization_id=organization_id, **given
    )
    return [sealed_of(row) for row in found]


async def places_of_all(
    connection: Connection,
    organization_id: OrganizationId | None,
    wanted: Filter,
    *,
    platform: bool,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[Place]:
    """As `page`, of one organization, of the platform's chain alone, or of every chain: which lines there are."""
    return await read(
        connection,
        _IDS_OF_ALL,
        Place,
        organization_id=organization_id,
        platform=platform,
        **_values(wanted, before, limit),
    )


async def of_ids(connection: Connection, ids: Sequence[UUID]) -> list[SealedLine]:
    """These lines, of the tenant of the connection or of the platform."""
    return [sealed_of(row) for row in await read(connection, _OF_IDS, SealedRow, ids=list(ids))]


def _values(wanted: Filter, before: tuple[datetime, UUID] | None, limit: int) -> dict[str, object]:
    return {
        "since": wanted.since,
        "until": wanted.until,
        "event": wanted.event,
        "outcome": wanted.outcome,
        "subject": wanted.subject,
        "target": wanted.target,
        "before_at": before[0] if before else None,
        "before_id": before[1] if before else None,
        "limit": limit,
    }


@dataclass(frozen=True, slots=True)
class RefusedKey:
    """Whose API key it was that is not accepted any more."""

    secret_sha256: bytes
    organization_id: OrganizationId
    api_key_id: ApiKeyId
    user_id: UserId | None
    service_account_id: ServiceAccountId | None


_REFUSED_KEYS = text("SELECT * FROM refused_api_keys(:secrets)")


async def refused_keys(connection: Connection, secrets: Sequence[bytes]) -> list[RefusedKey]:
    """The keys with these digests, whether they are accepted or not."""
    return await read(connection, _REFUSED_KEYS, RefusedKey, secrets=list(secrets))
