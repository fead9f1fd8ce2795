"""Credit terms of customers."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import Money, Request, Sentence, Timestamp, UsdText, View
from control_plane.wire.vocabulary import OrganizationIdText

PAYMENT_DAYS_MAX = 120


class CreditTermsRequest(Request):
    """How far a customer may use capacity before it pays. It replaces what was set before as a whole."""

    credit_limit_usd: UsdText
    """The most that it may owe, with what is on no invoice yet; 0: it is prepaid."""
    payment_days: Annotated[
        int,
        Meta(
            ge=0,
            le=PAYMENT_DAYS_MAX,
            examples=[30],
            extra={"must": f"a whole number of days from 0 to {PAYMENT_DAYS_MAX}"},
        ),
    ]
    """After how many days its invoices have to be paid."""
    reason: Sentence
    """Why, such as the number of a contract. It is stored with who sent it."""


class CreditTermsView(View):
    """How far a customer may use capacity before it pays."""

    organization_id: OrganizationIdText
    """The customer."""
    credit_limit: Money
    """The most that it may owe, with what is on no invoice yet; 0: it is prepaid."""
    payment_days: int
    """After how many days its invoices have to be paid."""
    reason: str
    """Why."""
    changed_at: Timestamp
    """When they were set."""
    changed_by: str
    """The id of the subject that set them."""
