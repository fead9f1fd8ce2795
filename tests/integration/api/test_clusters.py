"""Clusters and server hosts over HTTP: added, built, seen by those who may use them, deleted."""

from typing import Any

import pytest
from sqlalchemy import text

from data_plane.access.port import StepFailed, Unreachable
from data_plane.simulation.servers import FakeServers
from tests.integration.api.conftest import Tenant
from tests.integration.api.problems import hold
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database

HOSTS, CLUSTERS = "/v1/operator/server-hosts", "/v1/operator/clusters"
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl root@k8s"


async def _host(operator: Tenant, name: str, region: str = "eu-central-1", **other: object) -> dict[str, Any]:
    body = {"name": name, "region": region, "address": f"{name}.internal", "host_key": HOST_KEY, **other}
    answer = await operator.http.post(HOSTS, json=body)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def _cluster(operator: Tenant, name: str, **other: object) -> dict[str, Any]:
    body = {"name": name, "region": "eu-central-1", **other}
    answer = await operator.http.post(CLUSTERS, json=body)
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


def _servers(stage: Stage) -> FakeServers:
    assert isinstance(stage.world.servers, FakeServers)
    return stage.world.servers


async def _names(tenant: Tenant) -> list[str]:
    return [cluster["name"] for cluster in (await tenant.http.get("/v1/clusters")).json()["items"]]


async def test_a_cluster_is_built_on_a_free_host_of_its_region(stage: Stage, operator: Tenant) -> None:
    await _host(operator, "k8s-1", region="us-east-1")
    await _host(operator, "k8s-2", outside="k8s-2.example.com")
    made = await _cluster(operator, "eu-1")
    assert (made["state"], made["version"], made["endpoint"]) == ("building", None, None)
    await stage.play(4)
    ready = (await operator.http.get("/v1/clusters/eu-1")).json()
    assert ready == (await operator.http.get(f"/v1/clusters/{made['id']}")).json()
    assert ready["state"] == "ready"
    assert ready["endpoint"] == "https://k8s-2.example.com:6443"
    assert ready["version"].startswith("v1.")
    hosts = (await operator.http.get(HOSTS)).json()["items"]
    assert {host["name"]: host["cluster_id"] for host in hosts} == {"k8s-1": None, "k8s-2": made["id"]}
    assert list(_servers(stage).running) == ["k8s-2.internal"]


async def test_what_a_server_joins_with_is_sealed_before_a_host_gets_it_and_used_again_after_a_failure(
    stage: Stage, operator: Tenant
) -> None:
    await _host(operator, "k8s-1")
    await _cluster(operator, "eu-1")
    kept = text("SELECT token_secret_id, admin_secret_id FROM clusters")
    _servers(stage).fail_next = [Unreachable("no route")]
    await stage.run("build_clusters")
    async with stage.db.reading() as connection:
        (before,) = await rows(connection, kept)
    assert before.token_secret_id is not None
    failing = (await operator.http.get("/v1/clusters/eu-1")).json()
    assert (failing["state"], failing["failing_why"]) == ("building", "Unreachable: no route")
    assert failing["failing_since"] is not None
    await stage.play(15)
    async with stage.db.reading() as connection:
        (after,) = await rows(connection, kept)
    assert after.token_secret_id == before.token_secret_id
    assert after.admin_secret_id is not None
    ready = (await operator.http.get("/v1/clusters/eu-1")).json()
    assert (ready["state"], ready["failing_since"], ready["failing_why"]) == ("ready", None, None)


async def test_shared_clusters_are_everybodys_and_a_dedicated_one_is_seen_by_its_organization_alone(
    stage: Stage, operator: Tenant, acme: Tenant, other: Tenant
) -> None:
    for number in range(2):
        await _host(operator, f"k8s-{number}")
    await _cluster(operator, "shared")
    of_acme = await _cluster(operator, "acme", organization_id=f"org_{acme.id.hex}")
    assert of_acme["organization_id"] == f"org_{acme.id.hex}"
    assert await _names(operator) == ["shared", "acme"]
    assert await _names(acme) == ["shared", "acme"]
    assert await _names(other) == ["shared"]
    for word in ("acme", of_acme["id"]):
        hold(await other.http.get(f"/v1/clusters/{word}"), "not_found")
    assert (await acme.http.get("/v1/clusters/acme")).json()["id"] == of_acme["id"]


async def test_why_a_cluster_fails_is_for_operators(stage: Stage, operator: Tenant, acme: Tenant) -> None:
    await _host(operator, "k8s-1")
    await _cluster(operator, "eu-1")
    hold(await operator.http.post(f"{CLUSTERS}/eu-1/key-rotations"), "cluster_not_ready")
    _servers(stage).fail_next = [StepFailed("install server", 70, "disk of k8s-1.internal is full")]
    await stage.run("build_clusters")
    seen = (await acme.http.get("/v1/clusters/eu-1")).json()
    assert (seen["failing_since"] is not None, seen["failing_why"]) == (True, None)
    assert "is full" in (await operator.http.get("/v1/clusters/eu-1")).json()["failing_why"]


