"""An export run: a billing period, a cut in time, and the files that follow from both.

Charges are append-only. Those of a period that were rated until the cut are the same whenever they are read, so a run
is repeated by reading them again, and nothing has to be stored but the period and the cut.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.period import month_text
from control_plane.domain.refusal import RefusalCode, Refused

SETTLES_WITHIN = timedelta(minutes=1)
"""A charge is committed at most so long after the time that it was rated at, and an invoice after that of its issue:
the database ends statements after 15 seconds, and transactions that idle for 30."""


class FileName(StrEnum):
    """The data files of a run. The manifest describes them, and is none."""

    CSV = "focus-1.2.csv"
    PARQUET = "focus-1.2.parquet"


MANIFEST = "manifest.json"


def refusal(month: datetime, now: datetime, *, closed: bool, final: bool) -> Refused | None:
    """Why a month cannot be exported now. `closed` says whether its books are closed, `final` that they have to be."""
    name = month_text(month)
    if now < month:
        return Refused(RefusalCode.PERIOD_IN_FUTURE, f"{name} has not begun.")
    if final and not closed:
        why = f"The books of {name} are not closed yet; export it as provisional until then."
        return Refused(RefusalCode.PERIOD_OPEN, why)
    return None


def cut_at(now: datetime, *, closed: bool) -> datetime:
    """Until when charges are in an export that is made now. A closed month gets none any more, so it is whole."""
    return now if closed else now - SETTLES_WITHIN


def invoiced_until(created_at: datetime) -> datetime:
    """Until when invoices are named in an export that was made at a time: also those of a closed month settle."""
    return created_at - SETTLES_WITHIN
