"""The reconciler's loops and their last reports."""

from datetime import datetime

from control_plane.wire.common import View


class LoopView(View):
    loop: str
    account: str
    """The provider account that the loop works on; empty when it works on all of them."""
    replica: str
    started_at: datetime
    finished_at: datetime
    every_seconds: int
    looked_at: int
    acted_on: int
    errors: tuple[str, ...]
    notes: tuple[str, ...]
    activations: int
    age_seconds: int
    late_after_seconds: int
    """The loop is late when it has not reported for longer than this: three intervals, and the time that one
    activation may take."""
    late: bool


class LoopList(View):
    items: tuple[LoopView, ...]
