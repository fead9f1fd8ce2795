"""How a node changes its WireGuard key without being cut off.

    due --announce--> its next key is on the map --all list it--> switch --all dropped the old one--> done

A member that lists the next key answers the node's handshakes with it, and accepts no packet from it yet. So tunnels
pause from the moment in which the node switches until the others have moved its addresses to the key: seconds.

Whoever the map says lists the node is waited for, and struck off when its interface was read. A machine that cannot be
reached holds up a change of key for a day; servers and relays are ours, and are waited for.
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


def next_step(change: KeyChange, now: datetime) -> KeyStep:
    if change.holders is None or change.waits_since is None:
        return KeyStep.ANNOUNCE
    overdue = now >= change.waits_since + WAITED_FOR and not _OURS & set(change.holders)
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
