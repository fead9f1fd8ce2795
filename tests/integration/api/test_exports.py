"""Exports of a month: files that are whole, the same each time, add up to the ledger, and name no other tenant."""

import base64
import csv
import hashlib
import io
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import httpx
import pyarrow.parquet as pq
import pytest
from sqlalchemy import TextClause, text

from control_plane.db.engine import Database, Role
from control_plane.db.tables.every import metadata
from control_plane.services import exports
from tests.integration.api.conftest import Api, Tenant, Ticking, serve
from tests.support.database import fresh_database
from tests.support.rows import rows as read_rows
from tests.support.stage import Stage, set_stage

pytestmark = pytest.mark.database
CSV, PARQUET = "focus-1.2.csv", "focus-1.2.parquet"


_LATE = {"number": "9000", "started_at": "'2026-10-31 23:00+00'", "ended_at": "'2026-11-01 00:00+00'"}


def _copy(table: str, other: Mapping[str, str]) -> TextClause:
    """A statement that copies a customer's first row of a table, with other values in some columns."""
    columns = [column.name for column in metadata.tables[table].columns]
    names, values = ", ".join(columns), ", ".join(other.get(name, f"r.{name}") for name in columns)
    return text(
        f"INSERT INTO {table} ({names}) SELECT {values} FROM {table} r WHERE organization_id = :organization"
        " ORDER BY number LIMIT 1"
    )


_LATE_INTERVAL = _copy("intervals", _LATE)
_LATE_CHARGE = _copy("charges", _LATE | {"id": "CAST(:id AS uuid)", "period": "'2026-11-01 00:00+00'"})


@dataclass
class Cloud:
    owner: Database
    acme: Tenant
    globex: Tenant
    finance: httpx.AsyncClient


@pytest.fixture(scope="module")
async def cloud(server_url: str, template: str) -> AsyncIterator[Cloud]:
    """Two customers that used machines for some hours. One of them has ended its lease."""
    async with fresh_database(server_url, template) as url:
        db = Database(url, role=Role.RECONCILER, pool_size=5, readers=3)
        api_db = Database(url, role=Role.API, pool_size=5, readers=3)
        clock = Ticking()
        api = await serve(db, api_db, clock)
        stage = await set_stage(db, clock, api_db=api_db)
        acme, globex = await api.tenant("acme"), await api.tenant("globex")
        platform = await api.tenant("platform", platform=True)
        await _use(stage, acme, globex)
        yield Cloud(db, acme, globex, platform.http)
        await api_db.close()
        await db.close()


async def _use(stage: Stage, acme: Tenant, globex: Tenant) -> None:
    first = await acme.lease(name="first", labels={"team": "vision"})
    await globex.lease(sku="h100x8", name="second")
    await stage.play(60)
    await stage.play(3 * 3_600 + 123, step=600)
    await acme.http.post(f"/v1/leases/{first}/release")
    await stage.play(600, step=60)


async def export(http: httpx.AsyncClient, path: str = "/v1/exports", **body: Any) -> dict[str, Any]:
    answer = await http.post(path, json={"period": "2026-11", **body})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def fetch(http: httpx.AsyncClient, run: dict[str, Any], name: str, path: str = "/v1/exports") -> bytes:
    answer = await http.get(f"{path}/{run['id']}/files/{name}")
    assert answer.status_code == 200, answer.text
    return answer.content


