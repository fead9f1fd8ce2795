"""A node pool from its request to nothing, through the product: every loop runs, and all parts are real.

With K3S_BINARY the cluster is a real K3s (docs/kubernetes-tests.md).
"""

import asyncio
import json
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import httpx
import pytest

from control_plane.db import loops
from control_plane.domain.node import JoinStep, LeaveReason, leaving
from control_plane.domain.node_capacity import GPU
from data_plane.cluster.objects.tenant import NODE_GPU, NODE_ORGANIZATION, NODE_POOL, NODE_PROJECT
from data_plane.cluster.resource import NODE, SECRET
from data_plane.documents.agent_config import POD_ADDRESSES
from data_plane.mesh.pod_filter import TABLE as FILTER
from reconciler.loops.clusters.sync_overlay import READ_AGAIN_AFTER
from tests.support.attack_from_machine import CERTIFICATE, NOTHING, SSH_KEY, TUNNEL
from tests.support.kubernetes.k3s_machines import Server
from tests.support.kubernetes.kubectl import Kubectl, KubectlError, answer, server_pod
from tests.support.kubernetes.node_cloud import CPU_SKU, LAMBDA, LOCAL, NodeCloud
from tests.support.kubernetes.strangers import DNS_PORT, PORT, Strangers, reaches
from tests.support.kubernetes.tier import NODES
from tests.support.machine_attack import attacked, on_page
from tests.support.machines import Machine

# Two minutes when nothing else runs, and some beside much other work: kubelets live in real time.
pytestmark = [*NODES, pytest.mark.timeout(600)]

HOUR = 3_600
DEVICE_PLUGIN = "splitplane-device-plugin"
OUTAGE_SECONDS_MIN = 60
"""Of real time, the only one that kubelets and tunnels know."""
SECONDS_BETWEEN_LOOKS = 2
Node = dict[str, Any]
"""As the API shows it."""


@dataclass(frozen=True, slots=True)
class Running:
    """What runs on a node, of which nothing changes while the control plane is away."""

    is_ready: bool
    """Whether the cluster says that the node is."""
    pod: str
    """The uid of the customer's pod there."""
    phase: str
    container: str
    restarts: int
    processes: tuple[str, ...]
    """The ids of the customer's processes, on the machine."""
    answers: bool
    """Whether the pod answers the one on the first node, for other nodes through their tunnel."""


@dataclass
class Story:
    cloud: NodeCloud
    kubectl: Kubectl
    pool: str
    near: Node
    """Its provider stays."""
    far: Node
    """Its provider is cut off."""
    addresses: dict[str, str] = field(default_factory=dict[str, str])
    """Of the pods, by the names of their nodes."""
    listed_when_deleted: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Who still listed the key of a node when its Node was deleted, by the node's name."""

    async def watch_deletions(self) -> None:
        """From now on, when a Node is deleted, look at who lists its key."""
        members, far = self.cloud.world.members, self.far
        key = (await members.read(await self.cloud.target(far))).public_key
        others = {"server": self.cloud.server.target, "near": await self.cloud.target(self.near)}

        async def look(name: str) -> None:
            if name == far["name"]:
                holding = [who for who, target in others.items() if key in (await members.read(target)).keys]
                self.listed_when_deleted[name] = holding

        self.cloud.clusters.deleting = look

    async def serve(self, *nodes: Node, gpus: int = 0) -> None:
        """A pod on each node, named like it, with so many GPUs."""
        names = [node["name"] for node in nodes]
        pods = {"items": [server_pod(name, name, _text(name), gpus=gpus) for name in names]}
        wanted = json.dumps({"apiVersion": "v1", "kind": "List", **pods})
        await self.cloud.until("the pods are accepted", partial(self._are_accepted, wanted))
        them = [f"pod/{name}" for name in names]
        await asyncio.to_thread(self.kubectl, "wait", "--for=condition=Ready", *them, "--timeout=60s")
        found = (await asyncio.to_thread(self.kubectl.json, "get", "pods"))["items"]
        self.addresses = {pod["metadata"]["name"]: pod["status"].get("podIP", "") for pod in found}
        runtimes = {pod["metadata"]["name"]: pod["spec"].get("runtimeClassName") for pod in found}
        assert {runtimes[name] for name in names} == {"nvidia" if gpus else None}

    async def _are_accepted(self, wanted: str) -> bool:
        """The quota grows with the nodes, some seconds after these were opened."""
        try:
            await asyncio.to_thread(self.kubectl, "apply", "--filename=-", stdin=wanted)
        except KubectlError as error:
            if "exceeded quota" in str(error):
                return False
            raise
        return True

    async def answers(self, through: str, node: Node, *, seconds: float = 0) -> bool:
        """Whether the pod on a node answers the pod that is forwarded to us, at the latest after so many seconds."""
        name = node["name"]
        asked = partial(answer, f"http://{self.addresses[name]}:8080/", through, seconds=seconds)
        return await asyncio.to_thread(asked) == _text(name)

    async def is_unready_since(self, node: Node) -> str | None:
        since: str | None = (await self.cloud.get(f"/nodes/{node['id']}"))["unready_since"]
        return since


