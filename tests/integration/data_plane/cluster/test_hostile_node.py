"""What a node's certificate is good for in the hands of whoever owns the machine, as docs/security.md says it."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from pathlib import Path

import httpx2
import pytest

from data_plane.cluster import node
from data_plane.cluster.lightkube_port import LightkubePort
from data_plane.cluster.objects import node as on_node
from data_plane.cluster.objects import node_addresses
from data_plane.cluster.objects.admission import ADDRESSES_MAX, FLANNEL, MARKS_MAX
from data_plane.cluster.objects.node import joining_taint
from data_plane.cluster.objects.tenant import NODE_PROJECT, OWN_PREFIX, Tenant
from data_plane.cluster.resource import CONFIG_MAP, NODE, POD, SECRET, Object, head
from data_plane.cluster.tenant import keep_tenant
from tests.integration.data_plane.cluster.conftest import ALLOWANCE
from tests.support.kubernetes.clients import eventually, merge, new_name, new_node, new_tenant, pod, raw
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.k3s.server import RBAC, RULES_OF_AGENTS
from tests.support.kubernetes.tier import KUBERNETES

pytestmark = KUBERNETES
PAGE = Path("docs/security.md")
SECTION = "## What a node's certificate opens"
ADDRESSES = {"here": "10.64.0.7", "elsewhere": "10.64.0.8"}
"""Of the attacker's node and of the other one, in the overlay."""
MANY = [f"example.com/{number}" for number in range(MARKS_MAX + 1)]
CLAIM = "claimed"
"""The value of each label that the node gives itself."""
PLACE = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
)
KUBELETS = ("node.kubernetes.io/anything", "kubelet.kubernetes.io/anything")
"""Kubernetes lets a kubelet set these and `PLACE` on its own Node."""


