"""What each service level promises."""

from typing import Annotated

from control_plane.wire.common import NextCursor, View
from control_plane.wire.vocabulary import one_of

SlaTierWord = Annotated[
    str,
    one_of(
        "SlaTier",
        "How much is promised with a lease, least first. The terms in force say what.",
        bronze="The least: what every lease has that asks for no tier.",
        silver="More than bronze.",
        gold="The most.",
    ),
]


class AvailabilityCreditView(View):
    """What is given back for a month in which a lease was available for less than promised."""

    below_percent: str
    """The availability in percent, exact, below which it is due: `99.50`."""
    credit_percent: str
    """The share, in percent, of what the lease was charged for the month: `10.00`."""


class SlaTierView(View):
    """What a tier promises with leases that are created now.

    A promise that is null is not made. Each credit is a share, in percent, of what the lease was charged for the
    calendar month (UTC) of the breach; all credits for a month together never exceed what it was charged.
    """

    tier: SlaTierWord
    """The tier."""
    version: int
    """The version of the terms. Leases keep the one that was in force when they were created."""
    ready_seconds: int | None
    """A lease is ready within so many seconds after it was created."""
    ready_credit_percent: str
    """What is given back when it is not."""
    replacement_seconds: int | None
    """A lease whose machine fails has it back, or another one, within so many seconds."""
    replacement_credit_percent: str
    """What is given back when it has not, for each failure."""
    degraded_seconds: int | None
    """GPUs that are degraded for more seconds count as not available from then on; null: they do not."""
    notice_seconds: int | None
    """Maintenance is announced so many seconds before. Announced in time, it is no lack of availability."""
    notice_credit_percent: str
    """What is given back for maintenance that was announced later."""
    availability: tuple[AvailabilityCreditView, ...]
    """The credits for a month, the highest availability first: the first one is what is promised."""
    replace_before_end: bool
    """Whether a machine that is to be replaced keeps running until the next one is ready."""
    priority: int
    """The priority of a lease that names none."""


class SlaTierList(View):
    """The terms in force."""

    items: tuple[SlaTierView, ...]
    """The tiers that are offered, the least first; empty when nothing is promised."""
    next_cursor: NextCursor | None = None
