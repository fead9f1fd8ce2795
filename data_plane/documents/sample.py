"""What the agent of one machine read at one moment: GPUs, host, inference servers. `sample_delivery.py` sends it.

A sample is a claim of the machine's: a fault that it reports can be believed, that it reports none proves nothing.
Counters are totals since the driver was loaded, the system or the server was started. Null means: not known.

Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from data_plane.documents import records, strict
from data_plane.documents.health import (
    BasisPoints,
    Bits,
    Celsius,
    GpuHealth,
    Health,
    Percent,
    Processes,
    UnixSeconds,
)
from data_plane.documents.inventory import BUS_ID, GPUS_MAX, UUID, Count, Mhz, Mib, Milliwatts, Source
from data_plane.documents.records import Most, Text, Whole

SECONDS = 15
"""Between two samples."""
SAMPLE_BYTES_MAX = 64 * 1024
"""As JSON. With every list full it has about 33 KB."""
SEQUENCE_MAX = (1 << 53) - 1

XIDS_MAX = 32
DISKS_MAX = 16
FILESYSTEMS_MAX = 8
NICS_MAX = 16
SERVERS_MAX = 8

UnixMilliseconds = Annotated[int, Whole(0, 1 << 50)]
Milliseconds = Annotated[int, Whole(0, (1 << 53) - 1)]
Microseconds = Annotated[int, Whole(0, (1 << 53) - 1)]

Engine = Literal["vllm", "sglang", "tensorrt_llm", "triton"]


@dataclass(frozen=True)
class Gpu:
    index: Annotated[int, Whole(0, GPUS_MAX - 1)]
    uuid: Annotated[str, Text(UUID)] | None = None
    """Null if the card was lost before it could say."""
    bus_id: Annotated[str, Text(BUS_ID)] | None = None
    lost: bool = False
    """The card has fallen off the bus, or does not answer until it is reset. The values below are older then."""
    memory_total_mib: Mib | None = None
    memory_used_mib: Mib | None = None
    """Without the driver's own memory, if the driver reports that separately."""
    memory_free_mib: Mib | None = None
    utilisation_percent: Percent | None = None
    """The share of the last sampling period (1/6 s to 1 s) in which a kernel ran; null with MIG."""
    memory_utilisation_percent: Percent | None = None
    processes: Processes | None = None
    """With a context on the card."""
    sm_mhz: Mhz | None = None
    memory_mhz: Mhz | None = None
    power_mw: Milliwatts | None = None
    power_limit_mw: Milliwatts | None = None
    energy_j: Count | None = None
    """Joules."""
    temperature_c: Celsius | None = None
    memory_temperature_c: Celsius | None = None
    throttle_reasons: Bits | None = None
    """Why clocks are reduced now, as bits: see `health.Throttle` and HARDWARE_THROTTLE."""
    throttled_power_ms: Milliseconds | None = None
    """For how long clocks were reduced so far: here by the power limit, which is usual under load."""
    throttled_thermal_ms: Milliseconds | None = None
    throttled_hardware_thermal_ms: Milliseconds | None = None
    throttled_power_brake_ms: Milliseconds | None = None
    ecc_corrected_volatile: Count | None = None
    """Volatile counts start when the driver is loaded, aggregate ones with the card's first use."""
    ecc_uncorrected_volatile: Count | None = None
    ecc_corrected_aggregate: Count | None = None
    ecc_uncorrected_aggregate: Count | None = None
    rows_remapped_corrected: Count | None = None
    rows_remapped_uncorrected: Count | None = None
    rows_pending: bool | None = None
    """A row will be remapped at the next reset of the GPU."""
    rows_failed: bool | None = None
    """A row could not be remapped, because no spare row was left in its bank."""
    recovery_action: Annotated[int, Whole(0, 255)] | None = None
    """0 none; otherwise what the driver demands: see `health.Recovery`."""
    nvlinks: Annotated[int, Whole(0, 64)] | None = None
    nvlinks_active: Annotated[int, Whole(0, 64)] | None = None
    nvlink_crc_flit_errors: Count | None = None
    nvlink_crc_data_errors: Count | None = None
    nvlink_replays: Count | None = None
    nvlink_recoveries: Count | None = None
    pcie_generation: Annotated[int, Whole(0, 16)] | None = None
    """The current generation, which idle cards reduce."""
    pcie_width: Annotated[int, Whole(0, 64)] | None = None
    pcie_width_max: Annotated[int, Whole(0, 64)] | None = None
    pcie_replays: Count | None = None
    pcie_generation_max: Annotated[int, Whole(0, 16)] | None = None
    memory_reserved_mib: Mib | None = None
    """The driver's own memory, if it reports that separately."""
    encoder_percent: Percent | None = None
    decoder_percent: Percent | None = None
    graphics_active_bp: BasisPoints | None = None
    """See `health.Profile`: here and in the next two."""
    tensor_active_bp: BasisPoints | None = None
    dram_active_bp: BasisPoints | None = None
    nvlink_kib_per_second: Count | None = None
    """Data sent and received over all NVLinks, between the last two readings, which are up to a minute apart."""
    pcie_sent_bytes_per_second: Count | None = None
    """Between the last two readings, which are half a minute apart."""
    pcie_received_bytes_per_second: Count | None = None
    fabric_state: Literal["not_supported", "not_started", "in_progress", "completed"] | None = None
    fabric_health: Literal["not_supported", "healthy", "unhealthy", "limited"] | None = None


