"""How much one caller may ask for: requests per second, and requests in progress.

The rates of API keys and organizations hold for all API processes together (`budgets.py`); everything else is counted
in this process. The limits are no quota; they keep one caller's loop from starving the others. The headers follow the
IETF draft `draft-ietf-httpapi-ratelimit-headers`.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from uuid import UUID

from control_plane.domain.ids import OrganizationId
from control_plane.domain.request_budget import Ask, Given

KEYS_MAX = 10_000
"""Buckets kept. The one that was unused for the longest time is dropped, and is full again anyway."""
STALE_SECONDS = 2.0
"""A process that reached the shared buckets within this time waits for them; otherwise it lives on its own share."""
IDLE_SECONDS = 60.0
"""After this time without a request, a process gives its stock back."""


@dataclass(frozen=True, slots=True)
class Grant:
    allowed: bool
    remaining: int
    """Tokens that are left for requests that follow immediately."""
    reset_seconds: int
    """Until a request is allowed again, or until the bucket is full."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float
    """When it was last refilled (Unix seconds)."""
    used_at: float
    taken: float = 0.0
    """Tokens that this process gave out on its own account and has not reported yet."""
    level: float = 0.0
    """What the shared bucket held when it was last asked."""
    refused: bool = False
    """Whether a request was refused since it was last asked for."""


