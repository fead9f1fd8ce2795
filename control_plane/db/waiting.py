"""Queries on leases that wait for a machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.leases import COLUMNS
from control_plane.db.rows import Recordset, read, write
from control_plane.domain.ids import LeaseId
from control_plane.domain.lease import LeaseState, PlacingLease


@dataclass(frozen=True, slots=True)
class Waits:
    """A lease that no offer can serve now."""

    id: LeaseId
    why: str
    due_at: datetime
    """When to look again."""


# With the leases that are due come those of their organizations that go before one of them, whenever they would be due:
# otherwise a lease could take what one with a higher priority waits for. Both lists are bounded before anything is
# sorted or joined, because tens of thousands of leases may wait. They are locked where they are chosen, so that a
# second worker goes on behind those of the first.
_TAKE_PLACING = text(f"""
WITH due AS (
  SELECT id, organization_id, priority, due_at FROM leases
  WHERE state = '{LeaseState.PLACING}' AND due_at <= :now
  ORDER BY due_at, id LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED
), lowest AS (
  SELECT organization_id, min(priority) AS priority FROM due GROUP BY organization_id
), ahead AS (
  SELECT before.id, CAST(:now AS timestamptz) AS due_at FROM lowest CROSS JOIN LATERAL (
    SELECT w.id FROM leases w
    WHERE w.state = '{LeaseState.PLACING}' AND w.organization_id = lowest.organization_id
      AND w.priority > lowest.priority AND w.due_at > :now
    ORDER BY w.priority DESC, w.created_at, w.id LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED
  ) before LIMIT :limit
)
SELECT {COLUMNS}, l.due_at, l.held_at FROM leases l
JOIN (SELECT id, due_at FROM due UNION ALL SELECT id, due_at FROM ahead) taken ON taken.id = l.id
ORDER BY taken.due_at, l.id
""")
_WAITS = Recordset(Waits, "waits")
_WAIT = text(f"""
UPDATE leases l SET due_at = waits.due_at, waiting_since = coalesce(l.waiting_since, :now), waiting_why = waits.why
FROM {_WAITS} WHERE l.id = waits.id AND l.state = '{LeaseState.PLACING}'
""")


@dataclass(frozen=True, slots=True)
class Held:
    """A change of whether its customer's own envelope holds a lease back."""

    id: LeaseId
    moments: tuple[datetime, ...]
    """Those to add."""


_HELD = Recordset(Held, "held")
_HOLD = text(f"""
UPDATE leases l SET held_at = l.held_at || ARRAY(
  SELECT CAST(moment AS timestamptz) FROM jsonb_array_elements_text(held.moments) WITH ORDINALITY AS each(moment, place)
  ORDER BY place)
FROM {_HELD} WHERE l.id = held.id
""")


async def hold(connection: Connection, held: Sequence[Held]) -> None:
    """Store since when envelopes hold leases back, or until when they did."""
    if held:
        await write(connection, _HOLD, held=_HELD.document(held))


async def take_placing(connection: Connection, *, now: datetime, limit: int) -> list[PlacingLease]:
    """Leases that wait for a machine and are due, with those of their organizations that go before them.

    At most `limit` of either. They are locked for this transaction. Leases locked by others are skipped.
    """
    return await read(connection, _TAKE_PLACING, PlacingLease, now=now, limit=limit)


async def wait(connection: Connection, waits: Sequence[Waits], *, now: datetime) -> None:
    """Let leases wait for stock from now on, or longer."""
    if waits:
        await write(connection, _WAIT, waits=_WAITS.document(waits), now=now)
