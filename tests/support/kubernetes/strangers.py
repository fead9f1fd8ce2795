"""Pods of a namespace that is no tenant's, on nodes of tenants: whom they reach is what network policies let through.

Another one stands in for the cluster's DNS.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

import httpx

from tests.support.kubernetes.k3s_machines import Server
from tests.support.kubernetes.kubectl import server_pod
from tests.support.kubernetes.parts import SERVER_IMAGE
from tests.support.machines import Machine

NAMESPACE = "strangers"
PORT = 8080
DNS_PORT = 53
_DNS, _SYSTEM = "dns", "kube-system"
_UNREACHED = 502
"""What a pod of the tests answers when it did not reach what it was to fetch."""
_PROGRAM = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@dataclass(frozen=True, slots=True)
class Strangers:
    server: Server
    addresses: dict[str, str]
    """Of the pods, by the names of their nodes."""
    dns: str
    """The address of a pod as the cluster's DNS is one. It answers HTTP, at its port 53 and at another one."""

    @classmethod
    async def place(cls, server: Server, nodes: Iterable[str]) -> "Strangers":
        """A pod on each node, past the scheduler and every taint."""
        pods = [server_pod(name, name, "a stranger") for name in nodes]
        for pod in pods:
            pod["metadata"]["namespace"] = NAMESPACE
            pod["spec"] = {key: value for key, value in pod["spec"].items() if key != "nodeSelector"} | {
                "nodeName": pod["metadata"]["name"],
                "tolerations": [{"operator": "Exists"}],
            }
        await server.kubectl(f"create namespace {NAMESPACE}")
        await server.apply({"apiVersion": "v1", "kind": "List", "items": pods})
        await server.kubectl(f"wait --for=condition=Ready pod --all --timeout=60s -n {NAMESPACE}")
        found = json.loads(await server.kubectl(f"get pods -n {NAMESPACE} -o json"))["items"]
        dns = await _dns(server)
        return cls(server, {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in found}, dns)

    async def reach(self, on: str, machine: Machine, address: str, port: int = PORT) -> bool:
        """Whether the stranger on a node reaches an address. `machine` is that of the node, which reaches its pods."""
        url = _asked(f"http://{self.addresses[on]}:{PORT}", address, port)
        return _has_reached(int(await machine.sh(f"python3 -I -c '{_PROGRAM}' '{url}'")))

    async def remove(self) -> None:
        """Also from nodes that are not reached any more."""
        await self.server.kubectl(f"delete pods --all --force --grace-period=0 -n {NAMESPACE}")
        await self.server.kubectl(f"delete namespace {NAMESPACE} --wait=false")
        await self.server.kubectl(f"delete pod {_DNS} --now -n {_SYSTEM}")


async def _dns(server: Server) -> str:
    node = (await server.machine.sh("hostname")).strip().lower()
    container = {
        "name": "main",
        "image": SERVER_IMAGE,
        "imagePullPolicy": "Never",
        "args": ["serve", "I am the DNS", str(DNS_PORT)],
    }
    metadata = {"name": _DNS, "namespace": _SYSTEM, "labels": {"k8s-app": "kube-dns"}}
    spec = {"nodeName": node, "tolerations": [{"operator": "Exists"}], "containers": [container]}
    await server.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    await server.kubectl(f"wait --for=condition=Ready pod/{_DNS} --timeout=60s -n {_SYSTEM}")
    return (await server.kubectl(f"get pod {_DNS} -n {_SYSTEM} -o jsonpath={{.status.podIP}}")).strip()


def reaches(through: str, address: str, port: int = PORT) -> bool:
    """Whether a pod that is forwarded to us reaches an address."""
    return _has_reached(httpx.get(_asked(through, address, port), timeout=30).status_code)


def _asked(pod: str, address: str, port: int) -> str:
    return f"{pod}/fetch?url=http://{address}:{port}/"


def _has_reached(status: int) -> bool:
    assert status in (200, _UNREACHED), status
    return status == 200
