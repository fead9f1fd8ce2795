"""Tariffs for tests of what leases cost."""

from datetime import datetime

from control_plane.domain.money import Nano
from control_plane.domain.tariff import Tariff


def a_tariff(
    ready_at: datetime,
    units: int = 1,
    price: Nano = Nano(3_600),  # noqa: B008 - a NewType of int: the number itself
    *,
    stopped: Nano | None = None,
    switched_at: tuple[datetime, ...] = (),
    paused_at: tuple[datetime, ...] = (),
    committed_days: int | None = None,
) -> Tariff:
    """One that costs one nano-dollar a second, on or stopped, unless it says otherwise."""
    return Tariff(
        ready_at=ready_at,
        units=units,
        nano_per_unit_hour=price,
        stopped_nano_per_unit_hour=price if stopped is None else stopped,
        switched_at=switched_at,
        paused_at=paused_at,
        committed_days=committed_days,
    )
