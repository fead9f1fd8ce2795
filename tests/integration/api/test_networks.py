"""Private networks over HTTP: made, listed, named by leases, labelled and deleted."""

import pytest
from sqlalchemy import text

from control_plane.services import networks
from tests.integration.api.conftest import Tenant
from tests.integration.api.problems import hold
from tests.support.stage import Stage

pytestmark = pytest.mark.database

NETWORKS = "/v1/projects/default/networks"


async def _create(tenant: Tenant, name: str, project: str = "default") -> dict[str, object]:
    answer = await tenant.http.post(f"/v1/projects/{project}/networks", json={"name": name})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def _ended(stage: Stage, *leases: str) -> None:
    """Run the cloud until leases that were released have ended."""
    for _ in range(60):
        await stage.turns()
        if set((await stage.states()).values()) <= {"ended"}:
            return
        stage.clock.advance(20)
    raise AssertionError(f"{leases} did not end: {await stage.states()}")


async def test_every_project_has_a_network_and_each_network_a_range_of_its_own(acme: Tenant) -> None:
    await acme.http.post("/v1/projects", json={"name": "research"})
    await _create(acme, "training")
    await _create(acme, "training", "research")
    hold(await acme.http.post(NETWORKS, json={"name": "training"}), "name_taken")
    hold(await acme.http.post(NETWORKS, json={"name": "default"}), "name_taken")
    hold(await acme.http.post(NETWORKS, json={"name": "net_1"}), "name_reserved")
    ranges: dict[tuple[str, str], str] = {}
    for project in ("default", "research"):
        page = (await acme.http.get(f"/v1/projects/{project}/networks")).json()
        assert [network["name"] for network in page["items"]] == ["default", "training"]
        ranges |= {(project, network["name"]): network["range"] for network in page["items"]}
    assert len(set(ranges.values())) == 4
    assert ranges["default", "default"] == "10.64.0.0/22"


async def test_networks_are_paged_and_shown_by_name_or_id(acme: Tenant) -> None:
    made = await _create(acme, "training")
    first = (await acme.http.get(f"{NETWORKS}?limit=1")).json()
    assert [network["name"] for network in first["items"]] == ["default"]
    rest = (await acme.http.get(f"{NETWORKS}?limit=1&cursor={first['next_cursor']}")).json()
    assert (rest["items"], rest["next_cursor"]) == ([made], None)
    for word in ("training", made["id"]):
        assert (await acme.http.get(f"{NETWORKS}/{word}")).json() == made
    for unknown in ("trainin", f"net_{0:032x}", "net_zz"):
        hold(await acme.http.get(f"{NETWORKS}/{unknown}"), "not_found")


async def test_a_lease_joins_the_network_that_it_names_and_shows_among_its_members(
    stage: Stage, acme: Tenant
) -> None:
    training = await _create(acme, "training")
    named, unnamed = await acme.lease(network="training", name="a"), await acme.lease(name="b")
    by_id = await acme.lease(network=training["id"], name="c")
    await stage.play(60)
    shown = {lease: (await acme.http.get(f"/v1/leases/{lease}")).json() for lease in (named, unnamed, by_id)}
    assert [shown[lease]["network"] for lease in (named, unnamed, by_id)] == [
        "training",
        "default",
        "training",
    ]
    assert shown[named]["network_id"] == training["id"]
    members = (await acme.http.get(f"{NETWORKS}/training/members?limit=1")).json()
    members["items"] += (
        await acme.http.get(f"{NETWORKS}/training/members?cursor={members['next_cursor']}")
    ).json()["items"]
    assert {member["lease_id"]: member["address"] for member in members["items"]} == {
        lease: shown[lease]["machine"]["mesh_address"] for lease in (named, by_id)
    }
    assert (await acme.http.get(f"{NETWORKS}/training")).json()["members"] == 2
    assert (await acme.http.get(f"{NETWORKS}/default")).json()["members"] == 1
    refused = await acme.http.post(
        "/v1/leases", json={"sku": "h100x1", "ssh_key_ids": [], "network": "trainning"}
    )
    hold(refused, "network_unknown")
    assert "did you mean 'training'" in refused.json()["detail"] or "training" in refused.json()["detail"]


