"""Node pools over HTTP: created, listed, scaled, deleted; their leases, and who may not touch those alone."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import text

from control_plane.db import node_pools, scaled_pools
from control_plane.domain.ids import NodePoolId, ScaledPoolId
from control_plane.domain.scaled_pool import not_so
from control_plane.world import uuid7
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.endpoints import SERVER_HOST, SSH_KEY
from tests.integration.api.problems import hold
from tests.integration.db.sample import a_row, insert

pytestmark = pytest.mark.database

POOLS = "/v1/node-pools"
_LEAVES = text("""
UPDATE nodes SET state = 'leaving', leaving_at = CAST(:now AS timestamptz), leave_reason = :reason, leave_why = :why
""")
EVIDENCE = {
    "prepared": {"files": {"k3s": "ab", "install.sh": "cd", "images": "ef"}, "kernel": "6.12.1"},
    "tunnelled": {"public_key": "a key", "server": "10.64.0.1", "largest_packet": 1420},
}
_READY = text("""
UPDATE clusters SET state = 'ready', version = 'v1.36.3+k3s1', endpoint = 'https://k8s:6443', ca_pem = 'pem',
  ready_at = created_at WHERE id = :id
""")


async def ready_cluster(api: Api, operator: Tenant, name: str, **other: object) -> str:
    """The id of a new cluster that is ready, as far as the API can tell."""
    host = await operator.http.post("/v1/operator/server-hosts", json=SERVER_HOST | {"name": f"of {name}"})
    assert host.is_success, host.text
    body = {"name": name, "region": SERVER_HOST["region"], **other}
    made = await operator.http.post("/v1/operator/clusters", json=body)
    assert made.is_success, made.text
    async with api.owner.db.transaction() as connection:
        await connection.execute(_READY, {"id": UUID(hex=made.json()["id"].removeprefix("cl_"))})
    return str(made.json()["id"])


async def made_pool(
    http: httpx.AsyncClient, cluster: str, name: str = "train", **other: object
) -> dict[str, Any]:
    body = {"cluster": cluster, "name": name, "sku": "h100x1", "nodes": 2, **other}
    made = await http.post(POOLS, json=body)
    assert made.status_code == 202, made.text
    return dict(made.json())


async def test_a_pool_is_what_was_asked_for_and_each_of_its_nodes_a_lease(
    api: Api, acme: Tenant, operator: Tenant
) -> None:
    cluster = await ready_cluster(api, operator, "eu-1")
    taint = {"key": "batch", "value": "", "effect": "NoSchedule"}
    made = await made_pool(
        acme.http,
        "eu-1",
        node_labels={"team": "vision"},
        node_taints=[taint],
        priority=80,
        network_gbps_min=400,
    )
    assert (made["state"], made["cluster"], made["cluster_id"]) == ("pending", "eu-1", cluster)
    assert (made["node_labels"], made["node_taints"]) == ({"team": "vision"}, [taint])
    assert made["leases"] == {
        "live": 2,
        "with_machine": 0,
        "joining": 0,
        "healthy": 0,
        "ready": 0,
        "ending": 0,
    }
    assert made["gives_up_at"] is not None
    shown = await acme.http.get(f"{POOLS}/{made['id']}")
    assert shown.json() == made
    leases = (await acme.http.get("/v1/leases")).json()["items"]
    assert [(each["kind"], each["node_pool"], each["node_pool_id"], each["cluster"]) for each in leases] == [
        ("node", "train", made["id"], "eu-1")
    ] * 2
    assert [(each["network"], each["ssh_keys"], each["request"]["priority"]) for each in leases] == [
        (None, [], 80)
    ] * 2
    assert {each["request"]["network_gbps_min"] for each in [made, *leases]} == {400}
    held = (await acme.http.get("/v1/organization")).json()
    assert held["gpus_held"] == 2


async def test_pools_are_listed_by_cluster_name_and_state(api: Api, acme: Tenant, operator: Tenant) -> None:
    for name in ("eu-1", "eu-2"):
        await ready_cluster(api, operator, name)
    made = [
        await made_pool(acme.http, cluster, name)
        for cluster, name in (("eu-1", "a"), ("eu-1", "b"), ("eu-2", "a"))
    ]
    for query, expected in (
        ("", [2, 1, 0]),
        ("?cluster=eu-1", [1, 0]),
        (f"?cluster={made[2]['cluster_id']}", [2]),
        ("?name=a", [2, 0]),
        ("?name=a&cluster=eu-1", [0]),
        ("?state=ready", []),
        ("?state=pending&project=default&limit=3", [2, 1, 0]),
    ):
        found = (await acme.http.get(f"{POOLS}{query}")).json()["items"]
        assert [each["id"] for each in found] == [made[number]["id"] for number in expected], query
    refused = await acme.http.get(f"{POOLS}?cluster=eu-3")
    hold(refused, "cluster_unknown")
    assert "eu-1" in refused.json()["detail"]
    first = (await acme.http.get(f"{POOLS}?limit=2")).json()
    rest = (await acme.http.get(f"{POOLS}?limit=2&cursor={first['next_cursor']}")).json()
    assert [each["name"] for each in first["items"] + rest["items"]] == ["a", "b", "a"]


async def test_a_pool_is_refused_with_what_to_change(api: Api, acme: Tenant, operator: Tenant) -> None:
    await ready_cluster(api, operator, "eu-1")
    await operator.http.post("/v1/operator/server-hosts", json=SERVER_HOST | {"name": "free"})
    await operator.http.post("/v1/operator/clusters", json={"name": "new", "region": SERVER_HOST["region"]})
    await made_pool(acme.http, "eu-1")
    body = {"cluster": "eu-1", "name": "more", "sku": "h100x1", "nodes": 1}
    for change, code, words in (
        ({"cluster": "eu-9"}, "cluster_unknown", "eu-1"),
        ({"cluster": "new"}, "cluster_not_ready", "building"),
        ({"name": "train"}, "name_taken", "'train'"),
        ({"name": "Train"}, "invalid_request", "name"),
        ({"nodes": 0}, "invalid_request", "nodes"),
        ({"nodes": 64}, "quota_exceeded", "GPU"),
        ({"sku": "h200x1"}, "sku_unknown", "h200x1"),
        ({"node_labels": {"kubernetes.io/os": "x"}}, "node_label_invalid", "reserved"),
        ({"node_labels": {"team": "a b"}}, "node_label_invalid", "value"),
        ({"node_taints": [{"key": "-", "effect": "NoSchedule"}]}, "node_taint_invalid", "key"),
        ({"node_taints": [{"key": "a", "effect": "Never"}]}, "invalid_request", "NoExecute"),
        ({"network": "default"}, "invalid_request", "network"),
        ({"ssh_key_ids": []}, "invalid_request", "ssh_key_ids"),
    ):
        answer = await acme.http.post(POOLS, json=body | change)
        hold(answer, code)
        assert words in answer.text, (change, answer.text)
    assert len((await acme.http.get(POOLS)).json()["items"]) == 1
    refused = (await acme.http.get("/v1/admission-decisions?outcome=refused")).json()["items"]
    assert {each["action"] for each in refused} == {"node_pool_create"}


async def test_a_dedicated_cluster_is_for_its_organization_alone(
    api: Api, acme: Tenant, other: Tenant, operator: Tenant
) -> None:
    await ready_cluster(api, operator, "acme", organization_id=f"org_{acme.id.hex}")
    made = await made_pool(acme.http, "acme")
    body = {"cluster": "acme", "name": "train", "sku": "h100x1", "nodes": 1}
    hold(await other.http.post(POOLS, json=body), "cluster_unknown")
    for answer in (
        await other.http.get(f"{POOLS}/{made['id']}"),
        await other.http.patch(f"{POOLS}/{made['id']}", json={"nodes": 1}),
        await other.http.post(f"{POOLS}/{made['id']}/deletion"),
    ):
        hold(answer, "not_found")
    assert (await other.http.get(POOLS)).json()["items"] == []


async def test_a_pool_is_scaled_and_deleted(api: Api, acme: Tenant, operator: Tenant) -> None:
    await ready_cluster(api, operator, "eu-1")
    path = f"{POOLS}/{(await made_pool(acme.http, 'eu-1'))['id']}"
    for nodes in (4, 1):
        scaled = await acme.http.patch(path, json={"nodes": nodes})
        assert scaled.status_code == 200, scaled.text
        assert (scaled.json()["nodes"], scaled.json()["leases"]["live"]) == (nodes, nodes)
    assert scaled.json()["leases"]["ending"] == 3
    deleted = await acme.http.post(f"{path}/deletion")
    assert deleted.status_code == 202
    assert (deleted.json()["state"], deleted.json()["leases"]["live"]) == ("deleting", 0)
    assert deleted.json()["why"] == "its customer deleted it"
    assert deleted.json()["gives_up_at"] is None
    hold(await acme.http.patch(path, json={"nodes": 2}), "node_pool_deleting")
    assert (await acme.http.get("/v1/organization")).json()["gpus_held"] == 0


async def test_a_pool_that_follows_an_object_in_its_cluster_is_not_scaled_here_but_ends_here(
    api: Api, acme: Tenant, operator: Tenant
) -> None:
    await ready_cluster(api, operator, "eu-1")
    made = await made_pool(acme.http, "eu-1")
    path = f"{POOLS}/{made['id']}"
    assert made["scaling"] is None
    async with api.owner.db.transaction() as connection:
        pool = await node_pools.get(connection, NodePoolId(UUID(hex=made["id"].removeprefix("np_"))))
        assert pool is not None
        now = api.clock.now()
        await scaled_pools.follow(connection, ScaledPoolId(uuid7()), pool, "uid-1", now=now)
        (row,) = await scaled_pools.of_pools(connection, [pool.id])
        told = (not_so("CapacityAvailable", "NoCapacity", "1 node waits for stock: sold out", now),)
        await scaled_pools.keep(connection, replace(row, policy="grow", nodes_max=4, conditions=told))
    shown = (await acme.http.get(path)).json()["scaling"]
    assert (shown["policy"], shown["nodes_min"], shown["nodes_max"]) == ("grow", 0, 4)
    assert [(each["type"], each["status"], each["reason"]) for each in shown["conditions"]] == [
        ("CapacityAvailable", False, "NoCapacity")
    ]
    hold(await acme.http.patch(path, json={"nodes": 3}), "node_pool_follows_object")
    assert (await acme.http.post(f"{path}/deletion")).status_code == 202


async def test_the_lease_of_a_node_is_not_released_changed_or_logged_in_to_alone(
    api: Api, acme: Tenant, operator: Tenant
) -> None:
    await ready_cluster(api, operator, "eu-1")
    await made_pool(acme.http, "eu-1")
    lease = (await acme.http.get("/v1/leases")).json()["items"][0]["id"]
    for answer in (
        await acme.http.post(f"/v1/leases/{lease}/release"),
        await acme.http.patch(f"/v1/leases/{lease}", json={"priority": 90}),
    ):
        hold(answer, "lease_of_node_pool")
        assert "'train'" in answer.json()["detail"]
    certificate = await acme.http.post(f"/v1/leases/{lease}/ssh-certificates", json={"key": SSH_KEY})
    hold(certificate, "lease_is_node")
    labelled = await acme.http.put(f"/v1/leases/{lease}/labels", json={"labels": {"team": "vision"}})
    assert labelled.json()["labels"] == {"team": "vision"}


async def test_a_node_is_shown_with_its_steps_and_what_its_cluster_told(
    api: Api, acme: Tenant, other: Tenant, operator: Tenant
) -> None:
    cluster = await ready_cluster(api, operator, "eu-1")
    pool = await made_pool(acme.http, "eu-1", nodes=1)
    lease = (await acme.http.get("/v1/leases")).json()["items"][0]
    node = await node_of(api, acme, cluster, pool, lease)
    (listed,) = (await acme.http.get("/v1/nodes")).json()["items"]
    assert (listed["id"], listed["name"], listed["node_pool"], listed["lease"]) == (
        f"nd_{node.hex}",
        f"node-{node.hex}",
        "train",
        lease["name"],
    )
    assert [step["step"] for step in listed["steps"]] == ["prepared", "tunnelled"]
    assert listed["conditions"] == {"Ready": "True"}
    assert (listed["gpu_model"], listed["gpu_count"]) == (lease["gpu_model"], 1)
    for word in (listed["id"], listed["name"]):
        assert (await acme.http.get(f"/v1/nodes/{word}")).json() == listed
        hold(await other.http.get(f"/v1/nodes/{word}"), "not_found")
    for query, count in (
        (f"?node_pool={pool['id']}", 1),
        (f"?node_pool=np_{0:032x}", 0),
        ("?cluster=eu-1&state=joining", 1),
        ("?cluster=eu-1&state=ready", 0),
    ):
        assert len((await acme.http.get(f"/v1/nodes{query}")).json()["items"]) == count, query
    hold(await acme.http.get("/v1/nodes?cluster=elsewhere"), "cluster_unknown")
    assert (await other.http.get("/v1/nodes")).json()["items"] == []


async def test_operators_see_the_nodes_of_everybody_with_the_evidence_of_their_steps(
    api: Api, acme: Tenant, other: Tenant, operator: Tenant
) -> None:
    cluster = await ready_cluster(api, operator, "eu-1")
    nodes: list[UUID] = []
    for tenant in (acme, other):
        pool = await made_pool(tenant.http, "eu-1", nodes=1)
        lease = (await tenant.http.get("/v1/leases")).json()["items"][0]
        nodes.append(await node_of(api, tenant, cluster, pool, lease, number=len(nodes) + 2))
        api.clock.advance(60)
    path = "/v1/operator/nodes"
    listed = (await operator.http.get(path)).json()["items"]
    assert [each["node"]["id"] for each in listed] == [f"nd_{node.hex}" for node in reversed(nodes)]
    assert [each["organization_id"] for each in listed] == [f"org_{t.id.hex}" for t in (other, acme)]
    for word in (listed[1]["node"]["id"], listed[1]["node"]["name"]):
        assert (await operator.http.get(f"{path}/{word}")).json() == listed[1]
    (own,) = (await acme.http.get("/v1/nodes")).json()["items"]
    assert listed[1]["node"] == own
    assert "evidence" not in own
    evidence = [(each["step"], each["says"], each["given_up"]) for each in listed[1]["evidence"]]
    assert evidence == [
        ("prepared", "3 files of K3s with the right digest, kernel 6.12.1", False),
        ("tunnelled", "packets of up to 1420 bytes pass to the server at 10.64.0.1", False),
    ]
    assert listed[1]["claims"] == {"cpu": "208", "nvidia.com/gpu": "1"}
    assert (listed[1]["sold"]["gpus"], listed[1]["account"]) == (1, "fake")
    for query, count in (("?cluster=eu-1", 2), ("?state=ready", 0), ("?limit=1", 1)):
        found = (await operator.http.get(f"{path}{query}")).json()
        assert len(found["items"]) == count, query
    following = (await operator.http.get(f"{path}?limit=1")).json()["next_cursor"]
    (last,) = (await operator.http.get(f"{path}?limit=1&cursor={following}")).json()["items"]
    assert last == listed[1]
    hold(await operator.http.get(f"{path}?cluster=none"), "cluster_unknown")
    hold(await operator.http.get(f"{path}/node-none"), "not_found")
    for url in (path, f"{path}/{own['id']}"):
        hold(await acme.http.get(url), "permission_denied")


async def test_operators_see_the_node_pools_of_everybody_with_what_they_wait_for(
    api: Api, acme: Tenant, other: Tenant, operator: Tenant
) -> None:
    for name in ("eu-1", "eu-2"):
        await ready_cluster(api, operator, name)
    made = []
    for tenant, cluster in ((acme, "eu-1"), (other, "eu-1"), (acme, "eu-2")):
        made.append(await made_pool(tenant.http, cluster))
        api.clock.advance(60)
    async with api.owner.db.transaction() as connection:
        await connection.execute(_WAITS, {"id": UUID(made[1]["id"].removeprefix("np_"))})
    path = "/v1/operator/node-pools"
    listed = (await operator.http.get(path)).json()["items"]
    assert [each["id"] for each in listed] == [pool["id"] for pool in reversed(made)]
    names = [(await tenant.http.get("/v1/organization")).json()["name"] for tenant in (acme, other, acme)]
    assert [(each["organization_id"], each["organization"]) for each in listed] == [
        (f"org_{tenant.id.hex}", names[number]) for number, tenant in ((2, acme), (1, other), (0, acme))
    ]
    assert listed[0]["node_pool"] == made[2], "as its customer sees it"
    (own,) = (await other.http.get(POOLS)).json()["items"]
    assert (own, own["waiting"]["code"]) == (listed[1]["node_pool"], "balance_too_low")
    for query, expected in (
        ("?cluster=eu-1", [1, 0]),
        (f"?cluster={made[2]['cluster_id']}", [2]),
        ("?state=ready", []),
        ("?state=pending&state=ready", [2, 1, 0]),
    ):
        found = (await operator.http.get(f"{path}{query}")).json()["items"]
        assert [each["id"] for each in found] == [made[number]["id"] for number in expected], query
    first = (await operator.http.get(f"{path}?limit=2")).json()
    (last,) = (await operator.http.get(f"{path}?limit=2&cursor={first['next_cursor']}")).json()["items"]
    assert [*first["items"], last] == listed
    hold(await operator.http.get(f"{path}?cluster=none"), "cluster_unknown")
    hold(await acme.http.get(path), "permission_denied")


_WAITS = text("""
UPDATE node_pools SET waiting_since = created_at, waiting_code = 'balance_too_low', waiting_why = 'top up'
WHERE id = :id
""")
_OPENS = text("UPDATE nodes SET state = 'ready', ready_at = created_at WHERE id = :id")


async def test_an_operator_has_the_key_of_an_open_node_changed_and_asks_once(
    api: Api, acme: Tenant, operator: Tenant
) -> None:
    cluster = await ready_cluster(api, operator, "eu-1")
    pool = await made_pool(acme.http, "eu-1", nodes=1)
    (lease,) = (await acme.http.get("/v1/leases")).json()["items"]
    node = await node_of(api, acme, cluster, pool, lease)
    path = f"/v1/operator/nodes/nd_{node.hex}/key-rotations"
    hold(await operator.http.post(path), "node_not_ready")
    async with api.owner.db.transaction() as connection:
        await connection.execute(_OPENS, {"id": node})
    hold(await acme.http.post(path), "permission_denied")
    asked = (await operator.http.post(path)).json()
    assert asked["key_change_requested_at"] is not None
    api.clock.advance(5)
    again = await operator.http.post(f"/v1/operator/nodes/node-{node.hex}/key-rotations")
    assert (again.status_code, again.json()) == (202, asked), "by its name as well, and nothing changes"
    assert (await operator.http.get(f"/v1/operator/nodes/nd_{node.hex}")).json() == asked
    why = (await acme.http.get(f"/v1/leases/{lease['id']}/explanation")).json()["journal"]
    (line,) = [line for line in why if line["event"] == "node_key_change_requested"]
    assert (line["actor_kind"], f"node-{node.hex}" in line["why"]) == ("operator", True)
    hold(await operator.http.post("/v1/operator/nodes/node-none/key-rotations"), "not_found")


async def test_the_progress_of_a_node_is_that_of_its_lease_and_of_its_pool(
    api: Api, acme: Tenant, operator: Tenant
) -> None:
    cluster = await ready_cluster(api, operator, "eu-1")
    pool = await made_pool(acme.http, "eu-1", nodes=1)
    lease = (await acme.http.get("/v1/leases")).json()["items"][0]
    node = await node_of(api, acme, cluster, pool, lease)
    async with api.owner.db.transaction() as connection:
        moved = "UPDATE leases SET state = 'starting', attempts = 1 WHERE node_pool_id IS NOT NULL"
        await connection.execute(text(moved))
    status = (await acme.http.get(f"/v1/leases/{lease['id']}")).json()["status"]
    assert (status["step"], status["message"]) == ("tunnelled", "Its tunnels work; starting K3s.")
    assert status["steps_done"] == status["steps_total"] - 5
    leases = (await acme.http.get(f"{POOLS}/{pool['id']}")).json()["leases"]
    assert (leases["with_machine"], leases["joining"], leases["healthy"], leases["ready"]) == (1, 1, 0, 0)
    async with api.owner.db.transaction() as connection:
        row = a_row("node_steps", acme.id, node_id=node, step="healthy", at=api.clock.now(), evidence={})
        await insert(connection, "node_steps", row)
    assert (await acme.http.get(f"{POOLS}/{pool['id']}")).json()["leases"]["healthy"] == 1
    status = (await acme.http.get(f"/v1/leases/{lease['id']}")).json()["status"]
    assert (status["step"], status["steps_total"] - status["steps_done"]) == ("healthy", 1)


async def test_a_node_that_left_says_what_ended_its_lease(api: Api, acme: Tenant, operator: Tenant) -> None:
    cluster = await ready_cluster(api, operator, "eu-1")
    pool = await made_pool(acme.http, "eu-1", nodes=1)
    lease = (await acme.http.get("/v1/leases")).json()["items"][0]
    node = await node_of(api, acme, cluster, pool, lease)
    await acme.http.post(f"{POOLS}/{pool['id']}/deletion")
    for reason, why, told in (
        ("lease_ended", "its lease has ended", "the node pool train was deleted: its customer deleted it"),
        ("taken_away", "an operator took it out: fan", "an operator took it out: fan"),
        ("lost", "StepFailed: words of a machine", "it was not ready for too long, or its machine is gone"),
    ):
        async with api.owner.db.transaction() as connection:
            values = {"now": api.clock.now(), "reason": reason, "why": why}
            await connection.execute(_LEAVES, values)
        shown = (await acme.http.get(f"/v1/nodes/nd_{node.hex}")).json()
        assert (shown["leave_reason"], shown["leave_why"]) == (reason, told)
        assert shown["leaving_at"] is not None


async def node_of(
    api: Api, tenant: Tenant, cluster: str, pool: dict[str, Any], lease: dict[str, Any], *, number: int = 2
) -> UUID:
    """A node that has taken two steps, as the reconciler would store it."""
    now = api.clock.now()
    of_lease: dict[str, Any] = {
        "project_id": UUID(hex=lease["project_id"].removeprefix("prj_")),
        "lease_id": UUID(hex=lease["id"].removeprefix("le_")),
    }
    own = api.world.new_id()
    machine = a_row("machines", tenant.id, id=own, launch_key=f"sp-{own}", account="fake", gpu_count=1)
    claim = a_row("claims", tenant.id, number, machine_id=machine["id"], attempt=1, **of_lease)
    node_id = a_row("nodes", tenant.id, number)["id"]
    node = a_row(
        "nodes",
        tenant.id,
        id=node_id,
        name=f"node-{node_id.hex}",
        cluster_id=UUID(hex=cluster.removeprefix("cl_")),
        node_pool_id=UUID(hex=pool["id"].removeprefix("np_")),
        claim_id=claim["id"],
        machine_id=machine["id"],
        state="joining",
        number=number,
        created_at=now,
        reported={
            "conditions": {"Ready": "True"},
            "capacity": {"cpu": "208", "nvidia.com/gpu": "1"},
            "version": "v1.36.3+k3s1",
        },
        **of_lease,
    )
    async with api.owner.db.transaction() as connection:
        await insert(connection, "machines", machine)
        await insert(connection, "claims", claim)
        await insert(connection, "nodes", node)
        for number, (step, evidence) in enumerate(EVIDENCE.items()):
            at = now + timedelta(seconds=number)
            row = a_row("node_steps", tenant.id, node_id=node_id, step=step, at=at, evidence=evidence)
            await insert(connection, "node_steps", row)
    return UUID(str(node_id))
