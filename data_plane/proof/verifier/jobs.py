"""What the verifier recomputes, as values: everything needed to check one answer, and nothing else.

A job is made by the challenger from what it ordered and what the prover answered; checking it is CPU
work without clock, network or secret, so it may be done anywhere (`verifier`, or `service` over gRPC).
Every field that a prover filled in was bounded before; `cost` bounds the work a job asks for.
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
        """Estimated CPU microseconds on one core."""
        return 15 * self.rounds


@dataclass(frozen=True, slots=True)
class Commitment:
    """What a prover committed to and what it then showed of it."""

    phase: Phase
    key: bytes
    """The nonce or seed of the phase."""
    count: int
    """Digests committed to: chains or tiles."""
    group: int
    """Digests to a group; the last group may be short."""
    root: bytes
    hashes: bytes
    """All group hashes, one after the other."""
    opened: tuple[int, ...]
    """Group numbers, ascending."""
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
    """Chain numbers to recompute; each lies in an opened group."""

    @property
    def cost(self) -> int:
        """Estimated CPU microseconds: 0.3 per unit and iteration."""
        return len(self.sample) * self.steps * UNITS_PER_BLOCK * (1 + 3 * self.iterations // 10)


@dataclass(frozen=True, slots=True)
class TilesJob:
    commitment: Commitment
    kind: TileKind
    inner: int
    columns: int
    sample: tuple[int, ...]
    """Tile numbers to recompute; each lies in an opened group."""

    @property
    def cost(self) -> int:
        """Estimated CPU microseconds: half of one per unit of inner dimension and tile."""
        return len(self.sample) * self.inner // 2


Job = LaunchJob | WalkJob | TilesJob


class Fault(StrEnum):
    """Why an answer is wrong."""

    SIZES = "sizes"
    """The parts do not fit together: too few hashes or digests for what was ordered."""
    ROOT = "root"
    """The group hashes do not hash to the root."""
    GROUP = "group"
    """The digests shown are not those that were committed to."""
    DIGEST = "digest"
    """Committed to, and not what the honest computation gives."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What checking one job found."""

    fault: Fault | None
    why: str
    """A sentence; empty when nothing is wrong."""
    recomputed: int
    cpu_seconds: float


class JobTooLarge(ValueError):  # noqa: N818 - reads as a sentence
    """A job asks for more work than the verifier does for anybody."""


class VerifierAway(Exception):  # noqa: N818
    """The verifier service did not answer: our own fault, so no strike for the machine. Try later."""


CHECK_SECONDS_MAX = 200
"""For all jobs of a machine, which take a core about four seconds a GPU. Longer, and the verifier counts as away:
that we are slow is no machine's fault."""
COST_MAX = 60_000_000
"""CPU microseconds a verifier spends on one job at most."""


class Verifier(Protocol):
    async def check(self, jobs: Sequence[Job]) -> list[Checked]:
        """Check each job, in order. Raises JobTooLarge, or VerifierAway."""
        ...
