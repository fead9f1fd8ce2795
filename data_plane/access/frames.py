"""Frames out of a stream that a hostile prover writes: how much is kept, and when each frame came. No IO.

A frame is a 32-bit big-endian length and that many bytes (`data_plane.proof.protocol.wire`). The length is looked at
before the body is waited for, and nothing is parsed here.
"""

from collections import deque

from data_plane.access.line import Frame
from data_plane.documents.strict import Malformed

LENGTH_BYTES = 4
DRIBBLE_BYTES = 64
"""A stream of pieces smaller than this on average is made to cost us work, not to tell us something."""
_PIECES_FREE = 4096


class Dribble(Exception):  # noqa: N818 - reads as a sentence
    """The prover cuts what it says into so many pieces that only we have work with it."""


class FrameBuffer:
    """What has arrived and was not taken yet."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._taken = 0
        self._stamps: deque[tuple[int, float]] = deque()
        """(place in the stream of a piece's first byte, when it came), for pieces not wholly taken."""
        self._pieces = 0

    def __len__(self) -> int:
        return len(self._bytes)

    def feed(self, piece: bytes, now: float) -> None:
        """Take a piece that arrived at `now`. Raises Dribble."""
        self._pieces += 1
        if piece:
            self._stamps.append((self._taken + len(self._bytes), now))
        self._bytes += piece
        if self._pieces > _PIECES_FREE + (self._taken + len(self._bytes)) // DRIBBLE_BYTES:
            raise Dribble

    def take(self, bytes_max: int) -> Frame | None:
        """The next frame, or None while it is not whole. Raises Malformed for one longer than `bytes_max`."""
        if len(self._bytes) < LENGTH_BYTES:
            return None
        length = int.from_bytes(self._bytes[:LENGTH_BYTES], "big")
        if length > bytes_max:
            raise Malformed(f"a frame of {length} bytes, where {bytes_max} are allowed")
        end = LENGTH_BYTES + length
        if len(self._bytes) < end:
            return None
        body = bytes(memoryview(self._bytes)[LENGTH_BYTES:end])
        del self._bytes[:end]
        self._taken += end
        return Frame(body, *self._times())

    def _times(self) -> tuple[float, float]:
        """When the first and the last byte came of what was taken just now."""
        began = ended = self._stamps[0][1]
        while self._stamps and self._stamps[0][0] < self._taken:
            _, ended = self._stamps.popleft()
        if self._bytes and (not self._stamps or self._stamps[0][0] > self._taken):
            self._stamps.appendleft((self._taken, ended))  # The piece holds the next frame's beginning too.
        return began, ended
