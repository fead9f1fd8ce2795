"""A cluster's server and two rented machines, each in a network of its own, made nodes by the product's own steps.

With `K3S_BINARY`, `K3S_IMAGES` and `K3S_INSTALL` in the environment it is a real K3s.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from control_plane.domain.overlay import PODS, SERVICES, address_of, range_of
from control_plane.world import utc_now
from data_plane.access.port import Target
from data_plane.cluster import k3s_files
from data_plane.cluster.admin import credential_of
from data_plane.cluster.agents import AgentOrder
from data_plane.cluster.bootstrap_token import admit_machine
from data_plane.cluster.lightkube_port import LightkubePort
from data_plane.cluster.objects.bootstrap_token import BootstrapToken
from data_plane.cluster.port import Cluster, NotFound
from data_plane.cluster.resource import NODE
from data_plane.cluster.servers import ServerOrder
from data_plane.cluster.ssh_agents import SshAgents
from data_plane.cluster.ssh_servers import SshServers
from data_plane.mesh.members import SshMembers
from data_plane.mesh.port import OverlayPeer, OverlayPlace
from tests.support.kubernetes import parts
from tests.support.kubernetes.k3s_machines import Server, operators_files
from tests.support.kubernetes.toolchain import expected_version
from tests.support.machine_state import State, state_of
from tests.support.machines import Machine
from tests.support.providers_apart import ProvidersApart, providers_apart

SERVER, FIRST, SECOND = "sp-kube", "sp-first", "sp-second"
BLOCK = 5
NUMBERS = {SERVER: 1, FIRST: 2, SECOND: 3}
QUICK = {
    # A node counts as lost after 10 s instead of 50, in which it would have said something 5 times.
    SERVER: 'kube-controller-manager-arg: ["node-monitor-grace-period=10s", "node-monitor-period=1s"]',
    FIRST: 'kubelet-arg+: ["node-status-update-frequency=2s"]',
    SECOND: 'kubelet-arg+: ["node-status-update-frequency=2s"]',
}


def overlay_address(name: str) -> str:
    return address_of(BLOCK, NUMBERS[name])


def place(name: str) -> OverlayPlace:
    return OverlayPlace(overlay_address(name), str(range_of(BLOCK)), str(PODS))


@dataclass
class Nodes:
    """A cluster's server, which runs, and two machines that are prepared."""

    world: ProvidersApart
    agents: SshAgents
    members: SshMembers
    port: LightkubePort
    authority: str
    before: Mapping[str, State]
    """How the machines were before they were touched."""
    keys: dict[str, str] = field(default_factory=dict[str, str])

    def machine(self, name: str) -> Machine:
        return self.world.machines[name]

    def target(self, name: str) -> Target:
        return self.machine(name).target

    @property
    def server(self) -> Server:
        return Server(self.machine(SERVER))

    @property
    def server_address(self) -> str:
        return overlay_address(SERVER)

    def peers(self, name: str) -> list[OverlayPeer]:
        """The tunnels to the two others."""
        return [
            OverlayPeer(
                self.keys[other], (f"{overlay_address(other)}/32",), f"{self.target(other).address}:51820"
            )
            for other in NUMBERS
            if other != name
        ]

    async def order(self, name: str, number: int = 0, *, token: bool = True) -> AgentOrder:
        """What makes the machine a node; with a token that the cluster knows, unless said otherwise."""
        made = BootstrapToken(f"{NUMBERS[name]:03}{number:03}", f"{NUMBERS[name]:016}")
        if token:
            await admit_machine(self.port, made, name, now=utc_now(), life=timedelta(minutes=10))
        server = f"https://{overlay_address(SERVER)}:6443"
        text = made.text(self.authority)
        target = self.target(name)
        return AgentOrder(target, name, overlay_address(name), server, text, {"splitplane.io/kind": "node"})

    async def tunnel(self) -> None:
        """Join all three by tunnels."""
        for name in NUMBERS:
            self.keys[name] = await self.members.make_key(self.target(name))
        for name in NUMBERS:
            await self.members.apply(self.target(name), place(name), self.peers(name))

    async def is_ready(self, name: str) -> bool:
        try:
            conditions = (await self.port.get(NODE, name))["status"]["conditions"]
        except NotFound:
            return False
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def _prepared(agents: SshAgents, machine: Machine) -> State:
    """How a machine was before it was prepared."""
    await machine.sh("cloud-init status --wait")
    before = await state_of(machine)
    await _quick(machine, machine.target.principal)
    await agents.prepare(machine.target)
    return before


async def _quick(machine: Machine, name: str) -> None:
    """A setting of the test's own, beside those of the product."""
    folder = "/etc/rancher/k3s/config.yaml.d"
    await machine.sh(f"sudo mkdir -p {folder} && echo '{QUICK[name]}' | sudo tee {folder}/90-test.yaml")


@asynccontextmanager
async def prepared_nodes(folder: Path) -> AsyncIterator[Nodes]:
    """`folder` is empty, and gets the operator's files."""
    files = await asyncio.to_thread(operators_files, folder)
    k3s = await asyncio.to_thread(k3s_files.read, files)
    async with providers_apart(tuple(NUMBERS), parts.parts(expected_version())) as world:
        members, agents = SshMembers(world.access), SshAgents(world.access, k3s)
        servers, target = SshServers(world.access, k3s), world.machines[SERVER].target
        order = ServerOrder(target, target.address, place(SERVER), str(SERVICES), "a-credential-of-servers")
        await _quick(world.machines[SERVER], SERVER)
        identity, first, second = await asyncio.gather(
            servers.install(order),
            _prepared(agents, world.machines[FIRST]),
            _prepared(agents, world.machines[SECOND]),
        )
        port = LightkubePort(
            Cluster(identity.endpoint, identity.ca_pem, credential_of(identity.admin_kubeconfig))
        )
        before = {FIRST: first, SECOND: second}
        made = Nodes(world, agents, members, port, identity.ca_pem, before)
        yield made
        await port.aclose()
