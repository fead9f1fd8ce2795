"""A customer's balance: what it has, what is set aside, and how long the rest lasts."""

from dataclasses import dataclass
from datetime import timedelta

from control_plane.domain.credit_terms import left
from control_plane.domain.money import NOTHING, SECONDS_PER_HOUR, Nano

_FAR_SECONDS = 100 * 366 * 24 * SECONDS_PER_HOUR
"""A longer time is not told: nobody plans with it, and a clock has an end."""


@dataclass(frozen=True, slots=True)
class Balance:
    """An organization's money at a moment."""

    posted_nano: Nano
    """What was paid in or credited, less all charges and refunds."""
    held_nano: Nano
    """Set aside for the next hour of live leases, and for the terms of those that are committed to."""
    due_nano: Nano
    """What its invoices left to pay."""
    running_leases: int
    """Leases that are ready, with their machines on or stopped, and are paid by the hour: none with a term."""
    running_nano_per_hour: Nano
    """What these leases cost an hour."""
    credit_limit_nano: Nano = NOTHING
    """The most that it may owe; 0: it is prepaid."""

    @property
    def available_nano(self) -> Nano:
        """What can be set aside for more leases."""
        return Nano(self.posted_nano - self.held_nano + self.credit_nano)

    @property
    def credit_nano(self) -> Nano:
        """What is left of the credit limit, beside what is on no invoice yet."""
        return left(self.credit_limit_nano, self.due_nano)

    @property
    def lasts(self) -> timedelta | None:
        """How long the available money pays for the running leases, in whole seconds rounded down.

        None while they cost nothing, and for more than a hundred years.
        """
        if self.running_nano_per_hour <= 0:
            return None
        seconds = max(0, self.available_nano) * SECONDS_PER_HOUR // self.running_nano_per_hour
        return timedelta(seconds=seconds) if seconds <= _FAR_SECONDS else None
