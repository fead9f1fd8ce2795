"""What a customer can do in a cluster, and cannot: with a kubeconfig of ours, against a real API server and scheduler."""

import asyncio
import base64
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from data_plane.cluster import kubeconfig as kubeconfigs
from data_plane.cluster import node as nodes
from data_plane.cluster.kubeconfig import Address, Kubeconfig, Role
from data_plane.cluster.lightkube_port import LightkubePort
from data_plane.cluster.objects.admission import SERVICE_PORTS_MAX
from data_plane.cluster.objects.resource_quota import OBJECTS_MAX_WITHOUT_NODES
from data_plane.cluster.objects.signal import NAME as SIGNAL
from data_plane.cluster.objects.signal import NodeSignal
from data_plane.cluster.objects.tenant import KUBECONFIGS_NAMESPACE, NODE_PROJECT, Tenant
from data_plane.cluster.port import ClusterError, Forbidden, Invalid, NotFound, Token, Unauthorized
from data_plane.cluster.resource import (
    CONFIG_MAP,
    DAEMON_SET,
    NAMESPACE,
    NETWORK_POLICY,
    POD,
    RESOURCE_QUOTA,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    Object,
    head,
)
from data_plane.cluster.tenant import keep_tenant, remove_tenant
from tests.integration.data_plane.cluster.conftest import ALLOWANCE
from tests.support.kubernetes.clients import (
    eventually,
    held,
    merge,
    new_name,
    new_node,
    new_tenant,
    pod,
    port,
    raw,
)
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.tier import KUBERNETES

pytestmark = KUBERNETES
LIFE = timedelta(minutes=10)
RIGHTS_SECONDS_MAX = 6.0
"""Less than the 10 s for which the API server would recognise the token itself."""


async def _issue(
    plane: ControlPlane,
    admin: LightkubePort,
    tenant: Tenant,
    *,
    all_nodes: bool = True,
    role: Role = Role.EDIT,
    name: str | None = None,
) -> Kubeconfig:
    address = Address("gpus", plane.url, plane.authority.decode(), "kubernetes")
    name = name or new_name("kc_")
    return await kubeconfigs.issue(admin, address, tenant, name, role=role, all_nodes=all_nodes, life=LIFE)


def _token(issued: Kubeconfig) -> Token:
    return Token(json.loads(issued.text)["users"][0]["user"]["token"])


