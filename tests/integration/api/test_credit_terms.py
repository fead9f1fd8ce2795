"""Postpaid customers over HTTP: what they may use, what an invoice then leaves to pay, and how it is paid."""

import asyncio
from itertools import count
from typing import Any

import pytest
from sqlalchemy import text

from control_plane.db import organizations
from control_plane.db.engine import Database
from control_plane.domain.ids import Prefix, on_wire
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.endpoints import BUYER
from tests.integration.api.problems import hold
from tests.support.locks import until_somebody_waits
from tests.support.stage import Stage

pytestmark = pytest.mark.database
DAY = 86_400
_KEYS = count()


@pytest.fixture
async def poor(api: Api) -> Tenant:
    """A customer that paid nothing in."""
    return await api.tenant("poor", credit=None)


async def _terms(operator: Tenant, tenant: Tenant, limit: str, days: int = 30) -> Any:
    path = f"/v1/finance/credit-terms/{on_wire(Prefix.ORGANIZATION, tenant.id)}"
    body = {"credit_limit_usd": limit, "payment_days": days, "reason": "contract 17"}
    answer = await operator.http.put(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def _balance(tenant: Tenant) -> dict[str, int]:
    shown = (await tenant.http.get("/v1/balance")).json()
    return {name: shown[name]["nano"] for name in ("balance", "held", "available", "due", "credit_limit")}


async def _post(operator: Tenant, tenant: Tenant, kind: str, usd: str) -> Any:
    body = {
        "organization_id": on_wire(Prefix.ORGANIZATION, tenant.id),
        "kind": kind,
        "amount_usd": usd,
        "reason": "r",
    }
    headers = {"Idempotency-Key": f"k{next(_KEYS)}"}
    return await operator.http.post("/v1/finance/transactions", json=body, headers=headers)


async def _keyed(operator: Tenant, path: str, body: dict[str, Any]) -> Any:
    return await operator.http.post(path, json=body, headers={"Idempotency-Key": f"k{next(_KEYS)}"})


async def test_a_postpaid_customer_uses_its_limit_is_invoiced_and_pays(
    api: Api, stage: Stage, operator: Tenant, poor: Tenant
) -> None:
    await stage.round()
    hold(await poor.http.post("/v1/leases", json={"sku": "h100x1"}), "balance_too_low")
    terms = await _terms(operator, poor, "10", 14)
    assert (terms["credit_limit"]["usd"], terms["payment_days"]) == ("10.000000000", 14)
    hold(await poor.http.post("/v1/leases", json={"sku": "h100x8"}), "balance_too_low")
    lease = (await poor.http.post("/v1/leases", json={"sku": "h100x1"})).json()
    held = (await _balance(poor))["held"]
    assert (await _balance(poor))["available"] == 10_000_000_000 - held
    hold(await _post(operator, poor, "refund", "1"), "balance_too_low")
    await stage.play(90, step=5)
    await stage.play(3_600, step=300)
    await poor.http.post(f"/v1/leases/{lease['id']}/release")
    await stage.play(120, step=20)
    used = -(await _balance(poor))["balance"]
    assert used > 0
    assert (await _balance(poor))["available"] == 10_000_000_000 - used

    api.clock.advance(11 * DAY)
    closed = (await operator.http.post("/v1/finance/periods/2026-11/close")).json()
    assert closed["state"] == "closed", closed
    organization = on_wire(Prefix.ORGANIZATION, poor.id)
    await operator.http.put(f"/v1/finance/billing-details/{organization}", json=BUYER)
    issued = await _keyed(
        operator, "/v1/finance/invoices", {"period": "2026-11", "organization_id": organization}
    )
    assert issued.status_code == 201, issued.text
    (invoice,) = issued.json()["items"]
    assert invoice["paid"]["nano"] == 0
    assert invoice["due"] == invoice["total"]
    assert invoice["due_at"][:10] == "2026-12-15"
    after = await _balance(poor)
    assert (after["balance"], after["due"]) == (0, invoice["due"]["nano"])
    assert after["available"] == 10_000_000_000 - invoice["due"]["nano"]
    page = (await poor.http.get(f"/v1/invoices/{invoice['id']}/page")).text
    assert "to be paid by 2026-12-15" in page

    cents = invoice["subtotal"]["nano"] // 10_000_000
    half = f"{cents // 2 // 100}.{cents // 2 % 100:02d}"
    note = {"invoice_id": invoice["id"], "reason": "ticket", "lines": [{"line": 1, "amount_usd": half}]}
    credited = (await _keyed(operator, "/v1/finance/credit-notes", note)).json()
    left = (await poor.http.get(f"/v1/invoices/{invoice['id']}")).json()["due"]["nano"]
    assert left == invoice["due"]["nano"] - credited["net"]["nano"] - credited["tax"]["nano"]
    assert (await _balance(poor))["due"] == left, (
        "a credit note lowers what is owed before it fills the balance"
    )
    assert (await _post(operator, poor, "payment", "900")).json()["code"] == "overpayment"
    paid = await _post(operator, poor, "payment", f"{left // 10**9}.{left % 10**9:09d}")
    assert paid.status_code == 201, paid.text
    assert await _balance(poor) == {
        "balance": 0,
        "held": 0,
        "available": 10_000_000_000,
        "due": 0,
        "credit_limit": 10_000_000_000,
    }
    reconciled = await operator.http.post("/v1/finance/reconciliations", json={"period": "2026-11"})
    await stage.play(30, step=2)
    shown = (await operator.http.get(f"/v1/finance/reconciliations/{reconciled.json()['id']}")).json()
    assert (shown["remaining"], shown["differing_customers"]) == (0, 0), shown


async def test_a_limit_that_is_taken_away_ends_what_runs_and_admits_nothing(
    stage: Stage, operator: Tenant, poor: Tenant
) -> None:
    await stage.round()
    await _terms(operator, poor, "10")
    lease = (await poor.http.post("/v1/leases", json={"sku": "h100x1"})).json()
    await stage.play(90, step=5)
    await _terms(operator, poor, "0", 0)
    hold(await poor.http.post("/v1/leases", json={"sku": "h100x1"}), "balance_too_low")
    await stage.play(4_000, step=100)
    ended = (await poor.http.get(f"/v1/leases/{lease['id']}")).json()
    assert (ended["state"], ended["end_reason"]) == ("ended", "unfunded")
    owed = -(await _balance(poor))["balance"]
    assert 0 < owed <= lease["price_per_hour"]["nano"], "no more than the hold of before"


async def _use_for_an_hour(stage: Stage, tenant: Tenant) -> None:
    await stage.round()
    lease = await tenant.lease()
    await stage.play(90, step=5)
    await stage.play(3_600, step=300)
    await tenant.http.post(f"/v1/leases/{lease}/release")
    await stage.play(120, step=20)


async def _invoice(operator: Tenant, organization: str, month: str) -> Any:
    closed = (await operator.http.post(f"/v1/finance/periods/{month}/close")).json()
    assert closed["state"] == "closed", closed
    asked = {"period": month, "organization_id": organization}
    issued = await _keyed(operator, "/v1/finance/invoices", asked)
    assert issued.status_code == 201, issued.text
    (invoice,) = issued.json()["items"]
    return invoice


async def test_a_credit_that_is_given_before_the_invoice_of_last_month_lowers_one_invoice_and_not_two(
    api: Api, stage: Stage, operator: Tenant, poor: Tenant
) -> None:
    await _terms(operator, poor, "100")
    organization = on_wire(Prefix.ORGANIZATION, poor.id)
    await operator.http.put(f"/v1/finance/billing-details/{organization}", json=BUYER)
    await _use_for_an_hour(stage, poor)
    api.clock.advance(11 * DAY)
    assert (await _post(operator, poor, "credit", "1")).status_code == 201
    november = await _invoice(operator, organization, "2026-11")
    assert november["due"] == november["total"], "the credit is of December"
    await _use_for_an_hour(stage, poor)
    api.clock.advance(32 * DAY)
    december = await _invoice(operator, organization, "2026-12")
    assert december["due"] == december["total"]
    assert december["subtotal"]["nano"] == november["subtotal"]["nano"] - 1_000_000_000
    after = await _balance(poor)
    assert 0 <= after["balance"] < 10_000_000, "what was used is paid, due, or less than a cent"
    assert after["due"] == november["due"]["nano"] + december["due"]["nano"]


async def test_a_lease_that_waits_while_a_limit_is_taken_away_is_not_admitted_on_it(
    api: Api, owner: Database, stage: Stage, operator: Tenant, poor: Tenant
) -> None:
    await stage.round()
    await _terms(operator, poor, "10")
    async with api.owner.db.transaction() as connection:
        await organizations.standing(connection, poor.id, lock=True)
        await connection.execute(text("UPDATE credit_terms SET limit_nano = 0"))
        waiting = asyncio.create_task(poor.http.post("/v1/leases", json={"sku": "h100x1"}))
        await until_somebody_waits(owner)
    hold(await waiting, "balance_too_low")
    assert (await _balance(poor))["held"] == 0


async def test_terms_that_cannot_be_are_refused(operator: Tenant, acme: Tenant) -> None:
    path = f"/v1/finance/credit-terms/{on_wire(Prefix.ORGANIZATION, acme.id)}"
    good = {"credit_limit_usd": "10", "payment_days": 14, "reason": "contract"}
    hold(await operator.http.get(path), "not_found")
    for changes in (
        {"credit_limit_usd": "-1"},
        {"credit_limit_usd": "1e3"},
        {"payment_days": -1},
        {"payment_days": 121},
        {"payment_days": 1.5},
        {"reason": ""},
    ):
        hold(await operator.http.put(path, json=good | changes), "invalid_request")
    hold(await operator.http.put(path.replace(path[-32:], "0" * 32), json=good), "not_found")
    hold(await acme.http.put(path, json=good), "permission_denied")
    hold(await operator.http.get(path), "not_found")
