"""How a node changes its WireGuard key without being cut off.

    due --announce--> its next key is on the map --all list it--> switch --all dropped the old one--> done

A member that lists the next key answers the node's handshakes with it, and accepts no packet from it yet. So tunnels
pause from the moment in which the node switches until the others have moved its addresses to the key: seconds.

Whoever the map says lists the node is waited for, and struck off when its interface was read. A machine that cannot be
reached holds up a change of key for a day; servers and relays are ours, and are waited for.

An operator asks for a change when a key has leaked. It begins at once, whatever else changes, and waits two minutes for
machines that cannot be reached: they have no tunnel with the node until they are. Only a key that was made after that
counts. A change that was under way then is brought to its end, and another one follows.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto

from control_plane.domain.overlay import RELAY_NUMBER, SERVER_NUMBER

KEY_LIFE = timedelta(days=30)
"""So old a key may become before it is changed."""
CHANGES_MAX = 4
"""How many nodes of a cluster change their keys at the same time."""
WAITED_FOR = timedelta(days=1)
"""How long a change waits for machines that cannot be reached."""
ASKED_WAITED_FOR = timedelta(minutes=2)
"""How long a change that an operator asked for waits for machines that cannot be reached."""
_OURS = frozenset({SERVER_NUMBER, RELAY_NUMBER})


class KeyStep(Enum):
    """What is to be done next about the key of a node."""

    ANNOUNCE = auto()
    """Have it make its next key, and put that on the map."""
    SWITCH = auto()
    """Have it use its next key, and drop the old one from the map."""
    FINISH = auto()
    """The old key is nowhere any more."""
    WAIT = auto()


@dataclass(frozen=True, slots=True)
class KeyChange:
    """What is stored about the key of a node."""

    next_key: str | None
    old_key: str | None
    holders: Collection[int] | None
    """Who still has to list the next key, or to drop the old one; None while the key does not change."""
    waits_since: datetime | None
    asked_at: datetime | None = None
    """When an operator asked for another key; None when nobody did, and once it is in use everywhere."""
    made_at: datetime | None = None
    """When its next key was made, of a change that is under way."""

    @property
    def is_answer(self) -> bool:
        """Whether the change that is under way is what the operator asked for."""
        return self.asked_at is not None and self.made_at is not None and self.made_at >= self.asked_at

    @property
    def waited_for(self) -> timedelta:
        """How long it waits for machines that cannot be reached. The last trace of a leaked key is worth a day."""
        if self.asked_at is None or (self.is_answer and self.next_key is None):
            return WAITED_FOR
        return ASKED_WAITED_FOR


def next_step(change: KeyChange, now: datetime) -> KeyStep:
    if change.holders is None or change.waits_since is None:
        return KeyStep.ANNOUNCE
    overdue = now >= change.waits_since + change.waited_for and not _OURS & set(change.holders)
    if change.holders and not overdue:
        return KeyStep.WAIT
    return KeyStep.SWITCH if change.next_key is not None else KeyStep.FINISH


def still_waited_for(
    change: KeyChange, reading: tuple[int, frozenset[str]] | None, listing: Collection[int]
) -> list[int]:
    """Who is left to wait for, after an interface was read: its member's number, and the keys that it lists.

    `listing` are those that the map has list the node now: nobody else is waited for.
    """
    left = set(change.holders or ()) & set(listing)
    if reading is not None:
        number, keys = reading
        if (change.next_key is not None and change.next_key in keys) or (
            change.old_key is not None and change.old_key not in keys
        ):
            left.discard(number)
    return sorted(left)
