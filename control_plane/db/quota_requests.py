"""Queries on quota requests."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.reach import within
from control_plane.db.rows import document, read, read_one, write
from control_plane.domain.access import Reach
from control_plane.domain.ids import OrganizationId, QuotaRequestId
from control_plane.domain.quota_request import QuotaRequest, QuotaRequestState

_COLUMNS = """id, organization_id, level, project_id, environment_id, limits, reason, state, asked_by, asked_at,
  expires_at, decided_by, decided_at, answer"""
_INSERT = text(f"""
INSERT INTO quota_requests (id, organization_id, level, project_id, environment_id, limits, reason, state, asked_by,
                            asked_at, expires_at)
VALUES (:id, :organization_id, :level, :project_id, :environment_id, CAST(:limits AS jsonb), :reason,
        '{QuotaRequestState.PENDING}', :asked_by, :asked_at, :expires_at)
""")
_GET = f"SELECT {_COLUMNS} FROM quota_requests WHERE organization_id = :organization_id AND id = :id"
_READ = text(_GET)
_LOCK = text(f"{_GET} FOR UPDATE")
_DECIDE = text("""
UPDATE quota_requests SET state = :state, decided_by = :by, decided_at = :now, answer = :answer
WHERE organization_id = :organization_id AND id = :id AND state = :before
""")
_STATE = f"""CASE WHEN state = '{QuotaRequestState.PENDING}' AND expires_at <= :now
  THEN '{QuotaRequestState.EXPIRED}' ELSE state END"""
"""SQL: `QuotaRequest.state_at`."""
_COUNT_PENDING = text(f"""
SELECT count(*) FROM quota_requests WHERE organization_id = :organization_id AND asked_by = :asked_by
  AND state = '{QuotaRequestState.PENDING}' AND expires_at > :now
""")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM quota_requests q WHERE organization_id = :organization_id
  AND {within("q", lease=None)}
  AND (CAST(:states AS text[]) IS NULL OR {_STATE} = ANY(:states))
  AND (CAST(:before_at AS timestamptz) IS NULL OR (asked_at, id) < (:before_at, CAST(:before_id AS uuid)))
ORDER BY asked_at DESC, id DESC LIMIT :limit
""")


async def insert(connection: Connection, request: QuotaRequest) -> None:
    await write(
        connection,
        _INSERT,
        id=request.id,
        organization_id=request.organization_id,
        level=request.level,
        project_id=request.project_id,
        environment_id=request.environment_id,
        limits=document(request.limits),
        reason=request.reason,
        asked_by=request.asked_by,
        asked_at=request.asked_at,
        expires_at=request.expires_at,
    )


async def count_pending(
    connection: Connection, organization_id: OrganizationId, asked_by: str, *, now: datetime
) -> int:
    """How many requests of a subject are neither decided nor over."""
    values = {"organization_id": organization_id, "asked_by": asked_by, "now": now}
    return await read_one(connection, _COUNT_PENDING, int, **values) or 0


async def get(
    connection: Connection, organization_id: OrganizationId, request_id: QuotaRequestId, *, lock: bool = False
) -> QuotaRequest | None:
    statement = _LOCK if lock else _READ
    return await read_one(connection, statement, QuotaRequest, organization_id=organization_id, id=request_id)


async def decide(
    connection: Connection,
    request: QuotaRequest,
    state: QuotaRequestState,
    *,
    by: str,
    answer: str | None,
    now: datetime,
) -> bool:
    """Store the decision on a request. False when it was decided meanwhile."""
    return bool(
        await write(
            connection,
            _DECIDE,
            organization_id=request.organization_id,
            id=request.id,
            before=request.state,
            state=state,
            by=by,
            answer=answer,
            now=now,
        )
    )


async def page(
    connection: Connection,
    organization_id: OrganizationId,
    reach: Reach,
    *,
    states: Sequence[QuotaRequestState] | None,
    now: datetime,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[QuotaRequest]:
    """Those within reach in these states at `now`, newest first.

    `before` is time and id of the previous page's last one.
    """
    return await read(
        connection,
        _PAGE,
        QuotaRequest,
        organization_id=organization_id,
        everywhere=reach.organization,
        projects=list(reach.projects),
        environments=list(reach.environments),
        states=None if states is None else list(states),
        now=now,
        before_at=before[0] if before else None,
        before_id=before[1] if before else None,
        limit=limit,
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request is, which is read as its own tenant."""

    organization_id: OrganizationId
    id: QuotaRequestId


# A function that runs with its owner's rights: the tenant filter would hide the requests of other organizations.
_IDS = text("""
SELECT organization_id, id FROM quota_request_ids(:now, CAST(:states AS text[]), CAST(:before_at AS timestamptz),
                                                  CAST(:before_id AS uuid), CAST(:limit AS integer))
""")


async def ids_of_all(
    connection: Connection,
    *,
    states: Sequence[QuotaRequestState] | None,
    now: datetime,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[Place]:
    """The requests of all organizations that are in these states at `now`, newest first."""
    return await read(
        connection,
        _IDS,
        Place,
        states=None if states is None else list(states),
        now=now,
        before_at=before[0] if before else None,
        before_id=before[1] if before else None,
        limit=limit,
    )
