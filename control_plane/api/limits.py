"""How many requests an API key may send: a token bucket per key, in this process.

With N replicas a key gets N times the rate. The limit is not a quota; it keeps one customer's loop from
starving the others. The headers follow the IETF draft `draft-ietf-httpapi-ratelimit-headers`.
"""

from collections import OrderedDict
from dataclasses import dataclass

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
    """`rate` requests per second on average, `burst` at once."""

    def __init__(self, *, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._buckets: OrderedDict[object, tuple[float, float]] = OrderedDict()
        """For each key: the tokens left, and at what time (Unix seconds)."""
        self.policy = f'"key";q={burst};w={max(1, round(burst / rate))}'.encode()

    def take(self, key: object, now: float) -> Grant:
        """Take one token of `key` at `now` (Unix seconds)."""
        tokens, then = self._buckets.get(key, (float(self._burst), now))
        tokens = min(self._burst, tokens + max(0.0, now - then) * self._rate)
        allowed = tokens >= 1
        if allowed:
            tokens -= 1
        self._buckets[key] = (tokens, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > KEYS_MAX:
            self._buckets.popitem(last=False)
        wanted = self._burst if allowed else 1
        return Grant(allowed, int(tokens), max(1, -int(-(wanted - tokens) // self._rate)))
