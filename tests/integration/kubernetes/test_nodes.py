"""A machine becomes a node step by step, and is cleaned: what each step promises, on a real kubelet.

With K3S_BINARY the cluster is a real K3s (docs/kubernetes-tests.md).
"""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from control_plane.domain.cluster import server_name
from control_plane.domain.overlay import PODS, SERVER_NUMBER, address_of, range_of
from control_plane.world import utc_now
from data_plane.access.port import StepFailed
from data_plane.cluster import agent_scripts, files
from data_plane.cluster.agents import AgentOrder, Agents, NodePasswordRejected
from data_plane.cluster.bootstrap_token import admit_machine, withdraw
from data_plane.cluster.node import forget
from data_plane.cluster.objects.bootstrap_token import BootstrapToken
from data_plane.cluster.objects.node import JOINING
from data_plane.cluster.resource import NODE
from data_plane.cluster.tenant import prepare_cluster
from data_plane.mesh.port import OverlayPeer, OverlayPlace
from tests.support import agent_laws, stolen_node
from tests.support.kubernetes.k3s_machines import Server
from tests.support.kubernetes.node_cloud import LOCAL, NodeCloud
from tests.support.kubernetes.parts import SERVER_IMAGE
from tests.support.kubernetes.tier import NODES
from tests.support.machine_state import State, state_of
from tests.support.machines import Machine

pytestmark = NODES
NAME, NUMBER = "sp-spare", 900
"""The machine, and its place in the overlay, which no node of the product gets."""
_PAGE = Path("docs/security.md").read_text().split("## What the files of a node open")[1].split("\n## ")[0]
_FILE = re.compile(r"^\| `(/[^`]+)` \|", re.MULTILINE)
_ROW = re.compile(r"^\| ([^|]+?) \| ([^|]+?) \| (yes|no) \|", re.MULTILINE)


@dataclass
class Spare:
    """A machine that our loops know nothing of, and the cluster that it joins."""

    cloud: NodeCloud
    machine: Machine
    block: int
    authority: str
    before: State
    """How it was before it was touched."""

    @property
    def agents(self) -> Agents:
        return self.cloud.world.agents

    def place(self, number: int) -> OverlayPlace:
        return OverlayPlace(address_of(self.block, number), str(range_of(self.block)), str(PODS))

    async def order(self, number: int = 0, *, token: bool = True) -> AgentOrder:
        """What makes it a node; with a token that the cluster knows, unless said otherwise."""
        made = BootstrapToken(f"{NUMBER:03}{number:03}", f"{NUMBER:016}")
        if token:
            async with self.cloud.kubernetes() as port:
                await admit_machine(
                    port, made, NAME, self.place(NUMBER).address, now=utc_now(), life=timedelta(minutes=10)
                )
        server = f"https://{self.place(SERVER_NUMBER).address}:6443"
        labels = {"splitplane.io/kind": "node"}
        text, address = made.text(self.authority), self.place(NUMBER).address
        return AgentOrder(self.machine.target, NAME, address, server, text, labels)

    async def tunnel(self) -> None:
        """Join it and the server. Nobody else is in the overlay."""
        members = self.cloud.world.members
        ends = {NUMBER: self.machine.target, SERVER_NUMBER: self.cloud.server.target}
        keys = {number: await members.make_key(target) for number, target in ends.items()}
        for number, other in ((NUMBER, SERVER_NUMBER), (SERVER_NUMBER, NUMBER)):
            endpoint = f"{ends[other].address}:51820"
            peer = OverlayPeer(keys[other], (f"{self.place(other).address}/32",), endpoint)
            await members.apply(ends[number], self.place(number), [peer])

    async def is_ready(self) -> bool:
        return await self.cloud.says_ready(NAME)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def spare(cloud: NodeCloud) -> AsyncIterator[Spare]:
    """It is a node."""
    cloud.start()
    await cloud.until("the cluster is built", cloud.is_built)
    await cloud.stop()  # Its loops would take away what they do not know.
    machine = await cloud.apart.boot(LOCAL, NAME)
    await machine.sh("cloud-init status --wait")
    found = await cloud.cluster()
    made = Spare(cloud, machine, found.overlay, found.ca_pem or "", await state_of(machine))
    async with cloud.kubernetes() as port:
        await prepare_cluster(port, server_name(found.id))
    await made.agents.prepare(machine.target)
    await made.tunnel()
    await made.agents.start(await made.order())
    await cloud.until("it is ready", made.is_ready)
    yield made
    async with cloud.kubernetes() as port:
        await forget(port, NAME)  # Other tests of this cluster count the Nodes that are not the product's.
    await cloud.apart.hosts[LOCAL].destroy(NAME)


