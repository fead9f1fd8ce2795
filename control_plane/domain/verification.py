"""Whether a machine is what was ordered: compares its GPU reading with the order.

A reading is what the machine reports about itself (law 11), so it can disqualify the machine but never prove
it: this check catches honest mistakes and crude fakes. A reading from an emulation instead of NVML counts
only where the operator allows it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from control_plane.domain.gpu import APPEARANCES, GpuModel, memory_in_band


class Verdict(StrEnum):
    """The result of comparing a machine with its order, as it is stored with the reading."""

    VERIFIED = "verified"
    MISMATCH = "mismatch"


class MismatchCode(StrEnum):
    COUNT = "gpu_count"
    MODEL = "gpu_model"
    MEMORY = "gpu_memory"
    DUPLICATE = "gpu_duplicate"
    SHARED = "gpu_shared"
    EMULATED = "emulated_not_accepted"


@dataclass(frozen=True, slots=True)
class Reading:
    """One GPU as the machine reports it."""

    name: str
    uuid: str
    memory_mib: int
    sharing: str = "none"
    """`mig` or `vgpu` when the card reports that it is a part of one; `unknown` when it reports neither."""


@dataclass(frozen=True, slots=True)
class Verified:
    emulated: bool


@dataclass(frozen=True, slots=True)
class Mismatch:
    code: MismatchCode
    why: str


_PARTS = frozenset({"mig", "vgpu"})


def verify(
    gpu_model: GpuModel,
    gpu_count: int,
    readings: Sequence[Reading],
    *,
    emulated: bool,
    accept_emulated: bool,
) -> Verified | Mismatch:
    """Compare a machine's reading with the GPUs that were ordered."""
    if emulated and not accept_emulated:
        return Mismatch(
            MismatchCode.EMULATED,
            "The reading comes from an emulation; this deployment accepts only real NVML.",
        )
    if len(readings) != gpu_count:
        return Mismatch(MismatchCode.COUNT, f"{len(readings)} GPUs found, {gpu_count} ordered.")
    twice = [uuid for uuid, times in Counter(reading.uuid for reading in readings).items() if times > 1]
    if twice:
        return Mismatch(MismatchCode.DUPLICATE, f"The GPU {twice[0]} is listed more than once.")
    mismatches = (_mismatch(gpu_model, reading) for reading in readings)
    return next((mismatch for mismatch in mismatches if mismatch), Verified(emulated=emulated))


def _mismatch(gpu_model: GpuModel, reading: Reading) -> Mismatch | None:
    """How one card differs from the model that was ordered."""
    appearance = APPEARANCES[gpu_model]
    if reading.name not in appearance.nvml_names:
        return Mismatch(MismatchCode.MODEL, f"{reading.name!r} found, {gpu_model} ordered.")
    if reading.sharing in _PARTS:
        why = f"{reading.name} is a part of a card ({reading.sharing}); whole cards were ordered."
        return Mismatch(MismatchCode.SHARED, why)
    if not memory_in_band(gpu_model, reading.memory_mib):
        expected = " or ".join(str(mib) for mib in appearance.memory_mib)
        why = f"{reading.memory_mib} MiB found on {reading.name}, about {expected} expected."
        return Mismatch(MismatchCode.MEMORY, why)
    return None
