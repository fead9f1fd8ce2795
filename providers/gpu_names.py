"""Providers' names of GPU models, in one vocabulary: `H100-80G-SXM5` and `H100 (80 GB SXM5)` are the same words.

A name is read as a set of words, because providers put the same ones in different orders. A name that is not here is
unknown and never guessed: memory and link decide what a card is worth, and a name without them may mean two cards.
"""

import re

from control_plane.domain.gpu import GpuModel, memory_in_band

_WORD = re.compile(r"\d+ ?GI?B?\b|[A-Z0-9]+")
_MEMORY = re.compile(r"(\d+) ?GI?B?")
_LINK = re.compile(r"(SXM|PCIE)\d*")
_SILENT = frozenset({"NVIDIA", "TESLA", "GEFORCE", "NVLINK"})
"""Words that do not tell two models apart. NVLink bridges join PCIe cards, and each card stays what it is."""


def _words(name: str) -> frozenset[str]:
    """The words of a name, with `80GB` for `80 GB` and `80G`, and `SXM` for `SXM5`."""
    found = set()
    for word in _WORD.findall(name.upper().replace("_", "-")):
        memory, link = _MEMORY.fullmatch(word), _LINK.fullmatch(word)
        found.add(f"{memory[1]}GB" if memory else link[1] if link else word)
    return frozenset(found - _SILENT)


GPU_NAMES = {
    _words(name): model
    for model, names in {
        GpuModel.A10_24GB: ("A10 24GB PCIe", "A10 24GB"),
        GpuModel.A100_PCIE_40GB: ("A100 40GB PCIe",),
        GpuModel.A100_PCIE_80GB: ("A100 80GB PCIe",),
        GpuModel.A100_SXM_40GB: ("A100 40GB SXM",),
        GpuModel.A100_SXM_80GB: ("A100 80GB SXM",),
        GpuModel.A6000_48GB: ("A6000 48GB", "A6000 48GB PCIe", "RTX A6000", "RTX A6000 48GB"),
        GpuModel.B200_SXM_180GB: ("B200 180GB SXM",),
        GpuModel.GH200_96GB: ("GH200 96GB",),
        GpuModel.H100_NVL_94GB: ("H100 94GB NVL", "H100 NVL"),
        GpuModel.H100_PCIE_80GB: ("H100 80GB PCIe",),
        GpuModel.H100_SXM_80GB: ("H100 80GB SXM",),
        GpuModel.H200_SXM_141GB: ("H200 141GB SXM",),
        GpuModel.L4_24GB: ("L4 24GB", "L4", "L4 24GB PCIe"),
        GpuModel.L40S_48GB: ("L40S 48GB", "L40S", "L40S 48GB PCIe"),
        GpuModel.RTX_4090_24GB: ("RTX 4090", "RTX 4090 24GB"),
        GpuModel.RTX_5090_32GB: ("RTX 5090", "RTX 5090 32GB"),
    }.items()
    for name in names
}


def gpu_named(name: str) -> GpuModel | None:
    """The GPU model that a provider's name stands for; None for an unknown one.

    >>> gpu_named("H100 (80 GB SXM5)")
    <GpuModel.H100_SXM_80GB: 'h100-sxm-80gb'>
    >>> gpu_named("H100 (80 GB)") is None
    True
    """
    return GPU_NAMES.get(_words(name))


def gpu_with_memory(name: str, memory_mib: int) -> GpuModel | None:
    """The GPU model that a name without memory stands for, where one card has `memory_mib`, in MiB; None for an unknown
    one.

    >>> gpu_with_memory("A100 PCIE", 40_960)
    <GpuModel.A100_PCIE_40GB: 'a100-pcie-40gb'>
    >>> gpu_with_memory("A100", 40_960) is None
    True
    """
    words = _words(name)
    found = {model for known, model in GPU_NAMES.items() if _without_memory(known) == words}
    return next((model for model in found if memory_in_band(model, memory_mib)), None)


def _without_memory(words: frozenset[str]) -> frozenset[str]:
    return frozenset(word for word in words if not _MEMORY.fullmatch(word))
