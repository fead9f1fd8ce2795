"""A member leaves an overlay: its keys are taken away at every other end, for a node before its Node is deleted
and its machine is cleaned.

Only a reading of a holder counts as evidence: the keys that its WireGuard lists, read after the removal. A holder that
cannot be reached keeps the removal open, and is shown with since when.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.peer_map import Holder


@dataclass(frozen=True, slots=True)
class Reading:
    """What WireGuard listed at a holder."""

    keys: frozenset[str]
    """The public keys of its peers."""
    read_at: datetime
    """When the question was sent, so that an answer that was on its way during the removal does not count."""


@dataclass(frozen=True, slots=True)
class Removal:
    keys: frozenset[str]
    """All keys of the member, the next one of a rotation included."""
    holders: frozenset[Holder]
    """Who listed one of them: `peer_map.holders_of`, before the member was removed."""
    removed_at: datetime


@dataclass(frozen=True, slots=True)
class Holding:
    """A holder that may still accept the removed member's packets."""

    holder: Holder
    since: datetime
    """Since when it should not: the time of the removal."""
    seen_at: datetime | None
    """When it was last seen with one of the keys after that; None when it could not be asked."""


def still_holding(
    removal: Removal, readings: Mapping[Holder, Reading], *, gone: Iterable[Holder] = ()
) -> tuple[Holding, ...]:
    """Holders without evidence that they took the keys away. The removal is complete when there is none.

    `readings` has the latest one of each holder. Holders that are `gone` for good, with evidence of their own, hold
    nothing.
    """
    found = []
    for holder in sorted(removal.holders - frozenset(gone), key=str):
        reading = readings.get(holder)
        if reading is None or reading.read_at <= removal.removed_at:
            found.append(Holding(holder, removal.removed_at, None))
        elif reading.keys & removal.keys:
            found.append(Holding(holder, removal.removed_at, reading.read_at))
    return tuple(found)
