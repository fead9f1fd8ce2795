"""What draining a node does with each of its pods."""

from enum import StrEnum

from data_plane.cluster.resource import Object


class Draining(StrEnum):
    EVICT = "evict"
    WAIT = "wait"
    """It was asked to end, and has its grace."""
    LEAVE = "leave"
    """It belongs to the node, or has ended: deleting it would achieve nothing."""


def draining(pod: Object) -> Draining:
    metadata = pod["metadata"]
    if "kubernetes.io/config.mirror" in metadata.get("annotations", {}):
        return (
            Draining.LEAVE
        )  # The kubelet runs it from a file of its own; the API server has a picture of it.
    if any(
        owner["kind"] == "DaemonSet" and owner.get("controller")
        for owner in metadata.get("ownerReferences", [])
    ):
        return Draining.LEAVE  # Its controller, which takes no notice of a cordon, would put it back at once.
    if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return Draining.LEAVE
    return Draining.WAIT if "deletionTimestamp" in metadata else Draining.EVICT


def pod_name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
