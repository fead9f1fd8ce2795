"""Loop reports on the wire."""

from collections.abc import Sequence
from datetime import datetime

from control_plane.services.loops import LoopReport, RosterLine
from control_plane.wire.loops import LoopView, MissingLoop


def loop_views(reports: Sequence[LoopReport], now: datetime) -> list[LoopView]:
    """A silent report is late only if no replica runs the loop in time; otherwise its own replica has stopped."""
    running = {(report.loop, report.account) for report in reports if not _is_silent(report, now)}
    return [
        loop_view(report, now, runs_elsewhere=(report.loop, report.account) in running) for report in reports
    ]


def missing_loop_view(line: RosterLine) -> MissingLoop:
    return MissingLoop(wing=line.wing, loop=line.loop, account=line.account)


def loop_view(report: LoopReport, now: datetime, *, runs_elsewhere: bool) -> LoopView:
    silent = _is_silent(report, now)
    return LoopView(
        loop=report.loop,
        wing=report.wing,
        account=report.account,
        replica=report.replica,
        started_at=report.started_at,
        finished_at=report.finished_at,
        every_seconds=report.every_seconds,
        looked_at=report.looked_at,
        acted_on=report.acted_on,
        errors=tuple(report.errors),
        notes=tuple(report.notes),
        activations=report.activations,
        age_seconds=_age_seconds(report, now),
        late_after_seconds=report.late_after_seconds,
        late=silent and not runs_elsewhere,
        stopped=silent and runs_elsewhere,
    )


def _age_seconds(report: LoopReport, now: datetime) -> int:
    return max(0, int((now - report.finished_at).total_seconds()))


def _is_silent(report: LoopReport, now: datetime) -> bool:
    return _age_seconds(report, now) > report.late_after_seconds