def charges(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


async def test_a_customers_export_adds_up_to_its_ledger_and_its_manifest_says_what_is_in_it(
    cloud: Cloud,
) -> None:
    http = cloud.acme.http
    run = await export(http)
    assert (run["status"], run["coverage"], run["files"]) == ("provisional", "organization", [])
    content, parquet = await fetch(http, run, CSV), await fetch(http, run, PARQUET)
    manifest = (await http.get(f"/v1/exports/{run['id']}/files/manifest.json")).json()

    found = charges(content)
    assert len({row["x_ChargeId"] for row in found}) == len(found) > 3
    ledger = (await http.get("/v1/reconciliation")).json()
    billed = sum(Decimal(row["BilledCost"]) for row in found)
    assert f"{billed:.9f}" == ledger["posted"]["usd"]
    assert sum(Decimal(row["ConsumedQuantity"]) for row in found) == ledger["gpu_seconds"]
    assert Decimal(manifest["sums"]["BilledCost"]) == billed
    assert manifest["rows"] == len(found) == pq.read_table(io.BytesIO(parquet)).num_rows
    assert [(file["name"], file["sha256"], file["bytes"]) for file in manifest["files"]] == [
        (name, hashlib.sha256(held).hexdigest(), len(held))
        for name, held in ((CSV, content), (PARQUET, parquet))
    ]
    assert {row["ResourceName"] for row in found} == {"first"}
    assert {row["Tags"] for row in found} == {'{"team":"vision"}'}


async def test_a_customers_export_names_no_other_tenant_and_no_cost_of_ours(cloud: Cloud) -> None:
    run = await export(cloud.acme.http)
    content = (await fetch(cloud.acme.http, run, CSV)).decode()
    assert {row["BillingAccountId"] for row in charges(content.encode())} == {f"org_{cloud.acme.id.hex}"}
    assert "globex" not in content
    assert cloud.globex.id.hex not in content
    assert "cost" not in content.partition("\r\n")[2].lower()


async def test_nobody_else_sees_the_run_or_its_files(cloud: Cloud) -> None:
    run = await export(cloud.acme.http)
    for path in ("/v1/exports", "/v1/finance/exports"):
        for client in (cloud.globex.http, cloud.finance):
            answer = await client.get(f"{path}/{run['id']}/files/{CSV}")
            assert answer.status_code in (403, 404), f"{path} {answer.status_code}"
    listed = (await cloud.globex.http.get("/v1/exports")).json()["items"]
    assert run["id"] not in {item["id"] for item in listed}


async def test_finance_exports_the_charges_of_all_organizations(cloud: Cloud) -> None:
    path = "/v1/finance/exports"
    run = await export(cloud.finance, path)
    found = charges(await fetch(cloud.finance, run, CSV, path))
    assert {row["BillingAccountName"] for row in found} == {"acme", "globex"}
    order = [(row["BillingAccountId"], row["ChargePeriodStart"], row["x_ChargeId"]) for row in found]
    assert order == sorted(order)
    async with cloud.owner.reading() as connection:
        (sums,) = await read_rows(
            connection, text("SELECT sum(amount_nano) AS nano, count(*) AS rows FROM charges")
        )
    assert sum(Decimal(row["BilledCost"]) for row in found) == Decimal(int(sums.nano)).scaleb(-9)
    assert len(found) == sums.rows


async def test_the_same_run_and_the_next_one_have_the_same_bytes_however_much_is_read_at_once(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = cloud.acme.http
    run = await export(http)
    whole = await fetch(http, run, CSV)
    assert await fetch(http, run, CSV) == whole
    monkeypatch.setattr(exports, "ROWS_PER_READ", 2)
    assert await fetch(http, run, CSV) == whole
    assert await fetch(http, await export(http), CSV) == whole


async def test_new_names_do_not_change_what_was_charged_under_the_old_ones(cloud: Cloud) -> None:
    http = cloud.globex.http
    before = await fetch(http, await export(http), CSV)
    (lease,) = (await http.get("/v1/leases")).json()["items"]
    answer = await http.put(f"/v1/leases/{lease['id']}/labels", json={"labels": {"team": "new"}})
    assert answer.status_code == 200, answer.text
    assert await fetch(http, await export(http), CSV) == before


async def test_a_manifest_names_the_complete_run_before_it_by_its_digest(cloud: Cloud) -> None:
    http = cloud.acme.http
    first = await export(http)
    missing = await http.get(f"/v1/exports/{first['id']}/files/manifest.json")
    assert (missing.status_code, missing.json()["code"]) == (409, "export_incomplete")
    for name in (CSV, PARQUET):
        await fetch(http, first, name)
    manifest = await fetch(http, first, "manifest.json")
    second = await export(http)
    assert second["previous_id"] == first["id"]
    for name in (CSV, PARQUET):
        await fetch(http, second, name)
    said = (await http.get(f"/v1/exports/{second['id']}/files/manifest.json")).json()
    assert said["previous"] == {"run": first["id"], "manifest_sha256": hashlib.sha256(manifest).hexdigest()}


async def test_an_open_month_is_not_exported_as_final_and_a_future_one_not_at_all(cloud: Cloud) -> None:
    for body, code in (
        ({"period": "2026-11", "final": True}, "period_open"),
        ({"period": "2026-12"}, "period_in_future"),
    ):
        answer = await cloud.acme.http.post("/v1/exports", json=body)
        assert (answer.status_code, answer.json()["code"]) == (409, code)
    for wrong in ("2026-13", "2026-1", "november", "2026-11-01"):
        assert (await cloud.acme.http.post("/v1/exports", json={"period": wrong})).status_code == 422, wrong


async def test_an_export_of_a_month_is_final_once_its_books_are_closed_and_may_be_empty(cloud: Cloud) -> None:
    assert (await export(cloud.acme.http, period="2026-01"))["status"] == "provisional"
    assert (await cloud.finance.post("/v1/finance/periods/2026-01/close")).json()["state"] == "closed"
    run = await export(cloud.acme.http, period="2026-01", final=True)
    assert run["status"] == "final"
    assert charges(await fetch(cloud.acme.http, run, CSV)) == []


async def test_a_final_export_has_the_last_hour_of_its_month_however_soon_it_is_made(
    api: Api, stage: Stage, operator: Tenant, acme: Tenant
) -> None:
    over = datetime(2026, 12, 1, tzinfo=UTC)
    api.clock.advance((over - api.clock.now()).total_seconds() - 4_000)
    await stage.round()
    await acme.lease()
    await stage.play(90, step=5)
    await stage.play((over - api.clock.now()).total_seconds() - 20, step=300)
    await stage.play(40, step=2)
    assert (await operator.http.post("/v1/finance/periods/2026-11/close")).json()["state"] == "closed"
    billed = (await acme.http.get("/v1/bill?month=2026-11")).json()["amount"]["usd"]
    for http, path in ((acme.http, "/v1/exports"), (operator.http, "/v1/finance/exports")):
        run = await export(http, path, final=True)
        rows = charges(await fetch(http, run, CSV, path))
        assert f"{sum(Decimal(row['BilledCost']) for row in rows):.9f}" == billed, path
        assert rows[-1]["ChargePeriodEnd"] == "2026-12-01T00:00:00Z"


async def test_a_charge_of_a_closed_month_is_in_the_export_of_the_month_that_it_is_booked_in(
    cloud: Cloud,
) -> None:
    """As if October had been closed before its last hour was rated."""
    late = {"organization": cloud.globex.id, "id": UUID(int=9_000)}
    async with cloud.owner.transaction() as connection:
        await connection.execute(_LATE_INTERVAL, late)
        await connection.execute(_LATE_CHARGE, late)
    november = charges(await fetch(cloud.globex.http, await export(cloud.globex.http), CSV))
    assert [
        (row["ChargePeriodStart"], row["BillingPeriodStart"])
        for row in november
        if row["ChargeClass"] == "Correction"
    ] == [("2026-10-31T23:00:00Z", "2026-11-01T00:00:00Z")]
    october = await export(cloud.globex.http, period="2026-10")
    assert charges(await fetch(cloud.globex.http, october, CSV)) == []


async def test_a_file_that_differs_from_what_was_delivered_before_is_cut_off(cloud: Cloud) -> None:
    http = cloud.acme.http
    run = await export(http)
    await fetch(http, run, CSV)
    async with cloud.owner.transaction() as connection:
        await connection.execute(
            text("UPDATE charge_names SET lease = 'renamed' WHERE organization_id = :id"),
            {"id": cloud.acme.id},
        )
    try:
        assert charges(await fetch(http, run, CSV)) == []
    finally:
        async with cloud.owner.transaction() as connection:
            await connection.execute(
                text("UPDATE charge_names SET lease = 'first' WHERE organization_id = :id"),
                {"id": cloud.acme.id},
            )


async def test_a_charge_of_an_export_is_explained_from_the_journal_to_the_ledger(cloud: Cloud) -> None:
    run = await export(cloud.finance, "/v1/finance/exports")
    content = await fetch(cloud.finance, run, CSV, "/v1/finance/exports")
    exported = [row for row in charges(content) if row["ResourceName"] == "first"]
    found = [(await cloud.finance.get(f"/v1/finance/charges/{row['x_ChargeId']}")).json() for row in exported]
    assert {charge["organization_id"] for charge in found} == {f"org_{cloud.acme.id.hex}"}
    for row, charge in zip(exported, found, strict=True):
        assert Decimal(row["BilledCost"]) == Decimal(charge["charge"]["amount"]["usd"])
        assert charge["interval"]["cost"] == charge["charge"]["amount"]
        before, after = charge["journal"]
        assert (before["state_after"], after["event"]) == ("ready", "released")
        wallet, revenue = charge["transaction"]["postings"]
        assert (wallet["account"], revenue["account"]) == ("wallet", "revenue")
        assert revenue["amount"] == charge["charge"]["amount"]
        assert wallet["amount"]["nano"] == -revenue["amount"]["nano"]
    listed = (await cloud.finance.get(f"/v1/finance/leases/{found[0]['lease_id']}/charges")).json()
    assert listed["items"] == [charge["charge"] for charge in found]
    far = base64.urlsafe_b64encode(b"lease_charges:999999999999999999").decode().rstrip("=")
    path = f"/v1/finance/leases/{found[0]['lease_id']}/charges?cursor={far}"
    assert (await cloud.finance.get(path)).json()["items"] == []
    for path in (f"charges/ch_{0:032x}", f"leases/le_{0:032x}/charges"):
        assert (await cloud.finance.get(f"/v1/finance/{path}")).status_code == 404
