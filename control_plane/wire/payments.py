"""What a payment provider, or a relay in front of it, tells us."""

from typing import Annotated, Literal

from msgspec import Meta

from control_plane.wire.common import NamedOrganizationId, PositiveUsdText, Request, RequestError

ID_PATTERN = r"^[A-Za-z0-9._-]{1,64}$(?!\n)"
PaymentId = Annotated[str, Meta(pattern=ID_PATTERN, extra={"must": "1 to 64 letters, digits, dots, _ or -"})]


class PaymentEventRequest(Request):
    """A payment, or money of one that was given back."""

    id: PaymentId
    """The provider's id of the event. The same event again changes nothing."""
    type: Literal["payment.succeeded", "payment.refunded", "payment.charged_back"]
    """What happened."""
    organization_id: NamedOrganizationId
    """Whose payment it is."""
    payment: PaymentId
    """The provider's id of the payment."""
    amount: PositiveUsdText
    """The amount that moved."""
    currency: Annotated[str, Meta(pattern=r"^[A-Z]{3}$(?!\n)", extra={"must": "a currency, such as USD"})]
    """Its currency in ISO 4217."""

    def __post_init__(self) -> None:
        if not self.amount.strip("0."):
            raise RequestError("must have an `amount` of more than zero")
