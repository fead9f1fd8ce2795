"""What objects in a cluster may lead to: a budget per month, and no machines that are bought and dropped all day."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from control_plane.domain import scaled_pool
from control_plane.domain.scaling import STAYS_FOR
from data_plane.cluster.resource import NODE_POOL
from tests.scenario.test_cluster_scaling import Place, look, place_on
from tests.support import scaling
from tests.support.clock import Clock
from tests.support.rows import rows
from tests.support.scaling import condition
from tests.support.stage import Stage

pytestmark = pytest.mark.database


@pytest.fixture
def clock() -> Clock:
    """Three hours before a month ends."""
    return Clock(datetime(2026, 11, 30, 21, tzinfo=UTC))


@pytest.fixture
async def place(stage: Stage) -> Place:
    return await place_on(stage)


async def bill(place: Place) -> None:
    for loop in ("meter_usage", "rate_usage"):
        for report in await place.stage.run(loop):
            assert report.errors == []


async def is_charged(place: Place) -> int:
    """In nano-USD, this month, as an independent sum over all there is."""
    month = place.stage.clock.now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    async with place.stage.db.reading() as connection:
        (row,) = await rows(
            connection,
            text("SELECT coalesce(sum(amount_nano), 0) AS nano FROM charges WHERE started_at >= :month"),
            month=month,
        )
    return int(row.nano)


async def test_a_budget_per_month_stops_growth_says_so_and_begins_anew_with_the_month(place: Place) -> None:
    place.scale(usd_per_month="10.00")
    place.pend("one")
    await place.cluster.play_until(lambda: place.cluster.open_nodes)
    (node,) = place.cluster.open_nodes
    place.bind("one", node["metadata"]["name"])
    await place.stage.play(3_600, step=120)
    await bill(place)
    await look(place, seconds=61)
    place.pend("two")
    await look(place)
    await look(place)
    assert len(await place.live()) == 1
    said = condition(place.policy_object(), "BudgetReached")
    charged = place.policy_object()["status"]["usdThisMonth"]
    assert said["status"] == "True"
    assert f"{charged} of 10.00 USD were charged this month (UTC)" in said["message"]
    assert "an hour of all nodes with one more of train costs 7.20" in said["message"]
    assert await is_charged(place) > 3 * 10**9
    assert float(charged) * 10**9 == pytest.approx(await is_charged(place))

    while place.stage.clock.now() < datetime(2026, 12, 1, tzinfo=UTC):
        assert len(await place.live()) == 1
        await place.stage.play(600, step=120)
        await bill(place)
    await place.cluster.play(60, step=20)
    assert len(await place.live()) == 2, "what was charged in November counts in November"
    assert condition(place.policy_object(), "BudgetReached")["status"] == "False"
    await place.stage.play(3_600, step=120)
    await bill(place)
    await look(place, seconds=61)
    shown = float(place.policy_object()["status"]["usdThisMonth"]) * 10**9
    assert 0 < shown < 8 * 10**9
    assert shown == pytest.approx(await is_charged(place))


async def test_a_pool_that_is_made_again_goes_on_with_what_it_cost(place: Place) -> None:
    place.scale(usd_per_month="4.00")
    place.pend("one")
    await place.cluster.play_until(lambda: place.cluster.open_nodes)
    await place.stage.play(3_600, step=120)
    await bill(place)
    await place.end("one")
    await place.server.delete(NODE_POOL, "train", place.tenant.namespace)
    await place.cluster.play_until(lambda: not place.server.named(NODE_POOL))
    await bill(place)
    before = await is_charged(place)
    assert before > 0
    place.write(scaling.node_pool(place.tenant.namespace))
    place.pend("two")
    await look(place)
    await look(place)
    assert await place.live() == []
    assert condition(place.policy_object(), "BudgetReached")["status"] == "True"
    assert float(place.policy_object()["status"]["usdThisMonth"]) * 10**9 == pytest.approx(before)


async def test_who_buys_machines_and_drops_them_unused_gets_no_more_for_an_hour(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaled_pool, "UNUSED_MAX", 3)
    namespace = place.tenant.namespace
    for attempt in range(8):
        place.write(scaling.node_pool(namespace, nodes=1))
        bought = min(attempt + 1, 3)
        await place.cluster.play_until(lambda: len(place.stage.cloud.machines) == bought)  # noqa: B023 - at once
        # At times it goes before it is ready, and at times just after that.
        await place.cluster.play(30 if attempt % 2 else 0, step=5)
        assert len(place.stage.cloud.machines) == bought
        place.write(scaling.node_pool(namespace, nodes=0))
        await look(place)
    place.write(scaling.node_pool(namespace, nodes=1))
    await look(place, seconds=31)
    said = condition(place.pool_object(), "Admitted")
    assert (said["status"], said["reason"]) == ("False", "UnusedNodesTooMany")
    assert "3 nodes that the organization ordered within an hour were given up unused" in said["message"]
    place.stage.clock.advance(3_600)
    await look(place)
    await look(place, seconds=31)
    assert len(await place.live()) == 1
    assert condition(place.pool_object(), "Admitted")["status"] == "True"


async def test_an_organization_orders_so_many_nodes_an_hour_and_makes_so_many_pools(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaled_pool, "ORDERED_MAX", 2)
    monkeypatch.setattr(scaled_pool, "MADE_MAX", 2)
    namespace = place.tenant.namespace
    for name in ("a", "b", "c"):
        place.write(scaling.node_pool(namespace, name, nodes=2))
    await look(place)
    await look(place)
    assert condition(place.pool_object("a"), "Admitted")["status"] == "True"
    said = condition(place.pool_object("b"), "Admitted")
    assert (said["status"], said["reason"]) == ("False", "OrderedNodesTooMany")
    refused = condition(place.pool_object("c"), "Accepted")
    assert (refused["status"], refused["reason"]) == ("False", "TooManyNodePools")
    place.stage.clock.advance(3_600)
    await look(place)
    assert condition(place.pool_object("c"), "Accepted")["status"] == "True"


async def test_pods_that_come_and_go_drop_no_machine_that_was_bought_for_them(place: Place) -> None:
    place.scale(empty_for=60)
    place.pend("flash")
    await place.cluster.play_until(place.stage.cloud.alive)
    await place.end("flash")
    opened: datetime | None = None
    for _ in range(200):
        await place.cluster.play(10, step=10)
        if opened is None and place.cluster.open_nodes:
            opened = place.stage.clock.now()
        if not await place.live():
            break
    assert opened is not None, "it became a node, which is paid for"
    assert place.stage.clock.now() - opened >= STAYS_FOR - timedelta(seconds=20)
