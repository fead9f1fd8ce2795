"""What is sold (SKUs), what providers have (offers), and what a lease would cost (quotes)."""

from typing import Annotated, Literal

from msgspec import Meta

from control_plane.wire.admissions import RuleView
from control_plane.wire.codes import RejectCodeWord
from control_plane.wire.common import (
    Money,
    Name,
    NextCursor,
    ProviderName,
    RegionName,
    Request,
    SkuName,
    Timestamp,
    UsdText,
    View,
)
from control_plane.wire.firewalls import FirewallProviderWord
from control_plane.wire.power import PowerActionWord
from control_plane.wire.problems import RefusalView
from control_plane.wire.sla_terms import SlaTierWord
from control_plane.wire.vocabulary import (
    ArchitectureWord,
    CapacityWord,
    ConfidenceWord,
    GpuModelWord,
    PriceSourceWord,
    PurchaseWord,
    QuoteIdText,
    TierWord,
)

PurchaseChoice = Literal["on_demand", "spot", "interruptible", "committed"]
EvictionChoice = Literal["end", "replace"]
SlaChoice = Literal["bronze", "silver", "gold"]
PRIORITY_DEFAULT = 50
PRIORITY_MAX = 100
NETWORK_GBPS_MAX = 1_000_000
COMMITTED_DAYS_MAX = 1_100


class SkuRegionView(View):
    """What a SKU costs a request that is limited to a region."""

    region: str
    """A region, or a jurisdiction."""
    price_per_hour: Money
    """For the whole machine."""
    price_per_hour_spot: Money | None
    """For the whole machine as spot; null when it is not sold so."""
    price_per_hour_interruptible: Money | None = None
    """For the whole machine of an interruptible lease; null when it is not sold so."""
    price_per_hour_committed: Money | None = None
    """For the whole machine for a term; null when it is not sold so."""


class SkuTierView(View):
    """What a SKU costs with an SLA tier."""

    sla: SlaTierWord
    """The tier: GET /v1/sla-tiers says what it promises."""
    region: str | None
    """For requests that are limited to it; null: for all others."""
    price_per_hour: Money
    """For the whole machine."""
    price_per_hour_stopped: Money
    """For the whole machine while it is stopped."""
    price_per_hour_committed: Money | None = None
    """For the whole machine for a term; null when it is not sold so."""


class SkuView(View, kw_only=True):
    """A SKU: what we sell, and its price for you."""

    name: str
    """The name that requests use."""
    gpu_model: GpuModelWord | None
    """The model of its GPUs; null when it has none."""
    gpu_count: int
    """How many GPUs it has; 0 for a machine without GPUs."""
    vcpus: int
    """Virtual CPUs, at least."""
    memory_gib: int
    """Memory in GiB, at least."""
    disk_gib: int
    """Disk in GiB, at least."""
    capacity: CapacityWord
    """What kind of machine it is."""
    proof: TierWord = "listed"
    """What its machines have to prove before they are leased: `listed` (nothing), `proven` or `attested`."""
    price_per_gpu_hour: Money | None
    """The price of one GPU for an hour; null when it has none."""
    price_per_hour: Money
    """For the whole machine, with the tier bronze, as all prices here but those of `tiers`."""
    price_per_hour_stopped: Money
    """For the whole machine while it is stopped. It is higher, up to the price of one that is on, where the provider
    bills us more; offers say so."""
    price_per_hour_spot: Money | None = None
    """For the whole machine as spot; null when it is not sold so."""
    price_per_hour_interruptible: Money | None = None
    """For the whole machine of an interruptible lease; null when it is not sold so."""
    price_per_hour_committed: Money | None = None
    """For the whole machine of a lease that is committed to for `committed_days`; null when it is not sold so."""
    committed_days: int | None = None
    """The term that this price is for, in days."""
    list_price_per_hour: Money | None = None
    """For the whole machine in the price book. `price_per_hour` differs where another one was agreed on with you. Null
    where the API is too old to say."""
    regions: tuple[SkuRegionView, ...] = ()
    """Where it has other prices. A request for several regions has the highest of their prices."""
    tiers: tuple[SkuTierView, ...] = ()
    """The tiers with other prices, each anywhere and in the regions with other prices; empty when the price is the
    same with every tier."""


class SkuList(View):
    """What is for sale, at your prices."""

    items: tuple[SkuView, ...]
    """All SKUs."""
    next_cursor: NextCursor | None = None


