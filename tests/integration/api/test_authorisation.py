"""Who may do what: every address of the app is listed, and each is tried with no key, a wrong one, another tenant's."""

import pytest
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

from control_plane.api.auth import REMEMBER_SECONDS
from control_plane.api.requests import query_names
from tests.integration.api.conftest import Api, ProofOf, Tenant
from tests.integration.api.endpoints import ENDPOINTS, SSH_KEY, Endpoint
from tests.integration.api.test_bad_requests import SOME_ID, hold

pytestmark = pytest.mark.database

CLOSED = [endpoint for endpoint in ENDPOINTS if not endpoint.public]
FOR_CUSTOMERS_WITH_ID = [endpoint for endpoint in CLOSED if endpoint.id_prefix and endpoint.for_customers]


def _routes(api: Api) -> set[tuple[str, str]]:
    return {
        (method, route.path_format)
        for route in api.app.routes
        if isinstance(route, HTTPRoute)
        for method in route.methods - {"OPTIONS"}
    }


async def test_every_address_of_the_app_is_in_the_tables_and_no_other(api: Api) -> None:
    listed = {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}
    assert _routes(api) - {("GET", "/schema/{path}")} == listed


async def test_the_tables_know_every_query_parameter(api: Api) -> None:
    for route in api.app.routes:
        assert isinstance(route, HTTPRoute)
        for handler in route.route_handlers:
            assert isinstance(handler, HTTPRouteHandler)
            for endpoint in ENDPOINTS:
                if endpoint.path == route.path_format and endpoint.method in handler.http_methods:
                    assert query_names(handler).keys() == endpoint.query, endpoint


@pytest.mark.parametrize("endpoint", CLOSED, ids=str)
async def test_without_a_key_that_is_known_nothing_answers(
    endpoint: Endpoint, api: Api, acme: Tenant
) -> None:
    path = endpoint.at(f"{endpoint.id_prefix}_{SOME_ID}")
    for authorization in (
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Basic {acme.secret}",
        acme.secret,
        f"Bearer {acme.secret[:-1]}",
        f"Bearer {acme.secret}x",
        f"Bearer {acme.secret.upper()}",
        "Bearer spk_",
        "Bearer spk_" + "x" * 30_000,
        "Bearer spk_\x00",
        "Bearer spk_ÿ",
    ):
        headers = [] if authorization is None else [(b"Authorization", authorization.encode("latin-1"))]
        answer = await api.anonymous.request(endpoint.method, path, json=endpoint.body, headers=headers)
        hold(answer, "unauthenticated")
        assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("endpoint", FOR_CUSTOMERS_WITH_ID, ids=str)
async def test_what_belongs_to_another_tenant_does_not_exist(
    endpoint: Endpoint, acme: Tenant, other: Tenant, operator: Tenant, proof_of: ProofOf
) -> None:
    body = {"name": "theirs", "public_key": SSH_KEY}
    lease = await other.lease()
    theirs = {
        "le": lease,
        "pf": await proof_of(other, lease),
        "ssh": (await other.http.post("/v1/ssh-keys", json=body)).json()["id"],
        "key": (await other.http.post("/v1/api-keys", json={"name": "second"})).json()["key"]["id"],
    }
    assert endpoint.id_prefix is not None
    for stranger in (acme, operator):
        answer = await stranger.http.request(endpoint.method, endpoint.at(theirs[endpoint.id_prefix]))
        hold(answer, "lease_not_found", "not_found")
    untouched = (await other.http.get(f"/v1/leases/{theirs['le']}")).json()
    assert untouched["state"] == "placing"
    assert [key["revoked_at"] for key in (await other.http.get("/v1/api-keys")).json()["items"]] == [
        None,
        None,
    ]
    assert len((await other.http.get("/v1/ssh-keys")).json()["items"]) == 1


async def test_lists_show_one_tenant_only(acme: Tenant, other: Tenant) -> None:
    mine, theirs = await acme.lease(), await other.lease()
    assert [lease["id"] for lease in (await acme.http.get("/v1/leases")).json()["items"]] == [mine]
    assert [lease["id"] for lease in (await other.http.get("/v1/leases")).json()["items"]] == [theirs]


async def test_a_lease_cannot_use_another_tenants_ssh_key(acme: Tenant, other: Tenant) -> None:
    key = (await other.http.post("/v1/ssh-keys", json={"name": "k", "public_key": SSH_KEY})).json()["id"]
    hold(await acme.http.post("/v1/leases", json={"sku": "h100x1", "ssh_key_ids": [key]}), "ssh_key_unknown")


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


async def test_an_operator_makes_an_organization_and_credits_it(api: Api, operator: Tenant) -> None:
    created = await operator.http.post("/v1/operator/organizations", json={"name": "fresh", "gpu_quota": 2})
    assert created.status_code == 201
    made = created.json()
    address = f"/v1/operator/organizations/{made['organization']['id']}/credits"
    credited = await operator.http.post(address, json={"amount_usd": "12.345678901"})
    assert credited.json()["balance"] == {"usd": "12.345678901", "nano": 12_345_678_901}
    fresh = api.client(made["secret"])
    seen = (await fresh.get("/v1/organization")).json()
    assert (seen["name"], seen["gpu_quota"], seen["balance"]["nano"]) == ("fresh", 2, 12_345_678_901)
    assert (await fresh.post("/v1/leases", json={"sku": "h100x1"})).status_code == 202
    # The operator's own money did not move.
    assert (await operator.http.get("/v1/organization")).json()["balance"]["nano"] == 10**12
    hold(await operator.http.post("/v1/operator/organizations", json={"name": "fresh"}), "name_taken")
    hold(
        await operator.http.post(
            f"/v1/operator/organizations/org_{SOME_ID}/credits", json={"amount_usd": "1"}
        ),
        "not_found",
    )
