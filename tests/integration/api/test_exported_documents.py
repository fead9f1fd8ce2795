"""Exports with invoices and credit notes: the rows of each sum to what is printed, and the month still reconciles."""

import csv
import io
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import httpx
import pyarrow.parquet as pq
import pytest
from sqlalchemy import text

from control_plane.cli import export_files
from control_plane.db import ledger as ledger_rows
from control_plane.db.engine import Database, Role
from control_plane.db.rows import read
from control_plane.domain import ledger
from control_plane.domain.ids import ProjectId, SlaBreachId
from control_plane.domain.ledger import Approval
from control_plane.domain.money import Nano
from control_plane.services import exports
from control_plane.world import uuid7
from reconciler.loops.money import reconcile_periods
from reconciler.world import World
from tests.integration.api.conftest import Tenant, Ticking, serve
from tests.integration.api.endpoints import BUYER
from tests.integration.db.sample import a_row, insert
from tests.support.database import fresh_database
from tests.support.stage import Stage, set_stage

pytestmark = pytest.mark.database
OCTOBER, NOVEMBER = datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)
FILES = ("focus-1.2.csv", "focus-1.2.parquet")
_LEASE = text("SELECT project_id FROM leases WHERE id = :id")


@dataclass
class Cloud:
    db: Database
    owner: Database
    clock: Ticking
    acme: Tenant
    globex: Tenant
    finance: Tenant
    lease_id: UUID
    """The lease of acme, a promise of which was broken in October and in November."""
    documents: dict[str, str] = field(default_factory=dict)
    """The printed totals of invoices and credit notes in US dollars, by their numbers; negative for the latter."""
    early: tuple[str, bytes] = ("", b"")
    """The id of an export of globex that was made before its invoice, and its CSV."""

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Idempotency-Key": uuid7().hex}
        answer = await self.finance.http.post(path, json=body, headers=headers)
        assert answer.status_code in (200, 201), answer.text
        return dict(answer.json())

    async def reconcile(self, period: str) -> dict[str, Any]:
        asked = (await self.finance.http.post("/v1/finance/reconciliations", json={"period": period})).json()
        while (await reconcile_periods.activate(World(db=self.db, now=self.clock.now, new_id=uuid7))).more:
            pass
        found = await self.finance.http.get(f"/v1/finance/reconciliations/{asked['id']}")
        return dict(found.json())


@pytest.fixture(scope="module")
async def cloud(server_url: str, template: str) -> AsyncIterator[Cloud]:
    """November is closed and invoiced to two customers, and one of the invoices was corrected in December.

    The first one had a credit of finance and two of a broken promise.
    """
    async with fresh_database(server_url, template) as url:
        db = Database(url, role=Role.RECONCILER, pool_size=5, readers=3)
        api_db = Database(url, role=Role.API, pool_size=5, readers=3)
        clock = Ticking()
        api = await serve(db, api_db, clock)
        stage = await set_stage(db, clock, api_db=api_db)
        acme, globex = await api.tenant("acme"), await api.tenant("globex")
        finance = await api.tenant("platform", platform=True)
        lease = UUID(hex=await _use(stage, acme, globex))
        owner = Database(url, role=None, pool_size=1, readers=1)
        made = Cloud(db, owner, clock, acme, globex, finance, lease)
        await _credit(made)
        clock.advance(timedelta(days=12).total_seconds())
        await _invoice(made)
        clock.advance(120)
        yield made
        for each in (owner, api_db, db):
            await each.close()


async def _use(stage: Stage, acme: Tenant, globex: Tenant) -> str:
    leases = [
        await acme.lease(name="first", labels={"team": "vision"}),
        await globex.lease(sku="h100x8", name="second"),
    ]
    await stage.play(60)
    await stage.play(2 * 3_600 + 1_234, step=600)
    for tenant, lease in zip((acme, globex), leases, strict=True):
        await tenant.http.post(f"/v1/leases/{lease}/release")
    await stage.play(1_200, step=60)
    return leases[0].removeprefix("le_")


