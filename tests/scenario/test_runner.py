"""The runner in real time: what a stage, which plays loop after loop, cannot show."""

import asyncio
from datetime import timedelta

import pytest

from control_plane.db.engine import Database
from control_plane.domain.ids import AccountName
from control_plane.domain.request import CapacityRequest
from providers.faults import Fault
from reconciler import registry
from reconciler.loop import LASTS
from reconciler.proving import CHALLENGE_SECONDS_MAX
from reconciler.runner import REPORT_EVERY, Runner, late_after
from tests.support.challenger import PASSED, Answer
from tests.support.clock import WallClock
from tests.support.stage import FAKE, set_stage

pytestmark = pytest.mark.database

SECONDS_MAX = 20.0
HEALTHY = AccountName("fake/healthy")


@pytest.mark.parametrize("name", sorted(registry.discovered()))
def test_a_healthy_loop_is_never_reported_as_stuck(name: str) -> None:
    """Its longest silence: a report was just not due, the turn after it comes, and that one takes its time."""
    loop = registry.discovered()[name]
    assert REPORT_EVERY + loop.every + loop.lasts < late_after(loop)


def test_a_loop_that_waits_for_machines_may_take_as_long_as_a_challenge() -> None:
    loops = registry.discovered()
    assert {name for name, loop in loops.items() if loop.lasts > LASTS} == {
        "admit_customers",
        "bootstrap_machines",
        "challenge_machines",
        "erase_machines",
    }
    assert loops["challenge_machines"].lasts >= timedelta(seconds=CHALLENGE_SECONDS_MAX)


async def test_an_account_that_never_answers_delays_no_other_account(db: Database) -> None:
    stage = await set_stage(db, WallClock(), names=(FAKE, HEALTHY))
    answers = asyncio.Event()
    hung = stage.clouds[FAKE]

    async def owes_the_answer() -> None:
        await answers.wait()

    hung.slow = owes_the_answer
    for verb in ("offers", "inventory"):
        hung.faults.always(verb, Fault.SLOW)
    organization_id = await stage.organization()
    runner = Runner(stage.world, registry.discovered().values())
    running = asyncio.create_task(runner.run())
    try:
        lease = await stage.lease(organization_id)
        async with asyncio.timeout(SECONDS_MAX):
            while await stage.state(lease) != "ready":  # noqa: ASYNC110 - a row has no event to wait for
                await asyncio.sleep(0.05)
        assert hung.calls_of("inventory") == 1, "it was asked, and still owes the answer"
        assert not stage.clouds[FAKE].alive()
        assert len(stage.clouds[HEALTHY].alive()) == 1
    finally:
        answers.set()
        runner.stop()
        await asyncio.wait_for(running, timeout=SECONDS_MAX)


async def test_a_challenge_that_hangs_delays_no_other_machine_of_its_account(db: Database) -> None:
    stage = await set_stage(db, WallClock())
    organization_id = await stage.organization()
    stage.challenger.otherwise = Answer(hangs=True)
    runner = Runner(stage.world, registry.discovered().values())
    running = asyncio.create_task(runner.run())
    try:
        hung = await stage.lease(organization_id, CapacityRequest("h100x1-proven"))
        async with asyncio.timeout(SECONDS_MAX):
            await stage.challenger.hanging.wait()
        stage.challenger.otherwise = PASSED
        others = [
            await stage.lease(organization_id, CapacityRequest(sku)) for sku in ("h100x1", "h100x1-proven")
        ]
        async with asyncio.timeout(SECONDS_MAX):
            for lease in others:
                while await stage.state(lease) != "ready":  # noqa: ASYNC110 - a row has no event to wait for
                    await asyncio.sleep(0.05)
        assert await stage.state(hung) == "starting"
    finally:
        runner.stop()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
