"""Whether a running lease can continue: holds are renewed ahead of time, so a balance is never overspent.

A hold sets an hour aside. When half of it is used, it is filled up again. When the balance no longer covers
that, the customer is warned once; when the hold itself is nearly used, the lease ends. At least
`RENEW_BELOW - END_BELOW` of paid time passes between the warning and the end.

The whole term of a lease that was committed to is set aside when it is admitted, so its hold is never short: near the
end, it covers what is left. Only money that is gone later, by a charge-back, leaves it without cover. Then its hold is
reduced to what there is money for, at least an hour, and from there on it is renewed, warned of and used up as any
other, until the rest of the term can be set aside again (docs/decisions/0120).

A hold needs no check while more than half of it is left, and `next_look` computes when that changes.

A machine that its provider can stop is not given up so soon: when the last minutes of the hold begin, it is stopped,
and as much is set aside as its data costs for some days, or as there is (`StopTimes`). The lease ends, and its data is
deleted, when that time is over. A top-up that pays for an hour lets the customer start it again; nothing starts by
itself (docs/decisions/0078).

When holds could not be renewed for a while, a lease may have been used beyond its hold. If the balance covers that
time and the next hour, the hold is renewed and the customer pays for all of it. Otherwise the lease ends, and the time
beyond its hold is not billed: we should have ended it then (docs/decisions/0015).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.money import (
    NOTHING,
    SECONDS_PER_HOUR,
    Nano,
    accrued,
    affordable,
    dollars_down,
    dollars_up,
)
from control_plane.domain.price import HOLD_SECONDS

HOLD = timedelta(seconds=HOLD_SECONDS)
RENEW_BELOW = timedelta(minutes=30)
END_BELOW = timedelta(minutes=2)
STOP_TAKES = timedelta(minutes=12)
"""How long a machine may still cost its full price after its stop was asked for (`power.py`)."""
DATA_KEPT_MIN = timedelta(hours=1)
"""A machine whose data could not be kept for so long is not stopped: its lease runs on instead, and ends."""
LOOK_AGAIN_AFTER = timedelta(seconds=30)
"""The time between two checks of a hold that is half used and cannot be renewed."""


@dataclass(frozen=True, slots=True)
class StopTimes:
    """When machines are stopped for lack of money. A deployment chooses both."""

    below: timedelta = timedelta(minutes=20)
    """A machine is stopped when less of its hold is left. More than `STOP_TAKES`, and at most `RENEW_BELOW`."""
    data_kept: timedelta = timedelta(days=7)
    """How long its data is kept after that, where there is money for it."""


@dataclass(frozen=True, slots=True)
class Funding:
    nano_per_unit_hour: Nano
    units: int
    """What the price is for: GPUs, or one machine where there are none."""
    held_nano: Nano
    """Set aside now, after posted charges were taken out of it."""
    unposted_nano: Nano
    """The most that may be owed and is not posted yet."""
    available_nano: Nano
    """The organization's posted balance less all its open holds."""
    warned: bool
    spends: bool = True
    """Whether the organization may spend; a suspended one uses up what is held, whatever its balance."""
    on_nano_per_unit_hour: Nano | None = None
    """The price while the machine is on, where it is stopped now; None otherwise."""
    stopped_nano_per_unit_hour: Nano | None = None
    """The price while it is stopped, where it is on now and could be stopped at a lower price; None otherwise."""
    kept_for: timedelta | None = None
    """How long its data is still kept after a stop for lack of money; None when there was no such stop."""
    most_left_nano: Nano | None = None
    """The most that it can still cost, up to the end of its term; None when it has none."""

    @property
    def left_nano(self) -> Nano:
        """What is set aside for the future; negative when more than the hold is used."""
        return Nano(self.held_nano - self.unposted_nano)

    def cost_of(self, duration: timedelta) -> Nano:
        cost = accrued(self.nano_per_unit_hour, self.units * int(duration.total_seconds()))
        return cost if self.most_left_nano is None else Nano(min(cost, self.most_left_nano))


@dataclass(frozen=True, slots=True)
class Keep:
    """Enough is set aside, or the customer was warned and the hold suffices for now."""

    unwarns: bool = False
    """Whether the warning is withdrawn: the lease costs less since then, so its end is far and gets another one."""


@dataclass(frozen=True, slots=True)
class Renew:
    more_nano: Nano


@dataclass(frozen=True, slots=True)
class Reduce:
    """Give back `less_nano` of the hold of a term: the money for it is gone."""

    less_nano: Nano
    why: str


@dataclass(frozen=True, slots=True)
class Warn:
    why: str


@dataclass(frozen=True, slots=True)
class End:
    why: str
    unbilled_nano: Nano
    """The price of the time beyond the hold, for which the customer does not pay."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the machine, and set `more_nano` aside, so that its data is paid for."""

    why: str
    more_nano: Nano
    kept_for: timedelta


@dataclass(frozen=True, slots=True)
class Resume:
    """The machine was stopped for lack of money, and there is enough to start it again."""


Decision = Keep | Renew | Reduce | Warn | End | Stop | Resume


