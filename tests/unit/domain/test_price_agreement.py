"""Which price a request has: the narrowest one of its regions, agreed on or listed, and the highest of its regions."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.admission import Price, RegionalPrice
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import OrganizationId, PriceAgreementId
from control_plane.domain.money import NANO_MAX, Nano
from control_plane.domain.price_agreement import PriceAgreement, ended, priced, proposed
from control_plane.domain.proof import Tier
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.sku import CapacityShape, Shape, Sku
from tests.support.cases import case
from tests.support.clock import START

DAY = timedelta(days=1)
LISTED = Price(
    Sku("h100x1", Shape(GpuModel.H100_SXM_80GB, 1, 8, 64, 100), CapacityShape.VM, Tier.LISTED),
    Nano(200),
    7,
    stopped_nano_per_unit_hour=Nano(50),
    spot_nano_per_unit_hour=Nano(90),
    regions=(
        RegionalPrice("eu", Nano(250), book=8),
        RegionalPrice("eu-north", Nano(240), Nano(60), Nano(70), book=9),
        RegionalPrice("us", Nano(40), book=9),
    ),
)
AGREED = PriceAgreement(
    id=PriceAgreementId(UUID(int=1)),
    organization_id=OrganizationId(UUID(int=2)),
    sku="h100x1",
    region=None,
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


def _price(
    *regions: str, agreements: tuple[PriceAgreement, ...] = (), purchase: PurchaseKind = ON_DEMAND
) -> Price:
    found = priced(LISTED, purchase, regions, agreements)
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


def test_a_sku_without_a_spot_price_has_none_in_any_region() -> None:
    assert priced(replace(LISTED, spot_nano_per_unit_hour=None, regions=()), SPOT, ("eu",), ()) is None


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
    ):
        with case(changes):
            assert _refusal(replace(AGREED, **changes)) is code
    without_spot = replace(LISTED, spot_nano_per_unit_hour=None, regions=())
    refused = proposed(replace(AGREED, purchase=SPOT), (), [without_spot], START)
    assert refused is not None
    assert refused.code is RefusalCode.SKU_NOT_SOLD_AS_SPOT


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


def test_an_agreement_ends_now_or_later_and_never_later_than_it_would() -> None:
    now = START + DAY
    assert ended(AGREED, None, now) == now
    assert ended(AGREED, now + DAY, now) == now + DAY
    assert ended(replace(AGREED, valid_from=now + DAY), None, now) == now + DAY, "it never is in force"
    for at, code in ((START, RefusalCode.PRICE_IN_PAST), (START + 31 * DAY, RefusalCode.PRICE_ENDED)):
        refused = ended(AGREED, at, now)
        assert isinstance(refused, Refused)
        assert refused.code is code
