"""What machines of leases measured, on the wire: metrics, health, and counts of healthy machines."""

from typing import Annotated

from control_plane.wire.common import Timestamp, View
from control_plane.wire.enforcement import DetectorWord
from control_plane.wire.repairs import FaultSourceWord, FaultWord, VerdictWord
from control_plane.wire.vocabulary import LeaseIdText, MachineIdText, one_of

CheckWord = Annotated[
    str,
    one_of(
        "HealthCheck",
        "What looks at a machine.",
        samples="Its agent reads the GPUs and the host every 15 s, and sends samples.",
        heartbeat="Its agent reports that it is there.",
        look="We read the GPUs ourselves, over SSH, when something calls for it.",
        provider="Its provider lists it.",
        proof="Its GPUs answered a challenge.",
    ),
]
GroupWord = Annotated[
    str,
    one_of(
        "GroupedBy",
        "What machines are grouped by.",
        project="The project of their lease.",
        sku="The SKU of their lease.",
        region="The region where they are.",
    ),
]


class GpuMetrics(View):
    """What a GPU measured. Null: its driver does not tell."""

    index: int
    """The number of the GPU in its machine, from 0."""
    uuid: str | None
    """The GPU's own id."""
    lost: bool
    """Whether it does not answer its driver. What it measured is older then."""
    utilisation_percent: int | None
    """The share of the last moments in which it computed; null with MIG."""
    memory_used_mib: int | None
    """Memory in use, in MiB."""
    memory_total_mib: int | None
    """All of its memory, in MiB."""
    power_watts: float | None
    """What it draws, in watts."""
    power_limit_watts: float | None
    """What it may draw, in watts."""
    temperature_celsius: int | None
    """Its temperature."""
    memory_temperature_celsius: int | None
    """The temperature of its memory."""
    sm_mhz: int | None
    """The clock of its processors, in MHz."""
    throttled_by: tuple[str, ...] | None
    """Why its clocks are reduced now: `power_limit` is usual under load, what contains `hardware` is a fault."""
    ecc_uncorrected: int | None
    """Memory errors since its driver was loaded that could not be corrected."""
    nvlinks_active: int | None
    """How many of its NVLinks are up."""
    nvlinks: int | None
    """How many NVLinks it has."""
    pcie_generation: int | None
    """The current generation of its PCIe link, which is lower while it is idle."""
    pcie_width: int | None
    """How many lanes of PCIe it uses."""


class ServerMetrics(View):
    """What an inference server on the machine measured, by its own metrics."""

    port: int
    """Where it listens."""
    pod_ip: str | None
    """The address of its pod, on a node of a cluster; null for a server on the machine itself."""
    engine: str
    """`vllm`, `sglang`, `tensorrt_llm` or `triton`."""
    kv_cache_percent: float | None
    """The share of its KV cache in use."""
    running: int | None
    """Requests that it works on."""
    waiting: int | None
    """Requests that wait."""
    generated_tokens_per_second: int | None
    """Tokens that it generates a second."""
    prompt_tokens_per_second: int | None
    """Tokens of prompts that it reads a second."""
    first_token_milliseconds: float | None
    """The mean time to the first token of an answer."""


class HostMetrics(View):
    """What the machine itself measured."""

    cpus: int | None
    """How many CPUs it has."""
    cpu_percent: float | None
    """The share of all CPUs' time in which they worked."""
    memory_total_mib: int | None
    """Its memory, in MiB."""
    memory_available_mib: int | None
    """Memory that programs can have, in MiB."""
    disk_used_percent: float | None
    """How full the fullest of its file systems is."""


class SampleView(View):
    """What a machine measured at one moment. It is what the machine says."""

    machine_id: MachineIdText
    """The machine."""
    at: Timestamp
    """When it was measured, by our clock."""
    age_seconds: float
    """How long ago that is."""
    clock_ahead_seconds: float
    """How far the machine's own clock is ahead of ours, roughly; negative when it is behind."""
    failure: str | None
    """Why its GPUs could not be read; null when they could."""
    gpus: tuple[GpuMetrics, ...]
    """Its GPUs."""
    host: HostMetrics
    """The machine itself."""
    servers: tuple[ServerMetrics, ...]
    """The inference servers that run on it."""


