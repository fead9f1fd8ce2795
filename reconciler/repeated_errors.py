"""Keeps what a loop meets again and again from filling the log. The loop's report has it all the time."""

from collections.abc import Iterable
from datetime import datetime, timedelta

LOGGED_AGAIN_AFTER = timedelta(minutes=10)
REMEMBERED_MAX = 1_000


class RepeatedErrors:
    """Which errors of one loop were logged lately, by their texts."""

    def __init__(self) -> None:
        self._logged: dict[str, datetime] = {}

    def to_log(self, errors: Iterable[str], now: datetime) -> list[str]:
        """Those that were not logged for ten minutes. They count as logged now."""
        self._logged = {text: at for text, at in self._logged.items() if now - at < LOGGED_AGAIN_AFTER}
        fresh = [text for text in errors if text not in self._logged]
        if len(self._logged) < REMEMBERED_MAX:
            self._logged.update(dict.fromkeys(fresh, now))
        return fresh
