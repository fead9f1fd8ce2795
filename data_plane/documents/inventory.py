"""The agent's inventory document: the hardware of a machine, with the bounds of every value.

Every value is the machine's own claim (law 11): evidence to be compared with what the machine proves and with what it
claimed before, never a fact. Null means that the driver or the kernel does not say.

Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from data_plane.documents.records import Most, Text, Whole

GPUS_MAX = 16
"""The largest machines on sale have 16 cards."""
MEMORY_MIB_MAX = 16 * 1024 * 1024
"""16 TiB: far more than any card has, and small enough for every integer type that stores it."""
LINKS_MAX = 36
"""NVML_NVLINK_MAX_LINKS."""
INSTANCES_MAX = 8
"""MIG devices of one card; today at most 7 are possible."""
DEVICES_MAX = 64
"""How many NVMe devices, network devices or NUMA nodes of one machine are listed; the others are left out."""

UUID = "GPU-[0-9A-Za-z-]{1,76}"
BUS_ID = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
"""As the kernel writes it in sysfs: `0000:3b:00.0`."""

Source = Literal["nvml", "emulated"]
"""`emulated` readings come from a file on a machine without GPUs. They prove nothing."""
Sharing = Literal["none", "mig", "vgpu", "unknown"]
"""Whether the card seems to be whole: `mig` if MIG mode is on, `vgpu` inside a vGPU guest. A hint and no proof."""

Mib = Annotated[int, Whole(0, MEMORY_MIB_MAX)]
Count = Annotated[int, Whole(0, (1 << 64) - 1)]
"""A 64-bit counter of the driver."""
Phrase = Annotated[str, Text(r"[\x20-\x7e]{1,96}")]
"""Text from NVML. The longest is a name: NVML_DEVICE_NAME_V2_BUFFER_SIZE is 96 bytes."""
BusId = Annotated[str, Text(BUS_ID)]
PciId = Annotated[str, Text("[0-9a-f]{4}:[0-9a-f]{4}")]
_CPUS = "[0-9]{1,5}(?:-[0-9]{1,5})?"
CpuList = Annotated[str, Text(f"{_CPUS}(?:,{_CPUS}){{0,255}}")]
"""As the kernel writes it: `0-31,64-95`."""
NumaNodeNumber = Annotated[int, Whole(0, 4095)]
Mhz = Annotated[int, Whole(0, 1_000_000)]
Milliwatts = Annotated[int, Whole(0, 1_000_000_000)]
Mbps = Annotated[int, Whole(0, 1_000_000_000)]

Level = Literal["self", "internal", "single", "multiple", "hostbridge", "node", "system"]
"""The closest common ancestor of two GPUs: one board, one PCIe switch, several switches, one host bridge, one NUMA
node, or only the whole machine (NVML_TOPOLOGY_*)."""


@dataclass(frozen=True)
class PcieLink:
    generation: Annotated[int, Whole(0, 16)] | None = None
    """The current generation, which idle cards reduce."""
    width: Annotated[int, Whole(0, 64)] | None = None
    generation_max: Annotated[int, Whole(0, 16)] | None = None
    """The most that both the card and its slot support."""
    width_max: Annotated[int, Whole(0, 64)] | None = None


@dataclass(frozen=True)
class NvLink:
    link: Annotated[int, Whole(0, LINKS_MAX - 1)]
    active: bool
    version: Annotated[int, Whole(0, 255)] | None = None
    """NVML's code for the version, not the marketing number."""
    speed_mbps: Mbps | None = None
    """Megabytes per second in one direction, from field 164."""
    remote: Literal["gpu", "switch", "npu", "unknown"] | None = None
    remote_bus_id: BusId | None = None


@dataclass(frozen=True)
class MigPlacement:
    """The memory slices `start` to `start + size - 1` of the 8 slices of a card."""

    start: Annotated[int, Whole(0, 63)]
    size: Annotated[int, Whole(1, 64)]


@dataclass(frozen=True)
class MigInstance:
    uuid: Annotated[str, Text("MIG-[0-9A-Za-z/-]{1,90}")]
    profile: Annotated[str, Text("[0-9a-z.+-]{1,32}")] | None = None
    """Such as `3g.40gb`: the end of the device's name."""
    gpu_instance_id: Annotated[int, Whole(0, 4095)] | None = None
    compute_instance_id: Annotated[int, Whole(0, 4095)] | None = None
    profile_id: Annotated[int, Whole(0, 4095)] | None = None
    """NVML's number, such as 9 for 3g. Null without root, as is the placement."""
    placement: MigPlacement | None = None
    multiprocessors: Annotated[int, Whole(0, 4096)] | None = None
    memory_mib: Mib | None = None


