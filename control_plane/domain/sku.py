"""What we sell: the smallest machine that a customer gets, with a number of GPUs of one model, or without any."""

import re
from dataclasses import dataclass
from enum import StrEnum

from control_plane.domain.gpu import GpuModel
from control_plane.domain.proof import Tier


class CapacityShape(StrEnum):
    VM = "vm"
    BAREMETAL = "baremetal"


class Unit(StrEnum):
    """What a price is for, and what a bill counts."""

    GPU = "gpu"
    MACHINE = "machine"
    """Where there are no GPUs."""


def unit_of(gpu_count: int) -> Unit:
    return Unit.GPU if gpu_count > 0 else Unit.MACHINE


def units_of(gpu_count: int) -> int:
    """How many units a machine is billed as, and priced in: its GPUs, or one where it has none."""
    return max(1, gpu_count)


def gpus_in_words(model: GpuModel | None, count: int) -> str:
    return "no GPUs" if model is None else f"{count} x {model}"


@dataclass(frozen=True, slots=True)
class Shape:
    """The hardware of one machine, as sold or as offered. Memory and disk in GiB."""

    gpu_model: GpuModel | None
    """None for a machine without GPUs, whose count is 0."""
    gpu_count: int
    vcpus: int
    memory_gib: int
    disk_gib: int

    @property
    def units(self) -> int:
        return units_of(self.gpu_count)

    def holds(self, smaller: "Shape") -> bool:
        """Whether a machine of this shape can be sold as `smaller`: same GPUs, at least as much of everything else.

        A machine with GPUs is never sold as one without, however cheap it is.
        """
        return (
            self.gpu_model is smaller.gpu_model
            and self.gpu_count == smaller.gpu_count
            and self.vcpus >= smaller.vcpus
            and self.memory_gib >= smaller.memory_gib
            and self.disk_gib >= smaller.disk_gib
        )


@dataclass(frozen=True, slots=True)
class Sku:
    name: str
    shape: Shape
    capacity: CapacityShape
    proof: Tier
    """What a machine has to prove before it is leased as this SKU."""


REGION_PATTERN = re.compile(r"[a-z]{2}(-[a-z0-9]+)*")
"""Our region names start with a jurisdiction: `us-east-1`, `eu-central-1`. `us` alone means all of its regions."""


def covers(priced: str | None, region: str | None) -> bool:
    """Whether a price for `priced` is one for `region`. None is anywhere."""
    return priced is None or (region is not None and region_within(region, priced))


def region_within(region: str, wanted: str) -> bool:
    """Whether `region` is `wanted` or a part of it: `eu-central-1` is within `eu`, but not within `eu-cent`."""
    return region == wanted or region.startswith(wanted + "-")
