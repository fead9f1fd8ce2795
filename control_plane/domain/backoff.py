"""The delay before a retry: it doubles up to a ceiling, without jitter (row claims already spread the work)."""

from datetime import timedelta


def delay(attempt: int, *, first: timedelta, ceiling: timedelta) -> timedelta:
    """How long to wait after failed attempt number `attempt` (1, 2, 3 ...)."""
    if attempt < 1:
        raise ValueError("attempts count from one")
    doublings = min(attempt - 1, 30)
    return min(first * (1 << doublings), ceiling)
