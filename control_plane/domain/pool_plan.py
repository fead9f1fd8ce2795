"""What a pool does next: how many machines it keeps, which ones it orders, and which ones it ends.

Its policy says how many it wants. The minimum and the maximum bound that, and so does the money that is left of the
day: not even the minimum is kept beyond it. The number grows at once, by `step_max` at a time, and shrinks only after
demand has asked for fewer for LOWER_AFTER, so that it does not flap. A machine that has waited for AGE_MAX is replaced
first and ended then. One that its provider does not list, or that is suspect because of its GPU proof, does not count;
what becomes of it is decided where that is noticed. After orders that failed, the next one waits longer each time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.backoff import delay
from control_plane.domain.claim import not_at_hand
from control_plane.domain.ids import MachineId
from control_plane.domain.machine import Machine, MachineState
from control_plane.domain.money import Nano, dollars
from control_plane.domain.pool import Pool, PoolPolicy, PoolState
from control_plane.domain.pool_sizing import Sizing

LOWER_AFTER = timedelta(minutes=15)
AGE_MAX = timedelta(days=7)
ENDED_PER_LOOK_MAX = 10
"""Of a pool that is being deleted. A pool that shrinks ends `step_max` at a time."""
FAILED_WITHIN = timedelta(hours=1)
"""Failures count for so long."""
ORDER_AGAIN_FIRST = timedelta(seconds=30)
ORDER_AGAIN_CEILING = timedelta(minutes=15)
_HOUR_SECONDS = 3_600
_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What a decision about a pool is based on."""

    pool: Pool
    waiting: Sequence[Machine]
    """Its machines that no lease ever claimed and that are not ended, those that are still set up among them."""
    unhealthy_accounts: frozenset[str]
    """Accounts whose lists cannot be believed, or at which nothing is bought. Nothing is ended there."""
    sizing: Sizing | None
    """By its measured demand; None when that was not measured again."""
    idle_nano_per_hour: Nano
    """What one of its machines costs while it waits, by its price."""
    spent_today_nano: Nano
    """What its waiting machines have cost since midnight (UTC)."""
    failures: int
    """How many of its machines failed within FAILED_WITHIN."""
    failed_at: datetime | None
    now: datetime
    unfit: frozenset[MachineId] = frozenset()
    """Those of its machines that no lease is given: by their health, or because an operator took them out."""


@dataclass(frozen=True, slots=True)
class Ending:
    machine_id: MachineId
    why: str


@dataclass(frozen=True, slots=True)
class PoolPlan:
    wanted: int
    wanted_why: str
    target: int
    fewer_since: datetime | None
    why: str
    orders: int
    endings: tuple[Ending, ...]


def plan(facts: PoolFacts) -> PoolPlan:
    """What to do about a pool now. A pool in DRY_RUN has the same plan, which is not carried out."""
    pool = facts.pool
    if pool.state is PoolState.DELETING:
        why = "its pool is being deleted"
        endings = tuple(Ending(each.id, why) for each in _endable(facts, facts.waiting)[:ENDED_PER_LOOK_MAX])
        return PoolPlan(0, "", 0, None, "It is being deleted.", 0, endings)
    wanted, wanted_why = _wanted(facts)
    target, fewer_since, target_why = _target(facts, wanted)
    orders, orders_why = _orders(facts, target)
    why = " ".join(f"{sentence}." for sentence in (wanted_why, target_why, orders_why) if sentence)
    return PoolPlan(wanted, wanted_why, target, fewer_since, why, orders, _endings(facts, target))


def _wanted(facts: PoolFacts) -> tuple[int, str]:
    pool = facts.pool
    if pool.policy is PoolPolicy.FIXED:
        return pool.machines_min, f"The policy is to keep {pool.machines_min}"
    if facts.sizing is None:
        return pool.wanted, pool.wanted_why or ""
    return facts.sizing.wanted, facts.sizing.why


def affordable(facts: PoolFacts, rate: Nano, *, seconds_min: int) -> int:
    """How many machines can wait for the rest of the day, or for `seconds_min` if that is longer, with what is left.

    `rate` is what an hour of waiting counts as, in nano-USD.
    """
    left = facts.pool.idle_nano_per_day - facts.spent_today_nano
    if left <= 0:
        return 0
    if rate <= 0:
        return facts.pool.machines_max
    passed = facts.now.hour * _HOUR_SECONDS + facts.now.minute * 60 + facts.now.second
    seconds = max(seconds_min, _DAY_SECONDS - passed)
    return left * _HOUR_SECONDS // (rate * seconds)


