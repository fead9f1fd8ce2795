"""Knows what the workloads of machines are asked for, and says it with the answer to each delivery.

All signals that are in force are read together every few seconds: they are few, and a query for each delivery would
cost as much as storing its samples. While they cannot be read, the last ones count until their own time is over.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

from control_plane.db.enforcement import MachineSignal
from control_plane.domain.ids import ClaimId
from data_plane.documents.signal import ASKS, REASONS, SECONDS_MAX, Signal

READ_EVERY_SECONDS = 5.0

Ask = Callable[[], Awaitable[Mapping[ClaimId, MachineSignal]]]


class Signals:
    def __init__(self, ask: Ask, *, say: Callable[[str | None], None]) -> None:
        """`say` is called when signals cannot be read any more, with the reason, and when they can again, with None."""
        self._ask = ask
        self._say = say
        self._known: Mapping[ClaimId, MachineSignal] = {}
        self._failing = False

    def of(self, claim_id: ClaimId, now: datetime) -> Signal | None:
        """What the workload of a claim is asked for; None: nothing."""
        found = self._known.get(claim_id)
        if found is None or found.until <= now:
            return None
        action = next((ask for ask in ASKS if ask == found.action), None)
        reason = next((word for word in REASONS if word == found.reason), None)
        if action is None or reason is None:
            return None
        ends_in = None if found.ends_at is None else _seconds(found.ends_at, now)
        return Signal(action, reason, max(1, _seconds(found.until, now)), ends_in)

    async def look(self) -> None:
        """Read all signals. What fails is told once, and tried again."""
        try:
            self._known = await self._ask()
        except Exception as error:  # noqa: BLE001 - storing samples must not stop for a signal
            if not self._failing:
                self._say(f"{type(error).__name__}: {error}")
            self._failing = True
            return
        if self._failing:
            self._say(None)
        self._failing = False

    async def keep(self) -> None:
        """Read all signals again and again, until it is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(READ_EVERY_SECONDS)


def _seconds(until: datetime, now: datetime) -> int:
    return min(SECONDS_MAX, max(0, int((until - now).total_seconds())))
