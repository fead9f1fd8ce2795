"""The freeze of a provider account: its lists look wrong, so absences from them prove nothing (docs/decisions/0043).

Lists of machines and of what belongs to them freeze by the same rule, each for itself: `sweep.py` and `child.py` say
what should be on them.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

SHRUNK_MIN = 3
SHRUNK_PERCENT = 30
"""A list that misses so many, and more than this share of those that should be on it, is not believed."""
THAW_AFTER = timedelta(minutes=15)
THAW_LISTS = 5
"""Odd lists are believed after all once there were this many in a row, over at least this time, and they miss few."""
FEW = 3
"""As many machines of an account are believed to be gone because of odd lists, without an operator's permit."""


def shrunk(missed: int, expected: int) -> bool:
    """Whether a list misses too many of those that should be on it."""
    return missed >= SHRUNK_MIN and missed * 100 > expected * SHRUNK_PERCENT


@dataclass(frozen=True, slots=True)
class Odd:
    """The list lacks too many to be believed at once."""

    why: str
    missing: int
    """How many it misses. Of machines, with those that vanished in the last hour."""


@dataclass(frozen=True, slots=True)
class MissingPermit:
    """An operator's permit to believe the lists of one freeze, as long as they miss no more than the operator saw."""

    frozen_since: datetime
    machines: int


@dataclass(frozen=True, slots=True)
class Freeze:
    """The lists of an account look wrong, so absences from them prove nothing for now."""

    since: datetime
    lists: int
    """How many odd lists there were in a row, including the last one."""
    why: str
    missing: int
    """How many machines the last list misses, with those that vanished in the hour before."""

    @property
    def needs_permit(self) -> bool:
        """Whether the lists miss too many machines to be believed without an operator, however long they are odd."""
        return self.missing > FEW

    def believed(self, now: datetime, permit: MissingPermit | None) -> bool:
        """Whether odd lists are believed after all: an operator permitted it, or they were odd for long and miss few.

        A single list proves no absence, so the next lists are believed as well: the freeze stays on record, with its
        start, until the missing machines are closed and the lists look sane.
        """
        if permit is not None and permit.frozen_since == self.since and self.missing <= permit.machines:
            return True
        return not self.needs_permit and self.lasted(now)

    def lasted(self, now: datetime) -> bool:
        """Whether lists have been odd in the same way for long."""
        return now - self.since >= THAW_AFTER and self.lists >= THAW_LISTS


def freeze_after(before: Freeze | None, odd: Odd | None, *, now: datetime) -> Freeze | None:
    """The account's freeze after one more list. A sane list ends it at once."""
    if odd is None:
        return None
    if before is None:
        return Freeze(now, 1, odd.why, odd.missing)
    return Freeze(before.since, before.lists + 1, odd.why, odd.missing)
