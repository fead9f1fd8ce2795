"""A conversation with a prover over real SSH, on loopback, with a machine that can misbehave in every way."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count

import pytest

from data_plane.access import ssh_line
from data_plane.access.line import LineBroken, LineSilent
from data_plane.access.port import Unreachable
from data_plane.access.ssh_line import ROOM_BYTES, WINDOW_BYTES, SshLine
from data_plane.access.step import OUTPUT_BYTES_MAX, Step
from data_plane.documents.strict import Malformed
from tests.support.ssh_server import Handler, Process, a_machine, ours
from tests.unit.data_plane.access.test_frames import framed

STEP = Step("prove", "true", seconds=5, user="login")
SOON = 5.0
"""Seconds that a test on loopback never needs."""


@asynccontextmanager
async def a_line(
    handler: Handler, ticks: Iterator[int] | None = None, window: int = 2 << 20
) -> AsyncIterator[SshLine]:
    numbers = ticks or count()
    access = ours(clock=lambda: float(next(numbers)))
    async with (
        a_machine(handler, window=window) as target,
        access.connect(target) as shell,
        shell.converse(STEP) as line,
    ):
        yield line


async def _frame(process: "Process[bytes]") -> bytes:
    length = int.from_bytes(await process.stdin.readexactly(4), "big")
    return await process.stdin.readexactly(length)


async def _hold(process: "Process[bytes]") -> None:
    """Keep the channel open until the other side closes it."""
    await process.stdin.read()
    process.exit(0)


async def _settled(value: Callable[[], int]) -> int:
    """What `value` is once the loop has had a thousand turns in which it did not change."""
    last, quiet = value(), 0
    for _ in range(200_000):
        await asyncio.sleep(0)
        last, quiet = value(), quiet + 1 if value() == last else 0
        if quiet == 1000:
            return last
    pytest.fail("it never settles")


async def test_frames_go_there_and_come_back() -> None:
    async def echo(process: "Process[bytes]") -> None:
        while body := await _frame(process):
            process.stdout.write(framed(body[::-1]))
        process.exit(0)

    async with a_line(echo) as line:
        for body in (b"ab", b"x" * 60_000, bytes(range(256)) * 4000):
            sent = await line.send(framed(body))
            frame = await line.receive(len(body), SOON)
            assert frame.body == body[::-1]
            assert frame.began > sent
        await line.send(framed(b""))
        with pytest.raises(LineBroken, match="status 0"):
            await line.receive(10, SOON)


async def test_a_frame_is_stamped_when_its_first_byte_comes_and_when_its_last_does() -> None:
    async def slowly(process: "Process[bytes]") -> None:
        process.stdout.write(framed(b"abcdef")[:1])
        await _frame(process)
        process.stdout.write(framed(b"abcdef")[1:])
        await _hold(process)

    ticks = iter(range(100))
    async with a_line(slowly, ticks) as line:
        with pytest.raises(LineSilent):
            await line.receive(6, 0.2)
        sent = await line.send(framed(b"go on"))
        frame = await line.receive(6, SOON)
        assert frame.body == b"abcdef", "what came before the silence is not lost"
        assert frame.began < sent < frame.ended


async def test_an_order_is_stamped_before_it_leaves_whoever_holds_back_its_last_byte() -> None:
    """The machine is the SSH server: it can accept all of an order but one byte, work on it, and accept that byte later."""
    order = framed(b"a nonce, and an end that says nothing")
    ready, work_done = asyncio.Event(), asyncio.Event()

    async def greedy(process: "Process[bytes]") -> None:
        process.channel.pause_reading()
        ready.set()
        await work_done.wait()
        process.channel.resume_reading()
        assert await _frame(process) == order[4:]
        process.stdout.write(framed(b"root"))
        await _hold(process)

    ticks = iter(range(100))
    async with a_line(greedy, ticks, window=len(order) - 1) as line:
        await ready.wait()
        sending = asyncio.create_task(line.send(order))
        held = not await _settled(lambda: int(sending.done()))
        worked = next(ticks)
        work_done.set()
        sent = await sending
        frame = await line.receive(4, SOON)
    assert held, "the last byte did not wait for the server's window"
    assert sent < worked < frame.began


async def test_a_frame_that_is_too_long_is_refused_by_its_length_alone() -> None:
    async def boast(process: "Process[bytes]") -> None:
        process.stdout.write(b"\xff\xff\xff\xff")
        await _hold(process)

    async with a_line(boast) as line:
        with pytest.raises(Malformed):
            await line.receive(1_000_000, SOON)


async def test_a_prover_that_exits_breaks_the_line_and_its_last_output_is_reported() -> None:
    async def fail(process: "Process[bytes]") -> None:
        process.stderr.write(b"python3: \x1b[31mnot found\n")
        process.stdout.write(framed(b"one"))
        process.exit(127)

    async with a_line(fail) as line:
        assert (await line.receive(3, SOON)).body == b"one"
        with pytest.raises(LineBroken, match="status 127") as caught:
            await line.receive(3, SOON)
        assert "not found" in str(caught.value)
        assert str(caught.value).isprintable()
        with pytest.raises(LineBroken):
            await line.send(framed(b"hello"))


async def test_a_signal_and_a_cut_connection_break_the_line() -> None:
    async def killed(process: "Process[bytes]") -> None:
        process.exit_with_signal("KILL")

    async def cut(process: "Process[bytes]") -> None:
        process.stdout.write(b"\0\0\0\x09half")
        process.channel.get_connection().abort()

    for handler in (killed, cut):
        async with a_line(handler) as line:
            with pytest.raises(LineBroken):
                await line.receive(9, SOON)


async def test_a_prover_that_hangs_up_but_keeps_the_channel_is_broken_off_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def half_closed(process: "Process[bytes]") -> None:
        process.channel.write_eof()
        await process.wait_closed()

    monkeypatch.setattr(ssh_line, "END_SECONDS", 0.05)
    async with a_line(half_closed) as line:
        with pytest.raises(LineBroken):
            await line.receive(9, 60)


async def test_a_flood_stops_at_our_window_and_the_line_still_closes() -> None:
    sent = 0

    async def flood(process: "Process[bytes]") -> None:
        nonlocal sent
        while not process.is_closing():
            process.stdout.write(framed(b"x" * 8192))
            sent += 8196
            await process.stdout.drain()

    async with a_line(flood) as line:
        with pytest.raises(Malformed):
            await line.receive(100, SOON)
        held = await _settled(lambda: sent)  # Nobody reads. How much is let in?
        assert len(line._stream.frames) <= ROOM_BYTES + 32_768
        # Beyond our window there is the server's own buffer, which it fills before `drain` waits.
        assert held <= ROOM_BYTES + 2 * WINDOW_BYTES + 2 * 65_536
        for _ in range(4 * ROOM_BYTES // 8196):
            assert (await line.receive(8192, SOON)).body == b"x" * 8192
        assert await _settled(lambda: sent) > held, "it does not flow again"


async def test_a_frame_larger_than_the_room_comes_through_when_it_is_wanted() -> None:
    async def much(process: "Process[bytes]") -> None:
        await _frame(process)
        process.stdout.write(framed(b"y" * (5 * ROOM_BYTES)) + framed(b"z"))
        await _hold(process)

    async with a_line(much) as line:
        await line.send(framed(b"go"))
        assert (await line.receive(5 * ROOM_BYTES, SOON)).body == b"y" * (5 * ROOM_BYTES)
        assert (await line.receive(1, SOON)).body == b"z"


async def test_a_stream_of_single_bytes_breaks_the_line() -> None:
    async def dribble(process: "Process[bytes]") -> None:
        process.stdout.write((1 << 20).to_bytes(4, "big"))
        for _ in range(6000):
            process.stdout.write(b"x")
        await _hold(process)

    async with a_line(dribble) as line:
        with pytest.raises(LineBroken, match="tiny pieces"):
            await line.receive(1 << 20, SOON)


async def test_many_errors_cost_no_memory_and_hide_no_answer() -> None:
    async def complain(process: "Process[bytes]") -> None:
        for _ in range(OUTPUT_BYTES_MAX // 32_768):
            process.stderr.write(b"!" * 32_768)
            await process.stderr.drain()
        process.stdout.write(framed(b"fine"))
        await _hold(process)

    async with a_line(complain) as line:
        assert (await line.receive(4, SOON)).body == b"fine"


async def test_errors_without_end_break_the_line() -> None:
    sent = 0

    async def complain(process: "Process[bytes]") -> None:
        nonlocal sent
        while not process.is_closing():
            process.stderr.write(b"!" * 32_768)
            sent += 32_768
            await process.stderr.drain()

    async with a_line(complain) as line:
        with pytest.raises(LineBroken, match=f"more than {OUTPUT_BYTES_MAX} bytes to standard error"):
            await line.receive(4, SOON)
    assert sent < 200 * OUTPUT_BYTES_MAX


async def test_a_prover_that_does_not_read_breaks_the_line_in_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def deaf(process: "Process[bytes]") -> None:
        process.channel.pause_reading()
        await process.wait_closed()

    monkeypatch.setattr(ssh_line, "SEND_SECONDS", 0.2)
    async with a_line(deaf) as line:
        with pytest.raises(LineBroken, match="did not accept an order"):
            await line.send(
                b"x" * ((2 << 20) + 10)
            )  # The server's window, and a little that cannot leave us.


async def test_leaving_asks_the_prover_to_end_and_does_not_wait_for_a_silent_machine() -> None:
    heard: list[str] = []

    class Deaf:
        async def __call__(self, process: "Process[bytes]") -> None:
            try:
                await process.wait_closed()
            finally:
                heard.append("closed")

    async with a_line(Deaf()) as line:
        with pytest.raises(LineSilent):
            await line.receive(10, 0.05)
    assert heard == ["closed"]


async def test_a_machine_that_refuses_the_channel_is_unreachable() -> None:
    async def never(process: "Process[bytes]") -> None:
        process.exit(0)

    access = ours()
    async with a_machine(never) as target, access.connect(target) as shell:
        shell._connection.abort()
        with pytest.raises(Unreachable, match="prove"):
            async with shell.converse(STEP):
                pytest.fail("spoke to nobody")
