"""Clients of the tests' control plane, and objects that tests need there."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2

from data_plane.cluster.connection import tls
from data_plane.cluster.lightkube_port import LightkubePort
from data_plane.cluster.objects.tenant import Tenant
from data_plane.cluster.port import ClientCertificate, Cluster, Token
from data_plane.cluster.resource import NAMESPACE, NODE, NODE_POOL, POD, RESOURCE_QUOTA, Object, head
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.pki import Pair

WAIT_SECONDS_MAX = 60.0
_NUMBERS = itertools.count(1)


def cluster(plane: ControlPlane, client: Pair | Token) -> Cluster:
    credential = (
        client
        if isinstance(client, Token)
        else ClientCertificate(client.certificate.decode(), client.key.decode())
    )
    return Cluster(plane.url, plane.authority.decode(), credential)


def port(plane: ControlPlane, client: Pair | Token) -> LightkubePort:
    return LightkubePort(cluster(plane, client))


def raw(plane: ControlPlane, client: Pair | Token) -> httpx2.AsyncClient:
    """For what the product never asks: any path, any body."""
    headers = {"Authorization": f"Bearer {client.value}"} if isinstance(client, Token) else {}
    return httpx2.AsyncClient(base_url=plane.url, verify=tls(cluster(plane, client)), headers=headers)


async def merge(client: httpx2.AsyncClient, path: str, change: Object) -> httpx2.Response:
    return await client.patch(path, json=change, headers={"Content-Type": "application/merge-patch+json"})


def new_name(prefix: str) -> str:
    """A name that no other test of this run has."""
    return f"{prefix}{next(_NUMBERS)}"


def new_tenant() -> Tenant:
    return Tenant(new_name("org_"), new_name("prj_"))


def pod(namespace: str, name: str, /, **spec: Any) -> Object:
    """A pod that a tenant may create."""
    container = {
        "name": "main",
        "image": "registry.invalid/main",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    secure = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        **head(POD, name, namespace),
        "spec": {
            "containers": [container],
            "securityContext": secure,
            "terminationGracePeriodSeconds": 5,
            **spec,
        },
    }


async def new_node(plane: ControlPlane, prefix: str = "node-", taints: list[Object] | None = None) -> str:
    """A Node that says it is ready, without a kubelet: pods are bound to it and stay Pending."""
    name = new_name(prefix)
    async with raw(plane, plane.admin) as admin:
        node = {**head(NODE, name), "spec": {"taints": taints or []}}
        (await admin.post("/api/v1/nodes", json=node)).raise_for_status()
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        (await merge(admin, f"/api/v1/nodes/{name}/status", {"status": status})).raise_for_status()
    return name


async def eventually(what: str, is_true: Callable[[], Awaitable[bool]]) -> None:
    """Real controllers take their time, mostly milliseconds."""
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while not await is_true():  # noqa: ASYNC110 - nothing in this process knows when it becomes true
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {WAIT_SECONDS_MAX:.0f} s") from None


async def scaling_kinds_counted(admin: LightkubePort) -> None:
    """Wait until new quotas count NodePools: their controller learns of new kinds every half minute."""
    counted = f"count/{NODE_POOL.plural}.{NODE_POOL.group}"

    async def is_counted() -> bool:
        place = new_tenant()
        await admin.apply(head(NAMESPACE, place.namespace))
        await admin.apply(
            {**head(RESOURCE_QUOTA, "counts", place.namespace), "spec": {"hard": {counted: "1"}}}
        )
        await asyncio.sleep(1)  # Once it knows the kind, it counts at once.
        quota = await admin.get(RESOURCE_QUOTA, "counts", place.namespace)
        await admin.delete(NAMESPACE, place.namespace)
        return counted in quota.get("status", {}).get("used", {})

    await eventually("quotas count NodePools", is_counted)


async def held() -> bool:
    """A worker that holds what it works on."""
    return True
