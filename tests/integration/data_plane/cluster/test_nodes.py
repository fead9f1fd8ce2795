"""What we do to nodes, on a real API server: admission, drain, and the end. No kubelet: pods are bound, and stay."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from control_plane.domain.node_capacity import GPU, Capacity, Finding, judge_capacity
from control_plane.world import utc_now
from data_plane.cluster import bootstrap_token, node
from data_plane.cluster.capacity import claimed_capacity
from data_plane.cluster.drain import drain
from data_plane.cluster.lightkube_port import LightkubePort
from data_plane.cluster.objects.bootstrap_token import BootstrapToken
from data_plane.cluster.objects.node import joining_taint
from data_plane.cluster.objects.tenant import NODE_LEASE, NODE_POOL, NODE_PROJECT, PROJECT, Tenant
from data_plane.cluster.port import Conflict, NotFound, Token
from data_plane.cluster.resource import NODE, POD, SECRET, Object, head
from data_plane.cluster.tenant import prepare_cluster
from tests.support.kubernetes.clients import eventually, merge, new_name, new_node, new_tenant, pod, raw
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.k3s import passwords
from tests.support.kubernetes.k3s.api import Client
from tests.support.kubernetes.tier import KUBERNETES

pytestmark = KUBERNETES


async def _admitted(plane: ControlPlane, admin: LightkubePort, tenant: Tenant) -> str:
    name = await new_node(plane, taints=[joining_taint()])
    await node.admit(admin, name, node.Marks(tenant, "le_1", "gpu"))
    return name


GRACE_SECONDS = 240
"""Longer than Kubernetes' usual 30 s, as a pod has it that writes a checkpoint before it ends."""


async def _running(
    plane: ControlPlane, admin: LightkubePort, tenant: Tenant, name: str, **labels: str
) -> None:
    """A pod that is bound, and whose kubelet says that it runs."""
    thing = pod(tenant.namespace, name, terminationGracePeriodSeconds=GRACE_SECONDS)
    thing["metadata"]["labels"] = labels
    await admin.apply(thing)

    async def is_bound() -> bool:
        return "nodeName" in (await admin.get(POD, name, tenant.namespace))["spec"]

    await eventually(f"{name} is bound", is_bound)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    async with raw(plane, plane.admin) as client:
        path = f"/api/v1/namespaces/{tenant.namespace}/pods/{name}/status"
        (await merge(client, path, {"status": status})).raise_for_status()


async def test_only_a_node_that_is_expected_registers_and_only_as_we_want_it(
    kubernetes: ControlPlane, admin: LightkubePort
) -> None:
    name, token = new_name("node-"), BootstrapToken("abc124", "0123456789abcdef")
    other = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    good = {"taints": [other, joining_taint()]}
    async with raw(kubernetes, kubernetes.client(f"system:node:{name}", "system:nodes")) as itself:

        async def refusal(spec: Object, *finalizers: str, address: str = "10.64.0.9") -> str | None:
            addresses = [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}]
            status = {"addresses": addresses}
            node = {**head(NODE, name, finalizers=list(finalizers)), "spec": spec, "status": status}
            answer = await itself.post("/api/v1/nodes?dryRun=All", json=node)
            # A kubelet that may not create its Node looks for it. Any other refusal keeps it from starting again.
            assert answer.status_code in (201, 403), answer.text
            return str(answer.json()["message"]) if answer.status_code == 403 else None

        assert "no machine is expected to join" in str(await refusal(good))
        await bootstrap_token.admit_machine(
            admin, token, name, "10.64.0.9", now=utc_now(), life=timedelta(minutes=10)
        )

        async def is_expected() -> bool:
            return await refusal(good) is None

        await eventually("the API server expects it", is_expected)
        bads: dict[str, Object] = {
            f"registers with the taint {joining_taint()['key']}": {"taints": [other]},
            "registers with the taint": {"taints": [{**joining_taint(), "effect": "PreferNoSchedule"}]},
            "assigns the range": {**good, "podCIDR": "10.48.9.0/24", "podCIDRs": ["10.48.9.0/24"]},
        }
        for what, bad in bads.items():
            assert what in str(await refusal(bad))
        assert "does not hold up" in str(await refusal(good, "example.com/stay"))
        assert "its own address" in str(await refusal(good, address="10.64.0.8"))
        await bootstrap_token.withdraw(admin, token.id, name)

        async def is_refused() -> bool:
            return await refusal(good) is not None

        await eventually("it may not register any more", is_refused)


