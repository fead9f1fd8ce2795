"""The agent's health document: the state of a machine's GPUs, with the bounds of every value.

All values are the machine's own claims. Faults that it reports (an XID, a lost card, a row that could not be remapped)
can be believed; that it reports none proves nothing. Null means that the driver does not say, or did not answer.

Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from data_plane.documents.inventory import BUS_ID, GPUS_MAX, UUID, Count, Mhz, Mib, Milliwatts, Source
from data_plane.documents.records import Most, Text, Whole

XIDS_MAX = 128
READINGS_MAX = 16

UnixSeconds = Annotated[int, Whole(0, 1 << 40)]
Percent = Annotated[int, Whole(0, 100)]
Celsius = Annotated[int, Whole(-273, 1000)]
Bits = Annotated[int, Whole(0, (1 << 64) - 1)]
Processes = Annotated[int, Whole(0, 1_000_000)]
BasisPoints = Annotated[int, Whole(0, 10_000)]
"""Hundredths of a per cent."""

Group = Literal[
    "usage", "power", "throttle", "recovery", "ecc", "pcie", "nvlink", "fabric", "mig", "profile", "identity"
]


@dataclass(frozen=True)
class Usage:
    memory_total_mib: Mib | None = None
    memory_used_mib: Mib | None = None
    """Without the driver's own memory, if the driver reports that separately."""
    memory_free_mib: Mib | None = None
    utilisation_percent: Percent | None = None
    """The share of the last sampling period (1/6 s to 1 s) in which a kernel ran; null with MIG."""
    memory_utilisation_percent: Percent | None = None
    compute_processes: Processes | None = None
    graphics_processes: Processes | None = None
    memory_reserved_mib: Mib | None = None
    """The driver's own memory; null where the driver counts it as used."""
    encoder_percent: Percent | None = None
    """How busy the video encoders and decoders are."""
    decoder_percent: Percent | None = None


@dataclass(frozen=True)
class Power:
    sm_mhz: Mhz | None = None
    memory_mhz: Mhz | None = None
    power_mw: Milliwatts | None = None
    """The mean of the last second on Ampere and later, GA100 excepted; on older cards the current value."""
    power_instant_mw: Milliwatts | None = None
    power_limit_mw: Milliwatts | None = None
    """The limit in force."""
    energy_mj: Count | None = None
    """Millijoules since the driver was loaded."""
    temperature_c: Celsius | None = None
    memory_temperature_c: Celsius | None = None


@dataclass(frozen=True)
class Throttle:
    """Why clocks are reduced: now, and for how many nanoseconds in total since the driver was loaded."""

    reasons: Bits | None = None
    """1 idle, 2 application clocks, 4 power cap, 8 hardware slowdown, 16 sync boost, 32 software thermal,
    64 hardware thermal, 128 power brake, 256 display."""
    power_ns: Count | None = None
    thermal_ns: Count | None = None
    sync_boost_ns: Count | None = None
    board_limit_ns: Count | None = None
    reliability_ns: Count | None = None
    software_thermal_ns: Count | None = None
    hardware_thermal_ns: Count | None = None
    power_brake_ns: Count | None = None


@dataclass(frozen=True)
class Recovery:
    action: Annotated[int, Whole(0, 255)] | None = None
    """Field 230: 0 none, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset, 5 IMEX domain, 6 bus reset,
    7 system reboot."""


@dataclass(frozen=True)
class Ecc:
    """Memory errors. Volatile counts start when the driver is loaded, aggregate ones with the card's first use."""

    enabled: bool | None = None
    corrected_volatile: Count | None = None
    uncorrected_volatile: Count | None = None
    corrected_aggregate: Count | None = None
    uncorrected_aggregate: Count | None = None
    rows_remapped_corrected: Count | None = None
    rows_remapped_uncorrected: Count | None = None
    rows_pending: bool | None = None
    """A row will be remapped at the next reset of the GPU."""
    rows_failed: bool | None = None
    """A row could not be remapped, because no spare row was left in its bank."""
    pages_retired_corrected: Count | None = None
    """Only on cards before Ampere."""
    pages_retired_uncorrected: Count | None = None
    pages_pending: bool | None = None


@dataclass(frozen=True)
class PcieHealth:
    generation: Annotated[int, Whole(0, 16)] | None = None
    """The current generation. Idle cards reduce it, so only a reading under load is meaningful."""
    width: Annotated[int, Whole(0, 64)] | None = None
    width_max: Annotated[int, Whole(0, 64)] | None = None
    """The most that both the card and its slot support."""
    replays: Count | None = None
    correctable: Count | None = None
    non_fatal: Count | None = None
    fatal: Count | None = None
    generation_max: Annotated[int, Whole(0, 16)] | None = None
    """The highest that both the card and its slot support."""
    sent_bytes: Count | None = None
    """Since the driver was loaded. The counters may begin anew."""
    received_bytes: Count | None = None


