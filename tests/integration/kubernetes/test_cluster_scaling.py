"""Scaling on a real API server with the real scheduler: pods wait, nodes come, pods are bound, nodes leave.

Machines and kubelets are simulated (`real_clusters.py`); every decision, object, admission rule and binding is real.
"""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from sqlalchemy import text

from control_plane.db import cluster_tenants, projects
from control_plane.db import clusters as cluster_rows
from control_plane.db.engine import Database
from control_plane.domain.ids import OrganizationId
from data_plane.cluster import kubeconfig as kubeconfigs
from data_plane.cluster.clusters import Clusters
from data_plane.cluster.kubeconfig import Address, Role
from data_plane.cluster.lightkube_port import LightkubePort
from data_plane.cluster.objects.tenant import NODE_PROJECT, Tenant
from data_plane.cluster.port import Cluster, ClusterError, KubernetesPort, Token
from data_plane.cluster.resource import NODE, NODE_POOL, POD, SCALING_POLICY, Object
from data_plane.cluster.tenant import define_scaling
from data_plane.simulation.agents import FakeAgents
from reconciler import scaling_watch
from reconciler.cluster_tenants import tenant_of
from reconciler.loops.clusters import scale_clusters
from tests.support import clusters, scaling
from tests.support.clock import WallClock
from tests.support.kubernetes.clients import new_name, pod, port, scaling_kinds_counted
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.real_clusters import RealClusters
from tests.support.kubernetes.tier import KUBERNETES
from tests.support.node_cluster import OTHERS
from tests.support.scaling import condition
from tests.support.ssh_rotation import store_authorities
from tests.support.stage import Stage, set_stage

pytestmark = [*KUBERNETES, pytest.mark.database, pytest.mark.timeout(300)]
WITHOUT = OTHERS - {"keep_tenants", "keep_kubeconfigs"}


async def play(stage: Stage, seconds: float, *, step: float) -> None:
    """As `Stage.play`, on a clock that goes on by itself meanwhile."""
    for _ in range(int(seconds / step)):
        await stage.turns(without=WITHOUT)
        stage.clock.advance(step)


