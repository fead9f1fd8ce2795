"""Which machine comes next: the same facts, the same order; and a reason for every loser."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.block import Block, Blocks, block_after, in_force
from control_plane.domain.cpu import Architecture
from control_plane.domain.effective_price import History
from control_plane.domain.envelope import Envelope
from control_plane.domain.failure import OURS, FailReason
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName
from control_plane.domain.lot import lots_of, order
from control_plane.domain.money import Nano
from control_plane.domain.offer_key import offer_key, record_key
from control_plane.domain.placement import (
    PROOF_RECORD_MAX,
    RETRY_AFTER,
    STALE_AFTER,
    STALE_AFTER_UNLESS_KNOWN,
    Disproven,
    Failure,
    Offer,
    RejectCode,
    SoldAs,
    serves,
    sold_as,
)
from control_plane.domain.price import ListPrice
from control_plane.domain.proof import Tier
from control_plane.domain.purchase import PurchaseKind, capacity_for
from control_plane.domain.ranking import (
    CANDIDATES_NAMED_MAX,
    NAMED_OF_REASON_MAX,
    REJECTED_NAMED_MAX,
    Ranking,
    digest,
    is_news,
    rank,
)
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sku import CapacityShape, Shape, Sku
from control_plane.domain.waiting import waiting_why
from providers.base import Confidence
from tests.support.clock import START

SOLD = Shape(GpuModel.H100_SXM_80GB, 8, 64, 512, 100)
PRICE = Nano(20_000_000_000)
OFFER = Offer(
    key="a:eu:gpu_8x",
    account="a",
    provider="a",
    region="eu-central-1",
    native_region="eu",
    native_type="gpu_8x",
    shape=SOLD,
    capacity="vm",
    cost_nano_per_hour=PRICE,
    available=True,
    confidence="live",
    observed_at=START,
)
MOMENT = timedelta(microseconds=1)
RULED_OUT = {
    FailReason.ORDER_REFUSED,
    FailReason.HOST_KEY_CHANGED,
    FailReason.SETUP_FAILED,
    FailReason.GPU_MISMATCH,
    FailReason.PROOF_FAILED,
    FailReason.PROOF_EMULATED,
    FailReason.LEASE_ENDED,
    FailReason.NODE_HOSTILE,
}
"""Failures after which this lease never tries the offer again."""


def ranked(
    *offers: Offer,
    request: CapacityRequest | None = None,
    failures: dict[str, Failure] | None = None,
    unhealthy: dict[str, str] | None = None,
    disproven: dict[str, Disproven] | None = None,
    blocks: Sequence[Block] = (),
    envelopes: Sequence[Envelope] = (),
    yielded: Collection[str] = (),
    sold: Shape = SOLD,
) -> Ranking:
    return rank(
        request or CapacityRequest("h100x8"),
        sold,
        PRICE,
        lots_of(offers),
        failures=failures or {},
        unhealthy_accounts=unhealthy or {},
        disproven=disproven or {},
        blocks=in_force(blocks, START),
        now=START,
        envelopes=envelopes,
        yielded=yielded,
    )


def a_block(place: Offer) -> Block:
    block = block_after(place, FailReason.NO_CAPACITY, now=START)
    assert block is not None
    return block


def expect_rejected(ranking: Ranking, code: RejectCode) -> None:
    assert not ranking.candidates
    (rejection,) = ranking.rejected
    assert rejection.code is code
    assert rejection.why.endswith(".")


def test_an_offer_that_fits_is_a_candidate() -> None:
    assert ranked(OFFER) == Ranking((OFFER,), ())


@pytest.mark.parametrize(
    "shape",
    [
        replace(SOLD, gpu_model=GpuModel.H100_PCIE_80GB),
        replace(SOLD, gpu_count=4),
        replace(SOLD, gpu_count=16),
        replace(SOLD, vcpus=63),
        replace(SOLD, memory_gib=511),
        replace(SOLD, disk_gib=99),
    ],
)
def test_less_than_what_was_sold_or_other_gpus_do_not_fit(shape: Shape) -> None:
    expect_rejected(ranked(replace(OFFER, shape=shape)), RejectCode.SHAPE_DIFFERS)


def test_a_machine_with_gpus_is_not_sold_without_them_nor_the_other_way_round() -> None:
    without = replace(SOLD, gpu_model=None, gpu_count=0)
    assert ranked(replace(OFFER, shape=without), sold=without).candidates
    expect_rejected(ranked(OFFER, sold=without), RejectCode.SHAPE_DIFFERS)
    expect_rejected(ranked(replace(OFFER, shape=without)), RejectCode.SHAPE_DIFFERS)
    small = replace(OFFER, shape=replace(without, vcpus=SOLD.vcpus - 1))
    (rejection,) = ranked(small, sold=without).rejected
    assert "is 63 vCPUs" in rejection.why


def test_more_around_the_same_gpus_fits() -> None:
    assert ranked(replace(OFFER, shape=replace(SOLD, vcpus=65, memory_gib=1_024, disk_gib=101))).candidates


def test_a_region_or_provider_that_was_not_asked_for_is_excluded() -> None:
    expect_rejected(
        ranked(OFFER, request=CapacityRequest("h100x8", regions=("us",))), RejectCode.REGION_EXCLUDED
    )
    expect_rejected(
        ranked(OFFER, request=CapacityRequest("h100x8", providers=("b",))), RejectCode.PROVIDER_EXCLUDED
    )
    assert ranked(
        OFFER, request=CapacityRequest("h100x8", regions=("us", "eu"), providers=("b", "a"))
    ).candidates


def test_a_network_that_was_asked_for_has_to_be_stated_and_as_fast() -> None:
    fast = CapacityRequest("h100x8", network_gbps_min=400)
    assert ranked(replace(OFFER, network_gbps=400), request=fast).candidates
    for gbps, words in (
        (399, "gpu_8x has 399 Gbit/s between machines"),
        (None, "does not state its network"),
    ):
        ranking = ranked(replace(OFFER, network_gbps=gbps), request=fast)
        expect_rejected(ranking, RejectCode.NETWORK_TOO_SLOW)
        assert words in ranking.rejected[0].why
        assert "for 400 Gbit/s at least." in ranking.rejected[0].why
        assert ranked(replace(OFFER, network_gbps=gbps)).candidates


def test_offers_that_differ_in_their_network_are_not_treated_alike() -> None:
    slow, fast = replace(OFFER, key="slow", network_gbps=100), replace(OFFER, key="fast", network_gbps=400)
    for first, second in ((slow, fast), (fast, slow)):
        ranking = ranked(first, second, request=CapacityRequest("h100x8", network_gbps_min=400))
        assert ranking.candidates == (fast,)
        assert [rejection.offer for rejection in ranking.rejected] == [slow]


def test_what_costs_a_nano_more_than_it_is_sold_for_is_not_bought() -> None:
    assert ranked(OFFER).candidates
    expect_rejected(
        ranked(replace(OFFER, cost_nano_per_hour=Nano(PRICE + 1))), RejectCode.COSTS_MORE_THAN_SOLD
    )


def test_nothing_is_bought_at_an_unhealthy_account_and_its_reason_is_passed_on() -> None:
    ranking = ranked(OFFER, unhealthy={"a": "The account is frozen: the list is empty."})
    expect_rejected(ranking, RejectCode.ACCOUNT_UNHEALTHY)
    assert ranking.rejected[0].why == "The account is frozen: the list is empty."


def test_an_offer_is_sold_until_it_is_stale() -> None:
    assert set(STALE_AFTER) == set(Confidence)
    for confidence, limit in [*STALE_AFTER.items(), ("unheard of", STALE_AFTER_UNLESS_KNOWN)]:
        offer = replace(OFFER, confidence=confidence)
        assert ranked(replace(offer, observed_at=START - limit)).candidates, confidence
        expect_rejected(ranked(replace(offer, observed_at=START - limit - MOMENT)), RejectCode.STALE)


def test_the_more_a_listing_says_about_stock_the_sooner_it_is_stale() -> None:
    live, advisory, static = (STALE_AFTER[each] for each in Confidence)
    assert live < advisory < static
    assert live == STALE_AFTER_UNLESS_KNOWN


def test_machines_on_which_we_are_not_known_to_run_are_never_sold() -> None:
    offer = replace(OFFER, architecture=Architecture.ARM64)
    expect_rejected(ranked(offer), RejectCode.ARCHITECTURE_NOT_SOLD)
    assert sold_as(offer, [a_price("h100x8")]) == SoldAs((), None, None)


SPOT = CapacityRequest("h100x8", purchase=PurchaseKind.SPOT)


def test_an_offer_serves_leases_of_its_own_purchase_kind_alone_whatever_it_costs() -> None:
    free, dear = replace(OFFER, cost_nano_per_hour=Nano(0)), Nano(PRICE + 1)
    expect_rejected(ranked(replace(free, spot=True)), RejectCode.SPOT)
    expect_rejected(ranked(free, request=SPOT), RejectCode.ON_DEMAND)
    expect_rejected(ranked(replace(OFFER, spot=True, cost_nano_per_hour=dear)), RejectCode.SPOT)
    expect_rejected(ranked(replace(OFFER, cost_nano_per_hour=dear), request=SPOT), RejectCode.ON_DEMAND)
    assert ranked(replace(OFFER, spot=True), request=SPOT).candidates


def test_an_interruptible_lease_has_capacity_on_demand_alone() -> None:
    request = CapacityRequest("h100x8", purchase=PurchaseKind.INTERRUPTIBLE)
    assert ranked(OFFER, request=request).candidates
    expect_rejected(ranked(replace(OFFER, spot=True), request=request), RejectCode.SPOT)


def test_what_an_interruptible_lease_yielded_is_kept_for_another_lease() -> None:
    expect_rejected(ranked(OFFER, yielded={OFFER.key}), RejectCode.YIELDED)
    assert ranked(OFFER, yielded={"another"}).candidates


def test_spot_capacity_of_a_provider_from_which_none_is_ordered_serves_nobody() -> None:
    listed = replace(OFFER, spot=True, orderable=False)
    for request in (SPOT, None):
        expect_rejected(ranked(listed, request=request), RejectCode.SPOT)
    assert sold_as(listed, [replace(a_price("h100x8"), spot_nano_per_unit_hour=PRICE)]).skus == ()


def test_a_spot_offer_is_sold_at_the_spot_price_as_the_skus_that_have_one() -> None:
    units = SOLD.units
    cost = Nano(PRICE // 2)
    book = [
        replace(a_price("spot too"), spot_nano_per_unit_hour=Nano(cost // units)),
        replace(a_price("too cheap"), spot_nano_per_unit_hour=Nano(cost // units - 1)),
        a_price("on demand alone"),
    ]
    offer = replace(OFFER, spot=True, cost_nano_per_hour=cost)
    assert sold_as(offer, book) == SoldAs(("spot too",), cost, None)
    assert sold_as(OFFER, book).skus == ("spot too", "too cheap", "on demand alone")


def test_the_offer_that_costs_least_to_use_comes_first_and_not_the_one_with_the_lowest_price() -> None:
    cheap = replace(OFFER, key="cheap", cost_nano_per_hour=Nano(PRICE - 100_000_000))
    failing = replace(cheap, history=History(tried=20, failed=15))
    assert ranked(OFFER, cheap).candidates == (cheap, OFFER)
    assert ranked(OFFER, failing).candidates == (OFFER, failing)


def test_what_is_sold_out_is_not_tried() -> None:
    expect_rejected(ranked(replace(OFFER, available=False)), RejectCode.SOLD_OUT)


@pytest.mark.parametrize("reason", list(FailReason))
def test_a_failure_rests_the_offer_or_rules_it_out_for_this_lease(reason: FailReason) -> None:
    def after(ago: timedelta) -> Ranking:
        return ranked(OFFER, failures={OFFER.key: Failure(reason, START - ago)})

    if reason in OURS:
        assert after(timedelta(0)).candidates, "it says nothing about the offer"
    elif reason in RULED_OUT:
        expect_rejected(after(timedelta(days=30)), RejectCode.FAILED_BEFORE)
    else:
        expect_rejected(after(RETRY_AFTER - MOMENT), RejectCode.RESTING)
        assert after(RETRY_AFTER).candidates


def test_an_offer_rests_twice_as_long_after_each_failure_up_to_a_quarter_of_an_hour() -> None:
    for times, minutes in ((1, 2), (2, 4), (3, 8), (4, 15), (1_000_000, 15)):

        def after(ago: timedelta, times: int = times) -> Ranking:
            return ranked(OFFER, failures={OFFER.key: Failure(FailReason.NO_CAPACITY, START - ago, times)})

        rests = timedelta(minutes=minutes)
        expect_rejected(after(rests - MOMENT), RejectCode.RESTING)
        assert after(rests).candidates, times


def test_a_failure_on_another_offer_says_nothing() -> None:
    assert ranked(OFFER, failures={"b": Failure(FailReason.GPU_MISMATCH, START)}).candidates


def test_the_cheapest_comes_first_then_the_surest_then_the_name() -> None:
    cheap = replace(OFFER, key="z", cost_nano_per_hour=Nano(1), confidence="static")
    sure = replace(OFFER, key="y")
    named = replace(OFFER, key="b", confidence="advisory")
    also = replace(OFFER, key="c", confidence="advisory")
    unsure = replace(OFFER, key="a", confidence="static")
    strange = replace(OFFER, key="0", confidence="who knows")
    ranking = ranked(strange, unsure, also, named, sure, cheap)
    assert ranking.candidates == (cheap, sure, named, also, unsure, strange)


SHAPES = st.builds(
    Shape,
    st.sampled_from([GpuModel.H100_SXM_80GB, GpuModel.A100_SXM_80GB]),
    st.sampled_from([4, 8]),
    st.sampled_from([63, 64]),
    st.just(512),
    st.just(100),
)
OFFERS = st.lists(
    st.builds(
        Offer,
        key=st.text("abcdef", min_size=1, max_size=3),
        account=st.sampled_from("ab"),
        provider=st.sampled_from("ab"),
        region=st.sampled_from(["eu-central-1", "us-east-1"]),
        native_region=st.just("r"),
        native_type=st.just("t"),
        shape=SHAPES,
        capacity=st.just("vm"),
        cost_nano_per_hour=st.integers(PRICE - 1, PRICE + 1).map(Nano),
        available=st.booleans(),
        spot=st.booleans(),
        confidence=st.sampled_from(["live", "advisory", "static", "?"]),
        observed_at=st.sampled_from([START, START - max(STALE_AFTER.values()) - MOMENT]),
    ),
    unique_by=lambda offer: offer.key,
    max_size=12,
)
FAILURES = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.builds(Failure, st.sampled_from(FailReason), st.sampled_from([START, START - RETRY_AFTER])),
    max_size=4,
)
UNHEALTHY = st.sampled_from([{}, {"a": "It does not answer."}])
REQUESTS = st.builds(
    CapacityRequest,
    st.just("h100x8"),
    regions=st.sampled_from([(), ("eu",)]),
    providers=st.sampled_from([(), ("a",)]),
)


@given(OFFERS, FAILURES, UNHEALTHY, REQUESTS, st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_how_the_offers_came(
    offers: list[Offer],
    failures: dict[str, Failure],
    unhealthy: dict[str, str],
    request: CapacityRequest,
    random: Random,
) -> None:
    shuffled = list(offers)
    random.shuffle(shuffled)
    straight = ranked(*offers, request=request, failures=failures, unhealthy=unhealthy)
    assert straight == ranked(*shuffled, request=request, failures=failures, unhealthy=unhealthy)


@given(OFFERS, FAILURES, UNHEALTHY, REQUESTS, st.lists(st.builds(a_block, st.just(OFFER)), max_size=1))
def test_an_offer_is_judged_in_its_lot_as_it_would_be_alone(
    offers: list[Offer],
    failures: dict[str, Failure],
    unhealthy: dict[str, str],
    request: CapacityRequest,
    blocks: list[Block],
) -> None:
    def judged(*offers: Offer) -> set[tuple[str, RejectCode | None]]:
        ranking = ranked(*offers, request=request, failures=failures, unhealthy=unhealthy, blocks=blocks)
        candidates = {(offer.key, None) for offer in ranking.candidates}
        return candidates | {(rejection.offer.key, rejection.code) for rejection in ranking.rejected}

    assert judged(*offers) == set[tuple[str, RejectCode | None]]().union(*map(judged, offers))


@given(st.lists(st.tuples(st.integers(1, 999), st.sampled_from("ab")), min_size=101, max_size=140))
def test_the_best_candidates_of_many_lots_are_the_best_of_all(offered: list[tuple[int, str]]) -> None:
    offers = [
        replace(
            OFFER,
            key=str(number),
            native_region=place,
            region=f"eu-{number % 90}",
            cost_nano_per_hour=Nano(cost),
        )
        for number, (cost, place) in enumerate(offered)
    ]
    assert len(lots_of(offers)) == 90
    ranking = ranked(*offers)
    assert list(ranking.candidates) == sorted(offers, key=order)[:CANDIDATES_NAMED_MAX]
    assert ranking.more_candidates == len(offers) - CANDIDATES_NAMED_MAX


@given(OFFERS, FAILURES, UNHEALTHY, REQUESTS)
def test_every_offer_is_a_candidate_or_rejected_with_a_sentence(
    offers: list[Offer], failures: dict[str, Failure], unhealthy: dict[str, str], request: CapacityRequest
) -> None:
    ranking = ranked(*offers, request=request, failures=failures, unhealthy=unhealthy)
    placed = [*ranking.candidates, *(rejection.offer for rejection in ranking.rejected)]
    assert sorted(offer.key for offer in placed) == sorted(offer.key for offer in offers)
    for rejection in ranking.rejected:
        assert rejection.why.endswith("."), rejection


@given(OFFERS, FAILURES, UNHEALTHY, REQUESTS)
def test_no_candidate_breaks_a_promise(
    offers: list[Offer], failures: dict[str, Failure], unhealthy: dict[str, str], request: CapacityRequest
) -> None:
    for offer in ranked(*offers, request=request, failures=failures, unhealthy=unhealthy).candidates:
        assert offer.shape.holds(SOLD)
        assert offer.cost_nano_per_hour <= PRICE
        assert request.allows_region(offer.region)
        assert request.allows_provider(offer.provider)
        assert offer.account not in unhealthy
        assert offer.available
        failure = failures.get(offer.key)
        assert failure is None or failure.reason not in RULED_OUT


def test_every_code_can_be_the_reason() -> None:
    ranking = ranked(
        replace(OFFER, key="shape", shape=replace(SOLD, gpu_count=4)),
        replace(OFFER, key="arm", architecture=Architecture.ARM64),
        replace(OFFER, key="spot", spot=True),
        replace(OFFER, key="region", region="us-east-1"),
        replace(OFFER, key="provider", provider="b"),
        replace(OFFER, key="outside", region="eu-west-9"),
        replace(OFFER, key="sold out", available=False),
        replace(OFFER, key="stale", observed_at=START - timedelta(days=1)),
        replace(OFFER, key="dear", cost_nano_per_hour=Nano(PRICE + 1)),
        replace(OFFER, key="sick", account="sick"),
        replace(OFFER, key="failed"),
        replace(OFFER, key="resting"),
        replace(OFFER, key="disproven"),
        replace(OFFER, key="yielded"),
        replace(OFFER, key="blocked", native_type="blocked"),
        request=CapacityRequest("h100x8", regions=("eu",), providers=("a",)),
        unhealthy={"sick": "It does not answer."},
        failures={
            "failed": Failure(FailReason.GPU_MISMATCH, START),
            "resting": Failure(FailReason.NO_CAPACITY, START),
        },
        disproven={"disproven": Disproven((UUID(int=1), UUID(int=2)))},
        blocks=[a_block(replace(OFFER, native_type="blocked"))],
        envelopes=[Envelope(regions=frozenset({OFFER.region}))],
        yielded={"yielded"},
    )
    of_spot = ranked(OFFER, request=SPOT)
    slow = ranked(OFFER, request=CapacityRequest("h100x8", network_gbps_min=1))
    codes = {rejection.code for each in (ranking, of_spot, slow) for rejection in each.rejected}
    assert codes == set(RejectCode)
    assert list(ranking.rejected) == sorted(ranking.rejected, key=lambda rejection: rejection.code)


def test_what_machines_of_a_supplier_did_counts_for_all_of_its_offers_and_a_refused_order_for_one() -> None:
    first, anew, others = (
        replace(OFFER, key=offer_key(AccountName(OFFER.account), "NO", number, supplier=supplier))
        for number, supplier in (("1", "55"), ("2", "55"), ("3", "56"))
    )
    supplier = record_key(first.key)
    assert record_key(anew.key) == supplier
    assert record_key(others.key) != supplier
    for disproven, failures in (
        ({supplier: Disproven((UUID(int=1), UUID(int=2)))}, {}),
        ({}, {supplier: Failure(FailReason.PROOF_FAILED, START)}),
    ):
        ranking = ranked(first, anew, others, disproven=disproven, failures=failures)
        assert ranking.candidates == (others,)
    refused = {first.key: Failure(FailReason.NO_CAPACITY, START)}
    assert ranked(first, anew, others, failures=refused).candidates == (anew, others)


def test_no_name_of_a_provider_can_be_taken_for_a_supplier() -> None:
    account = AccountName("vast")
    odd = offer_key(account, "NO@55", "type@55")
    assert record_key(odd) == odd
    assert record_key(offer_key(account, "NO", "1", supplier="5@5")) == "vast@5%405"
    spot = offer_key(account, "NO", "1", spot=True, supplier="55")
    assert (spot, record_key(spot)) == ("vast:NO:1:spot@55", "vast@55")


def test_an_offer_whose_machines_failed_their_proof_is_passed_over_and_shows_the_proofs() -> None:
    proofs = tuple(UUID(int=number) for number in range(PROOF_RECORD_MAX))
    ranking = ranked(OFFER, disproven={OFFER.key: Disproven(proofs)})
    expect_rejected(ranking, RejectCode.PROOF_RECORD)
    assert ranking.rejected[0].proofs == proofs
    assert ranked(OFFER, disproven={OFFER.key: Disproven(proofs[1:])}).candidates == (OFFER,)
    assert ranked(OFFER, disproven={"another": Disproven(proofs)}).candidates == (OFFER,)


# What an offer is sold as.


def a_price(name: str, *, shape: Shape = SOLD, per_hour: int = PRICE) -> ListPrice:
    sku = Sku(name, shape, CapacityShape.VM, Tier.LISTED)
    return ListPrice(sku, Nano(per_hour // shape.gpu_count))


@given(OFFERS, st.integers(PRICE - 8, PRICE + 8), st.sampled_from(PurchaseKind))
def test_an_offer_serves_a_price_exactly_when_placement_would_take_it_for_it(
    offers: list[Offer], per_hour: int, purchase: PurchaseKind
) -> None:
    price = replace(a_price("h100x8", per_hour=per_hour), purchase=purchase)
    fresh = [replace(offer, available=True, observed_at=START) for offer in offers]
    ranking = rank(
        CapacityRequest("h100x8", purchase=purchase),
        SOLD,
        price.nano_per_hour,
        lots_of(fresh),
        failures={},
        unhealthy_accounts={},
        disproven={},
        blocks=Blocks(),
        now=START,
    )
    assert set(ranking.candidates) == {offer for offer in fresh if serves(offer, price)}
    assert {offer.purchase for offer in ranking.candidates} <= {capacity_for(purchase)}


def test_an_offer_is_sold_as_every_sku_that_it_serves_and_the_dearest_price_is_shown() -> None:
    small = replace(SOLD, memory_gib=64)
    book = [
        a_price("cheap", shape=small, per_hour=PRICE),
        a_price("dear", shape=small, per_hour=PRICE + 80),
        a_price("below cost", per_hour=PRICE - 8),
        a_price("larger", shape=replace(SOLD, vcpus=65)),
    ]
    assert sold_as(OFFER, book) == SoldAs(("cheap", "dear"), Nano(PRICE + 80), None)
    assert sold_as(OFFER, book[2:]) == SoldAs((), None, None)


# What of it is stored.

WAITS = ranked(replace(OFFER, available=False), replace(OFFER, key="b", region="us-east-1", available=False))


def test_a_ranking_is_news_until_it_was_stored() -> None:
    assert is_news(WAITS, None)
    assert not is_news(WAITS, digest(WAITS))


def test_sentences_that_count_seconds_are_no_news() -> None:
    def rested(seconds: int) -> Ranking:
        return ranked(
            OFFER, failures={OFFER.key: Failure(FailReason.NO_CAPACITY, START - timedelta(seconds=seconds))}
        )

    assert rested(1).rejected[0].why != rested(20).rejected[0].why
    assert not is_news(rested(20), digest(rested(1)))
    assert not is_news(
        ranked(replace(OFFER, available=False, observed_at=START - timedelta(seconds=9))),
        digest(ranked(replace(OFFER, available=False))),
    )


@pytest.mark.parametrize(
    "offers",
    [
        (replace(OFFER, available=False),),
        (replace(OFFER, available=False), replace(OFFER, key="c", available=False)),
        (replace(OFFER, available=False, cost_nano_per_hour=Nano(1)), WAITS.rejected[1].offer),
        (replace(OFFER, observed_at=START - timedelta(days=1)), WAITS.rejected[1].offer),
    ],
    ids=["an offer less", "another offer", "another price", "another reason"],
)
def test_another_decision_is_news(offers: tuple[Offer, ...]) -> None:
    assert is_news(ranked(*offers), digest(WAITS))


def test_a_marketplace_of_thousands_leaves_a_ranking_that_is_small_and_counts_everything() -> None:
    asks = [replace(OFFER, key=f"ask-{number:04}", available=number % 4 == 0) for number in range(2_000)]
    failures = {ask.key: Failure(FailReason.GPU_MISMATCH, START) for ask in asks[:40:4]}
    elsewhere = [replace(ask, key=f"b-{ask.key}", account="b") for ask in asks]
    ranking = ranked(*asks, *elsewhere, failures=failures)
    assert len(ranking.candidates) == CANDIDATES_NAMED_MAX
    assert ranking.candidates[0] == asks[40]
    assert len(ranking.candidates) + ranking.more_candidates == 2 * 500 - len(failures)
    named = [(rejection.code, rejection.offer.account) for rejection in ranking.rejected]
    assert named.count((RejectCode.FAILED_BEFORE, "a")) == len(failures), (
        "each says what happened to this lease"
    )
    for account in ("a", "b"):
        sold_out = [
            each for each in ranking.rejected if each.offer.account == account and each.code == "sold_out"
        ]
        assert len(sold_out) == NAMED_OF_REASON_MAX
        assert sum(1 + each.more for each in sold_out) == 1_500
    assert "3000 sold out" in waiting_why(ranking)
    one_more = replace(asks[1], key="ask-9999")
    assert digest(ranked(*asks, *elsewhere, one_more, failures=failures)) == digest(ranking), "no news"


def test_every_offer_is_named_while_they_are_few() -> None:
    asks = [replace(OFFER, key=f"{number:03}", available=False) for number in range(REJECTED_NAMED_MAX)]
    ranking = ranked(*asks)
    assert [each.offer for each in ranking.rejected] == asks
    assert not any(each.more for each in ranking.rejected)


def test_every_placement_is_news() -> None:
    assert is_news(ranked(OFFER), digest(ranked(OFFER)))


@given(OFFERS, FAILURES, UNHEALTHY, REQUESTS)
def test_a_digest_is_32_bytes_and_the_same_for_the_same_facts(
    offers: list[Offer], failures: dict[str, Failure], unhealthy: dict[str, str], request: CapacityRequest
) -> None:
    first = digest(ranked(*offers, request=request, failures=failures, unhealthy=unhealthy))
    again = digest(ranked(*reversed(offers), request=request, failures=failures, unhealthy=unhealthy))
    assert len(first) == 32
    assert first == again