@dataclass
class Attacker:
    """A node that belongs to a tenant, its certificate, and things around it that are not its own."""

    client: httpx2.AsyncClient
    node: str
    uid: str
    other: str
    namespace: str
    ranges: Mapping[str, IPv4Network]
    """Of pods, by the names of nodes."""

    @property
    def itself(self) -> str:
        return f"/api/v1/nodes/{self.node}"

    @property
    def space(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    async def change(self, path: str, change: Object) -> httpx2.Response:
        return await merge(self.client, path, change)

    async def label(self, *names: str) -> httpx2.Response:
        return await self.change(self.itself, {"metadata": {"labels": dict.fromkeys(names, CLAIM)}})

    async def taint(self, key: str) -> httpx2.Response:
        """A taint besides those that it has, which stay as they are."""
        present = (await self.client.get(self.itself)).json()["spec"]["taints"]
        taint = {"key": key, "value": "x", "effect": "NoSchedule"}
        return await self.change(self.itself, {"spec": {"taints": [*present, taint]}})

    async def claim(self, kind: str, *addresses: str) -> httpx2.Response:
        """Say that it has these addresses itself."""
        found = [{"type": kind, "address": address} for address in addresses]
        return await self.change(f"{self.itself}/status", {"status": {"addresses": found}})

    async def report(self, pod_name: str, *addresses: str) -> httpx2.Response:
        """Say that a pod has these addresses."""
        found = {"podIP": addresses[0], "podIPs": [{"ip": address} for address in addresses]}
        return await self.change(f"{self.space}/pods/{pod_name}/status", {"status": found})

    def address(self, node_name: str) -> str:
        """One of the node's pods."""
        return str(self.ranges[node_name][7])

    async def mint(self, account: str, pod_name: str) -> httpx2.Response:
        pods = (await self.client.get(f"{self.space}/pods/{pod_name}")).json()
        bound = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod_name,
            "uid": pods.get("metadata", {}).get("uid", ""),
        }
        body = {"spec": {"expirationSeconds": 600, "audiences": [], "boundObjectRef": bound}}
        return await self.client.post(f"{self.space}/serviceaccounts/{account}/token", json=body)

    async def mirror(self, namespace: str, labels: Mapping[str, str]) -> httpx2.Response:
        """A pod that the node says it runs from a file of its own. It can have the labels that a Service selects by."""
        owner = {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": self.uid, "controller": True}
        body = pod(namespace, new_name("mirror-"), nodeName=self.node, automountServiceAccountToken=False)
        body["metadata"] |= {
            "annotations": {"kubernetes.io/config.mirror": "x"},
            "ownerReferences": [owner],
            "labels": dict(labels),
        }
        return await self.client.post(f"/api/v1/namespaces/{namespace}/pods", json=body)


Attempt = Callable[[Attacker], Awaitable[httpx2.Response]]
_CSR = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_EVENT = {
    "metadata": {"generateName": "forged-"},
    "involvedObject": {"kind": "Pod", "namespace": "kube-system", "name": "x"},
    "reason": "Forged",
    "message": "by a node",
    "type": "Warning",
    "reportingComponent": "node",
    "reportingInstance": "x",
}
ATTEMPTS: dict[str, Attempt] = {
    "read a Secret that a pod on it uses": lambda a: a.client.get(f"{a.space}/secrets/used"),
    "read another Secret": lambda a: a.client.get(f"{a.space}/secrets/unused"),
    "list Secrets": lambda a: a.client.get("/api/v1/secrets"),
    "list the pods on itself": lambda a: a.client.get(f"/api/v1/pods?fieldSelector=spec.nodeName={a.node}"),
    "list all pods": lambda a: a.client.get("/api/v1/pods"),
    "list the pods of another node": lambda a: a.client.get(
        f"/api/v1/pods?fieldSelector=spec.nodeName={a.other}"
    ),
    "read a pod of another node": lambda a: a.client.get(f"{a.space}/pods/elsewhere"),
    "read another Node": lambda a: a.client.get(f"/api/v1/nodes/{a.other}"),
    "list Nodes": lambda a: a.client.get("/api/v1/nodes"),
    "list the Services of all tenants": lambda a: a.client.get("/api/v1/services"),
    "list requests for certificates": lambda a: a.client.get(_CSR),
    "list RuntimeClasses": lambda a: a.client.get("/apis/node.k8s.io/v1/runtimeclasses"),
    "write an Event into any namespace": lambda a: a.client.post(
        "/api/v1/namespaces/kube-system/events",
        json={**_EVENT, "metadata": {"generateName": "forged-", "namespace": "kube-system"}},
    ),
    "set a label on itself, such as its GPU model": lambda a: a.change(
        a.itself, {"metadata": {"labels": {"gpu.example.com/model": "b200"}}}
    ),
    "set or take off a label below `node-restriction.kubernetes.io/`": lambda a: a.change(
        a.itself, {"metadata": {"labels": {NODE_PROJECT: "prj_other"}}}
    ),
    "set a label below `kubernetes.io` that no kubelet has": lambda a: a.label("example.kubernetes.io/a"),
    "set a label below `k8s.io` that no kubelet has": lambda a: a.label("example.k8s.io/a"),
    "name its zone, region, instance type, host name, architecture and system": lambda a: a.label(*PLACE),
    "set any label below `node.kubernetes.io/` and `kubelet.kubernetes.io/`": lambda a: a.label(*KUBELETS),
    "take off its taints": lambda a: a.change(a.itself, {"spec": {"taints": []}}),
    "add a taint": lambda a: a.taint("example.com/stay-away"),
    "delete its own Node": lambda a: a.client.delete(a.itself),
    "hold up the deletion of its Node": lambda a: a.change(
        a.itself, {"metadata": {"finalizers": ["example.com/stay"]}}
    ),
    "hold it up with its status": lambda a: a.change(
        f"{a.itself}/status", {"metadata": {"finalizers": ["example.com/stay"]}}
    ),
    "choose the range of its pods, such as another node's": lambda a: a.change(
        a.itself, {"spec": {"podCIDR": "10.48.9.0/24", "podCIDRs": ["10.48.9.0/24"]}}
    ),
    "register another Node": lambda a: a.client.post(
        "/api/v1/nodes", json={**head(NODE, new_name("rogue-")), "spec": {"taints": [joining_taint()]}}
    ),
    "hold up the deletion of a pod on it": lambda a: a.change(
        f"{a.space}/pods/here/status", {"metadata": {"finalizers": ["example.com/stay"]}}
    ),
    "give its Node more annotations than rules can compare in time": lambda a: a.change(
        f"{a.itself}/status", {"metadata": {"annotations": dict.fromkeys(MANY, "")}}
    ),
    "give its Node as many labels": lambda a: a.label(*MANY),
    "fill its Node with control characters": lambda a: a.change(
        f"{a.itself}/status", {"status": {"conditions": [{"type": "\0\x1b[2J", "status": "True"}]}}
    ),
    "claim 64 GPUs": lambda a: a.change(
        f"{a.itself}/status", {"status": {"capacity": {"nvidia.com/gpu": "64"}}}
    ),
    "change another Node": lambda a: a.change(
        f"/api/v1/nodes/{a.other}", {"metadata": {"labels": {"a": "b"}}}
    ),
    "say of a pod on it that it is ready": lambda a: a.change(
        f"{a.space}/pods/here/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    ),
    "say so of a pod of another node": lambda a: a.change(
        f"{a.space}/pods/elsewhere/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    ),
    "say that it has its own address": lambda a: a.claim("InternalIP", ADDRESSES["here"]),
    "say that it has the address of another node": lambda a: a.claim("InternalIP", ADDRESSES["elsewhere"]),
    "say that it has another name, such as one on the internet": lambda a: a.claim(
        "Hostname", "registry.example.com"
    ),
    "say that it has the name of another node": lambda a: a.claim("Hostname", a.other),
    "say which address of its range a pod on it has": lambda a: a.report("here", a.address(a.node)),
    "say that a pod on it has an address of another node's pods": lambda a: a.report(
        "here", a.address(a.other)
    ),
    "renew the Lease of another Node": lambda a: a.change(
        f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{a.other}",
        {"spec": {"renewTime": "2026-11-28T12:00:00.000000Z"}},
    ),
    "get a token of the ServiceAccount of a pod on it": lambda a: a.mint("default", "here"),
    "get a token of another ServiceAccount": lambda a: a.mint("another", "here"),
    "put a pod into a tenant's namespace, as a mirror pod": lambda a: a.mirror(
        a.namespace, {"app": "somebody-elses"}
    ),
    "put a pod into a system namespace, as a mirror pod": lambda a: a.mirror(
        "kube-system", {"k8s-app": "kube-dns"}
    ),
    "evict a pod of another node": lambda a: a.client.post(
        f"{a.space}/pods/elsewhere/eviction", json={"metadata": {"name": "elsewhere"}}
    ),
    "delete a pod on it": lambda a: a.client.delete(f"{a.space}/pods/here?gracePeriodSeconds=0"),
    "delete a pod of another node": lambda a: a.client.delete(
        f"{a.space}/pods/elsewhere?gracePeriodSeconds=0"
    ),
    "have its own Node deleted, by naming an owner that is not there": lambda a: a.change(
        a.itself,
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "x"}]}},
    ),
}


