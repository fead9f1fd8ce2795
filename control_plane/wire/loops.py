"""The reconciler's loops and their last reports."""

from control_plane.wire.common import NextCursor, Timestamp, View


class LoopView(View):
    """The last report of a loop."""

    loop: str
    """The name of the loop."""
    wing: str
    """The group of loops that it belongs to; a process can run the loops of some wings only."""
    account: str
    """The provider account that the loop works on; empty when it works on all of them."""
    replica: str
    """The process that ran it."""
    started_at: Timestamp
    """When its last activation began."""
    finished_at: Timestamp
    """When its last activation ended."""
    every_seconds: int
    """How often it runs: the seconds between two activations."""
    looked_at: int
    """How many rows its last activation looked at."""
    acted_on: int
    """On how many of them it acted."""
    errors: tuple[str, ...]
    """What failed, as sentences."""
    notes: tuple[str, ...]
    """What else it has to say."""
    activations: int
    """How often it has run in this process."""
    age_seconds: int
    """Seconds since the report."""
    late_after_seconds: int
    """The loop is silent when it has not reported for longer than this: three intervals, and the time that one
    activation may take."""
    late: bool
    """The loop is silent, and no other replica runs it."""
    stopped: bool
    """The loop is silent in this replica, and another replica runs it."""


class MissingLoop(View):
    """A loop that no replica reports on: no process runs it, or its first activation is still under way."""

    wing: str
    """The group of loops that it belongs to."""
    loop: str
    """The name of the loop."""
    account: str
    """The provider account; empty when the loop works on all of them, or when no process knows the accounts."""


class LoopList(View):
    """The reports of all loops."""

    items: tuple[LoopView, ...]
    """The last report of every loop in every replica."""
    missing: tuple[MissingLoop, ...]
    """The loops that no replica reports on."""
    next_cursor: NextCursor | None = None
