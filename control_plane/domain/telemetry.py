"""When a sample was read by our clock, though its machine's clock may show anything; how finely samples are shown."""

from dataclasses import dataclass
from datetime import datetime, timedelta

AGE_MAX = timedelta(hours=24)
"""A sample that is older is not stored: an agent keeps fewer, so its times are wrong."""
SAMPLED_EVERY = timedelta(seconds=15)
"""How often an agent reads a sample: data_plane/documents/sample.py."""
FRESH_FOR = timedelta(minutes=2)
"""How long a sample says how a machine is. Of an older one, only its time is exported."""
WINDOW_MAX = timedelta(hours=2)
"""Samples are kept for at least as long."""
POINTS_MAX = 120
STEPS = (15, 30, 60, 120, 300)
"""Seconds between two points of a window."""
SKEW_MS_MAX = 2_147_483_647
"""What is stored of a clock that is wrong by more than 24 days."""


@dataclass(frozen=True, slots=True)
class Taken:
    """When a sample was read, by our clock."""

    at: datetime
    skew_ms: int
    """How far the machine's clock is ahead of ours, with the time that the delivery took."""


def taken(at_ms: int, sent_at_ms: int, received_at: datetime) -> Taken | None:
    """The time of a sample, from what the machine's clock showed then and when it was sent; None if it is too old.

    Only the difference of the two counts, so a clock that is wrong does no harm as long as nobody sets it. A sample
    from after it was sent was read when it was received: no machine has samples of the future.
    """
    age = timedelta(milliseconds=max(0, sent_at_ms - at_ms))
    if age > AGE_MAX:
        return None
    skew_ms = sent_at_ms - round(received_at.timestamp() * 1000)
    return Taken(received_at - age, max(-SKEW_MS_MAX, min(SKEW_MS_MAX, skew_ms)))


def step(window: timedelta) -> timedelta:
    """How far the points of a window are apart, so that there are no more than POINTS_MAX."""
    seconds = window.total_seconds() / POINTS_MAX
    return timedelta(seconds=next(step for step in STEPS if step >= min(seconds, STEPS[-1])))