def _text(node: str) -> str:
    """What the pod on a node answers with."""
    return f"I run on {node}"


async def test_a_pool_of_two_providers_outlives_us_replaces_a_lost_node_and_leaves_without_a_trace(
    cloud: NodeCloud,
) -> None:
    story = await _pool_of_two(cloud)
    await story.serve(story.near, story.far, gpus=1)  # All that they have, through the device plugin.
    await story.watch_deletions()
    with story.kubectl.forwarded(story.near["name"]) as url:
        assert await story.answers(url, story.far, seconds=30), "through the tunnel"
        await _reads_its_pods(story, story.far)
        await _attack(story)
        strangers = await _policies(story, url)
        assert await _mtus(cloud, story.near) == {"cni0": 1_370, "flannel.1": 1_370, "spoverlay": 1_420}
        await _outage(story, url, strangers)
        await _cut_off(story, url)
        replacement = await _loss(story)
        await story.serve(replacement)
        assert await story.answers(url, replacement, seconds=30)
    await _end(story, [story.near, story.far, replacement])


async def _pool_of_two(cloud: NodeCloud) -> Story:
    """Of which one machine can be had at the first provider."""
    cloud.start()
    await cloud.until("the cluster is built", cloud.is_built)
    cloud.sells(LOCAL, 1)
    cloud.sells(LAMBDA, 1)
    pool = await cloud.create_pool("duo", 2)
    loaders = await cloud.create_pool("loaders", 1, sku=CPU_SKU)  # Beside it, because each takes its time.
    await cloud.until("the pool is ready", partial(cloud.pool_is, pool, "ready", 2))
    await cloud.until("the pool without GPUs is ready", partial(cloud.pool_is, loaders, "ready", 1))
    await cloud.until("their nodes are opened", partial(_are_opened, cloud, 3))
    of_pool = [node for node in await cloud.nodes("ready") if node["node_pool_id"] == pool]
    found = {await cloud.provider_of(node): node for node in of_pool}
    assert found.keys() == {LOCAL, LAMBDA}
    for node in await cloud.nodes("ready"):
        await cloud.until("the cluster says so too", partial(cloud.says_ready, node["name"]))
    await _without_gpus(cloud, loaders, beside=found[LOCAL])
    return Story(cloud, await cloud.kubectl(), pool, found[LOCAL], found[LAMBDA])


async def _without_gpus(cloud: NodeCloud, pool: str, *, beside: Node) -> None:
    """What a node of a CPU pool has, and that it is taken out of the cluster once it claims a GPU."""
    (node,) = [each for each in await cloud.nodes("ready") if each["node_pool_id"] == pool]
    async with cloud.kubernetes() as port:
        cpu, gpu = [await port.get(NODE, each["name"]) for each in (node, beside)]
    labels, of_gpu = cpu["metadata"]["labels"], gpu["metadata"]["labels"]
    assert (labels[NODE_POOL], NODE_GPU in labels, of_gpu[NODE_GPU]) == ("loaders", False, "nvidia")
    assert {name: labels[name] for name in (NODE_ORGANIZATION, NODE_PROJECT)} == {
        name: of_gpu[name] for name in (NODE_ORGANIZATION, NODE_PROJECT)
    }
    assert cpu["spec"]["taints"] == gpu["spec"]["taints"], "the taint of the project, and ours no more"
    assert (GPU in cpu["status"]["capacity"], gpu["status"]["capacity"][GPU]) == (False, "1")
    assert [await _device_plugins(cloud, each) for each in (node, beside)] == [0, 1]

    await _claim_a_gpu(cloud, node)
    cloud.clock.advance(30)  # Open nodes are looked at as often.
    await cloud.until("it leaves", partial(_is_in, cloud, node, "leaving", "gone"))
    await cloud.post(f"/node-pools/{pool}/deletion")  # Otherwise the pool would replace it.
    await cloud.until("nothing is left of its pool", partial(cloud.pool_is, pool, "gone"))
    left = await cloud.get(f"/nodes/{node['id']}")
    assert (left["leave_reason"], left["state"]) == (LeaveReason.HOSTILE, "gone")
    async with cloud.kubernetes() as port:
        assert node["name"] not in [each["metadata"]["name"] for each in await port.list(NODE)]


