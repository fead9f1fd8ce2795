"""How long a real card would take: a model of its time, for tests and catch rates. It judges nothing real.

A small memory stands for a large one. Every piece of work that the emulation does stands for `Scale` times
as much, and the card is charged for that: all ratios between computing, reading and fetching stay what they
are on the real card, and so does each phase's length against the network's.

Charges are generous to a cheat: work on the memory, on the ALUs and on the host link overlaps without loss.
"""

import random
from dataclasses import dataclass, field

from data_plane.proof.protocol.messages import BLOCK_BYTES
from data_plane.proof.prover.emulation.cards import Speeds
from data_plane.proof.prover.emulation.device import Work


@dataclass(frozen=True, slots=True)
class Scale:
    """How many real ones each emulated one stands for."""

    blocks: float = 1.0
    """Of memory: filled, read, fetched or computed again."""
    iterations: float = 1.0
    """Of the fill."""
    int8: float = 1.0
    """Of the multiply-adds."""
    bf16: float = 1.0
    launches: float = 1.0


@dataclass
class Noise:
    """Deterministic jitter: a device's work takes a little longer or shorter each time."""

    chance: random.Random
    spread: float = 0.01
    """Standard deviation, as a share; no draw is more than three of them away."""

    def factor(self) -> float:
        return 1.0 + self.spread * min(3.0, max(-3.0, self.chance.gauss(0.0, 1.0)))


@dataclass
class Engine:
    """One physical device's time: what runs on it runs one after the other, whoever it is for."""

    free_at: float = 0.0

    def run(self, begin: float, seconds: float) -> float:
        """Start at `begin` or when the device is free; answers when it is done."""
        self.free_at = max(begin, self.free_at) + seconds
        return self.free_at


@dataclass
class CardTimer:
    """`device.Timer` in virtual time: one host thread that feeds one engine."""

    speeds: Speeds
    scale: Scale = Scale()
    noise: Noise | None = None
    engine: Engine = field(default_factory=Engine)
    time: float = 0.0
    """When the host thread is where it is. The line moves it on to the arrival of each order."""

    def now(self) -> float:
        return self.time

    def charge(self, work: Work) -> None:
        """Keep the device busy with this, and wait for it."""
        factor = self.noise.factor() if self.noise else 1.0
        self.time = self.engine.run(self.time, self.seconds(work) * factor)

    def seconds(self, work: Work) -> float:
        """How long it takes with nothing else going on: as long as the slowest of its parts."""
        scale, speeds = self.scale, self.speeds
        return max(
            work.launches * scale.launches * speeds.launch,
            work.filled * scale.blocks * scale.iterations / speeds.fill,
            work.reads * scale.blocks * BLOCK_BYTES / speeds.random_read,
            work.fetched * scale.blocks * BLOCK_BYTES / speeds.host_link,
            work.regenerated * scale.blocks * scale.iterations / speeds.fill,
            work.int8 * scale.int8 / speeds.int8,
            work.bf16 * scale.bf16 / speeds.bf16,
            work.seconds,
        )


@dataclass
class Network:
    """What lies between us and the machine."""

    delay: float = 0.02
    """Seconds one way, at least."""
    jitter: float = 0.0
    """Mean of what comes on top, seconds; drawn from an exponential distribution."""
    chance: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311 - a simulation.

    def one_way(self) -> float:
        return self.delay + (self.chance.expovariate(1 / self.jitter) if self.jitter else 0.0)
