"""The webhook of the payment port. It needs no API key: each request is signed with a secret of the port."""

from datetime import datetime

import msgspec
from litestar import Controller, Response, post

from control_plane.api.errors import ApiError, refusal
from control_plane.api.identifiers import read_organization_id
from control_plane.api.requests import ApiRequest, refuse_wrong_clock
from control_plane.domain.money import parse_usd
from control_plane.domain.payment import CURRENCY, PaymentEvent, PaymentEventKind, checked
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.services import payments
from control_plane.wire.payments import PaymentEventRequest

SIGNATURE = "Splitplane-Signature"
_DECODER = msgspec.json.Decoder(PaymentEventRequest)


class PaymentController(Controller):
    path = "/payments"
    include_in_schema = False

    @post("/events", status_code=200)
    async def take(self, request: ApiRequest) -> Response[dict[str, bool]]:
        """Post a payment, or what was given back of one, once. `posted` is false when it was posted before."""
        refuse_wrong_clock(request)  # The age of the signature and the month of the payment are told by it.
        context, body = request.context, await request.body()
        if not context.payment_secrets:
            raise ApiError(RefusalCode.NOT_FOUND, "This installation has no payment port.")
        now = request.world.now()
        refused = checked(request.headers.get(SIGNATURE), body, context.payment_secrets, now)
        if refused is not None:
            raise refusal(refused)
        found = await payments.take(request.world, _event(body, now))
        if isinstance(found, Refused):
            raise refusal(found)
        return Response({"posted": found})


def _event(body: bytes, now: datetime) -> PaymentEvent:
    try:
        data = _DECODER.decode(body)
    except msgspec.ValidationError as error:
        raise ApiError("invalid_request", f"The event cannot be read: {error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ApiError("malformed_json", "The body is not one JSON object in UTF-8.") from None
    if data.currency != CURRENCY:
        why = f"The amount is in {data.currency}; balances are in {CURRENCY}."
        raise refusal(Refused(RefusalCode.CURRENCY_NOT_SUPPORTED, why))
    return PaymentEvent(
        id=data.id,
        kind=PaymentEventKind(data.type),
        organization_id=read_organization_id(data.organization_id),
        payment=data.payment,
        amount_nano=parse_usd(data.amount),
        at=now,
    )
