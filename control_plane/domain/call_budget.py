"""How calls keep a limit of a provider: each call takes a turn, and turns have moments.

Every limit becomes the same rule, the generic cell rate algorithm: a turn each `interval`, and up to `burst` turns at
once after a pause. A window of N calls in W seconds, wherever the provider begins to count it, sees at most
`burst + W / interval` turns, so these two are chosen to stay below N. A token bucket gives both directly.

When a provider throttles us all the same, its limit is lower than published, or somebody else uses it too: we slow down
to SLOWED of the pace at once, and come back in RECOVERY. A limit that the provider tells with its answers is a ceiling
for as long as it tells it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Self

SLACK = 1.05
"""Calls that leave a second apart may arrive closer together, so they are spaced five percent wider."""
JITTER_SECONDS = 0.15
"""By how much at least the calls of a window without a burst are spaced wider: processes wake up late, and a call for
which a connection has to be opened arrives later than the next one, which finds it open."""
BURST_OF_A_WINDOW = 20
"""One in so many calls of a window may be saved up. Windows of fewer calls are spaced evenly."""
LATE_MAX = timedelta(seconds=1)
AHEAD = timedelta(seconds=1)
"""For how long ahead a process draws turns for itself. What it does not use is lost to everybody."""
AHEAD_TURNS_MAX = 10
SLOWED = 0.7
SHARE_MIN = 0.05
RECOVERY = timedelta(minutes=10)
"""In which the pace comes back from nothing to all of the published limit."""
SAME_THROTTLE = timedelta(seconds=5)
"""Calls that were under way together are throttled together, and slow us down once."""
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Pace:
    """How a published limit is kept."""

    interval: timedelta
    burst: int
    """Turns that may be taken at once after a pause."""
    ahead: int
    """Turns that a process draws at once."""
    late_max: timedelta
    """How long after its moment a turn may still be used."""

    def tolerance(self, urgency: float) -> timedelta:
        """How much earlier than evenly spaced a turn may be, for calls that may use this share of the burst."""
        return max(0, int(self.burst * urgency) - 1) * self.interval


def pace_of(*, calls: int, seconds: float, burst: int | None = None, others: float = 0.0) -> Pace:
    """The pace for at most `calls` in any `seconds`; with `burst`, for a bucket of so many tokens that refills so.

    `others`: the intervals in seconds of the faster limits that calls draw from beside this one. A call may have to
    wait for them after its turn here has come.

    >>> pace_of(calls=1, seconds=12.0).interval.total_seconds()
    12.6
    """
    if burst is None:
        return _pace_of_window(calls, seconds, others)
    interval = SLACK * seconds / calls
    late = min(LATE_MAX.total_seconds(), 0.05 * burst * interval)
    return _pace(interval, max(1, int(0.9 * burst - late / interval)), late)


def _pace_of_window(calls: int, seconds: float, others: float) -> Pace:
    if calls < BURST_OF_A_WINDOW:
        window = seconds + others
        spaced = max(SLACK * window, window + JITTER_SECONDS)
        return Pace(timedelta(seconds=spaced / calls), 1, 1, late_max=timedelta(seconds=others))
    burst = calls // BURST_OF_A_WINDOW
    late = min(LATE_MAX.total_seconds(), seconds / 60)
    # A turn may also be used `late` after its moment, and a call takes a while to arrive.
    seen = seconds + late + min(0.5, seconds / 20)
    return _pace(seen / (calls - burst - 1), burst, late)


def _pace(interval: float, burst: int, late: float) -> Pace:
    ahead = max(1, min(AHEAD_TURNS_MAX, int(AHEAD.total_seconds() / interval)))
    return Pace(timedelta(seconds=interval), burst, ahead, timedelta(seconds=late))


@dataclass(frozen=True, slots=True)
class Bucket:
    """The turns of one limit, as all processes share them."""

    free_at: datetime
    """The moment of the next turn, if none is saved up."""
    closed_until: datetime | None = None
    """Until then the provider takes no call, also none that was saved up."""
    share: float = 1.0
    """The share of the published limit that we used after we were throttled last."""
    share_at: datetime | None = None
    ceiling: float = 1.0
    """The share of the published limit that the provider told us to have."""
    minute: datetime | None = None
    """Since when `this_minute` counts."""
    this_minute: int = 0
    last_minute: int = 0

    def share_now(self, now: datetime) -> float:
        since = (now - self.share_at) / RECOVERY if self.share_at is not None else 1.0
        return max(SHARE_MIN, min(self.ceiling, 1.0, self.share + since))

    def slowed(self, now: datetime, retry_after: timedelta) -> Self:
        """After the provider throttled a call."""
        closed = self.closed(now + retry_after)
        if self.share_at is not None and now - self.share_at < SAME_THROTTLE:
            return closed
        return replace(closed, share=SLOWED * self.share_now(now), share_at=now)

    def told(self, ceiling: float, *, closed_until: datetime | None) -> Self:
        """After the provider told its limit, and from when on it takes calls if it takes none now."""
        told = replace(self, ceiling=ceiling)
        return told if closed_until is None else told.closed(closed_until)

    def closed(self, until: datetime) -> Self:
        """No call before then."""
        return replace(self, closed_until=max(until, self.closed_until or until))

    def drawn(self, pace: Pace, start: datetime, turns: int, now: datetime) -> Self:
        """After `turns` were drawn, the first of them at `start`."""
        free_at = max(self.free_at, start) + pace.interval * turns / self.share_now(now)
        minute, this, last = self._counted(now)
        return replace(self, free_at=free_at, minute=minute, this_minute=this + turns, last_minute=last)

    def turns_of_the_last_minute(self, now: datetime) -> int:
        """How many turns were drawn in the whole minute before the one that runs."""
        return self._counted(now)[2]

    def _counted(self, now: datetime) -> tuple[datetime, int, int]:
        """Since when the minute runs that holds `now`, its turns, and those of the minute before."""
        if self.minute is None or now - self.minute >= 2 * _MINUTE:
            return now, 0, 0
        if now - self.minute >= _MINUTE:
            return self.minute + _MINUTE, 0, self.this_minute
        return self.minute, self.this_minute, self.last_minute


def start_of(
    buckets: Iterable[tuple[Bucket, Pace, int]], *, urgency: float, not_before: datetime
) -> datetime:
    """When a call may be made that takes so many turns of each of these buckets at once.

    `urgency`: the share of each burst that the call may use, so that more urgent ones find some of it left.
    """
    moments = [not_before]
    for bucket, pace, turns in buckets:
        together = max(0, turns - 1) * pace.interval
        moments += [bucket.free_at - pace.tolerance(urgency) + together, bucket.closed_until or not_before]
    return max(moments)


def leaves_idle(
    others: Iterable[tuple[Bucket, Pace, int]],
    start: datetime,
    *,
    urgency: float,
    not_before: datetime,
    longest: timedelta,
) -> bool:
    """Whether a call at `start` keeps one of these buckets from everybody else for too long, though it has a turn."""
    return any(start - start_of([each], urgency=urgency, not_before=not_before) > longest for each in others)
