"""The call budget per provider account that all replicas share, kept in Postgres."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.db import accounts
from control_plane.db.engine import Database
from control_plane.domain.ids import AccountName


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """Reserves the moments at which calls may be sent, evenly spaced per account and bucket."""

    db: Database
    now: Callable[[], datetime]

    async def reserve(
        self, account: AccountName, bucket: str, *, calls: int, seconds: float, wait_seconds_max: float
    ) -> float | None:
        """Seconds to wait before the call; None, without a reservation, when that would exceed `wait_seconds_max`."""
        now = self.now()
        async with self.db.transaction() as connection:
            starts_at = await accounts.reserve(
                connection,
                account,
                bucket,
                spacing=timedelta(seconds=seconds / calls),
                wait_max=timedelta(seconds=wait_seconds_max),
                now=now,
            )
        return None if starts_at is None else max(0.0, (starts_at - now).total_seconds())
