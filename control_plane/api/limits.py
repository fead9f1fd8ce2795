"""How much one caller may ask for: requests per second, and requests in progress. Both are counted in this process.

With N replicas a caller gets N times as much. The limits are no quota; they keep one caller's loop from starving the
others. The headers follow the IETF draft `draft-ietf-httpapi-ratelimit-headers`.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

KEYS_MAX = 10_000
"""Buckets kept. The one that was unused for the longest time is dropped, and is full again anyway."""


@dataclass(frozen=True, slots=True)
class Grant:
    allowed: bool
    remaining: int
    """Requests that may follow immediately."""
    reset_seconds: int
    """Until a request is allowed again, or until the bucket is full."""


class Limiter:
    """A token bucket per key: `rate` requests per second on average, `burst` at once."""

    def __init__(self, *, rate: float, burst: int, name: str = "key") -> None:
        self.rate = rate
        self._burst = burst
        self._name = name
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        """For each key: the tokens left, and at what time (Unix seconds)."""
        self.policy = f'"{name}";q={burst};w={max(1, round(burst / rate))}'.encode()

    def take(self, key: Hashable, now: float) -> Grant:
        """Take one token of `key` at `now` (Unix seconds)."""
        tokens = self._tokens(key, now)
        allowed = tokens >= 1
        if allowed:
            tokens -= 1
        self._buckets[key] = (tokens, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > KEYS_MAX:
            self._buckets.popitem(last=False)
        return self._grant(tokens, allowed=allowed)

    def look(self, key: Hashable, now: float) -> Grant:
        """Whether `key` has a token at `now`, without taking it."""
        tokens = self._tokens(key, now)
        return self._grant(tokens, allowed=tokens >= 1)

    def charge(self, key: Hashable, tokens: int) -> None:
        """Take tokens for a request that cost more than one. The bucket may come to owe as many as its burst."""
        if key in self._buckets:
            left, then = self._buckets[key]
            self._buckets[key] = (max(-float(self._burst), left - tokens), then)

    def owes(self, key: Hashable, now: float) -> Grant | None:
        """A refusal while `key` owes tokens at `now`; otherwise None."""
        tokens = self._tokens(key, now)
        return self._grant(tokens, allowed=False) if tokens < 0 else None

    def report(self, grant: Grant) -> bytes:
        """The grant as an item of the `RateLimit` header."""
        return b'"%s";r=%d;t=%d' % (self._name.encode(), grant.remaining, grant.reset_seconds)

    def _tokens(self, key: Hashable, now: float) -> float:
        tokens, then = self._buckets.get(key, (float(self._burst), now))
        return min(self._burst, tokens + max(0.0, now - then) * self.rate)

    def _grant(self, tokens: float, *, allowed: bool) -> Grant:
        wanted = self._burst if allowed else 1
        return Grant(allowed, max(0, int(tokens)), max(1, -int(-(wanted - tokens) // self.rate)))


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
