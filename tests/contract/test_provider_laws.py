"""The laws of `providers/base.py`, over every provider there is."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from control_plane.domain.ids import ProviderRef
from control_plane.domain.sku import REGION_PATTERN
from providers.base import (
    Confidence,
    ListedOffer,
    ListedState,
    MachineNotFound,
    NoCapacity,
    NotYet,
    OrderRefused,
    OutcomeUnknown,
    ProviderError,
    Sighting,
    Throttled,
    Unauthorized,
    Unavailable,
)
from providers.optional import ListsSomeRegions, RefusesLater
from tests.contract.clouds import USER_DATA_SECRET, Cloud, a_key, clouds

ENDED = {None, ListedState.ENDING, ListedState.GONE}


@pytest.fixture(params=sorted(clouds()))
async def cloud(request: pytest.FixtureRequest) -> AsyncIterator[Cloud]:
    made = clouds()[request.param]()
    yield made
    await made.provider.close()


async def sighted(cloud: Cloud, number: int = 1) -> Sighting | None:
    found = [each for each in await cloud.provider.inventory() if each.launch_key == a_key(number)]
    assert len(found) <= 1, found
    return found[0] if found else None


async def state(cloud: Cloud, number: int = 1) -> ListedState | None:
    found = await sighted(cloud, number)
    return found.state if found else None


def every_verb(cloud: Cloud, ref: ProviderRef) -> list[Callable[[], Awaitable[object]]]:
    provider = cloud.provider
    return [
        provider.offers,
        provider.inventory,
        lambda: provider.launch(cloud.order(9)),
        lambda: provider.terminate(ref),
    ]


# Law 1: a launch carries its key.


async def test_a_launched_machine_is_listed_under_its_launch_key(cloud: Cloud) -> None:
    ref = await cloud.provider.launch(cloud.order())
    found = await sighted(cloud)
    assert found is not None
    assert (found.provider_ref, found.state, found.address) == (ref, ListedState.PROVISIONING, None)
    assert found.native_type == (cloud.native_type if cloud.lists_types else None)


async def test_a_machine_runs_in_the_end_and_has_an_address(cloud: Cloud) -> None:
    await cloud.provider.launch(cloud.order())
    cloud.advance(cloud.seconds_to_run)
    found = await sighted(cloud)
    assert found is not None
    assert found.state is ListedState.RUNNING
    assert found.address


async def test_a_lost_answer_leaves_exactly_one_machine_and_the_inventory_finds_it_by_key(
    cloud: Cloud,
) -> None:
    cloud.lose_the_answer("launch")
    with pytest.raises(OutcomeUnknown):
        await cloud.provider.launch(cloud.order())
    assert cloud.ever(a_key()) == 1
    assert await state(cloud) is ListedState.PROVISIONING


async def test_an_internal_error_after_the_effect_is_not_a_no(cloud: Cloud) -> None:
    cloud.fail_after_the_effect("launch")
    with pytest.raises(OutcomeUnknown):
        await cloud.provider.launch(cloud.order())
    assert cloud.ever(a_key()) == 1
    assert await sighted(cloud) is not None


# Law 2: any other error has bought nothing.


async def test_sold_out_is_listed_as_not_available_where_stock_is_known_and_buys_nothing(
    cloud: Cloud,
) -> None:
    cloud.sell_out()
    place = (cloud.native_type, cloud.native_region)
    on_demand = [offer for offer in await _offers(cloud) if not offer.spot]
    listed = [o for o in on_demand if (o.native_type, o.native_region) == place]
    expected = [offer.confidence is Confidence.STATIC for offer in listed[:1]]
    assert [offer.available for offer in listed] == expected
    assert bool(listed) is cloud.lists_what_is_sold_out
    with pytest.raises(NoCapacity):
        await cloud.provider.launch(cloud.order())
    assert cloud.ever(a_key()) == 0


async def test_listed_capacity_may_be_refused_and_then_nothing_was_bought(cloud: Cloud) -> None:
    cloud.refuse_though_listed()
    with pytest.raises(NoCapacity):
        await cloud.provider.launch(cloud.order())
    assert cloud.ever(a_key()) == 0


async def test_what_is_sold_out_only_after_the_launch_was_accepted_is_told(cloud: Cloud) -> None:
    if not cloud.may_sell_out_later:
        return  # This provider has a place for what it accepts.
    cloud.sell_out_later()
    ref = await cloud.provider.launch(cloud.order())
    listed = {each.provider_ref: each.state for each in await cloud.provider.inventory()}
    if isinstance(cloud.provider, RefusesLater):
        listed |= {each.provider_ref: each.state for each in await cloud.provider.refused_later()}
    assert listed == {ref: ListedState.SOLD_OUT}
    with suppress(MachineNotFound):  # There may be nothing to end.
        await cloud.provider.terminate(ref)
    cloud.advance(cloud.seconds_to_be_gone)
    assert await state(cloud) in {None, ListedState.GONE}
    assert cloud.alive(a_key()) == 0


async def test_throttled_says_when_to_come_back_and_buys_nothing(cloud: Cloud) -> None:
    cloud.throttle("launch")
    with pytest.raises(Throttled) as caught:
        await cloud.provider.launch(cloud.order())
    assert caught.value.retry_after_seconds > 0
    assert cloud.ever(a_key()) == 0


@pytest.mark.parametrize("verb", ["offers", "inventory"])
async def test_a_throttled_read_is_throttled_and_not_an_empty_answer(cloud: Cloud, verb: str) -> None:
    cloud.throttle(verb)
    with pytest.raises(Throttled):
        await getattr(cloud.provider, verb)()


async def test_an_order_for_a_type_that_does_not_exist_is_refused(cloud: Cloud) -> None:
    cloud.native_type = "no-such-type"
    with pytest.raises(OrderRefused):
        await cloud.provider.launch(cloud.order())
    assert cloud.ever(a_key()) == 0


async def test_user_data_of_the_stated_size_is_accepted_and_one_byte_more_is_refused(cloud: Cloud) -> None:
    limit = cloud.provider.capabilities.user_data_bytes_max
    await cloud.provider.launch(cloud.order(1, user_data="#" * limit))
    with pytest.raises(OrderRefused):
        await cloud.provider.launch(cloud.order(2, user_data="#" * (limit + 1)))
    assert (cloud.ever(a_key(1)), cloud.ever(a_key(2))) == (1, 0)


async def test_a_launch_that_never_left_us_is_unavailable_and_bought_nothing(cloud: Cloud) -> None:
    cloud.cut_the_network()
    with pytest.raises(Unavailable):
        await cloud.provider.launch(cloud.order())
    assert cloud.ever(a_key()) == 0


# Law 3: the inventory is complete or an error.


async def test_the_inventory_shows_every_machine_of_ours_and_no_others(cloud: Cloud) -> None:
    await cloud.add_foreign_machine()
    refs = {await cloud.provider.launch(cloud.order(number)) for number in (1, 2, 3)}
    listed = await cloud.provider.inventory()
    assert {each.provider_ref for each in listed} == refs
    assert {each.launch_key for each in listed} == {a_key(1), a_key(2), a_key(3)}


async def test_a_listing_that_fails_half_way_raises(cloud: Cloud) -> None:
    for number in (1, 2, 3):
        await cloud.provider.launch(cloud.order(number))
    cloud.break_the_listing()
    with pytest.raises(Unavailable):
        await cloud.provider.inventory()
    assert len(await cloud.provider.inventory()) == 3


async def test_a_machine_that_never_boots_stays_listed(cloud: Cloud) -> None:
    cloud.never_boot()
    await cloud.provider.launch(cloud.order())
    cloud.advance(cloud.provider.capabilities.boot_seconds_max)
    assert await state(cloud) is ListedState.PROVISIONING


async def test_a_provider_looks_for_machines_wherever_it_sells_some(cloud: Cloud) -> None:
    if not isinstance(cloud.provider, ListsSomeRegions):
        return  # It looks for them in all of its regions.
    assert all(cloud.provider.lists(offer.native_region) for offer in await _offers(cloud))
    assert not cloud.provider.lists("nowhere")


# Law 4: the end of a machine.


async def test_a_terminated_machine_ends_and_the_account_pays_no_more(cloud: Cloud) -> None:
    ref = await cloud.provider.launch(cloud.order())
    cloud.advance(cloud.seconds_to_run)
    await cloud.provider.terminate(ref)
    assert await state(cloud) in ENDED
    assert cloud.alive(a_key()) == 0
    cloud.advance(cloud.seconds_to_be_gone)
    assert await state(cloud) in {None, ListedState.GONE}


async def test_terminating_what_is_gone_raises_machine_not_found(cloud: Cloud) -> None:
    ref = await cloud.provider.launch(cloud.order())
    until_it_can_end(cloud)
    await cloud.provider.terminate(ref)
    cloud.advance(cloud.seconds_to_be_gone)
    with pytest.raises(MachineNotFound):
        await cloud.provider.terminate(ref)


async def test_terminating_twice_at_once_leaves_no_machine_and_hurts_nobody_else(cloud: Cloud) -> None:
    ref, _ = [await cloud.provider.launch(cloud.order(number)) for number in (1, 2)]
    until_it_can_end(cloud)
    await cloud.provider.terminate(ref)
    with suppress(MachineNotFound):  # Some say "gone" at once, others only when it is; both are lawful.
        await cloud.provider.terminate(ref)
    assert (cloud.alive(a_key(1)), cloud.alive(a_key(2))) == (0, 1)


async def test_a_machine_is_ended_while_it_is_created_or_the_refusal_says_not_yet(cloud: Cloud) -> None:
    ref = await cloud.provider.launch(cloud.order())
    if cloud.ends_while_creating:
        await cloud.provider.terminate(ref)
    else:
        with pytest.raises(NotYet):
            await cloud.provider.terminate(ref)
    assert cloud.alive(a_key()) == (0 if cloud.ends_while_creating else 1)


def until_it_can_end(cloud: Cloud) -> None:
    if not cloud.ends_while_creating:
        cloud.advance(cloud.seconds_to_run)


async def test_terminating_what_never_was_raises_machine_not_found(cloud: Cloud) -> None:
    with pytest.raises(MachineNotFound):
        await cloud.provider.terminate(cloud.absent_ref)


async def test_a_terminate_with_a_lost_answer_is_unknown_and_the_inventory_shows_its_outcome(
    cloud: Cloud,
) -> None:
    ref = await cloud.provider.launch(cloud.order())
    until_it_can_end(cloud)
    cloud.lose_the_answer("terminate")
    with pytest.raises(OutcomeUnknown):
        await cloud.provider.terminate(ref)
    assert await state(cloud) in ENDED
    assert cloud.alive(a_key()) == 0


async def test_a_terminate_refused_for_now_leaves_the_machine(cloud: Cloud) -> None:
    if not cloud.provider.capabilities.terminate_may_be_refused:
        return  # This provider never refuses.
    ref = await cloud.provider.launch(cloud.order())
    until_it_can_end(cloud)
    cloud.refuse_terminate()
    with pytest.raises(NotYet):
        await cloud.provider.terminate(ref)
    assert cloud.alive(a_key()) == 1
    await cloud.provider.terminate(ref)
    assert await state(cloud) in ENDED
    assert cloud.alive(a_key()) == 0


# Laws 5 and 6: unknown status words, and what may leave a provider.


async def test_an_unknown_status_word_is_unknown_and_never_gone(cloud: Cloud) -> None:
    ref = await cloud.provider.launch(cloud.order())
    cloud.show_unknown_status(ref)
    assert await state(cloud) is ListedState.UNKNOWN


async def test_a_revoked_key_is_unauthorized_for_every_verb(cloud: Cloud) -> None:
    ref = await cloud.provider.launch(cloud.order())
    cloud.revoke_the_key()
    for call in every_verb(cloud, ref):
        with pytest.raises(Unauthorized):
            await call()
    assert (cloud.ever(a_key(9)), cloud.alive(a_key())) == (0, 1)


async def test_without_a_network_every_verb_is_unavailable(cloud: Cloud) -> None:
    ref = await cloud.provider.launch(cloud.order())
    cloud.cut_the_network()
    for call in every_verb(cloud, ref):
        with pytest.raises(Unavailable):
            await call()


async def test_no_secret_shows_in_any_error_or_repr(cloud: Cloud) -> None:
    errors = [await failure(lambda: cloud.provider.terminate(cloud.absent_ref))]
    for befall in (cloud.refuse_though_listed, lambda: cloud.lose_the_answer("launch")):
        befall()
        errors.append(await failure(lambda: cloud.provider.launch(cloud.order())))
    big = "x" * (cloud.provider.capabilities.user_data_bytes_max + 1)
    errors.append(await failure(lambda: cloud.provider.launch(cloud.order(2, user_data=big))))
    cloud.revoke_the_key()
    errors.append(await failure(cloud.provider.offers))
    cloud.cut_the_network()
    errors.append(await failure(cloud.provider.inventory))
    shown = "\n".join([repr(cloud.provider), *map(repr, errors), *map(str, errors)])
    assert cloud.secret is None or cloud.secret not in shown
    assert USER_DATA_SECRET not in shown


async def failure(call: Callable[[], Awaitable[object]]) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await call()
    return caught.value


# What an offer is.


async def _offers(cloud: Cloud) -> list[ListedOffer]:
    return [each for each in await cloud.provider.offers() if isinstance(each, ListedOffer)]


async def test_offers_speak_our_words(cloud: Cloud) -> None:
    offers = await _offers(cloud)
    places = [(offer.native_type, offer.native_region, offer.spot) for offer in offers]
    assert len(places) == len(set(places)) > 0
    for offer in offers:
        assert REGION_PATTERN.fullmatch(offer.region), offer
        assert offer.cost_nano_per_hour > 0
        assert (offer.shape.gpu_count > 0) is (offer.shape.gpu_model is not None)
    assert any(offer.available for offer in offers)
