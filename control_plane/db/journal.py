"""Reading the journal, and lines that move no state. Moves write their own lines: see `move()`."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db.engine import rows
from control_plane.domain.ids import MachineId, LeaseId, OrganizationId

_PAGE = text("""
SELECT number, machine_id, at, actor, event, state_before, state_after, why FROM journal
WHERE lease_id = :lease_id AND number > :after ORDER BY number LIMIT :limit
""")
_NOTE = text("""
INSERT INTO journal (organization_id, lease_id, machine_id, at, actor, event, why)
VALUES (:organization_id, :lease_id, :machine_id, :now, :actor, :event, :why)
""")
_REPORT = text("""
INSERT INTO reports (id, organization_id, lease_id, machine_id, at, verdict, why, source, reading)
VALUES (:id, :organization_id, :lease_id, :machine_id, :now, :verdict, :why, :source, CAST(:reading AS jsonb))
""")
_REPORTS = text("""
SELECT id, machine_id, at, verdict, why, source, reading FROM reports WHERE lease_id = :lease_id ORDER BY at, id
""")


async def page(connection: AsyncConnection, lease_id: LeaseId, *, after: int, limit: int) -> list[Any]:
    return list(await rows(connection, _PAGE, lease_id=lease_id, after=after, limit=limit))


async def note(
    connection: AsyncConnection,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    machine_id: MachineId | None,
    *,
    event: str,
    why: str,
    actor: str,
    now: datetime,
) -> None:
    values = {
        "organization_id": organization_id,
        "lease_id": lease_id,
        "machine_id": machine_id,
        "now": now,
        "actor": actor,
        "event": event,
        "why": why,
    }
    await connection.execute(_NOTE, values)


async def insert_report(
    connection: AsyncConnection,
    report_id: UUID,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    machine_id: MachineId,
    *,
    verdict: str,
    why: str | None,
    source: str,
    reading: str,
    now: datetime,
) -> None:
    """Store a verification report; `reading` is the JSON text the machine answered, parsed and bounded."""
    values = {
        "id": report_id,
        "organization_id": organization_id,
        "lease_id": lease_id,
        "machine_id": machine_id,
        "verdict": verdict,
        "why": why,
        "source": source,
        "reading": reading,
        "now": now,
    }
    await connection.execute(_REPORT, values)


async def verification_reports(connection: AsyncConnection, lease_id: LeaseId) -> list[Any]:
    return list(await rows(connection, _REPORTS, lease_id=lease_id))
