"""What a cluster is told about a node when it opens, and what it forgets with it."""

from datetime import UTC, datetime

import pytest

from data_plane.cluster import node
from data_plane.cluster.objects import pod_ranges
from data_plane.cluster.objects.node import joining_taint
from data_plane.cluster.objects.tenant import Tenant
from data_plane.cluster.port import Conflict
from data_plane.cluster.resource import CONFIG_MAP, NODE, Object, Resource, head
from data_plane.simulation.kubernetes import FakeKubernetes

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
MARKS = node.Marks(Tenant("org_1", "prj_1"), "le_1", "gpu")


async def _ranges(api: FakeKubernetes) -> Object:
    found = await api.get(CONFIG_MAP, pod_ranges.NAME, pod_ranges.NAMESPACE)
    return dict(found.get("data", {}))


async def _joined(api: FakeKubernetes, name: str, pods: str) -> None:
    await api.apply({**head(NODE, name), "spec": {"podCIDR": pods, "taints": [joining_taint()]}})


async def test_the_range_of_a_nodes_pods_is_known_before_the_node_opens_and_until_it_is_deleted() -> None:
    class Watched(FakeKubernetes):
        async def patch(
            self, resource: Resource, name: str, change: Object, namespace: str | None = None
        ) -> Object:
            if resource == NODE:
                assert name in await _ranges(self), "a pod may land from here on"
            return await super().patch(resource, name, change, namespace)

    api = Watched(lambda: NOW)
    await _joined(api, "a", "10.48.3.0/24")
    await _joined(api, "b", "10.48.4.0/24")
    for name in ("a", "b", "a"):  # A node is also opened again when somebody changed it.
        await node.admit(api, name, MARKS)
    assert await _ranges(api) == {"a": "10.48.3.0/24", "b": "10.48.4.0/24"}
    with pytest.raises(Conflict):
        await node.forget(api, "a", uid="that of an earlier one")
    assert "a" in await _ranges(api)
    for _ in range(2):
        await node.forget(api, "a")
    assert await _ranges(api) == {"b": "10.48.4.0/24"}


async def test_a_node_of_a_cluster_in_which_none_has_opened_is_forgotten_as_well() -> None:
    api = FakeKubernetes(lambda: NOW)
    await _joined(api, "a", "10.48.3.0/24")
    await node.forget(api, "a")
    assert api.named(NODE) == set()
