"""Loop reports on the wire."""

from datetime import datetime

from control_plane.domain.loop_silence import Silence, age_seconds
from control_plane.services.loops import LoopReport, RosterLine
from control_plane.wire.loops import LoopView, MissingLoop


def missing_loop_view(line: RosterLine) -> MissingLoop:
    return MissingLoop(wing=line.wing, loop=line.loop, account=line.account)


def loop_view(report: LoopReport, silence: Silence | None, now: datetime) -> LoopView:
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
        age_seconds=age_seconds(report, now),
        late_after_seconds=report.late_after_seconds,
        late=silence is Silence.LATE,
        stopped=silence is Silence.STOPPED,
    )
