"""API keys: with an owner, limits and an end; revoked at once, and never by themselves."""

from datetime import timedelta

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


async def _made(tenant: Tenant, **body: object) -> tuple[str, str]:
    """A new key: its id and its secret."""
    answer = await tenant.http.post("/v1/api-keys", json={"name": "more"} | body)
    assert answer.status_code == 201, answer.text
    return answer.json()["key"]["id"], answer.json()["secret"]


async def test_a_key_ends_when_it_expires_and_is_then_refused_like_an_unknown_one(
    api: Api, acme: Tenant
) -> None:
    end = (api.clock.now() + timedelta(hours=1)).isoformat()
    _, secret = await _made(acme, expires_at=end)
    client = api.client(secret)
    assert (await client.get("/v1/me")).json()["api_key_expires_at"] is not None
    api.clock.advance(3_600)
    answers = [await each.get("/v1/me") for each in (client, api.client("spk_unknown"))]
    for answer in answers:
        hold(answer, "unauthenticated")
    assert answers[0].json()["detail"] == answers[1].json()["detail"]
    over = {"name": "over", "expires_at": api.clock.now().isoformat()}
    hold(await acme.http.post("/v1/api-keys", json=over), "expiry_invalid")


@pytest.mark.parametrize(
    "at", ["9999-12-31T23:59:59.999999Z", "2201-01-01T00:00:00Z", "0001-01-01T00:00:00Z"]
)
async def test_a_key_ends_in_a_year_that_can_be_reckoned_with(acme: Tenant, at: str) -> None:
    """The last moment of the year 9999 is infinity to the database, so the key was neither valid nor over."""
    answer = await acme.http.post("/v1/api-keys", json={"name": "for ever", "expires_at": at})
    hold(answer, "invalid_request")
    assert "in the years 2000 to 2200" in answer.text


async def test_a_rotated_key_is_valid_until_the_overlap_ends_and_the_new_one_after_it(
    api: Api, acme: Tenant
) -> None:
    limits = {"scopes": ["leases.read", "api_keys.create", "api_keys.read"], "projects": ["default"]}
    key, secret = await _made(acme, **limits)
    answer = await acme.http.post(f"/v1/api-keys/{key}/rotations", json={"overlap_hours": 2})
    assert answer.status_code == 201, answer.text
    new = answer.json()["key"]
    assert (new["rotates"], new["scopes"], new["name"]) == (key, limits["scopes"], "more")
    assert new["project_ids"] is not None
    old_client, new_client = api.client(secret), api.client(answer.json()["secret"])
    for client in (old_client, new_client):
        assert (await client.get("/v1/leases")).status_code == 200
    api.clock.advance(2 * 3_600)
    hold(await old_client.get("/v1/leases"), "unauthenticated")
    assert (await new_client.get("/v1/leases")).status_code == 200
    hold(await acme.http.post(f"/v1/api-keys/{key}/rotations", json={}), "not_found")


async def test_a_limited_key_makes_no_key_that_can_do_more(api: Api, acme: Tenant) -> None:
    own = (await acme.http.get("/v1/api-keys")).json()["items"][0]["id"]
    _, secret = await _made(acme, scopes=["api_keys.create", "leases.read"])
    limited = api.client(secret)
    hold(await limited.post("/v1/api-keys", json={"name": "wide"}), "beyond_your_roles")
    hold(await limited.post(f"/v1/api-keys/{own}/rotations", json={}), "beyond_your_roles")
    narrow = {"name": "narrow", "scopes": ["leases.read"]}
    assert (await limited.post("/v1/api-keys", json=narrow)).status_code == 201
    hold(await limited.get("/v1/projects"), "permission_denied")


async def test_the_last_use_is_stored_now_and_then_and_not_by_the_request(api: Api, acme: Tenant) -> None:
    async def last_used() -> object:
        return (await acme.http.get("/v1/api-keys")).json()["items"][0]["last_used_at"]

    authenticator = api.app.state.context.authenticator
    assert await last_used() is None
    await authenticator.store_uses()
    first = await last_used()
    assert first is not None
    await authenticator.store_uses()
    assert await last_used() == first, "at most once a minute"
    api.clock.advance(60)
    await last_used()
    await authenticator.store_uses()
    assert await last_used() != first
