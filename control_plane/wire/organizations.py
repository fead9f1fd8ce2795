"""Organizations and their credits."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from control_plane.wire.api_keys import ApiKeyView
from control_plane.wire.common import Money, Name, Request, UsdText, View


class OrganizationView(View):
    id: str
    name: str
    suspended: bool
    gpu_quota: int
    gpus_held: int
    balance: Money
    """What was paid in, less the charges posted."""
    held: Money
    """Set aside for running leases."""
    available: Money
    """The balance less the holds. It has to cover the first hour of a new lease."""
    created_at: datetime


class OrganizationRequest(Request):
    name: Name
    gpu_quota: Annotated[int, Meta(ge=0, le=1_000_000)] = 64
    key_name: Name = "first key"


class CreatedOrganization(View):
    organization: OrganizationView
    key: ApiKeyView
    secret: str | None
    """The secret of the first API key. It is in this answer only; a replay of the request answers null."""


class CreditRequest(Request):
    amount_usd: UsdText

    def __post_init__(self) -> None:
        if not self.amount_usd.strip("0."):
            raise ValueError("a credit must be more than zero")


class CreditView(View):
    organization_id: str
    amount: Money
    balance: Money
    """The organization's balance after the credit."""