async def _credit(cloud: Cloud) -> None:
    body = {"organization_id": f"org_{cloud.acme.id.hex}", "kind": "credit", "amount_usd": "1.005"}
    await cloud.post("/v1/finance/transactions", body | {"reason": "ticket 4711"})
    for number, month in ((1, OCTOBER), (2, NOVEMBER)):
        await _break_promise(cloud, month, number)


async def _break_promise(cloud: Cloud, month: datetime, number: int) -> None:
    """As `credit_breaches` does it."""
    whose = cloud.acme.id
    async with cloud.db.transaction() as connection:
        (project_id,) = await read(connection, _LEASE, UUID, id=cloud.lease_id)
        breach = a_row(
            "sla_breaches", whose, number, lease_id=cloud.lease_id, project_id=project_id, month=month
        )
        if number == 1:
            await insert(connection, "sla_terms", a_row("sla_terms", whose))
        await insert(connection, "sla_breaches", breach)
        assessment = a_row("sla_assessments", whose, 1, breach_id=breach["id"], charged_nano=10**9)
        await insert(connection, "sla_assessments", assessment)
        transaction_id = uuid7()
        given = ledger.sla_credit(
            whose,
            ProjectId(project_id),
            Nano(333_333_333),
            breach_id=SlaBreachId(breach["id"]),
            assessment=1,
            at=cloud.clock.now(),
            approval=Approval("credit_breaches", f"first was not available enough in {month:%Y-%m}"),
        )
        await ledger_rows.post(connection, [(transaction_id, given)], now=cloud.clock.now())
        credit = {"breach_id": breach["id"], "assessment": 1, "transaction_id": transaction_id}
        credit |= {
            "amount_nano": 333_333_333,
            "approved": False,
            "credited_at": cloud.clock.now(),
            "organization_id": whose,
        }
        await insert(connection, "sla_credits", credit)


async def _invoice(cloud: Cloud) -> None:
    for tenant in (cloud.acme, cloud.globex):
        path = f"/v1/finance/billing-details/org_{tenant.id.hex}"
        assert (await cloud.finance.http.put(path, json=BUYER)).status_code == 200
    closed = await cloud.finance.http.post("/v1/finance/periods/2026-11/close")
    assert closed.json()["state"] == "closed", closed.text
    run, content, _ = await _exported(cloud.globex.http, "2026-11")
    cloud.early = run["id"], content
    cloud.clock.advance(60)
    issued = await cloud.post("/v1/finance/invoices", {"period": "2026-11"})
    assert len(issued["items"]) == 2
    for invoice in issued["items"]:
        cloud.documents[invoice["number"]] = invoice["total"]["usd"]
    (of_acme,) = (item for item in issued["items"] if cloud.acme.id.hex in item["organization_id"])
    whole = {"invoice_id": of_acme["id"], "reason": "ticket 4712"}
    note = await cloud.post("/v1/finance/credit-notes", whole)
    cloud.documents[note["number"]] = f"-{note['total']['usd']}"


async def _exported(
    http: httpx.AsyncClient, period: str, path: str = "/v1/exports"
) -> tuple[dict[str, Any], bytes, bytes]:
    run = (await http.post(path, json={"period": period})).json()
    files = [(await http.get(f"{path}/{run['id']}/files/{name}")).content for name in FILES]
    return run, files[0], files[1]


