"""What every file format of an export can do: turn rows into bytes, some at a time."""

from collections.abc import Sequence
from typing import Protocol

from control_plane.domain.focus import Row


class Encoder(Protocol):
    """The bytes of one file, in order. The same rows in the same batches give the same bytes."""

    def begin(self) -> bytes:
        """What comes before the first row."""
        ...

    def encode(self, rows: Sequence[Row]) -> bytes:
        """The next rows. May return bytes of earlier ones."""
        ...

    def end(self) -> bytes:
        """What comes after the last row."""
        ...