async def range_of(admin: LightkubePort, name: str) -> IPv4Network:
    """The range of a node's pods, once the cluster has assigned it."""

    async def is_assigned() -> bool:
        return "podCIDR" in (await admin.get(NODE, name))["spec"]

    await eventually(f"{name} has a range for its pods", is_assigned)
    return IPv4Network((await admin.get(NODE, name))["spec"]["podCIDR"])


@pytest.fixture
async def attacker(kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant) -> AsyncIterator[Attacker]:
    names = {"here": await new_node(kubernetes), "elsewhere": await new_node(kubernetes)}
    ranges = {name: await range_of(admin, name) for name in names.values()}
    await admin.apply(node_addresses.node_addresses())
    for which, name in names.items():
        known = node_addresses.with_address(name, ADDRESSES[which])
        await admin.patch(CONFIG_MAP, node_addresses.NAME, known, node_addresses.NAMESPACE)
        await node.admit(admin, name, node.Marks(tenant, "le_1", "gpu"))
    for name in ("used", "unused"):
        await admin.apply({**head(SECRET, name, tenant.namespace), "stringData": {"a": "b"}})
    async with raw(kubernetes, kubernetes.admin) as boss:
        space = f"/api/v1/namespaces/{tenant.namespace}"
        await boss.post(f"{space}/serviceaccounts", json={"metadata": {"name": "another"}})

        async def has_default() -> bool:
            return (await boss.get(f"{space}/serviceaccounts/default")).status_code == 200

        await eventually("the ServiceAccount default is there", has_default)
        for name, on in names.items():
            thing = pod(tenant.namespace, name, nodeSelector={"kubernetes.io/hostname": on})
            if name == "here":
                thing["spec"]["volumes"] = [{"name": "s", "secret": {"secretName": "used"}}]
            (
                await merge(
                    boss, f"/api/v1/nodes/{on}", {"metadata": {"labels": {"kubernetes.io/hostname": on}}}
                )
            )
            (await boss.post(f"{space}/pods", json=thing)).raise_for_status()

            async def is_bound(path: str = f"{space}/pods/{name}") -> bool:
                return "nodeName" in (await boss.get(path)).json()["spec"]

            await eventually(f"{name} is bound", is_bound)
    certificate = kubernetes.client(f"system:node:{names['here']}", "system:nodes")
    async with raw(kubernetes, certificate) as client:
        uid = (await admin.get(NODE, names["here"]))["metadata"]["uid"]
        found = Attacker(client, names["here"], uid, names["elsewhere"], tenant.namespace, ranges)

        async def is_authorized() -> (
            bool
        ):  # The authorizer's picture of which pod uses what follows in moments.
            return (await client.get(f"{found.space}/secrets/used")).status_code == 200

        await eventually("the node may read what its pods use", is_authorized)
        async with raw(kubernetes, certificate) as trial:
            trial.params = {"dryRun": "All"}
            trying = replace(found, client=trial)

            async def is_refused() -> bool:
                """The API server has policies, and the lists that they read, in force a moment after they are stored."""
                no = [attempt for what, attempt in ATTEMPTS.items() if not _rows()[what]]
                return not any([(await attempt(trying)).is_success for attempt in no])

            await eventually("what is refused is refused", is_refused)
        yield found


