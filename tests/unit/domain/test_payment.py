"""Who tells us of a payment, and what of a refund the wallet pays."""

from datetime import timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.ids import OrganizationId
from control_plane.domain.ledger import AccountKind
from control_plane.domain.money import Nano
from control_plane.domain.payment import (
    TOLERANCE,
    PaymentEvent,
    PaymentEventKind,
    checked,
    from_wallet,
    refund,
    signature,
)
from control_plane.domain.refusal import RefusalCode
from tests.support.cases import case
from tests.support.clock import START

SECRET, OLD, BODY = b"s" * 32, b"o" * 32, b'{"id": "evt-1"}'
SENT = int(START.timestamp())
RIGHT = f"t={SENT},v1={signature(SECRET, SENT, BODY)}"


def _code(header: str | None, body: bytes = BODY, late: timedelta = timedelta()) -> RefusalCode | None:
    found = checked(header, body, (SECRET, OLD), START + late)
    return None if found is None else found.code


def test_a_signature_is_of_this_body_by_a_known_secret_and_lately() -> None:
    invalid, expired = RefusalCode.SIGNATURE_INVALID, RefusalCode.SIGNATURE_EXPIRED
    for header, body, late, code in (
        (RIGHT, BODY, timedelta(), None),
        (f"t={SENT},v1={signature(OLD, SENT, BODY)}", BODY, timedelta(), None),
        (f"t={SENT},v1=00,v1={signature(SECRET, SENT, BODY)}", BODY, timedelta(), None),
        (RIGHT, BODY, TOLERANCE, None),
        (RIGHT, BODY, TOLERANCE + timedelta(seconds=1), expired),
        (RIGHT, BODY, -TOLERANCE - timedelta(seconds=1), expired),
        (RIGHT, BODY + b" ", timedelta(), invalid),
        (f"t={SENT},v1={signature(b'x' * 32, SENT, BODY)}", BODY, timedelta(), invalid),
        (RIGHT.replace(f"t={SENT}", f"t={SENT + 1}"), BODY, timedelta(), invalid),
        (f"v1={signature(SECRET, SENT, BODY)}", BODY, timedelta(), invalid),
        (f"t={SENT}", BODY, timedelta(), invalid),
        (f"t={'9' * 400},v1=00", BODY, timedelta(), invalid),
        ("t=\u0661,v1=\u00e9", BODY, timedelta(), invalid),
        ("", BODY, timedelta(), invalid),
        (None, BODY, timedelta(), invalid),
    ):
        with case(header, late):
            assert _code(header, body, late) is code


@given(amount=st.integers(1, 10**15).map(Nano), own=st.integers(-(10**15), 10**15).map(Nano))
def test_money_that_was_given_back_is_gone_and_what_the_wallet_lacks_of_it_is_owed(
    amount: Nano, own: Nano
) -> None:
    event = PaymentEvent(
        "evt-1", PaymentEventKind.REFUNDED, OrganizationId(UUID(int=1)), "pay-1", amount, START
    )
    taken = from_wallet(amount, own)
    posted = refund(event, from_wallet=taken)
    assert posted.posted_to(AccountKind.CASH) == amount
    assert 0 <= taken <= max(0, own), "holds are not touched"
    assert -posted.posted_to(AccountKind.WALLET) - posted.posted_to(AccountKind.RECEIVABLE) == amount
