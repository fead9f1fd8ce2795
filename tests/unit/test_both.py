"""Two things that a loop does at the same time: both succeed, or the other one ends when either fails."""

import asyncio

import pytest

from reconciler.loop import both


async def test_they_run_at_the_same_time_and_each_has_its_answer() -> None:
    met = asyncio.Event()

    async def waits() -> str:
        await met.wait()
        return "waited"

    async def comes() -> int:
        met.set()
        return 1

    assert await both(waits(), comes()) == ("waited", 1)


@pytest.mark.parametrize("first", [True, False])
async def test_when_one_fails_the_other_has_ended_before_anybody_hears_of_it(first: bool) -> None:
    ended: list[str] = []

    async def lasts() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned up")

    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError("no")

    pair = both(fails(), lasts()) if first else both(lasts(), fails())
    with pytest.raises(LookupError, match="no"):
        await pair
    assert ended == ["cleaned up"]


async def test_who_is_cancelled_leaves_neither_behind() -> None:
    begun, ended = asyncio.Event(), 0

    async def lasts() -> None:
        nonlocal ended
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended += 1

    task = asyncio.create_task(both(lasts(), lasts()))
    await begun.wait()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == 2