async def _claim_a_gpu(cloud: NodeCloud, node: Node) -> None:
    """As whoever has the machine would: with the certificate of its kubelet."""
    pair, cluster = cloud.folder / "kubelet.pem", await cloud.cluster()
    both = "sudo sh -c 'cat /var/lib/rancher/k3s/agent/client-kubelet.crt /var/lib/rancher/k3s/agent/client-kubelet.key'"
    pair.write_text(await (await cloud.machine(node)).sh(both))
    trusted = ssl.create_default_context(cadata=cluster.ca_pem)
    trusted.check_hostname = False  # It is reached by its address.
    trusted.load_cert_chain(pair)
    claim = json.dumps({"status": {"capacity": {GPU: "1"}, "allocatable": {GPU: "1"}}})
    async with httpx.AsyncClient(verify=trusted) as kubelet:
        url = f"{cluster.endpoint}/api/v1/nodes/{node['name']}/status"
        answer = await kubelet.patch(
            url, content=claim, headers={"Content-Type": "application/merge-patch+json"}
        )
    assert answer.is_success, answer.text


async def _device_plugins(cloud: NodeCloud, node: Node) -> int:
    """How many pods of our device plugin are on a node."""
    on_it = f"get pods -n kube-system -o name --field-selector spec.nodeName={node['name']}"
    return (await Server(cloud.server).kubectl(on_it)).count(DEVICE_PLUGIN)


async def _reads_its_pods(story: Story, node: Node) -> None:
    """As the agent on a node does, without rights: it finds the address of a pod, and asks it for a page."""
    address = story.addresses[node["name"]]
    url = f"http://{address}:8080/"
    ask = f"import urllib.request as u; print(u.urlopen('{url}', timeout=5).read().decode())"
    machine = await story.cloud.machine(node)
    assert address in (await machine.sh(f"ls {POD_ADDRESSES}")).split()
    assert (await machine.sh(f'python3 -c "{ask}"')).strip() == _text(node["name"])


async def _attack(story: Story) -> None:
    """What one node of an organization can do to another one, as docs/security.md says it."""
    cloud = story.cloud
    far = await cloud.machine(story.far)
    bridge = (await far.sh("ip -brief -4 address show dev cni0")).split()[2].partition("/")[0]
    inside, outside = await _inside(cloud, story.far), far.target.address
    options = (f"--node={inside}", f"--node-outside={outside}", f"--pod={bridge}")
    results = await attacked(await cloud.machine(story.near), *options)
    filtered = {
        (TUNNEL, "reach the server of its cluster from an address of its pods, outside VXLAN"),
        (TUNNEL, "send VXLAN to the server of its cluster, for a pod of another node"),
        (NOTHING, "send VXLAN to the public address of another node, for a pod there"),
    }
    tried = {
        *filtered,
        (TUNNEL, "reach the kubelet of another node of its organization, TCP port 10250"),
        (CERTIFICATE, "ask the kubelet of another node what runs there"),
        (SSH_KEY, "log in to another node of its organization"),
    }
    assert {what: results[what] for what in tried} == {what: on_page()[what] for what in tried}
    for member in (far, cloud.server):
        await member.sh(f"sudo nft delete table {FILTER}")
    results = await attacked(await cloud.machine(story.near), *options)
    assert {what for what in filtered if results[what]} == filtered, "something else refused them"
    cloud.clock.advance(READ_AGAIN_AFTER.total_seconds())
    for member in (far, cloud.server):
        await cloud.until("its filter is there again", partial(_is_filtered, member))


async def _is_filtered(member: Machine) -> bool:
    return FILTER in await member.sh("sudo nft list tables")


async def _mtus(cloud: NodeCloud, node: Node) -> dict[str, int]:
    """Of the interfaces that carry packets of pods."""
    links = json.loads(await (await cloud.machine(node)).sh("ip -json link show"))
    named = ("cni0", "flannel.1", "spoverlay")
    return {link["ifname"]: link["mtu"] for link in links if link["ifname"] in named}


async def _are_opened(cloud: NodeCloud, count: int) -> bool:
    """Whether so many nodes have taken every step into the cluster."""
    taken = [[step["step"] for step in node["steps"]] for node in await cloud.nodes("ready")]
    return taken == [list(JoinStep)] * count


