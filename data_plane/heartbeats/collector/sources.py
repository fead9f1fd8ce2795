"""Where connections of agents come from, and which of these sources are of one organization."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from data_plane.heartbeats.collector.exchange import Holder

_PROXY = re.compile(r"/splitplane-heartbeats@([0-9]{1,4})\.service$", re.MULTILINE)


def of_process(number: int, processes: Path = Path("/proc")) -> str:
    """`network NUMBER` for the proxy of a private network, by the unit that systemd runs it in; otherwise empty.

    Nobody but a process on the hub can connect without a network, and all such share one holder.
    """
    try:
        groups = (processes / str(number) / "cgroup").read_text()
    except OSError:  # It has ended since.
        return ""
    found = _PROXY.search(groups)
    return f"network {found[1]}" if found else ""


class Holders:
    """The organizations of sources: the collector is told them, and writes them down for the relay beside it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "holders"
        self._last: Mapping[str, str] = {}

    def written(self, holders: "Iterable[Holder]") -> "Mapping[str, str]":
        """By a source, its holder. Written to the file when that has changed."""
        found = {each.source: f"organization {each.organization}" for each in holders}
        if found != self._last:
            new = self._file.with_suffix(".new")
            new.write_text(json.dumps(found))
            new.chmod(0o644)
            new.replace(self._file)
            self._last = found
        return found

    def read(self) -> "Mapping[str, str]":
        """The last ones; none while there is no file."""
        try:
            return {str(source): str(holder) for source, holder in json.loads(self._file.read_text()).items()}
        except FileNotFoundError:
            return {}
