"""What machines measured, and how they are, on the screen."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import Cell, facts, heading, indented, table
from control_plane.cli.words import ago, both, coarse, plural, sentence, spaced
from control_plane.wire.telemetry import (
    GpuMetrics,
    HealthCheckView,
    HealthGroups,
    HealthGroupView,
    LeaseHealth,
    LeaseMachineHealth,
    LeaseMetrics,
    MetricsPoint,
    MetricsWindow,
    OpenAlertView,
    OpenFaultView,
    SampleView,
)

STALE_SECONDS = 60
"""From when on the age of a sample is a warning: four of them are missing."""
LINE_MAX = 40
"""Characters of a drawn line."""
_BARS = "▁▂▃▄▅▆▇█"
_VERDICTS = {
    "healthy": ("✓", "green"),
    "degraded": ("!", "yellow"),
    "maintenance_required": ("!", "yellow"),
    "quarantined": ("✗", "red"),
    "lost": ("✗", "red"),
}
_MARKS = {True: ("✓", "green"), False: ("✗", "red"), None: ("-", "dim")}


def metrics_page(metrics: LeaseMetrics, lease: str, now: datetime) -> RenderableType:
    if metrics.latest is None:
        return Text(
            f"{lease} has sent no sample yet. A machine sends the first one about a minute after it is ready."
        )
    return Group(
        _measured(metrics.latest, lease, now),
        Text(),
        *_gpus(metrics.latest),
        *_servers(metrics.latest),
        *_window(metrics.window),
    )


def _measured(sample: SampleView, lease: str, now: datetime) -> RenderableType:
    age = (now - sample.at).total_seconds()
    host = sample.host
    memory = None
    if host.memory_total_mib is not None and host.memory_available_mib is not None:
        used = host.memory_total_mib - host.memory_available_mib
        memory = f"{_gib(used)} of {_gib(host.memory_total_mib)} GiB"
    skew = sample.clock_ahead_seconds
    way = "ahead" if skew > 0 else "behind"
    return facts(
        ("Lease", lease),
        ("Measured", Text(ago(sample.at, now), style="yellow" if age > STALE_SECONDS else "")),
        ("Clock", f"{abs(skew):.0f} s {way} of ours" if abs(skew) >= STALE_SECONDS else None),
        (
            "GPUs",
            None if sample.failure is None else Text(f"not read: {spaced(sample.failure)}", style="red"),
        ),
        ("CPU", None if host.cpu_percent is None else f"{host.cpu_percent:.0f} % of {host.cpus or '?'}"),
        ("Memory", memory),
        ("Fullest disk", None if host.disk_used_percent is None else f"{host.disk_used_percent:.0f} %"),
    )


def _gpus(sample: SampleView) -> list[RenderableType]:
    if not sample.gpus:
        return []
    rows = [
        (
            str(gpu.index),
            _known(gpu.utilisation_percent, "{} %"),
            _memory(gpu),
            _power(gpu),
            _known(gpu.temperature_celsius, "{} °C"),
            _known(gpu.sm_mhz, "{} MHz"),
            _remark(gpu),
        )
        for gpu in sample.gpus
    ]
    columns = ("GPU", "USE", "MEMORY GiB", "POWER", "TEMP", "CLOCK", "")
    return [table(columns, rows, right=columns[:6])]


def _memory(gpu: GpuMetrics) -> str:
    if gpu.memory_used_mib is None or gpu.memory_total_mib is None:
        return "-"
    return f"{_gib(gpu.memory_used_mib)} of {_gib(gpu.memory_total_mib)}"


def _power(gpu: GpuMetrics) -> str:
    if gpu.power_watts is None:
        return "-"
    limit = "" if gpu.power_limit_watts is None else f" of {gpu.power_limit_watts:.0f}"
    return f"{gpu.power_watts:.0f}{limit} W"


def _remark(gpu: GpuMetrics) -> Text:
    """What is wrong with a GPU, in words."""
    if gpu.lost:
        return Text("lost", style="red")
    words = [spaced(word) for word in gpu.throttled_by or () if "hardware" in word or word == "power_brake"]
    if gpu.ecc_uncorrected:
        words.append(f"{gpu.ecc_uncorrected} ECC")
    if gpu.nvlinks is not None and gpu.nvlinks_active is not None and gpu.nvlinks_active < gpu.nvlinks:
        words.append(f"{gpu.nvlinks_active} of {gpu.nvlinks} NVLinks")
    return Text(", ".join(words), style="yellow")


def _servers(sample: SampleView) -> list[RenderableType]:
    if not sample.servers:
        return []
    rows: list[Sequence[Cell]] = [
        (
            f"{spaced(server.engine)} {server.pod_ip or ''}:{server.port}",
            _known(server.kv_cache_percent, "{:.0f} %"),
            _known(server.running, "{}"),
            _known(server.waiting, "{}"),
            _known(server.generated_tokens_per_second, "{:,}"),
            _known(server.first_token_milliseconds, "{:,.0f} ms"),
        )
        for server in sample.servers
    ]
    columns = ("SERVER", "KV CACHE", "RUNNING", "WAITING", "TOKENS/S", "FIRST TOKEN")
    return [Text(), table(columns, rows, right=columns[1:])]


_LINES: tuple[tuple[str, Callable[[MetricsPoint], float | None], str, float | None], ...] = (
    ("GPU use", lambda p: p.gpu_utilisation_percent, "{:.0f} %", 100),
    ("GPU power", lambda p: p.gpu_power_watts, "{:,.0f} W", None),
    ("Hottest GPU", lambda p: p.gpu_temperature_celsius, "{:.0f} °C", None),
    ("CPU", lambda p: p.cpu_percent, "{:.0f} %", 100),
    ("KV cache", lambda p: p.kv_cache_percent, "{:.0f} %", 100),
    ("Tokens/s", lambda p: p.generated_tokens_per_second, "{:,.0f}", None),
)
"""What is drawn over the window: its label, its value, how a value is written, and the top of the scale."""


def _window(window: MetricsWindow) -> list[RenderableType]:
    if len(window.points) < 2:
        return []
    rows = []
    for label, value, form, top in _LINES:
        values = [value(point) for point in window.points]
        known = [one for one in values if one is not None]
        if known:
            rows.append(
                (
                    label,
                    _drawn(values, top or max(known)),
                    f"{form.format(min(known))} to {form.format(max(known))}",
                )
            )
    length = coarse(window.until - window.since)
    return [
        Text(),
        heading(
            f"The last {length}", f"each bar is the most in {max(window.step_seconds, _apart(window))} s"
        ),
        indented(table(("", "", "LEAST TO MOST"), rows, whole=("", "LEAST TO MOST"))),
    ]


def _apart(window: MetricsWindow) -> int:
    """How many seconds of the window a drawn character stands for."""
    return round((window.until - window.since).total_seconds() / LINE_MAX)


def _drawn(values: Sequence[float | None], top: float) -> str:
    """A line of bars; of several values in one place the highest, and a gap where nothing is known."""
    width = min(LINE_MAX, len(values))
    places = [values[len(values) * n // width : len(values) * (n + 1) // width] for n in range(width)]
    return "".join(_bar([one for one in place if one is not None], top) for place in places)


def _bar(values: Sequence[float], top: float) -> str:
    if not values:
        return " "
    share = max(values) / top if top > 0 else 0.0
    return _BARS[min(len(_BARS) - 1, int(share * len(_BARS)))]


def health_page(health: LeaseHealth, lease: str, now: datetime) -> RenderableType:
    if not health.machines:
        return Text(f"{lease} has no machine now.")
    parts: list[RenderableType] = []
    for machine in health.machines:
        parts += [_verdict(machine, lease, now), Text()]
        if machine.faults:
            parts += [_faults(machine.faults), Text()]
        if machine.alerts:
            parts += [_alerts(machine.alerts), Text()]
        parts += [_checks(machine.checks), Text()]
    return Group(*parts[:-1])


def _verdict(machine: LeaseMachineHealth, lease: str, now: datetime) -> RenderableType:
    return facts(
        ("Lease", lease),
        ("Machine", machine.machine_id),
        ("Health", _word(machine.verdict)),
        ("Fault", None if machine.fault is None else spaced(machine.fault)),
        ("Why", None if machine.why is None else sentence(machine.why)),
        ("Since", both(machine.since, now)),
        ("Judged", both(machine.judged_at, now)),
    )


def _word(verdict: str) -> Text:
    mark, style = _VERDICTS.get(verdict, ("•", "default"))
    return Text(f"{mark} {spaced(verdict)}", style=style)


def _faults(faults: Iterable[OpenFaultView]) -> RenderableType:
    rows: list[Sequence[Cell]] = [
        (
            Text(*_VERDICTS[fault.verdict] if fault.verdict != "healthy" else _MARKS[None]),
            coarse(timedelta(seconds=fault.age_seconds)),
            _seen_by(fault),
            sentence(fault.detail),
        )
        for fault in faults
    ]
    return table(("", "AGE", "SEEN BY", "OPEN FAULT"), rows, right=("AGE",), whole=("AGE", "SEEN BY"))


_SEEN_BY = {
    "sample": "machine",
    "look": "us",
    "proof": "a proof",
    "provider": "provider",
    "operator": "operator",
}


def _seen_by(fault: OpenFaultView) -> str:
    said = _SEEN_BY.get(fault.source, fault.source)
    return f"{said}, us" if fault.source == "sample" and fault.confirmed_at is not None else said


def _alerts(alerts: Iterable[OpenAlertView]) -> RenderableType:
    rows: list[Sequence[Cell]] = [
        (
            Text("!", "yellow"),
            coarse(timedelta(seconds=alert.age_seconds)),
            spaced(alert.alert),
            sentence(alert.why),
        )
        for alert in alerts
    ]
    return table(("", "AGE", "ALERT", "WHAT IS DONE"), rows, right=("AGE",), whole=("AGE", "ALERT"))


def _checks(checks: Iterable[HealthCheckView]) -> RenderableType:
    rows: list[Sequence[Cell]] = [
        (
            Text(*_MARKS[check.ok]),
            check.check,
            "-" if check.age_seconds is None else coarse(timedelta(seconds=check.age_seconds)),
            check.detail,
        )
        for check in checks
    ]
    return table(("", "EVIDENCE", "AGE", "WHAT IT SAYS"), rows, right=("AGE",), whole=("EVIDENCE",))


def groups_page(counted: HealthGroups) -> RenderableType:
    if not counted.total.machines:
        return Text("Your leases have no machines now.")
    total = counted.total
    rows = [_group(group) for group in counted.groups]
    if len(rows) > 1:
        rows.append(_group(total))
    columns = (counted.by.upper(), "MACHINES", "GPUS", "HEALTHY", "UNHEALTHY", "SILENT")
    said = f"{total.healthy} of {plural(total.machines, 'machine')} healthy"
    return Group(Text(said, style="bold"), Text(), table(columns, rows, right=columns[1:]))


def _group(group: HealthGroupView) -> Sequence[Cell]:
    return (
        group.name or "all",
        str(group.machines),
        str(group.gpus),
        str(group.healthy),
        Text(str(group.unhealthy), style="red" if group.unhealthy else ""),
        Text(str(group.silent), style="yellow" if group.silent else ""),
    )


def _known(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _gib(mib: int) -> str:
    return f"{mib / 1024:,.0f}"
