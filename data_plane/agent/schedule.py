"""When each group is read again: pure, so that a test can live through a day in a millisecond."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from data_plane.documents.health import Group

PERIODS: "Mapping[Group, int]" = {
    "identity": 3600,
    "mig": 3600,  # And whenever NVML says that it changed.
    "usage": 10,
    "power": 10,
    "throttle": 5,
    "recovery": 10,  # And after an event.
    "ecc": 60,  # And after an event.
    "pcie": 30,
    "nvlink": 60,
    "fabric": 60,
}
"""Seconds between two readings of a group. In the order in which they are read: who the cards are comes first."""


@dataclass
class Schedule:
    """Which groups are due at a look. Looks come every `interval` seconds, more or less."""

    interval: float
    _read_at: "dict[Group, float]" = field(default_factory=dict)

    def due(self, now: float) -> "tuple[Group, ...]":
        """Groups to read at this look, which is taken as done. The first look reads everything.

        A look is never exactly on time, so a group is due when the next look would be further off than this one.
        """
        slack = self.interval / 2
        groups = tuple(
            group
            for group, period in PERIODS.items()
            if group not in self._read_at or now + slack >= self._read_at[group] + period
        )
        self._read_at.update(dict.fromkeys(groups, now))
        return groups

    def hasten(self, group: Group) -> None:
        """Something happened: the next look reads this group, whenever it was read last."""
        self._read_at.pop(group, None)
