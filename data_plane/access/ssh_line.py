"""`line.Line` over an SSH channel: frames to and from a process on a machine.

The machine is hostile, so the amount of what it sends is bounded before anything is parsed: SSH's own window stops a
flood, at most ROOM_BYTES (or one expected frame) are kept here, and a stream of tiny pieces breaks the line, as does
a stream of errors. The time of a frame is taken as soon as its bytes are decrypted, not when somebody reads the frame.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import asyncssh

from data_plane.access.frames import LENGTH_BYTES, FrameBuffer, TooManyPieces
from data_plane.access.line import Frame, LineBroken, LineSilent
from data_plane.access.step import DETAIL_CHARACTERS_MAX, OUTPUT_BYTES_MAX
from data_plane.documents.strict import printable

WINDOW_BYTES = 256 * 1024
"""How much the machine may send before we acknowledge it. About half of it is in flight: 1.2 MB/s at 100 ms."""
ROOM_BYTES = 256 * 1024
SEND_SECONDS = 10
"""An order has 64 KiB at most. A prover that has not accepted it after this time is not reading."""
END_SECONDS = 1
"""How long we wait for the exit status after the end of a process's output."""
CLOSE_SECONDS = 2


class _Stream(asyncssh.SSHClientSession[bytes]):
    """The callbacks of one channel. All of them run in the event loop's thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._paused = False
        self.frames = FrameBuffer()
        self.room = ROOM_BYTES
        self.news = asyncio.Event()
        """Set whenever `frames` or one of the attributes below has changed."""
        self.writable = True
        self.ended = False
        """No more bytes will arrive."""
        self.closed = False
        """Neither bytes nor an exit status will arrive any more."""
        self.why = ""
        self._errors = b""
        self._errors_bytes = 0

    def connection_made(self, chan: "asyncssh.SSHClientChannel[bytes]") -> None:
        self._channel = chan
        chan.set_write_buffer_limits(high=0)  # So that "written" means "sent".

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if datatype is not None:
            self._complain(data)
            return
        try:
            self.frames.feed(data, self._clock())
        except TooManyPieces:
            self._break("the prover sends too many tiny pieces")
        self.flow()
        self.news.set()

    def _complain(self, data: bytes) -> None:
        """Keep the end of standard error, of which a whole conversation may have OUTPUT_BYTES_MAX bytes."""
        self._errors = (self._errors + data)[-DETAIL_CHARACTERS_MAX:]
        self._errors_bytes += len(data)
        if self._errors_bytes > OUTPUT_BYTES_MAX and not self.closed:
            self._break(f"the prover printed more than {OUTPUT_BYTES_MAX} bytes to standard error")

    def flow(self) -> None:
        """Pause reading while enough is buffered, resume when there is room."""
        full = len(self.frames) >= self.room
        if self._channel is None or self.closed or full == self._paused:
            return
        self._paused = full
        if full:
            self._channel.pause_reading()
        else:
            self._channel.resume_reading()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self.news.set()

    def eof_received(self) -> bool:
        self.ended = True
        self.news.set()
        return False

    def exit_status_received(self, status: int) -> None:
        self.why = self.why or f"the prover ended with status {status}"

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:  # noqa: ARG002, FBT001 - the library's signature
        self.why = self.why or "the prover was ended by a signal"

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self.why = self.why or f"the connection broke: {type(exc).__name__}"
        self.ended = self.closed = True
        self.news.set()

    def _break(self, why: str) -> None:
        self.why, self.ended, self.closed = why, True, True
        if self._channel is not None:
            self._channel.abort()

    def reason(self) -> str:
        """Why the line broke: printable and bounded, partly written by the machine."""
        detail = printable(self._errors.decode("ascii", "replace")).strip()
        return f"{self.why or 'the prover ended'}{': ' if detail else ''}{detail}"


class SshLine:
    """A conversation with one prover. One caller at a time."""

    def __init__(
        self, channel: "asyncssh.SSHClientChannel[bytes]", stream: _Stream, clock: Callable[[], float]
    ) -> None:
        self._channel = channel
        self._stream = stream
        self._clock = clock

    async def send(self, frame: bytes) -> float:
        stream = self._stream
        # Taken before anything is sent: the machine grants the window, and could accept the last byte later.
        sent_at = self._clock()
        try:
            self._channel.write(frame)
            async with asyncio.timeout(SEND_SECONDS):
                while not stream.writable:
                    await self._news()
        except TimeoutError:
            raise LineBroken(f"the prover did not accept an order within {SEND_SECONDS} s") from None
        except LineBroken:
            raise
        except Exception as error:  # noqa: BLE001 - a hostile peer can make the library raise anything
            raise LineBroken(f"{stream.reason()} ({type(error).__name__})") from None
        return sent_at

    async def receive(self, bytes_max: int, seconds: float) -> Frame:
        stream = self._stream
        stream.room = max(ROOM_BYTES, LENGTH_BYTES + bytes_max)
        try:
            async with asyncio.timeout(seconds):
                while (frame := stream.frames.take(bytes_max)) is None:
                    stream.flow()
                    if stream.ended:
                        await self._last_words()
                    await self._news()
        except TimeoutError:
            raise LineSilent(f"no complete frame within {seconds:.1f} s") from None
        finally:
            stream.room = ROOM_BYTES
        stream.flow()
        return frame

    async def _news(self) -> None:
        if self._stream.closed:
            raise LineBroken(self._stream.reason())
        self._stream.news.clear()
        await self._stream.news.wait()

    async def _last_words(self) -> None:
        """Raise LineBroken, with the exit status if it arrives soon."""
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                while True:
                    await self._news()
        raise LineBroken(self._stream.reason())


@asynccontextmanager
async def converse(
    connection: asyncssh.SSHClientConnection, command: str, clock: Callable[[], float]
) -> AsyncIterator[SshLine]:
    """Start `command` and exchange frames with it. Leaving tells it to end and closes the channel in any case.

    Entering may raise anything that asyncssh raises; the caller translates it. After that only the errors of a Line
    are raised.
    """
    stream = _Stream(clock)
    channel, _ = await connection.create_session(lambda: stream, command, encoding=None, window=WINDOW_BYTES)
    try:
        yield SshLine(channel, stream, clock)
    finally:
        with suppress(OSError):
            channel.terminate()
        channel.abort()
        with suppress(TimeoutError):
            await asyncio.wait_for(channel.wait_closed(), CLOSE_SECONDS)
