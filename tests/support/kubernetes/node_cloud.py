"""A whole cloud on real parts: the API, every loop, two emulated providers, and a cluster whose nodes are real.

Machines and Kubernetes live in real time. Our own clock goes with theirs and can be set ahead, so that an hour in which
nothing of ours runs takes no time. Simulated are the hub of private networks, which no node joins, and challenges of
GPUs, which this SKU does not demand.

With `K3S_BINARY`, `K3S_IMAGES` and `K3S_INSTALL` in the environment, the cluster is a real K3s (`k3s_machines.py`).
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from control_plane.api.app import create_app
from control_plane.db import accounts, clusters, nodes
from control_plane.db import loops as loop_reports
from control_plane.db.engine import Database
from control_plane.domain.cluster import Cluster, ClusterState
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, NodeId, Prefix, off_wire
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.domain.price import ListPrice
from control_plane.domain.proof import Tier
from control_plane.domain.refusal import Refused
from control_plane.domain.sku import CapacityShape, Shape, Sku
from control_plane.services import administration, catalogue
from control_plane.settings import Settings
from control_plane.world import World as ApiWorld
from control_plane.world import uuid7
from data_plane.access.authority import new_authority
from data_plane.access.port import Access, Target, must
from data_plane.access.ssh import SshAccess, new_host_key
from data_plane.access.step import Step
from data_plane.cluster import k3s_files
from data_plane.cluster import port as kubernetes
from data_plane.cluster.agents import Prepared
from data_plane.cluster.clusters import Clusters
from data_plane.cluster.k3s_files import K3sFiles
from data_plane.cluster.lightkube_port import LightkubePort
from data_plane.cluster.port import KubernetesPort
from data_plane.cluster.resource import NODE, Resource
from data_plane.cluster.ssh_agents import SshAgents
from data_plane.cluster.ssh_servers import SshServers
from data_plane.inspection.bundle import build_agent
from data_plane.mesh.members import SshMembers
from data_plane.simulation.collector import FakeCollector
from data_plane.simulation.hub import FakeHub
from providers import lambda_cloud, local
from providers.base import Provider
from providers.emulators.clouds import lambda_cloud as emulated_lambda
from providers.emulators.clouds import local as emulated_local
from providers.emulators.image import ensure_image
from providers.emulators.scenario import EmulatorTransport, Scenario
from providers.guard import Guard
from reconciler import registry
from reconciler.registry import AnyLoop
from reconciler.runner import Runner
from reconciler.server_hosts import SERVER_PRINCIPAL, connected
from reconciler.ssh_authorities import FixedAuthority
from reconciler.worlds.complete import CompleteWorld
from tests.support.certificates import our_access
from tests.support.challenger import ScriptedChallenger
from tests.support.clock import WallClock
from tests.support.golang.toolchain import expected_version
from tests.support.hosts_apart import HostsApart, hosts_apart
from tests.support.keys import AFTER, SEALING
from tests.support.kubernetes import parts
from tests.support.kubernetes.k3s_machines import add_device_plugin, operators_files
from tests.support.kubernetes.kubectl import Kubectl
from tests.support.machines import IMAGES, Machine

OURS, LOCAL, LAMBDA = "ours", "local", "lambda_cloud"
"""The hosts of machines: the operator's, and those of two providers, which are named like their accounts."""
CLUSTER, REGION = "main", "eu-1"
SKU = "h100x1"
_SHAPE = Shape(GpuModel.H100_SXM_80GB, 1, 8, 64, 100)
PRICE = ListPrice(Sku(SKU, _SHAPE, CapacityShape.VM, Tier.LISTED), Nano(3_600_000_000))
CPU_SKU = "cpu.16x"
_CPU_SHAPE = Shape(None, 0, 16, 64, 100)
_CPU_PRICE = ListPrice(Sku(CPU_SKU, _CPU_SHAPE, CapacityShape.VM, Tier.LISTED), Nano(720_000_000))
"""Only LOCAL has machines for it, as many as are wanted."""
_SOLD_AS = {LOCAL: ("gpu-h100x1", "local-1"), LAMBDA: ("gpu_1x_h100_sxm5", "us-south-2")}
_NOT_SOLD = ("gpu_1x_h100_sxm5", "us-south-3")
_SETTING = "/etc/rancher/k3s/config.yaml.d/90-test.yaml"
# A node counts as lost after 15 s instead of 50, in which it would have said something 7 times.
_QUICK_SERVER = 'kube-controller-manager-arg: ["node-monitor-grace-period=15s", "node-monitor-period=1s"]'
_QUICK_NODE = 'kubelet-arg+: ["node-status-update-frequency=2s"]'
_EVERY_MAX = dict.fromkeys(registry.of_wing("clusters"), timedelta(seconds=1)) | {
    "refresh_offers": timedelta(seconds=3)
}
"""The longest interval of some loops, so that nobody waits for what their next activation finds."""
WAIT_SECONDS_MAX = 300.0
_SETTINGS = Settings(
    database_url="unused",
    requests_per_second=1e6,
    requests_burst=1_000_000,
    organization_requests_per_second=1e6,
    organization_requests_burst=1_000_000,
    anonymous_requests_per_second=1e6,
)


