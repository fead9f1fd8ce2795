"""The demo's chapter about a cluster: two nodes at two providers, and pods on them that answer each other."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from demo import cluster
from demo.city import CLUSTER, City
from demo.prices import SKU
from demo.processes import DemoError, wait_for
from tests.support.kubernetes.kubectl import Kubectl, answer, server_pod

POOL = "duo"
NODES = 2
POD_SECONDS_MAX = 60
Customer = Callable[..., str]
"""Types a command of ours as the customer would, and shows it with its output."""


class ClusterStory:
    def __init__(self, city: City, customer: Customer) -> None:
        self._city = city
        self._customer = customer

    def join(self) -> int:
        """Lease two nodes, of which only one can be had locally. Returns how many nodes the cluster says are ready."""
        self._city.sell_locally(1)
        self._customer("node-pool", "create", POOL, "--cluster", CLUSTER, "--nodes", str(NODES), "--sku", SKU)
        self._customer("node", "list")
        providers = self._providers()
        if len(providers) != NODES:
            raise DemoError(f"the nodes are not at {NODES} providers: {providers}")
        self._customer("kubeconfig", "create", "--cluster", CLUSTER, "--output", str(self._kubeconfig))
        self._show("get", "nodes", *self._names(), "--output=wide")
        return sum(_is_ready(node) for node in self._nodes())

    def reach(self) -> bool:
        """Whether a pod on one node reaches a pod on the other."""
        names = self._names()
        for name in names:
            pod = server_pod(f"on-{name}", name, f"I run on {name}")
            self._kubectl("apply", "--filename=-", stdin=json.dumps(pod))
        self._kubectl("wait", "--for=condition=Ready", "pod", "--all", f"--timeout={POD_SECONDS_MAX}s")
        self._show("get", "pods", "--output=wide")
        first, second = (f"on-{name}" for name in names)
        address = self._kubectl.json("get", "pod", second)["status"]["podIP"]
        with self._kubectl.forwarded(first) as url:
            said = answer(f"http://{address}:8080/", through=url)
        self._city.say(f"  the pod on {names[0]} asked the pod on {names[1]}, which said: {said}")
        return said == f"I run on {names[1]}"

    def leave(self) -> int:
        """Delete the pool. Returns how many of its nodes the cluster still knows."""
        names = self._names()
        self._customer("node-pool", "delete", POOL, "--yes")
        wait_for("the end of the pool's nodes", 120, lambda: not self._live())
        known = self._city.on_server_host("/usr/local/bin/k3s", "kubectl", "get", "nodes", "--output=name")
        found = [name for name in names if f"node/{name}" in known.split()]
        self._city.say(f"  {len(found)} of {len(names)} nodes are left in the cluster")
        self._city.sell_locally(None)
        return len(found)

    @property
    def _kubeconfig(self) -> Path:
        return self._city.directory / "customer" / "kubeconfig"

    def _providers(self) -> set[str]:
        """Whose machines the pool's nodes are."""
        leases: list[dict[str, Any]] = self._city.ask("/v1/leases?limit=100")["items"]
        found = {lease["machine"]["provider"] for lease in leases if lease["node_pool"] == POOL}
        self._city.say(f"  their machines are at {' and '.join(sorted(found))}")
        return found

    def _live(self) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = self._city.ask("/v1/nodes")["items"]
        return [node for node in nodes if node["state"] != "gone"]

    def _names(self) -> list[str]:
        return sorted(node["name"] for node in self._live())

    def _nodes(self) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = self._kubectl.json("get", "nodes", *self._names())["items"]
        return nodes

    def _show(self, *arguments: str) -> None:
        self._city.say(f"$ kubectl {' '.join(arguments)}")
        self._city.say(self._kubectl(*arguments).rstrip())

    @property
    def _kubectl(self) -> Kubectl:
        return Kubectl(cluster.programs() / "kubectl", self._kubeconfig)


def _is_ready(node: dict[str, Any]) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in node["status"]["conditions"]
    )
