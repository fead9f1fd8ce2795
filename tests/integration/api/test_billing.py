"""What finance reads: rows that add up to the ledger, in JSON and in CSV."""

import csv
import io
from collections.abc import AsyncIterator
from decimal import Decimal

import pytest

from control_plane.db.engine import Database, Role
from tests.integration.api.conftest import Tenant, Ticking, serve
from tests.support.database import fresh_database
from tests.support.stage import Stage, set_stage

pytestmark = pytest.mark.database


@pytest.fixture(scope="module")
async def acme(server_url: str, template: str) -> AsyncIterator[Tenant]:
    """A customer of two leases, one of an odd price, over several hours; one still runs. The tests only read."""
    async with fresh_database(server_url, template) as url:
        db = Database(url, role=Role.RECONCILER, pool_size=5, readers=3)
        api_db = Database(url, role=Role.API, pool_size=5, readers=3)
        clock = Ticking()
        api = await serve(db, api_db, clock)
        stage = await set_stage(db, clock, api_db=api_db)
        customer = await api.tenant("acme")
        await _use(stage, customer)
        yield customer
        await api_db.close()
        await db.close()


async def _use(stage: Stage, acme: Tenant) -> None:
    first = await acme.lease(name="first")
    await acme.lease(sku="h100x8", name="second")
    await stage.play(60)
    await stage.play(3 * 3_600 + 123, step=119)
    await acme.http.post(f"/v1/leases/{first}/release")
    await stage.play(300, step=60)


async def test_csv_json_bill_and_ledger_tell_the_same_sum(acme: Tenant) -> None:
    answer = await acme.http.get("/v1/usage.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    paged = []
    cursor = ""
    while True:
        page = (await acme.http.get(f"/v1/usage?limit=3{cursor}")).json()
        paged += page["items"]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert [row["charge_id"] for row in rows] == [row["id"] for row in paged]
    assert len(rows) > 6

    ledger = (await acme.http.get("/v1/reconciliation")).json()
    assert ledger["difference"]["nano"] == 0
    total = sum(Decimal(row["amount_usd"]) for row in rows)
    assert f"{total:.9f}" == ledger["posted"]["usd"]
    assert sum(int(row["amount_nano_usd"]) for row in rows) == ledger["posted"]["nano"]
    assert sum(int(row["unit_seconds"]) for row in rows) == ledger["gpu_seconds"]

    bill = (await acme.http.get("/v1/bill")).json()
    assert bill["amount"] == ledger["posted"]
    assert {line["name"] for line in bill["lines"]} == {"first", "second"}
    running = next(line for line in bill["lines"] if line["name"] == "second")
    assert running["unrated"]["nano"] > 0
    assert bill["balance"]["nano"] == 1_000 * 10**9 - ledger["posted"]["nano"]
    assert bill["available"]["nano"] == bill["balance"]["nano"] - bill["held"]["nano"]
    assert (bill["since"], bill["until"]) == ("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")


async def test_the_entries_of_the_balance_add_up_to_it_on_every_page_and_in_csv(acme: Tenant) -> None:
    balance = (await acme.http.get("/v1/balance")).json()
    entries = []
    cursor = ""
    while True:
        page = (await acme.http.get(f"/v1/balance/entries?limit=3{cursor}")).json()
        entries += page["items"]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert entries[0]["balance"] == balance["balance"]
    so_far = 0
    for number, entry in enumerate(reversed(entries), start=1):
        so_far += entry["amount"]["nano"]
        assert (entry["number"], entry["balance"]["nano"]) == (number, so_far)
    rows = list(csv.DictReader(io.StringIO((await acme.http.get("/v1/balance/entries.csv")).text)))
    assert [(row["transaction_id"], row["amount_usd"], row["balance_usd"]) for row in rows] == [
        (entry["id"], entry["amount"]["usd"], entry["balance"]["usd"]) for entry in entries
    ]
    usage = (await acme.http.get("/v1/usage?limit=200")).json()["items"]
    charged = {entry["charge_id"]: entry for entry in entries if entry["kind"] == "usage"}
    assert len(charged) == len(usage) > 6
    for row in usage:
        entry = charged[row["id"]]
        assert entry["amount"]["nano"] == -row["amount"]["nano"]
        assert (entry["lease_name"], entry["started_at"], entry["project"]) == (
            row["lease_name"],
            row["started_at"],
            row["project"],
        )
    (paid,) = (await acme.http.get("/v1/balance/entries?kind=top_up&month=2026-11")).json()["items"]
    assert (paid["amount"]["usd"], paid["period"]) == ("1000.000000000", "2026-11")
    assert (await acme.http.get("/v1/balance/entries?month=2026-10")).json()["items"] == []


async def test_a_balance_says_what_running_leases_cost_and_how_long_it_lasts(acme: Tenant) -> None:
    balance = (await acme.http.get("/v1/balance")).json()
    bill = (await acme.http.get("/v1/bill")).json()
    for name in ("balance", "held", "available"):
        assert balance[name] == bill[name]
    (second,) = (await acme.http.get("/v1/leases?state=ready")).json()["items"]
    per_hour = next(line for line in bill["lines"] if line["name"] == second["name"])["price_per_unit_hour"]
    assert (balance["running_leases"], balance["running_per_hour"]["nano"]) == (1, 8 * per_hour["nano"])
    assert balance["available_lasts_seconds"] == balance["available"]["nano"] * 3_600 // (
        8 * per_hour["nano"]
    )
    assert balance["due"]["nano"] == 0