_PUT_SETTING = Step(
    "setting of the tests",
    f"set -eu\nmkdir -p $(dirname {_SETTING})\nprintf '%s\\n' \"$1\" > {_SETTING}\n",
    seconds=20,
    user="root",
)


# Containers see no GPUs by it, which are not there.
_PUT_RUNTIME = Step(
    "container runtime of the tests",
    """set -eu
printf '#!/bin/sh\\nexec runc "$@"\\n' > /usr/bin/nvidia-container-runtime
chmod 755 /usr/bin/nvidia-container-runtime
""",
    seconds=20,
    user="root",
)


async def _put_setting(access: Access, machine: Target, setting: str) -> None:
    """A setting of K3s of the tests' own, beside those of the product."""
    async with access.connect(machine) as session:
        await must(session, _PUT_SETTING, [setting])


class _QuickAgents(SshAgents):
    """Their nodes say every two seconds how they are, and have what K3s takes for NVIDIA's container toolkit."""

    def __init__(self, access: Access, k3s: K3sFiles) -> None:
        super().__init__(access, k3s)
        self._of_tests = access

    async def prepare(self, machine: Target) -> Prepared:
        prepared = await super().prepare(machine)
        await _put_setting(self._of_tests, machine, _QUICK_NODE)
        async with self._of_tests.connect(machine) as session:
            await must(session, _PUT_RUNTIME)
        return prepared


Deleting = Callable[[str], Awaitable[None]]
"""Called with the name of a Node just before it is deleted."""


async def _nothing(_: str) -> None:
    pass


class _WatchedPort(LightkubePort):
    def __init__(self, cluster: kubernetes.Cluster, deleting: Deleting) -> None:
        super().__init__(cluster)
        self._deleting = deleting

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        grace_s: int | None = None,
    ) -> None:
        if resource == NODE:
            await self._deleting(name)
        await super().delete(resource, name, namespace, uid=uid, grace_s=grace_s)


@dataclass
class WatchedClusters:
    """API servers, with a look at the moment in which a Node is deleted."""

    deleting: Deleting = _nothing

    @asynccontextmanager
    async def connect(self, cluster: kubernetes.Cluster) -> AsyncIterator[KubernetesPort]:
        port = _WatchedPort(cluster, self.deleting)
        try:
            yield port
        finally:
            await port.aclose()


