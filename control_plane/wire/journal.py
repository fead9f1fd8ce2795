"""The journal of a lease."""

from datetime import datetime

from control_plane.wire.common import View


class JournalLine(View):
    number: int
    """Grows from line to line, with gaps."""
    at: datetime
    actor_kind: str
    """`customer`, `operator` or `loop`."""
    actor: str
    """The id of the API key, or the name of the loop."""
    request_id: str | None
    """The request that did it; null for loops."""
    event: str
    machine_id: str | None
    state_before: str | None
    state_after: str | None
    why: str | None


class JournalPage(View):
    items: tuple[JournalLine, ...]
    next_cursor: str | None