class MetricsPoint(View):
    """The last sample of a step, in short. Null: it is not known."""

    at: Timestamp
    """When it was measured, by our clock."""
    machine_id: MachineIdText
    """The machine."""
    gpu_utilisation_percent: float | None
    """The mean over the GPUs."""
    gpu_memory_used_mib: int | None
    """The sum over the GPUs."""
    gpu_power_watts: float | None
    """The sum over the GPUs."""
    gpu_temperature_celsius: int | None
    """The highest of the GPUs."""
    cpu_percent: float | None
    """The share of all CPUs' time in which they worked."""
    memory_used_mib: int | None
    """Memory of the machine in use."""
    kv_cache_percent: float | None
    """The highest share of a KV cache in use, of the inference servers."""
    requests_running: int | None
    """The sum over the inference servers."""
    requests_waiting: int | None
    """The sum over the inference servers."""
    generated_tokens_per_second: int | None
    """The sum over the inference servers."""


class MetricsWindow(View):
    """Samples of a while."""

    since: Timestamp
    """Where it begins."""
    until: Timestamp
    """Where it ends."""
    step_seconds: int
    """How far its points are apart."""
    points: tuple[MetricsPoint, ...]
    """The last sample of each step, oldest first. A step without a sample has none."""


class LeaseMetrics(View):
    """What the machine of a lease measured."""

    lease_id: LeaseIdText
    """The lease."""
    latest: SampleView | None
    """The last sample of its machine; null before the first."""
    window: MetricsWindow
    """How it went."""


class HealthCheckView(View):
    """What looked at the machine, when, and what came of it."""

    check: CheckWord
    """What looks."""
    at: Timestamp | None
    """When it looked last; null when it never did."""
    age_seconds: float | None
    """How long ago that is."""
    ok: bool | None
    """Whether it saw nothing wrong, and is not overdue; null when there is nothing to say."""
    detail: str
    """What came of it, as a sentence."""


class OpenFaultView(View):
    """A fault of a machine that is not over."""

    fault: FaultWord
    """What is wrong."""
    gpu: int | None
    """The index of the GPU; null when it concerns the machine."""
    xid: int | None
    """The number of the driver's error; null when it is none."""
    verdict: VerdictWord
    """What it makes of the machine: `healthy` while it has not been reported for long enough, or changes nothing."""
    source: FaultSourceWord
    """Who reported it first."""
    first_at: Timestamp
    """When it was reported first."""
    age_seconds: float
    """How long ago that is."""
    last_at: Timestamp
    """When it was reported last."""
    confirmed_at: Timestamp | None
    """When we saw it ourselves first; null while only the machine says so."""
    detail: str
    """What exactly, as a sentence."""


class OpenAlertView(View):
    """A condition of a lease that was found and is not over."""

    alert: DetectorWord
    """What was found."""
    since: Timestamp
    """Since when it is so."""
    age_seconds: float
    """How long that is."""
    why: str
    """What is done about it, or what that waits for."""


class LeaseMachineHealth(View):
    """How the machine of a lease is."""

    machine_id: MachineIdText
    """The machine."""
    verdict: VerdictWord
    """How healthy it is."""
    fault: FaultWord | None
    """The code of the worst fault; null when none is known."""
    why: str | None
    """That fault as a sentence."""
    since: Timestamp | None
    """Since when the verdict is so; null when no fault was ever found."""
    judged_at: Timestamp | None
    """When it was judged last."""
    faults: tuple[OpenFaultView, ...]
    """All open faults, the oldest first; `fault` is the worst of them."""
    alerts: tuple[OpenAlertView, ...]
    """What enforcement found about the lease on this machine and is not over, the oldest first."""
    checks: tuple[HealthCheckView, ...]
    """The evidence, with its age. Losing contact is no fault, so silence alone changes no verdict."""


class LeaseHealth(View):
    """How the machines of a lease are: one, and for a moment two while one is replaced; none before the first."""

    lease_id: LeaseIdText
    """The lease."""
    machines: tuple[LeaseMachineHealth, ...]
    """Its machines."""


class HealthGroupView(View):
    """Machines that leases have now, counted by how healthy they are."""

    name: str | None
    """The name of the group; null for all."""
    machines: int
    """How many there are."""
    gpus: int
    """How many GPUs they have."""
    healthy: int
    """Without a known fault."""
    unhealthy: int
    """The others, which the next four add up to."""
    degraded: int
    """Those that work, with something wrong or in doubt."""
    maintenance_required: int
    """Those that have to be reset, or will be taken back."""
    quarantined: int
    """Those of which a part does not work."""
    lost: int
    """Those that do not run, says their provider."""
    silent: int
    """Those without a sample of the last two minutes, healthy or not."""


class HealthGroups(View):
    """The machines of an organization's leases, counted."""

    by: GroupWord
    """What they are grouped by."""
    at: Timestamp
    """When they were counted."""
    total: HealthGroupView
    """All of them."""
    groups: tuple[HealthGroupView, ...]
    """By name."""