def _rows(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def _sums(rows: list[dict[str, str]], column: str) -> dict[str, Decimal]:
    found: dict[str, Decimal] = defaultdict(Decimal)
    for row in rows:
        found[row[column]] += Decimal(row["BilledCost"])
    return dict(found)


async def test_the_rows_of_every_document_sum_to_its_printed_total_to_the_nano_dollar(cloud: Cloud) -> None:
    sums: dict[str, Decimal] = {}
    for period in ("2026-11", "2026-12"):
        _, content, _ = await _exported(cloud.finance.http, period, "/v1/finance/exports")
        sums |= _sums(_rows(content), "InvoiceId")
    assert len(sums) >= 3
    assert {number: f"{total:.9f}" for number, total in sums.items()} == cloud.documents


async def test_an_export_of_before_the_invoice_stays_as_it_was_and_the_next_one_names_it(
    cloud: Cloud,
) -> None:
    run_id, before = cloud.early
    again = await cloud.globex.http.get(f"/v1/exports/{run_id}/files/{FILES[0]}")
    assert again.content == before
    assert {row["InvoiceId"] for row in _rows(before)} == {""}
    _, after, _ = await _exported(cloud.globex.http, "2026-11")
    (number,) = {row["InvoiceId"] for row in _rows(after)}
    assert number in cloud.documents
    named = [row | {"InvoiceId": ""} for row in _rows(after) if row["ChargeCategory"] == "Usage"]
    assert named == _rows(before)


async def test_a_customers_rows_say_what_its_credits_were_for_and_which_month_they_correct(
    cloud: Cloud,
) -> None:
    _, content, _ = await _exported(cloud.acme.http, "2026-11")
    rows = _rows(content)
    used = [row for row in rows if row["ChargeCategory"] == "Credit"]
    assert [(row["BilledCost"], row["ChargePeriodStart"][:7], row["ChargeClass"]) for row in used] == [
        ("-0.333333333000", "2026-10", "Correction"),
        ("-1.005000000000", "2026-11", ""),
        ("-0.333333333000", "2026-11", ""),
    ]
    october, goodwill, november = used
    for row in (october, november):
        assert (row["ResourceId"], row["ResourceName"]) == (f"le_{cloud.lease_id.hex}", "first")
        assert (row["ResourceType"], row["SubAccountName"]) == ("GPU Lease", "default")
    assert goodwill["ChargeDescription"].endswith(": ticket 4711")
    assert goodwill["ResourceId"] == goodwill["SubAccountId"] == ""
    assert {row["ChargeCategory"] for row in rows} == {"Usage", "Credit", "Adjustment", "Tax"}


async def test_what_a_credit_note_gives_back_is_in_the_month_in_which_it_is_booked_as_a_correction(
    cloud: Cloud,
) -> None:
    _, content, _ = await _exported(cloud.acme.http, "2026-12")
    rows = _rows(content)
    assert {row["ChargeClass"] for row in rows} == {"Correction"}
    assert {row["BillingPeriodStart"] for row in rows} == {"2026-12-01T00:00:00Z"}
    assert {row["ChargePeriodStart"] for row in rows} == {"2026-11-01T00:00:00Z"}
    signs = {row["ChargeCategory"]: row["BilledCost"].startswith("-") for row in rows}
    assert signs["Usage"]
    assert signs["Tax"]
    assert not signs["Credit"], "the credit may be used again"


async def test_files_hold_the_same_values_and_are_the_same_when_they_are_made_again(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    run, content, parquet = await _exported(cloud.acme.http, "2026-11")
    table = pq.read_table(io.BytesIO(parquet)).select(["x_ChargeId", "BilledCost", "ChargeDescription"])
    assert [
        (row["x_ChargeId"], f"{row['BilledCost']:.12f}", row["ChargeDescription"])
        for row in table.to_pylist()
    ] == [(row["x_ChargeId"], row["BilledCost"], row["ChargeDescription"]) for row in _rows(content)]
    manifest = await cloud.acme.http.get(f"/v1/exports/{run['id']}/files/manifest.json")
    for name, made in ((FILES[0], content), (FILES[1], parquet), ("manifest.json", manifest.content)):
        (tmp_path / name).write_bytes(made)
    export_files.check(tmp_path)
    monkeypatch.setattr(exports, "ROWS_PER_READ", 1)
    again = await cloud.acme.http.get(f"/v1/exports/{run['id']}/files/{FILES[0]}")
    assert again.content == content
    assert (await _exported(cloud.acme.http, "2026-11"))[1] == content


async def test_a_customers_export_has_no_row_of_another_ones_documents(cloud: Cloud) -> None:
    for period in ("2026-11", "2026-12"):
        _, content, _ = await _exported(cloud.globex.http, period)
        assert {row["BillingAccountId"] for row in _rows(content)} <= {f"org_{cloud.globex.id.hex}"}
        assert b"ticket" not in content
        assert cloud.acme.id.hex.encode() not in content


async def test_both_months_reconcile_with_their_documents_in_all_exports(cloud: Cloud) -> None:
    for period in ("2026-11", "2026-12"):
        billed: dict[str, Decimal] = {}
        for tenant in (cloud.acme, cloud.globex):
            _, content, _ = await _exported(tenant.http, period)
            billed |= _sums(_rows(content), "BillingAccountId")
        _, content, _ = await _exported(cloud.finance.http, period, "/v1/finance/exports")
        assert _sums(_rows(content), "BillingAccountId") == billed
        found = await cloud.reconcile(period)
        assert found["state"] == "reconciled", found
        links = {link["link"]: link["after"]["nano"] for link in found["links"]}
        assert links["exported"] == links["exported_to_customer"] == int(sum(billed.values()) * 10**9)


async def test_time_that_was_metered_too_high_goes_back_by_a_credit_note_and_the_chain_explains_it(
    cloud: Cloud,
) -> None:
    """Ten minutes of eight GPUs, of an hour that is charged, invoiced and closed."""
    _, content, _ = await _exported(cloud.globex.http, "2026-11")
    charge = next(row["x_ChargeId"] for row in _rows(content) if row["PricingQuantity"] == "8.000000000000")
    explained = (await cloud.finance.http.get(f"/v1/finance/charges/{charge}")).json()
    price, line = explained["price"]["per_unit_hour"]["nano"], explained["invoice_line"]
    too_much = f"{price * 8 * 600 // 3_600 / 10**9:.2f}"
    given = {"line": line["line"], "amount_usd": too_much}
    body = {"invoice_id": line["invoice_id"], "lines": [given], "reason": f"600 s too much in {charge}"}
    note = await cloud.post("/v1/finance/credit-notes", body)
    cloud.documents[note["number"]] = f"-{note['total']['usd']}"
    cloud.clock.advance(120)

    _, content, _ = await _exported(cloud.globex.http, "2026-12")
    (correction,) = [row for row in _rows(content) if row["ChargeCategory"] == "Usage"]
    assert Decimal(correction["BilledCost"]) == -Decimal(too_much)
    assert (correction["ChargeClass"], correction["InvoiceId"]) == ("Correction", note["number"])
    assert (correction["x_CorrectsInvoiceId"], correction["x_CorrectsInvoiceLine"]) == (
        line["invoice"],
        str(line["line"]),
    )
    path = f"/v1/finance/invoices/{line['invoice_id']}"
    listed = (await cloud.finance.http.get(f"{path}/lines/{line['line']}/charges")).json()["items"]
    assert charge in {each["id"] for each in listed}
    shown = (await cloud.finance.http.get(path)).json()
    assert shown["lines"][line["line"] - 1]["credited"]["usd"] == f"{Decimal(too_much):.9f}"
    for period in ("2026-11", "2026-12"):
        await _exported(cloud.finance.http, period, "/v1/finance/exports")
        await _exported(cloud.acme.http, period)
        found = await cloud.reconcile(period)
        assert found["state"] == "reconciled", found


async def test_lines_that_lost_a_nano_dollar_break_the_download_and_the_reconciliation(cloud: Cloud) -> None:
    """As whoever owns the database could change them."""
    change = text(
        "UPDATE invoice_lines SET amount_nano = amount_nano + :by WHERE organization_id = :id AND kind = 'credit'"
    )
    async with cloud.owner.transaction() as connection:
        await connection.execute(text("SET LOCAL session_replication_role = replica"))
        await connection.execute(change, {"id": cloud.acme.id, "by": 1})
    try:
        run = (await cloud.acme.http.post("/v1/exports", json={"period": "2026-11"})).json()
        broken = await cloud.acme.http.get(f"/v1/exports/{run['id']}/files/{FILES[0]}")
        assert len(_rows(broken.content)) == 0
        assert (await cloud.reconcile("2026-11"))["state"] == "different"
    finally:
        async with cloud.owner.transaction() as connection:
            await connection.execute(text("SET LOCAL session_replication_role = replica"))
            await connection.execute(change, {"id": cloud.acme.id, "by": -1})
