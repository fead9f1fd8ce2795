"""The verifier's port, and its jobs: everything that is needed to check one answer.

The challenger makes a job from its order and the prover's answer. Checking it is CPU work without a clock, network or
secret, so it can be done anywhere (`recompute` in this process, or `service` over gRPC). The sizes of all fields from
the prover were checked before; `cost` is the work that a job takes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from data_plane.proof.protocol.messages import Phase, TileKind

UNITS_PER_BLOCK = 8


@dataclass(frozen=True, slots=True)
class LaunchJob:
    start: bytes
    rounds: int
    final: bytes

    @property
    def cost(self) -> int:
        """The estimated microseconds on one core."""
        return 15 * self.rounds


@dataclass(frozen=True, slots=True)
class Commitment:
    """What a prover committed to, and what it then opened."""

    phase: Phase
    key: bytes
    """The nonce or seed of the phase."""
    count: int
    """How many digests were committed to: chains or tiles."""
    group: int
    """Digests in a group. The last group may be smaller."""
    root: bytes
    hashes: bytes
    """All group hashes, one after the other."""
    opened: tuple[int, ...]
    """The numbers of the opened groups, in ascending order."""
    digests: bytes
    """The digests of the opened groups, one after the other."""


@dataclass(frozen=True, slots=True)
class WalkJob:
    commitment: Commitment
    seed: bytes
    iterations: int
    blocks: int
    steps: int
    sample: tuple[int, ...]
    """The numbers of the chains to recompute. Each is in an opened group."""

    @property
    def cost(self) -> int:
        """The estimated microseconds on one core: 0.3 for each unit and iteration."""
        return len(self.sample) * self.steps * UNITS_PER_BLOCK * (1 + 3 * self.iterations // 10)


@dataclass(frozen=True, slots=True)
class TilesJob:
    commitment: Commitment
    kind: TileKind
    inner: int
    columns: int
    sample: tuple[int, ...]
    """The numbers of the tiles to recompute. Each is in an opened group."""

    @property
    def cost(self) -> int:
        """The estimated microseconds on one core: 0.5 for each unit of the inner dimension and tile."""
        return len(self.sample) * self.inner // 2


Job = LaunchJob | WalkJob | TilesJob


class Fault(StrEnum):
    """Why an answer is wrong."""

    SIZES = "sizes"
    """The sizes of the parts do not fit: there are too few hashes or digests."""
    ROOT = "root"
    """The group hashes do not hash to the root."""
    GROUP = "group"
    """The opened digests are not those that were committed to."""
    DIGEST = "digest"
    """A digest that was committed to is not the result of the computation."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of checking one job."""

    fault: Fault | None
    why: str
    """A sentence; empty if nothing is wrong."""
    recomputed: int
    cpu_seconds: float


class JobTooLarge(ValueError):  # noqa: N818 - reads as a sentence
    """A job takes more work than the verifier does for any caller."""


class VerifierAway(Exception):  # noqa: N818
    """The verifier service did not answer. This is our own fault and no strike for the machine. Try later."""


CHECK_SECONDS_MAX = 200
"""The time limit for all jobs of a machine, which take one core about four seconds for each GPU. After it, the verifier
counts as away, because no machine must suffer if we are slow."""
COST_MAX = 60_000_000
"""The most CPU microseconds that a verifier spends on one job."""


class Verifier(Protocol):
    async def check(self, jobs: Sequence[Job]) -> list[Checked]:
        """Check each job, in order. Raises JobTooLarge, or VerifierAway."""
        ...
