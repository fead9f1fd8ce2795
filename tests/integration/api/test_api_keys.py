"""API keys: with an owner, limits and an end; revoked at once, and never by themselves."""

import pytest

from control_plane.services import api_keys
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.problems import hold

pytestmark = pytest.mark.database


async def test_a_revoked_key_stops_working_at_once(api: Api, acme: Tenant) -> None:
    issued = (await acme.http.post("/v1/api-keys", json={"name": "second"})).json()
    second = api.client(issued["secret"])
    assert (await second.get("/v1/organization")).status_code == 200
    assert (await acme.http.delete(f"/v1/api-keys/{issued['key']['id']}")).status_code == 204
    hold(await second.get("/v1/organization"), "unauthenticated")
    hold(await acme.http.delete(f"/v1/api-keys/{issued['key']['id']}"), "not_found")


async def test_a_key_does_not_revoke_itself(acme: Tenant) -> None:
    own = (await acme.http.get("/v1/api-keys")).json()["items"][0]["id"]
    hold(await acme.http.delete(f"/v1/api-keys/{own}"), "key_in_use")
    assert (await acme.http.get("/v1/api-keys")).json()["items"][0]["revoked_at"] is None


async def test_an_organization_has_a_bounded_number_of_valid_keys(
    acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_keys, "KEYS_MAX", 3)
    made = [(await acme.http.post("/v1/api-keys", json={"name": f"key {n}"})).json() for n in range(2)]
    hold(await acme.http.post("/v1/api-keys", json={"name": "more"}), "api_keys_too_many")
    assert (await acme.http.delete(f"/v1/api-keys/{made[0]['key']['id']}")).status_code == 204
    assert (await acme.http.post("/v1/api-keys", json={"name": "more"})).status_code == 201
