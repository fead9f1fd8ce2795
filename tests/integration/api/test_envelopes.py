"""Envelopes, quota requests, decisions and changes of leases over the API."""

import asyncio
from collections import Counter

import pytest

from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.problems import hold

LEASE = {"sku": "h100x1", "ssh_key_ids": []}
WHY = {"reason": "agreed"}


async def _put(tenant: Tenant, path: str, **limits: object) -> None:
    answer = await tenant.http.put(path, json=limits)
    assert answer.status_code == 200, answer.text


def _ceiling(tenant: Tenant) -> str:
    return f"/v1/operator/organizations/org_{tenant.id.hex}/envelope"


@pytest.mark.parametrize(
    "limits",
    [
        {"gpus": 3},
        {"gpus_of_model": {"h100-sxm-80gb": 3}},
        {"spend_usd_per_hour_max": "10.80"},
        {"spend_usd_per_month_max": "10.80"},
    ],
    ids=str,
)
async def test_creates_at_the_same_time_never_exceed_a_limit_together(
    acme: Tenant, limits: dict[str, object]
) -> None:
    await _put(acme, "/v1/projects/default/environments/default/envelope", **limits)
    answers = await asyncio.gather(*(acme.http.post("/v1/leases", json=LEASE) for _ in range(10)))
    assert Counter(answer.status_code for answer in answers) == {202: 3, 409: 7}
    use = (await acme.http.get("/v1/projects/default/environments/default/envelope")).json()["use"]
    assert use["gpus"] == 3
    assert use["spend_per_hour"]["usd"] == use["spend_this_month"]["usd"] == "10.800000000"


async def test_an_envelope_shows_its_limits_what_is_used_and_those_above(acme: Tenant) -> None:
    await acme.lease()
    await _put(acme, "/v1/projects/default/envelope", gpus=8, regions=["eu"])
    shown = (await acme.http.get("/v1/projects/default/envelope")).json()
    assert (shown["level"], shown["limits"]["gpus"], shown["revision"]) == ("project", 8, 1)
    assert shown["use"]["gpus_of_model"] == {"h100-sxm-80gb": 1}
    assert [(each["level"], each["limits"]["gpus"]) for each in shown["within"]] == [("ceiling", 64)]


async def test_an_envelope_that_is_wider_than_one_above_it_is_refused(acme: Tenant) -> None:
    answer = await acme.http.put("/v1/projects/default/envelope", json={"gpus": 65})
    hold(answer, "envelope_too_wide")
    assert "at most 64" in answer.json()["detail"]


async def test_a_parent_that_is_narrowed_later_decides(acme: Tenant, operator: Tenant) -> None:
    await _put(acme, "/v1/projects/default/envelope", gpus=8)
    await _put(operator, _ceiling(acme), gpus=0)
    refused = await acme.http.post("/v1/leases", json=LEASE)
    hold(refused, "quota_exceeded")
    assert refused.json()["refusals"][0]["level"] == "ceiling"


async def test_all_refusals_are_reported_and_the_decision_is_stored_with_every_rule(
    acme: Tenant, operator: Tenant
) -> None:
    await _put(acme, "/v1/organization/envelope", skus=["h100x8"], gpus=0)
    body = LEASE | {"price_usd_per_hour_max": "1"}
    for _ in range(3):
        refused = await acme.http.post("/v1/leases", json=body)
        hold(refused, "envelope_excludes")
    codes = [each["code"] for each in refused.json()["refusals"]]
    assert codes == ["envelope_excludes", "quota_exceeded", "price_above_ceiling"]
    page = (await acme.http.get("/v1/admission-decisions?outcome=refused")).json()["items"]
    (decision,) = page
    assert (decision["action"], decision["code"]) == ("lease_create", "envelope_excludes")
    rules = {(rule["rule"], rule["level"]): rule["verdict"] for rule in decision["rules"]}
    assert rules["gpus", "ceiling"] == "allowed"
    assert rules["gpus", "organization"] == "refused"
    path = f"/v1/operator/organizations/org_{acme.id.hex}/admission-decisions"
    assert (await operator.http.get(path)).json()["items"] == page


async def test_an_admitted_lease_is_explained_by_its_decision(acme: Tenant) -> None:
    lease = await acme.lease()
    (decision,) = (await acme.http.get(f"/v1/leases/{lease}/explanation")).json()["decisions"]
    assert (decision["outcome"], decision["lease_id"]) == ("allowed", lease)
    gpus = next(rule for rule in decision["rules"] if rule["rule"] == "gpus")
    assert (gpus["limit"], gpus["used"], gpus["wanted"]) == ("64", "0", "1")


async def test_a_burst_costs_its_price_and_ends(acme: Tenant, api: Api) -> None:
    burst = {"over_percent": 100, "seconds": 3_600, "price_percent": 150}
    # The ceiling has a limit and no burst, so it is replaced first.
    operator = await api.tenant("us", platform=True)
    await _put(operator, _ceiling(acme), gpus=2, burst=burst)
    await acme.lease()
    await acme.lease()
    over = await acme.http.post("/v1/leases", json=LEASE)
    assert over.status_code == 202
    assert over.json()["price_per_hour"]["usd"] == "5.400000000"
    api.clock.advance(3_601)
    hold(await acme.http.post("/v1/leases", json=LEASE), "quota_exceeded")