def _rows() -> dict[str, bool]:
    section = PAGE.read_text().split(SECTION)[1].split("\n## ")[0]
    return {
        what: said == "yes"
        for what, said in re.findall(r"^\| ([^|]+?) \| (yes|no) \|", section, re.MULTILINE)
    }


async def test_a_nodes_certificate_opens_what_the_page_says_and_no_more(attacker: Attacker) -> None:
    page = _rows()
    assert page.keys() == ATTEMPTS.keys()
    wrong = []
    for what, attempt in ATTEMPTS.items():
        answer = await attempt(attacker)
        if answer.is_success != page[what] or (
            not answer.is_success and answer.status_code not in (403, 422)
        ):
            wrong.append((what, answer.status_code, answer.text[:300]))
    assert not wrong


async def test_a_node_draws_no_pod_of_another_project_by_the_labels_that_it_may_set(
    kubernetes: ControlPlane, admin: LightkubePort, attacker: Attacker
) -> None:
    (await attacker.label(*PLACE, *KUBELETS)).raise_for_status()
    claims = dict.fromkeys((*PLACE, *KUBELETS), CLAIM)
    other = new_tenant()
    await keep_tenant(admin, other, ALLOWANCE, [])

    async def condition(namespace: str) -> Object:
        status = (await admin.get(POD, "drawn", namespace)).get("status", {})
        return next((each for each in status.get("conditions", []) if each["type"] == "PodScheduled"), {})

    for namespace in (attacker.namespace, other.namespace):
        # It tolerates every taint, so that only the label of its project keeps it off the node.
        await admin.apply(pod(namespace, "drawn", nodeSelector=claims, tolerations=[{"operator": "Exists"}]))

    async def is_decided() -> bool:
        found = [await condition(namespace) for namespace in (attacker.namespace, other.namespace)]
        return all(found)

    await eventually("the scheduler has looked for places", is_decided)
    own = await admin.get(POD, "drawn", attacker.namespace)
    assert own["spec"]["nodeName"] == attacker.node, "the claims are in force"
    assert (await condition(other.namespace))["reason"] == "Unschedulable"


async def test_a_node_has_its_own_address_alone_whoever_writes_it(
    kubernetes: ControlPlane, attacker: Attacker
) -> None:
    """K3s' cloud controller copies what the kubelet has written into annotations."""
    own, other = ADDRESSES["here"], ADDRESSES["elsewhere"]
    async with raw(kubernetes, kubernetes.admin) as controller:
        for client in (attacker.client, controller):
            writer = replace(attacker, client=client)
            for kind, addresses, expected in (
                ("InternalIP", [own], 200),
                ("InternalIP", [other], 403),
                ("InternalIP", [own, other], 403),
                ("ExternalIP", [other], 403),
                ("InternalIP", ["10.64.16.1"], 403),
                ("InternalDNS", ["registry.example.com"], 403),
                ("Hostname", [attacker.node], 200),
                ("Hostname", ["gpu-box-7"], 200),
                ("Hostname", [attacker.other], 403),
                ("Hostname", ["cl-1"], 403),
                ("Hostname", [f"gpu-box-{number}" for number in range(ADDRESSES_MAX + 1)], 403),
                ("Hostname", ["packages.example."], 403),
                ("Hostname", ["registry.example.com"], 403),
                ("Hostname", [f"{attacker.node}\n192.0.2.7 registry.example.com"], 403),
            ):
                answer = await writer.claim(kind, *addresses)
                assert answer.status_code == expected, (kind, addresses, answer.text)
        # A server's Node is on no list.
        server = await new_node(kubernetes)
        found = {"status": {"addresses": [{"type": "InternalIP", "address": "10.64.16.1"}]}}
        assert (await merge(controller, f"/api/v1/nodes/{server}/status", found)).status_code == 200


