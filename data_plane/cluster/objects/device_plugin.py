"""NVIDIA's device plugin: what makes `nvidia.com/gpu` allocatable on nodes that were sold with GPUs.

It runs as a DaemonSet with the RuntimeClass `nvidia`. Where a machine has `nvidia-container-runtime` when K3s starts,
pods of that class get the driver and its devices (https://docs.k3s.io/advanced, "Alternative Container Runtime
Support"). K3s has the RuntimeClass by itself; applying it again makes sure of it. The DaemonSet follows NVIDIA's own
(https://github.com/NVIDIA/k8s-device-plugin, deployments/static), with two differences: it tolerates every taint,
because nodes have that of their project and those that customers chose, and it has no token of a ServiceAccount,
because machines of tenants are no place for one. It chooses nodes by a label that no node can set.

A plugin that runs is never replaced: its node would have no GPUs until the next one has registered, and none at all
where the node lacks the new image.
"""

import re
from dataclasses import dataclass

from data_plane.cluster.objects.admission import gpu_runtime_policy
from data_plane.cluster.objects.node import GPU_LABEL
from data_plane.cluster.objects.tenant import MANAGED_BY, MANAGER
from data_plane.cluster.resource import DAEMON_SET, RUNTIME_CLASS, Object, Objects, head

NAME, NAMESPACE = "splitplane-device-plugin", "kube-system"
RUNTIME = "nvidia"
_OURS = {MANAGED_BY: MANAGER}
_SOCKETS = "/var/lib/kubelet/device-plugins"
"""Where a kubelet looks for device plugins, and has its own socket."""
_IMAGE = re.compile(r"[a-z0-9][a-z0-9.-]*(?::[0-9]+)?(?:/[a-z0-9._-]+)+@sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class DevicePlugin:
    image: str
    """`HOST/NAME@sha256:...`. A tag could be another image tomorrow."""
    is_at_hand: bool
    """Whether nodes have the image before they join, and never fetch it."""

    def __post_init__(self) -> None:
        if not _IMAGE.fullmatch(self.image):
            raise ValueError(f"{self.image[:200]!r} is no image with a digest, such as HOST/NAME@sha256:...")


def device_plugin_objects(plugin: DevicePlugin) -> Objects:
    runtime = {**head(RUNTIME_CLASS, RUNTIME, labels=_OURS), "handler": RUNTIME}
    return [runtime, *gpu_runtime_policy(RUNTIME), _daemon_set(plugin)]


def _daemon_set(plugin: DevicePlugin) -> Object:
    pods = {"app.kubernetes.io/name": NAME}
    spec = {
        "selector": {"matchLabels": pods},
        "updateStrategy": {"type": "OnDelete"},
        "template": {"metadata": {"labels": pods}, "spec": _pod(plugin)},
    }
    return {**head(DAEMON_SET, NAME, NAMESPACE, labels=_OURS), "spec": spec}


def _pod(plugin: DevicePlugin) -> Object:
    container = {
        "name": "device-plugin",
        "image": plugin.image,
        "imagePullPolicy": "Never" if plugin.is_at_hand else "IfNotPresent",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "sockets", "mountPath": _SOCKETS}],
    }
    return {
        "automountServiceAccountToken": False,
        "containers": [container],
        "nodeSelector": dict(GPU_LABEL),
        "priorityClassName": "system-node-critical",
        "runtimeClassName": RUNTIME,
        "tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": "sockets", "hostPath": {"path": _SOCKETS, "type": "Directory"}}],
    }
