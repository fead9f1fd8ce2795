"""Envelopes: the limits of an organization, a project or an environment, what is used of them, and quota requests."""

from typing import Annotated, Literal

from msgspec import Meta, field

from control_plane.wire.catalogue import PRIORITY_MAX, PurchaseChoice
from control_plane.wire.common import (
    Money,
    Name,
    NextCursor,
    ProviderName,
    RegionName,
    Request,
    RequestError,
    Sentence,
    SkuName,
    Timestamp,
    UsdText,
    View,
)
from control_plane.wire.leases import BATCH_SIZE_MAX
from control_plane.wire.vocabulary import (
    EnvironmentIdText,
    GpuModelWord,
    LevelWord,
    OrganizationIdText,
    ProjectIdText,
    QuotaRequestIdText,
    QuotaRequestStateWord,
)

GPUS_MAX = 1_000_000
GpuCount = Annotated[int, Meta(ge=0, le=GPUS_MAX, examples=[64])]
CHOICES_MAX = 64
DemandedTier = Literal["listed", "proven", "attested"]


class BurstRequest(Request):
    """How far the limits on GPUs and on the spend per hour may be exceeded for a while."""

    over_percent: Annotated[int, Meta(ge=1, le=1_000, examples=[50])]
    """How much over a limit, in percent of it."""
    seconds: Annotated[int, Meta(ge=60, le=31_536_000, examples=[14_400])]
    """How long: from the moment at which the first limit is exceeded until none is."""
    price_percent: Annotated[int, Meta(ge=100, le=10_000, examples=[150])] = 100
    """What a lease costs that is admitted over a limit, in percent of its price."""


class LimitsRequest(Request):
    """Limits. What is left out or null is not limited."""

    gpus: GpuCount | None = None
    """How many GPUs live leases may hold at once."""
    gpus_of_model: Annotated[
        dict[GpuModelWord, GpuCount], Meta(max_length=64, examples=[{"h100-sxm-80gb": 16}])
    ] = field(default_factory=dict)
    """How many GPUs of a model live leases may hold at once."""
    spend_usd_per_hour_max: UsdText | None = None
    """The most that all live leases together may cost per hour."""
    spend_usd_per_month_max: UsdText | None = None
    """The most that may be charged and held in a calendar month (UTC)."""
    skus: Annotated[tuple[SkuName, ...], Meta(max_length=CHOICES_MAX)] | None = None
    """The SKUs that may be leased; none when it is empty."""
    regions: Annotated[tuple[RegionName, ...], Meta(max_length=CHOICES_MAX)] | None = None
    """The regions and jurisdictions in which machines may be; none when it is empty."""
    providers: Annotated[tuple[ProviderName, ...], Meta(max_length=CHOICES_MAX)] | None = None
    """The providers whose machines may be leased; none when it is empty."""
    tiers: Annotated[tuple[DemandedTier, ...], Meta(max_length=CHOICES_MAX)] | None = None
    """What the SKUs that may be leased demand of the proof of their GPUs."""
    purchases: Annotated[tuple[PurchaseChoice, ...], Meta(max_length=CHOICES_MAX)] | None = None
    """How leases may be bought; with `["on_demand"]`, none as spot."""
    priority_max: Annotated[int, Meta(ge=0, le=PRIORITY_MAX, examples=[50])] | None = None
    """The highest priority that a lease may have."""
    batch_size_max: Annotated[int, Meta(ge=1, le=BATCH_SIZE_MAX, examples=[8])] | None = None
    """How many leases one request may create."""


class EnvelopeRequest(LimitsRequest):
    """The envelope that shall hold from now on. It replaces the one before as a whole."""

    burst: BurstRequest | None = None
    """How far limits may be exceeded for a while; not at all when it is left out."""
    ends_after_seconds: Annotated[int, Meta(ge=300, le=31_536_000, examples=[3_600])] | None = None
    """How long after its warning a lease ends that is outside of this envelope. It is only warned when this is left
    out."""


class BurstView(View):
    """How far limits may be exceeded for a while."""

    over_percent: int
    """How much over a limit, in percent of it."""
    seconds: int
    """How long."""
    price_percent: int
    """What a lease costs that is admitted over a limit, in percent of its price."""


