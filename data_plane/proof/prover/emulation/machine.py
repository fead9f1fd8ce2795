"""Makes emulated machines, from the emulation file of a test machine or from the claims of a simulated one.

Runs inside the agent: standard library only, apart from numpy.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from data_plane.nvml import emulation_file
from data_plane.nvml.library import Unanswered
from data_plane.proof.protocol.messages import GpuIdentity
from data_plane.proof.prover.device import DeviceError
from data_plane.proof.prover.emulation.cards import CARDS, MIB, Card, identity
from data_plane.proof.prover.emulation.device import EmulatedDevice, EmulatedMachine


@dataclass(frozen=True)
class Claim:
    """What one GPU claims to be."""

    name: str
    uuid: str
    memory_mib: int


def machine_from(path: Path = emulation_file.PATH) -> EmulatedMachine:
    """The machine that the file describes. Each card really has a little memory.

    Raises DeviceError `emulation_missing` if there is no file, and `no_driver` if the file is invalid.
    """
    try:
        nvml = emulation_file.load(path)
        if nvml is None:
            raise DeviceError("emulation_missing", f"neither a GPU driver nor {path}")
        claims = []
        for index in range(nvml.nvmlDeviceGetCount()):
            card = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = nvml.nvmlDeviceGetMemoryInfo(card).total // MIB
            claims.append(Claim(nvml.nvmlDeviceGetName(card), nvml.nvmlDeviceGetUUID(card), memory))
    except Unanswered as error:
        raise DeviceError("no_driver", str(error)) from None
    devices = tuple(EmulatedDevice(one) for one in identities(claims))
    return EmulatedMachine(devices, driver=nvml.nvmlSystemGetDriverVersion())


def identities(claims: "Sequence[Claim]") -> "list[GpuIdentity]":
    """What every source says about these GPUs, where all sources agree."""
    return [
        replace(
            identity(card_named(claim.name), index, claim.uuid, claim.memory_mib),
            nvml_name=claim.name,
            cuda_name=claim.name,
            proc_model=claim.name,
        )
        for index, claim in enumerate(claims)
    ]


def card_named(name: str) -> Card:
    """The card with this NVML name, or a common card if the name is unknown."""
    return next((card for card in CARDS.values() if card.name == name), CARDS["a10-24gb"])
