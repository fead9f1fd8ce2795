"""Loop reports on the wire."""

from datetime import datetime

from control_plane.services.loops import LoopReport
from control_plane.wire.loops import LoopView


def loop_view(report: LoopReport, now: datetime) -> LoopView:
    age = max(0, int((now - report.finished_at).total_seconds()))
    return LoopView(
        loop=report.loop,
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
        age_seconds=age,
        late_after_seconds=report.late_after_seconds,
        late=age > report.late_after_seconds,
    )
