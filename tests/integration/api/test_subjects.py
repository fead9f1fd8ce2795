"""Users, service accounts and their roles: changes count at once, and nobody passes on more than they have."""

from typing import Any

import httpx
import pytest

from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.open_stream import OpenStream
from tests.integration.api.problems import hold
from tests.support.listening import until

pytestmark = pytest.mark.database


async def made(http: httpx.AsyncClient, path: str, **body: Any) -> str:
    answer = await http.post(path, json=body)
    assert answer.is_success, answer.text
    return str(answer.json()["id"])


async def grant(http: httpx.AsyncClient, subject: str, role: str, **scope: str) -> httpx.Response:
    wanted = scope or {"kind": "organization"}
    return await http.post("/v1/role-bindings", json={"subject": subject, "role": role, "scope": wanted})


async def account(
    api: Api, tenant: Tenant, name: str, role: str | None = None, **scope: str
) -> tuple[str, httpx.AsyncClient, str]:
    """A service account with a role: its id, its client, its secret."""
    subject = await made(tenant.http, "/v1/service-accounts", name=name)
    if role is not None:
        answer = await grant(tenant.http, subject, role, **scope)
        assert answer.status_code == 201, answer.text
    issued = (await tenant.http.post("/v1/api-keys", json={"name": "k", "subject": subject})).json()
    return subject, api.client(issued["secret"]), issued["secret"]


async def test_a_role_counts_at_once_when_it_is_granted_and_when_it_ends(api: Api, acme: Tenant) -> None:
    subject, client, _ = await account(api, acme, "runner")
    assert (await client.get("/v1/me")).json()["permissions"] == []
    assert "you have no role" in (await client.get("/v1/leases")).json()["detail"]
    binding = (await grant(acme.http, subject, "viewer")).json()["id"]
    assert (await client.get("/v1/leases")).status_code == 200
    assert (await acme.http.delete(f"/v1/role-bindings/{binding}")).status_code == 204
    hold(await client.get("/v1/leases"), "permission_denied")


async def test_suspension_refuses_keys_at_once_and_a_resumption_accepts_them_again(
    api: Api, acme: Tenant
) -> None:
    subject, client, _ = await account(api, acme, "runner", "viewer")
    assert (await client.get("/v1/leases")).status_code == 200
    path = f"/v1/service-accounts/{subject}"
    for _ in range(2):  # Once more changes nothing.
        assert (await acme.http.post(f"{path}/suspend")).json()["state"] == "suspended"
    hold(await client.get("/v1/leases"), "unauthenticated")
    assert (await acme.http.post(f"{path}/resume")).json()["state"] == "active"
    assert (await client.get("/v1/leases")).status_code == 200
    assert (await acme.http.delete(path)).status_code == 204
    hold(await client.get("/v1/leases"), "unauthenticated")
    hold(await acme.http.post(f"{path}/resume"), "not_found")
    hold(await acme.http.get(path), "not_found")
    assert (await acme.http.get("/v1/role-bindings", params={"subject": subject})).json()["items"] == []


async def test_a_stream_ends_when_its_reader_loses_the_role_or_is_suspended(api: Api, acme: Tenant) -> None:
    lease = await acme.lease()
    for change in ("role", "suspension"):
        subject, _, secret = await account(api, acme, change)
        binding = (await grant(acme.http, subject, "viewer", kind="lease", id=lease)).json()["id"]
        stream = OpenStream(api.app, secret, lease)
        await stream.until(b"event: status")
        if change == "role":
            await acme.http.delete(f"/v1/role-bindings/{binding}")
        else:
            await acme.http.post(f"/v1/service-accounts/{subject}/suspend")
        await until(stream.task.done)


async def test_nobody_grants_themselves_a_role_or_suspends_themselves(acme: Tenant) -> None:
    own = (await acme.http.get("/v1/me")).json()["subject"]
    hold(await grant(acme.http, own, "viewer"), "not_yourself")
    hold(await acme.http.post(f"/v1/service-accounts/{own}/suspend"), "not_yourself")
    hold(await acme.http.delete(f"/v1/service-accounts/{own}"), "not_yourself")


