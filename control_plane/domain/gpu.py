"""Our names of GPU models, and the names and memory sizes that NVML reports for each.

Memory is what NVML reports as total, in MiB, and it is a band, never an equality: driver R510
changed the A100's figure, and ECC on GDDR6 costs 6.25 % (both variants are listed).
Sources: NVIDIA open kernel module README (driver 595.45.04) for names and PCI ids; public
nvidia-smi dumps for NVML totals (read 2026-11-20).
"""

from dataclasses import dataclass
from enum import StrEnum

MEMORY_TOLERANCE_PERCENT = 2


class GpuModel(StrEnum):
    A100_PCIE_40GB = "a100-pcie-40gb"
    A100_SXM_40GB = "a100-sxm-40gb"
    A100_PCIE_80GB = "a100-pcie-80gb"
    A100_SXM_80GB = "a100-sxm-80gb"
    H100_PCIE_80GB = "h100-pcie-80gb"
    H100_SXM_80GB = "h100-sxm-80gb"
    H100_NVL_94GB = "h100-nvl-94gb"
    H200_SXM_141GB = "h200-sxm-141gb"
    B200_SXM_180GB = "b200-sxm-180gb"
    GH200_96GB = "gh200-96gb"
    L4_24GB = "l4-24gb"
    L40S_48GB = "l40s-48gb"
    A10_24GB = "a10-24gb"
    A6000_48GB = "a6000-48gb"
    RTX_4090_24GB = "rtx-4090-24gb"
    RTX_5090_32GB = "rtx-5090-32gb"


@dataclass(frozen=True, slots=True)
class Appearance:
    """How NVML reports a whole, unshared card of this model."""

    nvml_names: frozenset[str]
    memory_mib: tuple[int, ...]
    """NVML totals seen in the field, each the centre of a band of +-MEMORY_TOLERANCE_PERCENT."""


def _appearance(*memory_mib: int, names: tuple[str, ...]) -> Appearance:
    return Appearance(frozenset(names), memory_mib)


APPEARANCES: dict[GpuModel, Appearance] = {
    GpuModel.A100_PCIE_40GB: _appearance(40960, 40536, names=("NVIDIA A100-PCIE-40GB",)),
    GpuModel.A100_SXM_40GB: _appearance(40960, 40536, names=("NVIDIA A100-SXM4-40GB",)),
    GpuModel.A100_PCIE_80GB: _appearance(81920, 81251, names=("NVIDIA A100 80GB PCIe",)),
    GpuModel.A100_SXM_80GB: _appearance(81920, 81251, names=("NVIDIA A100-SXM4-80GB",)),
    GpuModel.H100_PCIE_80GB: _appearance(81559, names=("NVIDIA H100 PCIe",)),
    GpuModel.H100_SXM_80GB: _appearance(81559, names=("NVIDIA H100 80GB HBM3",)),
    GpuModel.H100_NVL_94GB: _appearance(95830, names=("NVIDIA H100 NVL",)),
    GpuModel.H200_SXM_141GB: _appearance(143771, names=("NVIDIA H200",)),
    GpuModel.B200_SXM_180GB: _appearance(183359, names=("NVIDIA B200",)),
    GpuModel.GH200_96GB: _appearance(97871, names=("NVIDIA GH200 480GB", "NVIDIA GH200 120GB")),
    GpuModel.L4_24GB: _appearance(23034, 24564, names=("NVIDIA L4",)),
    GpuModel.L40S_48GB: _appearance(46068, 49140, names=("NVIDIA L40S",)),
    GpuModel.A10_24GB: _appearance(23028, 24564, names=("NVIDIA A10",)),
    GpuModel.A6000_48GB: _appearance(49140, 46068, names=("NVIDIA RTX A6000",)),
    GpuModel.RTX_4090_24GB: _appearance(24564, 23028, names=("NVIDIA GeForce RTX 4090",)),
    GpuModel.RTX_5090_32GB: _appearance(32607, names=("NVIDIA GeForce RTX 5090",)),
}


def memory_in_band(model: GpuModel, memory_mib: int) -> bool:
    """Whether an NVML memory total, in MiB, fits a whole card of this model."""
    return any(
        abs(memory_mib - centre) * 100 <= centre * MEMORY_TOLERANCE_PERCENT
        for centre in APPEARANCES[model].memory_mib
    )
