"""Keeps heartbeats and samples on disk until they are delivered. Of too many, it drops the oldest, and counts.

Each is a file, written beside its name and renamed, so a crash leaves no half of one. A file that cannot be read is
dropped like any other. The folder is the agent's own; nobody else writes there.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from data_plane.documents import strict
from data_plane.documents.heartbeat import SEQUENCE_MAX, Heartbeat, read_heartbeat
from data_plane.documents.sample import SAMPLE_BYTES_MAX, Sample, encode_sample, read_sample

HEARTBEATS_MAX = 512
"""More than eight hours at one a minute. They take about 2 MiB on disk, at 4 KiB for each file."""
HEARTBEAT_BYTES_MAX = 2048
SAMPLES_MAX = 1920
"""Eight hours at one every 15 s. They take about 8 MiB on disk."""
_LAST = "last.json"


class Numbered(Protocol):
    @property
    def sequence(self) -> int: ...


T = TypeVar("T", bound=Numbered)


@dataclass(frozen=True)
class Form(Generic[T]):
    """How a spool keeps its entries."""

    suffix: str
    """Of the names of files."""
    bytes_max: int
    """Of a file; longer ones are not read."""
    write: "Callable[[T], bytes]"
    read: "Callable[[bytes], T]"
    """Raises strict.Malformed."""


def _read_packed(content: bytes) -> Sample:
    unpacker = zlib.decompressobj(31)  # The format of gzip.
    try:
        return read_sample(unpacker.decompress(content, SAMPLE_BYTES_MAX + 1))
    except zlib.error:
        raise strict.Malformed("not in the format of gzip") from None


HEARTBEATS = Form[Heartbeat](
    ".heartbeat",
    HEARTBEAT_BYTES_MAX,
    lambda heartbeat: json.dumps(asdict(heartbeat)).encode(),
    lambda content: read_heartbeat(strict.load(content, HEARTBEAT_BYTES_MAX)),
)
SAMPLES = Form[Sample](
    ".sample", SAMPLE_BYTES_MAX, lambda sample: gzip.compress(encode_sample(sample)), _read_packed
)


class Spool(Generic[T]):
    """Raises OSError when the disk fails."""

    def __init__(self, folder: Path, form: "Form[T]", most: int, *, first: int = 1) -> None:
        """`first` is the lowest sequence to begin with."""
        self._folder = folder
        self._form = form
        self._most = most
        self._last, self.dropped = self._read_last()
        self._last = max([self._last, first - 1, *self._sequences()])

    @property
    def next_sequence(self) -> int:
        return self._last + 1

    def __len__(self) -> int:
        return len(self._sequences())

    def count(self, entry: T) -> None:
        """Use up the sequence of an entry that is perhaps never added."""
        self._last = max(self._last, entry.sequence)

    def add(self, entry: T) -> None:
        """Keep an entry. Drops the oldest ones when there are too many."""
        self._last = max(self._last, entry.sequence)
        for sequence in self._sequences()[: -(self._most - 1) or None] if len(self) >= self._most else ():
            self._remove(sequence)
            self.dropped += 1
        self._write_last()
        self._write(self._path(entry.sequence), self._form.write(entry))

    def oldest(self, most: int) -> "list[T]":
        """The oldest entries, in their order."""
        return self._read_first(self._sequences(), most)

    def remove(self, entries: "Iterable[T]") -> None:
        """Remove entries that were delivered."""
        for entry in entries:
            self._remove(entry.sequence)

    def delivered(self, through: int) -> None:
        """Remove all entries up to this sequence. Later entries get higher ones, even if the folder was lost."""
        for sequence in self._sequences():
            if sequence <= through:
                self._remove(sequence)
        if through > self._last:
            self._last = through
            self._write_last()

    def drop(self, entries: "list[T]") -> None:
        """Remove entries that the other side cannot read."""
        self.remove(entries)
        self.dropped += len(entries)
        self._write_last()

    def clean(self) -> int:
        """Delete what is neither an entry nor the spool's own note. Returns how many files that were."""
        kept = {_LAST, *(self._path(sequence).name for sequence in self._sequences())}
        strays = [path for path in self._folder.iterdir() if path.name not in kept and not path.is_dir()]
        for path in strays:
            path.unlink(missing_ok=True)
        return len(strays)

    def _read_first(self, sequences: "list[int]", most: int) -> "list[T]":
        """The first of these that can be read."""
        found: list[T] = []
        for sequence in sequences:
            if len(found) == most:
                break
            try:
                with self._path(sequence).open("rb") as file:
                    found.append(self._form.read(file.read(self._form.bytes_max + 1)))
            except strict.Malformed:
                self._remove(sequence)
                self.dropped += 1
        return found

    def _sequences(self) -> "list[int]":
        return sorted(self._named())

    def _named(self) -> "Iterator[int]":
        for path in self._folder.iterdir():
            if path.suffix == self._form.suffix and path.stem.isascii() and path.stem.isdigit():
                yield int(path.stem)

    def _path(self, sequence: int) -> Path:
        return self._folder / f"{sequence:016d}{self._form.suffix}"

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
        note = {"last": self._last, "dropped": self.dropped}
        self._write(self._folder / _LAST, json.dumps(note).encode())

    def _write(self, path: Path, content: bytes) -> None:
        new = path.with_suffix(".new")
        new.write_bytes(content)
        new.replace(path)
