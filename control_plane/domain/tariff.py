"""What a lease costs: one price while its machine is on, and another one from each stop to the next start.

A lease is billed in whole UTC seconds from the first full second after it was ready. A stop and a start count from the
second in which they are recorded. The cost is the sum of two totals, each rounded once: the time on at its price, and
the time stopped at the other one (docs/decisions/0046).
"""

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from control_plane.domain.money import Nano, accrued, affordable

_SECOND = timedelta(seconds=1)
_FAR_SECONDS = 100 * 366 * 24 * 3_600
"""No time is computed beyond this: a clock has an end."""


def billing_start(ready_at: datetime) -> datetime:
    """The first whole second at or after `ready_at`."""
    floor = ready_at.replace(microsecond=0)
    return floor if floor == ready_at else floor + _SECOND


def billing_end(ready_at: datetime, at: datetime) -> datetime:
    """The last whole second at or before `at`, and never before the billing start."""
    return max(at.replace(microsecond=0), billing_start(ready_at))


def unit_seconds_total(ready_at: datetime, units: int, at: datetime) -> int:
    """Unit-seconds from the billing start to `at`, on or stopped."""
    return (billing_end(ready_at, at) - billing_start(ready_at)) // _SECOND * units


def stopped_price(list_nano: Nano, stopped_nano: Nano, cost_nano_per_hour: Nano, units: int) -> Nano:
    """The price of a stopped unit: that of the price book, but no less than what the provider bills us meanwhile, and
    never more than the price while it is on.
    """
    return Nano(min(list_nano, max(stopped_nano, -(-cost_nano_per_hour // units))))


@dataclass(frozen=True, kw_only=True)
class Tariff:
    """The prices of a lease, and when each of them applied.

    A lease may have thousands of stops, so the time of each is summed once and then searched. What is summed is kept
    on the object, which therefore has no slots.
    """

    ready_at: datetime
    units: int
    """What the prices are for: GPUs, or one machine where there are none (`sku.units_of`)."""
    nano_per_unit_hour: Nano
    stopped_nano_per_unit_hour: Nano
    switched_at: tuple[datetime, ...] = ()
    """When its machine was stopped, started, stopped ... in turn, in order of time."""

    @cached_property
    def cuts(self) -> tuple[datetime, ...]:
        """The whole seconds at which the price changes, as `switched_at`."""
        return tuple(billing_end(self.ready_at, at) for at in self.switched_at)

    @cached_property
    def _stopped_seconds(self) -> Sequence[int]:
        """The seconds from the billing start to each of `cuts` in which the machine was stopped."""
        parts = itertools.pairwise((billing_start(self.ready_at), *self.cuts))
        seconds = ((until - since) // _SECOND * (number % 2) for number, (since, until) in enumerate(parts))
        return tuple(itertools.accumulate(seconds))

    def price(self, *, stopped: bool) -> Nano:
        """Of a unit for an hour."""
        return self.stopped_nano_per_unit_hour if stopped else self.nano_per_unit_hour

    def is_stopped(self, at: datetime) -> bool:
        """Whether the price while stopped applies from `at` on."""
        return bisect_right(self.cuts, at) % 2 == 1

    def unit_seconds_until(self, until: datetime, *, stopped: bool) -> int:
        """Unit-seconds from the billing start to `until` in which the machine was stopped, or was not."""
        end = billing_end(self.ready_at, until)
        passed = bisect_right(self.cuts, end)
        off = self._stopped_seconds[passed - 1] if passed else 0
        if passed % 2 == 1:
            off += (end - self.cuts[passed - 1]) // _SECOND
        seconds = (end - billing_start(self.ready_at)) // _SECOND
        return (off if stopped else seconds - off) * self.units

    def cost_until(self, until: datetime) -> Nano:
        """What the lease costs in total from its billing start to `until`."""
        return Nano(sum(self._cost(until, stopped=stopped) for stopped in (False, True)))

    def funded_until(self, amount: Nano) -> datetime | None:
        """The last whole second until which the lease costs at most `amount`; None when it never costs more."""
        passed = bisect_right(self.cuts, amount, key=self.cost_until)
        since = self.cuts[passed - 1] if passed else billing_start(self.ready_at)
        return self._funded_from(since, amount, stopped=passed % 2 == 1)

    def _cost(self, until: datetime, *, stopped: bool) -> Nano:
        return accrued(self.price(stopped=stopped), self.unit_seconds_until(until, stopped=stopped))

    def _funded_from(self, since: datetime, amount: Nano, *, stopped: bool) -> datetime | None:
        """The same for a lease that costs no more at `since`, and is stopped from then on, or is not."""
        price = self.price(stopped=stopped)
        if price == 0:
            return None
        left = Nano(amount - self._cost(since, stopped=not stopped))
        unit_seconds = affordable(price, left) - self.unit_seconds_until(since, stopped=stopped)
        return since + timedelta(seconds=min(unit_seconds // self.units, _FAR_SECONDS))
