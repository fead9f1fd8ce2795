"""Simulated kubelets: the Nodes of simulated agents, as the API servers of clusters show them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from data_plane.access.port import Target
from data_plane.cluster.agents import AgentOrder
from data_plane.cluster.objects import expected_nodes
from data_plane.cluster.objects.bootstrap_token import NAMESPACE
from data_plane.cluster.objects.node import joining_taint
from data_plane.cluster.resource import CONFIG_MAP, NODE, SECRET, Object, head
from data_plane.simulation.agents import FakeAgents
from data_plane.simulation.kubernetes import FakeKubernetes
from data_plane.simulation.servers import VERSION

PODS = "10.48.{}.0/24"


async def small(_machine: Target) -> Mapping[str, str]:
    """What a machine with one GPU at the fake provider has."""
    return {"cpu": "26", "memory": "200Gi", "pods": "110"}


@dataclass
class FakeKubelets:
    """What running agents tell the API server that they joined."""

    agents: FakeAgents
    capacity: Callable[[Target], Awaitable[Mapping[str, str]]] = small
    """What an honest machine has."""
    claims: dict[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """What a machine claims to have besides, by its address."""
    pressure: dict[str, str] = field(default_factory=dict[str, str])
    """A condition besides Ready that a machine reports, by its address."""
    ready: dict[str, str] = field(default_factory=dict[str, str])
    """What `Ready` is instead of `True` on a machine that runs, by its address."""
    gpus: int | None = None
    """How many GPUs every machine claims; None where no device plugin runs."""
    taints: dict[str, list[Object]] = field(default_factory=dict[str, list[Object]])
    """With what a machine registers instead of our taint, by its address."""
    pods: dict[str, str] = field(default_factory=dict[str, str])
    """The range of pods with which a machine registers on its own account, by its address."""

    async def report(self, server: FakeKubernetes) -> None:
        """Bring the Nodes of a cluster up to date: register those that may join, and say how all are."""
        orders = {order.node: order for order in self.agents.running.values()}
        for order in orders.values():
            if _may_join(server, order):
                server.put(self._registered(server, order))
        for (plural, _, name), node in list(server.objects.items()):
            if plural == NODE.plural:
                status = await self._status(orders.get(name))
                if node.get("status") != status:
                    server.put({**node, "status": status})

    def _registered(self, server: FakeKubernetes, order: AgentOrder) -> Object:
        taken = [node["spec"]["podCIDR"] for place, node in server.objects.items() if place[0] == NODE.plural]
        pods = next(PODS.format(number) for number in range(1, 256) if PODS.format(number) not in taken)
        taints = self.taints.get(order.machine.address, [joining_taint()])
        node = head(NODE, order.node, labels={"kubernetes.io/hostname": order.node})
        return {**node, "spec": {"podCIDR": self.pods.get(order.machine.address, pods), "taints": taints}}

    async def _status(self, order: AgentOrder | None) -> Object:
        if order is None or order.machine.address in self.agents.members.faults.gone:
            return {"conditions": [{"type": "Ready", "status": "Unknown"}]}
        address = order.machine.address
        conditions = [{"type": "Ready", "status": self.ready.get(address, "True")}]
        if address in self.pressure:
            conditions.append({"type": self.pressure[address], "status": "True"})
        gpus = {} if self.gpus is None else {"nvidia.com/gpu": str(self.gpus)}
        amounts = {**await self.capacity(order.machine), **gpus, **self.claims.get(address, {})}
        return {
            "conditions": conditions,
            "capacity": amounts,
            "allocatable": amounts,
            "nodeInfo": {"kubeletVersion": VERSION},
        }


def _may_join(server: FakeKubernetes, order: AgentOrder) -> bool:
    """Whether an agent that has no Node here has a bootstrap token of this cluster, and is expected."""
    if order.node in server.named(NODE):
        return False
    token_id, _, secret = order.token.rpartition("::")[2].partition(".")
    stored = server.objects.get((SECRET.plural, NAMESPACE, f"bootstrap-token-{token_id}"))
    if stored is None or stored["stringData"]["token-secret"] != secret:
        return False
    place = (CONFIG_MAP.plural, expected_nodes.NAMESPACE, expected_nodes.NAME)
    return order.node in server.objects[place].get("data", {})
