"""API keys: a role for each, revoked within seconds, and never by themselves."""

import pytest

from control_plane.api.auth import REMEMBER_SECONDS
from control_plane.domain.permission import Permission
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.problems import hold, hold_denied

pytestmark = pytest.mark.database


async def test_a_revoked_key_stops_working_within_the_time_it_is_remembered(api: Api, acme: Tenant) -> None:
    issued = (await acme.http.post("/v1/api-keys", json={"name": "second"})).json()
    second = api.client(issued["secret"])
    assert (await second.get("/v1/organization")).status_code == 200
    assert (await acme.http.delete(f"/v1/api-keys/{issued['key']['id']}")).status_code == 204
    api.clock.advance(REMEMBER_SECONDS)
    hold(await second.get("/v1/organization"), "unauthenticated")
    hold(await acme.http.delete(f"/v1/api-keys/{issued['key']['id']}"), "not_found")


async def test_a_key_does_not_revoke_itself(acme: Tenant) -> None:
    own = (await acme.http.get("/v1/api-keys")).json()["items"][0]["id"]
    hold(await acme.http.delete(f"/v1/api-keys/{own}"), "key_in_use")
    assert (await acme.http.get("/v1/api-keys")).json()["items"][0]["revoked_at"] is None


async def test_only_who_may_creates_an_operators_key(api: Api, acme: Tenant, operator: Tenant) -> None:
    order = {"name": "ops", "role": "operator"}
    hold_denied(await acme.http.post("/v1/api-keys", json=order), Permission.API_KEYS_CREATE_OPERATOR)
    issued = (await operator.http.post("/v1/api-keys", json=order)).json()
    assert issued["key"]["role"] == "operator"
    assert (await api.client(issued["secret"]).get("/v1/operator/loops")).status_code == 200
    plain = (await operator.http.post("/v1/api-keys", json={"name": "plain"})).json()
    assert plain["key"]["role"] == "customer"
    hold_denied(await api.client(plain["secret"]).get("/v1/operator/loops"), Permission.LOOPS_READ)
