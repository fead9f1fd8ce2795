"""A limit of requests in each minute of the clock, for clouds that publish none: twice what our adapter keeps to."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime


@dataclass
class MinuteLimit:
    """`requests` of all callers together, counted anew with each minute."""

    requests: int
    now: Callable[[], datetime]
    refused: int = 0
    _minute: datetime | None = None
    _drawn: int = 0

    def allows(self) -> bool:
        """Count a request. False when the minute has had as many as it may."""
        minute = self.now().replace(second=0, microsecond=0)
        if minute != self._minute:
            self._minute, self._drawn = minute, 0
        self._drawn += 1
        if self._drawn <= self.requests:
            return True
        self.refused += 1
        return False
