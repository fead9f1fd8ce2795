"""What one machine may send. An agent sends a sample every 15 s, and after a time without us what it kept meanwhile."""

from dataclasses import dataclass

from control_plane.domain.ids import ClaimId


@dataclass(frozen=True, slots=True)
class Rate:
    per_second: float
    burst: float


DELIVERIES = Rate(per_second=1, burst=20)
SAMPLES = Rate(per_second=8, burst=320)
"""After an hour without us a machine has 240 samples."""
CONTENT_BYTES = Rate(per_second=128 * 1024, burst=4 * 1024 * 1024)
"""Of decompressed content. Reading it costs us time."""
AT_ONCE_MAX = 2
"""Deliveries of one machine that are in progress."""
IDLE_SECONDS = 600
"""After which an allowance is full again, and is forgotten."""


@dataclass(slots=True)
class _Bucket:
    rate: Rate
    level: float
    at: float

    def wait(self, now: float) -> float:
        """For how many seconds nothing may be taken; 0 when something may."""
        self.level = min(self.rate.burst, self.level + self.rate.per_second * (now - self.at))
        self.at = now
        return 0.0 if self.level > 0 else -self.level / self.rate.per_second + 1 / self.rate.per_second

    def take(self, amount: float) -> None:
        """Take what turned out to be needed; the bucket may owe it."""
        self.level -= amount


class Allowance:
    """What one machine may send now."""

    def __init__(self, now: float) -> None:
        self.in_progress = 0
        self.last = now
        self._deliveries = _Bucket(DELIVERIES, DELIVERIES.burst, now)
        self._samples = _Bucket(SAMPLES, SAMPLES.burst, now)
        self._bytes = _Bucket(CONTENT_BYTES, CONTENT_BYTES.burst, now)

    def begin(self, now: float) -> float:
        """Begin a delivery, which `end` ends. Returns for how many seconds it has to wait; 0 if it has begun."""
        self.last = now
        if self.in_progress >= AT_ONCE_MAX:
            return 1.0
        wait = max(bucket.wait(now) for bucket in (self._deliveries, self._samples, self._bytes))
        if wait == 0:
            self._deliveries.take(1)
            self.in_progress += 1
        return wait

    def took(self, *, samples: int, content_bytes: int) -> None:
        self._samples.take(samples)
        self._bytes.take(content_bytes)

    def end(self) -> None:
        self.in_progress -= 1


class Allowances:
    """Those of all machines that send."""

    def __init__(self) -> None:
        self._known: dict[ClaimId, Allowance] = {}
        self._swept = 0.0

    def __len__(self) -> int:
        return len(self._known)

    def of(self, claim_id: ClaimId, now: float) -> Allowance:
        if now - self._swept > IDLE_SECONDS:
            self._swept = now
            self._known = {
                known: allowance
                for known, allowance in self._known.items()
                if allowance.in_progress or now - allowance.last < IDLE_SECONDS
            }
        allowance = self._known.get(claim_id)
        if allowance is None:
            allowance = self._known[claim_id] = Allowance(now)
        return allowance
