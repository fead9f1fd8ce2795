"""Queries on accounting periods. A month without a row is open."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.ids import OrganizationId
from control_plane.domain.period import Missing, Period, PeriodEvent, PeriodState, month_after

_COLUMNS = """issuer, month, state, changed_at, changed_by, reopening_requested_at, reopening_requested_by,
              reopening_reason"""
_STORED = text(f"SELECT {_COLUMNS} FROM periods WHERE issuer = :issuer")
_GET = text(f"{_STORED.text} AND month = :month")
_LOCK = text("SELECT pg_advisory_xact_lock(period_lock_key(:issuer, :month))")
_HOLD = text("SELECT pg_advisory_xact_lock_shared(period_lock_key(:issuer, :month))")
_MISSING = text("SELECT unmetered_leases, unrated_intervals FROM period_missing(:issuer, :month, :until)")
# What is effective in a closed month is booked in a later one. Customers see no row of `periods`.
_IS_CLOSED = text("SELECT booking_period(:organization_id, :month) > :month")
_SAVE = text(f"""
INSERT INTO periods ({_COLUMNS})
VALUES (:issuer, :month, :state, :changed_at, :changed_by, :reopening_requested_at, :reopening_requested_by,
        :reopening_reason)
ON CONFLICT (issuer, month) DO UPDATE SET
  state = EXCLUDED.state, changed_at = EXCLUDED.changed_at, changed_by = EXCLUDED.changed_by,
  reopening_requested_at = EXCLUDED.reopening_requested_at,
  reopening_requested_by = EXCLUDED.reopening_requested_by, reopening_reason = EXCLUDED.reopening_reason
""")
_RECORD = text("""
INSERT INTO period_events (id, issuer, month, event, at, by, reason)
VALUES (:id, :issuer, :month, :event, :at, :by, :reason)
""")


async def stored(connection: Connection, issuer: str) -> list[Period]:
    """The periods of an issuer that somebody has begun to close."""
    return await read(connection, _STORED, Period, issuer=issuer)


async def lock(connection: Connection, issuer: str, month: datetime) -> Period:
    """A period, after every transaction that books in it has ended. None begins before this one ends."""
    await connection.execute(_LOCK, {"issuer": issuer, "month": month})
    return await _get(connection, issuer, month)


async def hold(connection: Connection, issuer: str, month: datetime) -> Period:
    """A period, whose state nobody changes before this transaction ends."""
    await connection.execute(_HOLD, {"issuer": issuer, "month": month})
    return await _get(connection, issuer, month)


async def _get(connection: Connection, issuer: str, month: datetime) -> Period:
    found = await read_one(connection, _GET, Period, issuer=issuer, month=month)
    return found or Period(issuer, month, PeriodState.OPEN)


async def missing(connection: Connection, issuer: str, month: datetime) -> Missing:
    """What is missing from a period, over all customers of the issuer.

    Raises LookupError unless the connection acts for the platform's organization.
    """
    until = month_after(month)
    found = await read_one(connection, _MISSING, Missing, issuer=issuer, month=month, until=until)
    if found is None:
        raise LookupError("only the platform's organization sees what is missing from a period")
    return found


async def save(connection: Connection, period: Period) -> None:
    """Store a period that `lock` answered, after it was changed."""
    await write(
        connection,
        _SAVE,
        issuer=period.issuer,
        month=period.month,
        state=period.state.value,
        changed_at=period.changed_at,
        changed_by=period.changed_by,
        reopening_requested_at=period.reopening_requested_at,
        reopening_requested_by=period.reopening_requested_by,
        reopening_reason=period.reopening_reason,
    )


@dataclass(frozen=True, slots=True)
class PeriodRecord:
    """Who did what with a period, when and why. It is never edited."""

    id: UUID
    event: PeriodEvent
    at: datetime
    by: str
    """The id of the subject."""
    reason: str | None = None


async def record(connection: Connection, period: Period, made: PeriodRecord) -> None:
    await write(
        connection,
        _RECORD,
        id=made.id,
        issuer=period.issuer,
        month=period.month,
        event=made.event.value,
        at=made.at,
        by=made.by,
        reason=made.reason,
    )


async def is_closed(connection: Connection, organization_id: OrganizationId, month: datetime) -> bool:
    """Whether a month is closed for those who sell to the organization."""
    (found,) = await read(connection, _IS_CLOSED, bool, organization_id=organization_id, month=month)
    return found
