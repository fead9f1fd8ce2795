"""Leases that wait for capacity: what is stored of the decisions on them, and when they are given up."""

import pytest

from control_plane.domain.placement import RejectCode
from tests.support.stage import Stage

pytestmark = pytest.mark.database
MINUTES = 4
"""Turns of 15 s in a minute."""


async def _wait(stage: Stage, minutes: int) -> None:
    """Let the lease be looked at again and again; offers are refreshed meanwhile."""
    for _ in range(minutes * MINUTES):
        await stage.run("refresh_offers")
        await stage.run("place_leases")
        stage.clock.advance(15)


def _sell_out(stage: Stage, stock: int = 0) -> None:
    for place in stage.cloud.stock:
        stage.cloud.stock[place] = stock


async def test_a_lease_that_waits_stores_its_ranking_once_until_the_offers_change(stage: Stage) -> None:
    _sell_out(stage)
    lease = await stage.lease(await stage.organization())
    await _wait(stage, 25)
    (waited,) = (await stage.why(lease)).placements
    assert (waited.number, waited.chosen, waited.ranking.candidates) == (1, None, ())
    assert {rejected.code for rejected in waited.ranking.rejected} == {RejectCode.SOLD_OUT}

    _sell_out(stage, stock=1)
    await _wait(stage, 1)
    waited, placed = (await stage.why(lease)).placements
    assert (placed.number, placed.ranking.rejected) == (2, ())
    assert placed.chosen == placed.ranking.candidates[0].offer
    assert placed.decided_at > waited.decided_at
    assert await stage.state(lease) == "starting"


async def test_a_lease_that_waited_too_long_is_given_up_with_the_last_ranking(stage: Stage) -> None:
    _sell_out(stage)
    lease = await stage.lease(await stage.organization())
    await _wait(stage, 31)
    assert await stage.state(lease) == "ending"
    assert (await stage.lease_row(lease)).end_reason == "no_capacity"
    assert len((await stage.why(lease)).placements) == 1
    await stage.finish()


async def test_every_attempt_has_its_placement_although_it_decides_the_same_as_the_one_before(
    stage: Stage,
) -> None:
    lease = await stage.lease(await stage.organization())
    for number in (1, 2):
        await stage.run("refresh_offers")
        await stage.run("place_leases")
        assert len(await stage.attempts(lease)) == number
        # Nobody looks at the lease for so long that its failure is forgiven.
        stage.clock.advance(600)
        await stage.run("expire_machines")
        stage.clock.advance(600)
    first, second = (await stage.why(lease)).placements
    assert (first.chosen, first.ranking.rejected) == (second.chosen, second.ranking.rejected)