@dataclass
class NodeCloud:
    clock: WallClock
    world: CompleteWorld
    apart: HostsApart
    clusters: WatchedClusters
    server: Machine
    """The host of the cluster's server."""
    http: httpx.AsyncClient
    """As the customer."""
    operator: httpx.AsyncClient
    stock: Mapping[str, Scenario]
    """What each provider sells, by its name."""
    folder: Path
    _running: tuple[Runner, asyncio.Task[None]] | None = None

    # --- the control plane

    def start(self) -> None:
        """Start the reconciler, unless it runs."""
        if self._running is None:
            runner = Runner(self.world, [_quick(loop) for loop in registry.discovered().values()])
            self._running = runner, asyncio.create_task(runner.run())

    async def stop(self) -> None:
        if self._running is not None:
            runner, task = self._running
            self._running = None
            runner.stop()
            await task

    async def get(self, path: str) -> Any:
        return (await self.http.get(f"/v1{path}")).raise_for_status().json()

    async def post(self, path: str, body: Mapping[str, Any] | None = None, *, operator: bool = False) -> Any:
        """What the API answers. Raises httpx.HTTPStatusError with what it refused."""
        client = self.operator if operator else self.http
        answer = await client.post(f"/v1{path}", json=body, headers={"Idempotency-Key": uuid7().hex})
        assert answer.is_success, answer.text
        return answer.json()

    def sells(self, provider: str, left: int) -> None:
        """So many machines of our SKU are left at a provider."""
        self.stock[provider].stock[_SOLD_AS[provider]] = left

    # --- nodes

    async def create_pool(self, name: str, nodes: int, *, sku: str = SKU) -> str:
        body = {"cluster": CLUSTER, "name": name, "nodes": nodes, "sku": sku}
        return str((await self.post("/node-pools", body))["id"])

    async def nodes(self, *states: str) -> list[Any]:
        """Nodes in these states, the newest first."""
        return [node for node in (await self.get("/nodes"))["items"] if node["state"] in states]

    async def pool_is(self, pool: str, state: str, ready: int = 0) -> bool:
        shown = await self.get(f"/node-pools/{pool}")
        return bool(shown["state"] == state and shown["leases"]["ready"] >= ready)

    async def until(self, what: str, is_true: Callable[[], Awaitable[bool]]) -> None:
        """Wait until it is true. Fails with the errors that the loops reported last."""
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while not await is_true():  # noqa: ASYNC110 - rows and clusters have no event to wait for
                    await asyncio.sleep(0.4)
        except TimeoutError:
            raise AssertionError(
                f"{what}: not within {WAIT_SECONDS_MAX:.0f} s; {await self._troubles()}"
            ) from None

    async def _troubles(self) -> str:
        nodes = [
            (each["name"], each["state"], each["failing_why"], each["leave_why"])
            for each in (await self.get("/nodes"))["items"]
        ]
        async with self.world.db.reading() as connection:
            reports = await loop_reports.reports(connection)
        said = [f"{each.loop}: {each.errors or each.notes}" for each in reports if each.errors or each.notes]
        return f"nodes: {nodes}; loops: {said}"

    async def is_built(self) -> bool:
        """Whether the cluster is ready for nodes."""
        return (await self.cluster()).state is ClusterState.READY

    async def find_cluster(self) -> Cluster | None:
        """None once it is gone."""
        async with self.world.db.reading() as connection:
            return await clusters.named(connection, CLUSTER)

    async def cluster(self) -> Cluster:
        found = await self.find_cluster()
        assert found is not None
        return found

    @property
    def release(self) -> Path:
        """The operator's files."""
        return self.folder / "release"

    @asynccontextmanager
    async def kubernetes(self) -> AsyncIterator[KubernetesPort]:
        """The cluster's API server, as its administrator."""
        async with connected(self.world, await self.cluster()) as port:
            yield port

    async def says_ready(self, node: str) -> bool:
        """Whether the cluster says that a node is ready."""
        async with self.kubernetes() as port:
            conditions = (await port.get(NODE, node))["status"]["conditions"]
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    async def provider_of(self, node: Mapping[str, Any]) -> str:
        address = IPv4Address((await self.target(node)).address)
        return next(name for name, host in self.apart.hosts.items() if address in host.subnet)

    async def target(self, node: Mapping[str, Any]) -> Target:
        """How we log in to the machine of a node that the API shows."""
        async with self.world.db.reading() as connection:
            place = await nodes.place(connection, NodeId(off_wire(Prefix.NODE, node["id"])))
        assert place.address is not None
        assert place.host_key is not None
        return Target(place.address, place.ssh_port, place.host_key, place.launch_key)

    async def machine(self, node: Mapping[str, Any]) -> Machine:
        return Machine(await self.target(node), self.apart.authority)

    async def kubectl(self) -> Kubectl:
        """kubectl with a kubeconfig of the customer's."""
        private = X25519PrivateKey.generate()
        public_key = base64.b64encode(private.public_key().public_bytes_raw()).decode()
        wanted = (
            await self.post(f"/clusters/{CLUSTER}/kubeconfigs", {"name": "test", "public_key": public_key})
        )["id"]

        async def is_issued() -> bool:
            return bool((await self.get(f"/kubeconfigs/{wanted}"))["state"] == "issued")

        await self.until("the kubeconfig is issued", is_issued)
        sealed = base64.b64decode((await self.get(f"/kubeconfigs/{wanted}"))["sealed"])
        suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
        path = self.folder / "kubeconfig"
        path.write_bytes(suite.decrypt(sealed, private, info=wanted.encode()))
        return Kubectl(parts.parts(expected_version()) / "kubectl", path)


def _quick(loop: AnyLoop) -> AnyLoop:
    return replace(loop, every=min(loop.every, _EVERY_MAX.get(loop.name, loop.every)))


