"""What it means that somebody asks for a month to be reconciled: finance, or the loop that does so once a day."""

from datetime import datetime
from uuid import UUID

from control_plane.db import exports, periods, reconciliations
from control_plane.db.connection import Connection
from control_plane.db.reconciliations import Reconciliation
from control_plane.domain.ids import OrganizationId


async def ask(
    connection: Connection,
    platform: OrganizationId,
    month: datetime,
    *,
    reconciliation_id: UUID,
    by: str,
    all_customers: bool,
    now: datetime,
) -> Reconciliation:
    """Store that a month is asked for, with whether it is closed and the export that it is held against.

    Only with `all_customers`, what customers came to that agree is stored as well.
    """
    export = await exports.last_complete_run(connection, platform, covers_all=True, period_start=month)
    asked = Reconciliation(
        id=reconciliation_id,
        period=month,
        closed=await periods.is_closed(connection, platform, month),
        export_id=None if export is None else export.id,
        asked_at=now,
        asked_by=by,
        all_customers=all_customers,
    )
    await reconciliations.insert(connection, asked)
    return asked
