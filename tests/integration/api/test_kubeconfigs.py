"""Kubeconfigs over HTTP, with a simulated cluster: who gets one, who can read it, and what takes it back."""

import base64
import json
from typing import Any

import httpx
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from sqlalchemy import text

from control_plane.domain.permission import Permission
from data_plane.cluster.port import Invalid, Unreachable
from data_plane.cluster.resource import (
    NAMESPACE,
    NETWORK_POLICY,
    RESOURCE_QUOTA,
    SECRET,
    SERVICE_ACCOUNT,
    Object,
)
from data_plane.simulation.kubernetes import FakeClusters, FakeKubernetes
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.endpoints import SERVER_HOST
from tests.integration.api.problems import hold, hold_denied
from tests.integration.api.test_subjects import account
from tests.support.cases import case
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database

SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
OURS = X25519PrivateKey.generate()


def key(private: X25519PrivateKey = OURS) -> str:
    return base64.b64encode(private.public_key().public_bytes_raw()).decode()


@pytest.fixture
async def server(stage: Stage, operator: Tenant) -> FakeKubernetes:
    """The API server of the shared cluster eu-1."""
    return await _cluster(stage, operator)


async def _cluster(stage: Stage, operator: Tenant, name: str = "eu-1", **other: object) -> FakeKubernetes:
    host = SERVER_HOST | {"name": f"of {name}", "outside": f"{name}.example.com"}
    assert (await operator.http.post("/v1/operator/server-hosts", json=host)).status_code == 201
    body = {"name": name, "region": "eu-central-1", **other}
    assert (await operator.http.post("/v1/operator/clusters", json=body)).status_code == 202
    await stage.run("build_clusters")
    assert isinstance(stage.world.kubernetes, FakeClusters)
    return stage.world.kubernetes.at(f"https://{name}.example.com:6443")


async def ask(http: httpx.AsyncClient, cluster: str = "eu-1", **body: object) -> httpx.Response:
    path = f"/v1/clusters/{cluster}/kubeconfigs"
    return await http.post(path, json={"name": "laptop", "public_key": key(), **body})


async def loops(stage: Stage, times: int = 1) -> None:
    """The loops that keep kubeconfigs and their namespaces, a second and more apart."""
    for _ in range(times):
        for name in ("keep_tenants", "keep_kubeconfigs"):
            for report in await stage.run(name):
                assert not report.errors, report.errors
        stage.clock.advance(2)


async def issued(
    stage: Stage, http: httpx.AsyncClient, cluster: str = "eu-1", **body: object
) -> dict[str, Any]:
    answer = await ask(http, cluster, **body)
    assert answer.status_code == 202, answer.text
    await loops(stage, 4)
    shown: dict[str, Any] = (await http.get(answer.headers["Location"])).json()
    assert shown["state"] == "issued", shown
    return shown


def opened(shown: dict[str, Any], private: X25519PrivateKey = OURS) -> dict[str, Any]:
    text = SUITE.decrypt(base64.b64decode(shown["sealed"]), private, info=shown["id"].encode())
    return dict(json.loads(text))


def token_of(shown: dict[str, Any], private: X25519PrivateKey = OURS) -> str:
    return str(opened(shown, private)["users"][0]["user"]["token"])


async def state_of(http: httpx.AsyncClient, shown: dict[str, Any]) -> tuple[str, str | None]:
    now = (await http.get(f"/v1/kubeconfigs/{shown['id']}")).json()
    return now["state"], now["revoked_why"]


