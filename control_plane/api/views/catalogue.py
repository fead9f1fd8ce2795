"""SKUs, offers and quotes on the wire."""

from collections.abc import Sequence
from datetime import datetime

from control_plane.api.views.admissions import rules_view
from control_plane.api.views.disclosure import Disclosure
from control_plane.api.views.money import money, money_or_none
from control_plane.api.views.placements import candidate_view, rejected_view
from control_plane.api.views.refusals import refusals_of
from control_plane.domain.money import Nano, usd
from control_plane.domain.placement import Offer, sold_as
from control_plane.domain.price import Price, hold_for
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.refusal import Refused
from control_plane.domain.sku import units_of
from control_plane.domain.sla import SlaTier
from control_plane.services.catalogue import Sold
from control_plane.services.quotes import Overview, Quote
from control_plane.wire.catalogue import (
    KeptQuoteView,
    OfferView,
    QuoteView,
    SkuRegionView,
    SkuTierView,
    SkuView,
    VerdictView,
)
from control_plane.wire.common import Money


def sku_view(sold: Sold) -> SkuView:
    listed, spot = sold.listed, sold.at(PurchaseKind.SPOT)
    interruptible, committed = sold.at(PurchaseKind.INTERRUPTIBLE), sold.at(PurchaseKind.COMMITTED)
    price = sold.at(PurchaseKind.ON_DEMAND) or listed
    shape = price.sku.shape
    return SkuView(
        name=price.sku.name,
        gpu_model=shape.gpu_model,
        gpu_count=shape.gpu_count,
        vcpus=shape.vcpus,
        memory_gib=shape.memory_gib,
        disk_gib=shape.disk_gib,
        capacity=price.sku.capacity.value,
        proof=price.sku.proof.value,
        price_per_gpu_hour=money_or_none(price.nano_per_gpu_hour),
        price_per_hour=money(price.nano_per_hour),
        price_per_hour_stopped=money(Nano(price.stopped_nano * shape.units)),
        price_per_hour_spot=None if spot is None else money(spot.nano_per_hour),
        price_per_hour_interruptible=None if interruptible is None else money(interruptible.nano_per_hour),
        price_per_hour_committed=_per_hour(committed),
        committed_days=None if committed is None else committed.term_days,
        list_price_per_hour=money(listed.nano_per_hour),
        regions=tuple(_region_view(sold, region) for region in sold.regions),
        tiers=tuple(_tier_view(sold, sla, region) for sla in sold.tiers for region in (None, *sold.regions)),
    )


def _tier_view(sold: Sold, sla: SlaTier, region: str | None) -> SkuTierView:
    price = sold.at(PurchaseKind.ON_DEMAND, region, sla) or sold.listed
    return SkuTierView(
        sla=sla.value,
        region=region,
        price_per_hour=money(price.nano_per_hour),
        price_per_hour_stopped=money(Nano(price.stopped_nano * price.sku.shape.units)),
        price_per_hour_committed=_per_hour(sold.at(PurchaseKind.COMMITTED, region, sla)),
    )


def _per_hour(price: Price | None) -> Money | None:
    """Of the whole machine; None where it is not sold so."""
    return None if price is None else money(price.nano_per_hour)


def _region_view(sold: Sold, region: str) -> SkuRegionView:
    price, spot = sold.at(PurchaseKind.ON_DEMAND, region), sold.at(PurchaseKind.SPOT, region)
    interruptible = sold.at(PurchaseKind.INTERRUPTIBLE, region)
    return SkuRegionView(
        region=region,
        price_per_hour=money((price or sold.listed).nano_per_hour),
        price_per_hour_spot=None if spot is None else money(spot.nano_per_hour),
        price_per_hour_interruptible=None if interruptible is None else money(interruptible.nano_per_hour),
        price_per_hour_committed=_per_hour(sold.at(PurchaseKind.COMMITTED, region)),
    )


