"""The price of a tier over HTTP: where it is shown, what a lease with it costs, and what names it afterwards."""

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from control_plane.domain.money import Nano
from control_plane.domain.price import OtherPrice
from control_plane.domain.sla import SlaTier
from control_plane.services import catalogue, sla_terms
from tests.integration.api.conftest import Tenant
from tests.integration.api.problems import hold
from tests.support.stage import H100, H100X8, Stage

pytestmark = pytest.mark.database
TERMS = Path("control_plane/sla_terms.toml").read_text(encoding="utf-8")
BRONZE, GOLD, GOLD_EU = 3_600_000_000, 4_500_000_000, 4_800_000_000
BOOK = (
    replace(
        H100,
        others=(
            OtherPrice(None, Nano(GOLD), sla=SlaTier.GOLD),
            OtherPrice("eu", Nano(GOLD_EU), sla=SlaTier.GOLD),
        ),
    ),
    H100X8,
)


async def _sell(stage: Stage, *book: Any) -> None:
    async with stage.db.transaction() as connection:
        await catalogue.load_price_book(connection, stage.api, book)


@pytest.fixture
async def gold(stage: Stage, acme: Tenant) -> Tenant:
    """A customer of a cloud that sells h100x1 for more with gold, and for still more in the EU."""
    async with stage.db.transaction() as connection:
        await sla_terms.load(connection, stage.api, sla_terms.parse_terms(TERMS))
    stage.clock.advance(1)
    await _sell(stage, *BOOK)
    await stage.round()
    return acme


async def _quoted(tenant: Tenant, **asked: Any) -> dict[str, Any]:
    answer = await tenant.http.post("/v1/quotes", json={"sku": "h100x1", **asked})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_what_is_for_sale_says_what_each_tier_costs(gold: Tenant) -> None:
    listed = {sku["name"]: sku for sku in (await gold.http.get("/v1/skus")).json()["items"]}
    assert listed["h100x1"]["price_per_hour"]["nano"] == BRONZE
    tiers = [
        (tier["sla"], tier["region"], tier["price_per_hour"]["nano"], tier["price_per_hour_stopped"]["nano"])
        for tier in listed["h100x1"]["tiers"]
    ]
    assert tiers == [("gold", None, GOLD, GOLD), ("gold", "eu", GOLD_EU, GOLD_EU)]
    assert listed["h100x8"]["tiers"] == [], "it costs the same with every tier"


async def test_quotes_and_offers_have_the_price_of_the_tier_that_is_asked_for(gold: Tenant) -> None:
    for asked, nano in (
        ({}, BRONZE),
        ({"sla": "silver"}, BRONZE),
        ({"sla": "gold"}, GOLD),
        ({"sla": "gold", "regions": ["eu"]}, GOLD_EU),
        ({"sla": "gold", "regions": ["us", "eu"]}, GOLD_EU),
    ):
        assert (await _quoted(gold, **asked))["price_per_hour"]["nano"] == nano, asked
    for sla, here in (("bronze", BRONZE), ("gold", GOLD_EU)):
        offers = (await gold.http.get(f"/v1/offers?sla={sla}&region=eu")).json()["items"]
        assert {offer["price_per_hour"]["nano"] for offer in offers if offer["skus"] == ["h100x1"]} == {here}
    hold(await gold.http.get("/v1/offers?sla=platinum"), "invalid_parameter")


async def test_a_ceiling_is_held_against_the_price_of_the_tier(gold: Tenant) -> None:
    asked = {"sku": "h100x1", "price_usd_per_hour_max": "4"}
    hold(await gold.http.post("/v1/leases", json={**asked, "sla": "gold"}), "price_above_ceiling")
    assert (await gold.http.post("/v1/leases", json=asked)).status_code == 202


async def test_a_quoted_price_of_a_tier_is_that_of_its_lease_whatever_the_book_says_then(
    stage: Stage, gold: Tenant
) -> None:
    quote = await _quoted(gold, sla="gold", keep=True)
    stage.clock.advance(60)
    await _sell(stage, replace(BOOK[0], others=(OtherPrice(None, Nano(9_000_000_000), sla=SlaTier.GOLD),)))
    assert (await _quoted(gold, sla="gold"))["price_per_hour"]["nano"] == 9_000_000_000
    bronze = {"sku": "h100x1", "quote_id": quote["id"]}
    hold(await gold.http.post("/v1/leases", json=bronze), "quote_differs")
    lease = await gold.http.post("/v1/leases", json={**bronze, "sla": "gold"})
    assert lease.json()["price_per_hour"]["nano"] == GOLD


async def test_a_lease_with_gold_is_billed_at_the_price_of_gold_and_every_row_of_it_says_so(
    stage: Stage, gold: Tenant, operator: Tenant
) -> None:
    asked: list[dict[str, Any]] = [{"name": "plain"}, {"name": "promised", "sla": "gold", "regions": ["us"]}]
    leases = [(await gold.http.post("/v1/leases", json={"sku": "h100x1", **each})).json() for each in asked]
    assert [lease["price_per_hour"]["nano"] for lease in leases] == [BRONZE, GOLD]
    await stage.play(90, step=5)
    await stage.play(2 * 3_600, step=300)
    for lease in leases:
        await gold.http.post(f"/v1/leases/{lease['id']}/release")
    await stage.play(300, step=20)
    rows = (await gold.http.get("/v1/usage")).json()["items"]
    assert {(row["lease_name"], row["sla"], row["price_per_unit_hour"]["nano"]) for row in rows} == {
        ("plain", "bronze", BRONZE),
        ("promised", "gold", GOLD),
    }
    promised = [row for row in rows if row["lease_name"] == "promised"]
    seconds = sum(row["unit_seconds"] for row in promised)
    assert seconds > 3_600
    assert sum(row["amount"]["nano"] for row in promised) == seconds * GOLD // 3_600
    printed = csv.DictReader(io.StringIO((await gold.http.get("/v1/usage.csv")).text))
    assert {(row["lease_name"], row["sla"]) for row in printed} == {("plain", "bronze"), ("promised", "gold")}
    bill = (await gold.http.get("/v1/bill")).json()
    assert {(line["name"], line["sla"]) for line in bill["lines"]} == {
        ("plain", "bronze"),
        ("promised", "gold"),
    }
    explained = (await operator.http.get(f"/v1/finance/charges/{promised[0]['id']}")).json()
    assert (explained["sla"], explained["price"]["listed"]["nano"]) == ("gold", GOLD)
    ledger = (await gold.http.get("/v1/reconciliation")).json()
    assert ledger["difference"]["nano"] == 0
