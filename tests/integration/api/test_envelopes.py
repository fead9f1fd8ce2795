"""Envelopes, quota requests, decisions and changes of leases over the API."""

import asyncio
from collections import Counter
from uuid import UUID

import httpx
import pytest
from sqlalchemy import text

from control_plane.domain.organization import OrganizationState
from control_plane.domain.quota_request import PENDING_MAX
from tests.integration.api.conftest import Api, Tenant, tenant_in, top_up
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


async def test_nobody_asks_for_quota_without_a_bound_and_others_may_ask_meanwhile(
    acme: Tenant, api: Api
) -> None:
    key = (await acme.http.post("/v1/service-accounts", json={"name": "colleague"})).json()["id"]
    role = {"subject": key, "role": "owner", "scope": {"kind": "organization"}}
    assert (await acme.http.post("/v1/role-bindings", json=role)).status_code == 201
    issued = await acme.http.post("/v1/api-keys", json={"name": "colleague", "subject": key})
    colleague = api.client(issued.json()["secret"])

    async def ask(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post("/v1/quota-requests", json={"limits": {"gpus": 64}, "reason": "more"})

    answers = await asyncio.gather(*(ask(acme.http) for _ in range(PENDING_MAX + 4)))
    assert Counter(answer.status_code for answer in answers) == {201: PENDING_MAX, 409: 4}
    hold(await ask(acme.http), "quota_requests_too_many")
    assert (await ask(colleague)).status_code == 201
    [asked] = (await acme.http.get("/v1/quota-requests", params={"limit": 2})).json()["items"][1:]
    assert (await acme.http.post(f"/v1/quota-requests/{asked['id']}/withdraw")).is_success
    assert (await ask(acme.http)).status_code == 201


async def test_a_member_of_one_project_asks_for_that_project_alone(acme: Tenant, api: Api) -> None:
    await _put(acme, "/v1/projects/default/envelope", gpus=1)
    account = (await acme.http.post("/v1/service-accounts", json={"name": "trainer"})).json()["id"]
    project = (await acme.http.get("/v1/projects/default")).json()["id"]
    role = {"subject": account, "role": "member", "scope": {"kind": "project", "id": project}}
    assert (await acme.http.post("/v1/role-bindings", json=role)).status_code == 201
    key = {"name": "trainer", "subject": account}
    member = api.client((await acme.http.post("/v1/api-keys", json=key)).json()["secret"])
    of_all = {"limits": {"gpus": 4}, "reason": "a deadline"}
    theirs = (await acme.http.post("/v1/quota-requests", json=of_all)).json()["id"]
    hold(await member.post("/v1/quota-requests", json=of_all), "not_found")
    asked = (await member.post("/v1/quota-requests", json=of_all | {"project": "default"})).json()["id"]
    assert [each["id"] for each in (await member.get("/v1/quota-requests")).json()["items"]] == [asked]
    hold(await member.get(f"/v1/quota-requests/{theirs}"), "not_found")
    hold(await member.post(f"/v1/quota-requests/{theirs}/withdraw"), "not_found")
    hold(await member.post(f"/v1/quota-requests/{asked}/approve", json=WHY), "permission_denied")
    approved = await acme.http.post(f"/v1/quota-requests/{asked}/approve", json=WHY)
    assert approved.json()["state"] == "approved", approved.text


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


async def test_an_operator_decides_on_no_request_of_their_own(operator: Tenant, api: Api) -> None:
    own = api.client(operator.secret)
    me = (await own.get("/v1/me")).json()["subject"]
    role = {"subject": me, "role": "admin", "scope": {"kind": "organization"}}
    granted = await operator.http.post("/v1/role-bindings", json=role)
    assert granted.status_code == 201, granted.text
    body = {"limits": {"gpus": 128}, "reason": "our own tests"}
    asked = (await own.post("/v1/quota-requests", json=body)).json()
    assert asked["asked_by"] == me
    path = f"/v1/operator/organizations/org_{operator.id.hex}/quota-requests/{asked['id']}"
    for verb in ("approve", "decline"):
        hold(await own.post(f"{path}/{verb}", json=WHY), "own_request")
    assert (await own.get(f"/v1/quota-requests/{asked['id']}")).json()["state"] == "pending"


async def test_operators_see_the_quota_requests_of_all_organizations_by_their_state_and_in_pages(
    acme: Tenant, operator: Tenant, api: Api
) -> None:
    asked: list[tuple[str, str]] = []
    rival = await api.tenant("rival")
    for tenant in (acme, rival, acme):
        body = {"limits": {"gpus": 128}, "reason": "a larger model"}
        made = (await tenant.http.post("/v1/quota-requests", json=body)).json()
        asked.append((made["id"], f"org_{tenant.id.hex}"))
        api.clock.advance(1)
    first, organization = asked[0]
    path = f"/v1/operator/organizations/{organization}/quota-requests/{first}/decline"
    assert (await operator.http.post(path, json=WHY)).status_code == 200
    every = "/v1/operator/quota-requests"
    seen: list[tuple[str, str]] = []
    query: dict[str, str] = {"limit": "1"}
    while len(seen) <= len(asked):
        page = (await operator.http.get(every, params=query)).json()
        seen += [(each["id"], each["organization_id"]) for each in page["items"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert seen == list(reversed(asked))
    for state, ids in (("pending", [asked[2][0], asked[1][0]]), ("declined", [first]), ("expired", [])):
        found = (await operator.http.get(f"{every}?state={state}")).json()["items"]
        assert [each["id"] for each in found] == ids, state
    own = (await acme.http.get("/v1/quota-requests?state=pending")).json()["items"]
    assert [each["id"] for each in own] == [asked[2][0]]
    hold(await acme.http.get(every), "permission_denied")
    api.clock.advance(14 * 24 * 3_600)
    found = (await operator.http.get(f"{every}?state=expired")).json()["items"]
    assert [(each["id"], each["state"]) for each in found] == [
        (asked[2][0], "expired"),
        (asked[1][0], "expired"),
    ]


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
    hold(await acme.http.patch(f"/v1/leases/{lease}", json={"sku": "h100x8"}), "lease_ending")


MACHINE = text("UPDATE leases SET state = 'ready', ready_at = now() WHERE id = :id")


async def test_a_lease_that_has_its_machine_says_what_to_do_instead_of_resizing_or_moving_it(
    acme: Tenant, api: Api
) -> None:
    lease = await acme.lease()
    async with api.owner.db.transaction() as connection:
        await connection.execute(MACHINE, {"id": UUID(hex=lease[3:])})
    for change in ({"sku": "h100x8"}, {"regions": ["eu"]}, {"priority": 80}, {"price_usd_per_hour_max": "1"}):
        refused = await acme.http.patch(f"/v1/leases/{lease}", json=change)
        hold(refused, "lease_has_machine")
        assert "create another lease" in refused.json()["detail"], change
    extended = await acme.http.patch(f"/v1/leases/{lease}", json={"auto_release": {"after_seconds": 7_200}})
    assert extended.status_code == 200, extended.text


async def test_a_priority_is_bounded_by_envelopes_and_lowered_always(acme: Tenant) -> None:
    await _put(acme, "/v1/organization/envelope", priority_max=60)
    hold(await acme.http.post("/v1/leases", json=LEASE | {"priority": 61}), "envelope_excludes")
    hold(await acme.http.put("/v1/projects/default/envelope", json={"priority_max": 61}), "envelope_too_wide")
    lease = await acme.lease(priority=60)
    path = f"/v1/leases/{lease}"
    hold(await acme.http.patch(path, json={"priority": 61}), "envelope_excludes")
    await _put(acme, "/v1/organization/envelope", priority_max=10, gpus=0)
    lowered = await acme.http.patch(path, json={"priority": 20})
    assert lowered.status_code == 200, lowered.text
    assert lowered.json()["request"]["priority"] == 20
    await _put(acme, "/v1/organization/envelope", priority_max=100)
    assert (await acme.http.patch(path, json={"priority": 90})).status_code == 200
    decisions = (await acme.http.get(f"/v1/admission-decisions?lease={lease}")).json()["items"]
    assert [(each["action"], each["outcome"]) for each in decisions] == [
        ("lease_priority", "allowed"),
        ("lease_priority", "refused"),
        ("lease_create", "allowed"),
    ]


BATCH = LEASE | {"count": 3, "name": "worker"}


async def test_a_batch_is_created_as_a_whole_by_one_decision(acme: Tenant) -> None:
    body = BATCH | {"labels": {"run": "7"}}
    key = {"Idempotency-Key": "once"}
    made = await acme.http.post("/v1/leases/batch", json=body, headers=key)
    assert made.status_code == 202, made.text
    leases = made.json()["items"]
    assert [lease["name"] for lease in leases] == ["worker-1", "worker-2", "worker-3"]
    assert all(lease["labels"] == {"run": "7"} for lease in leases)
    again = await acme.http.post("/v1/leases/batch", json=body, headers=key)
    assert again.json() == made.json(), "a repeated request makes no second batch"
    own = (await acme.http.get("/v1/organization")).json()
    assert (own["gpus_held"], own["held"]["usd"]) == (3, "10.800000000")
    for lease in leases:
        (decision,) = (await acme.http.get(f"/v1/admission-decisions?lease={lease['id']}")).json()["items"]
        gpus = next(rule for rule in decision["rules"] if rule["rule"] == "gpus")
        assert (decision["action"], gpus["used"], gpus["wanted"]) == ("lease_batch", "0", "3")


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"gpus": 2}, "quota_exceeded"),
        ({"gpus_of_model": {"h100-sxm-80gb": 2}}, "quota_exceeded"),
        ({"spend_usd_per_hour_max": "10.79"}, "spend_limit_reached"),
        ({"spend_usd_per_month_max": "10.79"}, "spend_limit_reached"),
        ({"batch_size_max": 2}, "envelope_excludes"),
    ],
    ids=str,
)
async def test_a_batch_that_does_not_fit_as_a_whole_creates_nothing(
    acme: Tenant, limits: dict[str, object], code: str
) -> None:
    await _put(acme, "/v1/organization/envelope", **limits)
    hold(await acme.http.post("/v1/leases/batch", json=BATCH), code)
    assert (await acme.http.get("/v1/leases")).json()["items"] == []
    (decision,) = (await acme.http.get("/v1/admission-decisions")).json()["items"]
    assert (decision["action"], decision["code"]) == ("lease_batch", code)
    assert (await acme.http.post("/v1/leases/batch", json=BATCH | {"count": 2})).status_code == 202


