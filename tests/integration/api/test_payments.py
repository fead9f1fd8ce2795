"""The payment port over HTTP, with an emulated payment provider: what is told is posted once, and nobody else tells."""

import asyncio
from pathlib import Path

import pytest

from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.organization import OrganizationState
from control_plane.services import payments
from control_plane.settings import SettingsError
from tests.integration.api.conftest import Api, Tenant, tenant_in
from tests.integration.api.problems import hold
from tests.support.payment_provider import PaymentProvider

pytestmark = pytest.mark.database
SECRET = b"whsec-0123456789abcdef0123456789abcdef"


@pytest.fixture
async def provider(api: Api) -> PaymentProvider:
    api.app.state.context.payment_secrets = (SECRET, b"an older secret of thirty-two characters")
    return PaymentProvider(api.client(None), api.clock.now, SECRET)


async def _balance(tenant: Tenant) -> tuple[int, int]:
    shown = (await tenant.http.get("/v1/balance")).json()
    return shown["balance"]["nano"], shown["due"]["nano"]


async def test_a_payment_is_posted_once_however_often_and_at_once_it_is_told(
    api: Api, acme: Tenant, provider: PaymentProvider
) -> None:
    before, _ = await _balance(acme)
    paid = await provider.pay(acme.id, "25.00", payment="pay-1")
    assert (paid.status_code, paid.json()) == (200, {"posted": True})
    assert (await provider.again()).json() == {"posted": False}
    told = await asyncio.gather(*(provider.again() for _ in range(6)))
    assert {answer.status_code for answer in told} == {200}
    another_event = await provider.pay(acme.id, "25", payment="pay-1")
    assert another_event.json() == {"posted": False}, "it is the same payment"
    assert await _balance(acme) == (before + 25_000_000_000, 0)
    at_once = await asyncio.gather(*(provider.pay(acme.id, "1", payment="pay-2") for _ in range(6)))
    assert sorted(answer.json()["posted"] for answer in at_once) == [False] * 5 + [True]
    assert await _balance(acme) == (before + 26_000_000_000, 0)
    (entry, *_) = (await acme.http.get("/v1/balance/entries?kind=top_up")).json()["items"]
    assert "pay-2" in entry["reason"]
    hold(await provider.pay(acme.id, "26", payment="pay-1"), "payment_differs")


async def test_what_a_provider_gave_back_leaves_the_wallet_and_what_it_lacks_is_owed(
    api: Api, provider: PaymentProvider
) -> None:
    poor = await api.tenant("poor", credit=None)
    hold(await provider.give_back(poor.id, "5", payment="pay-1"), "payment_unknown")
    await provider.pay(poor.id, "10", payment="pay-1")
    assert (await provider.give_back(poor.id, "4", payment="pay-1")).json() == {"posted": True}
    assert (await provider.again()).json() == {"posted": False}
    assert await _balance(poor) == (6_000_000_000, 0)
    hold(await provider.give_back(poor.id, "6.01", payment="pay-1"), "refund_exceeds_payment")
    await provider.pay(poor.id, "3", payment="pay-2")
    lease = await poor.http.post("/v1/leases", json={"sku": "h100x1"})
    held = (await poor.http.get("/v1/balance")).json()["held"]["nano"]
    assert held > 0, lease.text
    assert (await provider.give_back(poor.id, "6", payment="pay-1")).json() == {"posted": True}
    assert (await provider.give_back(poor.id, "3", payment="pay-2")).json() == {"posted": True}
    balance, due = await _balance(poor)
    assert balance == held, "what is on hold for a lease stays"
    assert due == held, "and is owed, because its money is gone"


