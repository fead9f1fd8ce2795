"""A line: a conversation in frames with a prover, a process on a machine."""

from dataclasses import dataclass
from typing import Protocol


class LineBroken(Exception):  # noqa: N818 - reads as a sentence
    """The line broke, or the prover ended. Whether the current order was carried out is unknown."""


class LineSilent(Exception):  # noqa: N818
    """No complete frame arrived within the time limit."""


@dataclass(frozen=True, slots=True)
class Frame:
    body: bytes
    began: float
    """When its first byte arrived, in seconds on the line's clock. That byte carries no information, so nothing is
    timed by it; it only shows whether a frame arrived before it was asked for."""
    ended: float
    """When its last byte arrived, which is when the content of the frame is known."""


class Line(Protocol):
    """Frames to and from one prover, with times from our own monotonic clock."""

    async def send(self, frame: bytes) -> float:
        """Send one encoded frame and return the time just before its first byte left.

        The other side's buffers can delay the rest of the frame, so the time after sending would be theirs to
        choose. Raises LineBroken.
        """
        ...

    async def receive(self, bytes_max: int, seconds: float) -> Frame:
        """The next frame. Waits at most `seconds`.

        Raises LineBroken, LineSilent, or strict.Malformed for a frame that announces more than `bytes_max`, before
        its body is read.
        """
        ...