async def test_a_pod_has_addresses_of_its_nodes_range_alone_whatever_the_node_says(
    admin: LightkubePort, attacker: Attacker
) -> None:
    own = attacker.address(attacker.node)
    assert (await attacker.report("here", own)).is_success
    of_others = (attacker.address(attacker.other), "127.0.0.1", "10.43.0.10", f"::ffff:{own}", "::1")
    for addresses in (*((address,) for address in of_others), (own, "fd00::7")):
        answer = await attacker.report("here", *addresses)
        # Kubernetes itself refuses an IPv4 address in the form of IPv6, and before our rule.
        expected = (422, "IPv4-mapped") if "ffff" in addresses[0] else (403, "addresses of its own range")
        assert answer.status_code == expected[0], addresses
        assert expected[1] in answer.text
    seen = await admin.get(POD, "here", attacker.namespace)
    assert seen["status"]["podIPs"] == [{"ip": own}]
    # Its Node is deleted, and its pods are not yet.
    await node.forget(admin, attacker.node)

    async def is_refused() -> bool:
        return not (await attacker.report("here", str(attacker.ranges[attacker.node][8]))).is_success

    await eventually("nobody has the range any more", is_refused)


OWNER = {"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "x"}


def _device(mac: str) -> str:
    """As flannel writes it (pkg/subnet/kube/kube.go, GetStoredMacAddresses)."""
    return f'{{"VNI":1,"VtepMAC":"{mac}"}}'


def _flannel(name: str, value: str | None) -> Object:
    return {"metadata": {"annotations": {f"{FLANNEL}/{name}": value}}}


BY_AN_AGENT: Mapping[str, tuple[Object, bool]] = {
    "flannel's annotations": (
        {
            "metadata": {
                "annotations": {
                    f"{FLANNEL}/backend-data": _device("12:c6:65:89:b4:e3"),
                    f"{FLANNEL}/backend-type": "vxlan",
                    f"{FLANNEL}/kube-subnet-manager": "true",
                    f"{FLANNEL}/public-ip": "10.64.0.9",
                }
            }
        },
        True,
    ),
    "an address that is not the node's": (
        {"metadata": {"annotations": {f"{FLANNEL}/public-ip": "10.64.0.1"}}},
        False,
    ),
    "what stands for that address": (
        {"metadata": {"annotations": {f"{FLANNEL}/public-ip-overwrite": "10.64.0.9"}}},
        False,
    ),
    "another device": (_flannel("backend-data", _device("02:00:00:00:00:01")), True),
    "a group of devices, with which the kernel makes none": (
        _flannel("backend-data", _device("03:00:5e:00:00:01")),
        False,
    ),
    "a device that flannel would not make": (_flannel("backend-data", _device("00:00:00:00:00:00")), False),
    "a device with an address of eight bytes": (
        _flannel("backend-data", _device("02:00:00:00:00:00:00:01")),
        False,
    ),
    "a device, and more": (_flannel("backend-data", _device("02:00:00:00:00:01") + " " * 100), False),
    "another kind of network": (_flannel("backend-type", "host-gw"), False),
    "that it has no network": (_flannel("kube-subnet-manager", "false"), False),
    "its address no more": (_flannel("public-ip", None), False),
    "one more annotation": ({"metadata": {"annotations": {"b": ""}}}, False),
    "another annotation": ({"metadata": {"annotations": {"a": "c"}}}, False),
    "one annotation less": ({"metadata": {"annotations": {"a": None}}}, False),
    "whose it is": ({"metadata": {"labels": {NODE_PROJECT: "prj_other"}}}, False),
    "that it is nobody's": ({"metadata": {"labels": {NODE_PROJECT: None}}}, False),
    "a finalizer": ({"metadata": {"finalizers": ["example.com/stay"]}}, False),
    "an owner that is not there": ({"metadata": {"ownerReferences": [OWNER]}}, False),
    "that it is not ready": ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, False),
    "what it has": ({"status": {"capacity": {"nvidia.com/gpu": "64"}}}, False),
    "where its kubelet is": (
        {"status": {"addresses": [{"type": "InternalIP", "address": "10.64.0.1"}]}},
        False,
    ),
    "its taints": ({"spec": {"taints": []}}, True),
}
"""What K3s' own certificate, which all agents have, is used for on the status of a Node, and whether that is permitted.

The API server takes a change of the spec there, and drops it."""