async def test_a_batch_without_the_money_or_with_a_taken_name_creates_nothing(api: Api) -> None:
    poor = await api.tenant("poor", credit="10")
    hold(await poor.http.post("/v1/leases/batch", json=BATCH), "balance_too_low")
    rich = await api.tenant("rich")
    await rich.lease(name="worker-2")
    hold(await rich.http.post("/v1/leases/batch", json=BATCH), "name_taken")
    assert [lease["name"] for lease in (await rich.http.get("/v1/leases")).json()["items"]] == ["worker-2"]
    hold(await rich.http.post("/v1/leases/batch", json=BATCH | {"name": "n" * 61}), "invalid_request")


async def test_a_quote_is_of_the_project_and_environment_that_it_names_and_shows_every_rule(
    acme: Tenant,
) -> None:
    await acme.http.post("/v1/projects", json={"name": "research"})
    await _put(acme, "/v1/projects/research/environments/default/envelope", gpus=0)
    elsewhere = (await acme.http.post("/v1/quotes", json={"sku": "h100x1"})).json()
    assert (elsewhere["project"], elsewhere["verdict"]["admitted"]) == ("default", True)
    quote = (await acme.http.post("/v1/quotes", json={"sku": "h100x1", "project": "research"})).json()
    assert (quote["project"], quote["environment"]) == ("research", "default")
    verdict = quote["verdict"]
    assert (verdict["code"], verdict["refusals"][0]["level"]) == ("quota_exceeded", "environment")
    spoken = {(rule["rule"], rule["level"]): rule["verdict"] for rule in verdict["rules"]}
    assert spoken["gpus", "environment"] == "refused"
    assert spoken["gpus", "ceiling"] == spoken["balance", None] == "allowed"
    created = await acme.http.post("/v1/leases", json=LEASE | {"project": "research"})
    hold(created, "quota_exceeded")
    assert created.json()["refusals"] == verdict["refusals"], "a quote and a create agree"
    hold(await acme.http.post("/v1/quotes", json={"sku": "h100x1", "project": "none"}), "project_unknown")
    hold(
        await acme.http.post("/v1/quotes", json={"sku": "h100x1", "environment": "none"}),
        "environment_unknown",
    )