async def test_a_charge_back_reverses_its_payment_once_in_whichever_order_it_is_told_and_finance_sees_it(
    api: Api, operator: Tenant, provider: PaymentProvider
) -> None:
    poor = await api.tenant("poor", credit=None)
    hold(await provider.charge_back(poor.id, "10", payment="pay-1"), "payment_unknown")
    await provider.pay(poor.id, "10", payment="pay-1")
    lease = await poor.http.post("/v1/leases", json={"sku": "h100x1"})
    assert lease.status_code == 202, lease.text
    held = (await poor.http.get("/v1/balance")).json()["held"]["nano"]
    told = await asyncio.gather(*(provider.again(0) for _ in range(6)))
    assert sorted(answer.json()["posted"] for answer in told) == [False] * 5 + [True], (
        "it waited for its payment"
    )
    assert await _balance(poor) == (0, 0), "also what is on hold is gone"
    assert (await poor.http.get("/v1/balance")).json()["available"]["nano"] == -held
    hold(await poor.http.post("/v1/leases", json={"sku": "h100x1"}), "balance_too_low")
    hold(await provider.charge_back(poor.id, "0.01", payment="pay-1"), "refund_exceeds_payment")
    hold(await provider.give_back(poor.id, "0.01", payment="pay-1"), "refund_exceeds_payment")

    await provider.pay(poor.id, "8", payment="pay-2")
    assert (await provider.give_back(poor.id, "3", payment="pay-2")).json() == {"posted": True}
    hold(await provider.charge_back(poor.id, "5.01", payment="pay-2"), "refund_exceeds_payment")
    assert (await provider.charge_back(poor.id, "5", payment="pay-2")).json() == {"posted": True}
    assert (await provider.pay(poor.id, "8", payment="pay-2")).json() == {"posted": False}, "told late"

    (entry, first) = (await poor.http.get("/v1/balance/entries?kind=charge_back")).json()["items"]
    assert (entry["amount"]["nano"], first["amount"]["nano"]) == (-5_000_000_000, -10_000_000_000)
    assert "charged_back pay-2" in entry["reason"]
    organization = on_wire(Prefix.ORGANIZATION, poor.id)
    listed = (
        await operator.http.get(f"/v1/finance/entries?account=cash&organization={organization}")
    ).json()["items"]
    assert [(item["kind"], item["amount"]["nano"]) for item in listed if item["kind"] == "charge_back"] == [
        ("charge_back", -5_000_000_000),
        ("charge_back", -10_000_000_000),
    ]
    assert {item["approved_by"] for item in listed} == {"payment_provider"}
    (wallet,) = [
        item
        for item in (await operator.http.get("/v1/finance/wallets")).json()["items"]
        if item["organization_id"] == organization
    ]
    balance, due = await _balance(poor)
    assert (wallet["balance"]["nano"], wallet["due"]["nano"]) == (balance, due)


async def test_a_charge_back_of_a_suspended_customer_is_posted_all_the_same(
    api: Api, operator: Tenant, provider: PaymentProvider
) -> None:
    suspended = await tenant_in(api, operator, OrganizationState.SUSPENDED, "late")
    before, _ = await _balance(suspended)
    assert (await provider.pay(suspended.id, "10", payment="pay-1")).json() == {"posted": True}
    assert (await provider.charge_back(suspended.id, "10", payment="pay-1")).json() == {"posted": True}
    assert await _balance(suspended) == (before, 0)


async def test_nobody_else_tells_of_payments(api: Api, acme: Tenant, provider: PaymentProvider) -> None:
    before = await _balance(acme)
    await provider.pay(acme.id, "25", payment="pay-1", amount="0.5")
    body, right = provider.sent[-1]
    for header, code in (
        (None, "signature_invalid"),
        ("t=1,v1=00", "signature_invalid"),
        (provider.signed(body, secret=b"not the secret of this installation"), "signature_invalid"),
        (provider.signed(body + b" "), "signature_invalid"),
        (provider.signed(body, ago=301), "signature_expired"),
        (provider.signed(body, ago=-301), "signature_expired"),
    ):
        hold(await provider.send(body, header), code)
    api.clock.advance(301)
    hold(await provider.send(body, right), "signature_expired")
    assert await _balance(acme) == (before[0] + 500_000_000, 0)


async def test_an_event_that_cannot_be_posted_says_why_and_posts_nothing(
    acme: Tenant, provider: PaymentProvider
) -> None:
    before = await _balance(acme)
    for changes, code in (
        ({"amount": "-1"}, "invalid_request"),
        ({"amount": "0"}, "invalid_request"),
        ({"amount": "0.00"}, "invalid_request"),
        ({"amount": "1e9"}, "invalid_request"),
        ({"amount": "1234567890"}, "invalid_request"),
        ({"currency": "EUR"}, "currency_not_supported"),
        ({"type": "payment.failed"}, "invalid_request"),
        ({"organization_id": "acme"}, "invalid_request"),
        ({"organization_id": f"org_{'0' * 32}"}, "organization_unknown"),
        ({"payment": "a:b"}, "invalid_request"),
        ({"more": "1"}, "invalid_request"),
    ):
        hold(await provider.pay(acme.id, "5", **({"payment": "pay-9"} | changes)), code)
    hold(await provider.send(b"{", provider.signed(b"{")), "malformed_json")
    assert await _balance(acme) == before


async def test_without_secrets_there_is_no_port_and_a_short_one_is_refused(
    api: Api, acme: Tenant, tmp_path: Path
) -> None:
    api.app.state.context.payment_secrets = ()
    closed = PaymentProvider(api.client(None), api.clock.now, SECRET)
    hold(await closed.pay(acme.id, "5", payment="pay-1"), "not_found")
    assert payments.secrets(None) == ()
    path = tmp_path / "secrets"
    for text, found in ((b"", None), (b"short\n", None), (SECRET + b"\n\n" + SECRET, (SECRET, SECRET))):
        path.write_bytes(text)
        path.chmod(0o600)
        if found is None:
            with pytest.raises(SettingsError, match="SPLITPLANE_PAYMENT_SECRETS_PATH"):
                payments.secrets(path)
        else:
            assert payments.secrets(path) == found
