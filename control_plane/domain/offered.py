"""Whether a request can be served at all, now or when stock returns; decided before a lease is made.

A SKU that is sold out waits for stock. A SKU that no provider has waits for nothing, so its request is refused, with
what could be had instead.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from control_plane.domain.placement import OFFERED_WITHIN, Offer, serves
from control_plane.domain.price import ListPrice
from control_plane.domain.refusal import RefusalCode, Refused, choose
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sku import region_within

ALTERNATIVES_MAX = 3


def is_offered(price: ListPrice, offers: Iterable[Offer], now: datetime) -> bool:
    """Whether an offer that was listed lately can be sold as this SKU, once it has stock."""
    return any(_lately(offer, now) and serves(offer, price) for offer in offers)


def unknown_constraint(
    request: CapacityRequest, providers: Collection[str], regions: Collection[str]
) -> Refused | None:
    """The refusal of a provider that does not exist, or of a region that is none of the offers' `regions`; None when
    all are known.
    """
    unknown = sorted(set(request.providers) - set(providers))
    if unknown:
        why = f"No provider is called {unknown[0]!r}; {choose(unknown[0], providers)}."
        return Refused(RefusalCode.PROVIDER_UNKNOWN, why)
    for wanted in request.regions:
        if not any(region_within(region, wanted) for region in regions):
            why = f"No offer for this SKU is in {wanted!r}; {choose(wanted, regions)}."
            return Refused(RefusalCode.REGION_NOT_SERVED, why)
    return None


def not_offered(
    request: CapacityRequest,
    price: ListPrice,
    book: Sequence[ListPrice],
    offers: Sequence[Offer],
    now: datetime,
) -> Refused:
    """The refusal of a request that no offer can ever serve. `book` is all we sell, `offers` all that is listed."""
    elsewhere = [offer for offer in offers if _lately(offer, now) and serves(offer, price)]
    slower = [offer for offer in elsewhere if _is_where(offer, request)]
    if slower:
        return _too_slow(request, slower)
    if elsewhere:
        places = sorted({f"{offer.provider} in {offer.region}" for offer in elsewhere})
        why = f"The providers and regions of this request have no {request.sku}; it is offered by {_either(places)}."
        return Refused(RefusalCode.SKU_NOT_OFFERED, why)
    others = sorted(
        (other for other in book if is_offered(other, offers, now)), key=lambda other: _distance(other, price)
    )
    names = [other.sku.name for other in others[:ALTERNATIVES_MAX]]
    instead = f"the nearest SKUs that are offered: {', '.join(names)}" if names else "no SKU is offered now"
    return Refused(RefusalCode.SKU_NOT_OFFERED, f"No provider offers {request.sku}; {instead}.")


def _too_slow(request: CapacityRequest, slower: Iterable[Offer]) -> Refused:
    """The refusal of a request that only its network keeps from being served."""
    stated = [offer.network_gbps for offer in slower if offer.network_gbps is not None]
    most = f"the most is {max(stated):,} Gbit/s" if stated else "no provider states how fast its network is"
    why = f"No offer of {request.sku} has {request.network_gbps_min:,} Gbit/s between its machines; {most}."
    return Refused(RefusalCode.NETWORK_NOT_OFFERED, why)


def _is_where(offer: Offer, request: CapacityRequest) -> bool:
    return request.allows_region(offer.region) and request.allows_provider(offer.provider)


def _lately(offer: Offer, now: datetime) -> bool:
    return now - offer.observed_at <= OFFERED_WITHIN


def _distance(other: ListPrice, wanted: ListPrice) -> tuple[bool, int, int, str]:
    """The same GPUs first, then as many of them, then a similar price."""
    this, that = other.sku.shape, wanted.sku.shape
    return (
        this.gpu_model is not that.gpu_model,
        abs(this.gpu_count - that.gpu_count),
        abs(other.nano_per_hour - wanted.nano_per_hour),
        other.sku.name,
    )


def _either(places: Sequence[str]) -> str:
    shown = list(places[:ALTERNATIVES_MAX])
    return ", ".join(shown) + (" and others" if len(places) > ALTERNATIVES_MAX else "")
