"""What we do to a cluster's nodes. Each function can be repeated, and is right when the node is already gone."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from data_plane.cluster.objects import node as on_node
from data_plane.cluster.objects import node_addresses as addresses
from data_plane.cluster.objects.tenant import Tenant
from data_plane.cluster.port import Conflict, KubernetesPort, NotFound, delete_if_there
from data_plane.cluster.resource import CONFIG_MAP, NODE, SECRET, Object, Objects

ATTEMPTS_MAX = 5
"""How often a change is made anew because somebody else changed the node in between, as Kubernetes does often."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What we put on a node."""

    tenant: Tenant
    lease: str
    pool: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Those that its customer chose for the pool. They are none of ours."""
    taints: tuple[Object, ...] = ()
    """Those that its customer chose for the pool."""
    has_gpus: bool = True
    """Whether it was sold with GPUs."""


def _own(marks: Marks) -> dict[str, str]:
    return on_node.labels(marks.tenant, marks.lease, marks.pool, has_gpus=marks.has_gpus)


def _labels(node: Object, marks: Marks) -> Object:
    return {**on_node.labels_of_nobody(node), **marks.labels, **_own(marks)}


async def admit(port: KubernetesPort, name: str, marks: Marks) -> None:
    """Give a node that was checked to a tenant, in one write: from then on its pods land there, and no others.

    Before that, the cluster is told which addresses they have. Raises NotFound when there is no such node: it never
    creates one.
    """
    node = await port.get(NODE, name)
    if pods := node["spec"].get("podCIDR"):  # Without a range, its pods have no addresses.
        await port.apply(addresses.node_addresses())
        change = addresses.with_pods(name, pods)
        await port.patch(CONFIG_MAP, addresses.NAME, change, addresses.NAMESPACE)
    await _mark(port, name, marks, [])


async def _mark(port: KubernetesPort, name: str, marks: Marks, more: Objects) -> None:
    """`more`: taints of ours besides that of its tenant."""

    def change(node: Object) -> Object:
        keys = {(taint["key"], taint["effect"]) for taint in marks.taints}
        taints = on_node.taints_with(node, marks.tenant)
        others = [taint for taint in taints if (taint["key"], taint["effect"]) not in keys]
        return {
            "metadata": {"labels": _labels(node, marks)},
            "spec": {"taints": [*others, *marks.taints, *more]},
        }

    await _change(port, name, change)


def differs(node: Object, marks: Marks) -> list[str]:
    """What on an open node is not as `admit` left it, in words; nothing when all is."""
    labels = node["metadata"].get("labels", {})
    wanted = {**marks.labels, **_own(marks)}
    found = [f"label {name}" for name, value in sorted(wanted.items()) if labels.get(name) != value]
    present = [{key: taint.get(key, "") for key in ("key", "value", "effect")} for taint in _taints(node)]
    missing = [taint for taint in (on_node.tenant_taint(marks.tenant), *marks.taints) if taint not in present]
    surplus = [on_node.quarantine_taint()] if is_quarantined(node) else []
    return found + [f"taint {taint['key']}" for taint in (*missing, *surplus)]


def is_quarantined(node: Object) -> bool:
    return any(taint["key"] == on_node.quarantine_taint()["key"] for taint in _taints(node))


async def quarantine(port: KubernetesPort, name: str, marks: Marks) -> None:
    """Keep new pods off an open node, and put right what it changed about its taints and labels.

    `admit` ends it. Raises NotFound when there is no such node.
    """
    await _mark(port, name, marks, [on_node.quarantine_taint()])


def _taints(node: Object) -> Objects:
    taints: Objects = node.get("spec", {}).get("taints") or []
    return taints


async def expect_gpus(port: KubernetesPort, name: str) -> None:
    """Let the device plugin run on a node that takes no other pods yet. Raises NotFound when there is no such node."""
    await port.patch(NODE, name, {"metadata": {"labels": dict(on_node.GPU_LABEL)}})


def is_expected_to_have_gpus(node: Object) -> bool:
    labels = node["metadata"].get("labels", {})
    return all(labels.get(name) == value for name, value in on_node.GPU_LABEL.items())


async def _change(port: KubernetesPort, name: str, change: Callable[[Object], Object]) -> None:
    for _ in range(ATTEMPTS_MAX):
        node = await port.get(NODE, name)
        wanted = change(node)
        # A list of taints is replaced as a whole, so it has to be made from the current one.
        wanted["metadata"]["resourceVersion"] = node["metadata"]["resourceVersion"]
        try:
            await port.patch(NODE, name, wanted)
        except Conflict as error:
            problem = error
        else:
            return
    raise problem


async def cordon(port: KubernetesPort, name: str) -> bool:
    """No new pod lands on the node. False when the node is gone."""
    try:
        await port.patch(NODE, name, {"spec": {"unschedulable": True}})
    except NotFound:
        return False
    return True


async def forget(port: KubernetesPort, name: str, *, uid: str | None = None) -> None:
    """Delete the Node, its addresses, and its password, without which K3s refuses another machine of that name.

    With the uid, a node that joined under the name since then stays, and keeps all of them: that is a Conflict.
    """
    await delete_if_there(port, NODE, name, uid=uid)
    with suppress(NotFound):
        await port.patch(CONFIG_MAP, addresses.NAME, addresses.without(name), addresses.NAMESPACE)
    await forget_password(port, name)


async def forget_password(port: KubernetesPort, name: str) -> None:
    """K3s stores it at the first attempt to join, also when no Node comes of it."""
    await delete_if_there(port, SECRET, f"{name}.node-password.k3s", "kube-system")
