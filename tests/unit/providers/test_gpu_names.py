"""The one vocabulary of GPU names: what providers write, and what is never guessed."""

from control_plane.domain.gpu import GpuModel
from providers.gpu_names import GPU_NAMES, gpu_named

WRITTEN = {
    "H100 (80 GB SXM5)": GpuModel.H100_SXM_80GB,
    "H100-80G-SXM5": GpuModel.H100_SXM_80GB,
    "NVIDIA H100 SXM5 80GB": GpuModel.H100_SXM_80GB,
    "h100_80gb_sxm": GpuModel.H100_SXM_80GB,
    "H100 (80 GB PCIe)": GpuModel.H100_PCIE_80GB,
    "H100-80G-PCIe-NVLink": GpuModel.H100_PCIE_80GB,
    "H200 (141 GB SXM5)": GpuModel.H200_SXM_141GB,
    "B200 (180 GB SXM6)": GpuModel.B200_SXM_180GB,
    "A100 (40 GB PCIe)": GpuModel.A100_PCIE_40GB,
    "A100-80G-SXM4": GpuModel.A100_SXM_80GB,
    "A100-80G-PCIe-NVLink": GpuModel.A100_PCIE_80GB,
    "A10 (24 GB PCIe)": GpuModel.A10_24GB,
    "A6000 (48 GB)": GpuModel.A6000_48GB,
    "RTX-A6000": GpuModel.A6000_48GB,
    "GH200 (96 GB)": GpuModel.GH200_96GB,
    "GeForce RTX 4090": GpuModel.RTX_4090_24GB,
    "NVIDIA L40S": GpuModel.L40S_48GB,
}
UNKNOWN = (
    *("", "N/A", "NVIDIA", "80 GB", "SXM", "Tesla V100 (16 GB)", "RTX 6000 (24 GB)", "MI300X (192 GB)"),
    # A name that may mean two cards, and cards of another size or link than those of this name.
    *(
        "H100",
        "A100",
        "A100 (80 GB)",
        "H100 (94 GB SXM5)",
        "H100 (80 GB)",
        "GH200 (480 GB)",
        "A100X (80 GB PCIe)",
    ),
    # A part of a card, or another product with the same beginning.
    *("H100 80GB SXM MIG 1g.10gb", "A100-80G-SXM4-spot", "L40", "B200 (180 GB SXM6) NVL72"),
)


def test_a_name_is_known_in_whatever_order_its_words_come() -> None:
    for name, model in WRITTEN.items():
        assert gpu_named(name) is model, name
        assert gpu_named(" ".join(reversed(name.replace(" GB", "GB").strip("()").split()))) is model, name


def test_what_is_not_in_the_vocabulary_is_unknown() -> None:
    for name in UNKNOWN:
        assert gpu_named(name) is None, name


def test_every_model_has_a_name() -> None:
    assert set(GPU_NAMES.values()) == set(GpuModel)
