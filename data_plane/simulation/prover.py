"""A line to a simulated prover: emulated GPUs that take as long as real ones would, on a virtual clock.

    line = simulated_prover([Claim("NVIDIA H200", "GPU-1", 143771)])

For development without GPUs. The prover says `emulated`, so that nothing it answers can count as proof.
"""

import random
from collections.abc import Sequence

from data_plane.proof.prover.emulation.device import EmulatedDevice, EmulatedMachine
from data_plane.proof.prover.emulation.machine import Claim, card_named, identities
from data_plane.simulation.line import VirtualLine
from data_plane.simulation.timing import CardTimer, Network, Noise

DRIVER = "570.124.06"


def simulated_prover(claims: Sequence[Claim], *, network: Network | None = None) -> VirtualLine:
    """A line to an honest machine with these GPUs, each as fast as the card that it is named after.

    The jitter is the same in every run.
    """
    chance = random.Random(0)  # noqa: S311 - jitter of a simulation.
    timers = [CardTimer(card_named(claim.name).speeds, noise=Noise(chance)) for claim in claims]
    devices = tuple(EmulatedDevice(one, timer) for one, timer in zip(identities(claims), timers, strict=True))
    machine = EmulatedMachine(devices, DRIVER)
    return VirtualLine(machine, timers, network or Network(delay=0.02, jitter=0.003, chance=chance))
