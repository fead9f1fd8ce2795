"""`access.line.Line` to a prover in a process on this machine, over its standard input and output, in real time.

This machine is trusted: apart from the length of a frame, nothing that the prover sends is checked here.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from data_plane.access.line import Frame, LineBroken, LineSilent
from data_plane.documents import strict

LENGTH_BYTES = 4


class ProcessLine:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, frame: bytes) -> float:
        sent_at = time.monotonic()
        try:
            self._writer.write(frame)
            await self._writer.drain()
        except ConnectionError:
            raise LineBroken("the prover ended") from None
        return sent_at

    async def receive(self, bytes_max: int, seconds: float) -> Frame:
        try:
            async with asyncio.timeout(seconds):
                first = await self._reader.readexactly(1)
                began = time.monotonic()
                length = int.from_bytes(first + await self._reader.readexactly(LENGTH_BYTES - 1), "big")
                if length > bytes_max:
                    raise strict.Malformed(f"a frame of {length} bytes, where {bytes_max} are allowed")
                body = await self._reader.readexactly(length)
                return Frame(body, began, time.monotonic())
        except TimeoutError:
            raise LineSilent(f"no complete frame within {seconds:.1f} s") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise LineBroken("the prover ended") from None


@asynccontextmanager
async def prover(command: Sequence[str]) -> AsyncIterator[ProcessLine]:
    """Start a prover. Leaving the context ends it, whatever it is doing."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the process has no pipes")
    try:
        yield ProcessLine(process.stdout, process.stdin)
    finally:
        process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 5)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