async def test_a_kubeconfig_is_sealed_for_who_asked_and_opens_the_namespace_of_its_project(
    api: Api, stage: Stage, server: FakeKubernetes, acme: Tenant
) -> None:
    answer = await ask(acme.http, lasts_minutes=60)
    wanted = answer.json()
    assert (wanted["state"], wanted["sealed"], wanted["cluster"], wanted["project"]) == (
        "wanted", None, "eu-1", "default",
    )  # fmt: skip
    await loops(stage, 4)
    shown = (await acme.http.get(answer.headers["Location"])).json()
    assert (shown["state"], shown["role"]) == ("issued", "edit")
    file = opened(shown)
    context = file["contexts"][0]["context"]
    assert context["namespace"] == shown["namespace"] == shown["project_id"].replace("_", "-")
    assert file["clusters"][0]["cluster"]["server"] == "https://eu-1.example.com:6443"
    assert server.opens(token_of(shown))
    assert shown["namespace"] in server.named(NAMESPACE)
    with pytest.raises(InvalidTag):
        opened(shown, X25519PrivateKey.generate())
    with pytest.raises(InvalidTag):
        opened({**shown, "id": "kc_" + "0" * 32})
    # The token is readable nowhere in the database.
    async with api.owner.db.reading() as connection:
        [dump] = await rows(connection, text("SELECT array_agg(k::text)::text AS all FROM kubeconfigs k"))
        [lines] = await rows(connection, text("SELECT array_agg(a::text)::text AS all FROM audit_pending a"))
    for stored in (dump.all, lines.all):
        assert token_of(shown).encode().hex() not in stored
        assert token_of(shown) not in stored
    assert [listed["id"] for listed in (await acme.http.get("/v1/kubeconfigs")).json()["items"]] == [
        shown["id"]
    ]


async def test_a_namespace_is_not_ready_before_the_api_server_applies_our_rules(
    stage: Stage, server: FakeKubernetes, acme: Tenant
) -> None:
    server.pods_until_rules_bind = 3
    answer = await ask(acme.http)
    for look in range(3):
        await loops(stage)
        shown = (await acme.http.get(answer.headers["Location"])).json()
        assert (look, shown["state"]) == (look, "wanted")
    await loops(stage, 2)
    assert (await acme.http.get(answer.headers["Location"])).json()["state"] == "issued"


async def test_a_kubeconfig_that_is_over_is_taken_back_and_its_file_erased(
    api: Api, stage: Stage, server: FakeKubernetes, acme: Tenant
) -> None:
    revoked, expiring = await issued(stage, acme.http), await issued(stage, acme.http, lasts_minutes=10)
    answer = await acme.http.post(f"/v1/kubeconfigs/{revoked['id']}/revoke")
    assert (answer.json()["state"], answer.json()["sealed"]) == ("revoked", None)
    await loops(stage)
    assert (server.opens(token_of(revoked)), server.opens(token_of(expiring))) == (False, True)
    stage.clock.advance(600)
    await loops(stage)
    assert await state_of(acme.http, expiring) == ("expired", None)
    assert not server.opens(token_of(expiring))
    assert server.named(SERVICE_ACCOUNT) == set()
    async with api.owner.db.reading() as connection:
        left = await rows(
            connection, text("SELECT id FROM kubeconfigs WHERE sealed IS NOT NULL OR removed_at IS NULL")
        )
        lines = await rows(
            connection,
            text("SELECT event, rule FROM audit_pending WHERE event LIKE 'kubeconfigs.%' ORDER BY number"),
        )
    assert left == []
    told = [(line.event, line.rule) for line in lines if line.event == "kubeconfigs.end"]
    assert told == [("kubeconfigs.end", "revocation:requested"), ("kubeconfigs.end", "expiry")]
    assert sum(line.event == "kubeconfigs.issue" for line in lines) == 2
    again = await acme.http.post(f"/v1/kubeconfigs/{expiring['id']}/revoke")
    assert again.json()["state"] == "expired"


async def test_a_rotated_kubeconfig_works_until_the_overlap_is_over(
    stage: Stage, server: FakeKubernetes, acme: Tenant
) -> None:
    old, other = await issued(stage, acme.http, role="view"), X25519PrivateKey.generate()
    path = f"/v1/kubeconfigs/{old['id']}/rotations"
    answer = await acme.http.post(path, json={"public_key": key(other), "overlap_minutes": 1})
    assert answer.status_code == 202, answer.text
    server.away = True
    stage.clock.advance(61)
    await stage.run("keep_kubeconfigs")
    assert server.opens(token_of(old)), "there is no other one yet"
    server.away = False
    stage.clock.advance(10)
    await loops(stage, 2)
    new = (await acme.http.get(answer.headers["Location"])).json()
    assert (new["state"], new["rotates"], new["role"], new["name"]) == ("issued", old["id"], "view", "laptop")
    assert server.opens(token_of(old))
    assert server.opens(token_of(new, other))
    stage.clock.advance(300)
    await loops(stage)
    assert (server.opens(token_of(old)), server.opens(token_of(new, other))) == (False, True)
    hold(await acme.http.post(path, json={"public_key": key()}), "state_conflict")


