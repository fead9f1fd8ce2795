"""Enforcement on the screen: actions with their evidence, and detectors."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, heading, table
from control_plane.cli.words import absolute, both, sentence, spaced, span
from control_plane.wire.enforcement import (
    DetectorView,
    EnforcementView,
    IdleStopView,
    LeaseEnforcementPage,
)

_BASES = {
    "claim": "its machine says so",
    "consent": "its machine says so, and its customer wants it stopped",
    "ours": "we know it ourselves",
}


def actions_pages(actions: Sequence[EnforcementView], now: datetime) -> RenderableType:
    if not actions:
        return Text("Nothing is done about any lease.", style="green")
    parts: list[RenderableType] = []
    for action in actions:
        parts += [_brief(action, now, lease=True), Text()]
    return Group(*parts[:-1])


def lease_pages(page: LeaseEnforcementPage, now: datetime) -> RenderableType:
    parts: list[RenderableType] = [_idle_stop(page.idle_stop_seconds), Text()]
    if not page.items:
        parts.append(Text("Nothing was found about this lease.", style="green"))
        return Group(*parts)
    for action in page.items:
        parts += [_brief(action, now, lease=False), Text()]
    return Group(*parts[:-1])


def _brief(action: EnforcementView, now: datetime, *, lease: bool) -> RenderableType:
    return Group(_title(action), facts(*_what(action, now, lease=lease)))


def _title(action: EnforcementView) -> Text:
    return heading(spaced(action.action), spaced(action.detector))


def _what(action: EnforcementView, now: datetime, *, lease: bool) -> list[tuple[str, str | Text | None]]:
    return [
        ("Action", action.id),
        ("Lease", action.lease_id if lease else None),
        ("Why", sentence(action.why)),
        ("State", _state(action, now)),
        ("Stop or end", None if action.ended is not None else both(action.planned_at, now)),
    ]


def _state(action: EnforcementView, now: datetime) -> Text:
    if action.ended is not None:
        ended = f"{action.ended}, {both(action.ended_at, now)}"
        return Text(ended if action.armed else f"only decided; {ended}", style="dim")
    if not action.armed:
        return Text("only decided: the detector is not armed", style="dim")
    return Text(f"in force until {both(action.expires_at, now)}", style="yellow")


def action_page(action: EnforcementView, now: datetime) -> RenderableType:
    points = action.evidence.get("points")
    parts: list[RenderableType] = [
        _title(action),
        facts(
            *_what(action, now, lease=True),
            ("Machine", action.machine_id),
            ("Taken", both(action.at, now)),
            ("Known by", _BASES.get(action.basis, action.basis)),
            ("Rules", action.rules),
            ("Ended by", action.ended_by),
            ("Because", None if action.ended_why is None else sentence(action.ended_why)),
            *_others(action),
        ),
    ]
    if isinstance(points, list) and points:
        name = _VALUES.get(action.detector, "VALUE")
        bp = action.detector != "idle"
        rows = [(absolute(datetime.fromisoformat(str(at))), _value(value, bp=bp)) for at, value in points]
        parts += [Text(), table(("SAMPLE", name), rows, right=(name,))]
    return Group(*parts)


_VALUES = {
    "memory_pressure": "GPU MEMORY IN USE",
    "kv_cache_growth": "KV CACHE IN USE, EXTRAPOLATED",
    "throughput_degradation": "THROUGHPUT, OF WHAT IS USUAL",
    "idle": "BUSIEST GPU",
}
"""What the values of the samples are, which are shares."""


def _value(value: object, *, bp: bool) -> str:
    """A share in basis points, or in percent."""
    if not isinstance(value, int):
        return "-"
    return f"{value // 100}.{value % 100:02} %" if bp else f"{value} %"


def _others(action: EnforcementView) -> list[tuple[str, str]]:
    """The evidence besides the samples."""
    return [
        (spaced(name).capitalize(), ", ".join(map(str, value)) if isinstance(value, list) else str(value))
        for name, value in action.evidence.items()
        if name != "points"
    ]


def detectors_table(detectors: Sequence[DetectorView], now: datetime) -> RenderableType:
    rows = [
        (
            detector.detector,
            Text("acts", style="green") if detector.armed else Text("only decides", style="dim"),
            str(detector.leases),
            both(detector.since, now) or "-",
        )
        for detector in detectors
    ]
    return table(("DETECTOR", "STATE", "LEASES", "SINCE"), rows, right=("LEASES",))


def detector_page(detector: DetectorView, now: datetime) -> RenderableType:
    return facts(
        ("Detector", detector.detector),
        ("State", "acts" if detector.armed else "only decides"),
        ("Since", both(detector.since, now)),
        ("Set by", detector.set_by),
        ("Why", detector.why),
        ("Leases", str(detector.leases)),
    )


def idle_stop_line(stop: IdleStopView) -> RenderableType:
    return _idle_stop(stop.after_seconds)


def _idle_stop(after_seconds: int | None) -> Text:
    if after_seconds is None:
        return Text("An idle machine is not stopped: splitplane lease idle-stop LEASE --after 2h.")
    return Text(f"The machine is stopped after it was idle for {span(timedelta(seconds=after_seconds))}.")