async def test_a_network_is_deleted_when_its_last_lease_has_ended_and_its_name_and_range_are_free_again(
    stage: Stage, acme: Tenant
) -> None:
    made = await _create(acme, "training")
    lease = await acme.lease(network="training", name="train")
    refused = await acme.http.delete(f"{NETWORKS}/training")
    hold(refused, "network_in_use")
    assert "train" in refused.json()["detail"]
    await acme.http.post(f"/v1/leases/{lease}/release")
    await _ended(stage, lease)
    assert (await acme.http.delete(f"{NETWORKS}/training")).status_code == 204
    hold(await acme.http.get(f"{NETWORKS}/training"), "not_found")
    hold(await acme.http.delete(f"{NETWORKS}/{made['id']}"), "not_found")
    hold(
        await acme.http.post("/v1/leases", json={"sku": "h100x1", "ssh_key_ids": [], "network": made["id"]}),
        "network_unknown",
    )
    assert (await acme.http.get(f"/v1/leases/{lease}")).json()["network"] == "training"
    again = await _create(acme, "training")
    assert (again["range"], again["id"] == made["id"]) == (made["range"], False)
    hold(await acme.http.delete(f"{NETWORKS}/default"), "name_reserved")


async def test_labels_are_replaced(acme: Tenant) -> None:
    await _create(acme, "training")
    for labels in ({"team": "vision"}, {"cost-center": "42"}, {}):
        answer = await acme.http.put(f"{NETWORKS}/training/labels", json={"labels": labels})
        assert answer.json()["labels"] == labels
        assert (await acme.http.get(f"{NETWORKS}/training")).json()["labels"] == labels
    hold(await acme.http.put(f"{NETWORKS}/other/labels", json={"labels": {}}), "not_found")


async def test_another_organizations_and_another_projects_networks_are_unknown(
    acme: Tenant, other: Tenant
) -> None:
    theirs = await _create(other, "secret")
    await acme.http.post("/v1/projects", json={"name": "research"})
    elsewhere = await _create(acme, "elsewhere", "research")
    for network in (theirs, elsewhere):
        for word in (network["id"], network["name"]):
            hold(await acme.http.get(f"{NETWORKS}/{word}"), "not_found")
            hold(await acme.http.get(f"{NETWORKS}/{word}/members"), "not_found")
            hold(await acme.http.delete(f"{NETWORKS}/{word}"), "not_found")
            body = {"sku": "h100x1", "ssh_key_ids": [], "network": word}
            hold(await acme.http.post("/v1/leases", json=body), "network_unknown")
    assert (await other.http.get(f"{NETWORKS}/secret")).json() == theirs


async def test_networks_are_bounded_for_a_project_and_by_the_ranges_of_an_organization(
    stage: Stage, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(networks, "NETWORKS_MAX", 2)
    await _create(acme, "training")
    hold(await acme.http.post(NETWORKS, json={"name": "third"}), "networks_too_many")
    async with stage.db.transaction() as connection:
        await connection.execute(
            text("""
            INSERT INTO networks (id, organization_id, project_id, name, block, created_at)
            SELECT gen_random_uuid(), organization_id, project_id, 'n' || n, n, created_at
            FROM networks, generate_series(2, 4095) n WHERE organization_id = :id AND block = 0
            """),
            {"id": acme.id},
        )
    monkeypatch.setattr(networks, "NETWORKS_MAX", 10_000)
    hold(await acme.http.post(NETWORKS, json={"name": "third"}), "networks_too_many")
    hold(await acme.http.post("/v1/projects", json={"name": "research"}), "networks_too_many")
    names = [project["name"] for project in (await acme.http.get("/v1/projects")).json()["items"]]
    assert names == ["default"], "a project without a network was made"
