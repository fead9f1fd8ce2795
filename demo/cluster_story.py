"""The demo's chapter about a cluster: two nodes at two providers, and pods on them that answer each other."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from demo import cluster
from demo.city import CLUSTER, City, free_port
from demo.prices import SKU
from demo.processes import DemoError, wait_for
from tests.support.kubernetes.parts import SERVER_IMAGE

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
            self._kubectl("apply", "--filename=-", stdin=json.dumps(_pod(name)))
        self._kubectl("wait", "--for=condition=Ready", "pod", "--all", f"--timeout={POD_SECONDS_MAX}s")
        self._show("get", "pods", "--output=wide")
        first, second = (f"on-{name}" for name in names)
        address = json.loads(self._kubectl("get", "pod", second, "--output=json"))["status"]["podIP"]
        with self._forwarded(first) as url:
            answer = httpx.get(f"{url}/fetch", params={"url": f"http://{address}:8080/"}, timeout=30)
        self._city.say(
            f"  the pod on {names[0]} asked the pod on {names[1]}, which said: {answer.text.strip()}"
        )
        return answer.is_success and answer.text.strip() == f"I run on {names[1]}"

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
        shown = json.loads(self._kubectl("get", "nodes", *self._names(), "--output=json"))
        nodes: list[dict[str, Any]] = shown["items"]
        return nodes

    def _show(self, *arguments: str) -> None:
        self._city.say(f"$ kubectl {' '.join(arguments)}")
        self._city.say(self._kubectl(*arguments).rstrip())

    def _kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Raises DemoError with what kubectl said."""
        command = [str(cluster.programs() / "kubectl"), f"--kubeconfig={self._kubeconfig}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, input=stdin, timeout=120, check=False)
        if done.returncode:
            raise DemoError(f"kubectl {' '.join(arguments[:3])} failed: {done.stderr.strip()}")
        return done.stdout

    @contextmanager
    def _forwarded(self, pod: str) -> Iterator[str]:
        """The URL at which the pod answers while kubectl forwards a port to it."""
        port = free_port()
        command = [str(cluster.programs() / "kubectl"), f"--kubeconfig={self._kubeconfig}"]
        process = subprocess.Popen(
            [*command, "port-forward", f"pod/{pod}", f"{port}:8080"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(f"an answer of {pod}", 30, lambda: _answers(url))
            yield url
        finally:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).is_success
    except httpx.HTTPError:
        time.sleep(0.2)
        return False


def _is_ready(node: dict[str, Any]) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in node["status"]["conditions"]
    )


def _pod(node: str) -> dict[str, Any]:
    """A pod that answers with where it runs, as restricted as the namespace demands."""
    container = {
        "name": "main",
        "image": SERVER_IMAGE,
        "imagePullPolicy": "Never",
        "args": ["serve", f"I run on {node}"],
        "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"on-{node}"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
        },
    }
