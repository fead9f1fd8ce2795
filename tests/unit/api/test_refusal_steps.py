"""A refused credential is answered at the end of a step, however long its look-up took."""

import asyncio
from contextlib import AbstractAsyncContextManager, suppress

import pytest

from control_plane.api import door
from control_plane.api.door import Door
from control_plane.api.errors import ApiError
from control_plane.settings import Settings

STEP = door.REFUSAL_STEP_SECONDS


async def _unsigned() -> bool:
    return False


def _refuse() -> None:
    raise ApiError("unauthenticated", "no")


def _look_up(seconds: float) -> None:
    """Keep the process busy, as a look-up does."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        pass


async def _refused_after(look_up_seconds: float) -> float:
    """How long the door held a refused credential, in seconds."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    with suppress(ApiError):
        async with _trying():
            _look_up(look_up_seconds)
            _refuse()
    return loop.time() - began


def _trying() -> AbstractAsyncContextManager[None]:
    settings = Settings(database_url="unused")
    return Door(settings).trying_key("9.9.9.9", "Bearer spk_x", 0.0, _unsigned)


@pytest.mark.parametrize(("look_up_seconds", "steps"), [(0.0, 1), (STEP / 2, 1), (STEP * 1.1, 2)])
async def test_a_refusal_waits_for_the_end_of_its_step(look_up_seconds: float, steps: int) -> None:
    assert await _refused_after(look_up_seconds) >= steps * STEP


async def test_a_credential_that_opens_something_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    step = 3_600.0
    monkeypatch.setattr(door, "REFUSAL_STEP_SECONDS", step)
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with _trying():
        _look_up(0.0)
    assert loop.time() - began < step
