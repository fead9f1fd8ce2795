"""Prices that finance agrees on with customers."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.catalogue import PurchaseChoice, SlaChoice
from control_plane.wire.common import (
    Money,
    NamedOrganizationId,
    NextCursor,
    RegionName,
    Request,
    Sentence,
    SkuName,
    Timestamp,
    UsdText,
    View,
    require_a_year_of_ours,
)
from control_plane.wire.sla_terms import SlaTierWord
from control_plane.wire.vocabulary import OrganizationIdText

PriceAgreementIdText = Annotated[
    str,
    Meta(
        description="The id of an agreed price.",
        examples=["pa_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"],
        extra_json_schema={"pattern": "^pa_[0-9a-f]{32}$"},
    ),
]


class PriceAgreementRequest(Request):
    """A price that was agreed on with a customer."""

    organization_id: NamedOrganizationId
    """Whose price it is."""
    sku: SkuName
    """What it is the price of."""
    usd_per_unit_hour: UsdText
    """The price of one GPU for an hour, or of the machine where the SKU has no GPUs."""
    reason: Sentence
    """Why, such as the number of a contract. It is stored with who sent it."""
    region: RegionName | None = None
    """Only for requests that are limited to this region or jurisdiction; null: for all."""
    sla: SlaChoice | None = None
    """Only for leases with this tier; null: for all. One for a tier stands before one for all of them. Nothing is
    promised with what may be taken back, so a price for spot or interruptible leases names no tier."""
    purchase: PurchaseChoice = "on_demand"
    """How it is bought."""
    stopped_usd_per_unit_hour: UsdText | None = None
    """The price while the machine is stopped; null: that of the price book, or the price itself where it is lower."""
    valid_from: Timestamp | None = None
    """From when on it applies to new leases; null: now."""
    valid_until: Timestamp | None = None
    """Until when; null: until it is ended."""

    def __post_init__(self) -> None:
        require_a_year_of_ours("valid_from", self.valid_from)
        require_a_year_of_ours("valid_until", self.valid_until)


class PriceAgreementEndRequest(Request):
    """When an agreement is to be over."""

    at: Timestamp | None = None
    """From when on it does not apply to new leases; null: now."""

    def __post_init__(self) -> None:
        require_a_year_of_ours("at", self.at)


class PriceAgreementView(View):
    """A price that was agreed on with a customer. It is never edited, only ended."""

    id: PriceAgreementIdText
    """The id of the agreement."""
    organization_id: OrganizationIdText
    """Whose price it is."""
    sku: str
    """What it is the price of."""
    region: str | None
    """Only for requests that are limited to it; null: for all."""
    purchase: PurchaseChoice
    """How it is bought."""
    price_per_unit_hour: Money
    """The price of one GPU for an hour, or of the machine where the SKU has no GPUs."""
    stopped_price_per_unit_hour: Money | None
    """While the machine is stopped; null: that of the price book, or the price itself where it is lower."""
    valid_from: Timestamp
    """From when on it applies to new leases."""
    valid_until: Timestamp | None
    """Until when; null: until it is ended. The same as `valid_from` when it was ended before that."""
    agreed_at: Timestamp
    """When it was recorded."""
    agreed_by: str
    """The id of the subject that recorded it."""
    reason: str
    """Why."""
    sla: SlaTierWord | None = None
    """Only for leases with this tier; null: for all."""


class PriceAgreementPage(View):
    """A page of agreements."""

    items: tuple[PriceAgreementView, ...]
    """The agreements, newest first."""
    next_cursor: NextCursor | None
