"""Splits the byte stream of a hostile prover into frames, and notes when each frame arrived. No IO.

A frame is a 32-bit big-endian length followed by that many bytes (`data_plane.proof.protocol.wire`). The length is
checked before the body is awaited; the body is not parsed here.
"""

from collections import deque

from data_plane.access.line import Frame
from data_plane.documents.strict import Malformed

LENGTH_BYTES = 4
PIECE_BYTES_MIN = 64
"""The least average size of a stream's pieces. Smaller pieces serve only to cost us work."""
_PIECES_FREE = 4096


class TooManyPieces(Exception):  # noqa: N818 - reads as a sentence
    """The prover sends so many tiny pieces that receiving them costs us more than sending them costs it."""


class FrameBuffer:
    """Bytes that have arrived and have not been taken as frames yet."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._taken = 0
        self._stamps: deque[tuple[int, float]] = deque()
        """For each piece that is not completely taken: where in the stream it starts, and when it arrived."""
        self._pieces = 0

    def __len__(self) -> int:
        return len(self._bytes)

    def feed(self, piece: bytes, now: float) -> None:
        """Add a piece that arrived at `now`, in seconds. Raises TooManyPieces."""
        self._pieces += 1
        if piece:
            self._stamps.append((self._taken + len(self._bytes), now))
        self._bytes += piece
        if self._pieces > _PIECES_FREE + (self._taken + len(self._bytes)) // PIECE_BYTES_MIN:
            raise TooManyPieces

    def take(self, bytes_max: int) -> Frame | None:
        """The next frame, or None while it is incomplete. Raises Malformed if it is longer than `bytes_max`."""
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
        """When the first and the last byte of the frame that was just taken arrived."""
        began = ended = self._stamps[0][1]
        while self._stamps and self._stamps[0][0] < self._taken:
            _, ended = self._stamps.popleft()
        if self._bytes and (not self._stamps or self._stamps[0][0] > self._taken):
            self._stamps.appendleft(
                (self._taken, ended)
            )  # The piece also holds the beginning of the next frame.
        return began, ended
