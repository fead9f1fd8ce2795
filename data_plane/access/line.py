"""A conversation in frames with a process on a machine, as whoever holds it sees it."""

from dataclasses import dataclass
from typing import Protocol


class LineBroken(Exception):  # noqa: N818 - reads as a sentence
    """The line to the prover broke, or the prover ended. Nothing is known about the order under way."""


class LineSilent(Exception):  # noqa: N818
    """No whole frame came in the time allowed."""


@dataclass(frozen=True, slots=True)
class Frame:
    body: bytes
    began: float
    """When its first byte arrived, on the line's clock, seconds. That byte carries nothing: it may tell that a frame
    came before it was asked for, and times nothing."""
    ended: float
    """When its last byte arrived: only then is anything known that the frame says."""


class Line(Protocol):
    """Frames to and from one prover, stamped by our own monotonic clock."""

    async def send(self, frame: bytes) -> float:
        """Hand over one encoded frame. Raises LineBroken.

        Answers the moment before any of it left us: when the rest leaves is for the other side's buffers to decide.
        """
        ...

    async def receive(self, bytes_max: int, seconds: float) -> Frame:
        """The next frame's body. Raises LineBroken, LineSilent, or strict.Malformed for a longer one.

        A frame that announces more than `bytes_max` is refused by its length, before it is read.
        """
        ...
