"""Every loop is killed at every point where a process can die, and the next activations repair what it left.

After each death the wing's loops are played until the stage has settled as it does when nobody dies (`settling.py`).
The way to the very end, with everything released, is walked once for each wing.
"""

from typing import Literal

import pytest

from reconciler import registry
from reconciler.worlds.complete import CompleteWorld
from tests.scenario import settling
from tests.scenario.conftest import Moment
from tests.scenario.lively import ends_well, seen_from_outside
from tests.support.crash import Crash
from tests.support.stage import Stage

pytestmark = pytest.mark.database

LOOPS = sorted(registry.discovered())
CALLS_MAX = 60
"""A loop that makes more calls than this on the lively stage takes too long to test."""
When = Literal["before", "after"]


READ_ONLY = frozenset({"audit_ledger", "read_figures"})
"""Loops that only read for the metrics, so that a crash leaves nothing to repair."""


async def _kill(stage: Stage, name: str, call: int, when: When) -> tuple[bool, list[str]]:
    """Run one activation that is killed at a call. Returns whether it was, and the errors that it reported if it was not."""
    errors: list[str] = []

    async def activation(world: CompleteWorld) -> None:
        for report in await stage.run(name, world=world):
            errors.extend(report.errors)

    return await Crash(at=call, when=when).kills(activation, stage.replica("doomed")), errors


async def test_a_lively_stage_ends_well_when_nobody_dies(lively: Moment) -> None:
    async with lively.again() as stage:
        await ends_well(stage)


@pytest.mark.parametrize("name", LOOPS)
async def test_a_loop_killed_before_or_after_any_call_is_repaired_by_the_next_activations(
    lively: Moment, name: str
) -> None:
    async with lively.again() as stage:
        left = await seen_from_outside(stage)
    for call in range(1, CALLS_MAX):
        async with lively.again() as stage:
            killed, errors = await _kill(stage, name, call, "before")
            if not killed:
                if name in READ_ONLY:
                    assert await seen_from_outside(stage) == left, f"{name} writes"
                else:
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
                await settling.settles(stage, lively, name)
    pytest.fail(f"{name} makes more than {CALLS_MAX} calls")


@pytest.mark.parametrize("wing", registry.wings())
async def test_a_wing_whose_every_loop_was_killed_ends_well(lively: Moment, wing: str) -> None:
    async with lively.again() as stage:
        for name in registry.of_wing(wing):
            await _kill(stage, name, 2, "after")
        await stage.check()
        await ends_well(stage)


@pytest.mark.parametrize("wing", registry.wings())
async def test_a_loop_run_twice_acts_on_nothing_the_second_time(lively: Moment, wing: str) -> None:
    for name in registry.of_wing(wing):
        async with lively.again() as stage:
            first = await stage.run(name)
            assert all(report.looked_at for report in first), f"{name} had nothing to look at"
            await stage.check()
            second = await stage.run(name, world=stage.replica("other"))
            assert [report.acted_on for report in second] == [0], name
            await stage.check()
