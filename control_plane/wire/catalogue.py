"""What is sold (SKUs), what providers have (offers), and what a lease would cost (quotes)."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import Money, ProviderName, RegionName, Request, SkuName, UsdText, View


class SkuView(View, kw_only=True):
    name: str
    gpu_model: str
    gpu_count: int
    vcpus: int
    memory_gib: int
    disk_gib: int
    capacity: str
    proof: str = "listed"
    """What its machines have to prove before they are leased: `listed` (nothing), `proven` or `attested`."""
    price_per_gpu_hour: Money
    price_per_hour: Money
    """For the whole machine."""


class SkuList(View):
    items: tuple[SkuView, ...]


class OfferView(View):
    key: str
    """Identifies the offer across refreshes; placements refer to it."""
    provider: str
    region: str
    native_type: str
    """The provider's own name of the machine type."""
    gpu_model: str
    gpu_count: int
    vcpus: int
    memory_gib: int
    disk_gib: int
    capacity: str
    available: bool
    confidence: str
    """How the provider knows its stock: `live`, `advisory` or `static`."""
    observed_at: datetime
    age_seconds: int
    price_per_hour: Money | None
    """Our price of the most expensive SKU that this offer can serve; null when it can serve none."""
    skus: tuple[str, ...]
    """The SKUs that this offer can serve."""
    cost_per_hour: Money | None
    """What we pay. Null without the permission to see costs."""


class OfferList(View):
    items: tuple[OfferView, ...]


class QuoteRequest(Request):
    sku: SkuName
    regions: Annotated[tuple[RegionName, ...], Meta(max_length=16)] = ()
    """Empty means anywhere."""
    providers: Annotated[tuple[ProviderName, ...], Meta(max_length=16)] = ()
    """Empty means any provider."""
    price_usd_per_hour_max: UsdText | None = None
    """The highest acceptable price of the whole machine."""


class VerdictView(View):
    admitted: bool
    code: str | None
    """The refusal's stable code; null when the lease would be admitted."""
    why: str | None
    """A sentence that says what to change."""


class CandidateView(View):
    key: str
    provider: str
    region: str
    native_type: str
    confidence: str | None
    cost_per_hour: Money | None
    """What we pay. Null without the permission to see costs."""


class RejectedView(View):
    key: str
    provider: str
    region: str
    native_type: str
    code: str
    why: str
    proofs: tuple[str, ...] = ()
    """The failed GPU proofs that speak against the offer. Empty without the permission to see proof records."""


class QuoteView(View):
    verdict: VerdictView
    sku: str
    price_per_gpu_hour: Money | None
    """Null when we do not sell the SKU."""
    price_per_hour: Money | None
    first_hour: Money | None
    """The expected bill of the first hour, which is also the hold that an admitted lease takes."""
    candidates: tuple[CandidateView, ...]
    """Best first."""
    rejected: tuple[RejectedView, ...]
