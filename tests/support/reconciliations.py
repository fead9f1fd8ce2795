"""Reconciliations that somebody asked for, for tests of the loop that does them."""

from datetime import datetime
from uuid import UUID

from control_plane.db import reconciliations
from control_plane.db.engine import Database
from control_plane.db.reconciliations import Reconciliation
from control_plane.domain.period import month_of
from control_plane.world import uuid7


async def asked_for(
    db: Database,
    now: datetime,
    *,
    month: datetime | None = None,
    closed: bool = False,
    export_id: UUID | None = None,
) -> UUID:
    """Ask for the reconciliation of a month, which is that of now unless it is given. Returns its id."""
    asked = Reconciliation(
        uuid7(), month or month_of(now), closed, export_id, now, "user_grace", all_customers=True
    )
    async with db.transaction() as connection:
        await reconciliations.insert(connection, asked)
    return asked.id
