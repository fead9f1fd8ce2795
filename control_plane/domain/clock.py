"""Which time a process works with: the database's, kept going between two readings by the process' own stopwatch.

Times that one replica writes are compared by the others (when an account is due, until when a lease is billed), so all
of them take the time from one clock, which is the database's. What the host's own clock shows never enters a row.

A host whose clock differs from the database's is a fault all the same: signed requests to providers, TLS and tokens
depend on it. `Reckoning.refusal` says so, and the process does no work until the two agree again.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

REREAD_EVERY = timedelta(seconds=10)
"""How often a process reads the database's clock again."""
DIFFERENCE_MAX = timedelta(seconds=5)
"""How far two clocks may differ before a process refuses to work. Hosts that keep their time by NTP differ by
milliseconds, so 5 s is always a fault; and it is far less than the minutes that a signed request may be off (AWS
Signature Version 4 allows 5 min), so the fault is found before a provider refuses our calls."""
DRIFT = 0.001
"""Seconds per second by which a stopwatch and the database's clock may drift apart. A kernel slews its clock by 500
parts in a million at most (adjtimex(2)), and there are two of them."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """The database's time at one moment of the stopwatch."""

    stopwatch: float
    """Seconds of the process' monotonic clock."""
    at: datetime
    error: float
    """Seconds by which `at` may be off in either direction: half of the round trip that read it."""

    def time(self, stopwatch: float) -> datetime:
        """The database's time when the stopwatch shows this."""
        return self.at + timedelta(seconds=stopwatch - self.stopwatch)

    def error_at(self, stopwatch: float) -> float:
        """Seconds by which `time` may be off: the anchor's error, and the drift since then."""
        return self.error + DRIFT * abs(stopwatch - self.stopwatch)

    def agrees(self, other: "Anchor", stopwatch: float) -> bool:
        """Whether both may be readings of one clock that was not set in between."""
        apart = abs((self.time(stopwatch) - other.time(stopwatch)).total_seconds())
        return apart <= self.error_at(stopwatch) + other.error_at(stopwatch)

    def contradicts(self, time: datetime, stopwatch: float) -> bool:
        """Whether `time` certainly differs from it by more than DIFFERENCE_MAX; a slow reading says little."""
        difference = abs((time - self.time(stopwatch)).total_seconds())
        return difference - self.error_at(stopwatch) > DIFFERENCE_MAX.total_seconds()


def anchor(asked: float, answered: float, at: datetime) -> Anchor:
    """What a reading shows that was asked for and answered at these moments of the stopwatch.

    The database read its clock somewhere in between, so the middle is off by half of the round trip at most, and by the
    drift during it, however unequal the two ways were.
    """
    return Anchor((asked + answered) / 2, at, (answered - asked) / 2 * (1 + DRIFT))


@dataclass(frozen=True, slots=True)
class Reckoning:
    """What is known of the database's clock."""

    database: Anchor
    """What the database's clock shows, right or wrong."""
    work: Anchor
    """What the process works with. It follows the database's clock unless that was set to a time which this host's
    clock contradicts: then one of the two is wrong, and the process refuses to work until they agree."""

    def now(self, stopwatch: float, last: datetime | None) -> datetime:
        """The time, never before `last`: after the database's clock went back, it stands still until that caught up."""
        time = self.work.time(stopwatch)
        return time if last is None or time > last else last

    def difference(self, host: datetime, stopwatch: float) -> timedelta:
        """How far the host's clock is ahead of the database's; negative when it is behind."""
        return host - self.database.time(stopwatch)

    def refusal(self, host: datetime, now: datetime, stopwatch: float) -> str | None:
        """Why this process must not work, as a sentence; None when it may."""
        if self.database.contradicts(host, stopwatch):
            difference = self.difference(host, stopwatch)
            return (
                f"The clock of this host is {_apart(difference)} the database's; they may differ by"
                f" {DIFFERENCE_MAX.total_seconds():g} s. Correct the one that is wrong."
            )
        if self.database.contradicts(now, stopwatch):
            difference = now - self.database.time(stopwatch)
            return (
                f"This process is {_apart(difference)} the database's clock, which was set meanwhile."
                " Restart the process, or wait until the time has caught up."
            )
        return None


def reckoned(held: Reckoning | None, read: Anchor, *, host: datetime, stopwatch: float) -> Reckoning:
    """What is known after another reading. `host` is what the host's clock shows at this moment of the stopwatch."""
    if held is None:
        return Reckoning(database=read, work=read)
    database = read
    if held.database.agrees(read, stopwatch):
        database = min(read, held.database, key=lambda known: known.error_at(stopwatch))
    follows = not database.contradicts(host, stopwatch) or held.work.agrees(database, stopwatch)
    return Reckoning(database=database, work=database if follows else held.work)


def _apart(difference: timedelta) -> str:
    seconds = difference.total_seconds()
    return f"{abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'}"
