"""The device plugin in a real cluster: on which nodes it runs, and what pods that ask for GPUs get. No GPU is there."""

from collections.abc import AsyncIterator

import pytest

from data_plane.cluster import node
from data_plane.cluster.lightkube_port import LightkubePort
from data_plane.cluster.objects.device_plugin import NAME, NAMESPACE, RUNTIME, DevicePlugin
from data_plane.cluster.objects.node import joining_taint
from data_plane.cluster.objects.tenant import Tenant
from data_plane.cluster.port import delete_if_there
from data_plane.cluster.resource import DAEMON_SET, NODE, POD, RUNTIME_CLASS, Object
from data_plane.cluster.tenant import prepare_cluster
from tests.support.kubernetes.clients import eventually, new_name, new_node, pod
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.tier import KUBERNETES

pytestmark = KUBERNETES
PLUGIN = DevicePlugin("registry.invalid/device-plugin@sha256:" + "0" * 64, is_at_hand=True)


@pytest.fixture
async def prepared(admin: LightkubePort) -> AsyncIterator[LightkubePort]:
    await prepare_cluster(admin, "cl-1", PLUGIN)
    yield admin
    await delete_if_there(admin, DAEMON_SET, NAME, NAMESPACE)


async def _plugins(admin: LightkubePort) -> dict[str, Object]:
    """Its pods, by the names of the nodes that they are bound to."""
    found = await admin.list(POD, NAMESPACE, labels={"app.kubernetes.io/name": NAME})
    return {each["spec"]["nodeName"]: each for each in found if "nodeName" in each["spec"]}


async def test_it_runs_on_nodes_with_gpus_before_they_are_opened_and_after_and_on_no_others(
    kubernetes: ControlPlane, prepared: LightkubePort, tenant: Tenant
) -> None:
    chosen = {"key": "chosen-by-a-customer", "value": "", "effect": "NoExecute"}
    joining, opened, cpus, unknown = [await new_node(kubernetes, taints=[joining_taint()]) for _ in range(4)]
    await node.expect_gpus(prepared, joining)
    await node.admit(prepared, opened, node.Marks(tenant, "le_1", "gpu", taints=(chosen,)))
    await node.admit(prepared, cpus, node.Marks(tenant, "le_2", "cpu", has_gpus=False))

    async def runs() -> bool:
        return {joining, opened} <= (await _plugins(prepared)).keys()

    await eventually("it runs on both nodes with GPUs", runs)
    found = await _plugins(prepared)
    assert not {cpus, unknown} & found.keys()
    assert not any(volume.get("projected") for volume in found[joining]["spec"]["volumes"]), "no token"
    await node.admit(prepared, joining, node.Marks(tenant, "le_3", "gpu"))
    assert not node.differs(await prepared.get(NODE, joining), node.Marks(tenant, "le_3", "gpu"))


async def test_what_somebody_changes_about_it_is_put_right(prepared: LightkubePort) -> None:
    other = {"name": "device-plugin", "image": "registry.invalid/other:1"}
    stolen = {"nodeSelector": {"kubernetes.io/os": "linux"}, "tolerations": [], "containers": [other]}
    await prepared.patch(DAEMON_SET, NAME, {"spec": {"template": {"spec": stolen}}}, NAMESPACE)
    await delete_if_there(prepared, RUNTIME_CLASS, RUNTIME)
    await prepare_cluster(prepared, "cl-1", PLUGIN)
    spec = (await prepared.get(DAEMON_SET, NAME, NAMESPACE))["spec"]["template"]["spec"]
    assert spec["nodeSelector"]["node-restriction.kubernetes.io/gpu"] == "nvidia"
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert [each["image"] for each in spec["containers"]] == [PLUGIN.image]
    assert (await prepared.get(RUNTIME_CLASS, RUNTIME))["handler"] == RUNTIME


async def test_pods_that_ask_for_gpus_get_the_runtime_that_shows_them(
    prepared: LightkubePort, tenant: Tenant
) -> None:
    async def runtime(**spec: object) -> str | None:
        made = pod(tenant.namespace, new_name("p-"), **spec)
        container = made["spec"]["containers"][0]
        if "gpus" in made["spec"]:
            container["resources"] = {"limits": {"nvidia.com/gpu": made["spec"].pop("gpus")}}
        return (await prepared.apply(made))["spec"].get("runtimeClassName")  # type: ignore[no-any-return] # JSON

    async def binds() -> bool:
        return await runtime(gpus=1) == RUNTIME

    await eventually("the API server applies the rule", binds)
    assert await runtime() is None
