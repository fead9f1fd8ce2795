"""Leases that wait for capacity: what is stored of the decisions on them, and when they are given up."""

from datetime import timedelta

import pytest
from sqlalchemy import text

from control_plane.domain.access import EVERYWHERE
from control_plane.domain.placement import RETRY_AFTER_MAX, RejectCode
from control_plane.domain.request import CapacityRequest, LeaseTerms
from control_plane.domain.waiting import ATTEMPTS_MAX
from control_plane.services import lease_overviews
from providers.fake import Fault
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


async def test_a_lease_that_waits_says_so_until_it_is_placed(stage: Stage) -> None:
    _sell_out(stage)
    lease = await stage.lease(await stage.organization())
    assert (await stage.shown(lease)).status.waiting is None, "nobody has looked yet"
    await _wait(stage, 2)
    since = lease.created_at
    waiting = (await stage.shown(lease)).status.waiting
    assert waiting is not None
    assert (waiting.since, waiting.gives_up_at) == (since, since + timedelta(minutes=30))
    assert waiting.why == "None of 2 offers can serve it now: 2 sold out."
    page = await lease_overviews.page(
        stage.api, lease.organization_id, before=None, states=None, waiting=True, limit=2, reach=EVERYWHERE
    )
    assert isinstance(page, list)
    assert [shown.overview.lease.id for shown in page] == [lease.id]

    _sell_out(stage, stock=1)
    await _wait(stage, 1)
    assert (await stage.shown(lease)).status.waiting is None
    assert (await stage.lease_row(lease)).waiting_why is None
    for waiting_too, expected in ((True, 0), (False, 1), (None, 1)):
        page = await lease_overviews.page(
            stage.api,
            lease.organization_id,
            before=None,
            states=None,
            waiting=waiting_too,
            limit=2,
            reach=EVERYWHERE,
        )
        assert isinstance(page, list)
        assert len(page) == expected, waiting_too


async def test_a_lease_waits_as_long_as_its_request_says_to_the_second(stage: Stage) -> None:
    _sell_out(stage)
    tenant = await stage.organization()
    at_once = await stage.lease(tenant, terms=LeaseTerms(wait_timeout_seconds=0))
    briefly = await stage.lease(tenant, terms=LeaseTerms(wait_timeout_seconds=100))
    for_long = await stage.lease(tenant, terms=LeaseTerms(wait_timeout_seconds=7_200))
    await stage.run("refresh_offers")
    await stage.run("place_leases")
    assert [await stage.state(lease) for lease in (at_once, briefly)] == ["ending", "placing"]
    for _ in range(99):
        stage.clock.advance(1)
        await stage.run("place_leases")
    assert await stage.state(briefly) == "placing"
    stage.clock.advance(1)
    await stage.run("place_leases")
    assert await stage.state(briefly) == "ending"
    await _wait(stage, 60)
    assert await stage.state(for_long) == "placing"
    row = await stage.lease_row(briefly)
    assert (row.end_reason, "2 sold out" in (row.end_why or "")) == ("no_capacity", True)
    await stage.finish()


async def test_an_outage_of_ours_gives_up_no_lease_before_somebody_looked_at_the_offers(stage: Stage) -> None:
    _sell_out(stage)
    tenant = await stage.organization()
    lease = await stage.lease(tenant)
    await _wait(stage, 10)
    _sell_out(stage, stock=1)
    # Shorter than offers are usable: the stored ones are of before the outage and say sold out.
    for minutes in (21, 180):
        stage.clock.advance(minutes * 60)
        await stage.run("place_leases")
        assert await stage.state(lease) == "placing", minutes
    await _wait(stage, 2)
    assert await stage.state(lease) == "starting"
    await stage.finish()