@dataclasses.dataclass
class Place:
    stage: Stage
    plane: ControlPlane
    tenant: Tenant
    customer: LightkubePort

    async def until(self, what: str, is_true: Callable[[], Awaitable[bool]], *, step: float = 5) -> None:
        for _ in range(240):
            if await is_true():
                return
            await play(self.stage, step, step=step)
            await asyncio.sleep(0.02)  # The scheduler takes its turn in real time.
        pools = await self.customer.list(NODE_POOL, self.tenant.namespace)
        policies = await self.customer.list(SCALING_POLICY, self.tenant.namespace)
        told = json.dumps([thing.get("status") for thing in (*pools, *policies)], indent=1)
        raise AssertionError(f"{what}: {told}")

    async def pool(self, name: str = "train") -> Object:
        return await self.customer.get(NODE_POOL, name, self.tenant.namespace)

    async def policy(self, name: str = "grow") -> Object:
        return await self.customer.get(SCALING_POLICY, name, self.tenant.namespace)

    async def status(self) -> tuple[int, int]:
        """How many nodes the pool is to have, and how many are ready."""
        told = (await self.pool()).get("status", {})
        return told.get("nodes", -1), told.get("readyNodes", -1)

    async def pend(self, name: str, *, gpus: int = 1) -> bool:
        """Create a pod that asks for GPUs. False while the quota does not allow it yet."""
        wanted = pod(self.tenant.namespace, name)
        wanted["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
        try:
            await self.customer.apply(wanted)
        except ClusterError as error:
            if "exceeded quota" in str(error):
                return False
            raise
        return True

    async def node_of(self, name: str) -> str | None:
        node = (await self.customer.get(POD, name, self.tenant.namespace))["spec"].get("nodeName")
        return None if node is None else str(node)

    async def nodes(self) -> list[str]:
        async with self.stage.world.kubernetes.connect(None) as admin:  # type: ignore[arg-type] # There is one.
            found = await admin.list(NODE, labels={NODE_PROJECT: self.tenant.project})
        return [node["metadata"]["name"] for node in found]


@pytest.fixture
async def place(db: Database, api_db: Database, kubernetes: ControlPlane) -> AsyncIterator[Place]:
    stage = await set_stage(db, WallClock(), api_db=api_db)
    assert isinstance(stage.world.agents, FakeAgents)
    stage.world = dataclasses.replace(stage.world, kubernetes=RealClusters(kubernetes, stage.world.agents))
    await store_authorities(stage)
    organization_id: OrganizationId = await stage.organization()
    await clusters.created(stage, "eu-1")
    await stage.run("build_clusters")
    async with stage.db.reading() as connection:
        found = await cluster_rows.named(connection, "eu-1")
        project = await projects.default(connection, organization_id)
    assert found is not None
    tenant = tenant_of(organization_id, project.id)
    async with stage.world.kubernetes.connect(None) as admin:  # type: ignore[arg-type] # There is one.
        await define_scaling(admin)
        assert isinstance(admin, LightkubePort)
        await scaling_kinds_counted(admin)
    await clusters.asked(stage, found, organization_id, "laptop")
    address = Address("gpus", kubernetes.url, kubernetes.authority.decode(), "kubernetes")
    async with RealClusters(kubernetes, stage.world.agents).connect(None) as admin:  # type: ignore[arg-type]
        for _ in range(100):
            await play(stage, 2, step=2)
            async with stage.db.reading() as connection:
                if await cluster_tenants.is_ready(connection, found.id, project.id):
                    break
            await asyncio.sleep(0.1)
        issued = await kubeconfigs.issue(
            admin, address, tenant, new_name("kc_"), role=Role.EDIT, all_nodes=False, life=timedelta(hours=1)
        )
    client = port(kubernetes, Token(json.loads(issued.text)["users"][0]["user"]["token"]))
    yield Place(stage, kubernetes, tenant, client)
    await client.aclose()


async def test_a_pod_waits_a_node_comes_the_pod_is_bound_and_the_node_leaves_after_it(place: Place) -> None:
    space = place.tenant.namespace
    await place.customer.apply(scaling.node_pool(space))
    await place.customer.apply(scaling.policy(space, pools={"train": (0, 2)}, empty_for=60))
    await place.until("the pod is accepted", lambda: place.pend("trainer"))
    await place.until("the pod is bound", lambda: _is_bound(place, "trainer"))
    assert await place.node_of("trainer") in await place.nodes()
    await place.until("the status says so", lambda: _is(place, (1, 1)))
    policy = await place.policy()
    assert policy["status"]["usdPerHour"] == "3.60"
    assert condition(policy, "CapacityAvailable")["status"] == "True"
    columns = place.plane.kubectl("get", "nodepools", "--namespace", space).splitlines()[1].split()
    assert columns[:-1] == ["train", "h100x1", "1", "1", "3.60", "grow", "True", "True"]

    await play(place.stage, 300, step=30)
    assert len(await place.nodes()) == 1, "it has work"
    await place.customer.delete(POD, "trainer", space, grace_s=0)
    await place.until("the node leaves", lambda: _is(place, (0, 0)))
    await place.until("nothing is left of it", lambda: _has_no_nodes(place))
    await place.customer.delete(NODE_POOL, "train", space)
    await place.until("the pool is gone", lambda: _has_no_pool(place))
    await place.stage.check()


async def _is_bound(place: Place, name: str) -> bool:
    return await place.node_of(name) is not None


async def _is(place: Place, wanted: tuple[int, int]) -> bool:
    return await place.status() == wanted


async def _has_no_nodes(place: Place) -> bool:
    return not await place.nodes() and not place.stage.cloud.alive()


async def _has_no_pool(place: Place) -> bool:
    return not await place.customer.list(NODE_POOL, place.tenant.namespace)


async def test_limits_the_budget_and_sold_out_providers_are_told_in_the_cluster(place: Place) -> None:
    space = place.tenant.namespace
    await place.customer.apply(scaling.node_pool(space))
    bounds = {"train": (0, 3)}
    await place.customer.apply(scaling.policy(space, pools=bounds, usd_per_hour="3.60"))
    await place.until("the pod is accepted", lambda: place.pend("one"))
    await place.until("another one is accepted", lambda: place.pend("two"))
    await place.until("the budget is reached", lambda: _says(place, "BudgetReached", "True"))
    over = condition(await place.policy(), "BudgetReached")["message"]
    assert "nodes cost 3.60 of 3.60 USD per hour, and one more of train costs 3.60" in over

    await place.customer.apply(scaling.policy(space, pools=bounds, limits={"gpus": 1}))
    await place.until("the limit is reached", lambda: _says(place, "LimitReached", "True"))
    assert condition(await place.policy(), "BudgetReached")["status"] == "False"

    stock = place.stage.cloud.stock
    before = dict(stock)
    stock.update(dict.fromkeys(before, 0))
    await place.stage.run("refresh_offers")
    await place.customer.apply(scaling.policy(space, pools=bounds))
    await place.until("no capacity", lambda: _says(place, "CapacityAvailable", "False"))
    told = condition(await place.policy(), "CapacityAvailable")
    assert told["reason"] == "NoCapacity"
    assert "1 node waits for stock: " in told["message"]
    columns = place.plane.kubectl("get", "scalingpolicies", "--namespace", space).splitlines()[1].split()
    assert (columns[1], columns[-4:-1]) == ("2", ["True", "False", "False"]), (
        "accepted, no capacity, within limits"
    )

    stock.update(before)
    await place.stage.run("refresh_offers")
    await place.until("both pods are bound", lambda: _are_bound(place, "one", "two"))
    await place.until("there is capacity", lambda: _says(place, "CapacityAvailable", "True"))
    for name in ("one", "two"):
        await place.customer.delete(POD, name, space, grace_s=0)
    await place.customer.delete(NODE_POOL, "train", space)
    await place.until("the pool is gone", lambda: _has_no_pool(place))
    await place.stage.check()


async def _says(place: Place, kind: str, status: str) -> bool:
    told = (await place.policy()).get("status", {}).get("conditions", [])
    return any(each["type"] == kind and each["status"] == status for each in told)


async def _are_bound(place: Place, *names: str) -> bool:
    return all([await _is_bound(place, name) for name in names])


async def test_a_watch_sees_objects_and_pods_at_once_and_goes_on_after_its_connections_were_lost(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = place.tenant.namespace
    await play(place.stage, 20, step=5)
    for name in ("AGAIN", "AGAIN_IDLE"):  # From now on, the clock alone leads to no look.
        monkeypatch.setattr(scale_clusters, name, timedelta(days=1))
    await play(place.stage, 70, step=10)
    await place.customer.apply(scaling.node_pool(space))
    await play(place.stage, 60, step=10)
    assert "status" not in await place.pool(), "nobody looks"

    monkeypatch.setattr(scaling_watch, "RETRY_FIRST", timedelta(milliseconds=100))
    opened = Opened(place.stage.world.kubernetes)
    watching = asyncio.create_task(
        scaling_watch.keep(dataclasses.replace(place.stage.world, kubernetes=opened), lambda: None)
    )
    try:
        await place.until("the pool is followed", lambda: _has_status(place))
        await place.customer.apply(scaling.policy(space, pools={"train": (0, 2)}))
        await place.until("the policy is followed", lambda: _says(place, "Accepted", "True"))
        await opened.lose_connections()
        await place.until("the pod is accepted", lambda: place.pend("trainer"))
        await place.until("the pod is bound", lambda: _is_bound(place, "trainer"))
        assert opened.count >= 2, "it has begun anew"
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    monkeypatch.undo()
    await place.customer.delete(POD, "trainer", space, grace_s=0)
    await place.customer.delete(SCALING_POLICY, "grow", space)
    await place.customer.delete(NODE_POOL, "train", space)
    async with place.stage.db.transaction() as connection:
        await connection.execute(text("UPDATE scaling_turns SET due_at = now()"))
    await place.until("the pool is gone", lambda: _has_no_pool(place))
    await place.stage.check()


async def _has_status(place: Place) -> bool:
    return "status" in await place.pool()


@dataclasses.dataclass
class Opened:
    """Clusters whose connections can be lost."""

    inner: Clusters
    count: int = 0
    """How many connections there were."""
    ports: list[KubernetesPort] = dataclasses.field(default_factory=list[KubernetesPort])

    @asynccontextmanager
    async def connect(self, cluster: Cluster) -> AsyncIterator[KubernetesPort]:
        async with self.inner.connect(cluster) as port:
            self.count += 1
            self.ports.append(port)
            yield port

    async def lose_connections(self) -> None:
        for opened in self.ports:
            assert isinstance(opened, LightkubePort)
            await opened.aclose()
        self.ports.clear()