@asynccontextmanager
async def _customer(
    plane: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> AsyncIterator[LightkubePort]:
    client = port(plane, _token(await _issue(plane, admin, tenant)))
    yield client
    await client.aclose()


async def _bound_to(admin: LightkubePort, tenant: Tenant, name: str) -> str:
    async def is_bound() -> bool:
        return "nodeName" in (await admin.get(POD, name, tenant.namespace))["spec"]

    await eventually(f"{name} is bound", is_bound)
    return str((await admin.get(POD, name, tenant.namespace))["spec"]["nodeName"])


async def test_pods_of_a_tenant_land_on_its_own_nodes_whatever_they_ask_for(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    other = new_tenant()
    mine, theirs = await new_node(kubernetes), await new_node(kubernetes)
    idle = await new_node(kubernetes)  # In the cluster, and nobody's.
    await nodes.admit(admin, mine, nodes.Marks(tenant, "le_1", "gpu"))
    await nodes.admit(admin, theirs, nodes.Marks(other, "le_2", "gpu"))
    everything = [{"operator": "Exists"}]
    async with _customer(kubernetes, admin, tenant) as customer:
        specs: dict[str, dict[str, object]] = {
            "plain": {},
            "tolerant": {"tolerations": everything},
            "forged": {"nodeSelector": {NODE_PROJECT: other.project}, "tolerations": everything},
        }
        for name, spec in specs.items():
            await customer.apply(pod(tenant.namespace, name, **spec))
        for name in specs:
            assert await _bound_to(admin, tenant, name) == mine, name
        for target in (theirs, idle):
            with pytest.raises(Invalid, match="for the scheduler to set"):
                await customer.apply(pod(tenant.namespace, "direct", nodeName=target))
    # By a controller too, which asks in its own name: the API server's rules are about the namespace.
    async with raw(kubernetes, kubernetes.admin) as client:
        path = f"/api/v1/namespaces/{tenant.namespace}/pods"
        answer = await client.post(path, json=pod(tenant.namespace, "direct", nodeName=theirs))
        assert answer.status_code == 422


async def test_a_daemon_set_has_a_pod_on_each_node_of_its_project_and_learns_of_no_other_node(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    mine, theirs = await new_node(kubernetes), await new_node(kubernetes)
    idle = await new_node(kubernetes)  # In the cluster, nobody's, and without a taint.
    await nodes.admit(admin, mine, nodes.Marks(tenant, "le_1", "gpu"))
    await nodes.admit(admin, theirs, nodes.Marks(new_tenant(), "le_2", "gpu"))
    everything = [{"operator": "Exists"}]
    specs: dict[str, dict[str, object]] = {
        "plain": {},
        "tolerant": {"tolerations": everything},
        "forged": {"tolerations": everything, "nodeSelector": {NODE_PROJECT: "prj_other"}},
    }

    def daemons(name: str) -> Object:
        template = {
            "metadata": {"labels": {"app": name}},
            "spec": pod(tenant.namespace, name, **specs[name])["spec"],
        }
        spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
        return {**head(DAEMON_SET, name, tenant.namespace), "spec": spec}

    async with _customer(kubernetes, admin, tenant) as customer:

        async def is_placed() -> bool:
            found = [await customer.get(DAEMON_SET, name, tenant.namespace) for name in specs]
            return all(each.get("status", {}).get("observedGeneration") for each in found)

        made = [await customer.apply(daemons(name)) for name in specs]
        await eventually("the controller has looked for nodes", is_placed)
        for name in specs:
            wanted = (await customer.get(DAEMON_SET, name, tenant.namespace))["status"][
                "desiredNumberScheduled"
            ]
            assert wanted == 1, name
        again = [await customer.apply(daemons(name)) for name in specs]
        for before, after in zip(made, again, strict=True):
            assert after["metadata"]["generation"] == before["metadata"]["generation"], (
                "nothing is added twice"
            )
        pods = await customer.list(POD, tenant.namespace)
    assert {each["metadata"]["labels"]["app"] for each in pods} == specs.keys()
    for each in pods:
        assert await _bound_to(admin, tenant, each["metadata"]["name"]) == mine
        assert not [name for name in (theirs, idle) if name in json.dumps(each)]


async def test_pods_of_others_stay_off_a_tenants_node(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    mine = await new_node(kubernetes)
    await nodes.admit(admin, mine, nodes.Marks(tenant, "le_1", "gpu"))
    selector = {NODE_PROJECT: tenant.project}
    name = new_name("system-")
    await admin.apply(pod("kube-system", name, nodeSelector=selector))

    async def was_tried() -> bool:
        status = (await admin.get(POD, name, "kube-system")).get("status", {})
        return any(entry.get("reason") == "Unschedulable" for entry in status.get("conditions", []))

    await eventually("the scheduler has looked for a place", was_tried)
    assert "nodeName" not in (await admin.get(POD, name, "kube-system"))["spec"]
    await admin.delete(POD, name, "kube-system", grace_s=0)


async def test_what_would_reach_beyond_a_namespace_is_refused_with_a_reason(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    def volume(path: str) -> list[Object]:
        return [{"name": "host", "hostPath": {"path": path}}]

    def affinity(kind: str, term: Object, *, required: bool = True) -> Object:
        whole = {"topologyKey": "kubernetes.io/os", "labelSelector": {}, **term}
        if required:
            return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [whole]}}}
        preferred = {"weight": 1, "podAffinityTerm": whole}
        return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}}

    space = tenant.namespace
    service = head(SERVICE, "s", space)
    ports = [{"port": 80}]
    many = [{"name": f"p{number}", "port": number} for number in range(1, SERVICE_PORTS_MAX + 2)]
    with_port = pod(space, "p")
    with_port["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    everywhere: Object = {"namespaceSelector": {}}
    refused: list[tuple[Object, type[ClusterError], str]] = [
        (pod(space, "p", hostNetwork=True), Forbidden, "hostNetwork"),
        (pod(space, "p", hostPID=True), Forbidden, "hostPID"),
        (pod(space, "p", volumes=volume("/")), Forbidden, "hostPath"),
        (pod(space, "p", securityContext={}), Forbidden, "runAsNonRoot"),
        (pod(space, "p", hostIPC=True), Forbidden, "hostIPC"),
        (with_port, Forbidden, "hostPort"),
        (pod(space, "p", priorityClassName="system-node-critical"), Invalid, "priority classes"),
        (pod(space, "p", **affinity("podAntiAffinity", everywhere)), Invalid, "neighbours"),
        (pod(space, "p", **affinity("podAntiAffinity", everywhere, required=False)), Invalid, "neighbours"),
        (pod(space, "p", **affinity("podAffinity", {"namespaces": ["kube-system"]})), Invalid, "neighbours"),
        (
            pod(space, "p", **affinity("podAffinity", {"namespaces": [space, "default"]}, required=False)),
            Invalid,
            "neighbours",
        ),
        ({**service, "spec": {"type": "NodePort", "ports": ports}}, Forbidden, "quota|ClusterIP"),
        ({**service, "spec": {"type": "LoadBalancer", "ports": ports}}, Forbidden, "quota|ClusterIP"),
        (
            {**service, "spec": {"type": "ExternalName", "externalName": "x.example.com"}},
            Invalid,
            "ClusterIP",
        ),
        ({**service, "spec": {"ports": ports, "externalIPs": ["192.0.2.1"]}}, Invalid, "externalIPs"),
        ({**service, "spec": {"ports": many[: SERVICE_PORTS_MAX + 1]}}, Invalid, "up to 20 ports"),
        (head(NETWORK_POLICY, "open", space), Forbidden, "cannot patch"),
        (head(ROLE_BINDING, "more", space), Forbidden, "cannot patch"),
        (head(SECRET, "s", "kube-system"), Forbidden, "cannot patch"),
        (head(SECRET, "s", KUBECONFIGS_NAMESPACE), Forbidden, "cannot patch"),
    ]
    async with _customer(kubernetes, admin, tenant) as customer:
        for thing, _, reason in refused:
            with pytest.raises((Forbidden, Invalid), match=reason):
                await customer.apply(thing)
        await customer.apply({**service, "spec": {"ports": many[:SERVICE_PORTS_MAX]}})
        await customer.apply(pod(space, "p", **affinity("podAntiAffinity", {"namespaces": [space]})))
        await customer.apply(pod(space, "q", **affinity("podAntiAffinity", {}, required=False)))


async def test_a_pod_that_wants_no_neighbours_keeps_no_pod_of_another_project_from_its_node(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    """Whoever keeps neighbours away keeps them away from each node with the same label, and all have some in common."""
    other = new_tenant()
    await keep_tenant(admin, other, ALLOWANCE, [])
    for owner, lease in ((tenant, "le_1"), (other, "le_2")):
        name = await new_node(kubernetes)
        await nodes.admit(admin, name, nodes.Marks(owner, lease, "gpu", labels={"example.com/all": "yes"}))
    term = {"topologyKey": "example.com/all", "labelSelector": {}}
    alone = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    async with _customer(kubernetes, admin, tenant) as customer:
        await customer.apply(pod(tenant.namespace, "alone", affinity=alone))
        await _bound_to(admin, tenant, "alone")
        term["namespaceSelector"] = {}
        with pytest.raises(Invalid, match="neighbours"):
            await customer.apply(pod(tenant.namespace, "jealous", affinity=alone))
    async with _customer(kubernetes, admin, other) as customer:
        await customer.apply(pod(other.namespace, "free"))
        await _bound_to(admin, other, "free")


async def test_a_container_for_debugging_has_no_more_rights_than_its_pod(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    """As `kubectl debug` adds one, to a pod or as a pod of its own on a node."""
    path = f"/api/v1/namespaces/{tenant.namespace}/pods"
    secure = pod(tenant.namespace, "x")["spec"]["containers"][0]["securityContext"]
    async with raw(kubernetes, _token(await _issue(kubernetes, admin, tenant))) as client:
        (await client.post(path, json=pod(tenant.namespace, "p"))).raise_for_status()
        for context, status, reason in (
            ({"privileged": True}, 403, "privileged"),
            ({**secure, "capabilities": {"add": ["SYS_ADMIN"], "drop": ["ALL"]}}, 403, "capabilities"),
            ({**secure, "runAsUser": 0}, 403, "runAsUser"),
            (secure, 200, ""),
        ):
            added = {"name": "debugger", "image": "registry.invalid/debugger", "securityContext": context}
            headers = {"Content-Type": "application/strategic-merge-patch+json"}
            answer = await client.patch(
                f"{path}/p/ephemeralcontainers",
                json={"spec": {"ephemeralContainers": [added]}},
                headers=headers,
            )
            assert answer.status_code == status, answer.text
            assert reason in answer.text
        on_node = pod(tenant.namespace, "node-debugger", nodeName="node-1", hostPID=True, hostNetwork=True)
        assert (await client.post(path, json=on_node)).status_code in (403, 422)


async def test_a_kubeconfig_sees_no_other_namespace_and_gets_no_rights_or_tokens(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    other = new_tenant()
    await keep_tenant(admin, other, ALLOWANCE, [])
    issued = await _issue(kubernetes, admin, tenant)
    space, theirs = f"/api/v1/namespaces/{tenant.namespace}", f"/api/v1/namespaces/{other.namespace}"
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    account = f"/api/v1/namespaces/{KUBECONFIGS_NAMESPACE}/serviceaccounts"
    leases, grouped = "/apis/coordination.k8s.io/v1/namespaces", f"v1/namespaces/{tenant.namespace}"
    gets = [
        f"{theirs}/pods", f"{theirs}/secrets", "/api/v1/pods", "/api/v1/secrets", "/api/v1/namespaces", theirs,
        account, "/api/v1/nodes/x/proxy/pods", "/api/v1/nodes/x/log", f"{rbac}/clusterroles", "/logs", "/metrics",
        f"{space}/services/x/proxy", f"{space}/pods/x/proxy", f"{theirs}/events", f"{theirs}/services",
        "/api/v1/persistentvolumes", "/apis/scheduling.k8s.io/v1/priorityclasses", f"{leases}/kube-node-lease/leases",
        "/apis/certificates.k8s.io/v1/certificatesigningrequests", "/apis/networking.k8s.io/v1/ingressclasses",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", "/api/v1/configmaps",
        "/api/v1/namespaces/kube-system/configmaps/splitplane-node-addresses",
    ]  # fmt: skip
    posts: list[tuple[str, Object]] = [
        (f"{space}/serviceaccounts/default/token", {"spec": {"expirationSeconds": 600}}),
        (f"{space}/pods/p/binding", {"target": {"kind": "Node", "name": "x"}, "metadata": {"name": "p"}}),
        (f"{rbac}/namespaces/{tenant.namespace}/roles", {"metadata": {"name": "r"}}),
        (f"{rbac}/clusterrolebindings", {"metadata": {"name": "r"}}),
        ("/api/v1/namespaces", {"metadata": {"name": "mine"}}),
        ("/api/v1/nodes", {"metadata": {"name": "mine"}}),
        (f"{space}/endpoints", {"metadata": {"name": "e"}}),
        (f"/apis/discovery.k8s.io/{grouped}/endpointslices", {"metadata": {"name": "e"}}),
        (f"/apis/networking.k8s.io/{grouped}/ingresses", {"metadata": {"name": "i"}}),
        (f"/apis/gateway.networking.k8s.io/{grouped}/httproutes", {"metadata": {"name": "r"}}),
        (f"/apis/resource.k8s.io/{grouped}/resourceclaims", {"metadata": {"name": "c"}}),
        (f"/apis/apps/{grouped}/controllerrevisions", {"metadata": {"name": "c"}}),
        (f"{space}/replicationcontrollers", {"metadata": {"name": "r"}}),
        (f"{space}/events", {"metadata": {"name": "e"}}),
        (f"{leases}/kube-node-lease/leases", {"metadata": {"name": "l"}}),
        (f"{theirs}/pods", pod(other.namespace, "p")),
        (f"{theirs}/serviceaccounts/default/token", {"spec": {"expirationSeconds": 600}}),
        (f"{account}/kc-1/token", {"spec": {"expirationSeconds": 600}}),
        ("/apis/certificates.k8s.io/v1/certificatesigningrequests", {"metadata": {"name": "c"}}),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "p"}, "value": 1_000_000}),
        ("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x"}}),
    ]
    async with raw(kubernetes, _token(issued)) as client:
        for path in gets:
            assert (await client.get(path)).status_code == 403, path
        for path, body in posts:
            assert (await client.post(path, json=body)).status_code == 403, path
        for path in (f"{space}/pods/p/status", f"{space}/services/s/status", space, "/api/v1/nodes/x"):
            assert (await merge(client, path, {"metadata": {"labels": {"a": "b"}}})).status_code == 403, path
        as_admin = {"Impersonate-User": "admin", "Impersonate-Group": "system:masters"}
        assert (await client.get(f"{space}/pods", headers=as_admin)).status_code == 403
        assert (await client.get(f"{space}/pods")).status_code == 200


