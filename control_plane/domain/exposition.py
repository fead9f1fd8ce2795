"""A sample as Prometheus knows it: the names of dcgm-exporter for GPUs, vLLM's for inference servers, and ours.

Dashboards and alert rules that were made for dcgm-exporter work on them: names, units and labels are those of its
default counters (etc/default-counters.csv there, of which docs/telemetry.md says which are left out), and some of those
that it has besides. Labels that name the lease are ours.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.health import Verdict
from control_plane.domain.reading import GpuReading, HostReading, Reading, ServerReading

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric."""

    name: str
    kind: str
    """`gauge` or `counter`."""
    help: str


@dataclass(frozen=True, slots=True)
class Point:
    """A value of a metric."""

    family: Family
    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class Named:
    """What names the machine of a sample."""

    lease: str
    lease_id: str
    project: str
    organization_id: str
    machine_id: str
    region: str
    gpu_model: str

    def labels(self) -> Labels:
        return (
            ("Hostname", self.lease),
            ("lease", self.lease),
            ("lease_id", self.lease_id),
            ("project", self.project),
            ("organization_id", self.organization_id),
            ("machine_id", self.machine_id),
            ("region", self.region),
        )


def _gauge(name: str, text: str) -> Family:
    return Family(name, "gauge", text)


def _counter(name: str, text: str) -> Family:
    return Family(name, "counter", text)


