"""One look at a node that is being emptied: who can go is asked to go, and who had long enough is killed.

Nothing here waits. The caller looks again until nobody is left, and says when the node's time is up.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from data_plane.cluster.objects.pod import Draining, draining, pod_name
from data_plane.cluster.port import ClusterError, Conflict, KubernetesPort, NotFound
from data_plane.cluster.resource import POD, Object, Objects


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found and did. Pods are `NAMESPACE/NAME`."""

    evicted: tuple[str, ...] = ()
    """Asked to end just now, with their grace."""
    ending: tuple[str, ...] = ()
    """Asked before, and still there."""
    refused: dict[str, str] = field(default_factory=dict)
    """Who cannot go, and why: a disruption budget, mostly."""
    killed: tuple[str, ...] = ()
    """Deleted without grace, because the node's time is up."""
    left: tuple[str, ...] = ()
    """Of DaemonSets, of the node itself, or ended: they go with the node."""

    @property
    def is_empty(self) -> bool:
        return not (self.evicted or self.ending or self.refused or self.killed)


async def drain(port: KubernetesPort, node: str, *, time_is_up: bool) -> Look:
    """Have the pods of a node end, each with the grace that it has itself; without any once `time_is_up`.

    A node that is gone has pods until Kubernetes notices; they are treated in the same way.
    """
    pods = await port.list(POD, fields={"spec.nodeName": node})
    groups = {verdict: [pod for pod in pods if draining(pod) is verdict] for verdict in Draining}
    left = tuple(pod_name(pod) for pod in groups[Draining.LEAVE])
    asked, refused = await (
        _each(groups[Draining.EVICT] + groups[Draining.WAIT], lambda pod: _kill(port, pod))
        if time_is_up
        else _each(groups[Draining.EVICT], lambda pod: _evict(port, pod))
    )
    if time_is_up:
        return Look(killed=asked, refused=refused, left=left)
    ending = tuple(pod_name(pod) for pod in groups[Draining.WAIT])
    return Look(evicted=asked, ending=ending, refused=refused, left=left)


async def _each(
    pods: Objects, end: Callable[[Object], Awaitable[None]]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Who was asked to end, and who cannot end and why. One pod that cannot holds up no other one."""
    asked, refused = [], {}
    for pod in pods:
        try:
            await end(pod)
        except (NotFound, Conflict):
            continue  # It went by itself, and what has its name now is not on this list.
        except ClusterError as error:
            refused[pod_name(pod)] = str(error)
        else:
            asked.append(pod_name(pod))
    return tuple(asked), refused


async def _evict(port: KubernetesPort, pod: Object) -> None:
    namespace, name, uid = _identity(pod)
    await port.evict(name, namespace, uid=uid)


async def _kill(port: KubernetesPort, pod: Object) -> None:
    namespace, name, uid = _identity(pod)
    await port.delete(POD, name, namespace, uid=uid, grace_s=0)


def _identity(pod: Object) -> tuple[str, str, str]:
    metadata = pod["metadata"]
    return metadata["namespace"], metadata["name"], metadata["uid"]