@dataclass(frozen=True)
class Mig:
    enabled: bool
    pending: bool
    """The mode after the next reset."""
    instances_max: Annotated[int, Whole(0, 64)] | None = None
    instances: Annotated[tuple[MigInstance, ...], Most(INSTANCES_MAX)] = ()


@dataclass(frozen=True)
class Gpu:
    """One card. The fields from `serial` on depend on the driver, the board or the user's privileges."""

    index: Annotated[int, Whole(0, GPUS_MAX - 1)]
    name: Phrase
    uuid: Annotated[str, Text(UUID)]
    memory_total_mib: Annotated[int, Whole(1, MEMORY_MIB_MAX)]
    """NVML's total in MiB, rounded down."""
    sharing: Sharing
    pci_device_id: PciId | None
    """`10de:2330`: vendor and device, lower-case hex."""
    compute_capability: Annotated[str, Text(r"[0-9]{1,2}\.[0-9]{1,2}")] | None
    """`9.0`."""
    serial: Phrase | None = None
    board_part_number: Phrase | None = None
    pci_subsystem_id: PciId | None = None
    bus_id: BusId | None = None
    vbios: Phrase | None = None
    inforom: Phrase | None = None
    gsp_firmware: Phrase | None = None
    brand: Annotated[int, Whole(0, 255)] | None = None
    """NVML_BRAND_*: 2 Tesla, 5 GeForce, 14 NVIDIA."""
    virtualization: Literal["none", "passthrough", "vgpu", "vgpu_host", "vsga_host"] | None = None
    cores: Annotated[int, Whole(0, 1_000_000)] | None = None
    bus_width_bits: Annotated[int, Whole(0, 1_000_000)] | None = None
    memory_reserved_mib: Mib | None = None
    """The driver's own memory."""
    power_limit_mw: Milliwatts | None = None
    """The limit in force."""
    power_limit_min_mw: Milliwatts | None = None
    power_limit_max_mw: Milliwatts | None = None
    sm_max_mhz: Mhz | None = None
    memory_max_mhz: Mhz | None = None
    numa_node: NumaNodeNumber | None = None
    local_cpus: CpuList | None = None
    pcie: PcieLink = PcieLink()
    nvlinks: Annotated[tuple[NvLink, ...], Most(LINKS_MAX)] = ()
    mig: Mig | None = None
    """Null if the card does not support MIG."""


@dataclass(frozen=True)
class NumaNode:
    node: NumaNodeNumber
    cpus: CpuList | None
    """Null for a node of memory without processors, such as the memory of a GH200's GPU."""
    memory_mib: Mib | None


@dataclass(frozen=True)
class Nvme:
    name: Annotated[str, Text("nvme[0-9]{1,4}")]
    model: Phrase | None
    size_bytes: Count | None
    """All namespaces together."""
    bus_id: BusId | None
    numa_node: NumaNodeNumber | None


@dataclass(frozen=True)
class Nic:
    """A network device with hardware behind it."""

    name: Annotated[str, Text(r"[\x21-\x7e]{1,15}")]
    driver: Phrase | None
    speed_mbps: Mbps | None
    """Megabits per second; null while the link is down."""
    bus_id: BusId | None
    numa_node: NumaNodeNumber | None
    rdma: Annotated[tuple[Phrase, ...], Most(8)]
    """RDMA devices on the same hardware, such as `mlx5_0`."""


@dataclass(frozen=True)
class Inventory:
    """Every GPU of the machine, in the order of their indices, and the hardware around them."""

    source: Source
    driver_version: Annotated[str, Text("[0-9A-Za-z._+-]{1,80}")]
    gpus: Annotated[tuple[Gpu, ...], Most(GPUS_MAX)]
    ancestors: Annotated[tuple[Annotated[tuple[Level | None, ...], Most(GPUS_MAX)], ...], Most(GPUS_MAX)] = ()
    """`ancestors[a][b]` is the closest common ancestor of the GPUs a and b; null if NVML does not say."""
    numa_nodes: Annotated[tuple[NumaNode, ...], Most(DEVICES_MAX)] = ()
    nvmes: Annotated[tuple[Nvme, ...], Most(DEVICES_MAX)] = ()
    nics: Annotated[tuple[Nic, ...], Most(DEVICES_MAX)] = ()