@dataclass(frozen=True)
class Xid:
    """An error that the driver reported, in the one sample in which it is new."""

    kind: Literal["xid", "sxid"]
    """An `sxid` comes from an NVSwitch."""
    number: Annotated[int, Whole(0, 999_999)]
    bus_id: Annotated[str, Text(BUS_ID)] | None
    """The address of the GPU or the switch; null if the card could no longer say."""
    at: UnixSeconds
    """When it was first noticed, by the machine's clock. The first sample also has those that a readable
    kernel log still shows."""


@dataclass(frozen=True)
class Disk:
    name: Annotated[str, Text("[A-Za-z0-9_-]{1,32}")]
    read_bytes: Count | None = None
    written_bytes: Count | None = None
    busy_ms: Milliseconds | None = None
    """For how long it was at work so far."""
    read_us: Microseconds | None = None
    """The mean time of a read since the previous sample; null if there was none."""
    write_us: Microseconds | None = None


@dataclass(frozen=True)
class Filesystem:
    mount: Annotated[str, Text("/[!-~]{0,63}")]
    size_mib: Annotated[int, Whole(0, 1 << 44)]
    used_mib: Annotated[int, Whole(0, 1 << 44)]
    files_used_bp: BasisPoints | None = None
    """The share of its inodes that are in use."""


@dataclass(frozen=True)
class Nic:
    name: Annotated[str, Text("[!-~]{1,15}")]
    up: bool | None = None
    received_bytes: Count | None = None
    sent_bytes: Count | None = None
    received_dropped: Count | None = None
    sent_dropped: Count | None = None
    received_errors: Count | None = None
    sent_errors: Count | None = None


@dataclass(frozen=True)
class Pressure:
    """Pressure stall information of the kernel: for which share of the last 10 s tasks waited. `full`: all of them."""

    cpu_some_bp: BasisPoints | None = None
    memory_some_bp: BasisPoints | None = None
    memory_full_bp: BasisPoints | None = None
    io_some_bp: BasisPoints | None = None
    io_full_bp: BasisPoints | None = None


@dataclass(frozen=True)
class Host:
    cpus: Annotated[int, Whole(0, 65_536)] | None = None
    cpu_bp: BasisPoints | None = None
    """The share of all CPUs' time since the previous sample in which they worked; null in the first sample."""
    cpu_wait_bp: BasisPoints | None = None
    """Waited for a disk."""
    cpu_steal_bp: BasisPoints | None = None
    """Was taken by the hypervisor."""
    load_1m_hundredths: Annotated[int, Whole(0, 1 << 32)] | None = None
    memory_total_mib: Annotated[int, Whole(0, 1 << 32)] | None = None
    memory_available_mib: Annotated[int, Whole(0, 1 << 32)] | None = None
    swap_total_mib: Annotated[int, Whole(0, 1 << 32)] | None = None
    swap_free_mib: Annotated[int, Whole(0, 1 << 32)] | None = None
    swapped_in_pages: Count | None = None
    oom_kills: Count | None = None
    """Processes that the kernel killed because memory ran out, in a control group or altogether."""
    processes: Annotated[int, Whole(0, 1 << 32)] | None = None
    pressure: Pressure = Pressure()
    disks: Annotated[tuple[Disk, ...], Most(DISKS_MAX)] = ()
    filesystems: Annotated[tuple[Filesystem, ...], Most(FILESYSTEMS_MAX)] = ()
    nics: Annotated[tuple[Nic, ...], Most(NICS_MAX)] = ()


@dataclass(frozen=True)
class Server:
    """An inference server on the machine, by its own Prometheus metrics. Sums over its models."""

    port: Annotated[int, Whole(1, 65_535)]
    engine: Engine
    kv_cache_bp: BasisPoints | None = None
    """The share of the KV cache in use; of several caches the highest."""
    running: Count | None = None
    """Requests."""
    waiting: Count | None = None
    preemptions: Count | None = None
    """Requests that had to give back their KV cache, so far."""
    prompt_tokens: Count | None = None
    generation_tokens: Count | None = None
    prompt_tokens_per_second: Count | None = None
    """Since the previous sample."""
    generation_tokens_per_second: Count | None = None
    ttft_us: Microseconds | None = None
    """The mean time to the first token since the previous sample; null if there was no request."""
    itl_us: Microseconds | None = None
    """The mean time between two tokens since the previous sample."""
    pod_ip: Annotated[str, Text("[0-9]{1,3}([.][0-9]{1,3}){3}")] | None = None
    """The address of its pod, on a node of a cluster; null for a server that listens on the machine itself."""


