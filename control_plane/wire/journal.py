"""The journal of a lease."""

from control_plane.wire.common import NextCursor, Timestamp, View
from control_plane.wire.vocabulary import ActorKindWord, JournalEventWord, JournalStateWord, MachineIdText


class JournalLine(View):
    """One event in the life of a lease."""

    number: int
    """Identifies the line. Numbers grow, with gaps; a line that was committed late may come after a higher number."""
    at: Timestamp
    """When it happened."""
    actor_kind: ActorKindWord
    """Who did it."""
    actor: str
    """The id of the user or the service account, or the name of the loop."""
    request_id: str | None
    """The request that did it; null for loops."""
    event: JournalEventWord
    """What happened."""
    machine_id: MachineIdText | None
    """The machine that it is about; null when it is about the lease alone."""
    state_before: JournalStateWord | None
    """The state before, of the machine or the lease; null when no state changed."""
    state_after: JournalStateWord | None
    """The state after; null when no state changed."""
    why: str | None
    """The reason, as a sentence; null when there is nothing to add."""


class JournalPage(View):
    """A page of the journal."""

    items: tuple[JournalLine, ...]
    """The lines, oldest first."""
    next_cursor: NextCursor | None
