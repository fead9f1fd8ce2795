"""The demo's chapter about a cluster: two nodes at two providers, and pods on them that answer each other."""

import json
import re
import time
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
RULES_SECONDS = 30
"""The rules of network policies follow new pods, and on a busy machine some time later."""
LEFT_SECONDS_MAX = 60
_OF_NODE = (("node", ""), ("secret", ".node-password.k3s"))
_IS_CREDENTIAL = re.compile(r"/(bootstrap-token-|kc-|splitplane:kc-)")
"""Names of bootstrap tokens, and of what is behind kubeconfigs."""
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
            said = answer(f"http://{address}:8080/", through=url, seconds=RULES_SECONDS)
        self._city.say(f"  the pod on {names[0]} asked the pod on {names[1]}, which said: {said}")
        return said == f"I run on {names[1]}"

    def leave(self) -> int:
        """Revoke the kubeconfig and delete the pool. Returns how many things of theirs are left, anywhere.

        The project's namespace is no such thing: it stays for a day, with what the customer stored there.
        """
        names, machines = self._names(), self._machines()
        issued = [
            each["id"] for each in self._city.ask("/v1/kubeconfigs")["items"] if each["state"] == "issued"
        ]
        self._customer("kubeconfig", "revoke", *issued)
        self._customer("node-pool", "delete", POOL, "--yes")
        wait_for("the end of the pool's nodes", 120, lambda: not self._live())
        wait_for("the end of its leases", 120, self._is_over)
        end = time.monotonic() + LEFT_SECONDS_MAX
        while (left := [*self._in_cluster(names), *self._listed(machines)]) and time.monotonic() < end:
            time.sleep(1)  # A revoked kubeconfig loses its rights at once, and its account moments later.
        self._city.say(
            f"  of {len(names)} nodes and {len(issued)} kubeconfig is left: {', '.join(left) or 'nothing'}"
        )
        self._city.sell_locally(None)
        return len(left)

    def _leases(self) -> list[dict[str, Any]]:
        """Those of the pool."""
        leases: list[dict[str, Any]] = self._city.ask("/v1/leases?limit=100")["items"]
        return [lease for lease in leases if lease["node_pool"] == POOL]

    def _is_over(self) -> bool:
        return all(lease["state"] == "ended" for lease in self._leases())

    def _machines(self) -> set[str]:
        """The ids of the machines of the pool's leases, which are at the end of their names at the provider."""
        machines = [lease["machine"] for lease in self._leases() if lease["machine"]]
        return {machine["machine_id"].partition("_")[2] for machine in machines}

    def _listed(self, machines: set[str]) -> list[str]:
        """Which of these machines a provider still lists."""
        listed = [each["name"] for found in self._city.inventories().values() for each in found]
        return [f"machine {name}" for name in listed if name.rpartition("-")[2] in machines]

    def _in_cluster(self, names: list[str]) -> list[str]:
        """What the cluster still knows of these nodes, and of kubeconfigs: objects, and the server's tunnels."""
        kinds = "nodes,secrets,serviceaccounts,rolebindings,clusterrolebindings"
        arguments = ("kubectl", "get", kinds, "--all-namespaces", "--output=name")
        found = self._city.on_server_host("/usr/local/bin/k3s", *arguments).split()
        of_nodes = {f"{kind}/{name}{end}" for name in names for kind, end in _OF_NODE}
        objects = [each for each in found if each in of_nodes or _IS_CREDENTIAL.search(each)]
        peers = self._city.on_server_host("wg", "show", "spoverlay", "peers").split()
        return [*objects, *(f"tunnel {key}" for key in peers)]

    @property
    def _kubeconfig(self) -> Path:
        return self._city.directory / "customer" / "kubeconfig"

    def _providers(self) -> set[str]:
        """Whose machines the pool's nodes are."""
        found = {lease["machine"]["provider"] for lease in self._leases()}
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