@dataclass(frozen=True)
class Sample:
    sequence: Annotated[int, Whole(1, SEQUENCE_MAX)]
    """Grows with each sample of a machine, also when its agent is installed anew."""
    at_ms: UnixMilliseconds
    """By the machine's clock."""
    boot: Annotated[str, Text("[0-9a-f-]{0,36}")]
    """The kernel's boot id, which changes whenever the machine restarts. Empty if it cannot be read."""
    uptime_seconds: Annotated[int, Whole(0, 1 << 40)]
    spooled: Annotated[int, Whole(0, 1 << 20)]
    """How many earlier samples were waiting to be delivered."""
    dropped: Annotated[int, Whole(0, SEQUENCE_MAX)]
    """How many samples were dropped so far, because the spool was full."""
    source: Source | None
    """Where the values of GPUs come from; null if they could not be read."""
    failure: Annotated[str, Text("[a-z_]{1,40}")] | None
    """Why the GPUs could not be read: a code of `protocol.Failure`. There are no GPUs then."""
    gpus: Annotated[tuple[Gpu, ...], Most(GPUS_MAX)]
    """In the order of their indices. What is costly to read may be a minute old."""
    xids: Annotated[tuple[Xid, ...], Most(XIDS_MAX)]
    """New since the previous sample: the latest, oldest first."""
    xids_more: Count
    """How many other new ones were left out."""
    events: bool
    """Whether the driver reports errors as they happen."""
    kernel_log: Literal["kmsg", "journal", "unreadable"] | None
    """Where errors are looked for besides. Without events and log, an empty list of errors means nothing."""
    host: Host
    servers: Annotated[tuple[Server, ...], Most(SERVERS_MAX)]


Sign = Literal[
    "gpus_unreadable",
    "gpu_lost",
    "xid",
    "recovery_action",
    "row_remap_failed",
    "row_remap_pending",
    "uncorrected_ecc",
    "hardware_throttle",
    "fabric_unhealthy",
    "nvlink_down",
    "pcie_reduced",
]
SIGNS: "tuple[Sign, ...]" = get_args(Sign)
HARDWARE_THROTTLE = 8 | 64 | 128
"""The bits of `throttle_reasons` that mean a fault: hardware slowdown, hardware thermal slowdown, power brake."""
LOADED_PERCENT = 20
"""From which utilisation on a card's PCIe link is expected at its best."""


def signs(sample: Sample) -> "tuple[Sign, ...]":
    """What in a sample is a reason to look at the machine's health, in the order of SIGNS."""
    found: set[Sign] = {sign for gpu in sample.gpus for sign in _signs_of(gpu)}
    if sample.failure is not None:
        found.add("gpus_unreadable")
    if sample.xids:
        found.add("xid")
    return tuple(sign for sign in SIGNS if sign in found)


def notable(sample: Sample) -> bool:
    """Whether there is a reason to look at the machine's health now."""
    return bool(signs(sample))


def _signs_of(gpu: Gpu) -> "Iterator[Sign]":
    if gpu.lost:
        yield "gpu_lost"
    if gpu.recovery_action:
        yield "recovery_action"
    if gpu.rows_failed:
        yield "row_remap_failed"
    if gpu.rows_pending:
        yield "row_remap_pending"
    if gpu.ecc_uncorrected_volatile:
        yield "uncorrected_ecc"
    if (gpu.throttle_reasons or 0) & HARDWARE_THROTTLE:
        yield "hardware_throttle"
    if gpu.fabric_health in ("unhealthy", "limited"):
        yield "fabric_unhealthy"
    if (
        0 < (gpu.nvlinks_active or 0) < (gpu.nvlinks or 0)
    ):  # A card without bridges has links, and none is up.
        yield "nvlink_down"
    if (gpu.utilisation_percent or 0) >= LOADED_PERCENT and _pcie_reduced(gpu):
        yield "pcie_reduced"


def _pcie_reduced(gpu: Gpu) -> bool:
    pairs = ((gpu.pcie_generation, gpu.pcie_generation_max), (gpu.pcie_width, gpu.pcie_width_max))
    return any(now is not None and best is not None and now < best for now, best in pairs)


Rates = Mapping[str, "int | None"]
"""Fields of a card that are rates, and their values."""


