"""What we sell: a GPU model, a count and the smallest machine around it."""

import re
from dataclasses import dataclass
from enum import StrEnum

from control_plane.domain.gpu import GpuModel
from control_plane.domain.proof import Tier


class CapacityShape(StrEnum):
    VM = "vm"
    BAREMETAL = "baremetal"


@dataclass(frozen=True, slots=True)
class Shape:
    """The hardware of one machine, as sold or as offered. Memory and disk in GiB."""

    gpu_model: GpuModel
    gpu_count: int
    vcpus: int
    memory_gib: int
    disk_gib: int

    def holds(self, smaller: "Shape") -> bool:
        """Whether a machine of this shape satisfies a promise of `smaller`: same GPUs, no less of the rest."""
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
"""Our word for a region starts with a jurisdiction: `us-east-1`, `eu-central-1`. `us` names them all."""


def region_within(region: str, wanted: str) -> bool:
    """Whether `region` is `wanted` or lies in it: `eu-central-1` is within `eu`, but not within `eu-cent`."""
    return region == wanted or region.startswith(wanted + "-")