async def _policies(story: Story, url: str) -> Strangers:
    """Who reaches whom, of a tenant's pods and of pods that have no network policy, is what docs/security.md says."""
    cloud, near, far = story.cloud, story.near, story.far
    strangers = await Strangers.place(Server(cloud.server), (near["name"], far["name"]))
    wanted = on_page("Network policies")
    for node, other in ((near, far), (far, near)):
        on, machine = node["name"], await cloud.machine(node)
        kubelet = (await _inside(cloud, node), 10250)
        found = {
            "a pod of a project on its node": await strangers.reach(on, machine, story.addresses[on]),
            "a pod of a project on another node": await strangers.reach(
                on, machine, story.addresses[other["name"]]
            ),
            "a stranger on another node": await strangers.reach(
                on, machine, strangers.addresses[other["name"]]
            ),
            "the kubelet of its node": await strangers.reach(on, machine, *kubelet),
            "another port of the cluster's DNS": await strangers.reach(on, machine, strangers.dns),
            PROVIDERS: await strangers.reach(on, machine, *await _metadata(machine)),
        }
        assert found == {to: wanted["a stranger", to] for to in found}, on
    own = {
        "a pod of its namespace on another node": (story.addresses[far["name"]], PORT),
        "a stranger on its node": (strangers.addresses[near["name"]], PORT),
        "a stranger on another node": (strangers.addresses[far["name"]], PORT),
        "the kubelet of its node": (await _inside(cloud, near), 10250),
        "the cluster's DNS, port 53": (strangers.dns, DNS_PORT),
        "another port of the cluster's DNS": (strangers.dns, PORT),
        PROVIDERS: await _metadata(await cloud.machine(near)),
    }
    found = {to: await asyncio.to_thread(reaches, url, *address) for to, address in own.items()}
    assert found == {to: wanted["a pod of a project", to] for to in own}
    assert len(wanted) == 13, "each line was tried"
    return strangers


METADATA, PROVIDERS = "169.254.169.254", "169.254.169.254, where a provider's metadata is"


async def _metadata(machine: Machine) -> tuple[str, int]:
    """Where a provider's metadata would be, as pods of a machine get there. It answers whoever gets there."""
    await machine.sh(f"sudo ip address replace {METADATA}/32 dev lo; {_SERVE.format(METADATA)}")
    return METADATA, PORT


_SERVE = (
    "ss -ltn | grep -q '{0}:8080 ' || sudo systemd-run -q --collect --unit metadata-of-a-provider"
    " python3 -I -m http.server --directory /usr/share/doc --bind {0} 8080;"
    " for _ in $(seq 50); do ss -ltn | grep -q '{0}:8080 ' && break; sleep 0.1; done"
)
"""Starts a server of the provider's, unless it runs, and waits for it."""


async def _inside(cloud: NodeCloud, node: Node) -> str:
    """The address of a node in the overlay."""
    async with cloud.kubernetes() as port:
        addresses = (await port.get(NODE, node["name"]))["status"]["addresses"]
    (inside,) = [each["address"] for each in addresses if each["type"] == "InternalIP"]
    return str(inside)


async def _is_open(story: Story, strangers: Strangers, *, wanted: bool) -> bool:
    """Whether a stranger reaches the tenant's pod on its node, as wanted."""
    near = story.near["name"]
    machine = await story.cloud.machine(story.near)
    return await strangers.reach(near, machine, story.addresses[near]) is wanted


async def _outage(story: Story, url: str, strangers: Strangers) -> None:
    """Nothing of the control plane runs for a minute of real time, and for an hour by our clock. Somebody deletes the
    network policies of the tenant meanwhile; nodes, tunnels, pods and the customers' processes stay as they were.
    """
    cloud = story.cloud
    before = await _running(story, url)
    assert all(each.is_ready and each.answers and each.processes for each in before.values()), before
    await cloud.stop()
    stopped, ends_at = time.monotonic(), cloud.clock.now() + timedelta(seconds=OUTAGE_SECONDS_MIN)
    namespace = (await asyncio.to_thread(story.kubectl.json, "get", "pods"))["items"][0]["metadata"][
        "namespace"
    ]
    await Server(cloud.server).kubectl(f"delete networkpolicies --all -n {namespace}")
    await cloud.until("everybody reaches the pod", partial(_is_open, story, strangers, wanted=True))
    while cloud.clock.now() < ends_at:
        assert await _running(story, url) == before
        await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
    assert await _running(story, url) == before
    assert await _is_open(story, strangers, wanted=True), "nobody has put the policies back"
    async with cloud.world.db.reading() as connection:
        assert not await loops.reports(connection), "somebody runs loops"
    assert time.monotonic() - stopped >= OUTAGE_SECONDS_MIN, "our clock was set ahead"
    cloud.clock.advance(HOUR)
    cloud.start()
    await cloud.until("nobody reaches it again", partial(_is_open, story, strangers, wanted=False))
    await strangers.remove()
    assert await _running(story, url) == before
    shown = {node["id"]: node["unready_since"] for node in await cloud.nodes("ready")}
    assert shown == {story.near["id"]: None, story.far["id"]: None}