async def test_a_request_for_a_higher_ceiling_is_decided_by_an_operator(
    acme: Tenant, operator: Tenant
) -> None:
    body = {"limits": {"gpus": 128}, "reason": "a larger model"}
    asked = (await acme.http.post("/v1/quota-requests", json=body)).json()
    assert (asked["state"], asked["level"]) == ("pending", "ceiling")
    hold(await acme.http.post(f"/v1/quota-requests/{asked['id']}/approve", json=WHY), "not_found")
    path = f"/v1/operator/organizations/org_{acme.id.hex}/quota-requests"
    assert [row["id"] for row in (await operator.http.get(path)).json()["items"]] == [asked["id"]]
    approved = await operator.http.post(f"{path}/{asked['id']}/approve", json=WHY)
    assert approved.status_code == 200, approved.text
    assert (await acme.http.get("/v1/organization")).json()["gpu_quota"] == 128
    hold(await operator.http.post(f"{path}/{asked['id']}/decline", json=WHY), "request_decided")


async def test_nobody_approves_what_they_asked_for_themselves(acme: Tenant, api: Api) -> None:
    await _put(acme, "/v1/projects/default/envelope", gpus=1)
    body = {"limits": {"gpus": 4}, "reason": "a deadline", "project": "default"}
    asked = (await acme.http.post("/v1/quota-requests", json=body)).json()["id"]
    hold(await acme.http.post(f"/v1/quota-requests/{asked}/approve", json=WHY), "own_request")
    other = api.client(await api.owner_of(acme.id))
    approved = await other.post(f"/v1/quota-requests/{asked}/approve", json=WHY)
    assert approved.json()["state"] == "approved", approved.text
    shown = (await acme.http.get("/v1/projects/default/envelope")).json()
    assert shown["limits"]["gpus"] == 4


async def test_an_approval_beyond_a_wider_level_is_refused_and_the_request_stays(
    acme: Tenant, api: Api
) -> None:
    body = {"limits": {"gpus": 65}, "reason": "a deadline", "project": "default"}
    asked = (await acme.http.post("/v1/quota-requests", json=body)).json()["id"]
    other = api.client(await api.owner_of(acme.id))
    hold(await other.post(f"/v1/quota-requests/{asked}/approve", json=WHY), "envelope_too_wide")
    assert (await acme.http.get(f"/v1/quota-requests/{asked}")).json()["state"] == "pending"
    withdrawn = await acme.http.post(f"/v1/quota-requests/{asked}/withdraw")
    assert withdrawn.json()["state"] == "withdrawn"


async def test_a_quota_request_expires(acme: Tenant, api: Api, operator: Tenant) -> None:
    body = {"limits": {"gpus": 128}, "reason": "a larger model"}
    asked = (await acme.http.post("/v1/quota-requests", json=body)).json()["id"]
    api.clock.advance(14 * 24 * 3_600)
    assert (await acme.http.get(f"/v1/quota-requests/{asked}")).json()["state"] == "expired"
    path = f"/v1/operator/organizations/org_{acme.id.hex}/quota-requests/{asked}/approve"
    hold(await operator.http.post(path, json=WHY), "request_decided")


async def test_a_lease_that_waits_can_be_resized_within_its_envelopes(acme: Tenant) -> None:
    lease = await acme.lease()
    await _put(acme, "/v1/organization/envelope", gpus=8)
    resized = await acme.http.patch(f"/v1/leases/{lease}", json={"sku": "h100x8"})
    assert resized.status_code == 200, resized.text
    assert resized.json()["gpu_count"] == 8
    own = (await acme.http.get("/v1/organization")).json()
    assert (own["gpus_held"], own["held"]["usd"]) == (8, "24.000000008")
    await _put(acme, "/v1/organization/envelope", gpus=4)
    hold(
        await acme.http.patch(f"/v1/leases/{lease}", json={"auto_release": {}, "regions": ["eu"]}),
        "quota_exceeded",
    )
    smaller = await acme.http.patch(f"/v1/leases/{lease}", json={"sku": "h100x1"})
    assert smaller.status_code == 200, smaller.text
    use = (await acme.http.get("/v1/organization/envelope")).json()["use"]
    assert (use["gpus"], use["spend_per_hour"]["usd"]) == (1, "3.600000000")


async def test_a_lease_is_extended_only_within_its_envelopes_and_shortened_always(acme: Tenant) -> None:
    lease = await acme.lease(auto_release={"after_seconds": 3_600})
    await _put(acme, "/v1/organization/envelope", gpus=0)
    later = {"auto_release": {"after_seconds": 7_200}}
    hold(await acme.http.patch(f"/v1/leases/{lease}", json=later), "quota_exceeded")
    sooner = await acme.http.patch(f"/v1/leases/{lease}", json={"auto_release": {"after_seconds": 60}})
    assert sooner.json()["auto_release"]["after_seconds"] == 60


async def test_a_lease_that_ends_cannot_be_changed(acme: Tenant) -> None:
    lease = await acme.lease()
    await acme.http.post(f"/v1/leases/{lease}/release")
    hold(await acme.http.patch(f"/v1/leases/{lease}", json={"sku": "h100x8"}), "lease_not_waiting")
