"""How the server of a cluster changes its WireGuard key, when an operator asks because the key has leaked.

    asked --announce--> the nodes list its next key --switch--> the nodes dropped the old one --finish--> done

The steps are those of a node (`node_key.py`). Who lists which key follows from the versions of the peer map: a node
that was set up as the map is now lists what the map has.
"""

from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.node_key import ASKED_WAITED_FOR, WAITED_FOR, KeyStep


@dataclass(frozen=True, slots=True)
class ServerKeyChange:
    """What is stored about the key of a server."""

    next_key: str | None
    old_key: str | None
    made_at: datetime | None
    """When its next key was made, of a change that is under way."""
    waits_since: datetime | None
    asked_at: datetime | None
    """When an operator asked for another key; None when nobody did, and once it is in use everywhere."""

    @property
    def is_answer(self) -> bool:
        """Whether the change that is under way is what the operator asked for."""
        return self.asked_at is not None and self.made_at is not None and self.made_at >= self.asked_at


def next_step(change: ServerKeyChange, now: datetime, *, follow_all: bool) -> KeyStep | None:
    """What is to be done now; None when nothing is. `follow_all`: every node is set up as the map is now."""
    if change.waits_since is None:
        return None if change.asked_at is None else KeyStep.ANNOUNCE
    if change.next_key is not None:
        is_over = follow_all or now >= change.waits_since + ASKED_WAITED_FOR
        return KeyStep.SWITCH if is_over else KeyStep.WAIT
    patience = WAITED_FOR if change.is_answer else ASKED_WAITED_FOR
    return KeyStep.FINISH if follow_all or now >= change.waits_since + patience else KeyStep.WAIT
