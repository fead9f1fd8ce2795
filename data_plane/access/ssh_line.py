"""`line.Line` over an SSH channel: a process on the machine that is spoken to in frames.

The machine is hostile, so what it says is held in bounds before anybody looks at it: SSH's own window stops a
flood, at most ROOM_BYTES (or one wanted frame) are kept here, and a stream of tiny pieces breaks the line.
A frame is stamped where its bytes come out of the cipher, not when somebody got round to reading it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import asyncssh

from data_plane.access.frames import LENGTH_BYTES, Dribble, FrameBuffer
from data_plane.access.line import Frame, LineBroken, LineSilent
from data_plane.access.step import DETAIL_CHARACTERS_MAX
from data_plane.documents.strict import printable

WINDOW_BYTES = 256 * 1024
"""What the machine may send ahead. Half of it is in flight at most times: 1.2 MB/s at 100 ms."""
ROOM_BYTES = 256 * 1024
SEND_SECONDS = 10
"""An order is 64 KiB at most; who does not take it in this time does not read."""
END_SECONDS = 1
"""Between a process's last word and its exit status."""
CLOSE_SECONDS = 2


class _Stream(asyncssh.SSHClientSession[bytes]):
    """The callbacks of one channel. Everything here runs in the event loop's thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._paused = False
        self.frames = FrameBuffer()
        self.room = ROOM_BYTES
        self.news = asyncio.Event()
        """Set whenever something below or in `frames` has changed."""
        self.writable = True
        self.ended = False
        """No more bytes will come."""
        self.closed = False
        """Nothing at all will come."""
        self.why = ""
        self._errors = b""

    def connection_made(self, chan: "asyncssh.SSHClientChannel[bytes]") -> None:
        self._channel = chan
        chan.set_write_buffer_limits(high=0)  # "Written" shall mean that it left us.

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if datatype is not None:
            self._errors = (self._errors + data)[-DETAIL_CHARACTERS_MAX:]
            return
        try:
            self.frames.feed(data, self._clock())
        except Dribble:
            self._break("the prover dribbles")
        self.flow()
        self.news.set()

    def flow(self) -> None:
        """Stop reading while there is enough, go on when there is room."""
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
        """Printable and bounded; partly the machine's own words."""
        said = printable(self._errors.decode("ascii", "replace")).strip()
        return f"{self.why or 'the prover ended'}{': ' if said else ''}{said}"


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
        # Before any of it leaves: the machine grants the window, and could take all but a byte, and that one later.
        asked = self._clock()
        try:
            self._channel.write(frame)
            async with asyncio.timeout(SEND_SECONDS):
                while not stream.writable:
                    await self._news()
        except TimeoutError:
            raise LineBroken(f"the prover took no order in {SEND_SECONDS} s") from None
        except LineBroken:
            raise
        except Exception as error:  # noqa: BLE001 - a hostile peer can make the library raise anything
            raise LineBroken(f"{stream.reason()} ({type(error).__name__})") from None
        return asked

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
            raise LineSilent(f"no whole frame within {seconds:.1f} s") from None
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
        """Raises LineBroken, with the exit status if it comes soon."""
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                while True:
                    await self._news()
        raise LineBroken(self._stream.reason())


@asynccontextmanager
async def converse(
    connection: asyncssh.SSHClientConnection, command: str, clock: Callable[[], float]
) -> AsyncIterator[SshLine]:
    """Start `command` and speak to it. In the end it is told to end, and cut off whether it does or not.

    Whatever the library raises on entering is the caller's to name; within, only what a Line raises leaves.
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