async def test_a_deleted_cluster_is_dismantled_its_secrets_are_destroyed_and_its_host_is_free(
    stage: Stage, operator: Tenant
) -> None:
    await _host(operator, "k8s-1")
    made = await _cluster(operator, "eu-1")
    await stage.play(4)
    asked = [(await operator.http.post(f"{CLUSTERS}/eu-1/key-rotations")).json() for _ in range(2)]
    assert asked[0]["key_change_requested_at"] == asked[1]["key_change_requested_at"] is not None
    hold(await operator.http.delete(f"{HOSTS}/k8s-1"), "server_host_in_use")
    _servers(stage).fail_next = [Unreachable("no route")]
    for _ in range(2):
        answer = await operator.http.post(f"{CLUSTERS}/eu-1/deletion")
        assert (answer.status_code, answer.json()["state"]) == (202, "deleting")
    await stage.play(6)
    assert _servers(stage).running, "the host could not be reached, so the cluster is not gone"
    await stage.play(15)
    assert not _servers(stage).running
    assert (await operator.http.get(f"/v1/clusters/{made['id']}")).json()["state"] == "gone"
    assert await _names(operator) == []
    async with stage.db.reading() as connection:
        assert await rows(connection, text("SELECT id FROM secrets WHERE purpose = 'clusters'")) == []
    again = await _cluster(operator, "eu-1")
    assert again["id"] != made["id"], "name, range and host are free again"
    hold(await operator.http.post(f"{CLUSTERS}/eu-9/deletion"), "not_found")


async def test_a_cluster_that_is_deleted_while_it_is_built_is_dismantled(
    stage: Stage, operator: Tenant
) -> None:
    await _host(operator, "k8s-1")
    await _cluster(operator, "eu-1")
    servers, install = _servers(stage), _servers(stage).install

    async def deleted_meanwhile(order: Any) -> Any:
        await operator.http.post(f"{CLUSTERS}/eu-1/deletion")
        return await install(order)

    servers.install = deleted_meanwhile  # type: ignore[method-assign] # What happens during the call.
    await stage.run("build_clusters")
    assert servers.running
    await stage.play(6)
    assert not servers.running
    assert await _names(operator) == []


async def test_what_cannot_be_created_is_refused_with_what_to_change(operator: Tenant, acme: Tenant) -> None:
    refused = await operator.http.post(CLUSTERS, json={"name": "eu-1", "region": "eu-central-1"})
    hold(refused, "server_hosts_in_use")
    assert "add one" in refused.json()["detail"]
    await _host(operator, "k8s-1")
    elsewhere = await operator.http.post(CLUSTERS, json={"name": "eu-1", "region": "us-east-1"})
    hold(elsewhere, "server_hosts_in_use")
    assert "eu-central-1" in elsewhere.json()["detail"]
    assert await _names(operator) == [], "nothing is half done"
    for body, code in (
        ({"name": "cl_1"}, "name_reserved"),
        ({"name": "eu-1", "organization_id": f"org_{0:032x}"}, "organization_unknown"),
        ({"name": "eu-1", "organization_id": "acme"}, "invalid_request"),
    ):
        hold(await operator.http.post(CLUSTERS, json={"region": "eu-central-1", **body}), code)
    await _cluster(operator, "eu-1")
    hold(await operator.http.post(CLUSTERS, json={"name": "eu-1", "region": "eu-central-1"}), "name_taken")
    hold(await acme.http.post(CLUSTERS, json={"name": "x", "region": "eu-central-1"}), "permission_denied")


async def test_server_hosts_are_added_with_a_key_that_can_be_one_listed_and_removed(
    operator: Tenant, acme: Tenant
) -> None:
    host = await _host(operator, "k8s-1", ssh_port=2222)
    assert host["host_key"] == HOST_KEY.rpartition(" ")[0]
    assert (host["outside"], host["ssh_port"]) == ("k8s-1.internal", 2222)
    body = {"name": "k8s-1", "region": "eu", "address": "192.0.2.1", "host_key": HOST_KEY}
    hold(await operator.http.post(HOSTS, json=body), "name_taken")
    hold(await operator.http.post(HOSTS, json=body | {"name": "k8s-2", "host_key": "x"}), "host_key_invalid")
    hold(await operator.http.post(HOSTS, json=body | {"name": "k8s-2", "address": "a b"}), "invalid_request")
    hold(await acme.http.get(HOSTS), "permission_denied")
    hold(await operator.http.delete(f"{HOSTS}/k8s-9"), "not_found")
    assert (await operator.http.delete(f"{HOSTS}/k8s-1")).status_code == 204
    assert (await operator.http.get(HOSTS)).json()["items"] == []