async def test_whatever_takes_the_right_away_takes_the_kubeconfig_back(
    api: Api, stage: Stage, server: FakeKubernetes, acme: Tenant, operator: Tenant
) -> None:
    http = acme.http
    organization = f"/v1/operator/organizations/org_{acme.id.hex}"

    async def suspended(of: str) -> None:
        assert (await http.post(f"/v1/service-accounts/{of}/suspend")).is_success

    async def removed(of: str) -> None:
        assert (await http.delete(f"/v1/service-accounts/{of}")).is_success

    async def key_revoked(of: str) -> None:
        [mine] = [each for each in (await http.get("/v1/api-keys")).json()["items"] if each["subject"] == of]
        assert (await http.delete(f"/v1/api-keys/{mine['id']}")).is_success

    async def role_ended(of: str) -> None:
        listed = (await http.get("/v1/role-bindings", params={"subject": of})).json()["items"]
        assert (await http.delete(f"/v1/role-bindings/{listed[0]['id']}")).is_success

    async def organization_suspended(of: str) -> None:
        assert (await operator.http.post(f"{organization}/suspensions", json={"reason": of})).is_success

    for act, why in (
        (suspended, "subject_ended"),
        (removed, "subject_ended"),
        (key_revoked, "credential_ended"),
        (role_ended, "role_ended"),
        (organization_suspended, "organization_suspended"),
    ):
        with case(why, act.__name__):
            scope = {"kind": "project", "id": "default"}
            who, client, _ = await account(api, acme, act.__name__, "member", **scope)
            mine, kept = await issued(stage, client), await issued(stage, http)
            await act(who)
            await loops(stage)
            assert await state_of(http, mine) == ("revoked", why)
            assert not server.opens(token_of(mine))
            if act is not organization_suspended:
                assert await state_of(http, kept) == ("issued", None)
                assert server.opens(token_of(kept))


async def test_who_may_not_gets_none_and_sees_none_of_others(
    api: Api, stage: Stage, server: FakeKubernetes, acme: Tenant, other: Tenant, operator: Tenant
) -> None:
    mine = await issued(stage, acme.http)
    await _cluster(stage, operator, "acmes", organization_id=f"org_{acme.id.hex}")
    hold(await ask(other.http, "acmes"), "not_found")
    hold(await ask(other.http, "none"), "not_found")
    hold(await other.http.get(f"/v1/kubeconfigs/{mine['id']}"), "not_found")
    hold(await other.http.post(f"/v1/kubeconfigs/{mine['id']}/revoke"), "not_found")
    rotation = {"public_key": key()}
    hold(await other.http.post(f"/v1/kubeconfigs/{mine['id']}/rotations", json=rotation), "not_found")
    hold(await ask(other.http, project=mine["project_id"]), "project_unknown")
    assert (await other.http.get("/v1/kubeconfigs")).json()["items"] == []
    assert (await acme.http.post("/v1/projects", json={"name": "research"})).is_success
    _, client, _ = await account(api, acme, "elsewhere", "member", kind="project", id="research")
    hold(await client.get(f"/v1/kubeconfigs/{mine['id']}"), "not_found")
    hold(await client.post(f"/v1/kubeconfigs/{mine['id']}/revoke"), "not_found")
    hold(await client.post(f"/v1/kubeconfigs/{mine['id']}/rotations", json=rotation), "not_found")
    assert (await client.get("/v1/kubeconfigs")).json()["items"] == []
    for project in ({}, {"project": "default"}):
        hold(await ask(client, **project), "project_unknown")
    assert (await ask(client, project="research")).status_code == 202
    _, client, _ = await account(api, acme, "viewer", "viewer", kind="project", id="default")
    hold_denied(await ask(client), Permission.KUBECONFIGS_CREATE)
    assert (await client.get(f"/v1/kubeconfigs/{mine['id']}")).json()["id"] == mine["id"]