class LimitsView(View):
    """Limits; null where there is none."""

    gpus: int | None
    """How many GPUs live leases may hold at once."""
    gpus_of_model: dict[str, int]
    """How many GPUs of a model live leases may hold at once."""
    spend_per_hour_max: Money | None
    """The most that all live leases together may cost per hour."""
    spend_per_month_max: Money | None
    """The most that may be charged and held in a calendar month (UTC)."""
    skus: tuple[str, ...] | None
    """The SKUs that may be leased."""
    regions: tuple[str, ...] | None
    """The regions and jurisdictions in which machines may be."""
    providers: tuple[str, ...] | None
    """The providers whose machines may be leased."""
    tiers: tuple[str, ...] | None
    """What the SKUs that may be leased demand of the proof of their GPUs."""
    purchases: tuple[str, ...] | None
    """How leases may be bought."""
    priority_max: int | None
    """The highest priority that a lease may have."""
    batch_size_max: int | None
    """How many leases one request may create."""
    burst: BurstView | None
    """How far limits may be exceeded for a while; null: not at all."""
    ends_after_seconds: int | None
    """How long after its warning a lease ends that is outside; null: it is only warned."""


class UseView(View):
    """What the live leases of the scope use, whether or not it is limited."""

    gpus: int
    """The GPUs that live leases hold."""
    gpus_of_model: dict[str, int]
    """The same by model."""
    spend_per_hour: Money
    """What all live leases together cost per hour."""
    spend_this_month: Money
    """What was charged in this calendar month (UTC), and what is held for live leases."""
    over_since: Timestamp | None
    """Since when it is over a limit that a burst may exceed; null while it is not."""


class LevelView(View):
    """The envelope of one level."""

    level: LevelWord
    """Where it is stated."""
    limits: LimitsView
    """Its limits."""


class EnvelopeView(View, kw_only=True):
    """The envelope of a scope, with what is used of it, and the envelopes that it lies within."""

    level: LevelWord
    """Where it is stated."""
    project_id: ProjectIdText | None
    """The project, for the levels `project` and `environment`."""
    environment_id: EnvironmentIdText | None
    """The environment, for the level `environment`."""
    limits: LimitsView
    """Its limits."""
    revision: int
    """Counts its changes; 0 before the first, when nothing is limited here."""
    set_at: Timestamp | None
    """When it was last changed; null before the first time."""
    use: UseView
    """What is used."""
    within: tuple[LevelView, ...]
    """The envelopes of the wider levels, widest first. Their limits hold as well."""


class QuotaRequestRequest(Request):
    """Higher limits that are asked for."""

    limits: LimitsRequest
    """The limits as they shall be. What is left out stays as it is."""
    reason: Sentence
    """Why they are needed."""
    project: Annotated[Name, Meta(examples=["default"])] | None = None
    """The name or the id of the project whose envelope shall be changed, on which an owner or admin decides. When it is
    left out, the request is for the organization's ceiling, on which an operator decides."""
    environment: Annotated[Name, Meta(examples=["default"])] | None = None
    """The name or the id of one of the project's environments, if the envelope is the environment's."""

    def __post_init__(self) -> None:
        if self.limits == LimitsRequest():
            raise RequestError("must name a limit in its `limits`")
        if self.environment is not None and self.project is None:
            raise RequestError("must have a `project` beside its `environment`")


class AnswerRequest(Request):
    """The answer to a quota request."""

    reason: Sentence
    """Why it is approved or declined."""


class QuotaRequestView(View, kw_only=True):
    """A quota request."""

    id: QuotaRequestIdText
    """Its id."""
    organization_id: OrganizationIdText
    """The organization that asks."""
    state: QuotaRequestStateWord
    """What became of it."""
    level: LevelWord
    """Which envelope it is about."""
    project_id: ProjectIdText | None
    """The project; null for the whole organization."""
    environment_id: EnvironmentIdText | None
    """The environment; null for wider levels."""
    limits: LimitsView
    """The limits that are asked for; null stays as it is."""
    reason: str
    """Why they are needed."""
    asked_by: str
    """The id of the user or the service account that asked."""
    asked_at: Timestamp
    """When it was made."""
    expires_at: Timestamp
    """When it expires if nobody decides until then."""
    decided_by: str | None
    """The id of the user or the service account that decided; null before."""
    decided_at: Timestamp | None
    """When it was decided; null before."""
    answer: str | None
    """Why it was approved or declined; null before."""


class QuotaRequestPage(View):
    """A page of quota requests."""

    items: tuple[QuotaRequestView, ...]
    """The requests, newest first."""
    next_cursor: NextCursor | None