async def test_an_admitted_node_is_its_tenants_and_a_second_admission_moves_it_as_a_whole(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    name = await _admitted(kubernetes, admin, tenant)
    other = new_tenant()
    for owner, lease in ((tenant, "le_1"), (other, "le_2"), (other, "le_2")):
        await node.admit(admin, name, node.Marks(owner, lease, "gpu"))
        seen = await admin.get(NODE, name)
        ours = [taint for taint in seen["spec"]["taints"] if taint["key"].startswith("splitplane.io/")]
        assert ours == [{"key": PROJECT, "value": owner.project, "effect": "NoSchedule"}]
        labels = seen["metadata"]["labels"]
        assert (labels[NODE_PROJECT], labels[NODE_LEASE], labels[NODE_POOL]) == (owner.project, lease, "gpu")


async def test_nothing_that_is_done_to_a_node_that_is_gone_creates_one(
    admin: LightkubePort, tenant: Tenant
) -> None:
    name = new_name("gone-")
    with pytest.raises(NotFound):
        await node.admit(admin, name, node.Marks(tenant, "le_1", "gpu"))
    assert not await node.cordon(admin, name)
    assert (await drain(admin, name, time_is_up=True)).is_empty
    await node.forget(admin, name)
    with pytest.raises(NotFound):
        await admin.get(NODE, name)


async def test_a_node_that_claims_more_gpus_than_were_sold_is_found_out(
    kubernetes: ControlPlane, admin: LightkubePort
) -> None:
    name = await new_node(kubernetes)
    sold = Capacity(cpu_millis=16_000, memory_bytes=64 * 2**30, devices={GPU: 8})

    async def finding() -> Finding:
        claimed = claimed_capacity(await admin.get(NODE, name))
        return judge_capacity(
            sold, Capacity(claimed.cpu_millis, claimed.memory_bytes, claimed.devices, claimed.pods)
        ).finding

    assert await finding() is Finding.FITS
    itself = kubernetes.client(f"system:node:{name}", "system:nodes")
    async with raw(kubernetes, itself) as liar:
        change = {"status": {"capacity": {GPU: "64"}, "allocatable": {GPU: "64"}}}
        (await merge(liar, f"/api/v1/nodes/{name}/status", change)).raise_for_status()
    assert await finding() is Finding.EXCESS


async def test_a_drain_evicts_waits_respects_budgets_and_kills_once_the_time_is_up(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    name = await _admitted(kubernetes, admin, tenant)
    await _running(kubernetes, admin, tenant, "free")
    await _running(kubernetes, admin, tenant, "guarded", app="db")
    budget = {
        "metadata": {"name": "db"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
    }
    async with raw(kubernetes, kubernetes.admin) as client:
        path = f"/apis/policy/v1/namespaces/{tenant.namespace}/poddisruptionbudgets"
        (await client.post(path, json=budget)).raise_for_status()
    free, guarded = f"{tenant.namespace}/free", f"{tenant.namespace}/guarded"
    assert await node.cordon(admin, name)
    first = await drain(admin, name, time_is_up=False)
    assert first.evicted == (free,)
    assert list(first.refused) == [guarded]
    assert "disruption budget" in first.refused[guarded]
    metadata = (await admin.get(POD, "free", tenant.namespace))["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == GRACE_SECONDS, "its own"
    second = await drain(admin, name, time_is_up=False)
    assert (second.evicted, second.ending, list(second.refused)) == ((), (free,), [guarded])
    last = await drain(admin, name, time_is_up=True)
    assert set(last.killed) == {free, guarded}
    assert (await drain(admin, name, time_is_up=False)).is_empty
    # Nothing new lands there.
    await admin.apply(pod(tenant.namespace, "late"))

    async def was_tried() -> bool:
        status = (await admin.get(POD, "late", tenant.namespace)).get("status", {})
        return any(entry.get("reason") == "Unschedulable" for entry in status.get("conditions", []))

    await eventually("the scheduler has looked for a place", was_tried)


async def test_a_node_is_forgotten_with_its_password_unless_another_one_has_its_name(
    kubernetes: ControlPlane, admin: LightkubePort
) -> None:
    name = await new_node(kubernetes)
    uid = (await admin.get(NODE, name))["metadata"]["uid"]
    password = {**head(SECRET, f"{name}.node-password.k3s", "kube-system"), "stringData": {"hash": "x"}}
    await admin.apply(password)
    with pytest.raises(Conflict):
        await node.forget(admin, name, uid="00000000-0000-0000-0000-000000000000")
    assert await admin.get(SECRET, f"{name}.node-password.k3s", "kube-system")
    for _ in range(2):
        await node.forget(admin, name, uid=uid)
    for resource, gone, space in ((NODE, name, None), (SECRET, f"{name}.node-password.k3s", "kube-system")):
        with pytest.raises(NotFound):
            await admin.get(resource, gone, space)
    # The first attempt to join stores the password even if no Node comes of it.
    await admin.apply(password)
    await node.forget(admin, name, uid=uid)
    with pytest.raises(NotFound):
        await admin.get(SECRET, f"{name}.node-password.k3s", "kube-system")


async def test_the_reserved_name_stays_reserved_when_k3s_restarts_and_deletes_passwords_without_a_node(
    kubernetes: ControlPlane, admin: LightkubePort
) -> None:
    """With what K3s does at each start and every minute, as our stand-in for it does it."""
    pair = kubernetes.credentials.files.pair("client-admin")
    k3s = Client(kubernetes.url, kubernetes.authority, pair)
    reserved, left = new_name("cl-"), new_name("sp-")
    await prepare_cluster(admin, reserved)
    legacy = {**head(SECRET, f"{left}.node-password.k3s", "kube-system"), "type": "Opaque"}
    await admin.apply({**legacy, "stringData": {"hash": "x"}})

    def delete_orphans() -> None:
        passwords.delete_orphans(k3s, [], utc_now() + timedelta(minutes=11))

    for _ in range(2):
        for what in (partial(passwords.migrate, k3s), delete_orphans):
            await asyncio.to_thread(what)
            with pytest.raises(passwords.PasswordRefusedError):
                await asyncio.to_thread(passwords.ensure, k3s, reserved, "the thief's")
            await prepare_cluster(admin, reserved)
    with pytest.raises(NotFound):
        await admin.get(SECRET, f"{left}.node-password.k3s", "kube-system")


async def test_a_bootstrap_token_is_accepted_until_it_expires_and_is_withdrawn(
    kubernetes: ControlPlane, admin: LightkubePort
) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}

    async def who(token: BootstrapToken) -> str | None:
        async with raw(kubernetes, Token(f"{token.id}.{token.secret}")) as client:
            answer = await client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json=review)
        return str(answer.json()["status"]["userInfo"]["username"]) if answer.status_code == 201 else None

    life = timedelta(minutes=15)
    expired, valid = (
        BootstrapToken("abc122", "0123456789abcdef"),
        BootstrapToken("abc123", "0123456789abcdef"),
    )
    await bootstrap_token.admit_machine(
        admin, expired, "gpu-1", "10.64.0.1", now=utc_now() - 2 * life, life=life
    )
    await bootstrap_token.admit_machine(admin, valid, "gpu-1", "10.64.0.1", now=utc_now(), life=life)

    async def is_accepted() -> bool:
        return await who(valid) == "system:bootstrap:abc123"

    await eventually("the token is accepted", is_accepted)
    assert await who(expired) is None
    for _ in range(2):
        await bootstrap_token.withdraw(admin, valid.id, "gpu-1")
    with pytest.raises(NotFound):
        await admin.get(SECRET, valid.secret_name, "kube-system")
