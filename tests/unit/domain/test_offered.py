"""Which requests wait for stock, and which are refused because no stock can ever come."""

from dataclasses import replace
from datetime import timedelta

from control_plane.domain.gpu import GpuModel
from control_plane.domain.money import Nano
from control_plane.domain.offered import is_offered, not_offered, unknown_constraint
from control_plane.domain.placement import OFFERED_WITHIN, Offer
from control_plane.domain.price import ListPrice
from control_plane.domain.proof import Tier
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sku import CapacityShape, Shape, Sku
from tests.support.clock import START
from tests.support.values import an_offer

USD = 1_000_000_000


def a_price(name: str, model: GpuModel, count: int, usd: int = 3) -> ListPrice:
    shape = Shape(model, count, 8 * count, 64 * count, 100)
    return ListPrice(Sku(name, shape, CapacityShape.VM, Tier.LISTED), Nano(usd * USD))


H100 = a_price("h100-sxm.1x", GpuModel.H100_SXM_80GB, 1)
H100X4 = a_price("h100-sxm.4x", GpuModel.H100_SXM_80GB, 4)
H100X8 = a_price("h100-sxm.8x", GpuModel.H100_SXM_80GB, 8)
H200X8 = a_price("h200-sxm.8x", GpuModel.H200_SXM_141GB, 8)
BOOK = [H100, H100X4, H100X8, H200X8]


def of(price: ListPrice, **other: object) -> Offer:
    """An offer that can be sold as this SKU."""
    cost = price.nano_per_hour
    return an_offer(key=price.sku.name, shape=price.sku.shape, cost_nano_per_hour=cost, **other)


def test_what_is_sold_out_is_offered_and_what_nobody_lists_is_not() -> None:
    offer = of(H100)
    cases = {
        "in stock": (offer, True),
        "sold out": (replace(offer, available=False), True),
        "not listed for days": (replace(offer, observed_at=START - OFFERED_WITHIN), True),
        "not listed for too long": (
            replace(offer, observed_at=START - OFFERED_WITHIN - timedelta(seconds=1)),
            False,
        ),
        "too small": (replace(offer, shape=replace(offer.shape, disk_gib=1)), False),
        "dearer than it is sold": (replace(offer, cost_nano_per_hour=Nano(H100.nano_per_hour + 1)), False),
    }
    for name, (listed, expected) in cases.items():
        assert is_offered(H100, [listed], START) is expected, name


def test_the_refusal_names_the_nearest_skus_first_with_the_same_gpus() -> None:
    offers = [of(H100), of(H100X4), of(H200X8, available=False)]
    refused = not_offered(CapacityRequest("h100-sxm.8x"), H100X8, BOOK, offers, START)
    assert refused.code is RefusalCode.SKU_NOT_OFFERED
    assert "h100-sxm.4x, h100-sxm.1x, h200-sxm.8x" in refused.why
    nothing = not_offered(CapacityRequest("h100-sxm.8x"), H100X8, BOOK, [], START)
    assert "no SKU is offered" in nothing.why


def test_a_sku_that_only_others_offer_says_where() -> None:
    refused = not_offered(CapacityRequest("h100-sxm.1x", ("eu",)), H100, BOOK, [of(H100)], START)
    assert "fake in us-east-1" in refused.why


def test_a_network_that_no_provider_states_says_what_the_most_is() -> None:
    request = CapacityRequest("h100-sxm.1x", network_gbps_min=3_200)
    offers = [of(H100), replace(of(H100), key="b", network_gbps=400)]
    for listed, words in ((offers, "the most is 400 Gbit/s"), (offers[:1], "no provider states")):
        refused = not_offered(request, H100, BOOK, listed, START)
        assert refused.code is RefusalCode.NETWORK_NOT_OFFERED
        assert f"has 3,200 Gbit/s between its machines; {words}" in refused.why
    elsewhere = not_offered(replace(request, regions=("eu",)), H100, BOOK, offers, START)
    assert elsewhere.code is RefusalCode.SKU_NOT_OFFERED, "its region is what no offer has"


def test_an_unknown_provider_and_an_unserved_region_name_the_nearest() -> None:
    regions = {of(H100).region}
    cases = (
        (CapacityRequest("a", providers=("lamda_cloud",)), RefusalCode.PROVIDER_UNKNOWN, "'lambda_cloud'?"),
        (CapacityRequest("a", regions=("us", "us-eats-1")), RefusalCode.REGION_NOT_SERVED, "'us-east-1'?"),
    )
    for request, code, words in cases:
        refused = unknown_constraint(request, {"lambda_cloud", "fake"}, regions)
        assert isinstance(refused, Refused), code
        assert refused.code is code
        assert f"did you mean {words}" in refused.why
    assert unknown_constraint(CapacityRequest("a", ("us",), ("fake",)), {"fake"}, regions) is None
