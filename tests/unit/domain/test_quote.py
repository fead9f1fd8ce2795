"""What a lease may ask for that is created for a quote."""

from dataclasses import replace
from uuid import UUID

from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import EnvironmentId, OrganizationId, ProjectId, QuoteId
from control_plane.domain.money import Nano
from control_plane.domain.price import Price
from control_plane.domain.proof import Tier
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.quote import LASTS, KeptQuote, asked_for
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sku import CapacityShape, Shape, Sku
from control_plane.domain.sla import SlaTier
from tests.support.cases import case
from tests.support.clock import START

QUOTE = KeptQuote(
    id=QuoteId(UUID(int=1)),
    organization_id=OrganizationId(UUID(int=2)),
    project_id=ProjectId(UUID(int=3)),
    environment_id=EnvironmentId(UUID(int=4)),
    sku="h100x8",
    regions=("eu", "us-east-1"),
    providers=("nebius",),
    price_nano_per_hour_max=Nano(30_000_000_000),
    network_gbps_min=400,
    purchase=PurchaseKind.SPOT,
    sla=SlaTier.BRONZE,
    nano_per_unit_hour=Nano(2_000_000_000),
    stopped_nano_per_unit_hour=Nano(2_000_000_000),
    list_nano_per_unit_hour=Nano(2_500_000_000),
    price_book=7,
    price_agreement_id=None,
    committed_days=None,
    quoted_at=START,
    expires_at=START + LASTS,
)
SAME = CapacityRequest("h100x8", purchase=PurchaseKind.SPOT)


def test_what_a_request_leaves_out_is_the_quotes() -> None:
    whole = replace(
        SAME,
        regions=QUOTE.regions,
        providers=QUOTE.providers,
        price_nano_per_hour_max=Nano(30 * 10**9),
        network_gbps_min=400,
    )
    for said in (SAME, whole, replace(whole, regions=QUOTE.regions[::-1])):
        assert asked_for(QUOTE, said, START) == whole
    assert asked_for(QUOTE, replace(SAME, priority=80), START) == replace(whole, priority=80)


def test_a_request_for_something_else_is_refused_with_what_was_quoted() -> None:
    for other, words in (
        (replace(SAME, sku="h100x1"), "`sku` is h100x8"),
        (replace(SAME, purchase=PurchaseKind.ON_DEMAND), "`purchase` is spot"),
        (replace(SAME, regions=("eu",)), "`regions` is eu, us-east-1"),
        (replace(SAME, providers=("aws", "nebius")), "`providers` is nebius"),
        (replace(SAME, price_nano_per_hour_max=Nano(1)), "`price_usd_per_hour_max` is 30.000000000"),
        (replace(SAME, network_gbps_min=100), "`network_gbps_min` is 400"),
    ):
        with case(words):
            refused = asked_for(QUOTE, other, START)
            assert isinstance(refused, Refused)
            assert refused.code is RefusalCode.QUOTE_DIFFERS
            assert words in refused.why
    anywhere = replace(QUOTE, regions=())
    refused = asked_for(anywhere, replace(SAME, regions=("eu",)), START)
    assert isinstance(refused, Refused)
    assert "`regions` is not limited" in refused.why


def test_a_quote_is_good_until_it_expires() -> None:
    last = QUOTE.expires_at.resolution
    assert isinstance(asked_for(QUOTE, SAME, QUOTE.expires_at - last), CapacityRequest)
    refused = asked_for(QUOTE, SAME, QUOTE.expires_at)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.QUOTE_EXPIRED


def test_the_price_is_the_quotes_and_the_sku_is_todays() -> None:
    sku = Sku("h100x8", Shape(GpuModel.H100_SXM_80GB, 8, 64, 512, 100), CapacityShape.VM, Tier.LISTED)
    dearer = Price(sku, Nano(9_000_000_000), 9, spot_nano_per_unit_hour=Nano(8_000_000_000))
    price = QUOTE.price(dearer)
    assert (price.nano_per_unit_hour, price.stopped_nano, price.book) == (2_000_000_000, 2_000_000_000, 7)
    assert (price.sku, price.purchase) == (sku, PurchaseKind.SPOT)
    assert price.nano_per_hour == 16_000_000_000
