"""Money that goes back after an invoice, over HTTP: paid tax of a voided one, and credits that turn out too high.

After each, the ledger, the documents, the exports and the reconciliation agree to the nano-dollar.
"""

import csv
import io
from collections import defaultdict
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from control_plane.db import ledger as ledger_rows
from control_plane.db.rows import read
from control_plane.domain import ledger
from control_plane.domain.ids import Prefix, ProjectId, SlaBreachId, on_wire
from control_plane.domain.ledger import AccountKind, Approval
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.world import uuid7
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.endpoints import BUYER
from tests.integration.api.problems import hold
from tests.integration.db.sample import a_row, insert
from tests.support.stage import Stage

pytestmark = pytest.mark.database
DAY = 86_400
_PROJECT = text("SELECT project_id FROM leases WHERE id = :id")
_BREACH = text("SELECT id FROM sla_breaches WHERE lease_id = :lease_id")


class Chain:
    """One customer, its finance, and the reconciler."""

    def __init__(self, api: Api, stage: Stage, finance: Tenant, customer: Tenant) -> None:
        self.api, self.stage, self.finance, self.customer = api, stage, finance, customer
        self.organization = on_wire(Prefix.ORGANIZATION, customer.id)
        self.lease_id = UUID(int=0)
        self.printed: dict[str, dict[str, Decimal]] = defaultdict(dict)
        """The totals of documents by month and number; negative for credit notes."""

    async def money(self, path: str, body: dict[str, Any]) -> Any:
        answer = await self.finance.http.post(path, json=body, headers={"Idempotency-Key": uuid7().hex})
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    async def post(self, kind: str, nano: int) -> None:
        usd = f"{nano // NANO_PER_USD}.{nano % NANO_PER_USD:09d}"
        body = {
            "organization_id": self.organization,
            "kind": kind,
            "amount_usd": usd,
            "reason": "ticket 4711",
        }
        await self.money("/v1/finance/transactions", body)

    async def use_for_an_hour(self) -> None:
        await self.stage.round()
        lease = await self.customer.lease()
        await self.stage.play(90, step=5)
        await self.stage.play(3_600, step=300)
        await self.customer.http.post(f"/v1/leases/{lease}/release")
        await self.stage.play(120, step=20)
        self.lease_id = UUID(hex=lease.removeprefix("le_"))

    async def invoice(self, month: str) -> Any:
        closed = (await self.finance.http.post(f"/v1/finance/periods/{month}/close")).json()
        assert closed["state"] == "closed", closed
        asked = {"period": month, "organization_id": self.organization}
        (issued,) = (await self.money("/v1/finance/invoices", asked))["items"]
        self.printed[month][issued["number"]] = Decimal(issued["total"]["usd"])
        return issued

    async def credit_note(self, month: str, invoice_id: str) -> Any:
        body = {"invoice_id": invoice_id, "reason": "billed by mistake"}
        note = await self.money("/v1/finance/credit-notes", body)
        self.printed[month][note["number"]] = -Decimal(note["total"]["usd"])
        return note

    async def balance(self) -> tuple[int, int]:
        shown = (await self.customer.http.get("/v1/balance")).json()
        return shown["balance"]["nano"], shown["due"]["nano"]

    async def books(self) -> dict[AccountKind, int]:
        async with self.api.owner.db.reading() as connection:
            return dict(await ledger_rows.totals(connection, self.customer.id))

    async def credit(self, amount: int, *, assessment: int) -> None:
        """What a broken promise of November gives back, or a correction of it, as `credit_breaches` posts it."""
        whose, now = self.customer.id, self.api.clock.now()
        async with self.api.owner.db.transaction() as connection:
            (project_id,) = await read(connection, _PROJECT, UUID, id=self.lease_id)
            if assessment == 1:
                in_force_later = now + timedelta(days=3_650)
                terms = a_row("sla_terms", whose, effective_from=in_force_later)
                await insert(connection, "sla_terms", terms)
                month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
                breach = a_row(
                    "sla_breaches", whose, lease_id=self.lease_id, project_id=project_id, month=month
                )
                await insert(connection, "sla_breaches", breach)
            (breach_id,) = await read(connection, _BREACH, UUID, lease_id=self.lease_id)
            row = a_row("sla_assessments", whose, assessment, breach_id=breach_id, charged_nano=10**9)
            await insert(connection, "sla_assessments", row | {"number": assessment})
            transaction_id = uuid7()
            given = ledger.sla_credit(
                whose,
                ProjectId(project_id),
                Nano(amount),
                breach_id=SlaBreachId(breach_id),
                assessment=assessment,
                at=now,
                approval=Approval("credit_breaches", f"SLA credit, assessment {assessment}"),
            )
            await ledger_rows.post(connection, [(transaction_id, given)], now=now)
            credit = {"breach_id": breach_id, "assessment": assessment, "transaction_id": transaction_id}
            credit |= {"amount_nano": amount, "credited_at": now, "organization_id": whose, "approved": False}
            await insert(connection, "sla_credits", credit)

    async def closes_to_zero(self, *months: str) -> None:
        """Rows of exports sum to the printed totals, the months reconcile, and every balance is its postings."""
        await self.stage.play(120, step=30)
        for month in months:
            sums: dict[str, Decimal] = defaultdict(Decimal)
            for path, http in (
                ("/v1/exports", self.customer.http),
                ("/v1/finance/exports", self.finance.http),
            ):
                run = (await http.post(path, json={"period": month})).json()
                files = [
                    (await http.get(f"{path}/{run['id']}/files/{name}")).content
                    for name in ("focus-1.2.csv", "focus-1.2.parquet")
                ]
                sums.clear()
                for row in csv.DictReader(io.StringIO(files[0].decode(), newline="")):
                    sums[row["InvoiceId"]] += Decimal(row["BilledCost"])
                assert sums == self.printed[month], (month, path)
            asked = (
                await self.finance.http.post("/v1/finance/reconciliations", json={"period": month})
            ).json()
            await self.stage.play(30, step=2)
            found = (await self.finance.http.get(f"/v1/finance/reconciliations/{asked['id']}")).json()
            assert found["state"] == "reconciled", found
        await self.stage.check()