def offer_view(
    offer: Offer, book: Sequence[Sold], now: datetime, *, costs: bool, sla: SlaTier = SlaTier.BRONZE
) -> OfferView:
    """An offer, with the prices of its region and a tier in `book`; with `costs` also what we pay."""
    prices = (sku.at(offer.purchase, offer.region, sla) for sku in book)
    sold = sold_as(offer, [price for price in prices if price is not None])
    return OfferView(
        key=offer.key,
        provider=offer.provider,
        region=offer.region,
        native_type=offer.native_type,
        gpu_model=offer.shape.gpu_model,
        gpu_count=offer.shape.gpu_count,
        vcpus=offer.shape.vcpus,
        memory_gib=offer.shape.memory_gib,
        disk_gib=offer.shape.disk_gib,
        capacity=offer.capacity,
        available=offer.available,
        confidence=offer.confidence,
        observed_at=offer.observed_at,
        age_seconds=max(0, int((now - offer.observed_at).total_seconds())),
        price_per_hour=money_or_none(sold.nano_per_hour),
        skus=sold.skus,
        cost_per_hour=money(offer.cost_nano_per_hour) if costs else None,
        effective_cost_per_hour=money(offer.effective_nano_per_hour) if costs else None,
        architecture=offer.architecture.value,
        spot=offer.spot,
        eviction_notice_seconds=offer.eviction_notice_seconds,
        price_source=offer.price_source,
        network_gbps=offer.network_gbps,
        ephemeral_gib=offer.ephemeral_gib,
        power=tuple(action.value for action in offer.power),
        firewall=offer.firewall.value,
        price_per_hour_stopped=money_or_none(sold.stopped_nano_per_hour),
    )


def quote_view(quote: Quote, disclosure: Disclosure) -> QuoteView:
    price, kept = quote.price, quote.kept
    first_hour = money_or_none(None if price is None else price.nano_per_hour)
    return QuoteView(
        verdict=_verdict(quote),
        sku=quote.request.sku,
        project=quote.place.project.name,
        environment=quote.place.environment.name,
        sla=quote.request.sla.value,
        price_per_gpu_hour=None if price is None else money_or_none(price.nano_per_gpu_hour),
        price_per_hour=first_hour,
        first_hour=first_hour,
        candidates=tuple(candidate_view(offer, disclosure, price) for offer in quote.ranking.candidates),
        rejected=tuple(rejected_view(rejection, disclosure) for rejection in quote.ranking.rejected),
        more_candidates=quote.ranking.more_candidates,
        id=None if kept is None else kept.on_wire,
        expires_at=None if kept is None else kept.expires_at,
        committed_days=None if price is None else price.term_days,
        term_price=None if price is None or price.term_days is None else money(hold_for(price)),
    )


def _verdict(quote: Quote) -> VerdictView:
    refused = quote.verdict if isinstance(quote.verdict, Refused) else None
    return VerdictView(
        admitted=refused is None,
        code=None if refused is None else refused.code.value,
        why=None if refused is None else refused.why,
        refusals=refusals_of(refused),
        rules=rules_view(quote.verdict.decision.rules),
    )


def kept_quote_view(overview: Overview, now: datetime) -> KeptQuoteView:
    quote, shown = overview.quote, overview.shown
    ceiling, units = quote.price_nano_per_hour_max, units_of(shown.gpu_count)
    return KeptQuoteView(
        id=quote.on_wire,
        sku=quote.sku,
        project=shown.project,
        environment=shown.environment,
        purchase=quote.purchase.value,
        regions=quote.regions,
        providers=quote.providers,
        price_usd_per_hour_max=None if ceiling is None else usd(ceiling),
        network_gbps_min=quote.network_gbps_min,
        price_per_gpu_hour=money(quote.nano_per_unit_hour) if shown.gpu_count else None,
        price_per_hour=money(Nano(quote.nano_per_unit_hour * units)),
        price_per_hour_stopped=money(Nano(quote.stopped_nano_per_unit_hour * units)),
        quoted_at=quote.quoted_at,
        expires_at=quote.expires_at,
        sla=quote.sla.value,
        expired=now >= quote.expires_at,
        leases=shown.leases,
        committed_days=quote.committed_days,
    )