class OfferView(View):
    """Capacity that a provider listed."""

    key: str
    """Identifies the offer across refreshes; placements refer to it."""
    provider: str
    """Who offers it."""
    region: str
    """Where it is."""
    native_type: str
    """The provider's own name of the machine type."""
    gpu_model: GpuModelWord | None
    """The model of its GPUs; null when it has none."""
    gpu_count: int
    """How many GPUs it has; 0 for a machine without GPUs."""
    vcpus: int
    """Virtual CPUs."""
    memory_gib: int
    """Memory in GiB."""
    disk_gib: int
    """Disk in GiB."""
    capacity: CapacityWord
    """What kind of machine it is."""
    available: bool
    """Whether the provider had stock when it was asked."""
    confidence: ConfidenceWord
    """How the provider knows its stock: `live`, `advisory` or `static`."""
    observed_at: Timestamp
    """When the provider was asked."""
    age_seconds: int
    """How long ago that was, in seconds."""
    price_per_hour: Money | None
    """Our price, with the tier that was asked for, of the most expensive SKU that this offer can serve; null when it
    can serve none."""
    skus: tuple[str, ...]
    """The SKUs that this offer can serve."""
    cost_per_hour: Money | None
    """What we pay. Null without the permission to see costs."""
    effective_cost_per_hour: Money | None = None
    """What an hour of use costs us with setting up, rounding and machines that fail. Offers are ranked by it. Null
    without the permission to see costs."""
    architecture: ArchitectureWord = "x86_64"
    """The architecture of its CPUs."""
    spot: bool = False
    """Whether the provider may take the machine back. It serves spot leases alone."""
    eviction_notice_seconds: int | None = None
    """How many seconds before that it says so; null where it does not."""
    price_source: PriceSourceWord = "listing"
    """Where the price is from."""
    network_gbps: int | None = None
    """Gigabits per second between machines, with the network cards that it is ordered with; null where the provider
    does not say."""
    ephemeral_gib: int | None = None
    """More local disk in GiB, whose content ends with the machine; null where the provider does not say."""
    power: tuple[PowerActionWord, ...] = ()
    """What you can do with the power of its machine. Empty where the provider can do nothing of it."""
    firewall: FirewallProviderWord = "none"
    """What the provider filters before its machine."""
    price_per_hour_stopped: Money | None = None
    """Our price of the same SKU while the machine is stopped; null when it cannot be stopped."""


class OfferList(View):
    """The capacity that providers listed last."""

    items: tuple[OfferView, ...]
    """Offers, in the order of their keys."""
    next_cursor: NextCursor | None = None


class PlacementRequest(Request):
    """What is wanted, and where it may be."""

    sku: SkuName
    """The SKU."""
    regions: Annotated[tuple[RegionName, ...], Meta(max_length=16)] = ()
    """Empty means anywhere."""
    providers: Annotated[tuple[ProviderName, ...], Meta(max_length=16)] = ()
    """Empty means any provider."""
    price_usd_per_hour_max: UsdText | None = None
    """The highest acceptable price of the whole machine."""
    network_gbps_min: Annotated[int, Meta(ge=1, le=NETWORK_GBPS_MAX, examples=[400])] | None = None
    """At least so many gigabits per second between machines. Offers whose provider does not state it are left out."""
    priority: Annotated[int, Meta(ge=0, le=PRIORITY_MAX)] = PRIORITY_DEFAULT
    """When capacity is short, your leases with a higher number are placed first. With 50, the default, a lease gets the
    priority of its tier (GET /v1/sla-tiers). It changes no price, and nothing for other organizations."""
    project: Annotated[Name, Meta(examples=["default"])] | None = None
    """The name or the id of the project that the lease belongs to; the default one when it is left out."""
    environment: Annotated[Name, Meta(examples=["default"])] | None = None
    """The name or the id of an environment of the project; the default one when it is left out."""
    sla: SlaChoice = "bronze"
    """How much is promised: GET /v1/sla-tiers says what. Nothing is promised with spot capacity or an
    interruptible lease, which are bronze."""


class QuoteRequest(PlacementRequest):
    """The capacity that is wanted, and how it is to be bought."""

    purchase: PurchaseChoice = "on_demand"
    """With `spot`, its provider may take the machine back at any moment. Say the most that it may cost with
    `price_usd_per_hour_max`. With `interruptible`, we may take it back, with a notice of at least two minutes, for a
    lease whose readiness is promised. With `committed`, it costs less for a term, ends with it, and is paid for all of
    it: what the whole term costs is held from the beginning, and releasing it earlier costs the rest at once.
    GET /v1/skus has the price of each."""
    committed_days: Annotated[int, Meta(ge=1, le=COMMITTED_DAYS_MAX, examples=[365])] | None = None
    """The term, which has to be that of the SKU. A lease that is committed to has to name it, unless its quote does."""


class PriceRequest(QuoteRequest):
    """The capacity that a quote is wanted for."""

    keep: bool = False
    """Keep the price: until `expires_at`, a lease that names the quote as `quote_id` has this price. A quote that no
    offer can serve now is not kept."""