@pytest.fixture
async def chain(api: Api, stage: Stage, operator: Tenant) -> Chain:
    customer = await api.tenant("poor", credit=None)
    made = Chain(api, stage, operator, customer)
    await operator.http.put(f"/v1/finance/billing-details/{made.organization}", json=BUYER)
    return made


async def _postpaid(chain: Chain, limit: str = "100") -> None:
    path = f"/v1/finance/credit-terms/{chain.organization}"
    body = {"credit_limit_usd": limit, "payment_days": 14, "reason": "contract 17"}
    assert (await chain.finance.http.put(path, json=body)).status_code == 200


@pytest.mark.parametrize("postpaid", [False, True])
async def test_all_that_was_paid_of_a_voided_invoice_goes_back_with_its_tax(
    chain: Chain, postpaid: bool
) -> None:
    if postpaid:
        await _postpaid(chain)
    else:
        await chain.post("top_up", 50 * NANO_PER_USD)
    await chain.use_for_an_hour()
    chain.api.clock.advance(11 * DAY)
    invoice = await chain.invoice("2026-11")
    assert invoice["tax"]["nano"] > 0
    assert (invoice["due"] == invoice["total"]) is postpaid
    await chain.post("payment", invoice["due"]["nano"])
    before, due = await chain.balance()
    assert due == 0
    note = await chain.credit_note("2026-12", invoice["id"])
    assert note["total"] == note["to_balance"] == invoice["total"], "all of it was paid"
    assert note["less_due"]["nano"] == 0
    assert await chain.balance() == (before + invoice["total"]["nano"], 0), (
        "and nobody owes less than nothing"
    )
    shown = (await chain.customer.http.get(f"/v1/invoices/{invoice['id']}")).json()
    assert (shown["state"], shown["due"]["nano"]) == ("voided", 0)
    await chain.closes_to_zero("2026-11", "2026-12")
    await chain.post("refund", before + invoice["total"]["nano"])
    books = await chain.books()
    left = {kind: nano for kind, nano in books.items() if nano}
    revenue, rounding = left.pop(AccountKind.REVENUE), left.pop(AccountKind.ROUNDING, 0)
    assert left == {AccountKind.CREDITS: -revenue - rounding}, "no cash, no wallet, nothing due, and no tax"
    assert abs(rounding) < 10_000_000
    await chain.closes_to_zero("2026-11", "2026-12")