@asynccontextmanager
async def node_cloud(folder: Path, db: Database, api_db: Database) -> AsyncIterator[NodeCloud]:
    """A cloud whose cluster is being built, and whose reconciler runs. `folder` is empty.

    `db` is the reconciler's view of a new database, and `api_db` the API's.
    """
    authority, clock = new_authority(), WallClock()
    access = our_access(authority)  # Machines know only the real time.
    release = folder / "release"
    release.mkdir()
    k3s = await asyncio.to_thread(_operators_files, release)
    image = await asyncio.to_thread(ensure_image, IMAGES, print)
    programs = parts.parts(expected_version())
    async with AsyncExitStack() as closing:
        apart = await closing.enter_async_context(
            hosts_apart((OURS, LOCAL, LAMBDA), image, programs, authority, access)
        )
        booting = asyncio.create_task(apart.boot(OURS, SERVER_PRINCIPAL))
        stock, providers = _providers(apart, clock)
        watched = WatchedClusters()
        world = await _world(db, clock, FixedAuthority(authority), access, k3s, watched, providers)
        http, operator = await _clients(db, api_db, clock)
        closing.push_async_callback(http.aclose)
        closing.push_async_callback(operator.aclose)
        server = await booting
        await server.sh("cloud-init status --wait")
        await _put_setting(access, server.target, _QUICK_SERVER)
        made = NodeCloud(clock, world, apart, watched, server, http, operator, stock, folder)
        closing.push_async_callback(made.stop)
        made.start()
        host = {
            "name": "k8s-1",
            "region": REGION,
            "address": server.target.address,
            "host_key": server.target.host_key,
        }
        await made.post("/operator/server-hosts", host, operator=True)
        await made.post("/operator/clusters", {"name": CLUSTER, "region": REGION}, operator=True)
        yield made


def _operators_files(folder: Path) -> K3sFiles:
    operators_files(folder)
    add_device_plugin(folder)
    return k3s_files.read(folder)


def _providers(
    apart: HostsApart, clock: WallClock
) -> tuple[dict[str, Scenario], dict[AccountName, Provider]]:
    """The emulated clouds of both providers, over the hosts of their names, and our connections to them."""
    stock = {name: Scenario() for name in (LOCAL, LAMBDA)}
    stock[LAMBDA].stock[_NOT_SOLD] = 0
    at_local = emulated_local.create_app(apart.hosts[LOCAL], stock[LOCAL], now=clock.now)
    terms = emulated_lambda.Terms(rate_limited=False)
    at_lambda = emulated_lambda.create_app(apart.hosts[LAMBDA], stock[LAMBDA], now=clock.now, terms=terms)
    connections: dict[str, Provider] = {
        LOCAL: local.connect(
            local.Settings(emulated_local.TOKEN, "http://local.test"), transport=EmulatorTransport(at_local)
        ),
        LAMBDA: lambda_cloud.connect(
            lambda_cloud.Settings(terms.api_key, "http://lambda.test/api/v1"),
            transport=EmulatorTransport(at_lambda),
        ),
    }
    guarded = {
        AccountName(name): Guard(each, account=AccountName(name), now=clock.now, pace_in_process=False)
        for name, each in connections.items()
    }
    return stock, dict(guarded)


async def _world(
    db: Database,
    clock: WallClock,
    authorities: FixedAuthority,
    access: SshAccess,
    k3s: K3sFiles,
    kubernetes: Clusters,
    providers: Mapping[AccountName, Provider],
) -> CompleteWorld:
    async with db.transaction() as connection:
        installation = await accounts.installation(connection)
        for name in providers:
            await accounts.register(connection, name, name, now=clock.now())
    return CompleteWorld(
        db=db,
        now=clock.now,
        new_id=uuid7,
        installation=installation,
        account_names=tuple(providers),
        accounts=providers,
        access=access,
        ssh_authorities=authorities,
        hub=FakeHub(),
        collector=FakeCollector({}),
        servers=SshServers(access, k3s),
        kubernetes=kubernetes,
        agents=_QuickAgents(access, k3s),
        members=SshMembers(access),
        device_plugin=k3s.device_plugin,
        agent=build_agent(),
        new_host_key=new_host_key,
        challenger=ScriptedChallenger(),
        chance=lambda: 0.5,
        accept_emulated=True,
        keys=AFTER,
    )


async def _clients(
    db: Database, api_db: Database, clock: WallClock
) -> tuple[httpx.AsyncClient, httpx.AsyncClient]:
    """The API as a customer with credit sees it, and as an operator."""
    owner = ApiWorld(db, now=clock.now)
    async with db.transaction() as connection:
        await catalogue.load_price_book(connection, owner, [PRICE, _CPU_PRICE])
    top_up = Nano(1_000 * NANO_PER_USD)
    acme = await administration.bootstrap(owner, "acme", top_up=top_up, gpu_quota=64)
    us = await administration.bootstrap(owner, "us", platform=True, top_up=None, gpu_quota=64)
    app = create_app(ApiWorld(api_db, now=clock.now, new_id=uuid7, sealing=SEALING), _SETTINGS)

    def client(made: administration.FirstOrganization | Refused) -> httpx.AsyncClient:
        assert isinstance(made, administration.FirstOrganization)
        headers = {"Authorization": f"Bearer {made.issued.secret}"}
        transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type] # httpx types ASGI apps more narrowly than Litestar
        return httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers)

    return client(acme), client(us)
