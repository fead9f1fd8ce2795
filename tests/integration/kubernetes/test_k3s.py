"""K3s on two local machines: tokens, joins, names of nodes, pods, restarts, and a machine that is rebuilt.

This is what the product counts on. It runs on the stand-in, and on a real K3s with K3S_BINARY.
"""

import asyncio
import hashlib
import json
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from data_plane.access.authority import new_authority
from data_plane.access.ssh import new_host_key
from providers.emulators.host import MachineSpec
from providers.emulators.image import ensure_image
from providers.emulators.node_support import NodeSupport
from providers.emulators.nspawn import NspawnHost
from tests.support.certificates import our_access
from tests.support.golang.toolchain import expected_version
from tests.support.kubernetes import parts
from tests.support.kubernetes.k3s_machines import CGROUP_V1, Server, install, place
from tests.support.kubernetes.k3s_release import BINARY, release
from tests.support.kubernetes.parts import SERVER_IMAGE
from tests.support.kubernetes.tier import NODES
from tests.support.machines import IMAGES, Machine, boot_order, ready

pytestmark = NODES
TAINT = "splitplane.example/joining=true:NoSchedule"
REFUSED = "Node password rejected"
WAIT_SECONDS_MAX = 60


@dataclass
class Cluster:
    server: Server
    node: Machine
    """The other machine, which has joined."""

    async def join(self, token: str) -> str:
        arguments = f"agent --node-ip {self.node.target.address} --kubelet-arg={CGROUP_V1}"
        arguments += f" --node-taint {TAINT} --node-label pool=gpu"
        return await install(self.node, arguments, K3S_URL=self.server.url, K3S_TOKEN=token)

    async def is_ready(self) -> bool:
        ready = "'{.status.conditions[?(@.type==\"Ready\")].status}'"
        return await self.server.kubectl(f"get node sp-node --ignore-not-found -o jsonpath={ready}") == "True"


async def _until(what: str, is_true: Callable[[], Awaitable[bool]]) -> None:
    end = asyncio.get_running_loop().time() + WAIT_SECONDS_MAX
    while not await is_true():
        assert asyncio.get_running_loop().time() < end, what
        await asyncio.sleep(0.3)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    support = NodeSupport(parts.parts(expected_version()))
    host = await NspawnHost.open(await asyncio.to_thread(ensure_image, IMAGES, print), nodes=support)
    if os.environ.get(BINARY):
        host.router = host.subnet[1]  # A real K3s wants a default route, wherever it leads.
    try:
        authority, keys = new_authority(), {name: new_host_key() for name in ("sp-server", "sp-node")}
        access = our_access(authority)
        for name, key in keys.items():
            await host.boot(MachineSpec(name, boot_order(key, [authority], name), ()))
        targets = await asyncio.gather(*(ready(host, access, name, key) for name, key in keys.items()))
        first, second = (Machine(target, authority) for target in targets)
        k3s = release(tmp_path_factory.mktemp("k3s"))
        await asyncio.gather(place(first, k3s), place(second, k3s))
        arguments = f"server --node-ip {first.target.address} --agent-token agents --kubelet-arg={CGROUP_V1}"
        said = await install(first, arguments)
        assert (await first.sh("systemctl is-active k3s || true")).strip() == "active", said
        joined = Cluster(Server(first), second)
        said = await joined.join(await joined.server.token("15m"))
        await _until(f"the node is ready: {said}", joined.is_ready)
        yield joined
    finally:
        await host.close()


async def test_a_node_registers_with_its_labels_and_taints(cluster: Cluster) -> None:
    node = json.loads(await cluster.server.kubectl("get node sp-node -o json"))
    assert node["metadata"]["labels"]["pool"] == "gpu"
    assert {"key": "splitplane.example/joining", "value": "true", "effect": "NoSchedule"} in node["spec"][
        "taints"
    ]
    addresses = {entry["type"]: entry["address"] for entry in node["status"]["addresses"]}
    assert addresses["InternalIP"] == cluster.node.target.address


