"""Which addresses the pods of each open node have: a ConfigMap, which our admission rule reads.

The range stands in the node's Node as well, but a rule about pods reads no Node. Without this list, a node could claim
any address for a pod of its own.
"""

from data_plane.cluster.objects.tenant import MANAGED_BY, MANAGER
from data_plane.cluster.resource import CONFIG_MAP, Object, head

NAME = "splitplane-pod-ranges"
NAMESPACE = "kube-system"


def pod_ranges() -> Object:
    """The list as such. Ranges are added to it and taken off it one by one."""
    return head(CONFIG_MAP, NAME, NAMESPACE, labels={MANAGED_BY: MANAGER})


def with_range(node: str, pods: str) -> Object:
    """The change that lets a node's pods have addresses of `pods`, such as `10.48.3.0/24`."""
    return {"data": {node: pods}}


def without_range(node: str) -> Object:
    return {"data": {node: None}}
