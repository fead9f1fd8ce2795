"""Leases that are committed to over HTTP: what is shown before, what a release costs, and what finance reads after it."""

import csv
import io
from dataclasses import replace

import pytest

from control_plane.domain.money import Nano
from control_plane.services import catalogue
from tests.integration.api.conftest import Tenant
from tests.integration.api.endpoints import BUYER
from tests.integration.api.problems import hold
from tests.scenario.test_commitments import BOOK_WITH_TERMS, DAYS, TERM_PRICE, WHOLE
from tests.support.stage import Stage

pytestmark = pytest.mark.database
ASKED = {"sku": "h100x1", "purchase": "committed", "committed_days": DAYS}


@pytest.fixture
async def committed(stage: Stage, acme: Tenant) -> Tenant:
    """A customer of a cloud that sells h100x1 for a term."""
    async with stage.db.transaction() as connection:
        await catalogue.load_price_book(connection, stage.api, BOOK_WITH_TERMS)
    await stage.round()
    return acme


async def test_a_term_is_shown_and_quoted_before_it_is_held_whole(committed: Tenant, stage: Stage) -> None:
    listed = {sku["name"]: sku for sku in (await committed.http.get("/v1/skus")).json()["items"]}
    assert listed["h100x1"]["price_per_hour_committed"]["nano"] == TERM_PRICE
    assert listed["h100x1"]["committed_days"] == DAYS
    assert listed["h100x8"]["price_per_hour_committed"] is None
    asked = {"sku": "h100x1", "purchase": "committed", "keep": True}
    quote = (await committed.http.post("/v1/quotes", json=asked)).json()
    assert (quote["committed_days"], quote["term_price"]["nano"]) == (DAYS, WHOLE)
    assert quote["price_per_hour"]["nano"] == TERM_PRICE
    plain = (await committed.http.post("/v1/quotes", json={"sku": "h100x1"})).json()
    assert (plain["committed_days"], plain["term_price"]) == (None, None)
    kept = (await committed.http.get(f"/v1/quotes/{quote['id']}")).json()
    assert kept["committed_days"] == DAYS

    shorter = [
        replace(price, committed_days=DAYS - 1) if price.committed_days else price
        for price in BOOK_WITH_TERMS
    ]
    stage.clock.advance(1)
    async with stage.db.transaction() as connection:
        await catalogue.load_price_book(connection, stage.api, shorter)
    hold(await committed.http.post("/v1/leases", json=ASKED), "term_differs")
    for_it = {"sku": "h100x1", "purchase": "committed", "quote_id": quote["id"]}
    hold(await committed.http.post("/v1/leases", json=for_it | {"committed_days": DAYS - 1}), "quote_differs")
    lease = (await committed.http.post("/v1/leases", json=for_it)).json()
    assert (lease["request"]["purchase"], lease["request"]["committed_days"]) == ("committed", DAYS)
    assert (lease["committed_until"], lease["release_fee"]["nano"]) == (None, 0)
    held = (await committed.http.get("/v1/balance")).json()["held"]["nano"]
    assert held == WHOLE