async def test_a_request_that_cannot_be_met_says_why(
    stage: Stage, server: FakeKubernetes, acme: Tenant, operator: Tenant
) -> None:
    small = base64.b64encode(bytes(32)).decode()  # A point with which every secret would be the same.
    answer = await ask(acme.http, public_key=small)
    await loops(stage, 4)
    assert (await acme.http.get(answer.headers["Location"])).json()["refused_why"] == "key_unusable"
    assert server.named(SERVICE_ACCOUNT) == set()

    server.away = True
    answer = await ask(acme.http)
    for _ in range(12):
        await stage.run("keep_tenants")
        await stage.run("keep_kubeconfigs")
        stage.clock.advance(30)
    assert (await acme.http.get(answer.headers["Location"])).json()["refused_why"] == "waited_too_long"
    server.away = False

    answer = await ask(acme.http)
    assert (await operator.http.post("/v1/operator/clusters/eu-1/deletion")).status_code == 202
    hold(await ask(acme.http), "cluster_not_ready")
    await stage.run("keep_kubeconfigs")
    assert (await acme.http.get(answer.headers["Location"])).json()["refused_why"] == "cluster_deleted"


async def test_a_revocation_waits_for_a_cluster_that_does_not_answer_and_holds_up_no_other(
    stage: Stage, server: FakeKubernetes, acme: Tenant, operator: Tenant
) -> None:
    there = await _cluster(stage, operator, "us-1")
    here, away = await issued(stage, acme.http), await issued(stage, acme.http, "us-1")
    there.away = True
    for each in (here, away):
        await acme.http.post(f"/v1/kubeconfigs/{each['id']}/revoke")
    [report] = await stage.run("keep_kubeconfigs")
    assert (report.acted_on, len(report.errors)) == (1, 1)
    assert not server.opens(token_of(here))
    there.away = False
    stage.clock.advance(5)
    await loops(stage)
    assert not there.opens(token_of(away))


async def test_one_that_is_revoked_while_it_is_issued_is_not_stored_and_leaves_nothing(
    api: Api, stage: Stage, server: FakeKubernetes, acme: Tenant
) -> None:
    answer = await ask(acme.http)
    await loops(stage, 1)
    stage.clock.advance(2)
    await stage.run("keep_tenants")
    original, made = server.request_token, []

    async def revoked_meanwhile(*given: Any, **named: Any) -> Any:
        token = await original(*given, **named)
        made.append(token.token.value)
        assert (await acme.http.post(f"{answer.headers['Location']}/revoke")).is_success
        return token

    server.request_token = revoked_meanwhile  # type: ignore[method-assign]  # Between the token and its storing.
    await stage.run("keep_kubeconfigs")
    server.request_token = original  # type: ignore[method-assign]
    assert made
    await loops(stage)
    assert not any(server.opens(token) for token in made)
    async with api.owner.db.reading() as connection:
        [row] = await rows(connection, text("SELECT issued_at, sealed, removed_at FROM kubeconfigs"))
    assert (row.issued_at, row.sealed) == (None, None)
    assert row.removed_at is not None