def decide(funding: Funding, times: StopTimes) -> Decision:
    if funding.kept_for is not None and funding.on_nano_per_unit_hour is not None:
        return _decide_kept(funding, funding.on_nano_per_unit_hour, funding.kept_for)
    left = funding.left_nano
    of_term = None if funding.most_left_nano is None else _decide_term(funding, funding.most_left_nano)
    if of_term is not None:
        return of_term
    if left >= funding.cost_of(RENEW_BELOW):
        return Keep(unwarns=funding.warned and funding.kept_for is None)
    more = funding.cost_of(HOLD) - left
    if funding.spends and funding.available_nano >= more:
        return Renew(Nano(more))
    why, remedy = _not_renewed(funding, Nano(more))
    if left < funding.cost_of(END_BELOW):
        return End(f"{why}.", unbilled_nano=Nano(max(0, -left)))
    if left < funding.cost_of(times.below) and funding.stopped_nano_per_unit_hour is not None:
        stop = _stop(funding, funding.stopped_nano_per_unit_hour, times.data_kept, why)
        if stop.kept_for >= DATA_KEPT_MIN:
            return stop
    if funding.warned:
        return Keep()
    return Warn(f"{why}; {remedy}, or the lease ends when its hold is used.")


def _decide_term(funding: Funding, most_left: Nano) -> Reduce | Renew | None:
    """Fit the hold of a term to the money that there is; None when there is nothing to change."""
    lost, spare = -funding.available_nano, funding.left_nano - funding.cost_of(HOLD)
    if lost > 0 and spare > 0:
        less, needed = Nano(min(lost, spare)), dollars_up(Nano(lost))
        why = (
            f"{needed} USD of what was set aside for the term is gone; top up as much, or the lease ends when the"
            f" {dollars_down(Nano(funding.left_nano - less))} USD that are set aside now are used."
        )
        return Reduce(less, why)
    missing = most_left - funding.left_nano
    if funding.spends and 0 < missing <= funding.available_nano:
        return Renew(Nano(missing))
    return None


def _stop(funding: Funding, stopped_nano: Nano, data_kept: timedelta, why: str) -> Stop:
    """Stop the machine with as much set aside as its data costs for `data_kept`, or as there is."""
    until_off, left = funding.cost_of(STOP_TAKES), funding.left_nano
    available = max(NOTHING, funding.available_nano) if funding.spends else NOTHING
    money = Nano(max(0, left + available - until_off))
    seconds = int(data_kept.total_seconds())
    if stopped_nano:
        seconds = min(seconds, affordable(stopped_nano, money) // funding.units)
    keeping = accrued(stopped_nano, funding.units * seconds)
    more = max(0, min(available, until_off + keeping - left))
    return Stop(f"{why}.", Nano(more), timedelta(seconds=seconds))


def _decide_kept(funding: Funding, on_nano: Nano, kept_for: timedelta) -> Decision:
    """Decide on a lease whose machine was stopped for lack of money."""
    more = accrued(on_nano, funding.units * HOLD_SECONDS) - funding.left_nano
    if funding.spends and funding.available_nano >= more:
        return Resume()
    if kept_for > timedelta() and funding.left_nano >= funding.cost_of(END_BELOW):
        return Keep()
    why = "The machine was stopped for lack of money, and the time for which its data was kept is over."
    return End(why, unbilled_nano=Nano(max(0, -funding.left_nano)))


def _not_renewed(funding: Funding, more: Nano) -> tuple[str, str]:
    """Why a hold is not renewed, and what the customer can do about it."""
    if not funding.spends:
        return "The organization is suspended, so its holds are not renewed", "settle its account"
    available, needed = dollars_down(funding.available_nano), dollars_up(more)
    return f"{available} USD is available and the next hour needs {needed} USD more", "top up"


@dataclass(frozen=True, slots=True)
class RunsOut:
    """What happens to a lease whose hold cannot be renewed, unless something is paid in."""

    at: datetime
    stops: bool
    """Whether its machine is stopped then, and its data kept; otherwise the lease ends."""


def runs_out(funding: Funding, times: StopTimes, now: datetime) -> RunsOut | None:
    """When a warned lease is stopped or ends, at its price of now; None when it was stopped for lack of money."""
    per_hour = funding.nano_per_unit_hour * funding.units
    if funding.kept_for is not None or not per_hour:
        return None
    stops = funding.stopped_nano_per_unit_hour is not None
    spare = funding.left_nano - funding.cost_of(times.below if stops else END_BELOW)
    return RunsOut(now + timedelta(seconds=max(0, spare * SECONDS_PER_HOUR // per_hour)), stops)


def first_look(ready_at: datetime) -> datetime:
    """When to check the hold of a lease that becomes ready at `ready_at`, with a whole hour set aside."""
    return ready_at + HOLD - RENEW_BELOW


def next_look(funding: Funding, now: datetime) -> datetime:
    """When to check a hold next: as soon as half of it is used at this price.

    `funding` is the funding at `now`, after any renewal. The check is at most an hour and at least
    `LOOK_AGAIN_AFTER` ahead, and not after the time for which data is kept.
    """
    per_hour = funding.nano_per_unit_hour * funding.units
    spare = funding.left_nano - funding.cost_of(RENEW_BELOW)
    seconds = spare * SECONDS_PER_HOUR // per_hour + 1 if per_hour else HOLD_SECONDS
    if funding.kept_for is not None:
        seconds = min(seconds, int(funding.kept_for.total_seconds()) + 1)
    soonest = int(LOOK_AGAIN_AFTER.total_seconds())
    return now + timedelta(seconds=max(soonest, min(HOLD_SECONDS, seconds)))
