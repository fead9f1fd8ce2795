"""NodePool and ScalingPolicy on a real API server: what it fills in, what it refuses, what it prints, and who may write."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from data_plane.cluster import kubeconfig as kubeconfigs
from data_plane.cluster.kubeconfig import Address, Role
from data_plane.cluster.lightkube_port import LightkubePort
from data_plane.cluster.objects.scaling import Condition, status_of
from data_plane.cluster.objects.tenant import Tenant
from data_plane.cluster.port import ClusterError, Forbidden, Invalid, Token
from data_plane.cluster.resource import NODE_POOL, SCALING_POLICY, Object
from data_plane.cluster.tenant import keep_tenant
from tests.integration.data_plane.cluster.conftest import ALLOWANCE
from tests.support import scaling
from tests.support.kubernetes.clients import new_name, new_tenant, port, scaling_kinds_counted
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.tier import KUBERNETES

pytestmark = KUBERNETES
NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


async def _client(plane: ControlPlane, admin: LightkubePort, tenant: Tenant, role: Role) -> LightkubePort:
    address = Address("gpus", plane.url, plane.authority.decode(), "kubernetes")
    issued = await kubeconfigs.issue(
        admin, address, tenant, new_name("kc_"), role=role, all_nodes=False, life=timedelta(minutes=10)
    )
    return port(plane, Token(json.loads(issued.text)["users"][0]["user"]["token"]))


@pytest.fixture
async def tenant(admin: LightkubePort) -> Tenant:
    await scaling_kinds_counted(admin)
    fresh = new_tenant()
    await keep_tenant(admin, fresh, ALLOWANCE, [])
    return fresh


@pytest.fixture
async def customer(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> AsyncIterator[LightkubePort]:
    client = await _client(kubernetes, admin, tenant, Role.EDIT)
    yield client
    await client.aclose()


async def test_what_is_left_out_gets_its_default(customer: LightkubePort, tenant: Tenant) -> None:
    space = tenant.namespace
    pool = scaling.node_pool(space)
    del pool["spec"]["nodes"]
    assert (await customer.apply(pool))["spec"] == {"nodes": 0, "sku": "h100x1"}
    policy = scaling.policy(space)
    policy["spec"] = {"nodePools": [{"name": "train", "maxNodes": 4}]}
    assert (await customer.apply(policy))["spec"] == {
        "nodePools": [{"name": "train", "minNodes": 0, "maxNodes": 4}],
        "scaleUp": {"delaySeconds": 10},
        "consolidation": {"enabled": True, "emptyForSeconds": 600},
    }


def _changed(thing: Object, **spec: object) -> Object:
    return {**thing, "spec": {**thing["spec"], **spec}}


async def test_nonsense_is_refused_with_a_sentence(customer: LightkubePort, tenant: Tenant) -> None:
    space = tenant.namespace
    pool, policy = scaling.node_pool(space), scaling.policy(space)
    refused: list[tuple[Object, str]] = [
        (scaling.node_pool(space, "a" * 41), "the name of a NodePool has 1 to 40 lower-case letters"),
        ({**pool, "spec": {"nodes": 1}}, "spec.sku: Required value"),
        (_changed(pool, nodes=-1), "spec.nodes in body should be greater than or equal to 0"),
        (_changed(pool, nodes=65), "should be less than or equal to 64"),
        (_changed(pool, maxUsdPerHour="a lot"), "spec.maxUsdPerHour"),
        (_changed(pool, maxUsdPerHour="-1"), "spec.maxUsdPerHour"),
        (_changed(pool, sku="H100 X"), "spec.sku"),
        (_changed(pool, labels={f"l{n}": "" for n in range(33)}), "spec.labels"),
        (_changed(pool, taints=[{"key": "gpu", "effect": "Sometimes"}]), "NoSchedule"),
        (scaling.policy(space, pools={"train": (3, 2)}), "minNodes is greater than maxNodes"),
        (_changed(policy, nodePools=[]), "spec.nodePools"),
        (_changed(policy, nodePools=[{"name": "train", "maxNodes": 65}]), "less than or equal to 64"),
        (_changed(policy, budget={"usdPerHour": "1e9"}), "spec.budget.usdPerHour"),
        (_changed(policy, budget={"usdPerHour": "1.0000000001"}), "spec.budget.usdPerHour"),
        (_changed(policy, budget={"usdPerMonth": "-1"}), "spec.budget.usdPerMonth"),
        (_changed(policy, budget={}), "a budget has usdPerHour, usdPerMonth or both"),
        (_changed(policy, limits={"gpus": 9_000}), "spec.limits.gpus"),
        (_changed(policy, consolidation={"emptyForSeconds": 5}), "spec.consolidation.emptyForSeconds"),
    ]
    for thing, says in refused:
        with pytest.raises(Invalid) as error:
            await customer.apply(thing)
        assert says in str(error.value), (says, str(error.value))
    twice = [{"name": "train", "maxNodes": 1}, {"name": "train", "maxNodes": 2}]
    with pytest.raises(ClusterError, match="train"):
        await customer.apply(_changed(policy, nodePools=twice))
    assert await customer.list(NODE_POOL, space) == []


async def test_only_the_number_of_nodes_of_a_pool_can_change(customer: LightkubePort, tenant: Tenant) -> None:
    pool = scaling.node_pool(tenant.namespace, regions=["eu"], labels={"team": "vision"})
    await customer.apply(pool)
    changes: list[dict[str, object]] = [
        {"sku": "h100x8"},
        {"regions": ["us"]},
        {"maxUsdPerHour": "3"},
        {"labels": {"team": "speech"}},
        {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        {"environment": "prod"},
        {"providers": ["fake"]},
    ]
    for change in changes:
        with pytest.raises(Invalid, match=rf"spec\.{next(iter(change))} cannot change"):
            await customer.apply(_changed(pool, **change))
    assert (await customer.apply(_changed(pool, nodes=3)))["spec"]["nodes"] == 3


async def test_the_status_is_ours_and_is_printed_in_columns(
    kubernetes: ControlPlane, admin: LightkubePort, customer: LightkubePort, tenant: Tenant
) -> None:
    space = tenant.namespace
    made = await customer.apply(scaling.node_pool(space, nodes=2))
    with pytest.raises(Forbidden):
        await customer.apply_status(status_of(NODE_POOL, made, {"nodes": 64}, []))
    told = [
        Condition("Accepted", True, "Accepted", "It has a node pool.", NOW),
        Condition("CapacityAvailable", False, "NoCapacity", "1 node waits for stock: sold out", NOW),
    ]
    facts = {"nodes": 2, "readyNodes": 1, "orderedNodes": 1, "usdPerHour": "7.20", "policy": "grow"}
    await admin.apply_status(status_of(NODE_POOL, made, facts, told))
    lines = kubernetes.kubectl("get", "nodepools", "--namespace", space).splitlines()
    assert lines[0].split() == [
        "NAME",
        "SKU",
        "NODES",
        "READY",
        "USD/H",
        "POLICY",
        "ACCEPTED",
        "CAPACITY",
        "AGE",
    ]
    assert lines[1].split()[:-1] == ["train", "h100x1", "2", "1", "7.20", "grow", "True", "False"]
    kept = await customer.get(NODE_POOL, "train", space)
    assert kept["status"]["conditions"][1]["lastTransitionTime"] == "2026-11-28T12:00:00Z"
    assert kept["status"]["observedGeneration"] == kept["metadata"]["generation"] == 1

    policy = await customer.apply(scaling.policy(space, usd_per_hour="40"))
    limit = Condition("LimitReached", True, "Reached", "train has 4 of 4 nodes", NOW)
    counts = {"nodes": 4, "readyNodes": 4, "gpus": 4, "pendingPods": 3, "usdPerHour": "14.40"}
    await admin.apply_status(status_of(SCALING_POLICY, policy, counts, [told[0], limit]))
    lines = kubernetes.kubectl("get", "scalingpolicies", "--namespace", space).splitlines()
    assert lines[0].split() == [
        *(
            "NAME",
            "NODES",
            "READY",
            "GPUS",
            "PENDING",
            "USD/H",
            "BUDGET",
            "ACCEPTED",
            "CAPACITY",
            "LIMIT",
            "AGE",
        )
    ]
    assert lines[1].split()[:7] == ["grow", "4", "4", "4", "3", "14.40", "40"]


async def test_the_number_of_nodes_follows_kubectl_scale(
    kubernetes: ControlPlane, customer: LightkubePort, tenant: Tenant
) -> None:
    await customer.apply(scaling.node_pool(tenant.namespace))
    kubernetes.kubectl("scale", "nodepool/train", "--replicas=2", "--namespace", tenant.namespace)
    assert (await customer.get(NODE_POOL, "train", tenant.namespace))["spec"]["nodes"] == 2


async def test_a_reader_writes_nothing_and_nobody_reaches_another_namespace(
    kubernetes: ControlPlane, admin: LightkubePort, customer: LightkubePort, tenant: Tenant
) -> None:
    await customer.apply(scaling.node_pool(tenant.namespace))
    reader = await _client(kubernetes, admin, tenant, Role.VIEW)
    assert [each["metadata"]["name"] for each in await reader.list(NODE_POOL, tenant.namespace)] == ["train"]
    for thing in (scaling.node_pool(tenant.namespace, "more"), scaling.policy(tenant.namespace)):
        with pytest.raises(Forbidden):
            await reader.apply(thing)
    await reader.aclose()
    other = new_tenant()
    with pytest.raises(Forbidden):
        await customer.apply(scaling.node_pool(other.namespace))
    with pytest.raises(Forbidden):
        await customer.list(NODE_POOL)


async def test_a_namespace_holds_few_of_them(customer: LightkubePort, tenant: Tenant) -> None:
    for number in range(32):
        await customer.apply(scaling.node_pool(tenant.namespace, f"pool-{number}"))
    with pytest.raises(Forbidden, match="exceeded quota"):
        await customer.apply(scaling.node_pool(tenant.namespace, "one-more"))
