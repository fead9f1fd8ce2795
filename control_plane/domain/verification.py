"""Whether a machine is what was sold: its GPU reading held against the shape.

A reading is the machine's own word (law 11), so it can only lose a sale, never prove one: this
check catches the honest mistake and the crude fake. `source` says whether NVML or an emulation
spoke; an emulation counts only where the operator says so.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from control_plane.domain.gpu import APPEARANCES, memory_in_band
from control_plane.domain.sku import Shape


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
    """`mig` or `vgpu` when the card says that it is a part; `unknown` when it does not say."""


@dataclass(frozen=True, slots=True)
class Verified:
    emulated: bool


@dataclass(frozen=True, slots=True)
class Mismatch:
    code: MismatchCode
    why: str


_PARTS = frozenset({"mig", "vgpu"})


def verify(
    sold: Shape, readings: Sequence[Reading], *, emulated: bool, accept_emulated: bool
) -> Verified | Mismatch:
    if emulated and not accept_emulated:
        return Mismatch(
            MismatchCode.EMULATED, "The reading comes from an emulation; this deployment wants real NVML."
        )
    if len(readings) != sold.gpu_count:
        return Mismatch(MismatchCode.COUNT, f"{len(readings)} GPUs found, {sold.gpu_count} sold.")
    twice = [uuid for uuid, times in Counter(reading.uuid for reading in readings).items() if times > 1]
    if twice:
        return Mismatch(MismatchCode.DUPLICATE, f"The GPU {twice[0]} is listed more than once.")
    for reading in readings:
        if reading.name not in APPEARANCES[sold.gpu_model].nvml_names:
            return Mismatch(MismatchCode.MODEL, f"{reading.name!r} found, {sold.gpu_model} sold.")
        if reading.sharing in _PARTS:
            why = f"{reading.name} is a part of a card ({reading.sharing}); whole cards are sold."
            return Mismatch(MismatchCode.SHARED, why)
        if not memory_in_band(sold.gpu_model, reading.memory_mib):
            expected = " or ".join(str(mib) for mib in APPEARANCES[sold.gpu_model].memory_mib)
            return Mismatch(
                MismatchCode.MEMORY,
                f"{reading.memory_mib} MiB found on {reading.name}, about {expected} expected.",
            )
    return Verified(emulated=emulated)