async def test_a_release_before_the_end_is_refused_until_its_fee_is_accepted_and_is_then_charged(
    committed: Tenant, stage: Stage
) -> None:
    lease = await committed.lease(**ASKED)
    await stage.play(300, step=10)
    path = f"/v1/leases/{lease}"
    before = (await committed.http.get(path)).json()
    assert before["state"] == "ready"
    assert before["committed_until"] == before["release_at"]
    balance = (await committed.http.get("/v1/balance")).json()
    assert balance["running_leases"] == 0, "it takes nothing: what it costs was set aside"
    assert balance["running_per_hour"]["nano"] == 0
    stage.clock.advance(7)
    refused = await committed.http.post(f"{path}/release")
    hold(refused, "fee_not_accepted")
    assert "a release now costs" in refused.json()["detail"]
    hold(await committed.http.post(f"{path}/release?accept_fee_usd=1"), "fee_not_accepted")
    hold(await committed.http.post(f"{path}/release?accept_fee_usd=-1"), "invalid_parameter")
    hold(await committed.http.patch(path, json={"auto_release": {"after_seconds": 60}}), "ends_with_term")
    fee = before["release_fee"]["usd"]
    released = await committed.http.post(f"{path}/release?accept_fee_usd={fee}")
    assert (released.status_code, released.json()["state"]) == (202, "ending")
    assert released.json()["release_fee"]["nano"] == 0
    assert before["unused"]["nano"] == 0
    await stage.play(120, step=10)

    lines = (await committed.http.get("/v1/bill")).json()["lines"]
    assert [line["unused"] for line in lines] == [False, True]
    assert sum(line["amount"]["nano"] for line in lines) == WHOLE
    (rest,) = [row for row in (await committed.http.get("/v1/usage")).json()["items"] if row["unused"]]
    assert (await committed.http.get(path)).json()["unused"] == rest["amount"]
    assert (rest["purchase"], rest["started_at"]) == ("committed", rest["ended_at"])
    sums = (await committed.http.get("/v1/usage/sums?by=sku")).json()
    assert sums["gpu_seconds"] + rest["unit_seconds"] == DAYS * 86_400
    assert sums["amount"]["nano"] == WHOLE
    assert sums["unused"] == sums["groups"][0]["unused"] == rest["amount"]
    entries = (await committed.http.get("/v1/balance/entries?kind=usage")).json()["items"]
    assert [entry["unused"] for entry in entries if entry["charge_id"] == rest["id"]] == [True]
    assert {entry["unused"] for entry in entries if entry["charge_id"] != rest["id"]} == {False}
    written = csv.DictReader(io.StringIO((await committed.http.get("/v1/balance/entries.csv")).text))
    assert {row["kind"]: {"unused": row["unused"]} for row in written if row["charge_id"] != rest["id"]} == {
        "usage": {"unused": "false"},
        "top_up": {"unused": ""},
    }
    table = csv.DictReader(io.StringIO((await committed.http.get("/v1/usage.csv")).text))
    assert [(row["unused"], row["unit_seconds"]) for row in table][-1] == ("true", str(rest["unit_seconds"]))
    assert Nano((await committed.http.get("/v1/balance")).json()["held"]["nano"]) == 0


async def test_finance_reads_which_charge_of_a_lease_and_of_an_invoice_line_is_the_rest_of_a_term(
    committed: Tenant, operator: Tenant, stage: Stage
) -> None:
    lease = await committed.lease(**ASKED)
    await stage.play(300, step=10)
    released = await committed.http.post(f"/v1/leases/{lease}/release?accept_fee_usd=1000000")
    assert released.status_code == 202
    await stage.play(120, step=10)
    await operator.http.put(f"/v1/finance/billing-details/org_{committed.id.hex}", json=BUYER)
    stage.clock.advance(12 * 86_400)
    closed = await operator.http.post("/v1/finance/periods/2026-11/close")
    assert closed.json()["state"] == "closed", closed.text
    issued = await operator.http.post(
        "/v1/finance/invoices", json={"period": "2026-11"}, headers={"Idempotency-Key": "november"}
    )
    (invoice,) = issued.json()["items"]
    lines = {line["unused"]: line for line in invoice["lines"] if line["kind"] == "usage"}
    listed = (await operator.http.get(f"/v1/finance/leases/{lease}/charges")).json()["items"]
    for unused, line in lines.items():
        path = f"/v1/finance/invoices/{invoice['id']}/lines/{line['number']}/charges"
        found = (await operator.http.get(path)).json()["items"]
        assert found == [charge for charge in listed if charge["unused"] == unused]
        assert {charge["lease_id"] for charge in found} == {lease}
        assert sum(charge["amount"]["nano"] for charge in found) == line["exact"]["nano"]
    assert lines.keys() == {False, True}
