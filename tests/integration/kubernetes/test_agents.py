"""Rented machines become nodes across tunnels, answer each other's pods, are lost with their tunnel, and are left clean.

A server of ours and two machines, each in a network of its own. It runs on the stand-in, and on a real K3s with
K3S_BINARY.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from data_plane.access.port import StepFailed
from data_plane.cluster import agent_scripts, files
from data_plane.cluster.agents import NodePasswordRejected
from data_plane.cluster.node import forget
from data_plane.cluster.objects.node import JOINING
from data_plane.cluster.resource import NODE
from tests.support import agent_laws
from tests.support.kubernetes.clients import eventually
from tests.support.kubernetes.nodes import FIRST, SECOND, Nodes, overlay_address, prepared_nodes
from tests.support.kubernetes.parts import SERVER_IMAGE
from tests.support.kubernetes.tier import NODES
from tests.support.machine_state import state_of

pytestmark = NODES


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    """Both machines are nodes."""
    async with prepared_nodes(tmp_path_factory.mktemp("release")) as made:
        await made.tunnel()
        orders = [await made.order(name) for name in (FIRST, SECOND)]
        await asyncio.gather(*(made.agents.start(order) for order in orders))
        for name in (FIRST, SECOND):
            await eventually(f"{name} is ready", partial(made.is_ready, name))
        yield made


async def test_a_machine_registers_with_our_taint_at_its_overlay_address(nodes: Nodes) -> None:
    for name in (FIRST, SECOND):
        node = await nodes.port.get(NODE, name)
        taints = {taint["key"]: taint["effect"] for taint in node["spec"]["taints"]}
        assert taints[JOINING] == "NoSchedule"
        addresses = {each["type"]: each["address"] for each in node["status"]["addresses"]}
        assert addresses["InternalIP"] == overlay_address(name)
        assert node["metadata"]["labels"]["splitplane.io/kind"] == "node"
        assert await nodes.members.probe(nodes.target(name), nodes.server_address) == 1_420


async def test_a_pod_of_one_machine_answers_a_pod_of_the_other_through_the_tunnel(nodes: Nodes) -> None:
    for name in (FIRST, SECOND):
        container: dict[str, Any] = {"name": "c", "image": SERVER_IMAGE, "imagePullPolicy": "Never"}
        container["args"] = ["serve", f"on {name}"]
        spec = {"nodeName": name, "tolerations": [{"operator": "Exists"}], "containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"on-{name}"}, "spec": spec}
        await nodes.server.apply(pod)
    await nodes.server.kubectl("wait --for=condition=Ready pod --all --timeout=60s")
    first, second = (await nodes.server.kubectl("get pods -o jsonpath='{.items[*].status.podIP}'")).split()
    url = f"http://{first}:8080/fetch?url=http://{second}:8080/"
    program = f"import urllib.request as u; print(u.urlopen('{url}', timeout=20).read().decode())"
    assert (await nodes.server.machine.sh(f'python3 -c "{program}"')).strip() == f"on {SECOND}"
    mtu = await nodes.machine(FIRST).sh("cat /sys/class/net/cni0/mtu /sys/class/net/flannel.1/mtu")
    assert mtu.split() == ["1370", "1370"]


async def test_what_is_done_is_left_as_it_is(nodes: Nodes) -> None:
    machine, target = nodes.machine(FIRST), nodes.target(FIRST)
    running = "systemctl show k3s-agent --property=MainPID --property=NRestarts"
    before = await machine.sh(running)
    await agent_laws.preparing_has_the_same_evidence_twice(nodes.agents, target)
    order = await nodes.order(FIRST, token=False)
    started = await nodes.agents.start(order)
    assert started == await nodes.agents.start(order)
    assert await machine.sh(running) == before
    with pytest.raises(StepFailed, match="does not have the address"):
        await nodes.agents.start(replace(order, address="10.64.99.9"))
    with pytest.raises(StepFailed, match="malformed"):
        await nodes.agents.start(replace(order, labels={'a"\nserver': "https://192.0.2.1"}))


async def test_the_token_is_in_memory_only_and_a_node_restarts_without_it(nodes: Nodes) -> None:
    machine = nodes.machine(FIRST)
    secret = (await nodes.order(FIRST, token=False)).token.rpartition("::")[2]
    on_disk = f"sudo grep -rlF {secret} /etc /var/lib /usr/local /root /home /run 2>/dev/null || true"
    assert (await machine.sh(on_disk)).split() == ["/run/splitplane-k3s/token"]
    assert (await machine.sh(f"sudo stat -c '%a %U' {agent_scripts.TOKEN_FOLDER}/token")).split() == [
        "600",
        "root",
    ]
    itself = f"{secret[:-1]}[{secret[-1]}]"  # The command that looks for it must not find itself.
    shown = f"sudo sh -c 'cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ' | tr '\\0' '\\n' | grep -c {itself}"
    assert (await machine.sh(f"{shown} || true")).strip() == "0"
    await nodes.agents.drop_token(nodes.target(FIRST))
    await nodes.agents.drop_token(nodes.target(FIRST))
    assert (await machine.sh(on_disk)).strip() == ""
    await machine.sh("sudo systemctl restart k3s-agent")
    await eventually("it is ready without a token", lambda: nodes.is_ready(FIRST))


async def test_a_node_that_lost_its_tunnel_is_lost_to_the_cluster_and_found_again_with_it(
    nodes: Nodes,
) -> None:
    async def is_lost() -> bool:
        return not await nodes.is_ready(SECOND)

    nodes.world.close_internet(SECOND)
    try:
        assert await nodes.members.probe(nodes.target(SECOND), nodes.server_address) is None
        await eventually("the node is lost", is_lost)
        await eventually("the other node is ready", lambda: nodes.is_ready(FIRST))
        running = await nodes.machine(SECOND).sh("pgrep -fc 'serve on sp-second'")
        assert int(running) >= 1, "its pods go on"
    finally:
        nodes.world.open_internet(SECOND)
    await eventually("the node is ready again", lambda: nodes.is_ready(SECOND))


async def test_a_machine_that_was_rebuilt_joins_under_its_name_once_the_old_node_is_forgotten(
    nodes: Nodes,
) -> None:
    target = nodes.target(SECOND)
    await nodes.agents.stop(target)
    await nodes.agents.stop(target)
    lost = "/etc/rancher/node /var/lib/rancher/k3s/agent/*.crt"
    await nodes.machine(SECOND).sh(f"sudo sh -c 'rm -rf {lost}'")
    order = await nodes.order(SECOND, 1)
    with pytest.raises(NodePasswordRejected, match="another has the name"):
        await nodes.agents.start(order)
    await forget(nodes.port, SECOND)
    await nodes.agents.start(order)
    await eventually("it is ready", lambda: nodes.is_ready(SECOND))


async def test_cleaning_leaves_a_machine_as_it_was_before(nodes: Nodes) -> None:
    for name in (FIRST, SECOND):
        with_pods = await state_of(nodes.machine(name))
        assert nodes.before[name].missing_in(with_pods), "the comparison sees what a node adds"
        await agent_laws.a_clean_machine_has_nothing_left(nodes.agents, nodes.target(name))
        after = await state_of(nodes.machine(name))
        more, less = nodes.before[name].missing_in(after), after.missing_in(nodes.before[name])
        assert more == {}, f"left: {more}"
        assert less == {}, f"gone: {less}"
        with pytest.raises(StepFailed, match="not prepared"):
            await nodes.agents.start(await nodes.order(name, token=False))


async def test_preparing_fails_as_a_whole_and_goes_on_where_it_was(nodes: Nodes) -> None:
    """Run on a machine that was cleaned, so that nothing of what it leaves is there already."""
    name = SECOND
    machine, target = nodes.machine(name), nodes.target(name)
    await agent_laws.a_clean_machine_has_nothing_left(nodes.agents, target)
    full = "sudo mkdir -p /var/lib/splitplane && sudo mount -t tmpfs -o size=1m none /var/lib/splitplane"
    await machine.sh(full)
    try:
        with pytest.raises(StepFailed, match="No space left on device"):
            await nodes.agents.prepare(target)
        assert not (await machine.sh("ls /usr/local/bin")).split()
    finally:
        await machine.sh("sudo umount /var/lib/splitplane")
    await nodes.agents.prepare(target)
    await machine.sh(f"sudo sh -c 'echo more >> {files.FOLDER}/install.sh; echo more >> /usr/local/bin/k3s'")
    await agent_laws.preparing_has_the_same_evidence_twice(nodes.agents, target)
    assert (await nodes.agents.clean(target)).nothing_left
    await machine.sh(
        "sudo sh -c 'mkdir -p /var/lib/kubelet/kept && mount -t tmpfs none /var/lib/kubelet/kept'"
    )
    assert (await nodes.agents.clean(target)).nothing_left, "it unmounts what is there"
