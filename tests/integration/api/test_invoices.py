"""Invoices over HTTP: issued once for a closed month, adding up to the ledger, and read by their own customer."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import text

from control_plane.db import invoices as invoice_rows
from control_plane.db import ledger as ledger_rows
from control_plane.db.engine import Database, Role
from control_plane.db.rows import read_one
from control_plane.domain import ledger
from control_plane.domain.ids import ProjectId
from control_plane.domain.ledger import Approval
from control_plane.domain.money import Nano
from control_plane.services import invoices
from control_plane.world import uuid7
from tests.integration.api.conftest import Api, Tenant, Ticking, serve
from tests.integration.api.endpoints import BUYER
from tests.integration.api.problems import hold
from tests.integration.db.sample import a_row, insert
from tests.support.database import fresh_database

pytestmark = pytest.mark.database
OCTOBER = datetime(2026, 10, 1, tzinfo=UTC)
PATH = "/v1/finance/invoices"
CREDIT_NOTES = "/v1/finance/credit-notes"
_BOOKED = text("SELECT period FROM transactions WHERE organization_id = :id AND kind = 'credit_note'")
_PROJECT = text("SELECT project_id FROM leases WHERE id = :id")
_CHARGED = text("SELECT coalesce(sum(amount_nano), 0)::bigint FROM charges WHERE organization_id = :id")

_A_CHARGE = text("SELECT id FROM charges WHERE organization_id = :id LIMIT 1")


@dataclass
class Books:
    api: Api
    db: Database
    finance: Tenant
    tenants: dict[str, Tenant]

    async def issue(self, name: str | None = None, **body: Any) -> dict[str, Any]:
        whose = {} if name is None else {"organization_id": f"org_{self.tenants[name].id.hex}"}
        answer = await self.post({"period": "2026-10", **whose, **body})
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    async def post(self, body: dict[str, Any], path: str = PATH) -> httpx.Response:
        """A request that moves money, with a key of its own."""
        return await self.finance.http.post(path, json=body, headers={"Idempotency-Key": uuid7().hex})

    async def invoice_of(self, name: str) -> dict[str, Any]:
        """The invoice of a customer, which is issued unless another test has."""
        whose = f"org_{self.tenants[name].id.hex}"
        await self.post({"period": "2026-10", "organization_id": whose})
        listed = (await self.finance.http.get(f"{PATH}?limit=200")).json()["items"]
        (only,) = [invoice["id"] for invoice in listed if invoice["organization_id"] == whose]
        return dict((await self.finance.http.get(f"{PATH}/{only}")).json())

    async def bill(self, name: str, **other: Any) -> None:
        path = f"/v1/finance/billing-details/org_{self.tenants[name].id.hex}"
        answer = await self.finance.http.put(path, json=BUYER | other)
        assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
async def books(server_url: str, template: str) -> AsyncIterator[Books]:
    """Customers with charges in October, which is closed; two of them cannot be invoiced."""
    async with fresh_database(server_url, template) as url:
        db = Database(url, role=Role.RECONCILER, pool_size=3, readers=2)
        api_db = Database(url, role=Role.API, pool_size=3, readers=2)
        api = await serve(db, api_db, Ticking())
        finance = await api.tenant("us", platform=True)
        names = ("acme", "globex", "initech", "late", "nothing", "hooli", "umbrella")
        tenants = {name: await api.tenant(name) for name in names}
        made = Books(api, db, finance, tenants)
        for name in names:
            if name != "nothing":
                await _use(made, tenants[name], 1_234_567_891, 333_333_333)
            if name != "umbrella":
                await made.bill(name)
        await _give(made, tenants["hooli"], 1_000_000_000)
        closed = await finance.http.post("/v1/finance/periods/2026-10/close")
        assert closed.json()["state"] == "closed", closed.text
        yield made
        await api_db.close()
        await db.close()


async def _use(books: Books, tenant: Tenant, *amounts: int) -> None:
    """Charges of a lease in October, posted as `rate_usage` does it; the last one corrects September."""
    lease_id = UUID(hex=(await tenant.lease()).removeprefix("le_"))
    machine = a_row("machines", tenant.id, 1, account="fake", gpu_count=1)
    async with books.db.transaction() as connection:
        project_id = await read_one(connection, _PROJECT, UUID, id=lease_id)
        assert project_id is not None
        await insert(connection, "machines", machine)
        for number, amount in enumerate(amounts, start=1):
            began = OCTOBER - timedelta(hours=1) * (number == len(amounts))
            charge = a_row(
                "charges",
                tenant.id,
                number,
                lease_id=lease_id,
                project_id=project_id,
                machine_id=machine["id"],
                sku="h100x1",
                purchase="on_demand",
                price_book=1,
                started_at=began,
                ended_at=began + timedelta(hours=1),
                amount_nano=amount,
                period=OCTOBER,
            )
            await insert(connection, "charges", charge)
            used = ledger.usage(
                tenant.id, ProjectId(project_id), Nano(amount), charge_id=charge["id"], at=OCTOBER
            )
            await ledger_rows.post(connection, [(uuid7(), used)], now=OCTOBER)


async def _give(books: Books, tenant: Tenant, amount: int) -> None:
    """A credit of October."""
    given = ledger.credit(
        tenant.id, Nano(amount), key="october", at=OCTOBER, approval=Approval("sa_1", "ticket 4711")
    )
    async with books.db.transaction() as connection:
        await ledger_rows.post(connection, [(uuid7(), given)], now=OCTOBER)


async def test_an_invoice_is_the_charges_of_the_month_to_the_nano_and_posts_tax_and_rounding(
    books: Books,
) -> None:
    acme = books.tenants["acme"]
    (invoice,) = (await books.issue("acme"))["items"]
    async with books.db.reading() as connection:
        charged = await read_one(connection, _CHARGED, int, id=acme.id)
        posted = await ledger_rows.totals(connection, acme.id)
    usage = [line for line in invoice["lines"] if line["kind"] == "usage"]
    assert sum(line["exact"]["nano"] for line in usage) == charged == invoice["usage"]["nano"]
    assert charged == posted[ledger.AccountKind.REVENUE]
    assert [line["used_in"] for line in usage] == ["2026-09", "2026-10"]
    assert (
        sum(line["amount"]["nano"] for line in invoice["lines"])
        == invoice["subtotal"]["nano"]
        == 1_560_000_000
    )
    assert (invoice["tax"]["nano"], invoice["due"]["nano"]) == (300_000_000, 300_000_000)
    assert posted[ledger.AccountKind.TAX_PAYABLE] == -posted[ledger.AccountKind.RECEIVABLE] == 300_000_000
    assert posted[ledger.AccountKind.WALLET] == 1_000 * 10**9 - invoice["paid"]["nano"]
    assert posted[ledger.AccountKind.ROUNDING] == invoice["adjustment"]["nano"] == -7_901_224
    own = (await acme.http.get(f"/v1/invoices/{invoice['id']}")).json()
    assert own == invoice
    listed = (await acme.http.get("/v1/invoices")).json()["items"]
    assert [item["number"] for item in listed] == [invoice["number"]]
    page = await acme.http.get(f"/v1/invoices/{invoice['id']}/page")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-disposition"] == f'inline; filename="{invoice["number"]}.html"'
    assert f"<h1>Invoice {invoice['number']}</h1>" in page.text
    assert (await books.finance.http.get(f"{PATH}/{invoice['id']}/page")).content == page.content


async def test_credits_of_the_month_lower_what_is_taxed(books: Books) -> None:
    (invoice,) = (await books.issue("hooli", draft=True))["items"]
    assert (invoice["credits"]["nano"], invoice["usage"]["nano"]) == (1_000_000_000, 1_567_901_224)
    assert (invoice["subtotal"]["nano"], invoice["tax"]["nano"]) == (560_000_000, 110_000_000)


async def test_a_draft_is_stored_nowhere(books: Books) -> None:
    (draft,) = (await books.issue("globex", draft=True))["items"]
    assert (draft["state"], draft["id"], draft["number"]) == ("draft", None, None)
    whose = f"org_{books.tenants['globex'].id.hex}"
    page = await books.finance.http.get(f"/v1/finance/invoice-drafts/{whose}/2026-10/page")
    assert page.headers["content-disposition"] == 'inline; filename="draft-2026-10.html"'
    assert "<h1>Draft of an invoice</h1>" in page.text
    early = await books.finance.http.get(f"/v1/finance/invoice-drafts/{whose}/2026-12/page")
    hold(early, "period_in_future")
    assert (await books.tenants["globex"].http.get("/v1/invoices")).json()["items"] == []


async def test_what_cannot_be_invoiced_is_refused_with_a_code(books: Books) -> None:
    await books.issue("late")
    for name, period, code in (
        ("late", "2026-10", "invoice_exists"),
        ("nothing", "2026-10", "nothing_to_invoice"),
        ("umbrella", "2026-10", "billing_details_missing"),
        ("globex", "2026-11", "period_not_closed"),
    ):
        body = {"period": period, "organization_id": f"org_{books.tenants[name].id.hex}"}
        hold(await books.post(body), code)
    hold(await books.post({"period": "2026-12", "draft": True}), "period_in_future")
    nobody = {"period": "2026-10", "organization_id": f"org_{'0' * 32}"}
    hold(await books.post(nobody), "not_found")
    hold(await books.finance.http.post(PATH, json={"period": "2026-10"}), "idempotency_key_missing")
    details = f"/v1/finance/billing-details/org_{books.tenants['acme'].id.hex}"
    wrongs: list[dict[str, Any]] = [
        {"tax_rate": 5_001},
        {"reverse_charge": True},
        {"country": "de"},
        {"address_lines": []},
    ]
    for wrong in wrongs:
        hold(await books.finance.http.put(details, json=BUYER | wrong), "invalid_request")
    hold(
        await books.finance.http.post("/v1/finance/periods/2026-10/reopen", json={"reason": "x"}),
        "period_invoiced",
    )


async def test_all_are_invoiced_in_batches_without_a_gap_and_those_who_cannot_be_are_named(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invoices, "BATCH", 3)
    batches = [await books.issue()]
    while (cursor := batches[-1]["next_cursor"]) is not None:
        batches.append(await books.issue(cursor=cursor))
    assert len(batches) == 3
    refused = [found for batch in batches for found in batch["refused"]]
    assert [(found["organization_id"], found["code"]) for found in refused] == [
        (f"org_{books.tenants['umbrella'].id.hex}", "billing_details_missing")
    ]
    listed = (await books.finance.http.get(f"{PATH}?period=2026-10")).json()["items"]
    numbers = sorted(item["number"] for item in listed)
    assert numbers == [f"INV-2026-{number:06d}" for number in range(1, len(numbers) + 1)]
    names = {
        name
        for name, tenant in books.tenants.items()
        for item in listed
        if tenant.id.hex in item["organization_id"]
    }
    assert names == set(books.tenants) - {"umbrella", "nothing"}
    assert (await books.issue())["items"] == []


async def test_nobody_reads_anothers_invoice(books: Books) -> None:
    found = (await books.finance.http.get(PATH)).json()["items"]
    of_initech = [item for item in found if books.tenants["initech"].id.hex in item["organization_id"]]
    if not of_initech:
        of_initech = (await books.issue("initech"))["items"]
    hold(await books.tenants["globex"].http.get(f"/v1/invoices/{of_initech[0]['id']}"), "not_found")
    hold(await books.tenants["globex"].http.get(f"/v1/invoices/{of_initech[0]['id']}/page"), "not_found")
    hold(await books.finance.http.get(f"/v1/invoices/{of_initech[0]['id']}"), "not_found")
    shown = await books.finance.http.get(f"{PATH}/{of_initech[0]['id']}")
    assert shown.json()["organization_id"] == f"org_{books.tenants['initech'].id.hex}"


async def _invoice_of(books: Books, name: str) -> dict[str, Any]:
    """The invoice of a customer, issued now unless another test did it."""
    listed = (await books.tenants[name].http.get("/v1/invoices")).json()["items"]
    if not listed:
        return dict((await books.issue(name))["items"][0])
    return dict((await books.tenants[name].http.get(f"/v1/invoices/{listed[0]['id']}")).json())


async def _posted(books: Books, name: str) -> dict[ledger.AccountKind, int]:
    async with books.db.reading() as connection:
        found = await ledger_rows.totals(connection, books.tenants[name].id)
    return dict.fromkeys(ledger.AccountKind, 0) | dict(found)


async def test_a_credit_note_gives_back_what_its_lines_cost_and_the_tax_in_the_open_period(
    books: Books,
) -> None:
    initech = books.tenants["initech"].http
    invoice = await _invoice_of(books, "initech")
    before = await _posted(books, "initech")
    body = {
        "invoice_id": invoice["id"],
        "reason": "ticket 4711",
        "lines": [{"line": 2, "amount_usd": "1.00"}],
    }
    issued = await books.post(body, CREDIT_NOTES)
    assert issued.status_code == 201, issued.text
    note = issued.json()
    assert (note["net"]["nano"], note["tax"]["nano"], note["to_balance"]["nano"]) == (
        1_000_000_000,
        190_000_000,
        1_000_000_000,
    )
    assert [(line["invoice_line"], line["amount"]["nano"]) for line in note["lines"]] == [(2, 1_000_000_000)]
    after = await _posted(books, "initech")
    moved = {kind: after[kind] - before[kind] for kind in after if after[kind] != before[kind]}
    assert moved == {
        ledger.AccountKind.CREDITS: -1_000_000_000,
        ledger.AccountKind.WALLET: 1_000_000_000,
        ledger.AccountKind.RECEIVABLE: 190_000_000,
        ledger.AccountKind.TAX_PAYABLE: -190_000_000,
    }
    async with books.db.reading() as connection:
        booked = await read_one(connection, _BOOKED, datetime, id=books.tenants["initech"].id)
    assert booked is not None
    assert booked > OCTOBER, "October is closed"

    shown = (await initech.get(f"/v1/invoices/{invoice['id']}")).json()
    assert (shown["state"], shown["credited"]["nano"]) == ("issued", 1_190_000_000)
    assert shown["due"]["nano"] == invoice["due"]["nano"] - 190_000_000
    assert [line["credited"]["nano"] for line in shown["lines"]][:2] == [0, 1_000_000_000]
    assert [known["number"] for known in shown["credit_notes"]] == [note["number"]]
    assert (await initech.get(f"/v1/credit-notes/{note['id']}")).json() == note
    assert [item["id"] for item in (await initech.get("/v1/credit-notes")).json()["items"]] == [note["id"]]
    page = (await initech.get(f"/v1/invoices/{invoice['id']}/page")).text
    assert f"Credit note {note['number']} of " in page
    printed = (await initech.get(f"/v1/credit-notes/{note['id']}/page")).text
    assert f"<h1>Credit note {note['number']}</h1>" in printed
    assert (await books.finance.http.get(f"{CREDIT_NOTES}/{note['id']}/page")).text == printed
    hold(await books.tenants["globex"].http.get(f"/v1/credit-notes/{note['id']}/page"), "not_found")
    hold(await books.tenants["globex"].http.get(f"/v1/credit-notes/{note['id']}"), "not_found")
    hold(await books.finance.http.get(f"/v1/credit-notes/{note['id']}"), "not_found")


async def test_an_invoice_is_voided_by_a_credit_note_over_all_of_it_and_credits_may_be_used_again(
    books: Books,
) -> None:
    hooli = books.tenants["hooli"]
    invoice = await _invoice_of(books, "hooli")
    assert invoice["credits"]["nano"] == 1_000_000_000
    whole = {"invoice_id": invoice["id"], "reason": "billed by mistake"}
    note = (await books.post(whole, CREDIT_NOTES)).json()
    assert note["total"] == invoice["total"]
    assert (note["credits"]["nano"], note["to_balance"]["nano"]) == (1_000_000_000, 1_560_000_000)
    shown = (await hooli.http.get(f"/v1/invoices/{invoice['id']}")).json()
    assert (shown["state"], shown["due"]["nano"]) == ("voided", 0)
    (listed,) = (await hooli.http.get("/v1/invoices")).json()["items"]
    assert (listed["state"], listed["due"]["nano"]) == ("voided", 0)
    posted = await _posted(books, "hooli")
    assert posted[ledger.AccountKind.RECEIVABLE] == posted[ledger.AccountKind.TAX_PAYABLE] == 0
    assert posted[ledger.AccountKind.WALLET] == 1_001 * 10**9, "what it paid in and what it was given"
    async with books.db.reading() as connection:
        unused = await invoice_rows.unused_credits(connection, hooli.id, OCTOBER)
    assert unused == 1_000_000_000
    hold(await books.post(whole, CREDIT_NOTES), "nothing_to_credit")


async def test_what_cannot_be_credited_is_refused_and_leaves_no_gap(books: Books) -> None:
    invoice = await _invoice_of(books, "late")
    numbers = [note["number"] for note in (await books.finance.http.get(CREDIT_NOTES)).json()["items"]]
    for lines, code in (
        ([{"line": 2, "amount_usd": "1.25"}], "credit_exceeds_line"),
        ([{"line": 3}], "line_not_creditable"),
        ([{"line": 1}, {"line": 9}], "line_not_creditable"),
        ([{"line": 1}, {"line": 1}], "invalid_request"),
        ([{"line": 1, "amount_usd": "0.001"}], "invalid_request"),
        ([{"line": 1, "amount_usd": "0.00"}], "invalid_request"),
        ([], "invalid_request"),
    ):
        body = {"invoice_id": invoice["id"], "reason": "ticket", "lines": lines}
        hold(await books.post(body, CREDIT_NOTES), code)
    unknown = {"invoice_id": f"inv_{'0' * 32}", "reason": "ticket"}
    hold(await books.post(unknown, CREDIT_NOTES), "not_found")
    whole = {"invoice_id": invoice["id"], "reason": "ticket"}
    hold(await books.finance.http.post(CREDIT_NOTES, json=whole), "idempotency_key_missing")

    once = {"Idempotency-Key": "credit it once"}
    part = whole | {"lines": [{"line": 2, "amount_usd": "0.50"}]}
    first = await books.finance.http.post(CREDIT_NOTES, json=part, headers=once)
    again = await books.finance.http.post(CREDIT_NOTES, json=part, headers=once)
    assert first.json() == again.json()
    both = await asyncio.gather(*(books.post(whole, CREDIT_NOTES) for _ in range(2)))
    (rest,) = (answer.json() for answer in both if answer.is_success)
    (spent,) = (answer for answer in both if not answer.is_success)
    hold(spent, "nothing_to_credit")
    assert rest["net"]["nano"] == invoice["subtotal"]["nano"] - 500_000_000
    listed = [note["number"] for note in (await books.finance.http.get(CREDIT_NOTES)).json()["items"]]
    assert sorted(listed) == [f"CN-2026-{number:06d}" for number in range(1, len(numbers) + 3)]


async def test_the_charges_of_each_line_add_up_to_it_and_each_charge_names_its_line(books: Books) -> None:
    invoice = await books.invoice_of("hooli")
    seen: list[str] = []
    for line in invoice["lines"]:
        found = await books.finance.http.get(f"{PATH}/{invoice['id']}/lines/{line['number']}/charges")
        charges = found.json()["items"]
        if line["kind"] != "usage":
            assert charges == []
            continue
        assert sum(charge["amount"]["nano"] for charge in charges) == line["exact"]["nano"]
        assert {charge["started_at"][:7] for charge in charges} == {line["used_in"]}
        for charge in charges:
            explained = (await books.finance.http.get(f"/v1/finance/charges/{charge['id']}")).json()
            assert explained["lease_id"] == charge["lease_id"]
            assert explained["invoice_line"] == {
                "invoice_id": invoice["id"],
                "invoice": invoice["number"],
                "line": line["number"],
            }
        seen += [charge["id"] for charge in charges]
    assert len(seen) == len(set(seen)) == 2
    assert {line["kind"] for line in invoice["lines"]} == {"usage", "credit", "adjustment"}


async def test_a_line_that_an_invoice_does_not_have_is_refused(books: Books) -> None:
    invoice = await books.invoice_of("hooli")
    for line in (0, len(invoice["lines"]) + 1, "x", "01", 10**12):
        hold(await books.finance.http.get(f"{PATH}/{invoice['id']}/lines/{line}/charges"), "not_found")
    hold(await books.finance.http.get(f"{PATH}/inv_{0:032x}/lines/1/charges"), "not_found")


async def test_a_charge_of_a_month_without_an_invoice_is_in_no_line(books: Books) -> None:
    async with books.db.reading() as connection:
        charge = await read_one(connection, _A_CHARGE, UUID, id=books.tenants["umbrella"].id)
    assert charge is not None
    explained = await books.finance.http.get(f"/v1/finance/charges/ch_{charge.hex}")
    assert explained.json()["invoice_line"] is None
