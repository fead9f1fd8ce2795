"""Organizations, as an operator creates them and finance tops them up."""

import pytest

from tests.integration.api.conftest import Api, Tenant, top_up
from tests.integration.api.problems import SOME_ID, hold

pytestmark = pytest.mark.database


async def test_an_operator_makes_an_organization_that_finance_tops_up(api: Api, operator: Tenant) -> None:
    created = await operator.http.post("/v1/operator/organizations", json={"name": "fresh", "gpu_quota": 2})
    assert created.status_code == 201
    made = created.json()
    posted = await top_up(operator, made["organization"]["id"], "12.345678901")
    assert posted.json()["amount"] == {"usd": "12.345678901", "nano": 12_345_678_901}
    fresh = api.client(made["secret"])
    seen = (await fresh.get("/v1/organization")).json()
    assert (seen["name"], seen["gpu_quota"], seen["balance"]["nano"]) == ("fresh", 2, 12_345_678_901)
    assert (await fresh.post("/v1/leases", json={"sku": "h100x1", "ssh_key_ids": []})).status_code == 202
    # The operator's own money did not move.
    assert (await operator.http.get("/v1/organization")).json()["balance"]["nano"] == 10**12
    hold(await operator.http.post("/v1/operator/organizations", json={"name": "fresh"}), "name_taken")
    hold(await top_up(operator, f"org_{SOME_ID}", "1"), "not_found")


async def test_an_operator_sees_every_organization_page_by_page(acme: Tenant, operator: Tenant) -> None:
    names, cursor = [], ""
    while True:
        query = f"?limit=1&cursor={cursor}" if cursor else "?limit=1"
        page = (await operator.http.get(f"/v1/operator/organizations{query}")).json()
        names += [organization["name"] for organization in page["items"]]
        assert len(page["items"]) <= 1
        if not (cursor := page["next_cursor"]):
            break
    mine = (await acme.http.get("/v1/organization")).json()
    assert mine["name"] in names
    assert len(names) == len(set(names))
    assert len(names) >= 2
    one = f"/v1/operator/organizations/{mine['id']}"
    assert (await operator.http.get(one)).json() == {
        name: value for name, value in mine.items() if name not in {"key_id", "role"}
    }, "the same without what is about the key"
    assert (await operator.http.get(f"{one}/reconciliation")).json()["balance"] == mine["balance"]
    for path in ("", "/reconciliation"):
        hold(await operator.http.get(f"/v1/operator/organizations/org_{SOME_ID}{path}"), "not_found")