async def test_a_token_that_a_customer_has_made_for_its_own_account_has_no_right(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    wanted: Object = {
        **head(
            SECRET, "forever", tenant.namespace, annotations={"kubernetes.io/service-account.name": "default"}
        ),
        "type": "kubernetes.io/service-account-token",
    }

    async def token() -> str:
        return str((await admin.get(SECRET, "forever", tenant.namespace)).get("data", {}).get("token", ""))

    async with _customer(kubernetes, admin, tenant) as customer:

        async def is_filled() -> bool:
            # The controller deletes it while it has not seen the account yet.
            await customer.apply(wanted)
            with suppress(NotFound):
                return bool(await token())
            return False

        await eventually("the Secret is filled", is_filled)
    async with raw(kubernetes, Token(base64.b64decode(await token()).decode())) as client:
        for path in (f"/api/v1/namespaces/{tenant.namespace}/pods", "/api/v1/nodes", "/api/v1/namespaces"):
            assert (await client.get(path)).status_code == 403, path


SMALLER = NodeSignal("node-1", "smaller_batch", "memory_pressure", 1_764_343_200, None)


async def test_a_customer_reads_what_its_nodes_are_asked_for_and_cannot_change_it(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    await keep_tenant(admin, tenant, ALLOWANCE, [], [SMALLER])
    maps = f"/api/v1/namespaces/{tenant.namespace}/configmaps"
    path, forged = f"{maps}/{SIGNAL}", {"data": {"signal.json": "forged"}}
    async with raw(kubernetes, _token(await _issue(kubernetes, admin, tenant))) as client:
        found = (await client.get(path)).json()
        assert json.loads(found["data"]["node-1.json"])["action"] == "smaller_batch"
        for answer in (
            await merge(client, path, forged),
            await merge(client, path, {"immutable": True}),
            await client.put(path, json={**found, **forged}),
            await client.delete(path),
            await client.delete(maps),  # All of them at once.
        ):
            assert answer.status_code == 403, answer.text
            assert "what we ask workloads for" in answer.text
        assert (await client.get(path)).json()["data"] == found["data"]
        for name in ("splitplane-signal-2", "mine"):
            own = head(CONFIG_MAP, name, tenant.namespace)
            (await client.post(maps, json=own)).raise_for_status()
            (await client.delete(f"{maps}/{name}")).raise_for_status()
    # A customer that has one of that name before us would decide what is in it.
    await admin.delete(CONFIG_MAP, SIGNAL, tenant.namespace)
    async with raw(kubernetes, _token(await _issue(kubernetes, admin, tenant))) as client:
        own = {**head(CONFIG_MAP, SIGNAL, tenant.namespace), "immutable": True}
        assert (await client.post(maps, json=own)).status_code == 403
    await keep_tenant(admin, tenant, ALLOWANCE, [], [SMALLER])
    await keep_tenant(admin, tenant, ALLOWANCE, [])
    assert "data" not in await admin.get(CONFIG_MAP, SIGNAL, tenant.namespace), "nothing is asked any more"


async def test_a_signal_reaches_a_namespace_that_has_no_room_for_further_objects(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    none = replace(ALLOWANCE, nodes=0)
    await keep_tenant(admin, tenant, none, [])
    async with _customer(kubernetes, admin, tenant) as customer:
        made = 0
        with suppress(Forbidden):
            while made <= OBJECTS_MAX_WITHOUT_NODES:
                await customer.apply(head(CONFIG_MAP, f"full-{made}", tenant.namespace))
                made += 1
        assert 0 < made < OBJECTS_MAX_WITHOUT_NODES, "the quota counts ours, too"
        await keep_tenant(admin, tenant, none, [], [SMALLER])
        assert "signal.json" in (await admin.get(CONFIG_MAP, SIGNAL, tenant.namespace))["data"]
        await admin.delete(CONFIG_MAP, SIGNAL, tenant.namespace)  # By mistake.

        async def is_full() -> bool:
            try:
                await customer.apply(head(CONFIG_MAP, "instead", tenant.namespace))
            except Forbidden:
                return False
            return True

        await eventually("the customer takes the room", is_full)
    with pytest.raises(Forbidden):
        await keep_tenant(admin, tenant, ALLOWANCE, [], [SMALLER])

    async def is_back() -> bool:
        with suppress(Forbidden):
            await keep_tenant(admin, tenant, ALLOWANCE, [], [SMALLER])
            return True
        return False

    await eventually("the quota that nodes bring has room for it", is_back)


def _manifest(page: str, kind: str) -> Object:
    """The example in a page of the documentation that begins with its API version."""
    text = (Path(__file__).parents[4] / "docs" / page).read_text()
    for example in text.split("\n    apiVersion: v1\n")[1:]:
        lines = [line[4:] for line in example.split("\n\n")[0].splitlines()]
        found: Object = yaml.safe_load("\n".join(["apiVersion: v1", *lines]))
        if found["kind"] == kind:
            return found
    raise AssertionError(f"{page} has no example of a {kind}")


async def test_the_pod_of_the_page_on_enforcement_mounts_the_signal_of_its_node(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    mine = await new_node(kubernetes)
    await nodes.admit(admin, mine, nodes.Marks(tenant, "le_1", "gpu"))
    example = _manifest("enforcement.md", "Pod")
    async with _customer(kubernetes, admin, tenant) as customer:
        made = await customer.apply(
            {**example, "metadata": {**example["metadata"], "namespace": tenant.namespace}}
        )
    assert await _bound_to(admin, tenant, example["metadata"]["name"]) == mine
    volumes = [each["configMap"] for each in made["spec"]["volumes"] if "configMap" in each]
    assert [(each["name"], each["optional"]) for each in volumes] == [(SIGNAL, True)]


def _kubectl(plane: ControlPlane, file: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [str(plane.programs / "kubectl"), f"--kubeconfig={file}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


async def test_kubectl_shows_all_nodes_of_a_dedicated_cluster_and_of_a_shared_one_its_own(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant, tmp_path: Path
) -> None:
    mine, theirs = await new_node(kubernetes, "seen-"), await new_node(kubernetes, "unseen-")
    await keep_tenant(admin, tenant, ALLOWANCE, [mine])
    dedicated, shared = tmp_path / "dedicated", tmp_path / "shared"
    dedicated.write_text((await _issue(kubernetes, admin, tenant)).text)
    shared.write_text((await _issue(kubernetes, admin, tenant, all_nodes=False)).text)

    def shown(file: Path, *arguments: str) -> set[str]:
        done = _kubectl(kubernetes, file, "get", "nodes", "-o", "wide", *arguments)
        return {name for name in (mine, theirs) if name in done.stdout}

    assert shown(dedicated) == {mine, theirs}
    assert shown(shared, mine) == {mine}
    assert shown(shared, "--field-selector", f"metadata.name={mine}") == {mine}
    refusals = (
        _kubectl(kubernetes, shared, "get", "nodes"),
        _kubectl(kubernetes, shared, "get", "node", theirs),
        _kubectl(kubernetes, shared, "get", "nodes", "--field-selector", f"metadata.name={theirs}"),
    )
    for refusal in refusals:
        assert "Forbidden" in refusal.stderr
        assert refusal.stdout == ""
    # The namespace is the file's: nobody has to name it.
    assert "No resources found" in _kubectl(kubernetes, shared, "get", "pods").stderr


async def test_a_rotated_kubeconfig_works_while_the_old_one_has_no_right_any_more(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    name = new_name("kc_")
    old = port(kubernetes, _token(await _issue(kubernetes, admin, tenant, name=name)))
    new = port(kubernetes, _token(await _issue(kubernetes, admin, tenant)))
    assert await old.list(POD, tenant.namespace) == []
    for _ in range(2):  # Twice: what is gone stays gone.
        await kubeconfigs.revoke(admin, tenant, name)

    # The API server remembers the token for up to 10 s; its rights went with the bindings.
    async def is_refused() -> bool:
        try:
            await old.list(POD, tenant.namespace)
        except (Forbidden, Unauthorized):
            return True
        return False

    async with asyncio.timeout(RIGHTS_SECONDS_MAX):
        await eventually("the old kubeconfig has no right", is_refused)
    assert await new.list(POD, tenant.namespace) == []
    await old.aclose()
    await new.aclose()


async def test_a_kubeconfig_lives_for_ten_minutes_to_a_day_and_the_api_server_agrees(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    address = Address("gpus", kubernetes.url, kubernetes.authority.decode(), "kubernetes")
    for life in (timedelta(minutes=9), timedelta(hours=25)):
        with pytest.raises(ValueError, match="lives between"):
            await kubeconfigs.issue(admin, address, tenant, "kc_x", role=Role.EDIT, all_nodes=True, life=life)

    async def is_too_short() -> bool:
        try:
            await admin.request_token("default", tenant.namespace, life_s=599)
        except NotFound:  # Kubernetes makes this ServiceAccount a moment after its namespace.
            return False
        except Invalid:
            return True
        raise AssertionError("a token of less than ten minutes was issued")

    await eventually("the API server refuses a token of less than ten minutes", is_too_short)
    issued = await _issue(kubernetes, admin, tenant)
    assert _token(issued).value not in repr(issued)


async def test_quotas_bind_and_what_somebody_changed_is_put_right(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    gpus = {"limits": {"nvidia.com/gpu": "9"}}
    greedy = pod(tenant.namespace, "greedy")
    greedy["spec"]["containers"][0]["resources"] = gpus
    async with _customer(kubernetes, admin, tenant) as customer:
        with pytest.raises(Forbidden, match="exceeded quota"):
            await customer.apply(greedy)
        scaler = {
            "maxReplicas": 2,
            "metrics": [],
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"},
        }
        await keep_tenant(admin, tenant, replace(ALLOWANCE, nodes=0), [])
        quota = await admin.get(RESOURCE_QUOTA, "splitplane", tenant.namespace)
        assert quota["spec"]["hard"]["count/secrets"] == str(OBJECTS_MAX_WITHOUT_NODES)
        path = f"/apis/autoscaling/v2/namespaces/{tenant.namespace}/horizontalpodautoscalers"
        answers = []
        token = _token(await _issue(kubernetes, admin, tenant))
        async with raw(kubernetes, token) as client:
            for number in range(40):  # The API server reads the quota a moment later.
                made = {"metadata": {"name": f"scaler-{number}"}, "spec": scaler}
                answers.append(await client.post(path, json=made))
        assert answers[0].status_code == 201
        assert answers[-1].status_code == 403
        assert "exceeded quota" in answers[-1].text
    space = f"/apis/networking.k8s.io/v1/namespaces/{tenant.namespace}/networkpolicies"
    async with raw(kubernetes, kubernetes.admin) as client:
        opened: Object = {"spec": {"ingress": [{}]}}
        headers = {"Content-Type": "application/merge-patch+json"}
        done = await client.patch(f"{space}/splitplane-deny", json=opened, headers=headers)
        assert done.json()["spec"]["ingress"] == [{}]
    await keep_tenant(admin, tenant, ALLOWANCE, [])
    denied = await admin.get(NETWORK_POLICY, "splitplane-deny", tenant.namespace)
    assert "ingress" not in denied["spec"] or denied["spec"]["ingress"] == []


async def test_revisions_that_a_tenant_has_kept_are_bounded(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    """The controllers of StatefulSets and DaemonSets make one for each change, in the tenant's namespace."""
    await keep_tenant(admin, tenant, replace(ALLOWANCE, nodes=0), [])
    labels = {"app": "d"}
    revisions = f"/apis/apps/v1/namespaces/{tenant.namespace}/controllerrevisions"

    async def counted() -> bool:
        status = (await admin.get(RESOURCE_QUOTA, "splitplane", tenant.namespace)).get("status", {})
        return bool(
            status.get("used", {}).get("count/controllerrevisions.apps") == str(OBJECTS_MAX_WITHOUT_NODES)
        )

    async with _customer(kubernetes, admin, tenant) as customer, raw(kubernetes, kubernetes.admin) as boss:
        for number in range(OBJECTS_MAX_WITHOUT_NODES + 5):
            spec = pod(tenant.namespace, "d", hostname=f"d-{number}")["spec"]
            template = {"metadata": {"labels": labels}, "spec": spec}
            made = {"selector": {"matchLabels": labels}, "revisionHistoryLimit": 10_000, "template": template}
            applied = await customer.apply({**head(DAEMON_SET, "d", tenant.namespace), "spec": made})

            async def is_seen(generation: int = applied["metadata"]["generation"]) -> bool:
                found = (await boss.get(revisions)).json()["items"]
                seen = (await customer.get(DAEMON_SET, "d", tenant.namespace)).get("status", {})
                return bool(
                    seen.get("observedGeneration") == generation or len(found) >= OBJECTS_MAX_WITHOUT_NODES
                )

            await eventually("its controller has seen the change", is_seen)
        await eventually("the quota is full", counted)
        assert len((await boss.get(revisions)).json()["items"]) == OBJECTS_MAX_WITHOUT_NODES


async def test_a_kubeconfig_to_view_reads_pods_and_no_secrets_and_changes_nothing(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    token = _token(await _issue(kubernetes, admin, tenant, role=Role.VIEW))
    space = f"/api/v1/namespaces/{tenant.namespace}"
    async with raw(kubernetes, token) as client:
        for path in ("pods", "configmaps", "events"):
            assert (await client.get(f"{space}/{path}")).status_code == 200, path
        assert (await client.get(f"{space}/secrets")).status_code == 403
        assert (await client.post(f"{space}/pods", json=pod(tenant.namespace, "p"))).status_code == 403
        assert (await client.post(f"{space}/pods/p/exec?command=sh&stdout=true")).status_code == 403
        assert (await client.delete(f"{space}/pods/p")).status_code == 403


async def test_a_tenant_is_removed_with_every_kubeconfig_and_other_tenants_keep_theirs(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    other = new_tenant()
    await keep_tenant(admin, other, ALLOWANCE, [])
    mine, theirs = await _issue(kubernetes, admin, tenant), await _issue(kubernetes, admin, other)

    async def is_gone() -> bool:
        return await remove_tenant(admin, tenant, held) is None

    await eventually("the namespace is gone", is_gone)
    assert tenant.namespace not in {space["metadata"]["name"] for space in await admin.list(NAMESPACE)}
    path = f"/api/v1/namespaces/{tenant.namespace}/pods"
    async with raw(kubernetes, _token(mine)) as client:
        assert (await client.get(path)).status_code in (401, 403)
    async with raw(kubernetes, _token(theirs)) as client:
        assert (await client.get(f"/api/v1/namespaces/{other.namespace}/pods")).status_code == 200
