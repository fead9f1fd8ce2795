"""Which errors of the driver are new since the previous sample. What was reported is remembered on disk."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from data_plane.agent.xids import SAME_SECONDS
from data_plane.documents import health, records, sample, strict
from data_plane.documents.health import Health
from data_plane.documents.records import Most
from data_plane.documents.sample import Xid

_REPORTED_MAX = 2 * health.XIDS_MAX
_BYTES_MAX = _REPORTED_MAX * 200


@dataclass(frozen=True)
class _Reported:
    xids: "Annotated[tuple[Xid, ...], Most(_REPORTED_MAX)]"


@dataclass
class NewXids:
    """An error is reported once, also when the agent starts again. A folder that is lost has them reported again."""

    path: Path
    _reported: "list[Xid]" = field(default_factory=list)
    _dropped: int = 0
    """As the last document said."""

    def __post_init__(self) -> None:
        try:
            content = strict.load(self.path.read_bytes(), _BYTES_MAX)
            self._reported = list(records.read(_Reported, content, "reported errors").xids)
        except (OSError, strict.Malformed):
            self._reported = []

    def take(self, document: Health) -> "tuple[tuple[Xid, ...], int]":
        """The latest new errors, oldest first, and how many other new ones there were."""
        found = [Xid(each.kind, each.number, each.bus_id, each.at) for each in document.xids]
        new = [each for each in found if not any(_same(each, known) for known in self._reported)]
        dropped = max(0, document.xids_dropped - self._dropped)
        self._dropped = document.xids_dropped
        if new:
            self._reported = (self._reported + new)[-_REPORTED_MAX:]
            self._write()
        latest = new[-sample.XIDS_MAX :]
        return tuple(latest), len(new) - len(latest) + dropped

    def _write(self) -> None:
        new = self.path.with_suffix(".new")
        try:
            new.write_text(json.dumps(_Reported(tuple(self._reported)), default=vars))
            new.replace(self.path)
        except OSError:  # Then they are reported again after a restart.
            return


def _same(one: Xid, other: Xid) -> bool:
    named = (one.kind, one.number, one.bus_id) == (other.kind, other.number, other.bus_id)
    return named and abs(one.at - other.at) <= SAME_SECONDS