async def test_a_pod_of_one_node_answers_a_pod_of_the_other(cluster: Cluster) -> None:
    for name in ("sp-server", "sp-node"):
        container = {
            "name": "c",
            "image": SERVER_IMAGE,
            "imagePullPolicy": "Never",
            "args": ["serve", f"on {name}"],
        }
        spec = {"nodeName": name, "tolerations": [{"operator": "Exists"}], "containers": [container]}
        metadata = {"name": f"on-{name}"}
        await cluster.server.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    await cluster.server.kubectl("wait --for=condition=Ready pod --all --timeout=60s")
    addresses = (await cluster.server.kubectl("get pods -o jsonpath='{.items[*].status.podIP}'")).split()
    fetched = set()
    for asked, other in (addresses, addresses[::-1]):
        url = f"http://{asked}:8080/fetch?url=http://{other}:8080/"
        program = f"import urllib.request as u; print(u.urlopen('{url}').read().decode())"
        fetched.add((await cluster.server.machine.sh(f'python3 -c "{program}"')).strip())
    assert fetched == {"on sp-server", "on sp-node"}
    assert "serving" in await cluster.server.kubectl("logs on-sp-node")
    await cluster.server.kubectl("delete pod --all --now")


async def test_a_node_that_has_joined_restarts_without_a_token(cluster: Cluster) -> None:
    for line in (await cluster.server.k3s("token list -o json")).splitlines():
        await cluster.server.k3s(f"token delete {json.loads(line)['token']}")
    file = "/etc/systemd/system/k3s-agent.service.env"
    await cluster.node.sh(f"sudo sed -i /K3S_TOKEN/d {file} && sudo systemctl restart k3s-agent")
    assert (await cluster.node.sh("systemctl is-active k3s-agent")).strip() == "active"
    await _until("it is ready", cluster.is_ready)


async def test_the_supervisor_believes_tokens_that_are_right_and_have_not_ended(cluster: Cluster) -> None:
    async with httpx.AsyncClient(base_url=cluster.server.url, verify=False, trust_env=False) as anyone:
        authority = await anyone.get("/cacerts")
    full = await cluster.server.token("15m")
    assert full.startswith(f"K10{hashlib.sha256(authority.content).hexdigest()}::")
    short = await cluster.server.token("2s")
    await asyncio.sleep(2.5)
    context = ssl.create_default_context(cadata=authority.text)
    path = "/v1-k3s/client-ca.crt"
    async with httpx.AsyncClient(base_url=cluster.server.url, verify=context, trust_env=False) as agent:
        bearer = full.rpartition("::")[2]
        cases: dict[str, tuple[dict[str, str], int]] = {
            "no credential": ({}, 401),
            "a bootstrap token": ({"Authorization": f"Bearer {bearer}"}, 200),
            "one that ended": ({"Authorization": f"Bearer {short.rpartition('::')[2]}"}, 401),
            "another secret": (
                {"Authorization": f"Bearer {bearer[:-1]}{'a' if bearer[-1] != 'a' else 'b'}"},
                401,
            ),
        }
        for what, (headers, status) in cases.items():
            assert (await agent.get(path, headers=headers)).status_code == status, what
        for password, status in (("agents", 200), ("servers", 401)):
            assert (await agent.get(path, auth=("node", password))).status_code == status, password
        # What is not the supervisor's goes to the API server, whose word it is.
        assert (await agent.get("/api/v1/nodes")).status_code == 401
        forged = {"X-Remote-User": "system:admin", "X-Remote-Group": "system:masters"}
        assert (await agent.get("/api/v1/nodes", headers=forged)).status_code == 401


async def test_a_machine_that_was_rebuilt_joins_once_its_password_is_forgotten(
    cluster: Cluster, tmp_path: Path
) -> None:
    await cluster.node.sh("sudo /usr/local/bin/k3s-agent-uninstall.sh && sudo rm -rf /etc/rancher")
    for left in (
        "/etc/rancher",
        "/run/k3s",
        "/var/lib/kubelet",
        "/var/lib/rancher/k3s",
        "/usr/local/bin/k3s",
    ):
        assert (await cluster.node.sh(f"ls -d {left} 2>/dev/null || true")).strip() == "", left
    assert (await cluster.node.sh("pgrep -f '[c]ontainerd|[k]ubelet' || true")).strip() == ""
    await place(cluster.node, release(tmp_path))
    joining = asyncio.create_task(cluster.join(await cluster.server.token("15m")))

    async def is_refused() -> bool:
        return REFUSED in await cluster.node.sh("sudo journalctl -u k3s-agent --no-pager -o cat")

    await _until("it is refused", is_refused)
    await cluster.server.kubectl("delete node sp-node")  # Its password goes with it.
    await joining
    assert (await cluster.node.sh("systemctl is-active k3s-agent")).strip() == "active"
    await _until("it is ready", cluster.is_ready)
