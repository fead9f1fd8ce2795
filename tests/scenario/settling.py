"""Whether a stage comes to the state to which it comes when nothing disturbs it, by the loops of one wing.

Playing a wing's loops, and those that they wake, costs a fraction of playing the whole cloud to its end.
"""

from reconciler import registry
from tests.scenario.conftest import Moment
from tests.scenario.lively import Patience, Settled, settled
from tests.support.stage import Stage

STEPS = (1, 4, 30, 95, 130, 2, 2, 40, 2, 2, 2, 100, 100, 100, 100, 5, 5, 5)
"""Seconds between the rounds after a disturbance. Within them whatever a dead worker held becomes free, a launch whose answer
was lost is given up, and its lease finds another machine."""
_UNDISTURBED: dict[str, Settled] = {}
"""By wing. The moment is the same for every test of a process."""


def _wing_of(name: str) -> str:
    (wing,) = [wing for wing in registry.wings() if name in registry.of_wing(wing)]
    return wing


def _crew(wing: str) -> list[str]:
    """The loops of a wing, and those that have something to do when one of them acted.

    Offers are kept fresh beside them, because whoever has to find another machine needs one; and the hub is kept in
    step, because whether it still has the peer of a lease that ended depends on who was faster.
    """
    loops = registry.of_wing(wing)
    woken = {other for loop in loops.values() for other in loop.wakes}
    return sorted({*loops, *woken, "refresh_offers", "sync_hub"})


async def settles(stage: Stage, moment: Moment, name: str) -> None:
    """Raise AssertionError unless a loop's wing brings this copy of a moment to where it brings an undisturbed one."""
    wing = _wing_of(name)
    if wing not in _UNDISTURBED:
        _UNDISTURBED[wing] = await _undisturbed(moment, wing)
    expected = _UNDISTURBED[wing]
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


async def _undisturbed(moment: Moment, wing: str) -> Settled:
    async with moment.again() as stage:
        for seconds in STEPS:
            await _round(stage, wing)
            stage.clock.advance(seconds)
        await _round(stage, wing)
        return await settled(stage)


async def _round(stage: Stage, wing: str) -> None:
    for name in _crew(wing):
        await stage.run(name)
