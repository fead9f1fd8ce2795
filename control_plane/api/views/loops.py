"""Loop reports on the wire."""

from datetime import datetime
from typing import Any

from control_plane.wire.loops import LoopView


def loop_view(row: dict[str, Any], now: datetime) -> LoopView:
    age = max(0, int((now - row["finished_at"]).total_seconds()))
    return LoopView(
        loop=row["loop"],
        account=row["account"],
        replica=row["replica"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        every_seconds=row["every_seconds"],
        looked_at=row["looked_at"],
        acted_on=row["acted_on"],
        errors=tuple(row["errors"]),
        notes=tuple(row["notes"]),
        activations=row["activations"],
        age_seconds=age,
        late_after_seconds=row["late_after_seconds"],
        late=age > row["late_after_seconds"],
    )
