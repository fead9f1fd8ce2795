"""Keeps heartbeats on disk until the hub has them: oldest first. Of too many, it drops the oldest, and counts.

Each heartbeat is a file, written beside its name and renamed, so a crash leaves no half of one. A file that cannot be
read is dropped like any other. The folder is the agent's own; nobody else writes there.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from data_plane.documents import strict
from data_plane.documents.heartbeat import SEQUENCE_MAX, Heartbeat, read_heartbeat

HEARTBEATS_MAX = 512
"""More than eight hours at one a minute. They take about 2 MiB on disk, at 4 KiB for each file."""
HEARTBEAT_BYTES_MAX = 2048
_LAST = "last.json"


class Spool:
    """Raises OSError when the disk fails."""

    def __init__(self, folder: Path, most: int = HEARTBEATS_MAX) -> None:
        self._folder = folder
        self._most = most
        self._last, self.dropped = self._read_last()
        self._last = max([self._last, *self._sequences()])

    @property
    def next_sequence(self) -> int:
        return self._last + 1

    def __len__(self) -> int:
        return len(self._sequences())

    def add(self, heartbeat: Heartbeat) -> None:
        """Keep a heartbeat. Drops the oldest ones when there are too many."""
        self._last = max(self._last, heartbeat.sequence)
        for sequence in self._sequences()[: -(self._most - 1) or None] if len(self) >= self._most else ():
            self._remove(sequence)
            self.dropped += 1
        self._write_last()
        self._write(self._path(heartbeat.sequence), asdict(heartbeat))

    def oldest(self, most: int) -> "list[Heartbeat]":
        """The oldest heartbeats, in their order."""
        found: list[Heartbeat] = []
        for sequence in self._sequences():
            if len(found) == most:
                break
            try:
                with self._path(sequence).open("rb") as file:
                    content = file.read(HEARTBEAT_BYTES_MAX + 1)
                found.append(read_heartbeat(strict.load(content, HEARTBEAT_BYTES_MAX)))
            except strict.Malformed:
                self._remove(sequence)
                self.dropped += 1
        return found

    def delivered(self, through: int) -> None:
        """Remove all heartbeats up to this sequence. Later heartbeats get higher ones, even if the folder was lost."""
        for sequence in self._sequences():
            if sequence <= through:
                self._remove(sequence)
        if through > self._last:
            self._last = through
            self._write_last()

    def drop(self, heartbeats: "list[Heartbeat]") -> None:
        """Remove heartbeats that the hub cannot read."""
        for heartbeat in heartbeats:
            self._remove(heartbeat.sequence)
        self.dropped += len(heartbeats)
        self._write_last()

    def clean(self) -> int:
        """Delete what is neither a heartbeat nor the spool's own note. Returns how many files that were."""
        kept = {_LAST, *(self._path(sequence).name for sequence in self._sequences())}
        strays = [path for path in self._folder.iterdir() if path.name not in kept and not path.is_dir()]
        for path in strays:
            path.unlink(missing_ok=True)
        return len(strays)

    def _sequences(self) -> "list[int]":
        return sorted(self._named())

    def _named(self) -> "Iterator[int]":
        for path in self._folder.iterdir():
            if path.suffix == ".heartbeat" and path.stem.isascii() and path.stem.isdigit():
                yield int(path.stem)

    def _path(self, sequence: int) -> Path:
        return self._folder / f"{sequence:016d}.heartbeat"

    def _remove(self, sequence: int) -> None:
        self._path(sequence).unlink(missing_ok=True)

    def _read_last(self) -> "tuple[int, int]":
        try:
            document = strict.load((self._folder / _LAST).read_bytes(), 200)
            strict.keys(document, {"last", "dropped"})
            return (
                strict.whole(document, "last", 0, SEQUENCE_MAX),
                strict.whole(document, "dropped", 0, SEQUENCE_MAX),
            )
        except (OSError, strict.Malformed):
            return 0, 0  # The hub's answers say which sequences it has.

    def _write_last(self) -> None:
        self._write(self._folder / _LAST, {"last": self._last, "dropped": self.dropped})

    def _write(self, path: Path, document: "dict[str, object]") -> None:
        new = path.with_suffix(".new")
        new.write_text(json.dumps(document))
        new.replace(path)
