"""What all replicas together may ask of providers, kept in PostgreSQL.

A process draws a few turns ahead of each bucket that has many, and takes the next ones while it still has some, so that
its calls wait for no round trip in the steady state. Buckets of one turn at a time (one call per second, say) are drawn
call by call, and all buckets of a call together.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from prometheus_client import Counter, Gauge

from control_plane.db import call_budgets
from control_plane.db.call_budgets import BucketRow, Terms
from control_plane.db.engine import Database
from control_plane.domain.call_budget import leaves_idle, start_of
from providers.base import ToldLimit
from providers.pacing import NEAR_SECONDS, Draw, learned

TURNS = Counter(
    "splitplane_provider_turns", "Turns drawn for calls of providers, used or not.", ("account", "bucket")
)
SHARE = Gauge(
    "splitplane_provider_limit_share",
    "The share of a published rate limit that we use now: below 1 after the provider throttled us.",
    ("account", "bucket"),
)


@dataclass
class _Ahead:
    """Turns of one bucket that this process has drawn."""

    moments: deque[datetime] = field(default_factory=deque[datetime])
    refill: asyncio.Task[None] | None = None


@dataclass
class SharedBudget:
    db: Database
    now: Callable[[], datetime]
    _ahead: dict[Terms, _Ahead] = field(default_factory=dict[Terms, _Ahead])
    _known: set[Terms] = field(default_factory=set[Terms])

    async def draw(
        self,
        draws: Sequence[Draw],
        *,
        urgency: float,
        wait_seconds_max: float,
        idle_seconds_max: float = NEAR_SECONDS,
    ) -> float | None:
        """Seconds to wait before the call; None, without a turn, when that would be too long (`pacing.Budget`)."""
        now, idle_max = self.now(), timedelta(seconds=idle_seconds_max)
        latest = now + timedelta(seconds=wait_seconds_max)
        here: list[tuple[Draw, datetime]] = []
        missing: list[Draw] = []
        for draw in draws:
            moment = self._taken_here(draw, now, latest) if draw.turns == 1 else None
            if moment is None:
                missing.append(draw)
            else:
                here.append((draw, moment))
        start = max([now, *(moment for _, moment in here)])
        if missing:
            # What was drawn ahead for a moment must not be used much later either.
            latest = min([latest, *(moment + idle_max for _, moment in here)])
            others = [draw for draw in missing if draw is not draws[0]]
            drawn = await self._drawn(missing, urgency, start, latest, others=others, idle_max=idle_max)
            if drawn is None:
                self._give_back(here)
                return None
            start = drawn
        # Asking has taken a while, by which the call would be late.
        return max(0.0, (start - self.now()).total_seconds())

    async def slow(self, draw: Draw, retry_after_seconds: float) -> None:
        retry_after = timedelta(seconds=retry_after_seconds)
        self._ahead.pop(_terms(draw), None)
        await self._change(draw, lambda bucket: bucket.slowed(self.now(), retry_after))

    async def learn(self, draw: Draw, told: ToldLimit) -> None:
        self._ahead.pop(_terms(draw), None)
        await self._change(draw, lambda bucket: learned(bucket, draw, told, self.now()))

    def _taken_here(self, draw: Draw, earliest: datetime, latest: datetime) -> datetime | None:
        """A turn that was drawn ahead. The next ones are drawn in the background when half of them are used."""
        ahead = self._ahead.get(_terms(draw))
        if ahead is None:
            return None
        late_max = draw.pace.late_max
        while ahead.moments and ahead.moments[0] < self.now() - late_max:
            ahead.moments.popleft()
        moment = next((each for each in ahead.moments if earliest - late_max <= each <= latest), None)
        if moment is None:
            return None
        ahead.moments.remove(moment)
        if ahead.refill is None and len(ahead.moments) <= draw.pace.ahead // 2:
            ahead.refill = asyncio.create_task(self._refill(draw, ahead))
        return moment

    def _give_back(self, here: Sequence[tuple[Draw, datetime]]) -> None:
        for draw, moment in here:
            if (ahead := self._ahead.get(_terms(draw))) is not None:
                ahead.moments = deque(sorted((moment, *ahead.moments)))

    async def _refill(self, draw: Draw, ahead: _Ahead) -> None:
        now = self.now()
        try:
            with suppress(Exception):  # The next call that finds no turn asks again, and says why it failed.
                nobodys = replace(draw, turns=0)
                await self._drawn([nobodys], 0.0, now, now + draw.pace.ahead * 2 * draw.pace.interval)
        finally:
            ahead.refill = None

    async def _drawn(
        self,
        draws: Sequence[Draw],
        urgency: float,
        not_before: datetime,
        latest: datetime,
        *,
        others: Collection[Draw] = (),
        idle_max: timedelta = timedelta(),
    ) -> datetime | None:
        """Draw turns of buckets, the first of each at one moment. Those after the first are for later calls.

        None when there is none before `latest`, or one of the `others` would stay unused for longer than `idle_max`.
        """
        terms = [_terms(draw) for draw in draws]
        await self._make_known(terms)
        async with self.db.transaction() as connection:
            rows = await call_budgets.lock(connection, terms)
            now = self.now()
            wanted = [(row, draw.pace, draw.turns) for row, draw in zip(rows, draws, strict=True)]
            not_before = max(now, not_before)
            start = start_of(wanted, urgency=urgency, not_before=not_before)
            waiting = [each for each, draw in zip(wanted, draws, strict=True) if draw in others]
            if start > latest or leaves_idle(
                waiting, start, urgency=urgency, not_before=not_before, longest=idle_max
            ):
                return None
            moved = [
                row.drawn(draw.pace, start, _turns(draw), now) for row, draw in zip(rows, draws, strict=True)
            ]
            await call_budgets.store(connection, moved)
        for draw, row in zip(draws, moved, strict=True):
            spacing = draw.pace.interval / row.share_now(now)
            more = (start + number * spacing for number in range(draw.turns, _turns(draw)))
            self._ahead.setdefault(_terms(draw), _Ahead()).moments.extend(more)
            TURNS.labels(draw.holder, draw.limit.bucket).inc(_turns(draw))
            SHARE.labels(draw.holder, draw.limit.bucket).set(row.share_now(now))
        return start

    async def _change(self, draw: Draw, change: Callable[[BucketRow], BucketRow]) -> None:
        terms = [_terms(draw)]
        await self._make_known(terms)
        async with self.db.transaction() as connection:
            (row,) = await call_budgets.lock(connection, terms)
            await call_budgets.store(connection, [change(row)])

    async def _make_known(self, terms: Sequence[Terms]) -> None:
        """Store the terms that this process has not stored before."""
        if new := [each for each in terms if each not in self._known]:
            async with self.db.transaction() as connection:
                await call_budgets.add(connection, new, now=self.now())
            self._known.update(new)


def _turns(draw: Draw) -> int:
    """Those of the call, and those that are drawn ahead."""
    return draw.turns + draw.pace.ahead - 1


def _terms(draw: Draw) -> Terms:
    limit = draw.limit
    return Terms(draw.holder, limit.bucket, limit.calls, limit.seconds, limit.burst)
