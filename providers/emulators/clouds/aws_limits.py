"""How many requests emulated EC2 takes: a bucket of tokens for each operation in each region.

Sizes are those of "Request throttling for the Amazon EC2 API" (docs.aws.amazon.com, read 2026-11-23).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass
class TokenBucket:
    """`size` requests at once, and `per_second` after that."""

    size: float
    per_second: float
    left: float = field(init=False)
    since: datetime | None = None

    def __post_init__(self) -> None:
        self.left = self.size

    def draw(self, now: datetime) -> bool:
        if self.since is not None:
            self.left = min(self.size, self.left + (now - self.since).total_seconds() * self.per_second)
        self.since = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


_LIMITS = {
    "RunInstances": ((5, 2), (1_000, 2)),
    "StartInstances": ((5, 2), (1_000, 2)),
    "TerminateInstances": ((100, 5), (1_000, 20)),
}
"""Size and refill of the buckets of an operation: requests first, then what they make or end, one in each request."""
_MUTATION_LIMITS = ((50, 5),)
_READ_LIMITS = ((100, 20),)
_UNPAGINATED_LIMITS = ((50, 10),)


@dataclass
class Limiter:
    """The buckets of an account: those of each operation in each region."""

    now: Callable[[], datetime]
    refused: int = 0
    _buckets: dict[tuple[str, str], tuple[TokenBucket, ...]] = field(
        default_factory=dict[tuple[str, str], tuple[TokenBucket, ...]]
    )

    def draw(self, region: str, action: str, parameters: Mapping[str, str]) -> bool:
        """Whether a request is within the limits."""
        bare = action.startswith("Describe") and not {"MaxResults", "Filter.1.Name"} & parameters.keys()
        usual = _READ_LIMITS if action.startswith(("Describe", "Get")) else _MUTATION_LIMITS
        limits = _UNPAGINATED_LIMITS if bare else _LIMITS.get(action, usual)
        name = f"{action}, all" if bare else action
        if (region, name) not in self._buckets:
            self._buckets[region, name] = tuple(TokenBucket(*limit) for limit in limits)
        if not all(bucket.draw(self.now()) for bucket in self._buckets[region, name]):
            self.refused += 1
            return False
        return True