def sample_gpus(health: Health, rates: "Mapping[str, Rates] | None" = None) -> "tuple[Gpu, ...]":
    """What a sample says about GPUs, from the agent's health document and the rates by UUID."""
    return tuple(_gpu(card, (rates or {}).get(card.uuid or "", {})) for card in health.gpus)


def _gpu(card: GpuHealth, rates: Rates) -> Gpu:
    usage, power, throttle, ecc = card.usage, card.power, card.throttle, card.ecc
    return Gpu(
        index=card.index,
        uuid=card.uuid,
        bus_id=card.bus_id,
        lost=card.lost,
        memory_total_mib=usage.memory_total_mib,
        memory_used_mib=usage.memory_used_mib,
        memory_free_mib=usage.memory_free_mib,
        utilisation_percent=usage.utilisation_percent,
        memory_utilisation_percent=usage.memory_utilisation_percent,
        processes=_sum(usage.compute_processes, usage.graphics_processes),
        sm_mhz=power.sm_mhz,
        memory_mhz=power.memory_mhz,
        power_mw=power.power_mw,
        power_limit_mw=power.power_limit_mw,
        energy_j=None if power.energy_mj is None else power.energy_mj // 1000,
        temperature_c=power.temperature_c,
        memory_temperature_c=power.memory_temperature_c,
        throttle_reasons=throttle.reasons,
        throttled_power_ms=_ms(throttle.power_ns),
        throttled_thermal_ms=_ms(throttle.thermal_ns),
        throttled_hardware_thermal_ms=_ms(throttle.hardware_thermal_ns),
        throttled_power_brake_ms=_ms(throttle.power_brake_ns),
        ecc_corrected_volatile=ecc.corrected_volatile,
        ecc_uncorrected_volatile=ecc.uncorrected_volatile,
        ecc_corrected_aggregate=ecc.corrected_aggregate,
        ecc_uncorrected_aggregate=ecc.uncorrected_aggregate,
        rows_remapped_corrected=ecc.rows_remapped_corrected,
        rows_remapped_uncorrected=ecc.rows_remapped_uncorrected,
        rows_pending=ecc.rows_pending,
        rows_failed=ecc.rows_failed,
        recovery_action=card.recovery.action,
        nvlinks=card.nvlink.links,
        nvlinks_active=card.nvlink.active,
        nvlink_crc_flit_errors=card.nvlink.crc_flit_errors,
        nvlink_crc_data_errors=card.nvlink.crc_data_errors,
        nvlink_replays=card.nvlink.replays,
        nvlink_recoveries=card.nvlink.recoveries,
        pcie_generation=card.pcie.generation,
        pcie_width=card.pcie.width,
        pcie_width_max=card.pcie.width_max,
        pcie_replays=card.pcie.replays,
        pcie_generation_max=card.pcie.generation_max,
        memory_reserved_mib=usage.memory_reserved_mib,
        encoder_percent=usage.encoder_percent,
        decoder_percent=usage.decoder_percent,
        graphics_active_bp=card.profile.graphics_active_bp,
        tensor_active_bp=card.profile.tensor_active_bp,
        dram_active_bp=card.profile.dram_active_bp,
        nvlink_kib_per_second=rates.get("nvlink_kib_per_second"),
        pcie_sent_bytes_per_second=rates.get("pcie_sent_bytes_per_second"),
        pcie_received_bytes_per_second=rates.get("pcie_received_bytes_per_second"),
        fabric_state=card.fabric.state,
        fabric_health=card.fabric.health,
    )


def _sum(one: "int | None", other: "int | None") -> "int | None":
    return None if one is None and other is None else (one or 0) + (other or 0)


def _ms(ns: "int | None") -> "int | None":
    return None if ns is None else ns // 1_000_000


def encode_sample(sample: Sample) -> bytes:
    """As JSON, for the spool and the database."""
    return json.dumps(sample, default=vars, separators=(",", ":")).encode()


def read_sample(content: bytes) -> Sample:
    """A sample of the current version. Raises strict.Malformed, and nothing else."""
    sample = records.read(Sample, strict.load(content, SAMPLE_BYTES_MAX), "sample")
    check(sample)
    return sample


def check(sample: Sample) -> None:
    """Whether its values fit each other. Raises strict.Malformed."""
    if [gpu.index for gpu in sample.gpus] != list(range(len(sample.gpus))):
        raise strict.Malformed("GPU indices are not 0, 1, 2, ...")
    uuids = [gpu.uuid for gpu in sample.gpus if gpu.uuid is not None]
    if len(set(uuids)) != len(uuids):
        raise strict.Malformed("two GPUs share a UUID")
    if sample.gpus and sample.source is None:
        raise strict.Malformed("GPUs without a source")
    places = [(server.pod_ip, server.port) for server in sample.servers]
    if len(set(places)) != len(places):
        raise strict.Malformed("two servers share a port")
