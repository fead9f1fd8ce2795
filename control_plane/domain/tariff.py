"""What a lease costs: one price while its machine is on, another one from each stop to the next start, and nothing
while its bill is paused.

A lease is billed in whole UTC seconds from the first full second after it was ready. A stop, a start and a pause count
from the second in which they are recorded, and the end of a pause from the first full second after it. The cost is the
sum of two totals, each rounded once: the time on at its price, and the time stopped at the other one
(docs/decisions/0046, and 0061 for pauses).

A lease that was committed to for a term costs the same while its machine is stopped, so its time is one total. What its
customer does not use of the term after a release is added to that total (docs/decisions/0116), and so the use and the
rest come to the price of the term, to the nano-dollar.
"""

import itertools
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from control_plane.domain.money import Nano, accrued, affordable
from control_plane.domain.rating import charge

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)
_FAR_SECONDS = 100 * 366 * 24 * 3_600
"""No time is computed beyond this: a clock has an end."""


def billing_start(ready_at: datetime) -> datetime:
    """The first whole second at or after `ready_at`."""
    return ready_at.replace(microsecond=0) + _SECOND if ready_at.microsecond else ready_at


def billing_end(ready_at: datetime, at: datetime) -> datetime:
    """The last whole second at or before `at`, and never before the billing start."""
    return max(at.replace(microsecond=0) if at.microsecond else at, billing_start(ready_at))


def unit_seconds_total(ready_at: datetime, units: int, at: datetime) -> int:
    """Unit-seconds from the billing start to `at`, on or stopped."""
    return (billing_end(ready_at, at) - billing_start(ready_at)) // _SECOND * units


def paused_since(paused_at: Sequence[datetime]) -> datetime | None:
    """Since when a bill is paused that was paused and resumed at these moments in turn; None while it is not."""
    return paused_at[-1] if len(paused_at) % 2 else None


