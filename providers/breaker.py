"""The circuit breaker of a provider account: after many calls without an answer, calls pause for a while."""

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass
class Breaker:
    """Opens after `failures_max` calls in a row without an answer; after `cool_down` it lets one call try."""

    failures_max: int = 5
    cool_down: timedelta = timedelta(seconds=30)
    failures: int = 0
    open_since: datetime | None = None
    _trying: bool = False

    def admit(self, now: datetime) -> bool:
        """Whether a call may be made now. An admitted call must end in one of the three methods below."""
        if self.open_since is None:
            return True
        if self._trying or now - self.open_since < self.cool_down:
            return False
        self._trying = True
        return True

    def answered(self) -> None:
        """The provider answered: the breaker closes, also when the answer was a "no"."""
        self.failures, self.open_since, self._trying = 0, None, False

    def failed(self, now: datetime) -> None:
        """No usable answer came."""
        self.failures += 1
        if self.failures >= self.failures_max and (self.open_since is None or self._trying):
            self.open_since = now
        self._trying = False

    def abandoned(self) -> None:
        """The admitted call was never made or was cancelled: it says nothing about the provider."""
        self._trying = False
