"""Which price a request has: the narrowest one of its regions, agreed on or listed, and the highest of its regions."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import OrganizationId, PriceAgreementId
from control_plane.domain.money import NANO_MAX, Nano
from control_plane.domain.price import OtherPrice, Price, promises_more_for_less
from control_plane.domain.price_agreement import PriceAgreement, ended, priced, proposed
from control_plane.domain.proof import Tier
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.sku import CapacityShape, Shape, Sku
from control_plane.domain.sla import SlaTier
from tests.support.cases import case
from tests.support.clock import START

DAY = timedelta(days=1)
LISTED = Price(
    Sku("h100x1", Shape(GpuModel.H100_SXM_80GB, 1, 8, 64, 100), CapacityShape.VM, Tier.LISTED),
    Nano(200),
    7,
    stopped_nano_per_unit_hour=Nano(50),
    spot_nano_per_unit_hour=Nano(90),
    others=(
        OtherPrice("eu", Nano(250), book=8),
        OtherPrice("eu-north", Nano(240), Nano(60), Nano(70), book=9),
        OtherPrice("us", Nano(40), book=9),
    ),
)
AGREED = PriceAgreement(
    id=PriceAgreementId(UUID(int=1)),
    organization_id=OrganizationId(UUID(int=2)),
    sku="h100x1",
    region=None,
    sla=None,
    purchase=PurchaseKind.ON_DEMAND,
    nano_per_unit_hour=Nano(150),
    stopped_nano_per_unit_hour=None,
    valid_from=START,
    valid_until=START + 30 * DAY,
    agreed_at=START,
    agreed_by="sa_1",
    reason="contract 17",
)
ON_DEMAND, SPOT = PurchaseKind.ON_DEMAND, PurchaseKind.SPOT


BRONZE, SILVER, GOLD = SlaTier
BY_TIER = replace(
    LISTED,
    others=(
        *LISTED.others,
        OtherPrice(None, Nano(300), sla=GOLD, book=10),
        OtherPrice("eu-north", Nano(350), Nano(80), sla=GOLD, book=11),
    ),
)
"""It costs more with gold, and most with gold in the north of the EU."""


def _price(
    *regions: str,
    agreements: tuple[PriceAgreement, ...] = (),
    purchase: PurchaseKind = ON_DEMAND,
    sla: SlaTier = BRONZE,
    listed: Price = LISTED,
) -> Price:
    found = priced(listed, purchase, sla, regions, agreements)
    assert found is not None
    return found


def test_the_narrowest_line_of_the_book_applies_and_of_several_regions_the_highest() -> None:
    for regions, nano, book in (
        ((), 200, 7),
        (("eu",), 250, 8),
        (("eu-central-1",), 250, 8),
        (("eu-north-1",), 240, 9),
        (("us-east-1",), 40, 9),
        (("ap-south-1",), 200, 7),
        (("us", "eu-north"), 240, 9),
        (("us", "ap"), 200, 7),
    ):
        with case(*regions):
            price = _price(*regions)
            assert (price.nano_per_unit_hour, price.book, price.listed_nano) == (nano, book, nano)


def test_a_region_that_leaves_out_another_kind_of_price_has_that_of_the_sku_up_to_its_own() -> None:
    assert (_price("eu").stopped_nano, _price("us").stopped_nano, _price("eu-north").stopped_nano) == (
        50,
        40,
        60,
    )
    spot = [_price(region, purchase=SPOT).nano_per_unit_hour for region in ("eu", "eu-north", "us")]
    assert spot == [90, 70, 40]


def test_an_agreement_stands_before_the_book_and_a_narrow_one_before_a_wide_one() -> None:
    for_north = replace(
        AGREED, id=PriceAgreementId(UUID(int=3)), region="eu-north", nano_per_unit_hour=Nano(245)
    )
    both = (for_north, AGREED)
    for regions, nano, agreement, listed in (
        ((), 150, AGREED, 200),
        (("eu",), 150, AGREED, 250),
        (("us",), 150, AGREED, 40),
        (("eu-north-1",), 245, for_north, 240),
        (("eu", "eu-north-1"), 245, for_north, 240),
    ):
        with case(*regions):
            price = _price(*regions, agreements=both)
            assert (price.nano_per_unit_hour, price.agreement_id, price.listed_nano) == (
                nano,
                agreement.id,
                listed,
            )
    assert _price(agreements=both, purchase=SPOT).agreement_id is None, "it is for another kind of purchase"
    only_north = _price("eu", agreements=(for_north,))
    assert only_north.agreement_id is None, "a request for the whole of eu is not limited to its north"


@given(st.permutations(["us", "eu", "eu-north-1", "ap"]), st.integers(1, 4))
def test_the_order_of_regions_changes_nothing_and_one_more_makes_nothing_cheaper(
    regions: list[str], count: int
) -> None:
    some = regions[:count]
    price = _price(*some, agreements=(AGREED,))
    assert price == _price(*reversed(some), agreements=(AGREED,)) or len(
        {_price(region, agreements=(AGREED,)).nano_per_unit_hour for region in some}
    ) < len(some)
    assert price.nano_per_unit_hour == _price(*reversed(some), agreements=(AGREED,)).nano_per_unit_hour
    for fewer in range(1, count):
        assert _price(*some[:fewer]).nano_per_unit_hour <= _price(*some).nano_per_unit_hour


def test_a_line_of_the_tier_applies_before_one_of_a_narrower_region_that_is_for_all_tiers() -> None:
    for regions, sla, nano, book in (
        ((), GOLD, 300, 10),
        (("eu",), GOLD, 300, 10),
        (("eu-north-1",), GOLD, 350, 11),
        (("us", "eu-north"), GOLD, 350, 11),
        ((), SILVER, 200, 7),
        (("eu",), SILVER, 250, 8),
        (("eu-north-1",), BRONZE, 240, 9),
    ):
        with case(*regions, sla):
            price = _price(*regions, sla=sla, listed=BY_TIER)
            assert (price.nano_per_unit_hour, price.book, price.listed_nano) == (nano, book, nano)


def test_a_line_of_a_tier_that_says_nothing_of_stopped_machines_has_the_price_of_the_others() -> None:
    stopped = [_price(*regions, sla=GOLD, listed=BY_TIER).stopped_nano for regions in ((), ("eu-north",))]
    assert stopped == [50, 80]
    low = replace(LISTED, others=(OtherPrice(None, Nano(30), sla=BRONZE),))
    assert _price(listed=low).stopped_nano == 30, "up to the price of the line"
    assert _price(listed=low, purchase=SPOT).nano_per_unit_hour == 30


def test_an_agreement_for_a_tier_stands_before_one_for_all_of_them() -> None:
    for_gold = replace(AGREED, id=PriceAgreementId(UUID(int=4)), sla=GOLD, nano_per_unit_hour=Nano(280))
    for_north = replace(AGREED, id=PriceAgreementId(UUID(int=5)), region="eu-north")
    all_of_them = (for_north, AGREED, for_gold)
    for regions, sla, agreement, nano, listed in (
        ((), BRONZE, AGREED, 150, 200),
        ((), SILVER, AGREED, 150, 200),
        ((), GOLD, for_gold, 280, 300),
        (("eu-north",), GOLD, for_gold, 280, 350),
        (("eu-north",), BRONZE, for_north, 150, 240),
    ):
        with case(*regions, sla):
            price = _price(*regions, agreements=all_of_them, sla=sla, listed=BY_TIER)
            assert (price.agreement_id, price.nano_per_unit_hour, price.listed_nano) == (
                agreement.id,
                nano,
                listed,
            )
    alone = _price(sla=GOLD, agreements=(AGREED,), listed=BY_TIER)
    assert alone.nano_per_unit_hour == 150, "what was agreed on without a tier is for all of them"
    bronze = _price(agreements=(for_gold,), listed=BY_TIER)
    assert bronze.agreement_id is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, "eu", "eu-north", "us"]),
            st.sampled_from([None, *SlaTier]),
            st.integers(1, 9),
        ),
        max_size=6,
        unique_by=lambda line: line[:2],
    ),
    st.sampled_from([(), ("eu",), ("eu-north-1",), ("us", "eu")]),
)
def test_where_no_tier_is_refused_a_better_promise_never_costs_less(
    lines: list[tuple[str | None, SlaTier | None, int]], regions: tuple[str, ...]
) -> None:
    others = tuple(
        OtherPrice(region, Nano(nano), sla=sla)
        for region, sla, nano in lines
        if (region, sla) != (None, None)
    )
    listed = replace(LISTED, nano_per_unit_hour=Nano(5), others=others)
    prices = [_price(*regions, sla=sla, listed=listed).nano_per_unit_hour for sla in SlaTier]
    if promises_more_for_less(listed) is None:
        assert prices == sorted(prices)


def test_a_tier_that_was_forgotten_beside_a_dearer_lower_one_is_named() -> None:
    forgotten = replace(LISTED, others=(OtherPrice(None, Nano(300), sla=SILVER),))
    assert "gold would cost 0.000000200 USD, less than silver" in str(promises_more_for_less(forgotten))
    dear = (
        OtherPrice("eu", Nano(400)),
        OtherPrice(None, Nano(300), sla=SILVER),
        OtherPrice(None, Nano(300), sla=GOLD),
    )
    assert "silver in eu would cost" in str(promises_more_for_less(replace(LISTED, others=dear)))
    assert promises_more_for_less(replace(LISTED, others=dear[1:])) is None


def test_a_sku_without_a_spot_price_has_none_in_any_region() -> None:
    assert priced(replace(LISTED, spot_nano_per_unit_hour=None, others=()), SPOT, BRONZE, ("eu",), ()) is None


def _refusal(agreement: PriceAgreement, *others: PriceAgreement) -> RefusalCode | None:
    found = proposed(agreement, others, [LISTED], START)
    return None if found is None else found.code


def test_what_cannot_be_agreed_on_has_its_code() -> None:
    for changes, code in (
        ({}, None),
        ({"nano_per_unit_hour": Nano(0)}, None),
        ({"valid_until": None}, None),
        ({"sku": "h200x1"}, RefusalCode.SKU_UNKNOWN),
        ({"valid_from": START - timedelta(seconds=1)}, RefusalCode.PRICE_IN_PAST),
        ({"valid_until": START}, RefusalCode.PRICE_INVALID),
        ({"stopped_nano_per_unit_hour": Nano(151)}, RefusalCode.PRICE_INVALID),
        ({"purchase": SPOT, "stopped_nano_per_unit_hour": Nano(1)}, RefusalCode.PRICE_INVALID),
        ({"nano_per_unit_hour": Nano(NANO_MAX + 1)}, RefusalCode.PRICE_INVALID),
        ({"sla": GOLD}, None),
        ({"sla": GOLD, "purchase": SPOT}, RefusalCode.PRICE_INVALID),
    ):
        with case(changes):
            assert _refusal(replace(AGREED, **changes)) is code
    for days, code in ((1, None), (1_100, RefusalCode.PRICE_INVALID)):
        term = replace(LISTED, committed_nano_per_unit_hour=Nano(100), committed_days=days, others=())
        dear = replace(
            AGREED, purchase=PurchaseKind.COMMITTED, sla=GOLD, nano_per_unit_hour=Nano(NANO_MAX // 24)
        )
        found = proposed(dear, (), [term], START)
        assert (None if found is None else found.code) is code
    without_spot = replace(LISTED, spot_nano_per_unit_hour=None, others=())
    refused = proposed(replace(AGREED, purchase=SPOT), (), [without_spot], START)
    assert refused is not None
    assert refused.code is RefusalCode.PURCHASE_NOT_OFFERED


@given(st.integers(0, 6), st.integers(1, 6) | st.none(), st.integers(0, 6), st.integers(1, 6) | st.none())
def test_two_agreements_overlap_exactly_when_both_are_in_force_at_some_moment(
    since: int, length: int | None, other_since: int, other_length: int | None
) -> None:
    def over(first: int, days: int | None) -> PriceAgreement:
        until = None if days is None else START + (first + days) * DAY
        return replace(AGREED, valid_from=START + first * DAY, valid_until=until)

    one, other = over(since, length), over(other_since, other_length)
    together = any(
        one.is_in_force(START + day * DAY) and other.is_in_force(START + day * DAY) for day in range(13)
    )
    assert one.overlaps(other) == other.overlaps(one) == together
    assert _refusal(one, other) is (RefusalCode.PRICE_OVERLAPS if together else None)
    assert not one.overlaps(replace(other, region="eu"))
    assert not one.overlaps(replace(other, purchase=SPOT))
    assert not one.overlaps(replace(other, sla=GOLD))
    assert replace(one, sla=GOLD).overlaps(replace(other, sla=GOLD)) == together


def test_an_agreement_ends_now_or_later_and_never_later_than_it_would() -> None:
    now = START + DAY
    assert ended(AGREED, None, now) == now
    assert ended(AGREED, now + DAY, now) == now + DAY
    assert ended(replace(AGREED, valid_from=now + DAY), None, now) == now + DAY, "it never is in force"
    for at, code in ((START, RefusalCode.PRICE_IN_PAST), (START + 31 * DAY, RefusalCode.PRICE_ENDED)):
        refused = ended(AGREED, at, now)
        assert isinstance(refused, Refused)
        assert refused.code is code
