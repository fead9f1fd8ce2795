"""The words and figures of a fleet that operators read. Each is computed from what is stored, never stored."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from itertools import cycle, pairwise

from control_plane.domain.money import Nano, accrued


class MachineHealth(StrEnum):
    """How a machine of the fleet is. The first word that applies, in this order."""

    ENDING = "ending"
    """It has to be terminated."""
    STARTING = "starting"
    """It was ordered, and is not verified yet."""
    MISSING = "missing"
    """It was verified, and its provider's last list does not show it."""
    DOWN = "down"
    """It was verified, and its provider lists it as failed, stopped or ending though nobody asked for that."""
    SUSPECT = "suspect"
    """It was verified, and failed its last GPU proof since."""
    STOPPED = "stopped"
    """Its customer stopped it, or it is stopping or starting, so nobody reports from it."""
    SILENT = "silent"
    """Its agent reported before, and not in the last five minutes."""
    HEALTHY = "healthy"
    """It is verified, and nothing of the above is so."""


def cost_between(
    begin: datetime,
    end: datetime,
    *,
    nano_per_hour: Nano,
    stopped_nano_per_hour: Nano | None,
    switched_at: Sequence[datetime],
) -> Nano:
    """What a provider charges for a machine from its order to a moment, without what it rounds up.

    `switched_at`: when the machine was stopped, and started again, in turn. None as the price while it is stopped means
    that it is the same.
    """
    stopped = nano_per_hour if stopped_nano_per_hour is None else stopped_nano_per_hour
    cuts = [begin, *(min(max(begin, at), end) for at in switched_at), max(begin, end)]
    prices = cycle((nano_per_hour, stopped))
    return Nano(
        sum(
            accrued(price, int((until - since).total_seconds()))
            for (since, until), price in zip(pairwise(cuts), prices, strict=False)
        )
    )
