"""An emulated machine: from the file on a test machine, or from what a machine on paper claims.

Runs inside the agent: besides numpy, standard library only.
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
    """What one GPU says that it is."""

    name: str
    uuid: str
    memory_mib: int


def machine_from(path: Path = emulation_file.PATH) -> EmulatedMachine:
    """The machine that the file describes, with a little real memory behind each card.

    Raises DeviceError `emulation_missing` without a file, `no_driver` if it describes nothing.
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
    """What these GPUs say through every source, each in agreement with the others."""
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
    """The card of this NVML name; for a name that nobody knows, one like any other."""
    return next((card for card in CARDS.values() if card.name == name), CARDS["a10-24gb"])
