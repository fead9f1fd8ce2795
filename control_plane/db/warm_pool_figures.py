"""The query for the business metrics of warm pools: how many machines they keep, and what they did in the last day."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read
from control_plane.domain.money import Nano
from control_plane.domain.pool import PoolState
from control_plane.domain.pool_figures import hour_of, midnight_of

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class WarmPoolFigures:
    """A pool that is not deleted. What it did is that of the last 24 hours, by whole hours."""

    name: str
    wanted: int
    target: int
    """0 for a pool that only shows what it would do."""
    verified: int
    starting: int
    idle_nano_per_day: Nano
    """What its waiting machines may cost in a day."""
    requests: int
    hits: int
    avoided_ms: int
    idle_nano: Nano
    idle_today_nano: Nano
    """Of it since midnight (UTC), which is what the budget is for."""


_POOLS = text(f"""
SELECT p.name, p.wanted, CASE WHEN p.state = '{PoolState.DRY_RUN}' THEN 0 ELSE p.target END AS target,
       p.verified, p.starting, p.idle_nano_per_day,
       CAST(coalesce(sum(h.requests), 0) AS bigint) AS requests, CAST(coalesce(sum(h.hits), 0) AS bigint) AS hits,
       CAST(coalesce(sum(h.avoided_ms), 0) AS bigint) AS avoided_ms,
       CAST(coalesce(sum(h.idle_nano), 0) AS bigint) AS idle_nano,
       CAST(coalesce(sum(h.idle_nano) FILTER (WHERE h.hour >= :midnight), 0) AS bigint) AS idle_today_nano
FROM pools p LEFT JOIN pool_hours h ON h.pool_id = p.id AND h.hour >= :since
WHERE p.state <> '{PoolState.DELETED}' GROUP BY p.id ORDER BY p.name
""")


async def pools(connection: Connection, *, now: datetime) -> list[WarmPoolFigures]:
    values = {"since": hour_of(now - DAY), "midnight": midnight_of(now)}
    return await read(connection, _POOLS, WarmPoolFigures, **values)
