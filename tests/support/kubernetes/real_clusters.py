"""The API server of the test run where the product expects those of clusters, with Nodes for simulated agents.

The API server, its controllers and its scheduler are real. Nodes register as kubelets do, and say that they are ready;
no container runs, so a pod that is bound to one stays Pending there.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from control_plane.world import utc_now
from data_plane.cluster.lightkube_port import LightkubePort
from data_plane.cluster.objects import expected_nodes
from data_plane.cluster.objects.node import joining_taint
from data_plane.cluster.port import Cluster, KubernetesPort
from data_plane.cluster.resource import CONFIG_MAP, NODE, head
from data_plane.simulation.agents import FakeAgents
from data_plane.simulation.kubelets import PODS
from data_plane.simulation.servers import VERSION
from tests.support.kubernetes.clients import cluster as as_client
from tests.support.kubernetes.control_plane import ControlPlane

AMOUNTS = {"cpu": "26", "memory": "200Gi", "pods": "110", "nvidia.com/gpu": "1"}
"""What a machine with one GPU at the fake provider has."""


@dataclass
class RealClusters:
    plane: ControlPlane
    agents: FakeAgents
    numbers: dict[str, int] = field(default_factory=dict[str, int])
    """Of the ranges of pods, by the names of nodes."""

    @asynccontextmanager
    async def connect(self, cluster: Cluster) -> AsyncIterator[KubernetesPort]:
        port = LightkubePort(as_client(self.plane, self.plane.admin))
        try:
            await self._report(port)
            yield port
        finally:
            await port.aclose()

    async def _report(self, port: KubernetesPort) -> None:
        names = {order.node for order in self.agents.running.values()}
        if not names:
            return
        there = {node["metadata"]["name"] for node in await port.list(NODE)}
        known = await port.get(CONFIG_MAP, expected_nodes.NAME, expected_nodes.NAMESPACE)
        for name in sorted(names):
            if name in there:
                await port.apply_status({**head(NODE, name), "status": self._status()})
            elif name in (known.get("data") or {}):
                await self._register(port, name)

    async def _register(self, port: KubernetesPort, name: str) -> None:
        number = self.numbers.setdefault(name, len(self.numbers) + 1)
        node = head(NODE, name, labels={"kubernetes.io/hostname": name})
        await port.apply({**node, "spec": {"podCIDR": PODS.format(number), "taints": [joining_taint()]}})
        await port.apply_status({**head(NODE, name), "status": self._status()})

    def _status(self) -> dict[str, object]:
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "",
            "lastHeartbeatTime": utc_now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return {
            "conditions": [ready],
            "capacity": AMOUNTS,
            "allocatable": AMOUNTS,
            "nodeInfo": {"kubeletVersion": VERSION},
        }
