"""When each group is read again. It has no clock of its own, so that a test can simulate a day in a millisecond."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from data_plane.documents.health import Group

PERIODS: "Mapping[Group, int]" = {
    "identity": 3600,
    "mig": 3600,  # And whenever NVML reports a change.
    "usage": 10,
    "power": 10,
    "profile": 10,
    "throttle": 5,
    "recovery": 10,  # And after an event.
    "ecc": 60,  # And after an event.
    "pcie": 30,
    "nvlink": 60,
    "fabric": 60,
}
"""Seconds between two readings of a group. Groups are read in this order: the cards' identities come first."""


@dataclass
class Schedule:
    """Which groups are due at a look. There is a look about every `interval` seconds."""

    interval: float
    _read_at: "dict[Group, float]" = field(default_factory=dict)

    def due(self, now: float) -> "tuple[Group, ...]":
        """The groups to read now; they are noted as read. The first look reads all groups.

        Looks are never exactly on time, so a group is due if the next look would be further from its time than this
        one is.
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
        """Read this group at the next look, no matter when it was read last."""
        self._read_at.pop(group, None)
