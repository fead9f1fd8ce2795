"""What the control plane knows of samples: the values that it shows and exports.

The format is `data_plane/documents/sample.py`, which says what each value is. Older agents may not send all of them, so
each has a default; what a newer agent sends besides is passed over.
"""

from collections.abc import Sequence
from dataclasses import dataclass

THROTTLES = (
    (1 << 2, "power_limit"),
    (1 << 3, "hardware_slowdown"),
    (1 << 4, "sync_boost"),
    (1 << 5, "thermal"),
    (1 << 6, "hardware_thermal"),
    (1 << 7, "power_brake"),
)
"""Bits of NVML's clock event reasons (nvmlClocksEventReason*) that reduce the clocks of a GPU at work."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    index: int
    uuid: str | None = None
    bus_id: str | None = None
    lost: bool = False
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    memory_free_mib: int | None = None
    utilisation_percent: int | None = None
    memory_utilisation_percent: int | None = None
    processes: int | None = None
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    energy_j: int | None = None
    temperature_c: int | None = None
    memory_temperature_c: int | None = None
    throttle_reasons: int | None = None
    throttled_power_ms: int | None = None
    throttled_thermal_ms: int | None = None
    throttled_hardware_thermal_ms: int | None = None
    throttled_power_brake_ms: int | None = None
    ecc_corrected_volatile: int | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_corrected_aggregate: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    rows_remapped_corrected: int | None = None
    rows_remapped_uncorrected: int | None = None
    rows_pending: bool | None = None
    rows_failed: bool | None = None
    recovery_action: int | None = None
    nvlinks: int | None = None
    nvlinks_active: int | None = None
    nvlink_crc_flit_errors: int | None = None
    nvlink_crc_data_errors: int | None = None
    nvlink_replays: int | None = None
    nvlink_recoveries: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    memory_reserved_mib: int | None = None
    encoder_percent: int | None = None
    decoder_percent: int | None = None
    graphics_active_bp: int | None = None
    tensor_active_bp: int | None = None
    dram_active_bp: int | None = None
    nvlink_kib_per_second: int | None = None
    pcie_sent_bytes_per_second: int | None = None
    pcie_received_bytes_per_second: int | None = None
    fabric_state: str | None = None
    fabric_health: str | None = None

    def throttles(self) -> tuple[str, ...] | None:
        """Why its clocks are reduced; None if that is not known."""
        reasons = self.throttle_reasons
        return None if reasons is None else tuple(word for bit, word in THROTTLES if reasons & bit)


@dataclass(frozen=True, slots=True)
class XidReading:
    kind: str
    number: int
    bus_id: str | None = None
    at: int = 0


@dataclass(frozen=True, slots=True)
class DiskReading:
    name: str
    read_bytes: int | None = None
    written_bytes: int | None = None
    busy_ms: int | None = None
    read_us: int | None = None
    write_us: int | None = None


@dataclass(frozen=True, slots=True)
class FilesystemReading:
    mount: str
    size_mib: int
    used_mib: int
    files_used_bp: int | None = None


@dataclass(frozen=True, slots=True)
class NicReading:
    name: str
    up: bool | None = None
    received_bytes: int | None = None
    sent_bytes: int | None = None
    received_dropped: int | None = None
    sent_dropped: int | None = None
    received_errors: int | None = None
    sent_errors: int | None = None


@dataclass(frozen=True, slots=True)
class PressureReading:
    cpu_some_bp: int | None = None
    memory_some_bp: int | None = None
    memory_full_bp: int | None = None
    io_some_bp: int | None = None
    io_full_bp: int | None = None


@dataclass(frozen=True, slots=True)
class HostReading:
    cpus: int | None = None
    cpu_bp: int | None = None
    cpu_wait_bp: int | None = None
    cpu_steal_bp: int | None = None
    load_1m_hundredths: int | None = None
    memory_total_mib: int | None = None
    memory_available_mib: int | None = None
    swap_total_mib: int | None = None
    swap_free_mib: int | None = None
    oom_kills: int | None = None
    processes: int | None = None
    pressure: PressureReading = PressureReading()
    disks: Sequence[DiskReading] = ()
    filesystems: Sequence[FilesystemReading] = ()
    nics: Sequence[NicReading] = ()


@dataclass(frozen=True, slots=True)
class ServerReading:
    port: int
    engine: str
    kv_cache_bp: int | None = None
    running: int | None = None
    waiting: int | None = None
    preemptions: int | None = None
    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    prompt_tokens_per_second: int | None = None
    generation_tokens_per_second: int | None = None
    ttft_us: int | None = None
    itl_us: int | None = None
    pod_ip: str | None = None
    """None for a server that listens on the machine itself."""

    @property
    def place(self) -> tuple[str | None, int]:
        """Where it listens; two servers of a machine share none."""
        return (self.pod_ip, self.port)


@dataclass(frozen=True, slots=True)
class Reading:
    source: str | None = None
    failure: str | None = None
    uptime_seconds: int = 0
    spooled: int = 0
    dropped: int = 0
    gpus: Sequence[GpuReading] = ()
    xids: Sequence[XidReading] = ()
    host: HostReading = HostReading()
    servers: Sequence[ServerReading] = ()