class Limiter:
    """A token bucket per key: `rate` tokens per second on average, `burst` at once.

    Alone, it fills its buckets itself. Once `answer` has said how many processes share the buckets, it spends a share
    of the burst from each, and has it refilled by them: see `asks`. While they cannot be reached, it refills its share
    of the rate itself, so that all processes together still keep the rate.
    """

    def __init__(self, *, rate: float, burst: int, name: str = "key") -> None:
        self.rate = rate
        self._burst = burst
        self._name = name
        self._buckets: OrderedDict[Hashable, _Bucket] = OrderedDict()
        self._touched: dict[Hashable, None] = {}
        """Keys whose buckets may have something to ask."""
        self._processes = 1
        self._answered_at: float | None = None
        self.policy = f'"{name}";q={burst};w={max(1, round(burst / rate))}'.encode()

    def take(self, key: Hashable, now: float, cost: int = 1) -> Grant:
        """Take `cost` tokens of `key` at `now` (Unix seconds).

        A cost above what the bucket can hold needs a full bucket, and the rest is owed.
        """
        bucket = self._refilled(key, now)
        allowed = bucket.tokens >= self._needed(cost)
        if allowed:
            bucket.tokens -= cost
        else:
            bucket.refused = True
        bucket.used_at = now
        self._buckets[key] = bucket
        self._buckets.move_to_end(key)
        self._touched[key] = None
        if len(self._buckets) > KEYS_MAX:
            dropped, _ = self._buckets.popitem(last=False)
            self._touched.pop(dropped, None)
        return self._grant(bucket, cost, allowed=allowed)

    def look(self, key: Hashable, now: float, cost: int = 1) -> Grant:
        """Whether `key` has these tokens at `now`, without taking them."""
        bucket = self._refilled(key, now)
        return self._grant(bucket, cost, allowed=bucket.tokens >= self._needed(cost))

    def charge(self, key: Hashable, tokens: int) -> None:
        """Take tokens for a request that cost more than was known. The bucket may come to owe as many as its burst."""
        bucket = self._buckets.get(key)
        if bucket is not None:
            bucket.tokens = max(-float(self._burst), bucket.tokens - tokens)

    def owes(self, key: Hashable, now: float) -> Grant | None:
        """A refusal while `key` owes tokens at `now`; otherwise None."""
        bucket = self._refilled(key, now)
        return self._grant(bucket, 1, allowed=False) if bucket.tokens < 0 else None

    def report(self, grant: Grant) -> bytes:
        """The grant as an item of the `RateLimit` header."""
        return b'"%s";r=%d;t=%d' % (self._name.encode(), grant.remaining, grant.reset_seconds)

    # The buckets that all processes share

    def asks(self, now: float, most: int) -> list[tuple[Hashable, Ask]]:
        """What to ask of the shared buckets: for those that took something, run low, or are idle. At most `most`.

        The keys are pairs of an organization and of what is limited.
        """
        found: list[tuple[Hashable, Ask]] = []
        for key in list(islice(self._touched, most)):
            del self._touched[key]
            bucket = self._refilled(key, now)
            if bucket.taken or bucket.refused or self._is_low(bucket):
                bucket.refused = False
                wanted = max(0.0, self._share - bucket.tokens)
                found.append((key, self._ask(key, bucket.taken, wanted)))
                bucket.taken = 0.0
        while len(found) < most and self._buckets:
            key, bucket = next(iter(self._buckets.items()))
            if now - bucket.used_at <= IDLE_SECONDS:
                break
            del self._buckets[key]
            if bucket.tokens != bucket.taken:
                found.append((key, self._ask(key, bucket.taken - bucket.tokens, 0.0)))
        return found

    def answer(self, now: float, processes: int, given: Mapping[Hashable, Given]) -> None:
        """Take note of the answer to `asks`."""
        self._processes, self._answered_at = processes, now
        for key, got in given.items():
            bucket = self._buckets.get(key)
            if bucket is not None:
                bucket.tokens += got.granted
                bucket.level = got.level
                if self._is_low(bucket):
                    self._touched[key] = None  # There was not enough: it asks again.

    def unanswered(self, asked: Iterable[tuple[Hashable, Ask]]) -> None:
        """Take back what was reported, because the report did not arrive. If it did after all, it counts twice."""
        for key, ask in asked:
            bucket = self._buckets.get(key)
            if bucket is not None:
                bucket.taken += ask.taken
                self._touched[key] = None

    def _ask(self, key: Hashable, taken: float, wanted: float) -> Ask:
        organization_id, limited = _pair(key)
        return Ask(limited, organization_id, taken, wanted, self.rate, float(self._burst))

    def _is_low(self, bucket: _Bucket) -> bool:
        return bucket.tokens < self._share / 2

    @property
    def _share(self) -> float:
        """How many tokens this process may hold."""
        return max(1.0, self._burst / self._processes)

    def _needed(self, cost: int) -> float:
        return max(1.0, min(cost, self._share))

    def _is_shared(self, now: float) -> bool:
        return self._answered_at is not None and now - self._answered_at <= STALE_SECONDS

    def _refilled(self, key: Hashable, now: float) -> _Bucket:
        """The bucket at `now`. A new one holds this process's share, which it takes on its own account."""
        bucket = self._buckets.get(key)
        if bucket is None:
            return _Bucket(self._share, now, now, taken=self._share)
        if not self._is_shared(now):
            own = max(0.0, now - max(bucket.at, (self._answered_at or 0.0))) * self.rate / self._processes
            added = max(0.0, min(self._share - bucket.tokens, own))
            bucket.tokens += added
            bucket.taken += added
        bucket.at = max(bucket.at, now)
        return bucket

    def _grant(self, bucket: _Bucket, cost: int, *, allowed: bool) -> Grant:
        missing = (self._share if allowed else self._needed(cost)) - bucket.tokens - min(0.0, bucket.level)
        return Grant(allowed, max(0, int(bucket.tokens)), max(1, -int(-missing // self.rate)))


def _pair(key: Hashable) -> tuple[OrganizationId, UUID]:
    if not (isinstance(key, tuple) and len(key) == 2):
        raise TypeError(f"{key!r} is no pair of an organization and of what is limited")
    return key


class InProgress:
    """How many requests of a key are in progress, at most `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._counts: dict[Hashable, int] = {}

    def enter(self, key: Hashable) -> bool:
        """Count one more. False, and nothing counted, when there is no room."""
        count = self._counts.get(key, 0)
        if count >= self.most:
            return False
        self._counts[key] = count + 1
        return True

    def leave(self, key: Hashable) -> None:
        count = self._counts[key] - 1
        if count:
            self._counts[key] = count
        else:
            del self._counts[key]


@dataclass(slots=True)
class _Queue:
    free: asyncio.Semaphore
    users: int = field(default=0)
    """How many run or wait."""


class Turns:
    """At most `most` requests of a key run at a time; the others wait for their turn, in the order of their coming."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._queues: dict[Hashable, _Queue] = {}

    async def take(self, key: Hashable) -> None:
        """Wait for a turn. Whoever got it calls `give_back`."""
        queue = self._queues.setdefault(key, _Queue(asyncio.Semaphore(self._most)))
        queue.users += 1
        try:
            await queue.free.acquire()
        except asyncio.CancelledError:
            self._leave(key, queue)
            raise

    def give_back(self, key: Hashable) -> None:
        queue = self._queues[key]
        queue.free.release()
        self._leave(key, queue)

    def _leave(self, key: Hashable, queue: _Queue) -> None:
        queue.users -= 1
        if not queue.users:
            del self._queues[key]
