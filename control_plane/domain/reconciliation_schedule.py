"""Which months are reconciled although nobody asked, and when: the running one and the last one, once a day.

The last month goes on being reconciled after it was closed, because its invoices, credit notes and exports come then.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.period import month_of

REPEATED_AFTER = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class LastAsked:
    """The last time that anybody asked for a month to be reconciled."""

    period: datetime
    """The first instant of the month."""
    asked_at: datetime
    is_done: bool
    """Whether all customers were examined."""


def watched_months(now: datetime) -> tuple[datetime, datetime]:
    """The running month and the last one, by their first instants."""
    running = month_of(now)
    return running, month_of(running - timedelta(days=1))


def is_due(last: LastAsked | None, now: datetime) -> bool:
    """Whether a month has to be asked for. None: nobody ever asked for it.

    While one is under way, no other is put behind it: they would only say the same, and pile up.
    """
    return last is None or (last.is_done and now - last.asked_at >= REPEATED_AFTER)