async def test_an_admin_appoints_no_owner_and_touches_none(api: Api, acme: Tenant) -> None:
    _, admin, _ = await account(api, acme, "admin", "admin")
    runner, _, _ = await account(api, acme, "runner")
    owner = (await acme.http.get("/v1/me")).json()["subject"]
    refused = await grant(admin, runner, "owner")
    hold(refused, "beyond_your_roles")
    assert "`owners.appoint`" in refused.json()["detail"]
    hold(await admin.post(f"/v1/service-accounts/{owner}/suspend"), "beyond_your_roles")
    hold(await admin.post("/v1/api-keys", json={"name": "theirs", "subject": owner}), "beyond_your_roles")
    key = (await acme.http.get("/v1/api-keys")).json()["items"][0]["id"]
    hold(await admin.delete(f"/v1/api-keys/{key}"), "beyond_your_roles")
    hold(await admin.post(f"/v1/api-keys/{key}/rotations", json={}), "beyond_your_roles")
    await account(api, acme, "second", "owner")  # So that no role is the last owner's.
    [of_owner] = (await acme.http.get("/v1/role-bindings", params={"subject": owner})).json()["items"]
    hold(await admin.delete(f"/v1/role-bindings/{of_owner['id']}"), "beyond_your_roles")
    assert (await grant(admin, runner, "member")).status_code == 201


async def test_an_organization_keeps_an_owner(api: Api, acme: Tenant) -> None:
    [binding] = (await acme.http.get("/v1/role-bindings")).json()["items"]
    hold(await acme.http.delete(f"/v1/role-bindings/{binding['id']}"), "last_owner")
    second, other, _ = await account(api, acme, "second", "owner")
    assert (await other.delete(f"/v1/role-bindings/{binding['id']}")).status_code == 204
    hold(await other.delete(f"/v1/service-accounts/{second}"), "not_yourself")


async def test_who_runs_machines_and_who_posts_money_stay_apart(api: Api, operator: Tenant) -> None:
    path = "/v1/finance/transactions"
    body = {
        "organization_id": f"org_{operator.id.hex}",
        "kind": "top_up",
        "amount_usd": "1",
        "reason": "SEPA",
    }
    runs = api.client(operator.secret)
    pays = api.client(operator.secret_for("POST", path))
    hold(await runs.post(path, json=body), "permission_denied")
    hold(await pays.get("/v1/operator/loops"), "permission_denied")
    own = {"kind": "platform"}
    pays_id, runs_id = [(await each.get("/v1/me")).json()["subject"] for each in (pays, runs)]
    hold(await grant(runs, pays_id, "operator", **own), "duties_not_separated")
    hold(await grant(runs, pays_id, "finance", **own), "beyond_your_roles")
    hold(await grant(pays, runs_id, "finance", **own), "duties_not_separated")
    hold(await runs.post("/v1/api-keys", json={"name": "x", "subject": pays_id}), "beyond_your_roles")


async def test_only_the_platforms_organization_has_roles_at_platform_scope(api: Api, acme: Tenant) -> None:
    subject, _, _ = await account(api, acme, "runner")
    for role in ("operator", "auditor", "finance"):
        hold(await grant(acme.http, subject, role, kind="platform"), "scope_invalid")
    hold(await grant(acme.http, subject, "operator"), "scope_invalid")


async def test_names_and_email_addresses_are_free_again_once_somebody_is_removed(acme: Tenant) -> None:
    for path, body in (
        ("/v1/users", {"email": "ada@example.com", "name": "Ada"}),
        ("/v1/service-accounts", {"name": "runner"}),
    ):
        first = await made(acme.http, path, **body)
        hold(await acme.http.post(path, json=body), "name_taken")
        assert (await acme.http.delete(f"{path}/{first}")).status_code == 204
        assert await made(acme.http, path, **body) != first


async def test_a_role_that_is_held_or_names_nothing_is_refused(api: Api, acme: Tenant, other: Tenant) -> None:
    subject, _, _ = await account(api, acme, "runner", "viewer")
    foreign, _, _ = await account(api, other, "runner")
    lease = await other.lease()
    for answer, code in (
        (await grant(acme.http, subject, "viewer"), "role_held"),
        (await grant(acme.http, foreign, "viewer"), "subject_unknown"),
        (await grant(acme.http, subject, "viewer", kind="project", id="none"), "project_unknown"),
        (await grant(acme.http, subject, "viewer", kind="lease", id=lease), "lease_unknown"),
        (await grant(acme.http, subject, "viewer", kind="lease"), "scope_invalid"),
        (await grant(acme.http, subject, "viewer", kind="organization", id="x"), "scope_invalid"),
    ):
        hold(answer, code)
