"""The properties and speeds of real cards, for the emulation.

The table is deliberately independent of the reference times, so that a mistake in a reference is not repeated here and
tests can find it. No real card is ever judged by this table.

Its sources: data sheets for names, memory as NVML reports it, multiprocessors, clocks, bandwidth and dense tensor
peaks. For random reads of 512 bytes, 70 % of the peak bandwidth is assumed. For `mma.sync`, 85 % of the tensor peak is
assumed, and half of it on Hopper, where `mma.sync` cannot reach the peak. Fill rates are computed from the number of
instructions. None of this was measured.

Runs inside the agent: standard library only.
"""

from dataclasses import dataclass

from data_plane.proof.protocol.messages import GpuIdentity

MIB = 1 << 20
RANDOM_READ_SHARE = 0.70
RESERVED_MIB = 600
"""The memory that a driver and a context use for themselves."""


@dataclass(frozen=True)
class Speeds:
    """How much a device does per second."""

    random_read: float
    """Bytes, in reads of one block each."""
    fill: float
    """Units times iterations."""
    int8: float
    """Multiply-adds."""
    bf16: float
    host_link: float
    """Bytes over PCIe, or whatever connects the host."""
    launch: float = 15e-6
    """Seconds for one launch that waits for the launch before it."""


@dataclass(frozen=True)
class Card:
    name: str
    """As NVML and CUDA report it."""
    pci_device: str
    memory_mib: int
    """NVML's total."""
    capability: str
    sms: int
    sm_mhz: int
    memory_mhz: int
    bus_bits: int
    l2_mib: int
    speeds: Speeds
    ecc: bool = True


def identity(card: Card, index: int, uuid: str, memory_mib: "int | None" = None) -> GpuIdentity:
    """What all three sources say about an idle, whole card of this kind."""
    total = (memory_mib or card.memory_mib) * MIB
    bus = f"0000:{0x18 + 8 * index:02x}:00.0"
    pci = f"10de:{card.pci_device}"
    return GpuIdentity(
        index=index,
        nvml_name=card.name,
        nvml_uuid=uuid,
        nvml_memory=total,
        nvml_pci_device=pci,
        nvml_pci_bus=f"0000{bus}",
        nvml_sharing="none",
        nvml_ecc=card.ecc,
        nvml_throttle=0,
        nvml_processes=0,
        cuda_name=card.name,
        cuda_uuid=uuid,
        cuda_memory=total,
        cuda_free=total - RESERVED_MIB * MIB,
        cuda_pci_bus=bus,
        cuda_capability=card.capability,
        cuda_sms=card.sms,
        cuda_sm_khz=card.sm_mhz * 1000,
        cuda_memory_khz=card.memory_mhz * 1000,
        cuda_bus_bits=card.bus_bits,
        cuda_l2=card.l2_mib * MIB,
        cuda_ecc=card.ecc,
        cuda_mps=False,
        sysfs_pci_device=pci,
        sysfs_pci_subsystem="10de:16c1",
        proc_model=card.name,
    )


def _speeds(gb_s: float, bf16: float, int8: float, *, share: float, fill: float, link: float) -> Speeds:
    """Speeds from peaks: GB/s, TFLOPS and TOPS (a multiply-add is two operations), and the share of the latter two that
    is achieved.
    """
    return Speeds(
        random_read=gb_s * 1e9 * RANDOM_READ_SHARE,
        fill=fill,
        int8=int8 * 1e12 / 2 * share,
        bf16=bf16 * 1e12 / 2 * share,
        host_link=link * 1e9,
    )


_PCIE4, _PCIE5, _C2C = 22, 45, 380
"""GB/s of random reads from the host's memory."""

_A100_40 = _speeds(1555, 312, 624, share=0.85, fill=1.32e10, link=_PCIE4)

