"""Accounting periods: calendar months (UTC) of an issuer, and how the books of a month are closed and reopened.

    OPEN --closing began--> CLOSING --closed--> CLOSED --reopened--> CLOSING

Every charge and every ledger transaction is booked in a period: that of its effective time, or the first later one that
is not closed. A fact that arrives late is therefore a correction in an open period, and its effective time says which
period it corrects. The database refuses whatever is booked in a closed period (`db/migrations/period_triggers.py`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.transitions import Ignored, Moved
from control_plane.domain.transitions import step as step_table

MAIN_ISSUER = "main"
"""The issuer that every installation has: the legal entity that sells to all customers unless there are others."""
_MONTH = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")


class PeriodState(StrEnum):
    OPEN = "open"
    """Usage and money are booked."""
    CLOSING = "closing"
    """The month is over. What belongs to it is still booked, until nothing is missing."""
    CLOSED = "closed"
    """Nothing in it changes."""


class PeriodEvent(StrEnum):
    CLOSING_BEGAN = "closing_began"
    CLOSED = "closed"
    REOPENING_REQUESTED = "reopening_requested"
    """Somebody asked for a closed period to be reopened. Somebody else has to agree."""
    REOPENED = "reopened"


_S = PeriodState
_E = PeriodEvent

NEXT: Mapping[tuple[PeriodState, PeriodEvent], PeriodState] = {
    (_S.OPEN, _E.CLOSING_BEGAN): _S.CLOSING,
    (_S.CLOSING, _E.CLOSED): _S.CLOSED,
    (_S.CLOSED, _E.REOPENING_REQUESTED): _S.CLOSED,
    (_S.CLOSED, _E.REOPENED): _S.CLOSING,
}


def step(
    state: PeriodState, event: PeriodEvent
) -> Moved[PeriodState, PeriodEvent] | Ignored[PeriodState, PeriodEvent]:
    return step_table(NEXT, state, event)


def month_of(moment: datetime) -> datetime:
    """The first instant of the calendar month (UTC) that contains `moment`."""
    return moment.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def month_after(month: datetime) -> datetime:
    """The first instant after a month, which is given by its own first instant."""
    years, months = divmod(month.year * 12 + month.month, 12)
    return month.replace(year=years, month=months + 1)


def parse_month(text: str) -> datetime:
    """The first instant of a month that is written `2026-11`. Raises ValueError for any other text."""
    found = _MONTH.fullmatch(text)
    if found is None or found[1] == "0000":
        raise ValueError(f"not a month such as 2026-11: {text!r}")
    return datetime(int(found[1]), int(found[2]), 1, tzinfo=UTC)


def month_text(month: datetime) -> str:
    """The inverse of `parse_month`."""
    return f"{month:%Y-%m}"


@dataclass(frozen=True, slots=True)
class Period:
    issuer: str
    month: datetime
    """Its first instant."""
    state: PeriodState
    changed_at: datetime | None = None
    """When it came into its state; None while it was never closed."""
    changed_by: str | None = None
    """The id of the subject that brought it there."""
    reopening_requested_at: datetime | None = None
    reopening_requested_by: str | None = None
    reopening_reason: str | None = None

    @property
    def name(self) -> str:
        return month_text(self.month)


@dataclass(frozen=True, slots=True)
class Missing:
    """What has to happen before a period can be closed, counted over all customers of the issuer."""

    unmetered_leases: int
    """Leases whose use in the period is not metered up to its end."""
    unrated_intervals: int
    """Metered intervals of the period without a price."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """One sentence for each thing that is missing."""
        counts = (
            (self.unmetered_leases, "Use is not metered yet up to the end of the month; leases: {}."),
            (self.unrated_intervals, "Metered time is not charged yet; intervals: {}."),
        )
        return tuple(sentence.format(count) for count, sentence in counts if count)


def closing(period: Period, missing: Missing, now: datetime) -> tuple[PeriodEvent, ...] | Refused:
    """What a request to close a period does: its closing begins, and ends if nothing is missing.

    Refused for a month that is not over, and for one that is closed.
    """
    if now < month_after(period.month):
        why = f"{period.name} is not over. It can be closed from {month_after(period.month):%Y-%m-%d} 00:00 UTC on."
        return Refused(RefusalCode.PERIOD_NOT_OVER, why)
    if period.state is PeriodState.CLOSED:
        return Refused(RefusalCode.PERIOD_CLOSED, f"{period.name} is closed already.")
    began = (PeriodEvent.CLOSING_BEGAN,) if period.state is PeriodState.OPEN else ()
    return began if missing.sentences else (*began, PeriodEvent.CLOSED)


def reopening(period: Period, by: str, *, invoiced: bool) -> PeriodEvent | Refused:
    """What a request to reopen a period does: the first person asks, and another one agrees.

    Refused while it is not closed, once somebody is `invoiced` for it, because a charge that is added then would be on
    no invoice, and for a person who asked for it already.
    """
    if period.state is not PeriodState.CLOSED:
        return Refused(RefusalCode.PERIOD_NOT_CLOSED, f"{period.name} is {period.state}, not closed.")
    if invoiced:
        why = f"Invoices of {period.name} are issued. What arrives late is booked in a later month."
        return Refused(RefusalCode.PERIOD_INVOICED, why)
    if period.reopening_requested_by is None:
        return PeriodEvent.REOPENING_REQUESTED
    if period.reopening_requested_by == by:
        why = f"You asked for {period.name} to be reopened. Somebody else has to agree."
        return Refused(RefusalCode.OWN_REQUEST, why)
    return PeriodEvent.REOPENED
