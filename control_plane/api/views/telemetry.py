"""What machines measured, and how they are, on the wire."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from control_plane.domain.agent import SILENT_AFTER
from control_plane.domain.health import RULES, Fault
from control_plane.domain.ids import LeaseId, Prefix, on_wire
from control_plane.domain.proof import ProofOutcome
from control_plane.domain.reading import GpuReading, HostReading, ServerReading
from control_plane.domain.telemetry import FRESH_FOR
from control_plane.services.telemetry import (
    Alert,
    GroupedBy,
    HealthGroup,
    MachineHealth,
    Metrics,
    StoredSample,
)
from control_plane.wire.telemetry import (
    GpuMetrics,
    HealthCheckView,
    HealthGroups,
    HealthGroupView,
    HostMetrics,
    LeaseHealth,
    LeaseMachineHealth,
    LeaseMetrics,
    MetricsPoint,
    MetricsWindow,
    OpenAlertView,
    OpenFaultView,
    SampleView,
    ServerMetrics,
)


def lease_metrics(metrics: Metrics) -> LeaseMetrics:
    return LeaseMetrics(
        lease_id=on_wire(Prefix.LEASE, metrics.lease_id),
        latest=None if metrics.latest is None else sample_view(metrics.latest, metrics.until),
        window=MetricsWindow(
            since=metrics.since,
            until=metrics.until,
            step_seconds=int(metrics.step.total_seconds()),
            points=tuple(map(_point, metrics.points)),
        ),
    )


def sample_view(sample: StoredSample, now: datetime) -> SampleView:
    reading = sample.reading()
    return SampleView(
        machine_id=on_wire(Prefix.MACHINE, sample.machine_id),
        at=sample.at,
        age_seconds=_seconds(now - sample.at),
        clock_ahead_seconds=sample.skew_ms / 1000,
        failure=reading.failure,
        gpus=tuple(map(_gpu, reading.gpus)),
        host=_host(reading.host),
        servers=tuple(map(_server, reading.servers)),
    )


def _gpu(gpu: GpuReading) -> GpuMetrics:
    return GpuMetrics(
        index=gpu.index,
        uuid=gpu.uuid,
        lost=gpu.lost,
        utilisation_percent=gpu.utilisation_percent,
        memory_used_mib=gpu.memory_used_mib,
        memory_total_mib=gpu.memory_total_mib,
        power_watts=_over(gpu.power_mw, 1000),
        power_limit_watts=_over(gpu.power_limit_mw, 1000),
        temperature_celsius=gpu.temperature_c,
        memory_temperature_celsius=gpu.memory_temperature_c,
        sm_mhz=gpu.sm_mhz,
        throttled_by=gpu.throttles(),
        ecc_uncorrected=gpu.ecc_uncorrected_volatile,
        nvlinks_active=gpu.nvlinks_active,
        nvlinks=gpu.nvlinks,
        pcie_generation=gpu.pcie_generation,
        pcie_width=gpu.pcie_width,
    )


def _server(server: ServerReading) -> ServerMetrics:
    return ServerMetrics(
        port=server.port,
        pod_ip=server.pod_ip,
        engine=server.engine,
        kv_cache_percent=_over(server.kv_cache_bp, 100),
        running=server.running,
        waiting=server.waiting,
        generated_tokens_per_second=server.generation_tokens_per_second,
        prompt_tokens_per_second=server.prompt_tokens_per_second,
        first_token_milliseconds=_over(server.ttft_us, 1000),
    )


def _host(host: HostReading) -> HostMetrics:
    full = [100 * system.used_mib / system.size_mib for system in host.filesystems if system.size_mib]
    return HostMetrics(
        cpus=host.cpus,
        cpu_percent=_over(host.cpu_bp, 100),
        memory_total_mib=host.memory_total_mib,
        memory_available_mib=host.memory_available_mib,
        disk_used_percent=round(max(full), 2) if full else None,
    )


def _point(sample: StoredSample) -> MetricsPoint:
    reading = sample.reading()
    gpus, servers, host = reading.gpus, reading.servers, reading.host
    used = _known(gpu.utilisation_percent for gpu in gpus)
    memory = None
    if host.memory_total_mib is not None and host.memory_available_mib is not None:
        memory = host.memory_total_mib - host.memory_available_mib
    return MetricsPoint(
        at=sample.at,
        machine_id=on_wire(Prefix.MACHINE, sample.machine_id),
        gpu_utilisation_percent=round(sum(used) / len(used), 1) if used else None,
        gpu_memory_used_mib=_sum(gpu.memory_used_mib for gpu in gpus),
        gpu_power_watts=_over(_sum(gpu.power_mw for gpu in gpus), 1000),
        gpu_temperature_celsius=max(_known(gpu.temperature_c for gpu in gpus), default=None),
        cpu_percent=_over(host.cpu_bp, 100),
        memory_used_mib=memory,
        kv_cache_percent=_over(max(_known(server.kv_cache_bp for server in servers), default=None), 100),
        requests_running=_sum(server.running for server in servers),
        requests_waiting=_sum(server.waiting for server in servers),
        generated_tokens_per_second=_sum(server.generation_tokens_per_second for server in servers),
    )


def _known(values: Iterable[int | None]) -> list[int]:
    return [value for value in values if value is not None]


def _sum(values: Iterable[int | None]) -> int | None:
    known = _known(values)
    return sum(known) if known else None


def _over(value: int | None, divisor: int) -> float | None:
    return None if value is None else value / divisor


def _seconds(age: timedelta) -> float:
    return round(max(0.0, age.total_seconds()), 3)


def lease_health(lease_id: LeaseId, machines: Sequence[MachineHealth], now: datetime) -> LeaseHealth:
    return LeaseHealth(
        lease_id=on_wire(Prefix.LEASE, lease_id),
        machines=tuple(_machine_health(machine, now) for machine in machines),
    )


def _machine_health(machine: MachineHealth, now: datetime) -> LeaseMachineHealth:
    return LeaseMachineHealth(
        machine_id=on_wire(Prefix.MACHINE, machine.machine_id),
        verdict=machine.verdict.value,
        fault=None if machine.fault is None else machine.fault.value,
        why=machine.why or None,
        since=machine.since,
        judged_at=machine.judged_at,
        faults=tuple(_open_fault(fault, now) for fault in machine.faults),
        alerts=tuple(_open_alert(alert, now) for alert in machine.alerts),
        checks=(
            _regular("samples", machine.sampled_at, now, FRESH_FOR),
            _regular("heartbeat", machine.heartbeat_at, now, SILENT_AFTER),
            _look(machine, now),
            _provider(machine, now),
            _proof(machine, now),
        ),
    )


def _open_fault(fault: Fault, now: datetime) -> OpenFaultView:
    return OpenFaultView(
        fault=fault.code.value,
        gpu=fault.gpu,
        xid=fault.xid,
        verdict=fault.verdict.value,
        source=fault.source.value,
        first_at=fault.first_at,
        age_seconds=_seconds(now - fault.first_at),
        last_at=fault.last_at,
        confirmed_at=fault.confirmed_at,
        detail=f"{RULES[fault.code].words}: {fault.detail}",
    )


def _open_alert(alert: Alert, now: datetime) -> OpenAlertView:
    return OpenAlertView(
        alert=alert.detector.value, since=alert.since, age_seconds=_seconds(now - alert.since), why=alert.why
    )


def _regular(check: str, at: datetime | None, now: datetime, fresh_for: timedelta) -> HealthCheckView:
    """A check that repeats all the time, and so may be overdue."""
    if at is None:
        return HealthCheckView(check, None, None, None, "None came yet.")
    is_fresh = now - at <= fresh_for
    detail = "It comes regularly." if is_fresh else "It is overdue; what we know may be old."
    return HealthCheckView(check, at, _seconds(now - at), is_fresh, detail)


def _look(machine: MachineHealth, now: datetime) -> HealthCheckView:
    """Our own reading over SSH, which is taken when something calls for it, and so is never overdue."""
    due = machine.look_due_at is not None
    if machine.looked_at is None:
        unread = (
            "We could not look yet, and try again." if machine.looked_why_not else "We are about to look."
        )
        return HealthCheckView(
            "look", None, None, None, unread if due else "Nothing called for a look of ours."
        )
    found = sorted({RULES[each.code].words for each in machine.looked if each.shown})
    detail = f"We saw: {'; '.join(found)}." if found else "We saw no fault."
    if due and machine.looked_why_not:
        detail += " We could not look again since."
    age = _seconds(now - machine.looked_at)
    return HealthCheckView("look", machine.looked_at, age, not found, detail)


def _provider(machine: MachineHealth, now: datetime) -> HealthCheckView:
    if machine.down_since is not None:
        detail = "Its provider lists it as failed, stopped or ending."
    elif machine.missing_since is not None:
        detail = "The last list of its provider does not show it."
    else:
        shows = "The last list of its provider shows it running."
        return HealthCheckView("provider", None, None, ok=True, detail=shows)
    at = machine.listed_at
    return HealthCheckView(
        "provider", at, None if at is None else _seconds(now - at), ok=False, detail=detail
    )


def _proof(machine: MachineHealth, now: datetime) -> HealthCheckView:
    if machine.proven_at is None:
        return HealthCheckView("proof", None, None, None, "Its GPUs were not challenged in this lease.")
    words = {
        ProofOutcome.PASSED: "Its GPUs passed.",
        ProofOutcome.FAILED: "Its GPUs failed.",
        ProofOutcome.UNANSWERED: "It did not answer.",
        ProofOutcome.EMULATED: "Its GPUs are emulated.",
    }
    outcome = machine.proof or ProofOutcome.UNANSWERED
    ok = {ProofOutcome.PASSED: True, ProofOutcome.FAILED: False}.get(outcome)
    return HealthCheckView("proof", machine.proven_at, _seconds(now - machine.proven_at), ok, words[outcome])


def health_groups(by: GroupedBy, groups: Sequence[HealthGroup], now: datetime) -> HealthGroups:
    total = HealthGroup("", *(0,) * 8)
    for group in groups:
        total = replace(
            total,
            machines=total.machines + group.machines,
            gpus=total.gpus + group.gpus,
            healthy=total.healthy + group.healthy,
            degraded=total.degraded + group.degraded,
            maintenance_required=total.maintenance_required + group.maintenance_required,
            quarantined=total.quarantined + group.quarantined,
            lost=total.lost + group.lost,
            silent=total.silent + group.silent,
        )
    return HealthGroups(
        by=by.value,
        at=now,
        total=_group(total, None),
        groups=tuple(_group(group, group.name) for group in groups),
    )


def _group(group: HealthGroup, name: str | None) -> HealthGroupView:
    return HealthGroupView(
        name=name,
        machines=group.machines,
        gpus=group.gpus,
        healthy=group.healthy,
        unhealthy=group.machines - group.healthy,
        degraded=group.degraded,
        maintenance_required=group.maintenance_required,
        quarantined=group.quarantined,
        lost=group.lost,
        silent=group.silent,
    )