async def test_a_quote_within_a_burst_shows_the_price_of_the_burst(acme: Tenant, operator: Tenant) -> None:
    burst = {"over_percent": 100, "seconds": 3_600, "price_percent": 150}
    await _put(operator, _ceiling(acme), gpus=1, burst=burst)
    await acme.lease()
    quote = (await acme.http.post("/v1/quotes", json={"sku": "h100x1"})).json()
    assert quote["price_per_hour"]["usd"] == "5.400000000"
    assert "burst" in {rule["verdict"] for rule in quote["verdict"]["rules"]}


async def test_money_is_posted_while_an_organization_can_use_it(api: Api, operator: Tenant) -> None:
    for state, status in (
        (OrganizationState.ACTIVE, 201),
        (OrganizationState.SUSPENDED, 201),
        (OrganizationState.CLOSING, 409),
        (OrganizationState.CLOSED, 409),
        (OrganizationState.DELETED, 409),
    ):
        tenant = await tenant_in(api, operator, state, f"is {state}")
        path = f"/v1/operator/organizations/org_{tenant.id.hex}"
        before = (await operator.http.get(path)).json()["balance"]
        answer = await top_up(operator, f"org_{tenant.id.hex}", "5")
        assert answer.status_code == status, (state, answer.text)
        if status == 409:
            hold(answer, "organization_state")
            assert f"is {state}" in answer.json()["detail"]
            assert (await operator.http.get(path)).json()["balance"] == before, state
