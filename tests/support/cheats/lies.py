"""Every cheat, as a machine to challenge: what it is sold as, what it really is, and how it hides the difference.

    line = LIES["half of the memory is in the host"].line(Miniature(), seed=7)

Tests and a benchmark use this list. Every machine says `cuda`, as a hostile one would, and claims all the right names
unless its lie is about the names.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from data_plane.proof.challenger.port import Expected
from data_plane.proof.protocol.messages import (
    Committed,
    Filled,
    GpuIdentity,
    Groups,
    Hello,
    Identity,
    LatencyAnswer,
    Opened,
)
from data_plane.proof.prover.emulation.cards import CARDS, Card, identity
from data_plane.proof.prover.emulation.device import EmulatedDevice, EmulatedMachine
from data_plane.proof.prover.prover import Run, one_after_another
from data_plane.simulation.line import VirtualLine
from data_plane.simulation.prover import DRIVER
from data_plane.simulation.timing import CardTimer, Engine, Network, Noise
from tests.support.cheats import attackers, devices
from tests.support.cheats.attackers import Altered, Premonition
from tests.support.cheats.cards import CPU, H20, RTX_4090_48GB, mig_slice, with_speeds
from tests.support.cheats.line import FAITHFUL, AttackedLine, Attacker
from tests.support.cheats.miniature import Miniature
from tests.support.cheats.posing import LIBRARIES

Make = Callable[[GpuIdentity, CardTimer, random.Random], EmulatedDevice]
"""Makes one GPU from its claimed identity, its timer, and a random generator for invented answers."""


def honest(identity: GpuIdentity, timer: CardTimer, _: random.Random) -> EmulatedDevice:
    return EmulatedDevice(identity, timer)


def without(missing: float, fetched: float | None = None) -> Make:
    """A GPU without a share of its memory, which it replaces in time or too late (`devices.MissingMemory`)."""
    return lambda identity, timer, _: devices.MissingMemory(identity, timer, missing=missing, fetched=fetched)


def skipping(chains: float = 0.0, tiles: float = 0.0) -> Make:
    return lambda identity, timer, chance: devices.Skipping(
        identity, timer, chance=chance, chains=chains, tiles=tiles
    )


def _as_told(identity: GpuIdentity) -> GpuIdentity:
    return identity


@dataclass(frozen=True)
class Lie:
    caught_by: frozenset[str] = frozenset()
    """One of these codes must be a finding. Empty for honest machines, and for cheats that no proof detects."""
    sold: str = "h100-sxm-80gb"
    """The model that it is sold as and claims to be."""
    really: Card | None = None
    """The card that it really is; None for the model that it claims to be."""
    make: Make = honest
    gpus: int = 1
    one_device: bool = False
    """Whether all GPUs are one device, which works for them in turn."""
    run: Callable[[], Run] = lambda: one_after_another
    """Makes the function that runs the GPUs, which decides which one is first."""
    attacker: Attacker = FAITHFUL
    says: Callable[[GpuIdentity], GpuIdentity] = _as_told

    def expected(self) -> Expected:
        """What was sold."""
        card = CARDS[self.sold]
        return Expected(self.sold, self.gpus, frozenset({card.name}), (card.memory_mib,), 2)

    def line(self, miniature: Miniature, seed: int, spread: float = 0.01) -> VirtualLine:
        """A line to such a machine, with jitter: `spread` on the GPUs, and about 3 ms in addition to 20 in the network."""
        chance = random.Random(seed)
        card, engine = self.really or CARDS[self.sold], Engine()
        timers = [
            CardTimer(
                card.speeds,
                miniature.scale(self.sold),
                Noise(chance, spread),
                engine if self.one_device else Engine(),
            )
            for _ in range(self.gpus)
        ]
        devices = tuple(
            self.make(self.says(identity(CARDS[self.sold], at, f"GPU-{seed}-{at}")), timer, chance)
            for at, timer in enumerate(timers)
        )
        machine = EmulatedMachine(devices, DRIVER, source="cuda", libraries=LIBRARIES)
        network = Network(0.02, 0.003, chance)
        return AttackedLine(machine, timers, network, run=self.run(), attacker=self.attacker)


def _late(**how: object) -> Lie:
    return replace(Lie(frozenset({"too_slow"})), **how)  # type: ignore[arg-type]


def _tampered(code: str, attacker: Attacker, gpus: int = 1) -> Lie:
    return Lie(frozenset(code.split()), attacker=attacker, gpus=gpus)


_A100_40, _H100 = CARDS["a100-sxm-40gb"], CARDS["h100-sxm-80gb"]


LIES: dict[str, Lie] = {
    # Less memory than was sold.
    "half of the memory is in the host": _late(sold="a100-sxm-80gb", really=_A100_40, make=without(0.5, 1.0)),
    "half of the memory is computed when it is read": _late(
        sold="a100-sxm-80gb", really=_A100_40, make=without(0.5, 0.0)
    ),
    "half of the memory is fetched and computed": _late(
        sold="a100-sxm-80gb", really=_A100_40, make=without(0.5)
    ),
    "a quarter of the memory is fetched and computed": _late(make=without(0.25)),
    "half of every block is computed when it is read": _late(make=lambda i, t, _: devices.HalfBlocks(i, t)),
    "nothing is filled until it is asked for": _late(make=lambda i, t, _: devices.LazyFill(i, t)),
    "half of the memory reads as zeros": Lie(
        frozenset({"wrong_digest"}), make=lambda i, t, _: devices.ForgottenMemory(i, t, missing=0.5)
    ),
    "a twentieth of the memory reads as zeros": Lie(
        frozenset({"wrong_digest"}), make=lambda i, t, _: devices.ForgottenMemory(i, t, missing=0.05)
    ),
    # A lesser card, or only a part of a card.
    "half the bandwidth": _late(really=with_speeds(_H100, random_read=0.5)),
    "a 3g MIG slice": _late(really=mig_slice(_H100, memory_slices=4, sms=60), make=without(0.5)),
    "a 1g MIG slice": _late(really=mig_slice(_H100, memory_slices=1, sms=16), make=without(0.875)),
    "one card as two, in time slices": _late(gpus=2, one_device=True, make=without(0.5)),
    "one card as two, with memory for both": _late(gpus=2, one_device=True),
    "one card as two, another one first each time": _late(gpus=2, one_device=True, run=devices.InRotation),
    "an A100 by the name of an H100": _late(really=CARDS["a100-sxm-80gb"]),
    "an H100 PCIe by the name of an H100 SXM": _late(really=CARDS["h100-pcie-80gb"]),
    "an H20 by the name of an H100": _late(really=H20),
    "a 4090 with 48 GB by the name of an L40S": _late(sold="l40s-48gb", really=RTX_4090_48GB),
    "a CPU that says at once that it has filled": _late(
        really=CPU, make=lambda i, t, _: devices.LazyFill(i, t)
    ),
    "calls that travel to a GPU elsewhere beneath its agent": _late(really=with_speeds(_H100, launch=200e-6)),
    "a card twice as fast as it may be": Lie(
        frozenset({"too_fast"}), really=with_speeds(_H100, everything=2.0)
    ),
    # Names that contradict each other.
    "an A100 whose NVML was replaced": Lie(
        frozenset({"gpu_model", "capability"}),
        says=lambda one: replace(one, cuda_name=_A100_40.name, cuda_capability="8.0"),
    ),
    "a PCI id that is another model's": Lie(
        frozenset({"pci_other"}),
        says=lambda one: replace(one, nvml_pci_device="10de:2329", sysfs_pci_device="10de:2329"),
    ),
    "little free memory, so as to be asked for little": Lie(
        frozenset({"memory_short"}), says=lambda one: replace(one, cuda_free=one.cuda_free // 2)
    ),
    "one GPU listed twice": Lie(
        frozenset({"gpu_duplicate"}),
        gpus=2,
        says=lambda one: replace(one, nvml_uuid="GPU-1", cuda_uuid="GPU-1"),
    ),
    # Answers that were not computed after the order.
    "nonces and seeds that were guessed": Lie(
        frozenset({"wrong_digest"}), make=lambda i, t, _: devices.Foresighted(i, t)
    ),
    "half of the chains left out": Lie(frozenset({"wrong_digest"}), make=skipping(chains=0.5)),
    "half of the tiles left out": Lie(frozenset({"wrong_digest"}), make=skipping(tiles=0.5)),
    # Messages.
    "bytes that are no message": _tampered("malformed", Altered((Committed,), attackers.garbled)),
    "an endless identity": _tampered("malformed", Altered((Identity,), attackers.oversized)),
    "endless group hashes": _tampered("malformed", Altered((Groups,), attackers.oversized)),
    "a group hash too few": _tampered("malformed", Altered((Groups,), attackers.short)),
    "a digest too few": _tampered("malformed", Altered((Opened,), attackers.short)),
    "digests other than those committed to": _tampered(
        "wrong_group", Altered((Opened,), attackers.with_another_digest)
    ),
    "group hashes other than those committed to": _tampered(
        "wrong_root", Altered((Groups,), attackers.with_another_digest)
    ),
    "every root twice": _tampered("protocol malformed", Altered((Committed,), attackers.twice), gpus=2),
    "a root of nothing in good time": _tampered("wrong_root", Altered((Committed,), attackers.hasty(1.0))),
    "a root of nothing at once": _tampered("too_fast", Altered((Committed,), attackers.hasty(0.0))),
    "two roots to choose from": _tampered(
        "protocol malformed", Altered((Committed,), attackers.hasty(1.0, and_the_real_one=True)), gpus=2
    ),
    "answers of the neighbour": _tampered(
        "wrong_group malformed", Altered((Opened,), attackers.swapped), gpus=2
    ),
    "roots of the neighbour": _tampered(
        "wrong_root protocol", Altered((Committed,), attackers.swapped), gpus=2
    ),
    "every answer from one GPU": _tampered("protocol", Altered((Committed,), attackers.of_the_first), gpus=2),
    "answers about a GPU that is not there": _tampered("protocol", Altered((Filled,), attackers.of_nobody)),
    "an answer before the question": _tampered(
        "protocol malformed", Premonition(Hello, LatencyAnswer(0, bytes(16)))
    ),
    "a first byte in good time, the root when it is done": _late(
        really=with_speeds(_H100, random_read=0.5),
        attacker=Altered((Committed,), attackers.begun(walk=1.2, tiles=0.5)),
    ),
    "roots that come a second too late": _tampered(
        "too_slow", Altered((Committed, Groups), attackers.delayed(1.0))
    ),
    "silence after the nonce": _tampered("too_slow", Altered((Committed, Groups), attackers.mute)),
    "silence when digests are to be shown": _tampered("unopened", Altered((Opened,), attackers.mute)),
    "a line that breaks when digests are to be shown": _tampered(
        "unopened", Altered((Opened,), attackers.breaking)
    ),
    "no more than a refusal when digests are to be shown": _tampered(
        "unopened", Altered((Opened,), attackers.refusing)
    ),
}
"""By a phrase that completes "a machine with ..."."""

UNANSWERED: dict[str, Lie] = {
    "a CPU that computes the right answers": Lie(frozenset({"silent"}), really=CPU),
    "silence instead of the fill": _tampered("silent", Altered((Filled,), attackers.mute)),
    "a line that breaks after the nonce": _tampered("line_broken", Altered((Committed,), attackers.breaking)),
    "a refusal after the nonce": _tampered("refused", Altered((Committed,), attackers.refusing)),
}
"""Cheats whose challenge proves nothing, either for or against the machine. The CPU cannot fill its memory within the time
limit."""

PASSING: dict[str, Lie] = {
    "calls that its own agent sends to a GPU elsewhere": Lie(
        really=with_speeds(_H100, launch=200e-6), make=lambda i, t, _: devices.ChainOnCpu(i, t)
    ),
}
"""Cheats that a proof does not detect, as docs/gpu-proof.md says: relaying, which no software can rule out. Of the timed
phases only the launch chain would detect it, and that one needs no GPU."""
