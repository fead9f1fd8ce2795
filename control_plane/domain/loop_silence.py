"""What it means that a loop has not reported for a while.

Every replica that runs a loop reports on it. A loop from which no replica has a recent report is late: its work is not
done. When only one replica is silent, that replica has stopped, and the work goes on elsewhere.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import Enum, auto
from typing import Protocol, TypeVar


class Silence(Enum):
    LATE = auto()
    """No replica runs the loop in time."""
    STOPPED = auto()
    """This replica does not, and another one does."""


class Report(Protocol):
    """The last report of a loop in one replica."""

    @property
    def loop(self) -> str: ...

    @property
    def account(self) -> str: ...

    @property
    def finished_at(self) -> datetime: ...

    @property
    def late_after_seconds(self) -> int: ...


AnyReport = TypeVar("AnyReport", bound=Report)


def age_seconds(report: Report, now: datetime) -> int:
    return max(0, int((now - report.finished_at).total_seconds()))


def judged(reports: Sequence[AnyReport], now: datetime) -> list[tuple[AnyReport, Silence | None]]:
    """Each report with what its silence means; None for a recent report."""
    running = {(report.loop, report.account) for report in reports if _is_recent(report, now)}
    return [(report, _silence(report, now, running)) for report in reports]


def _silence(report: Report, now: datetime, running: set[tuple[str, str]]) -> Silence | None:
    if _is_recent(report, now):
        return None
    return Silence.STOPPED if (report.loop, report.account) in running else Silence.LATE


def _is_recent(report: Report, now: datetime) -> bool:
    return age_seconds(report, now) <= report.late_after_seconds
