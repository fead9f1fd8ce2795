"""Prices that finance agrees on with customers over HTTP: who sees them, what they change, and what stays."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.money import Nano
from tests.integration.api.conftest import Tenant
from tests.integration.api.problems import hold
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database
PATH = "/v1/finance/price-agreements"
CONTRACT = {"sku": "h100x8", "usd_per_unit_hour": "2.5", "reason": "contract 17"}


def _body(tenant: Tenant, **changes: Any) -> dict[str, Any]:
    return {"organization_id": on_wire(Prefix.ORGANIZATION, tenant.id), **CONTRACT, **changes}


async def _agreed(operator: Tenant, tenant: Tenant, **changes: Any) -> dict[str, Any]:
    answer = await operator.http.post(PATH, json=_body(tenant, **changes))
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def _sku(tenant: Tenant, name: str = "h100x8") -> dict[str, Any]:
    listed = (await tenant.http.get("/v1/skus")).json()["items"]
    return next(sku for sku in listed if sku["name"] == name)


async def _rows(stage: Stage, statement: str) -> Sequence[Any]:
    async with stage.db.reading() as connection:
        return await rows(connection, text(statement))


async def test_an_agreed_price_is_that_of_new_leases_and_of_nobody_else(
    stage: Stage, operator: Tenant, acme: Tenant, other: Tenant
) -> None:
    await stage.round()
    listed = (await _sku(acme))["price_per_hour"]
    before = (await acme.http.post("/v1/leases", json={"sku": "h100x8"})).json()
    made = await _agreed(operator, acme)
    for tenant, nano in ((acme, 20_000_000_000), (other, listed["nano"])):
        sku = await _sku(tenant)
        assert (sku["price_per_hour"]["nano"], sku["list_price_per_hour"]) == (nano, listed)
        quote = (await tenant.http.post("/v1/quotes", json={"sku": "h100x8", "keep": True})).json()
        assert quote["price_per_hour"]["nano"] == nano
        offers = (await tenant.http.get("/v1/offers?region=eu-central-1")).json()["items"]
        assert {offer["price_per_hour"]["nano"] for offer in offers if "h100x8" in offer["skus"]} == {nano}
    after = (await acme.http.post("/v1/leases", json={"sku": "h100x8"})).json()
    prices = [lease["price_per_hour"]["nano"] for lease in (before, after)]
    assert prices == [listed["nano"], 20_000_000_000]
    await operator.http.post(f"{PATH}/{made['id']}/end", json={})
    kept = (await acme.http.get(f"/v1/leases/{after['id']}")).json()
    assert kept["price_per_hour"]["nano"] == 20_000_000_000, "a lease keeps its price"
    assert (await _sku(acme))["price_per_hour"] == listed
    stored = "SELECT nano_per_unit_hour, list_nano_per_unit_hour, price_agreement_id FROM leases ORDER BY created_at"
    first, second = await _rows(stage, stored)
    assert (first.price_agreement_id, first.list_nano_per_unit_hour) == (None, first.nano_per_unit_hour)
    assert on_wire(Prefix.PRICE_AGREEMENT, second.price_agreement_id) == made["id"]
    assert second.list_nano_per_unit_hour == first.nano_per_unit_hour


async def test_a_charge_has_the_agreed_price_and_the_listed_one_beside_it(
    stage: Stage, operator: Tenant, acme: Tenant
) -> None:
    await stage.round()
    await _agreed(operator, acme)
    lease = (await acme.http.post("/v1/leases", json={"sku": "h100x8"})).json()
    await stage.play(90, step=5)
    await stage.play(1_800, step=300)
    await acme.http.post(f"/v1/leases/{lease['id']}/release")
    await stage.play(120, step=20)
    (charge, *_) = await _rows(stage, "SELECT nano_per_unit_hour, list_nano_per_unit_hour, id FROM charges")
    assert (charge.nano_per_unit_hour, charge.list_nano_per_unit_hour) == (2_500_000_000, Nano(3_000_000_001))
    explained = (await operator.http.get(f"/v1/finance/charges/{on_wire(Prefix.CHARGE, charge.id)}")).json()
    assert (explained["price"]["per_unit_hour"]["usd"], explained["price"]["listed"]["usd"]) == (
        "2.500000000",
        "3.000000001",
    )


async def test_a_price_of_a_region_is_that_of_requests_that_are_limited_to_it(
    stage: Stage, operator: Tenant, acme: Tenant
) -> None:
    await stage.round()
    await _agreed(operator, acme, region="eu", usd_per_unit_hour="2.75")
    (region,) = (await _sku(acme))["regions"]
    assert (region["region"], region["price_per_hour"]["nano"]) == ("eu", 22_000_000_000)
    for regions, nano in (([], 24_000_000_008), (["eu"], 22_000_000_000), (["eu", "us"], 24_000_000_008)):
        quote = await acme.http.post("/v1/quotes", json={"sku": "h100x8", "regions": regions})
        assert quote.json()["price_per_hour"]["nano"] == nano, regions


async def test_a_lease_that_waits_has_the_price_of_the_regions_that_it_moves_to(
    stage: Stage, operator: Tenant, acme: Tenant
) -> None:
    await stage.round()
    await _agreed(operator, acme, region="eu", usd_per_unit_hour="2.75")
    lease = (await acme.http.post("/v1/leases", json={"sku": "h100x8", "regions": ["eu"]})).json()
    assert lease["price_per_hour"]["nano"] == 22_000_000_000
    moved = await acme.http.patch(f"/v1/leases/{lease['id']}", json={"regions": ["us"]})
    assert moved.json()["price_per_hour"]["nano"] == 24_000_000_008
    (held,) = await _rows(stage, "SELECT amount_nano FROM holds")
    assert held.amount_nano == 24_000_000_008
    back = await acme.http.patch(f"/v1/leases/{lease['id']}", json={"regions": ["eu-central-1"]})
    assert back.json()["price_per_hour"]["nano"] == 22_000_000_000


async def test_agreements_of_the_same_must_not_overlap_and_nothing_is_stored_of_what_is_refused(
    stage: Stage, operator: Tenant, acme: Tenant, other: Tenant
) -> None:
    now = stage.clock.now()
    first = await _agreed(operator, acme, valid_until=(now + timedelta(days=30)).isoformat())
    for tenant, changes, code in (
        (acme, {}, "price_overlaps"),
        (acme, {"valid_from": (now + timedelta(days=29)).isoformat()}, "price_overlaps"),
        (acme, {"valid_from": (now - timedelta(days=1)).isoformat()}, "price_in_past"),
        (acme, {"sku": "h100x9"}, "sku_unknown"),
        (acme, {"usd_per_unit_hour": "-1"}, "invalid_request"),
        (acme, {"usd_per_unit_hour": "1e9"}, "invalid_request"),
        (acme, {"usd_per_unit_hour": "1234567890"}, "invalid_request"),
        (acme, {"region": "Europe"}, "invalid_request"),
        (acme, {"stopped_usd_per_unit_hour": "2.6"}, "price_invalid"),
        (acme, {"sla": "platinum"}, "invalid_request"),
    ):
        hold(await operator.http.post(PATH, json=_body(tenant, **changes)), code)
    later = await _agreed(operator, acme, valid_from=(now + timedelta(days=30)).isoformat())
    await _agreed(operator, acme, region="eu")
    gold = await _agreed(operator, acme, sla="gold")
    hold(await operator.http.post(PATH, json=_body(acme, sla="gold")), "price_overlaps")
    assert (first["sla"], gold["sla"]) == (None, "gold")
    theirs = await _agreed(operator, other)
    listed = (await operator.http.get(PATH)).json()["items"]
    assert listed[0]["id"] == theirs["id"]
    assert len(listed) == 5
    of_acme = (await operator.http.get(PATH, params={"organization": first["organization_id"]})).json()
    assert {item["organization_id"] for item in of_acme["items"]} == {first["organization_id"]}
    hold(await acme.http.get(PATH), "permission_denied")
    hold(
        await operator.http.post(f"{PATH}/{later['id']}/end", json={"at": now.isoformat()[:19] + "Z"}),
        "price_in_past",
    )
    withdrawn = (await operator.http.post(f"{PATH}/{later['id']}/end", json={})).json()
    assert withdrawn["valid_until"] == withdrawn["valid_from"]
    hold(await operator.http.post(f"{PATH}/{later['id']}/end", json={}), "price_ended")
    await _agreed(operator, acme, valid_from=(now + timedelta(days=30)).isoformat())