@pytest.fixture
async def agent(kubernetes: ControlPlane) -> AsyncIterator[httpx2.AsyncClient]:
    """With the rights that K3s gives to all agents."""
    name = "system:k3s-controller"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
    made = {
        "clusterroles": {"metadata": {"name": name}, "rules": RULES_OF_AGENTS},
        "clusterrolebindings": {"metadata": {"name": name}, "roleRef": role, "subjects": [user]},
    }
    async with raw(kubernetes, kubernetes.admin) as boss, raw(kubernetes, kubernetes.client(name)) as client:
        for plural, thing in made.items():
            (await boss.post(f"{RBAC}/{plural}", json=thing)).raise_for_status()

        async def may_list() -> bool:
            return (await client.get("/api/v1/nodes")).is_success

        await eventually("the rights are in force", may_list)
        yield client
        for plural in made:
            (await boss.delete(f"{RBAC}/{plural}/{name}")).raise_for_status()


async def test_the_certificate_of_all_agents_changes_nothing_of_a_node_but_the_annotations_of_its_network(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant, agent: httpx2.AsyncClient
) -> None:
    name = await new_node(kubernetes)
    await node.admit(admin, name, node.Marks(tenant, "le_1", "gpu"))
    path = f"/api/v1/nodes/{name}"
    addresses = {"status": {"addresses": [{"type": "InternalIP", "address": "10.64.0.9"}]}}
    async with raw(kubernetes, kubernetes.admin) as boss:
        (await merge(boss, f"{path}/status", addresses)).raise_for_status()
        (await merge(boss, path, {"metadata": {"annotations": {"a": "b"}}})).raise_for_status()
    wrong = []
    for what, (change, is_permitted) in BY_AN_AGENT.items():
        answer = await merge(agent, f"{path}/status", change)
        if answer.status_code != (200 if is_permitted else 403):
            wrong.append((what, answer.status_code, answer.text[:300]))
    assert not wrong
    seen = await admin.get(NODE, name)
    await _is_refused_in_every_other_way(agent, name)
    # Kubernetes' own controller may have added one meanwhile: nobody answers for this Node.
    ours = [taint for taint in seen["spec"]["taints"] if taint["key"].startswith(f"{OWN_PREFIX}/")]
    assert ours == [on_node.tenant_taint(tenant)]


async def _is_refused_in_every_other_way(agent: httpx2.AsyncClient, name: str) -> None:
    """Other kinds of patches, other verbs, and what else is below a Node."""
    path, whole = f"/api/v1/nodes/{name}", head(NODE, name, labels={"a": "b"})
    (found,) = [
        each
        for each in (await agent.get("/api/v1/nodes")).json()["items"]
        if each["metadata"]["name"] == name
    ]
    found = {**found, "apiVersion": "v1", "kind": "Node"}
    found["metadata"]["labels"]["a"] = "b"
    by_json = [{"op": "add", "path": "/metadata/labels/a", "value": "b"}]
    strategic = {
        "metadata": {"finalizers": ["example.com/stay"], "$setElementOrder/finalizers": ["example.com/stay"]}
    }
    patches: list[tuple[str, str, object]] = [
        (f"{path}/status", "json-patch", by_json),
        (f"{path}/status", "strategic-merge-patch", strategic),
        (f"{path}/status?fieldManager=x&force=true", "apply-patch", whole),
        (path, "merge-patch", {"metadata": {"labels": {"a": "b"}}}),
        (f"{path}?fieldManager=x&force=true", "apply-patch", whole),
        (f"/api/v1/nodes/{name}-2?fieldManager=x", "apply-patch", head(NODE, f"{name}-2")),
    ]
    for where, kind, change in patches:
        suffix = "yaml" if kind == "apply-patch" else "json"
        headers = {"Content-Type": f"application/{kind}+{suffix}"}
        answer = await agent.patch(where, json=change, headers=headers)
        assert answer.status_code == 403, (where, kind, answer.text)
    for where in (path, f"{path}/status"):
        assert (await agent.put(where, json=found)).status_code == 403, where
    for answer in (
        await agent.post("/api/v1/nodes", json=head(NODE, f"{name}-2")),
        await agent.delete(path),
        await agent.delete("/api/v1/nodes"),
        await agent.get(f"{path}/proxy/pods"),
    ):
        assert answer.status_code == 403, answer.text
