"""When credits for broken promises are posted: by themselves, unless they are suspiciously many, or rest on a machine's
word alone too often.

What we read on a machine, its customer can forge, who has root there. Evidence from elsewhere pays at once: from the
provider's lists, from our journal, or from the same GPU on another machine. Of the rest, the credits of one lease of an
organization are posted for a calendar month; those of its other leases wait until finance has decided on them.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.money import NOTHING, Nano
from control_plane.domain.sla_clock import SETTLES_AFTER, Month

LOOK_AGAIN_AFTER = timedelta(minutes=10)
"""The time between two judgements of a lease whose figures may still change."""
LATE_EVIDENCE_EVERY = timedelta(days=1)
LATE_EVIDENCE_FOR = timedelta(days=40)
"""How long after its end a lease is judged again, because evidence may be late."""
ALWAYS_POSTED = 10
"""So many credits may wait at a time without being suspicious."""
SHARE_MAX = 5
"""More of them are, when they are more than one in so many leases with promises."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known about the credit of a breach."""

    credit: Nano
    """What is to be given back for it, by its latest assessment."""
    outside: Nano
    """What of it evidence from outside of the machine shows."""
    approved: Nano
    """What finance has approved so far."""
    considered: Nano
    """Up to which amount finance has decided, either way."""
    credited: Nano
    """What the ledger has."""

    @property
    def certain(self) -> Nano:
        """What is given back whatever the customer did on the machine."""
        return min(self.credit, max(self.outside, self.approved, self.credited))

    @property
    def is_open(self) -> bool:
        """Whether a part of it rests on the machine alone, and nobody has decided on that."""
        return self.credit > self.certain and self.credit > self.considered

    def due(self, *, trusted: bool) -> Nano:
        """What is to be posted now. `trusted`: its lease is the one whose machine's word is taken in this month."""
        given = self.credit if trusted and self.is_open else self.certain
        return Nano(given - self.credited)

    @property
    def undecided(self) -> Nano:
        """What waits for a decision unless the lease is trusted."""
        return Nano(self.credit - self.certain) if self.is_open else NOTHING


def next_judgement(months: tuple[Month, ...], ended_at: datetime | None, now: datetime) -> datetime | None:
    """When a lease is judged again; None when nothing can change any more."""
    if ended_at is None:
        return now + LOOK_AGAIN_AFTER
    if not all(month.settled for month in months):
        return now + SETTLES_AFTER
    return now + LATE_EVIDENCE_EVERY if now - ended_at < LATE_EVIDENCE_FOR else None


def held_back(*, waiting: int, leases: int) -> str | None:
    """Why no credit is posted now; None when they are.

    Of `leases` leases with promises, `waiting` breaches are to be credited that no operator has approved. A fault of
    ours, such as a wrong clock or a gap in the evidence, looks like a flood of breaches.
    """
    allowed = max(ALWAYS_POSTED, leases // SHARE_MAX)
    if waiting <= allowed:
        return None
    return (
        f"{waiting:,} credits wait, for {leases:,} leases with promises; more than {allowed:,} at a time need an"
        " operator's approval: splitplane sla approve"
    )
