"""What the emulated Hyperstack refuses, and how many requests it takes."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

REQUESTS_PER_MINUTE = 500


class Refusal(Exception):  # noqa: N818 - an answer of the contract, not an error of ours
    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


@dataclass
class Limiter:
    """A number of requests in each minute of the clock, for each source address."""

    now: Callable[[], datetime]
    requests_per_minute: int = REQUESTS_PER_MINUTE
    refused: int = 0
    _window: tuple[str, datetime] | None = None
    _drawn: int = 0

    def draw(self, source: str) -> None:
        window = source, self.now().replace(second=0, microsecond=0)
        if window != self._window:
            self._window, self._drawn = window, 0
        self._drawn += 1
        if self._drawn > self.requests_per_minute:
            self.refused += 1
            raise Refusal(429, "too_many_requests", "Too many requests. Try again in a minute.")
