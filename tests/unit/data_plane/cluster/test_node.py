"""What a cluster is told about a node when it opens, and what it forgets with it."""

from datetime import UTC, datetime, timedelta

import pytest

from data_plane.cluster import node
from data_plane.cluster.bootstrap_token import admit_machine, withdraw
from data_plane.cluster.objects import expected_nodes, node_addresses
from data_plane.cluster.objects.bootstrap_token import BootstrapToken
from data_plane.cluster.objects.node import joining_taint
from data_plane.cluster.objects.tenant import Tenant
from data_plane.cluster.port import Conflict
from data_plane.cluster.resource import CONFIG_MAP, NODE, Object, Resource, head
from data_plane.simulation.kubernetes import FakeKubernetes

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
MARKS = node.Marks(Tenant("org_1", "prj_1"), "le_1", "gpu")


async def _known(api: FakeKubernetes) -> Object:
    found = await api.get(CONFIG_MAP, node_addresses.NAME, node_addresses.NAMESPACE)
    return dict(found.get("data", {}))


async def _joined(api: FakeKubernetes, name: str, pods: str) -> None:
    await api.apply({**head(NODE, name), "spec": {"podCIDR": pods, "taints": [joining_taint()]}})


async def test_the_range_of_a_nodes_pods_is_known_before_the_node_opens_and_until_it_is_deleted() -> None:
    class Watched(FakeKubernetes):
        async def patch(
            self, resource: Resource, name: str, change: Object, namespace: str | None = None
        ) -> Object:
            if resource == NODE:
                assert f"{name}.pods" in await _known(self), "a pod may land from here on"
            return await super().patch(resource, name, change, namespace)

    api = Watched(lambda: NOW)
    await _joined(api, "a", "10.48.3.0/24")
    await _joined(api, "b", "10.48.4.0/24")
    for name in ("a", "b", "a"):  # A node is also opened again when somebody changed it.
        await node.admit(api, name, MARKS)
    assert await _known(api) == {"a.pods": "10.48.3.0/24", "b.pods": "10.48.4.0/24"}
    with pytest.raises(Conflict):
        await node.forget(api, "a", uid="that of an earlier one")
    assert "a.pods" in await _known(api)
    for _ in range(2):
        await node.forget(api, "a")
    assert await _known(api) == {"b.pods": "10.48.4.0/24"}


async def test_a_node_of_a_cluster_in_which_none_has_opened_is_forgotten_as_well() -> None:
    api = FakeKubernetes(lambda: NOW)
    await _joined(api, "a", "10.48.3.0/24")
    await node.forget(api, "a")
    assert api.named(NODE) == set()


async def test_the_address_of_a_machine_is_known_before_it_may_join_and_until_its_node_is_deleted() -> None:
    class Watched(FakeKubernetes):
        async def patch(
            self, resource: Resource, name: str, change: Object, namespace: str | None = None
        ) -> Object:
            if name == expected_nodes.NAME and change["data"]["a"]:
                assert await _known(self) == {"a": "10.64.0.9"}, "it may register from here on"
            return await super().patch(resource, name, change, namespace)

    api = Watched(lambda: NOW)
    token = BootstrapToken("abcdef", "0123456789abcdef")
    await admit_machine(api, token, "a", "10.64.0.9", now=NOW, life=timedelta(minutes=10))
    await withdraw(api, token.id, "a")
    assert await _known(api) == {"a": "10.64.0.9"}
    await node.forget(api, "a")
    assert await _known(api) == {}
