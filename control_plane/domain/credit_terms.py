"""Credit terms: how far a customer may use capacity before it pays, and how long it then has to pay an invoice.

A customer with a credit limit is postpaid: its balance may fall below zero, down to the limit. Its invoices then leave
to pay what the balance did not cover, and what is not paid yet of earlier ones lowers what is left of the limit.
Without a limit, a customer is prepaid.
"""

from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.money import NOTHING, Nano

PAYMENT_DAYS_MAX = 120


@dataclass(frozen=True, slots=True)
class CreditTerms:
    limit_nano: Nano
    """The most that a customer may owe, with what is on no invoice yet; 0: it is prepaid."""
    payment_days: int
    """After how many days an invoice has to be paid."""
    reason: str
    changed_at: datetime
    changed_by: str
    """The id of the subject."""

    def __post_init__(self) -> None:
        if self.limit_nano < 0 or not 0 <= self.payment_days <= PAYMENT_DAYS_MAX:
            raise ValueError(
                f"a limit is not negative, and from 0 to {PAYMENT_DAYS_MAX} days are given to pay"
            )


def left(limit: Nano, due: Nano) -> Nano:
    """What may be used of a limit by a customer that owes `due` by invoices."""
    return Nano(max(NOTHING, limit - max(NOTHING, due)))


def on_account(subtotal: Nano, *, at_end: Nano, now: Nano) -> Nano:
    """What of a subtotal the balance did not cover, so that the invoice leaves it to pay.

    The balance below zero at the end of the month was used in it or before, and what was paid in since then lowers it.
    """
    return Nano(max(NOTHING, min(subtotal, -at_end, -now)))
