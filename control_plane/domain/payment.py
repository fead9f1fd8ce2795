"""The payment port: what a payment provider tells us, and whether it is the provider who tells it.

A provider, or a relay in front of it, sends an event for each payment and each refund, signed with a secret that both
know. The signature covers the time of sending, so that a copy cannot be sent again later, and each event and payment
has an id, so that one that is sent again at once changes nothing. What is told is posted in one transaction.
"""

import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.ids import OrganizationId
from control_plane.domain.ledger import AccountKind, Approval, Posting, Transaction, TransactionKind
from control_plane.domain.money import NOTHING, Nano, dollars
from control_plane.domain.refusal import RefusalCode, Refused

CURRENCY = "USD"
TOLERANCE = timedelta(minutes=5)
"""How far the time of sending may be from our clock."""
SECRET_LENGTH_MIN = 32
PROVIDER = "payment_provider"
"""Who decided on what the port posts."""


class PaymentEventKind(StrEnum):
    SUCCEEDED = "payment.succeeded"
    """A customer paid, and the provider has the money."""
    REFUNDED = "payment.refunded"
    """The provider gave money of a payment back, because somebody asked it to."""
    CHARGED_BACK = "payment.charged_back"
    """The customer's bank took money of a payment back."""


@dataclass(frozen=True, slots=True)
class PaymentEvent:
    id: str
    """The provider's id of the event."""
    kind: PaymentEventKind
    organization_id: OrganizationId
    payment: str
    """The provider's id of the payment."""
    amount_nano: Nano
    at: datetime
    """When it was told, which is when it is posted."""

    @property
    def approval(self) -> Approval:
        return Approval(PROVIDER, f"{self.kind.value} {self.payment}, event {self.id}")


def signature(secret: bytes, sent_at: int, body: bytes) -> str:
    """The signature of a body that is sent at a time, in seconds since 1970: `HMAC-SHA256(secret, "time.body")`."""
    return hmac.new(secret, f"{sent_at}.".encode() + body, hashlib.sha256).hexdigest()


def checked(header: str | None, body: bytes, secrets: tuple[bytes, ...], now: datetime) -> Refused | None:
    """Why a body is not taken: its header `t=TIME,v1=SIGNATURE` is missing or wrong, or from another time.

    Any one of the secrets will do, so that it can be replaced without a pause.
    """
    invalid = Refused(RefusalCode.SIGNATURE_INVALID, "The signature is missing, or is not one of this body.")
    sent, given = _parts(header or "")
    if sent is None:
        return invalid
    expected = [signature(secret, sent, body) for secret in secrets]
    if not any(hmac.compare_digest(one, each) for one in given for each in expected):
        return invalid
    if abs(now.timestamp() - sent) > TOLERANCE.total_seconds():
        minutes = int(TOLERANCE.total_seconds()) // 60
        why = f"The signature is of another time: more than {minutes} minutes from now. Sign it anew."
        return Refused(RefusalCode.SIGNATURE_EXPIRED, why)
    return None


def _parts(header: str) -> tuple[int | None, list[str]]:
    """The time and the signatures of a header."""
    sent, given = None, []
    for part in header.split(","):
        name, _, value = part.strip().partition("=")
        if name == "t" and value.isascii() and value.isdigit() and len(value) <= 12:
            sent = int(value)
        if name == "v1" and value.isascii():
            given.append(value)
    return sent, given


def top_up_key(event: PaymentEvent) -> str:
    """Identifies the payment. A second event of the same payment posts nothing."""
    return f"payment:{event.payment}"


def back_prefixes(payment: str) -> tuple[str, str]:
    """What the keys of refunds and of charge-backs of a payment begin with."""
    return f"refund:payment:{payment}:", f"charge_back:payment:{payment}:"


def charge_back(event: PaymentEvent) -> Transaction:
    """Money that the customer's bank took back: the reversal of its top-up.

    All of it leaves the wallet, which may fall below zero, and below what is on hold. Then nothing new is admitted, no
    hold is renewed, and what runs is stopped or ends when its hold is used (`exhaustion.py`), until that is paid in.
    """
    postings = (
        Posting(AccountKind.WALLET, Nano(-event.amount_nano)),
        Posting(AccountKind.CASH, event.amount_nano),
    )
    return _back(event, TransactionKind.CHARGE_BACK, f"{back_prefixes(event.payment)[1]}{event.id}", postings)


def refund(event: PaymentEvent, *, from_wallet: Nano) -> Transaction:
    """Money that the provider gave back. It is gone, so what the wallet does not have of it is owed."""
    moves = (
        (AccountKind.WALLET, Nano(-from_wallet)),
        (AccountKind.RECEIVABLE, Nano(from_wallet - event.amount_nano)),
        (AccountKind.CASH, event.amount_nano),
    )
    postings = tuple(Posting(kind, amount) for kind, amount in moves if amount)
    return _back(event, TransactionKind.REFUND, f"{back_prefixes(event.payment)[0]}{event.id}", postings)


def _back(event: PaymentEvent, kind: TransactionKind, key: str, postings: tuple[Posting, ...]) -> Transaction:
    return Transaction(key, kind, event.organization_id, None, event.at, postings, event.approval)


def from_wallet(amount: Nano, own: Nano) -> Nano:
    """What of a refund the wallet pays: no more than it has beyond its holds, without credit."""
    return Nano(max(NOTHING, min(amount, own)))


def refund_refusal(event: PaymentEvent, paid: Nano | None, refunded: Nano) -> Refused | None:
    """Why a refund or a charge-back is not posted: we know no such payment, or less was paid."""
    if paid is None:
        why = f"No payment {event.payment} of this organization is posted; send its event first."
        return Refused(RefusalCode.PAYMENT_UNKNOWN, why)
    if refunded + event.amount_nano > paid:
        why = f"{dollars(paid)} USD were paid by {event.payment}, and {dollars(refunded)} USD of it are given back."
        return Refused(RefusalCode.REFUND_EXCEEDS_PAYMENT, why)
    return None


def repeats(event: PaymentEvent, posted: Nano | None) -> Refused | bool:
    """Whether what an event says is posted already; refused where it was posted with another amount."""
    if posted is None:
        return False
    if posted != event.amount_nano:
        why = f"{event.payment} is posted with {dollars(posted)} USD, and not with {dollars(event.amount_nano)} USD."
        return Refused(RefusalCode.PAYMENT_DIFFERS, why)
    return True