class VerdictView(View):
    """Whether the lease would be admitted."""

    admitted: bool
    """Whether a lease with this request would be admitted now."""
    code: str | None
    """The refusal's stable code; null when the lease would be admitted."""
    why: str | None
    """A sentence that says what to change."""
    refusals: tuple[RefusalView, ...] = ()
    """Everything that would refuse the lease; empty when it would be admitted."""
    rules: tuple[RuleView, ...] = ()
    """Every rule that spoke, in the order of the stages: those of the envelopes, and those of the product."""


class CandidateView(View):
    """An offer that can serve the request."""

    key: str
    """The key of the offer."""
    provider: str
    """Who offers it."""
    region: str
    """Where it is."""
    native_type: str
    """The provider's own name of the machine type."""
    confidence: ConfidenceWord | None
    """How the provider knows its stock: `live`, `advisory` or `static`; null when it is not recorded."""
    cost_per_hour: Money | None
    """What we pay. Null without the permission to see costs."""
    effective_cost_per_hour: Money | None = None
    """What an hour of use costs us; candidates are ranked by it. Null without the permission to see costs."""
    power: tuple[PowerActionWord, ...] = ()
    """What you can do with the power of its machine; empty also in placements, which do not keep it."""
    price_per_hour_stopped: Money | None = None
    """What the lease would cost while its machine is stopped; null when it cannot be stopped, and in placements."""
    network_gbps: int | None = None
    """Gigabits per second between machines; null where the provider does not say, and in placements."""
    ephemeral_gib: int | None = None
    """More local disk in GiB, whose content ends with the machine; null where the provider does not say, and in
    placements."""


class RejectedView(View):
    """An offer that cannot serve the request."""

    key: str
    """The key of the offer."""
    provider: str
    """Who offers it."""
    region: str
    """Where it is."""
    native_type: str
    """The provider's own name of the machine type."""
    code: RejectCodeWord
    """The reason."""
    why: str
    """The reason, as a sentence."""
    proofs: tuple[str, ...] = ()
    """The failed GPU proofs that count against the offer. Empty without the permission to see proof records."""
    more: int = 0
    """How many more offers of the provider's account have the same reason, and are not named."""


class QuoteView(View, kw_only=True):
    """What a lease would cost, and where it would go."""

    verdict: VerdictView
    """Whether it would be admitted."""
    sku: str
    """The SKU that was asked for."""
    project: str
    """The name of the project in which the lease would be."""
    environment: str
    """The name of the environment in which it would be."""
    sla: SlaTierWord = "bronze"
    """How much would be promised with it."""
    price_per_gpu_hour: Money | None
    """With the factor of a burst, where the lease would use one. Null when we do not sell the SKU, and when it has no
    GPUs."""
    price_per_hour: Money | None
    """For the whole machine; null when we do not sell the SKU."""
    first_hour: Money | None
    """The expected bill of the first hour, which is also the hold that an admitted lease takes, unless it is for a
    term."""
    candidates: tuple[CandidateView, ...]
    """Best first."""
    rejected: tuple[RejectedView, ...]
    """The offers that cannot serve it, with the reasons."""
    more_candidates: int = 0
    """How many more candidates there are; the best 100 are named."""
    id: QuoteIdText | None = None
    """What a lease names to have this price; null unless it is kept."""
    expires_at: Timestamp | None = None
    """Until when a lease may be created for it; null unless it is kept."""
    committed_days: int | None = None
    """The term that the lease would be committed to, in days; null when it is not bought so."""
    term_price: Money | None = None
    """What the whole term costs, used or not, which is also the hold that an admitted lease takes."""


class KeptQuoteView(View):
    """A quote whose price was kept."""

    id: QuoteIdText
    """What a lease names to have this price."""
    sku: str
    """The SKU."""
    project: str
    """The name of the project that it is for."""
    environment: str
    """The name of the environment that it is for."""
    purchase: PurchaseWord
    """How it is bought."""
    regions: tuple[str, ...]
    """Where it may be; empty means anywhere."""
    providers: tuple[str, ...]
    """Whose machine it may be; empty means anybody's."""
    price_usd_per_hour_max: str | None
    """The most that the machine may cost per hour in US dollars, exact: `25.000000000`."""
    network_gbps_min: int | None
    """At least so many gigabits per second between machines; null means any."""
    price_per_gpu_hour: Money | None
    """Without the factor of a burst; null when it has no GPUs."""
    price_per_hour: Money
    """For the whole machine."""
    price_per_hour_stopped: Money
    """For the whole machine while it is stopped. It is higher, up to the price of one that is on, where the provider
    bills us more."""
    quoted_at: Timestamp
    """When it was made."""
    expires_at: Timestamp
    """Until when a lease may be created for it."""
    sla: SlaTierWord
    """How much is promised with it."""
    expired: bool
    """Whether that time has passed. Leases that were created for it keep its price."""
    leases: int
    """How many leases were created for it."""
    committed_days: int | None = None
    """The term that the price is for, in days; null when it is not bought so."""