async def test_usage_adds_up_to_the_same_sum_whatever_it_is_added_up_by(acme: Tenant) -> None:
    bill = (await acme.http.get("/v1/bill")).json()
    usage = (await acme.http.get("/v1/usage?limit=200")).json()["items"]
    found = {}
    for by in ("project", "lease", "sku", "day", "label&label_key=team"):
        sums = (await acme.http.get(f"/v1/usage/sums?by={by}")).json()
        assert sums["amount"] == bill["amount"]
        assert sum(group["amount"]["nano"] for group in sums["groups"]) == bill["amount"]["nano"]
        assert sum(group["charges"] for group in sums["groups"]) == len(usage)
        assert sums["gpu_seconds"] == sum(row["unit_seconds"] for row in usage)
        found[sums["by"]] = sums["groups"]
    assert [(group["id"], group["name"]) for group in found["project"]] == [
        (usage[0]["project_id"], "default")
    ]
    assert {group["id"]: (group["name"], group["amount"]["nano"]) for group in found["lease"]} == {
        line["lease_id"]: (line["name"], line["amount"]["nano"]) for line in bill["lines"]
    }
    assert [group["name"] for group in found["sku"]] == ["h100x8", "h100x1"]  # The more expensive one first.
    assert [group["name"] for group in found["day"]] == ["2026-11-20"]
    assert [(group["id"], group["name"]) for group in found["label"]] == [(None, None)]


async def test_a_month_without_use_has_an_empty_bill(acme: Tenant) -> None:
    for month in ("2026-10", "2026-12"):
        bill = (await acme.http.get(f"/v1/bill?month={month}")).json()
        assert (bill["since"], bill["lines"], bill["amount"]["nano"]) == (f"{month}-01T00:00:00Z", [], 0)
        assert (await acme.http.get(f"/v1/usage/sums?month={month}")).json()["groups"] == []
    assert (await acme.http.get("/v1/bill?month=2026-11")).json() == (await acme.http.get("/v1/bill")).json()


async def test_a_row_of_usage_says_who_pays_and_for_which_gpus(acme: Tenant) -> None:
    (row,) = (await acme.http.get("/v1/usage?limit=1")).json()["items"]
    assert (row["organization_id"], row["currency"]) == (f"org_{acme.id.hex}", "USD")
    assert (row["gpu_model"], row["gpu_count"]) == ("h100-sxm-80gb", 1)


async def test_a_period_is_cut_without_overlap_or_gap(acme: Tenant) -> None:
    cut = "2026-11-20T14:00:00Z"
    early = (await acme.http.get(f"/v1/usage.csv?until={cut}")).text.splitlines()[1:]
    late = (await acme.http.get(f"/v1/usage.csv?since={cut}")).text.splitlines()[1:]
    whole = (await acme.http.get("/v1/usage.csv")).text.splitlines()[1:]
    assert early
    assert late
    assert early + late == whole
    assert (await acme.http.get("/v1/usage.csv?since=2027-01-01T00:00:00%2B01:00")).text.count("\r\n") == 1


async def test_many_charges_stream_through_more_than_one_read(
    acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (await acme.http.get("/v1/usage.csv")).text
    for size in (1, 2, 4):
        monkeypatch.setattr("control_plane.api.billing.CSV_ROWS_PER_READ", size)
        assert (await acme.http.get("/v1/usage.csv")).text == whole