def stopped_price(list_nano: Nano, stopped_nano: Nano, cost_nano_per_hour: Nano, units: int) -> Nano:
    """The price of a stopped unit: that of the price book, but no less than what the provider bills us meanwhile, and
    never more than the price while it is on.
    """
    return Nano(min(list_nano, max(stopped_nano, -(-cost_nano_per_hour // units))))


@dataclass(frozen=True, kw_only=True)
class Tariff:
    """The prices of a lease, and when each of them applied.

    A lease may have thousands of stops, so the time of each is summed once and then searched. What is summed is kept
    on the object, which therefore has no slots. Most leases have none, and the meter asks about all of them each hour,
    so nothing is summed or searched for those.
    """

    ready_at: datetime
    units: int
    """What the prices are for: GPUs, or one machine where there are none (`sku.units_of`)."""
    nano_per_unit_hour: Nano
    stopped_nano_per_unit_hour: Nano
    switched_at: tuple[datetime, ...] = ()
    """When its machine was stopped, started, stopped ... in turn, in order of time."""
    paused_at: tuple[datetime, ...] = ()
    """When its bill was paused, resumed, paused ... in turn, in order of time."""
    committed_days: int | None = None
    """The term that was committed to, which begins when its bill does; None without one."""
    unused_unit_seconds: int = 0
    """What is billed of the rest of the term, because its customer released it earlier."""

    @property
    def committed_until(self) -> datetime | None:
        """The end of the term; None without one."""
        days = self.committed_days
        return None if days is None else billing_start(self.ready_at) + days * _DAY

    @property
    def most_nano(self) -> Nano | None:
        """The most that it can cost: the price of the whole term; None without one."""
        days = self.committed_days
        if days is None:
            return None
        return accrued(self.nano_per_unit_hour, self.units * (days * _DAY // _SECOND))

    def unused_after(self, until: datetime) -> int:
        """The unit-seconds that are left of the term at a moment; 0 without a term."""
        end = self.committed_until
        if end is None:
            return 0
        return max(0, (end - billing_end(self.ready_at, until)) // _SECOND) * self.units

    def unused_cost(self, billed_until: datetime, unit_seconds: int) -> Nano:
        """What so much of the rest of the term costs, after the use until `billed_until`."""
        used = self.unit_seconds_until(billed_until, stopped=False)
        return charge(self.nano_per_unit_hour, used, unit_seconds)

    @property
    def cuts(self) -> tuple[datetime, ...]:
        """The whole seconds at which the price changes, in order."""
        return self._cuts if self.switched_at or self.paused_at else ()

    @cached_property
    def _cuts(self) -> tuple[datetime, ...]:
        return tuple(sorted({*self._switches, *self._pauses}))

    @cached_property
    def _switches(self) -> tuple[datetime, ...]:
        if self.committed_days is not None:
            return ()
        return tuple(billing_end(self.ready_at, at) for at in self.switched_at)

    @cached_property
    def _pauses(self) -> tuple[datetime, ...]:
        """The bill is resumed a fraction of a second late, as it starts, so it may be later than the next pause."""
        moments = (
            billing_end(self.ready_at, billing_start(at) if number % 2 else at)
            for number, at in enumerate(self.paused_at)
        )
        return tuple(itertools.accumulate(moments, max))

    @cached_property
    def _seconds(self) -> Mapping[bool, Sequence[int]]:
        """The seconds from the billing start to each of `cuts` in which the machine was stopped, and was not."""
        parts = tuple(itertools.pairwise((billing_start(self.ready_at), *self.cuts)))
        return {
            stopped: tuple(
                itertools.accumulate(
                    (until - since) // _SECOND if self._applies(since, stopped=stopped) else 0
                    for since, until in parts
                )
            )
            for stopped in (False, True)
        }

    @property
    def paused_since(self) -> datetime | None:
        """Since when its bill is paused; None while it is not."""
        return paused_since(self.paused_at)

    def price(self, *, stopped: bool) -> Nano:
        """Of a unit for an hour."""
        return self.stopped_nano_per_unit_hour if stopped else self.nano_per_unit_hour

    def is_stopped(self, at: datetime) -> bool:
        """Whether the price while stopped applies from `at` on."""
        return bool(self.switched_at) and bisect_right(self._switches, at) % 2 == 1

    def is_paused(self, at: datetime) -> bool:
        """Whether nothing is billed from `at` on."""
        return bool(self.paused_at) and bisect_right(self._pauses, at) % 2 == 1

    def unit_seconds_until(self, until: datetime, *, stopped: bool) -> int:
        """Billed unit-seconds from the billing start to `until` in which the machine was stopped, or was not."""
        end = billing_end(self.ready_at, until)
        if not self.switched_at and not self.paused_at:
            return 0 if stopped else (end - billing_start(self.ready_at)) // _SECOND * self.units
        passed = bisect_right(self.cuts, end)
        since = self.cuts[passed - 1] if passed else billing_start(self.ready_at)
        seconds = self._seconds[stopped][passed - 1] if passed else 0
        if self._applies(since, stopped=stopped):
            seconds += (end - since) // _SECOND
        return seconds * self.units

    def cost_until(self, until: datetime) -> Nano:
        """What the lease costs in total from its billing start to `until`."""
        return Nano(sum(self._cost(until, stopped=stopped) for stopped in (False, True)))

    def funded_until(self, amount: Nano) -> datetime | None:
        """The last whole second until which the lease costs at most `amount`; None when it never costs more."""
        passed = bisect_right(self.cuts, amount, key=self.cost_until)
        since = self.cuts[passed - 1] if passed else billing_start(self.ready_at)
        return (
            None
            if self.is_paused(since)
            else self._funded_from(since, amount, stopped=self.is_stopped(since))
        )

    def _applies(self, at: datetime, *, stopped: bool) -> bool:
        """Whether time from `at` on is billed at this of the two prices."""
        return self.is_stopped(at) is stopped and not self.is_paused(at)

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
