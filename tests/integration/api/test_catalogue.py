"""Quotes and offers over HTTP."""

from dataclasses import replace

import pytest

from control_plane.db import catalogue
from control_plane.domain.ids import AccountName
from control_plane.domain.money import Nano
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.problems import hold
from tests.support.cases import case
from tests.support.stage import Stage

pytestmark = pytest.mark.database


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
