"""An export run: a billing period, a cut in time, and the files that follow from both.

Charges are append-only. Those of a period that were rated until the cut are the same whenever they are read, so a run
is repeated by reading them again, and nothing has to be stored but the period and the cut.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from control_plane.domain.focus import billing_period
from control_plane.domain.refusal import RefusalCode, Refused

LATE_FACTS = timedelta(days=3)
"""After its end, a period waits so long for usage that is metered or rated late."""
SETTLES_WITHIN = timedelta(minutes=1)
"""A charge is committed at most so long after the time that it was rated at: the database ends statements after 15
seconds, and transactions that idle for 30."""


class FileName(StrEnum):
    """The data files of a run. The manifest describes them, and is none."""

    CSV = "focus-1.2.csv"
    PARQUET = "focus-1.2.parquet"


MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Period:
    """A calendar month in UTC: [since, until)."""

    since: datetime
    until: datetime

    def __str__(self) -> str:
        return f"{self.since:%Y-%m}"


def parse_period(text: str) -> Period:
    """Read a month such as `2026-10`. Raises ValueError."""
    try:
        since = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"not a month such as 2026-10: {text!r}") from None
    period = period_from(since)
    if str(period) != text:
        raise ValueError(f"not a month such as 2026-10: {text!r}")
    return period


def period_from(since: datetime) -> Period:
    return Period(*billing_period(since))


def is_final(period: Period, now: datetime) -> bool:
    """Whether nothing can change in the period any more: it is over, and so is the time for late facts."""
    return now >= period.until + LATE_FACTS


def refusal(period: Period, now: datetime, *, final: bool) -> Refused | None:
    """Why the period cannot be exported now."""
    if now < period.since:
        return Refused(RefusalCode.PERIOD_IN_FUTURE, f"{period} has not begun.")
    if final and not is_final(period, now):
        at = period.until + LATE_FACTS
        why = f"{period} is open until {at:%Y-%m-%dT%H:%M:%SZ}; export it as provisional until then."
        return Refused(RefusalCode.PERIOD_OPEN, why)
    return None


def cut_at(now: datetime) -> datetime:
    """Until when charges are in an export that is made now."""
    return now - SETTLES_WITHIN
