"""What we sell: a GPU model, a count and the smallest machine around it."""

import re
from dataclasses import dataclass
from enum import StrEnum

from control_plane.domain.gpu import GpuModel
from control_plane.domain.proof import Tier


class CapacityShape(StrEnum):
    VM = "vm"
    BAREMETAL = "baremetal"


def units_of(gpu_count: int) -> int:
    """How many units a machine is billed as, and priced in: its GPUs, or one where it has none."""
    return max(1, gpu_count)


@dataclass(frozen=True, slots=True)
class Shape:
    """The hardware of one machine, as sold or as offered. Memory and disk in GiB."""

    gpu_model: GpuModel
    gpu_count: int
    vcpus: int
    memory_gib: int
    disk_gib: int

    @property
    def units(self) -> int:
        return units_of(self.gpu_count)

    def holds(self, smaller: "Shape") -> bool:
        """Whether a machine of this shape can be sold as `smaller`: same GPUs, at least as much of everything else."""
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


def region_within(region: str, wanted: str) -> bool:
    """Whether `region` is `wanted` or a part of it: `eu-central-1` is within `eu`, but not within `eu-cent`."""
    return region == wanted or region.startswith(wanted + "-")