async def test_an_account_that_failed_before_an_outage_of_ours_is_asked_again_before_a_lease_is_given_up(
    stage: Stage,
) -> None:
    lease = await stage.lease(await stage.organization())
    stage.cloud.faults.always("inventory", Fault.LISTING_FAILS)
    await stage.run("observe_machines")
    await stage.run("refresh_offers")
    await stage.run("place_leases")
    stage.cloud.faults.clear()
    stage.clock.advance(180 * 60)
    await stage.run("place_leases")
    assert await stage.state(lease) == "placing"
    await stage.run("observe_machines")
    await _wait(stage, 2)
    assert await stage.state(lease) == "starting"
    await stage.finish()


async def test_while_nobody_refreshes_offers_a_lease_waits_half_an_hour_longer_and_is_given_up(
    stage: Stage,
) -> None:
    _sell_out(stage)
    lease = await stage.lease(await stage.organization())
    await _wait(stage, 20)
    for _ in range(39 * MINUTES):
        await stage.run("place_leases")
        stage.clock.advance(15)
    assert await stage.state(lease) == "placing"
    stage.clock.advance(60)
    await stage.run("place_leases")
    assert await stage.state(lease) == "ending"
    await stage.finish()


async def test_every_attempt_has_its_placement_although_it_decides_the_same_as_the_one_before(
    stage: Stage,
) -> None:
    lease = await stage.lease(await stage.organization())
    for number in (1, 2):
        await stage.run("refresh_offers")
        await stage.run("place_leases")
        assert len(await stage.attempts(lease)) == number
        stage.cloud.faults.script("launch", Fault.NO_CAPACITY)
        await stage.run("launch_machines")
        # Nobody looks at the lease for so long that its failure is forgiven.
        stage.clock.advance(600)
    first, second = (await stage.why(lease)).placements
    assert (first.chosen, first.ranking.rejected) == (second.chosen, second.ranking.rejected)


async def test_orders_that_are_refused_again_and_again_end_no_lease_that_may_wait(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization(), terms=LeaseTerms(wait_timeout_seconds=86_400))
    for number in range(1, ATTEMPTS_MAX + 3):
        stage.cloud.faults.script("launch", Fault.NO_CAPACITY)
        for loop in ("refresh_offers", "place_leases", "launch_machines"):
            await stage.run(loop)
        assert len(await stage.attempts(lease)) == number
        stage.clock.advance(RETRY_AFTER_MAX.total_seconds())
    await stage.play_until(lease, "ready", seconds_max=900)
    await stage.finish()


async def test_the_lease_with_the_highest_priority_gets_the_stock_that_returns(stage: Stage) -> None:
    _sell_out(stage)
    organization_id = await stage.organization()
    leases = {}
    for name, priority in (("low", 10), ("usual", 50), ("high", 90)):
        request = CapacityRequest("h100x1", priority=priority)
        leases[name] = await stage.lease(organization_id, request, name=name)
        await _wait(stage, 1)
        stage.clock.advance(4)  # So that each is looked at in moments of its own.
    place = next(iter(stage.cloud.stock))
    for served in (["high"], ["high", "usual"], ["high", "usual", "low"]):
        stage.cloud.stock[place] += 1
        await stage.play_until(leases[served[-1]], "ready", seconds_max=300)
        ready = {name for name, state in (await stage.states()).items() if state == "ready"}
        assert ready == set(served)
    await stage.finish()


async def test_a_lease_that_is_due_is_placed_together_with_those_that_go_before_it(stage: Stage) -> None:
    _sell_out(stage)
    organization_id = await stage.organization()
    for name, priority in (("low", 10), ("high", 90)):
        await stage.lease(organization_id, CapacityRequest("h100x1", priority=priority), name=name)
    await _wait(stage, 1)
    async with stage.db.transaction() as connection:
        await connection.execute(
            text("UPDATE leases SET due_at = due_at + interval '1 hour' WHERE name = 'high'")
        )
    _sell_out(stage, stock=1)
    await _wait(stage, 1)
    assert (await stage.states())["high"] == "starting"