async def test_a_machine_registers_with_our_taint_at_its_overlay_address(spare: Spare) -> None:
    async with spare.cloud.kubernetes() as port:
        node = await port.get(NODE, NAME)
    taints = {taint["key"]: taint["effect"] for taint in node["spec"]["taints"]}
    assert taints[JOINING] == "NoSchedule"
    addresses = {each["type"]: each["address"] for each in node["status"]["addresses"]}
    assert addresses["InternalIP"] == spare.place(NUMBER).address
    assert node["metadata"]["labels"]["splitplane.io/kind"] == "node"
    server = spare.place(SERVER_NUMBER).address
    assert await spare.cloud.world.members.probe(spare.machine.target, server) == 1_420


async def test_what_is_done_is_left_as_it_is(spare: Spare) -> None:
    running = "systemctl show k3s-agent --property=MainPID --property=NRestarts"
    before = await spare.machine.sh(running)
    await agent_laws.preparing_has_the_same_evidence_twice(spare.agents, spare.machine.target)
    order = await spare.order(token=False)
    started = await spare.agents.start(order)
    assert started == await spare.agents.start(order)
    assert await spare.machine.sh(running) == before
    with pytest.raises(StepFailed, match="does not have the address"):
        await spare.agents.start(replace(order, address="10.64.99.9"))
    with pytest.raises(StepFailed, match="malformed"):
        await spare.agents.start(replace(order, labels={'a"\nserver': "https://192.0.2.1"}))


async def test_the_token_is_in_memory_only_and_a_node_restarts_without_it(spare: Spare) -> None:
    machine = spare.machine
    secret = (await spare.order(token=False)).token.rpartition("::")[2]
    on_disk = f"sudo grep -rlF {secret} /etc /var/lib /usr/local /root /home /run 2>/dev/null || true"
    assert (await machine.sh(on_disk)).split() == ["/run/splitplane-k3s/token"]
    mode = f"sudo stat -c '%a %U' {agent_scripts.TOKEN_FOLDER}/token"
    assert (await machine.sh(mode)).split() == ["600", "root"]
    itself = f"{secret[:-1]}[{secret[-1]}]"  # The command that looks for it must not find itself.
    shown = f"sudo sh -c 'cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ' | tr '\\0' '\\n' | grep -c {itself}"
    assert (await machine.sh(f"{shown} || true")).strip() == "0"
    await spare.agents.drop_token(machine.target)
    await spare.agents.drop_token(machine.target)
    # It has registered, so it is not expected any more: the kubelet is refused at its start, and finds its Node.
    async with spare.cloud.kubernetes() as port:
        await withdraw(port, secret.partition(".")[0], NAME)
    assert (await machine.sh(on_disk)).strip() == ""
    await machine.sh("sudo systemctl restart k3s-agent")
    await spare.cloud.until("it is ready without a token", spare.is_ready)