@dataclass(frozen=True)
class NvLinkHealth:
    links: Annotated[int, Whole(0, 64)] | None = None
    active: Annotated[int, Whole(0, 64)] | None = None
    crc_flit_errors: Count | None = None
    crc_data_errors: Count | None = None
    replays: Count | None = None
    recoveries: Count | None = None
    """The sum over all links; up to NVLink 4."""
    recoveries_failed: Count | None = None
    """From NVLink 5 on."""
    symbol_errors: Count | None = None
    sent_kib: Count | None = None
    """Data over all links, without the protocol."""
    received_kib: Count | None = None


@dataclass(frozen=True)
class Fabric:
    """The NVSwitch fabric as this GPU sees it. Until it is completed, CUDA calls fail with 802 (system not ready)."""

    state: Literal["not_supported", "not_started", "in_progress", "completed"] | None = None
    status: Annotated[int, Whole(0, 9999)] | None = None
    """NVML's return code once the state is completed; 0 is success."""
    health_mask: Annotated[int, Whole(0, (1 << 32) - 1)] | None = None
    health: Literal["not_supported", "healthy", "unhealthy", "limited"] | None = None


@dataclass(frozen=True)
class MigHealth:
    enabled: bool | None = None
    pending: bool | None = None
    """The mode after the next reset."""
    instances: Annotated[int, Whole(0, 64)] | None = None


@dataclass(frozen=True)
class Profile:
    """What the card's units were busy with since the reading before: Hopper and later, and not with MIG."""

    graphics_active_bp: BasisPoints | None = None
    """The share of the time in which any program ran."""
    tensor_active_bp: BasisPoints | None = None
    """The share of the time in which the tensor cores worked."""
    dram_active_bp: BasisPoints | None = None
    """The share of the memory's bandwidth in use."""


@dataclass(frozen=True)
class GpuHealth:
    index: Annotated[int, Whole(0, GPUS_MAX - 1)]
    uuid: Annotated[str, Text(UUID)] | None
    """Null if the card was lost before it could say."""
    bus_id: Annotated[str, Text(BUS_ID)] | None
    lost: bool
    """The card has fallen off the bus, or does not answer until it is reset. The values below are older then."""
    usage: Usage = Usage()
    power: Power = Power()
    throttle: Throttle = Throttle()
    recovery: Recovery = Recovery()
    ecc: Ecc = Ecc()
    pcie: PcieHealth = PcieHealth()
    nvlink: NvLinkHealth = NvLinkHealth()
    fabric: Fabric = Fabric()
    mig: MigHealth = MigHealth()
    profile: Profile = Profile()


@dataclass(frozen=True)
class Xid:
    """One error that the driver reported. It is listed once, even if both an event and the log reported it."""

    kind: Literal["xid", "sxid"]
    """An `sxid` comes from an NVSwitch."""
    number: Annotated[int, Whole(0, 999_999)]
    bus_id: Annotated[str, Text(BUS_ID)] | None
    """The address of the GPU or the switch; null if the card of an event could no longer say."""
    at: UnixSeconds
    """When it was first noticed, by the machine's clock."""
    heard: Literal["event", "log", "both"]


@dataclass(frozen=True)
class Reading:
    """What the last reading of one group on all GPUs cost."""

    group: Group
    at: UnixSeconds
    microseconds: Annotated[int, Whole(0, 1 << 40)]
    calls: Annotated[int, Whole(0, 1_000_000)]
    """Calls into NVML."""
    refused: Annotated[int, Whole(0, 1_000_000)]
    """Calls that failed with an error other than `not supported`."""


@dataclass(frozen=True)
class Health:
    """One document: the latest reading of every group, for every GPU in the order of their indices."""

    source: Source
    at: UnixSeconds
    gpus: Annotated[tuple[GpuHealth, ...], Most(GPUS_MAX)]
    xids: Annotated[tuple[Xid, ...], Most(XIDS_MAX)]
    """The latest, oldest first."""
    xids_dropped: Count
    """How many older ones were left out because the list was full."""
    events: bool
    """Whether NVML reports errors as they happen, which it does only for `health --watch`."""
    kernel_log: Literal["kmsg", "journal", "unreadable"]
    """Where earlier errors were looked for. If `unreadable`, an empty list of errors means nothing."""
    readings: Annotated[tuple[Reading, ...], Most(READINGS_MAX)]