async def test_tax_that_is_not_paid_yet_is_due_no_more_and_paid_tax_pays_what_else_is_due_first(
    chain: Chain,
) -> None:
    await chain.post("top_up", 50 * NANO_PER_USD)
    await chain.use_for_an_hour()
    chain.api.clock.advance(11 * DAY)
    november = await chain.invoice("2026-11")
    await chain.use_for_an_hour()
    chain.api.clock.advance(32 * DAY)
    december = await chain.invoice("2026-12")
    tax = november["tax"]["nano"]
    await chain.post("payment", tax)
    _, due = await chain.balance()
    assert due == december["tax"]["nano"]
    note = await chain.credit_note("2027-01", november["id"])
    assert note["less_due"]["nano"] == min(tax, due)
    _, still_due = await chain.balance()
    assert still_due == due - min(tax, due)
    await chain.closes_to_zero("2026-11", "2026-12", "2027-01")


async def test_a_credit_that_is_corrected_after_an_invoice_used_it_is_a_line_of_the_next_one(
    chain: Chain,
) -> None:
    await _postpaid(chain)
    await chain.use_for_an_hour()
    await chain.credit(1_500_000_000, assessment=1)
    chain.api.clock.advance(11 * DAY)
    november = await chain.invoice("2026-11")
    assert november["due"] == november["total"]
    await chain.post("payment", november["due"]["nano"])
    await chain.credit(-500_000_000, assessment=2)
    await chain.use_for_an_hour()
    chain.api.clock.advance(32 * DAY)
    december = await chain.invoice("2026-12")
    (line,) = [line for line in december["lines"] if line["kind"] == "credit"]
    assert (line["exact"]["nano"], line["reason"]) == (500_000_000, "SLA credit, assessment 2")
    assert line["lease_id"] is not None
    assert december["credits"]["nano"] == -500_000_000
    usage = december["usage"]["nano"]
    assert 0 <= usage + 500_000_000 - december["subtotal"]["nano"] < 10_000_000
    assert december["due"] == december["total"]
    page = (await chain.customer.http.get(f"/v1/invoices/{december['id']}/page")).text
    assert "Credit taken back" in page
    balance, due = await chain.balance()
    assert 0 <= balance < 20_000_000, "only fractions of cents are on no invoice"
    assert due == december["due"]["nano"]
    await chain.closes_to_zero("2026-11", "2026-12")
    await chain.post("payment", due)

    note = await chain.credit_note("2027-01", december["id"])
    assert note["total"] == note["to_balance"] == december["total"], "the line with the correction as well"
    await chain.closes_to_zero("2027-01")
    chain.api.clock.advance(31 * DAY)
    assert (await chain.finance.http.post("/v1/finance/periods/2027-01/close")).json()["state"] == "closed"
    asked = {"period": "2027-01", "organization_id": chain.organization}
    headers = {"Idempotency-Key": uuid7().hex}
    again = await chain.finance.http.post("/v1/finance/invoices", json=asked, headers=headers)
    hold(again, "nothing_to_invoice")


async def test_the_correction_of_a_credit_is_invoiced_to_a_customer_that_uses_nothing_any_more(
    chain: Chain,
) -> None:
    await _postpaid(chain)
    await chain.use_for_an_hour()
    await chain.credit(1_500_000_000, assessment=1)
    chain.api.clock.advance(11 * DAY)
    november = await chain.invoice("2026-11")
    await chain.post("payment", november["due"]["nano"])
    await chain.credit(-1_500_000_000, assessment=2)
    balance, _ = await chain.balance()
    assert balance < 0
    chain.api.clock.advance(31 * DAY)
    december = await chain.invoice("2026-12")
    assert [line["kind"] for line in december["lines"]] == ["credit"]
    assert december["due"] == december["total"]
    assert december["subtotal"]["nano"] == 1_500_000_000
    await chain.closes_to_zero("2026-11", "2026-12")
    await chain.post("payment", december["due"]["nano"])
    balance, due = await chain.balance()
    assert (0 <= balance < 10_000_000, due) == (True, 0)