async def test_the_files_of_a_node_open_what_the_page_says_and_no_more(spare: Spare) -> None:
    cloud = spare.cloud
    cluster, server = await cloud.cluster(), spare.place(SERVER_NUMBER).address
    assert cluster.endpoint is not None
    assert await stolen_node.files_with_secrets(spare.machine) == set(_FILE.findall(_PAGE))
    assert await stolen_node.listening(cloud.server) == stolen_node.PORTS_OF_SERVER
    async with cloud.kubernetes() as port:
        place = stolen_node.Place(
            endpoint=cluster.endpoint,
            authority=spare.authority,
            server_name=server_name(cluster.id),
            admin=port,
            machine=spare.machine,
            node=NAME,
            server=cloud.server,
            server_node=(await cloud.server.sh("hostname")).strip(),
            server_address=server,
        )
        results = await stolen_node.tried(await stolen_node.thief_at(place))
    assert {(by, what): said == "yes" for by, what, said in _ROW.findall(_PAGE)} == results


async def test_a_machine_that_was_rebuilt_joins_under_its_name_once_the_old_node_is_forgotten(
    spare: Spare,
) -> None:
    await spare.agents.stop(spare.machine.target)
    await spare.agents.stop(spare.machine.target)
    lost = "/etc/rancher/node /var/lib/rancher/k3s/agent/*.crt"
    await spare.machine.sh(f"sudo sh -c 'rm -rf {lost}'")
    order = await spare.order(1)
    with pytest.raises(NodePasswordRejected, match="another has the name"):
        await spare.agents.start(order)
    async with spare.cloud.kubernetes() as port:
        await forget(port, NAME)
    await spare.agents.start(order)
    await spare.cloud.until("it is ready", spare.is_ready)


async def test_cleaning_leaves_a_machine_as_it_was_before(spare: Spare) -> None:
    await _run_a_pod(spare)
    with_pod = await state_of(spare.machine)
    assert spare.before.missing_in(with_pod), "the comparison sees what a node adds"
    await agent_laws.a_clean_machine_has_nothing_left(spare.agents, spare.machine.target)
    after = await state_of(spare.machine)
    more, less = spare.before.missing_in(after), after.missing_in(spare.before)
    assert more == {}, f"left: {more}"
    assert less == {}, f"gone: {less}"
    with pytest.raises(StepFailed, match="not prepared"):
        await spare.agents.start(await spare.order(token=False))


async def _run_a_pod(spare: Spare) -> None:
    server = Server(spare.cloud.server)
    container: dict[str, Any] = {"name": "c", "image": SERVER_IMAGE, "imagePullPolicy": "Never"}
    container["args"] = ["serve", "here"]
    spec = {"nodeName": NAME, "tolerations": [{"operator": "Exists"}], "containers": [container]}
    await server.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "here"}, "spec": spec})
    await server.kubectl("wait --for=condition=Ready pod/here --timeout=60s")


async def test_preparing_fails_as_a_whole_and_goes_on_where_it_was(spare: Spare) -> None:
    """Run on a machine that was cleaned, so that nothing of what it leaves is there already."""
    machine, target = spare.machine, spare.machine.target
    await spare.agents.clean(target)
    full = "sudo mkdir -p /var/lib/splitplane && sudo mount -t tmpfs -o size=1m none /var/lib/splitplane"
    await machine.sh(full)
    try:
        with pytest.raises(StepFailed, match="No space left on device"):
            await spare.agents.prepare(target)
        assert not (await machine.sh("ls /usr/local/bin")).split()
    finally:
        await machine.sh("sudo umount /var/lib/splitplane")
    await spare.agents.prepare(target)
    await machine.sh(f"sudo sh -c 'echo more >> {files.FOLDER}/install.sh; echo more >> /usr/local/bin/k3s'")
    await agent_laws.preparing_has_the_same_evidence_twice(spare.agents, target)
    await machine.sh(
        "sudo sh -c 'mkdir -p /var/lib/kubelet/kept && mount -t tmpfs none /var/lib/kubelet/kept'"
    )
    assert (await spare.agents.clean(target)).nothing_left, "it unmounts what is there"
