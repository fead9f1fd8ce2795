"""Quotes and offers over HTTP."""

import pytest

from tests.integration.api.conftest import Api, Tenant
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