CARDS: "dict[str, Card]" = {
    "a100-pcie-40gb": Card("NVIDIA A100-PCIE-40GB", "20f1", 40960, "8.0", 108, 1410, 1215, 5120, 40, _A100_40),
    "a100-sxm-40gb": Card("NVIDIA A100-SXM4-40GB", "20b0", 40960, "8.0", 108, 1410, 1215, 5120, 40, _A100_40),
    "a100-pcie-80gb": Card(
        "NVIDIA A100 80GB PCIe", "20b5", 81920, "8.0", 108, 1410, 1512, 5120, 40,
        _speeds(1935, 312, 624, share=0.85, fill=1.28e10, link=_PCIE4),
    ),
    "a100-sxm-80gb": Card(
        "NVIDIA A100-SXM4-80GB", "20b2", 81920, "8.0", 108, 1410, 1593, 5120, 40,
        _speeds(2039, 312, 624, share=0.85, fill=1.34e10, link=_PCIE4),
    ),
    "h100-pcie-80gb": Card(
        "NVIDIA H100 PCIe", "2331", 81559, "9.0", 114, 1755, 1593, 5120, 50,
        _speeds(2000, 756, 1513, share=0.5, fill=1.56e10, link=_PCIE5),
    ),
    "h100-sxm-80gb": Card(
        "NVIDIA H100 80GB HBM3", "2330", 81559, "9.0", 132, 1980, 2619, 5120, 50,
        _speeds(3350, 989, 1979, share=0.5, fill=2.01e10, link=_PCIE5),
    ),
    "h100-nvl-94gb": Card(
        "NVIDIA H100 NVL", "2321", 95830, "9.0", 132, 1785, 2619, 6144, 50,
        _speeds(3900, 835, 1671, share=0.5, fill=1.85e10, link=_PCIE5),
    ),
    "h200-sxm-141gb": Card(
        "NVIDIA H200", "2335", 143771, "9.0", 132, 1980, 3201, 6144, 50,
        _speeds(4800, 989, 1979, share=0.5, fill=1.98e10, link=_PCIE5),
    ),
    "b200-sxm-180gb": Card(
        "NVIDIA B200", "2901", 183359, "10.0", 148, 1965, 3996, 8192, 126,
        _speeds(7700, 2250, 4500, share=0.2, fill=2.44e10, link=_PCIE5),
    ),
    "gh200-96gb": Card(
        "NVIDIA GH200 480GB", "2342", 97871, "9.0", 132, 1980, 2619, 6144, 50,
        _speeds(4000, 989, 1979, share=0.5, fill=2.06e10, link=_C2C),
    ),
    "l4-24gb": Card(
        "NVIDIA L4", "27b8", 23034, "8.9", 58, 2040, 6251, 192, 48,
        _speeds(300, 121, 242, share=0.85, fill=6.8e9, link=_PCIE4),
    ),
    "l40s-48gb": Card(
        "NVIDIA L40S", "26b9", 46068, "8.9", 142, 2520, 9001, 384, 96,
        _speeds(864, 362, 733, share=0.85, fill=2.74e10, link=_PCIE4),
    ),
    "a10-24gb": Card(
        "NVIDIA A10", "2236", 23028, "8.6", 72, 1695, 6251, 384, 6,
        _speeds(600, 125, 250, share=0.85, fill=8.8e9, link=_PCIE4),
    ),
    "a6000-48gb": Card(
        "NVIDIA RTX A6000", "2230", 49140, "8.6", 84, 2100, 8001, 384, 6,
        _speeds(768, 155, 310, share=0.85, fill=1.16e10, link=_PCIE4), ecc=False,
    ),
    "rtx-4090-24gb": Card(
        "NVIDIA GeForce RTX 4090", "2684", 24564, "8.9", 128, 3105, 10501, 384, 72,
        _speeds(1008, 165, 661, share=0.85, fill=2.82e10, link=_PCIE4), ecc=False,
    ),
    "rtx-5090-32gb": Card(
        "NVIDIA GeForce RTX 5090", "2b85", 32607, "12.0", 170, 3090, 14001, 512, 96,
        _speeds(1792, 210, 838, share=0.85, fill=3.84e10, link=_PCIE5), ecc=False,
    ),
}  # fmt: skip
"""Cards by our name for the model, which is what machines are sold as."""
