"""One look at a node that is being emptied: who can go is asked to go, and who had long enough is killed.

Nothing here waits. The caller looks again until nobody is left, and says when the node's time is up.
"""

from dataclasses import dataclass

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
    refused: dict[str, str] | None = None
    """Who cannot go, and why: a disruption budget, mostly."""
    killed: tuple[str, ...] = ()
    """Deleted without grace, because the node's time is up."""
    left: tuple[str, ...] = ()
    """Of DaemonSets, of the node itself, or ended: they go with the node."""

    @property
    def is_empty(self) -> bool:
        return not (self.evicted or self.ending or self.refused or self.killed)


async def drain(port: KubernetesPort, node: str, *, grace_s: int, time_is_up: bool) -> Look:
    """A node that is gone has pods until Kubernetes notices; they are treated in the same way."""
    pods = await port.list(POD, fields={"spec.nodeName": node})
    groups = {verdict: [pod for pod in pods if draining(pod) is verdict] for verdict in Draining}
    left = tuple(pod_name(pod) for pod in groups[Draining.LEAVE])
    if time_is_up:
        return Look(killed=await _kill(port, groups[Draining.EVICT] + groups[Draining.WAIT]), left=left)
    evicted, refused = await _evict(port, groups[Draining.EVICT], grace_s)
    ending = tuple(pod_name(pod) for pod in groups[Draining.WAIT])
    return Look(evicted=evicted, ending=ending, refused=refused, left=left)


async def _evict(port: KubernetesPort, pods: Objects, grace_s: int) -> tuple[tuple[str, ...], dict[str, str]]:
    evicted, refused = [], {}
    for pod in pods:
        namespace, name, uid = _identity(pod)
        try:
            await port.evict(name, namespace, uid=uid, grace_s=grace_s)
        except (NotFound, Conflict):
            continue  # It went by itself, and what has its name now is not on this list.
        except ClusterError as error:
            refused[pod_name(pod)] = str(error)
        else:
            evicted.append(pod_name(pod))
    return tuple(evicted), refused


async def _kill(port: KubernetesPort, pods: Objects) -> tuple[str, ...]:
    for pod in pods:
        namespace, name, uid = _identity(pod)
        try:
            await port.delete(POD, name, namespace, uid=uid, grace_s=0)
        except (NotFound, Conflict):
            continue
    return tuple(pod_name(pod) for pod in pods)


def _identity(pod: Object) -> tuple[str, str, str]:
    metadata = pod["metadata"]
    return metadata["namespace"], metadata["name"], metadata["uid"]