async def test_a_namespace_is_put_right_and_goes_a_day_after_the_project_had_something_there(
    stage: Stage, server: FakeKubernetes, acme: Tenant, other: Tenant
) -> None:
    mine, theirs = await issued(stage, acme.http), await issued(stage, other.http)
    space = mine["namespace"]
    await server.delete(RESOURCE_QUOTA, "splitplane", space)
    opened_up: dict[str, Any] = {"spec": {"ingress": [{}]}}
    await server.patch(NETWORK_POLICY, "splitplane-deny", opened_up, space)
    stage.clock.advance(300)
    await loops(stage)
    denied = await server.get(NETWORK_POLICY, "splitplane-deny", space)
    assert denied["spec"]["ingress"] == []
    assert (await server.get(RESOURCE_QUOTA, "splitplane", space))["spec"]["hard"]["pods"] == "0"
    await acme.http.post(f"/v1/kubeconfigs/{mine['id']}/revoke")
    await loops(stage, 2)
    for hours in (8, 8, 6):  # Not at once: what was stored there is still good when somebody comes back.
        stage.clock.advance(hours * 3_600)
        await loops(stage)
        assert space in server.named(NAMESPACE)
        theirs = await issued(stage, other.http)
    stage.clock.advance(3 * 3_600)
    await loops(stage, 3)
    assert server.named(NAMESPACE) >= {theirs["namespace"]}
    assert space not in server.named(NAMESPACE)
    async with stage.db.reading() as connection:
        [left] = await rows(
            connection, text("SELECT project_id, ready_at IS NOT NULL AS ready FROM cluster_tenants")
        )
    assert (f"prj_{left.project_id.hex}", left.ready) == (theirs["project_id"], True)
    # It is made anew when it is needed again.
    again = await issued(stage, acme.http)
    assert server.opens(token_of(again))


async def test_a_namespace_that_a_customer_holds_up_is_looked_at_ever_less_often(
    stage: Stage, server: FakeKubernetes, acme: Tenant
) -> None:
    mine = await issued(stage, acme.http)
    space = mine["namespace"]
    await server.patch(NAMESPACE, space, {"metadata": {"finalizers": ["example.com/stay"]}})
    await acme.http.post(f"/v1/kubeconfigs/{mine['id']}/revoke")
    await loops(stage, 2)
    stage.clock.advance(25 * 3_600)
    looks = 0
    for _ in range(300):
        [report] = await stage.run("keep_tenants")
        looks += report.looked_at
        stage.clock.advance(2)
    assert 5 <= looks <= 15
    assert space in server.named(NAMESPACE)
    await server.patch(NAMESPACE, space, {"metadata": {"finalizers": None}})
    stage.clock.advance(300)
    await loops(stage)
    assert space not in server.named(NAMESPACE)
    async with stage.db.reading() as connection:
        assert not await rows(connection, text("SELECT FROM cluster_tenants"))


async def test_what_a_cluster_refuses_as_a_whole_holds_up_new_places_and_none_that_is_ready(
    stage: Stage, server: FakeKubernetes, acme: Tenant, other: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, apply = await issued(stage, acme.http), server.apply
    spaces = server.named(NAMESPACE)
    await server.delete(NETWORK_POLICY, "splitplane-deny", mine["namespace"])

    async def refuse_the_reserved_name(intent: Object, *, take_over: bool = False) -> Object:
        if intent["kind"] == SECRET.kind:  # Somebody has created it with another type.
            raise Invalid("type: field is immutable")
        return await apply(intent, take_over=take_over)

    monkeypatch.setattr(server, "apply", refuse_the_reserved_name)
    stage.clock.advance(300)
    answer = await ask(other.http)
    for _ in range(3):
        [report] = await stage.run("keep_tenants")
        assert "field is immutable" in report.errors[0]
        await stage.run("keep_kubeconfigs")
        stage.clock.advance(30)
    assert "splitplane-deny" in server.named(NETWORK_POLICY)
    assert (await state_of(other.http, (await other.http.get(answer.headers["Location"])).json()))[
        0
    ] == "wanted"
    assert server.named(NAMESPACE) == spaces


async def test_a_cluster_that_fails_is_reported_and_tried_again(
    stage: Stage, server: FakeKubernetes, acme: Tenant
) -> None:
    answer = await ask(acme.http)
    server.fail_next = [Unreachable("no route")]
    [report] = await stage.run("keep_tenants")
    assert "no route" in report.errors[0]
    stage.clock.advance(5)
    await loops(stage, 4)
    assert (await acme.http.get(answer.headers["Location"])).json()["state"] == "issued"
