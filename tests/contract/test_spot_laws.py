"""The laws of spot capacity, over every provider: an order buys what it names, and an eviction is the provider's word."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from control_plane.domain.ids import AccountName, ProviderRef
from control_plane.domain.money import Nano
from providers.base import (
    Eviction,
    EvictionState,
    LaunchOrder,
    ListedOffer,
    ListedState,
    NoCapacity,
    OrderRefused,
    OutcomeUnknown,
    Sighting,
)
from providers.guard import Guard
from tests.contract.clouds import Cloud, EmulatedCloud, ScriptedCloud, a_key, clouds

ENOUGH = Nano(1_000_000_000_000)
SELLERS = {"aws", "fake", "local"}


async def every(*, sells: bool) -> AsyncIterator[tuple[Cloud, Guard]]:
    """Each cloud whose provider sells spot, or not, behind the guard as in production."""
    for make in clouds().values():
        cloud = make()
        guard = Guard(
            cloud.provider, account=AccountName("any"), now=cloud.clock.now, sleep=cloud.clock.sleep
        )
        if cloud.provider.capabilities.sells_spot is sells:
            yield cloud, guard
        await cloud.provider.close()


def spot(cloud: Cloud, number: int = 1, *, at_most: Nano = ENOUGH) -> LaunchOrder:
    return replace(cloud.order(number), spot=True, cost_nano_per_hour_max=at_most)


async def seen(guard: Guard, ref: ProviderRef) -> Sighting | None:
    found = [each for each in await guard.inventory() if each.provider_ref == ref]
    return found[0] if found else None


async def eviction(guard: Guard, ref: ProviderRef) -> Eviction | None:
    found = await seen(guard, ref)
    assert found is not None
    return found.eviction


async def test_a_spot_order_is_refused_before_anything_is_sent_where_spot_is_not_sold() -> None:
    names = set[str]()
    async for cloud, guard in every(sells=False):
        if isinstance(cloud, EmulatedCloud):
            cloud.network.requests.clear()
        with pytest.raises(OrderRefused, match="spot"):
            await guard.launch(spot(cloud))
        if isinstance(cloud, EmulatedCloud):
            assert cloud.network.requests == [], cloud.name
        if isinstance(cloud, ScriptedCloud):
            assert cloud.scenario.calls.total() == 0, cloud.name
        assert cloud.ever(a_key()) == 0, cloud.name
        names.add(cloud.name)
    assert names == clouds().keys() - SELLERS


async def test_an_order_buys_the_kind_that_it_names() -> None:
    names = set[str]()
    async for cloud, guard in every(sells=True):
        await guard.launch(spot(cloud, 1))
        await guard.launch(cloud.order(2))
        assert (cloud.is_spot(a_key(1)), cloud.is_spot(a_key(2))) == (True, False), cloud.name
        names.add(cloud.name)
    assert names == SELLERS


async def test_a_type_that_is_sold_in_both_ways_is_listed_twice_and_spot_gives_its_notice() -> None:
    async for cloud, guard in every(sells=True):
        listed = [each for each in await guard.offers() if isinstance(each, ListedOffer)]
        place = (cloud.native_type, cloud.native_region)
        both = {each.spot: each for each in listed if (each.native_type, each.native_region) == place}
        assert both.keys() == {True, False}, cloud.name
        assert both[True].shape == both[False].shape, cloud.name
        assert both[True].cost_nano_per_hour < both[False].cost_nano_per_hour, cloud.name
        assert (both[False].eviction_notice_seconds, both[True].eviction_notice_seconds) == (None, 120)


async def test_a_lost_answer_to_a_spot_order_leaves_one_machine_that_is_found_by_its_key() -> None:
    async for cloud, guard in every(sells=True):
        for number, lose in enumerate((cloud.lose_the_answer, cloud.fail_after_the_effect), 1):
            lose("launch")
            with pytest.raises(OutcomeUnknown):
                await guard.launch(spot(cloud, number))
            assert cloud.ever(a_key(number)) == 1, cloud.name
            assert [each.launch_key for each in await guard.inventory()].count(a_key(number)) == 1, cloud.name


async def test_spot_that_is_sold_out_or_dearer_than_the_order_allows_is_no_capacity_and_buys_nothing() -> (
    None
):
    async for cloud, guard in every(sells=True):
        with pytest.raises(NoCapacity):
            await guard.launch(spot(cloud, at_most=Nano(1_000_000)))
        cloud.sell_out_spot()
        with pytest.raises(NoCapacity):
            await guard.launch(spot(cloud))
        assert cloud.ever(a_key()) == 0, cloud.name
        await guard.launch(cloud.order(2))
        assert cloud.alive(a_key(2)) == 1, f"{cloud.name}: there is none on demand either"


async def test_an_eviction_is_announced_withdrawn_and_done_in_the_words_of_the_provider() -> None:
    async for cloud, guard in every(sells=True):
        ref = await guard.launch(spot(cloud))
        cloud.advance(cloud.seconds_to_run)
        assert await eviction(guard, ref) is None, cloud.name
        cloud.announce_eviction(ref)
        at = cloud.clock.now()
        announced = await eviction(guard, ref)
        assert announced is not None, cloud.name
        assert announced.state is EvictionState.ANNOUNCED, cloud.name
        assert abs((announced.at - at).total_seconds()) <= 1, cloud.name
        found = await seen(guard, ref)
        assert found is not None
        assert (found.state, bool(announced.native_status)) == (ListedState.RUNNING, True), cloud.name
        cloud.withdraw_eviction(ref)
        assert await eviction(guard, ref) is None, cloud.name
        await cloud.evict(ref)
        cloud.advance(min(cloud.seconds_to_be_gone, 60.0))
        gone = await seen(guard, ref)
        assert gone is not None, cloud.name
        assert gone.eviction is not None, cloud.name
        assert (gone.state, gone.eviction.state) == (ListedState.GONE, EvictionState.TAKEN), cloud.name
        assert cloud.alive(a_key()) == 0, cloud.name


async def test_a_spot_machine_that_we_end_was_not_evicted() -> None:
    async for cloud, guard in every(sells=True):
        ref = await guard.launch(spot(cloud))
        cloud.advance(cloud.seconds_to_run)
        await guard.terminate(ref)
        cloud.advance(min(cloud.seconds_to_be_gone, 30.0))
        assert await eviction(guard, ref) is None, cloud.name