def guarded(facts: PoolFacts) -> Nano:
    """What an hour of one machine more counts as: the price, or what nine of ten hours cost lately if that is more."""
    measured = facts.pool.idle_costs
    guard = None if measured is None else measured.guard_nano_per_hour
    return max(facts.idle_nano_per_hour, guard or Nano(0))


def _target(facts: PoolFacts, wanted: int) -> tuple[int, datetime | None, str]:
    """How many are kept from now on, since when demand has asked for fewer, and why it is not what is wanted."""
    pool, now = facts.pool, facts.now
    demand = min(max(wanted, pool.machines_min), pool.machines_max)
    # A machine that is ordered late in the day shall not cost most of its first hour's money tomorrow.
    budget = affordable(facts, guarded(facts), seconds_min=_HOUR_SECONDS)
    # What waits already costs its price, so that rare costs of others end no machine.
    kept = min(pool.target, pool.machines_max, affordable(facts, facts.idle_nano_per_hour, seconds_min=1))
    if demand > kept:
        most = max(kept, budget)
        target = min(demand, kept + pool.step_max, most)
        if most < demand:
            spent, limit = dollars(facts.spent_today_nano), dollars(pool.idle_nano_per_day)
            why = f"The budget allows {most}: {spent} of {limit} USD are spent today"
            if guarded(facts) > facts.idle_nano_per_hour:
                why += f", and an hour of waiting cost up to {dollars(guarded(facts))} USD lately"
            return target, None, why
        return target, None, _bound(pool, wanted)
    if demand == kept:
        return kept, None, _bound(pool, wanted)
    since = pool.fewer_since or now
    if now - since < LOWER_AFTER:
        is_kept = "is kept" if kept == 1 else "are kept"
        return (
            kept,
            since,
            f"{kept} {is_kept} until fewer were enough for {LOWER_AFTER.seconds // 60} minutes",
        )
    return max(demand, kept - pool.step_max), since, _bound(pool, wanted)


def _bound(pool: Pool, wanted: int) -> str:
    if wanted < pool.machines_min:
        return f"The minimum is {pool.machines_min}"
    return f"The maximum is {pool.machines_max}" if wanted > pool.machines_max else ""


def _orders(facts: PoolFacts, target: int) -> tuple[int, str]:
    pool = facts.pool
    missing = target - len(_supply(facts))
    room = pool.machines_max - len(facts.waiting) + len(_aged(facts))
    orders = max(0, min(missing, pool.step_max, room))
    if orders and facts.failures and facts.failed_at is not None:
        pause = delay(facts.failures, first=ORDER_AGAIN_FIRST, ceiling=ORDER_AGAIN_CEILING)
        if facts.now < facts.failed_at + pause:
            seconds = (facts.failed_at + pause - facts.now).total_seconds()
            return (
                0,
                f"{facts.failures} of its machines failed within the hour; the next order is in {seconds:.0f} s",
            )
    return orders, ""


def _endings(facts: PoolFacts, target: int) -> tuple[Ending, ...]:
    supply = _supply(facts)
    surplus = len(supply) - target
    if surplus > 0:
        # Those without a machine first, then those that have waited longest.
        order = sorted(
            supply, key=lambda each: (each.state is not MachineState.INTENDED, each.asked_at or facts.now)
        )
        why = f"its pool keeps {target}"
        return tuple(
            Ending(each.id, why) for each in _endable(facts, order)[: min(surplus, facts.pool.step_max)]
        )
    verified = sum(each.state is MachineState.VERIFIED for each in supply)
    if verified < target:
        return ()  # An old one serves better than none.
    why = f"it has waited for {AGE_MAX.days} days"
    return tuple(Ending(each.id, why) for each in _endable(facts, _aged(facts))[: facts.pool.step_max])


def _supply(facts: PoolFacts) -> list[Machine]:
    """The machines that count: what can be claimed, or will be."""
    aged = {each.id for each in _aged(facts)}
    return [
        each
        for each in facts.waiting
        if each.id not in aged
        and each.id not in facts.unfit
        and each.suspect_since is None
        and not_at_hand(each) is None
    ]


def _aged(facts: PoolFacts) -> list[Machine]:
    return [
        each
        for each in facts.waiting
        if each.verified_at is not None and facts.now - each.verified_at >= AGE_MAX
    ]


def _endable(facts: PoolFacts, machines: Iterable[Machine]) -> list[Machine]:
    """Nothing is ended at an account whose lists cannot be believed (law 5)."""
    return [each for each in machines if each.account not in facts.unhealthy_accounts]
