"""An outage of the API: it is reported in one line while requests are repeated, and once more when it is over.

An outage begins with the first request that failed or stays without an answer. Several threads may ask at the
same time (`lease watch` has one for each lease); they share the outage, so that it is reported once.
"""

import threading
from collections.abc import Callable

from control_plane.cli.clock import Clock
from control_plane.cli.errors import CliError

REPORT_AFTER_SECONDS = 2.0
"""An outage that the next try may end within this time is not reported: restarts of the API are shorter."""
SILENCE_SECONDS = 4.0
"""A request that stays without an answer for so long is reported."""


class Outage:
    def __init__(self, url: str, clock: Clock, report: Callable[[str], None]) -> None:
        self._url = url
        self._clock = clock
        self._report = report
        self._lock = threading.Lock()
        self._since: float | None = None
        self._reported = False

    def failed(self, error: CliError, *, next_try_in: float, tries_for: float) -> None:
        """A request failed; the next try follows in `next_try_in` seconds, and the last one within `tries_for`."""
        with self._lock:
            now = self._clock.seconds()
            since = self._started(now if error.since is None else error.since)
            if now + next_try_in - since >= REPORT_AFTER_SECONDS:
                self._say(f"{self._url} {error.reason}. Retrying for up to {tries_for:.0f} s.")

    def watched(self, *, since: float, waits_for: float) -> Callable[[], None]:
        """Report a request that stays without an answer. Call the function returned when it has one."""
        with self._lock:
            earliest = since if self._since is None else self._since
        silent = max(0.0, SILENCE_SECONDS - (self._clock.seconds() - earliest))

        def speak() -> None:
            with self._lock:
                self._started(since)
                self._say(
                    f"{self._url} has not answered for {SILENCE_SECONDS:.0f} s."
                    f" Waiting, and then retrying, for up to {waits_for:.0f} s."
                )

        return self._clock.later(silent, speak)

    def over(self) -> None:
        """The API has answered."""
        with self._lock:
            if self._reported:
                self._report(f"{self._url} answers again.")
            self._since, self._reported = None, False

    def _started(self, since: float) -> float:
        self._since = since if self._since is None else min(self._since, since)
        return self._since

    def _say(self, sentence: str) -> None:
        if not self._reported:
            self._reported = True
            self._report(sentence)
