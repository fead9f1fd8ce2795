"""Queries on verification reports: the GPU readings of machines, and the verdicts on them.

The report of a machine that was set up for a lease belongs to that lease; that of a pool machine or a node belongs
to no lease.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.journal import OWNER
from control_plane.db.rows import read, write
from control_plane.domain.ids import LeaseId, MachineId
from control_plane.domain.verification import Verdict


@dataclass(frozen=True, slots=True)
class VerificationReport:
    id: UUID
    machine_id: MachineId
    at: datetime
    verdict: Verdict
    why: str | None
    source: str
    reading: Mapping[str, object]
    """What the machine reported."""


_INSERT = text(f"""
INSERT INTO verification_reports (id, organization_id, project_id, lease_id, machine_id, at, verdict, why, source,
                                  reading)
SELECT :id, owner.organization_id, owner.project_id, owner.lease_id, m.id, :now, :verdict, :why, :source,
       CAST(:reading AS jsonb)
FROM machines m {OWNER.format(machine="m.id")} WHERE m.id = :machine_id
""")
_OF_LEASE = text("""
SELECT id, machine_id, at, verdict, why, source, reading FROM verification_reports
WHERE lease_id = :lease_id ORDER BY at, id
""")


async def insert(
    connection: Connection,
    report_id: UUID,
    machine_id: MachineId,
    *,
    verdict: Verdict,
    why: str | None,
    source: str,
    reading: str,
    now: datetime,
) -> None:
    """Store a report. `reading` is the machine's answer as JSON text, already parsed and bounded."""
    values = {
        "id": report_id,
        "machine_id": machine_id,
        "verdict": verdict.value,
        "why": why,
        "source": source,
    }
    await write(connection, _INSERT, **values, reading=reading, now=now)


async def of_lease(connection: Connection, lease_id: LeaseId) -> list[VerificationReport]:
    """The reports of a lease's machines, oldest first."""
    return await read(connection, _OF_LEASE, VerificationReport, lease_id=lease_id)