async def _running(story: Story, url: str) -> dict[str, Running]:
    """What runs on each node, by the node's name."""
    found = (await asyncio.to_thread(story.kubectl.json, "get", "pods"))["items"]
    pods = {pod["metadata"]["name"]: pod for pod in found}
    seen: dict[str, Running] = {}
    for node in (story.near, story.far):
        name = node["name"]
        (container,) = pods[name]["status"]["containerStatuses"]
        seen[name] = Running(
            is_ready=await story.cloud.says_ready(name),
            pod=pods[name]["metadata"]["uid"],
            phase=pods[name]["status"]["phase"],
            container=container["containerID"],
            restarts=container["restartCount"],
            processes=await _processes(story, node),
            answers=await story.answers(url, node),
        )
    return seen


async def _processes(story: Story, node: Node) -> tuple[str, ...]:
    """The ids of the processes of the pod on a node, as its machine has them."""
    machine = await story.cloud.machine(node)
    return tuple((await machine.sh(f"pgrep -f '[s]erve {_text(node['name'])}'")).split())


async def _cut_off(story: Story, url: str) -> None:
    """Nothing of the control plane runs for another hour of our clock, in which one node is cut off."""
    cloud = story.cloud
    processes = await _processes(story, story.far)
    await cloud.stop()
    cloud.apart.close_internet(LAMBDA)
    await cloud.until("the cluster misses the node", partial(_is_missed, story))
    assert await story.answers(url, story.near), "the other one goes on"
    assert await _processes(story, story.far) == processes, "its pods go on"
    cloud.clock.advance(HOUR)
    cloud.start()
    await cloud.until("the node is found unready", lambda: _is_found_unready(story))
    assert {node["id"] for node in await cloud.nodes("ready")} == {story.near["id"], story.far["id"]}


async def _is_missed(story: Story) -> bool:
    return not await story.cloud.says_ready(story.far["name"])


async def _is_found_unready(story: Story) -> bool:
    return await story.is_unready_since(story.far) is not None


async def _loss(story: Story) -> Node:
    """The node that is cut off is given up after an hour. Returns the one that replaces it."""
    cloud = story.cloud
    cloud.sells(LOCAL, 1)
    cloud.clock.advance(HOUR)
    await cloud.until("it leaves", partial(_is_in, cloud, story.far, "leaving", "gone"))
    await cloud.until("it is gone", partial(_is_in, cloud, story.far, "gone"))
    assert story.listed_when_deleted == {story.far["name"]: []}, "nobody listed its key any more"
    await cloud.until("it is replaced", partial(cloud.pool_is, story.pool, "ready", 2))
    await cloud.until("its replacement is opened", partial(_are_opened, cloud, 2))
    replacement: Node
    (replacement,) = [node for node in await cloud.nodes("ready") if node["id"] != story.near["id"]]
    return replacement


async def _is_in(cloud: NodeCloud, node: Node, *states: str) -> bool:
    return str((await cloud.get(f"/nodes/{node['id']}"))["state"]) in states


async def _end(story: Story, nodes: Sequence[Node]) -> None:
    cloud = story.cloud
    await cloud.post(f"/node-pools/{story.pool}/deletion")
    await cloud.until("nothing is left of the pool", partial(cloud.pool_is, story.pool, "gone"))
    for node in nodes:
        shown = await cloud.get(f"/nodes/{node['id']}")
        reason = LeaveReason.LOST if node["id"] == story.far["id"] else LeaveReason.LEASE_ENDED
        assert [step["step"] for step in shown["steps"]] == [*JoinStep, *leaving(reason)]
    names = [node["name"] for node in nodes]
    async with cloud.kubernetes() as port:
        found = [thing["metadata"]["name"] for kind in (NODE, SECRET) for thing in await port.list(kind)]
    assert not [name for name in found if name.startswith((*names, "bootstrap-token-"))]
    assert (await cloud.world.members.read(cloud.server.target)).tunnels == ()
    assert [host.machines() for name, host in cloud.apart.hosts.items() if name in (LOCAL, LAMBDA)] == [
        {},
        {},
    ]
