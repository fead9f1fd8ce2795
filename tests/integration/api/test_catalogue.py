"""Quotes and offers over HTTP."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from control_plane.db import catalogue
from control_plane.domain.ids import AccountName, Prefix, on_wire
from control_plane.domain.money import Nano
from control_plane.domain.quote import LASTS
from control_plane.services.catalogue import load_price_book
from reconciler.loops.housekeeping.prune_records import QUOTES_KEPT
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.problems import hold
from tests.support.cases import case
from tests.support.rows import rows
from tests.support.stage import BOOK, Stage

pytestmark = pytest.mark.database
MINUTE = timedelta(minutes=1)


async def test_a_quote_shows_price_first_hour_and_candidates(api: Api, stage: Stage, acme: Tenant) -> None:
    await stage.round()
    quote = (await acme.http.post("/v1/quotes", json={"sku": "h100x8", "regions": ["eu"]})).json()
    spoken = quote["verdict"].pop("rules")
    assert quote["verdict"] == {"admitted": True, "code": None, "why": None, "refusals": []}
    assert {rule["verdict"] for rule in spoken} == {"allowed"}
    assert quote["price_per_hour"]["usd"] == quote["first_hour"]["usd"] == "24.000000008"
    assert [one["region"] for one in quote["candidates"]] == ["eu-central-1"]
    assert {one["code"] for one in quote["rejected"]} == {"region_excluded"}


async def test_a_page_of_offers_goes_on_where_the_last_one_ended_whatever_is_listed_anew(
    stage: Stage, acme: Tenant
) -> None:
    await stage.round()
    async with stage.db.reading() as connection:
        offers = await catalogue.offers(connection)
    keys = sorted(offer.key for offer in offers)
    first = (await acme.http.get("/v1/offers?limit=2")).json()
    assert [offer["key"] for offer in first["items"]] == keys[:2]
    cheaper = [
        replace(offer, cost_nano_per_hour=Nano(number), network_gbps=number or None)
        for number, offer in enumerate(offers)
    ]
    async with stage.db.transaction() as connection:
        await catalogue.replace_offers(
            connection, AccountName(offers[0].account), cheaper[::-1], now=stage.clock.now()
        )
    rest = (await acme.http.get("/v1/offers", params={"cursor": first["next_cursor"]})).json()
    assert [offer["key"] for offer in rest["items"]] == keys[2:]
    for query, fitting in (
        ("network_gbps_min=2", {offer.key for offer in cheaper[2:]}),
        ("region=eu", {offer.key for offer in offers if offer.region.startswith("eu-")}),
        ("region=jp", set()),
        (f"provider={offers[0].provider}", set(keys)),
        ("provider=elsewhere", set()),
    ):
        with case(query):
            found = (await acme.http.get(f"/v1/offers?{query}")).json()["items"]
            assert {offer["key"] for offer in found} == fitting
    hold(await acme.http.get("/v1/offers?network_gbps_min=0"), "invalid_parameter")


async def test_a_kept_quote_is_honoured_after_prices_rose_until_it_expires(
    stage: Stage, acme: Tenant, other: Tenant
) -> None:
    await stage.round()
    wanted = {"sku": "h100x8", "regions": ["eu"]}
    assert (await acme.http.post("/v1/quotes", json=wanted)).json()["id"] is None, (
        "it is kept on request alone"
    )
    quote = (await acme.http.post("/v1/quotes", json=wanted | {"keep": True})).json()
    async with stage.db.transaction() as connection:
        dearer = [replace(price, nano_per_unit_hour=Nano(2 * price.nano_per_unit_hour)) for price in BOOK]
        await load_price_book(connection, stage.api, dearer)
    for_it = {"sku": "h100x8", "quote_id": quote["id"]}
    hold(await other.http.post("/v1/leases", json=for_it), "quote_unknown")
    hold(await acme.http.post("/v1/leases", json=for_it | {"regions": ["us"]}), "quote_differs")
    assert (await acme.http.post("/v1/projects", json={"name": "research"})).status_code == 201
    elsewhere = {"project": "research", "environment": "default"}
    hold(await acme.http.post("/v1/leases", json=for_it | elsewhere), "quote_differs")

    lease = (await acme.http.post("/v1/leases", json=for_it)).json()
    assert (lease["quote_id"], lease["request"]["regions"]) == (quote["id"], ["eu"])
    assert lease["price_per_hour"] == quote["price_per_hour"]
    today = (await acme.http.post("/v1/leases", json=wanted)).json()
    assert today["price_per_hour"]["nano"] > quote["price_per_hour"]["nano"]
    (admitted, *_) = (await acme.http.get(f"/v1/leases/{lease['id']}/journal")).json()["items"]
    assert f"at the price of the quote {quote['id']}" in admitted["why"]

    async with stage.db.transaction() as connection:
        await connection.execute(text("UPDATE offers SET available = false"))
    hold(await acme.http.post("/v1/leases", json=for_it), "quote_without_offers")
    stage.clock.advance(LASTS.total_seconds())
    hold(await acme.http.post("/v1/leases", json=for_it), "quote_expired")


async def test_a_kept_quote_is_read_until_it_is_deleted(stage: Stage, acme: Tenant, other: Tenant) -> None:
    await stage.round()
    wanted = {"sku": "h100x8", "regions": ["eu"], "price_usd_per_hour_max": "25"}
    quote = (await acme.http.post("/v1/quotes", json=wanted | {"keep": True})).json()
    path = f"/v1/quotes/{quote['id']}"
    kept = (await acme.http.get(path)).json()
    assert {name: kept[name] for name in ("id", "price_per_hour", "price_per_gpu_hour", "expires_at")} == {
        name: quote[name] for name in ("id", "price_per_hour", "price_per_gpu_hour", "expires_at")
    }
    assert (kept["regions"], kept["price_usd_per_hour_max"]) == (["eu"], "25.000000000")
    assert (kept["project"], kept["environment"], kept["leases"]) == ("default", "default", 0)

    lease = (await acme.http.post("/v1/leases", json={"sku": "h100x8", "quote_id": quote["id"]})).json()
    assert lease["quote_id"] == quote["id"]
    stage.clock.advance(LASTS.total_seconds())
    kept = (await acme.http.get(path)).json()
    assert (kept["expired"], kept["leases"]) == (True, 1)
    for tenant, there in ((other, path), (acme, path[:-1] + ("0" if path[-1] != "0" else "1"))):
        hold(await tenant.http.get(there), "not_found")


async def test_a_lease_for_a_fast_network_is_placed_where_one_is_stated_or_refused(
    stage: Stage, acme: Tenant
) -> None:
    await stage.round()
    async with stage.db.transaction() as connection:
        await connection.execute(text("UPDATE offers SET network_gbps = 400 WHERE region LIKE 'eu-%'"))
    wanted = {"sku": "h100x8", "network_gbps_min": 400}
    quote = (await acme.http.post("/v1/quotes", json=wanted | {"keep": True})).json()
    assert {candidate["network_gbps"] for candidate in quote["candidates"]} == {400}
    slow = [offer for offer in quote["rejected"] if offer["code"] == "network_too_slow"]
    assert slow
    assert all("does not state its network" in offer["why"] for offer in slow)
    kept = (await acme.http.get(f"/v1/quotes/{quote['id']}")).json()
    assert kept["network_gbps_min"] == 400
    for_it = {"sku": "h100x8", "quote_id": quote["id"]}
    hold(await acme.http.post("/v1/leases", json=for_it | {"network_gbps_min": 100}), "quote_differs")
    lease = (await acme.http.post("/v1/leases", json=for_it)).json()
    assert lease["request"]["network_gbps_min"] == 400
    faster = wanted | {"network_gbps_min": 3_200}
    refused = await acme.http.post("/v1/leases", json=faster)
    hold(refused, "network_not_offered")
    assert "the most is 400 Gbit/s" in refused.json()["detail"]
    await stage.run("place_leases")
    placed = (await acme.http.get(f"/v1/leases/{lease['id']}")).json()
    assert placed["machine"]["region"].startswith("eu-")

    async with stage.db.transaction() as connection:
        await connection.execute(text("UPDATE offers SET available = false"))
    waits = (await acme.http.post("/v1/leases", json=wanted)).json()
    there = f"/v1/leases/{waits['id']}"
    changed = (await acme.http.patch(there, json={"network_gbps_min": 0})).json()
    assert changed["request"]["network_gbps_min"] is None
    unchanged = (await acme.http.patch(there, json={"priority": 60})).json()
    assert unchanged["request"]["network_gbps_min"] is None
    again = (await acme.http.patch(there, json={"network_gbps_min": 100})).json()
    assert again["request"]["network_gbps_min"] == 100
    lines = (await acme.http.get(f"{there}/journal")).json()["items"]
    assert any("100 Gbit/s at least" in (line["why"] or "") for line in lines)


async def test_quotes_that_nobody_used_are_deleted_and_the_others_stay(stage: Stage, acme: Tenant) -> None:
    await stage.round()
    ids = [
        (await acme.http.post("/v1/quotes", json={"sku": "h100x8", "keep": True})).json()["id"]
        for _ in range(2)
    ]
    assert (await acme.http.post("/v1/leases", json={"sku": "h100x8", "quote_id": ids[0]})).status_code == 202

    async def kept() -> set[str]:
        async with stage.db.reading() as connection:
            return {
                on_wire(Prefix.QUOTE, row.id) for row in await rows(connection, text("SELECT id FROM quotes"))
            }

    for seconds, left in ((LASTS + QUOTES_KEPT - MINUTE, set(ids)), (2 * MINUTE, {ids[0]})):
        stage.clock.advance(seconds.total_seconds())
        await stage.run("prune_records")
        assert await kept() == left
