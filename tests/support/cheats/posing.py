"""Emulations that claim to be real GPUs, so that their answers would count as a proof.

line = posing_as_cuda([Claim("NVIDIA H200", "GPU-1", 143771)], card=CARDS["a100-sxm-80gb"])
"""

import random
from collections.abc import Sequence

from data_plane.proof.protocol.messages import Library
from data_plane.proof.prover.emulation.cards import Card
from data_plane.proof.prover.emulation.device import EmulatedDevice, EmulatedMachine
from data_plane.proof.prover.emulation.machine import Claim, card_named, identities
from data_plane.simulation.line import VirtualLine
from data_plane.simulation.prover import DRIVER
from data_plane.simulation.timing import CardTimer, Network, Noise, Scale

LIBRARIES = (
    Library("libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06", b"\x01" * 32),
    Library("libnvidia-ml.so.1", "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.124.06", b"\x02" * 32),
)


def posing_as_cuda(
    claims: Sequence[Claim], *, scale: Scale, card: Card | None = None, seed: int = 0
) -> VirtualLine:
    """A line to emulated GPUs that claim to be CUDA's, each as fast as `card` or as the card that it is named after."""

    chance = random.Random(seed)
    timers = [CardTimer((card or card_named(claim.name)).speeds, scale, Noise(chance)) for claim in claims]
    devices = tuple(EmulatedDevice(one, timer) for one, timer in zip(identities(claims), timers, strict=True))
    machine = EmulatedMachine(devices, DRIVER, source="cuda", libraries=LIBRARIES)
    return VirtualLine(machine, timers, Network(delay=0.02, jitter=0.003, chance=chance))
