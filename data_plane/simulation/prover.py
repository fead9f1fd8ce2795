"""Machines on paper: a line to GPUs that are not there and take as long as if they were.

    line = paper([Claim("NVIDIA H200", "GPU-1", 143771)], source="cuda", profile=CARDS["h200-sxm-141gb"])

For scenario tests, demos and benchmarks. A product never makes one: what answers on a paper machine would
count as proof if it said `cuda`.
"""

import random
from collections.abc import Sequence

from data_plane.proof.protocol.messages import Library, Source
from data_plane.proof.prover.emulation.cards import Card
from data_plane.proof.prover.emulation.device import BLOCKS_MAX, EmulatedDevice, EmulatedMachine
from data_plane.proof.prover.emulation.machine import Claim, card_named, identities
from data_plane.simulation.line import VirtualLine
from data_plane.simulation.timing import CardTimer, Network, Noise, Scale

DRIVER = "570.124.06"
LIBRARIES = (
    Library("libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06", b"\x01" * 32),
    Library("libnvidia-ml.so.1", "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.124.06", b"\x02" * 32),
)


def paper(
    claims: Sequence[Claim],
    *,
    source: Source = "emulated",
    driver: str = DRIVER,
    profile: Card | None = None,
    scale: Scale | None = None,
    seed: int = 0,
    network: Network | None = None,
    blocks_max: int = BLOCKS_MAX,
    kernels_sha256: bytes = bytes(32),
) -> VirtualLine:
    """A line to an honest machine with these GPUs, each as fast as `profile`, or as the card of its name."""
    chance = random.Random(seed)  # noqa: S311 - jitter of a simulation, the same in every run.
    timers = [
        CardTimer((profile or card_named(claim.name)).speeds, scale or Scale(), Noise(chance))
        for claim in claims
    ]
    devices = tuple(
        EmulatedDevice(one, timer, blocks_max) for one, timer in zip(identities(claims), timers, strict=True)
    )
    libraries = LIBRARIES if source == "cuda" else ()
    machine = EmulatedMachine(devices, driver, "12.8", source, kernels_sha256, libraries)
    return VirtualLine(machine, timers, network or Network(delay=0.02, jitter=0.003, chance=chance))
