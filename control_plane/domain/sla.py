"""Service levels: the tiers that leases are sold with, and what each of them promises.

The terms of all tiers together are a version, which an operator puts in force from a file. A lease keeps the version
that was in force when it was created. Without any version, and for spot leases, nothing is promised.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from control_plane.domain.money import Nano

WHOLE_BP = 10_000
"""Basis points in a whole."""


class SlaTier(StrEnum):
    """How much is promised with a lease, least first."""

    BRONZE = "bronze"
    SILVER = "silver"
    GOLD = "gold"


@dataclass(frozen=True, slots=True)
class AvailabilityCredit:
    """What is given back when a lease was available for less of a month than promised."""

    below_bp: int
    """Basis points of the promised time."""
    credit_bp: int
    """Basis points of what the lease was charged for the month."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a tier promises. A promise that is None is not made.

    Each credit is in basis points of what the lease was charged for the calendar month (UTC) of the breach.
    """

    tier: SlaTier
    ready_seconds: int | None
    """A lease is ready within this time after it was created."""
    ready_credit_bp: int
    replacement_seconds: int | None
    """A lease whose machine fails has it back, or another one, within this time."""
    replacement_credit_bp: int
    degraded_seconds: int | None
    """GPUs that are degraded for longer than this are not available from then on; None: they are."""
    notice_seconds: int | None
    """Maintenance is announced at least this long before. Announced in time, it is no lack of availability."""
    notice_credit_bp: int
    availability: tuple[AvailabilityCredit, ...]
    """The credits for a month, by the availability below which each is due, the highest first. The first one is the
    promise."""
    replace_before_end: bool
    """A machine that is to be replaced keeps running until the next one is ready."""
    priority: int
    """The priority of a lease that names none, from 0 to 100."""

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise ValueError(problem)

    @property
    def of_node(self) -> "Terms":
        """What is promised with a node of a node pool: no replacement, because the pool gets another lease for it."""
        return replace(self, replacement_seconds=None)

    @property
    def availability_bp(self) -> int | None:
        """The promised availability in basis points; None when none is promised."""
        return self.availability[0].below_bp if self.availability else None


def _problems(terms: Terms) -> list[str]:
    """What is wrong with the terms of a tier."""
    times = {
        "ready_seconds": terms.ready_seconds,
        "replacement_seconds": terms.replacement_seconds,
        "degraded_seconds": terms.degraded_seconds,
        "notice_seconds": terms.notice_seconds,
    }
    shares = [
        terms.ready_credit_bp,
        terms.replacement_credit_bp,
        terms.notice_credit_bp,
        *(step.credit_bp for step in terms.availability),
    ]
    bounds = [step.below_bp for step in terms.availability]
    rising = [step.credit_bp for step in terms.availability]
    return [
        *(f"{name} must be at least one second" for name, seconds in times.items() if (seconds or 1) < 1),
        *("a credit is from 0 to 100 percent" for bp in shares if not 0 <= bp <= WHOLE_BP),
        *("an availability is more than 0 and up to 100 percent" for bp in bounds if not 0 < bp <= WHOLE_BP),
        *(
            ["availabilities fall from one step to the next, and credits do not"]
            if bounds != sorted(set(bounds), reverse=True) or rising != sorted(rising)
            else []
        ),
        *(["a priority is from 0 to 100"] if not 0 <= terms.priority <= 100 else []),
    ]


@dataclass(frozen=True, slots=True)
class SlaOffer:
    """The terms of a tier, with the version that they are of."""

    version: int
    terms: Terms


def share(amount: Nano, bp: int) -> Nano:
    """So many basis points of an amount, rounded half to even."""
    whole, rest = divmod(amount * bp, WHOLE_BP)
    half = WHOLE_BP // 2
    return Nano(whole + (rest > half or (rest == half and whole % 2 == 1)))
