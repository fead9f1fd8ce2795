"""The errors so far, each listed once, although NVML's events and the kernel log may both report an error."""

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Literal

from data_plane.documents.health import XIDS_MAX, Xid

SAME_SECONDS = 5
"""Reports within this time are of one error: it is often reported repeatedly, and the two sources use two clocks."""


@dataclass
class Xids:
    _errors: "deque[Xid]" = field(default_factory=deque)
    dropped: int = 0

    def note(
        self,
        kind: Literal["xid", "sxid"],
        number: int,
        bus_id: "str | None",
        at: int,
        how: Literal["event", "log"],
    ) -> bool:
        """Note a report of an error at unix second `at`. Returns False if the error was known already."""
        for place, known in enumerate(self._errors):
            if (known.kind, known.number, known.bus_id) == (kind, number, bus_id) and _near(known.at, at):
                if known.heard != how:
                    self._errors[place] = replace(known, heard="both")
                return False
        self._errors.append(Xid(kind, number, bus_id, at, how))
        if len(self._errors) > XIDS_MAX:
            self._errors.popleft()
            self.dropped += 1
        return True

    def latest(self) -> "tuple[Xid, ...]":
        return tuple(sorted(self._errors, key=lambda xid: xid.at))


def _near(one: int, other: int) -> bool:
    return abs(one - other) <= SAME_SECONDS
