"""The control plane of the test run, prepared once as a cluster of ours is."""

from collections.abc import AsyncIterator

import pytest

from data_plane.cluster.lightkube_port import LightkubePort
from data_plane.cluster.objects.resource_quota import Allowance
from data_plane.cluster.objects.tenant import Tenant
from data_plane.cluster.tenant import keep_tenant, prepare_cluster, rules_bind
from tests.support.kubernetes.clients import eventually, new_name, new_tenant, port
from tests.support.kubernetes.control_plane import ControlPlane

ALLOWANCE = Allowance(nodes=1, gpus=8, cpu_millis=16_000, memory_bytes=64 * 2**30)


@pytest.fixture(scope="session")
async def admin(kubernetes: ControlPlane) -> AsyncIterator[LightkubePort]:
    """The port in our hands, with the cluster's rules in force."""
    client = port(kubernetes, kubernetes.admin)
    await prepare_cluster(client, "cl-1")
    tenant = new_tenant()
    await keep_tenant(client, tenant, ALLOWANCE, [])

    async def bind() -> bool:
        return await rules_bind(client, tenant, new_name("probe-"))

    await eventually("the API server applies our rules", bind)
    yield client
    await client.aclose()


@pytest.fixture
async def tenant(admin: LightkubePort) -> Tenant:
    fresh = new_tenant()
    await keep_tenant(admin, fresh, ALLOWANCE, [])
    return fresh
