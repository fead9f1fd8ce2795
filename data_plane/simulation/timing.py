"""A model of how long a real card would take, for simulations and catch rates. No real card is judged by it.

A small emulated memory stands for a large one. Each piece of emulated work stands for `Scale` times as much work on the
card, and the card is charged for that. So the ratios between computing, reading and fetching are those of the real
card, and so is the ratio of each phase's length to the network's delay.

The model is generous to a cheat: work on the memory, on the ALUs and on the host link overlaps without loss.
"""

import random
from dataclasses import dataclass, field

from data_plane.proof.protocol.messages import BLOCK_BYTES
from data_plane.proof.prover.emulation.cards import Speeds
from data_plane.proof.prover.emulation.device import Work


@dataclass(frozen=True, slots=True)
class Scale:
    """How much real work each piece of emulated work stands for."""

    blocks: float = 1.0
    """Blocks of memory that are filled, read, fetched or computed again."""
    iterations: float = 1.0
    """Iterations of the fill."""
    int8: float = 1.0
    """Multiply-adds."""
    bf16: float = 1.0
    launches: float = 1.0


@dataclass
class Noise:
    """Jitter: a device's work takes a little longer or shorter each time."""

    chance: random.Random
    spread: float = 0.01
    """The standard deviation as a share of 1. Draws are cut off at three standard deviations."""

    def factor(self) -> float:
        return 1.0 + self.spread * min(3.0, max(-3.0, self.chance.gauss(0.0, 1.0)))


@dataclass
class Engine:
    """The time of one physical device, which does one piece of work after the other, even for several GPUs."""

    free_at: float = 0.0

    def run(self, begin: float, seconds: float) -> float:
        """Start at `begin`, or when the device is free, and return when the work is done."""
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
    """The host thread's time. The line advances it to the arrival of each order."""

    def now(self) -> float:
        return self.time

    def charge(self, work: Work) -> None:
        """Do this work on the device, and wait for it."""
        factor = self.noise.factor() if self.noise else 1.0
        self.time = self.engine.run(self.time, self.seconds(work) * factor)

    def seconds(self, work: Work) -> float:
        """How long the work takes on an otherwise idle device: as long as the slowest of its parts."""
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
    """The network between us and the machine."""

    delay: float = 0.02
    """The least delay of one way, in seconds."""
    jitter: float = 0.0
    """The mean of the additional delay, in seconds; it is drawn from an exponential distribution."""
    chance: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311 - a simulation.

    def one_way(self) -> float:
        return self.delay + (self.chance.expovariate(1 / self.jitter) if self.jitter else 0.0)