_OfGpu = Callable[[GpuReading], float | bool | None]
_GPU: tuple[tuple[Family, _OfGpu], ...] = (
    (_gauge("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz)."), lambda g: g.sm_mhz),
    (_gauge("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz)."), lambda g: g.memory_mhz),
    (_gauge("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C)."), lambda g: g.temperature_c),
    (_gauge("DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature (in C)."), lambda g: g.memory_temperature_c),
    (_gauge("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W)."), lambda g: _over(g.power_mw, 1000)),
    (
        _counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ)."),
        lambda g: _times(g.energy_j, 1000),
    ),
    (_counter("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "Total number of PCIe retries."), lambda g: g.pcie_replays),
    (_gauge("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %)."), lambda g: g.utilisation_percent),
    (
        _gauge("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %)."),
        lambda g: g.memory_utilisation_percent,
    ),
    (_gauge("DCGM_FI_DEV_ENC_UTIL", "Encoder utilization (in %)."), lambda g: g.encoder_percent),
    (_gauge("DCGM_FI_DEV_DEC_UTIL", "Decoder utilization (in %)."), lambda g: g.decoder_percent),
    (_gauge("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB)."), lambda g: g.memory_free_mib),
    (_gauge("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB)."), lambda g: g.memory_used_mib),
    (
        _gauge("DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB)."),
        lambda g: g.memory_reserved_mib,
    ),
    (
        # DCGM divides kibibytes by 1,000, and calls this rate a counter.
        _gauge("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "Data over all NVLinks, both ways (in MB/s)."),
        lambda g: _over(g.nvlink_kib_per_second, 1000),
    ),
    (
        _gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Ratio of time the graphics engine is active."),
        lambda g: _over(g.graphics_active_bp, 10_000),
    ),
    (
        _gauge("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Ratio of cycles the tensor pipe is active."),
        lambda g: _over(g.tensor_active_bp, 10_000),
    ),
    (
        _gauge("DCGM_FI_PROF_DRAM_ACTIVE", "Ratio of cycles the device memory interface is active."),
        lambda g: _over(g.dram_active_bp, 10_000),
    ),
    (
        _gauge("DCGM_FI_PROF_PCIE_TX_BYTES", "Rate of data sent over PCIe (in bytes per second)."),
        lambda g: g.pcie_sent_bytes_per_second,
    ),
    (
        _gauge("DCGM_FI_PROF_PCIE_RX_BYTES", "Rate of data received over PCIe (in bytes per second)."),
        lambda g: g.pcie_received_bytes_per_second,
    ),
    (
        _counter(
            "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for uncorrectable errors."
        ),
        lambda g: g.rows_remapped_uncorrected,
    ),
    (
        _counter("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for correctable errors."),
        lambda g: g.rows_remapped_corrected,
    ),
    (
        _gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed."),
        lambda g: g.rows_failed,
    ),
    (
        _gauge("DCGM_FI_DEV_ROW_REMAP_PENDING", "Whether a row waits to be remapped."),
        lambda g: g.rows_pending,
    ),
    (
        _counter("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "Total number of single-bit volatile ECC errors."),
        lambda g: g.ecc_corrected_volatile,
    ),
    (
        _counter("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Total number of double-bit volatile ECC errors."),
        lambda g: g.ecc_uncorrected_volatile,
    ),
    (
        _counter("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "Total number of single-bit persistent ECC errors."),
        lambda g: g.ecc_corrected_aggregate,
    ),
    (
        _counter("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "Total number of double-bit persistent ECC errors."),
        lambda g: g.ecc_uncorrected_aggregate,
    ),
    (
        _counter("DCGM_FI_DEV_POWER_VIOLATION", "Throttling duration due to power constraints (in us)."),
        lambda g: _times(g.throttled_power_ms, 1000),
    ),
    (
        _counter("DCGM_FI_DEV_THERMAL_VIOLATION", "Throttling duration due to thermal constraints (in us)."),
        lambda g: _times(g.throttled_thermal_ms, 1000),
    ),
    (
        _gauge("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "Current clock event reasons (bitmask)."),
        lambda g: g.throttle_reasons,
    ),
    (
        _counter(
            "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "Total number of NVLink flow-control CRC errors."
        ),
        lambda g: g.nvlink_crc_flit_errors,
    ),
    (
        _counter("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "Total number of NVLink data CRC errors."),
        lambda g: g.nvlink_crc_data_errors,
    ),
    (
        _counter("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "Total number of NVLink retries."),
        lambda g: g.nvlink_replays,
    ),
    (
        _counter("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "Total number of NVLink recovery errors."),
        lambda g: g.nvlink_recoveries,
    ),
    (_gauge("splitplane_gpu_lost", "Whether the GPU does not answer its driver."), lambda g: g.lost),
    (_gauge("splitplane_gpu_nvlinks_active", "NVLinks that are up."), lambda g: g.nvlinks_active),
    (_gauge("splitplane_gpu_nvlinks", "NVLinks of the GPU."), lambda g: g.nvlinks),
    (_gauge("splitplane_gpu_power_limit_watts", "Power limit."), lambda g: _over(g.power_limit_mw, 1000)),
    (
        _gauge("splitplane_gpu_recovery_action", "What the driver demands; 0: nothing."),
        lambda g: g.recovery_action,
    ),
)
_XID = _gauge("DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.")
_OfHost = Callable[[HostReading], float | None]
_MIB = 1 << 20
_HOST: tuple[tuple[Family, _OfHost], ...] = (
    (
        _gauge("splitplane_host_cpu_ratio", "Share of all CPUs' time in which they worked."),
        lambda h: _over(h.cpu_bp, 10_000),
    ),
    (
        _gauge("splitplane_host_memory_bytes", "Memory of the machine."),
        lambda h: _times(h.memory_total_mib, _MIB),
    ),
    (
        _gauge("splitplane_host_memory_available_bytes", "Memory that programs can have."),
        lambda h: _times(h.memory_available_mib, _MIB),
    ),
    (
        _counter("splitplane_host_oom_kills_total", "Processes that the kernel killed for memory."),
        lambda h: h.oom_kills,
    ),
)
_DISK = (
    _counter("splitplane_host_disk_read_bytes_total", "Bytes read from a disk."),
    _counter("splitplane_host_disk_written_bytes_total", "Bytes written to a disk."),
)
_FILESYSTEM = _gauge("splitplane_host_filesystem_used_ratio", "How full a file system is.")
_NIC = (
    _counter("splitplane_host_network_received_bytes_total", "Bytes received by a network interface."),
    _counter("splitplane_host_network_sent_bytes_total", "Bytes sent by a network interface."),
)
_OfServer = Callable[[ServerReading], float | None]
_SERVER: tuple[tuple[Family, _OfServer], ...] = (
    (
        _gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage."),
        lambda s: _over(s.kv_cache_bp, 10_000),
    ),
    (
        _gauge("vllm:num_requests_running", "Number of requests in model execution batches."),
        lambda s: s.running,
    ),
    (_gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed."), lambda s: s.waiting),
    (_counter("vllm:num_preemptions_total", "Cumulative number of preemptions."), lambda s: s.preemptions),
    (_counter("vllm:prompt_tokens_total", "Number of prefill tokens processed."), lambda s: s.prompt_tokens),
    (
        _counter("vllm:generation_tokens_total", "Number of generation tokens processed."),
        lambda s: s.generation_tokens,
    ),
)
_SAMPLE_AT = _gauge("splitplane_sample_timestamp_seconds", "When the machine was read, by our clock.")
_DROPPED = _counter(
    "splitplane_samples_dropped_total", "Samples that the machine could not keep until it delivered."
)
_VERDICT = _gauge(
    "splitplane_machine_health", "1 for the verdict about the machine's health, 0 for the others."
)
FAMILIES: tuple[Family, ...] = (
    *(family for family, _ in _GPU),
    _XID,
    *(family for family, _ in _HOST),
    *_DISK,
    _FILESYSTEM,
    *_NIC,
    *(family for family, _ in _SERVER),
    _SAMPLE_AT,
    _DROPPED,
    _VERDICT,
)
"""Every metric of a sample."""


def points(reading: Reading, named: Named, *, at: datetime, verdict: Verdict | None) -> Iterator[Point]:
    """The values of a sample. What a machine does not tell is left out."""
    labels = named.labels()
    for gpu in reading.gpus:
        of_gpu = (*_gpu_labels(gpu, named), *labels)
        for family, value in _GPU:
            yield from _known(family, of_gpu, value(gpu))
        last = [xid.number for xid in reading.xids if xid.bus_id is not None and xid.bus_id == gpu.bus_id]
        yield Point(_XID, of_gpu, float(last[-1] if last else 0))
    yield from _host(reading.host, labels)
    for server in reading.servers:
        pod = () if server.pod_ip is None else (("pod_ip", server.pod_ip),)
        of_server = (("engine", server.engine), *pod, ("port", str(server.port)), *labels)
        for family, figure in _SERVER:
            yield from _known(family, of_server, figure(server))
    yield Point(_SAMPLE_AT, labels, at.timestamp())
    yield Point(_DROPPED, labels, float(reading.dropped))
    for word in Verdict:
        yield Point(_VERDICT, (("verdict", word.value), *labels), float(word is (verdict or Verdict.HEALTHY)))


def silent_point(named: Named, *, at: datetime) -> Point:
    """What is said of a machine whose last sample is too old to say how it is."""
    return Point(_SAMPLE_AT, named.labels(), at.timestamp())


def _gpu_labels(gpu: GpuReading, named: Named) -> Labels:
    return (
        ("gpu", str(gpu.index)),
        ("UUID", gpu.uuid or ""),
        ("pci_bus_id", gpu.bus_id or ""),
        ("device", f"nvidia{gpu.index}"),
        ("modelName", named.gpu_model),
    )


def _host(host: HostReading, labels: Labels) -> Iterator[Point]:
    for family, value in _HOST:
        yield from _known(family, labels, value(host))
    # A machine may name one twice, and a series has one value at a time.
    for disk in {disk.name: disk for disk in host.disks}.values():
        of_disk = (("device", disk.name), *labels)
        yield from _known(_DISK[0], of_disk, disk.read_bytes)
        yield from _known(_DISK[1], of_disk, disk.written_bytes)
    for system in {system.mount: system for system in host.filesystems}.values():
        if system.size_mib:
            yield Point(
                _FILESYSTEM, (("mountpoint", system.mount), *labels), system.used_mib / system.size_mib
            )
    for nic in {nic.name: nic for nic in host.nics}.values():
        of_nic = (("device", nic.name), *labels)
        yield from _known(_NIC[0], of_nic, nic.received_bytes)
        yield from _known(_NIC[1], of_nic, nic.sent_bytes)


def _known(family: Family, labels: Labels, value: float | None) -> Iterator[Point]:
    if value is not None:
        yield Point(family, labels, float(value))


def _over(value: int | None, divisor: int) -> float | None:
    return None if value is None else value / divisor


def _times(value: int | None, factor: int) -> float | None:
    return None if value is None else float(value * factor)


def exposed(found: Iterable[Point], families: Sequence[Family] = FAMILIES) -> str:
    """Points in Prometheus' text format, version 0.0.4, one family after the other."""
    lines: dict[str, list[str]] = {family.name: [] for family in families}
    for point in found:
        lines[point.family.name].append(_line(point))
    text: list[str] = []
    for family in families:
        if lines[family.name]:
            text.append(f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}")
            text += lines[family.name]
    return "\n".join([*text, ""])


def _line(point: Point) -> str:
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in point.labels)
    return f"{point.family.name}{{{labels}}} {number(point.value)}"


def number(value: float) -> str:
    """A value as the text format has it: whole numbers without a point."""
    return str(int(value)) if value.is_integer() else repr(value)


_ESCAPED = re.compile(r'[\\"\n]')


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: {"\\": r"\\", '"': r"\"", "\n": r"\n"}[found[0]], text)
