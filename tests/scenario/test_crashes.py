"""Every loop is killed at every point where a process can die, and the next activations repair what it left.

After each death the loops of the wing, and those that they wake, are played until the stage has settled as it does
when nobody dies. The way to the very end, with everything released, is walked once for each wing.
"""

from typing import Literal

import pytest

from reconciler import registry
from reconciler.worlds.complete import CompleteWorld
from tests.scenario.conftest import Moment
from tests.scenario.lively import Patience, Settled, ends_well, seen_from_outside, settled
from tests.support.crash import Crash
from tests.support.stage import Stage

pytestmark = pytest.mark.database

LOOPS = sorted(registry.discovered())
CALLS_MAX = 60
"""A loop that makes more calls than this on the lively stage takes too long to test."""
STEPS = (1, 4, 30, 95, 130, 2, 2, 40, 2, 2, 2, 100, 100, 100, 100)
"""Seconds between the rounds after a death. Within them whatever a dead worker held becomes free, a launch whose answer
was lost is given up, and its lease finds another machine."""
When = Literal["before", "after"]


def _wing_of(name: str) -> str:
    (wing,) = [wing for wing in registry.wings() if name in registry.of_wing(wing)]
    return wing


def _crew(wing: str) -> list[str]:
    """The loops of a wing, and those that have something to do when one of them acted.

    Offers are kept fresh beside them, because whoever has to find another machine needs one.
    """
    loops = registry.of_wing(wing)
    woken = {other for loop in loops.values() for other in loop.wakes}
    return sorted({*loops, *woken, "refresh_offers"})


async def _kill(stage: Stage, name: str, call: int, when: When) -> tuple[bool, list[str]]:
    """Run one activation that dies at a call; whether it did, and the errors it reported when it did not."""
    errors: list[str] = []

    async def activation(world: CompleteWorld) -> None:
        for report in await stage.run(name, world=world):
            errors.extend(report.errors)

    return await Crash(at=call, when=when).kills(activation, stage.replica("doomed")), errors


@pytest.fixture(scope="session")
def undisturbed() -> dict[str, Settled]:
    """How the stage settles when the loops of a wing run and nobody dies, for each wing that was needed so far."""
    return {}


async def _when_nobody_dies(lively: Moment, wing: str) -> Settled:
    async with lively.again() as stage:
        for seconds in STEPS:
            await _round(stage, wing)
            stage.clock.advance(seconds)
        await _round(stage, wing)
        return await settled(stage)


async def _is_repaired(stage: Stage, wing: str, expected: Settled) -> None:
    """A clean reconciler takes over, and the stage settles as it does when nobody dies."""
    patience = Patience(stage)
    for seconds in (*STEPS, 0):
        await _round(stage, wing)
        await patience.look()
        found = await settled(stage)
        if found == expected:
            break
        stage.clock.advance(seconds)
    assert not found ^ expected, f"found {set(found - expected)} instead of {set(expected - found)}"
    await stage.check()


async def _round(stage: Stage, wing: str) -> None:
    for name in _crew(wing):
        await stage.run(name)


async def test_a_lively_stage_ends_well_when_nobody_dies(lively: Moment) -> None:
    async with lively.again() as stage:
        await ends_well(stage)


@pytest.mark.parametrize("name", LOOPS)
async def test_a_loop_killed_before_or_after_any_call_is_repaired_by_the_next_activations(
    lively: Moment, undisturbed: dict[str, Settled], name: str
) -> None:
    wing = _wing_of(name)
    if wing not in undisturbed:
        undisturbed[wing] = await _when_nobody_dies(lively, wing)
    async with lively.again() as stage:
        left = await seen_from_outside(stage)
    for call in range(1, CALLS_MAX):
        async with lively.again() as stage:
            killed, errors = await _kill(stage, name, call, "before")
            if not killed:
                assert call > 1, f"{name} did nothing: give it something to do in lively.py"
                assert not errors, f"{name} cannot run as the doomed see the world: {errors}"
                return
            # The story from here on is the one that was followed after the call before.
            assert await seen_from_outside(stage) == left
        async with lively.again() as stage:
            await _kill(stage, name, call, "after")
            await stage.check()
            before, left = left, await seen_from_outside(stage)
            if left != before:  # Else the story goes on as it went after the call before.
                await _is_repaired(stage, wing, undisturbed[wing])
    pytest.fail(f"{name} makes more than {CALLS_MAX} calls")


@pytest.mark.parametrize("wing", registry.wings())
async def test_a_wing_whose_every_loop_was_killed_ends_well(lively: Moment, wing: str) -> None:
    async with lively.again() as stage:
        for name in registry.of_wing(wing):
            await _kill(stage, name, 2, "after")
        await stage.check()
        await ends_well(stage)


@pytest.mark.parametrize("name", LOOPS)
async def test_a_loop_run_twice_acts_on_nothing_the_second_time(lively: Moment, name: str) -> None:
    async with lively.again() as stage:
        first = await stage.run(name)
        assert all(report.looked_at for report in first), f"{name} had nothing to look at"
        await stage.check()
        second = await stage.run(name, world=stage.replica("other"))
        assert [report.acted_on for report in second] == [0]
        await stage.check()
