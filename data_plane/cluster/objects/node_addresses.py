"""Which addresses nodes and their pods have: a ConfigMap, which our admission rules read.

Whatever stands about them in the Nodes and pods themselves, their kubelets have said. Without this list, a node could
claim the address of any other node, and of any pod.
"""

from data_plane.cluster.objects.tenant import MANAGED_BY, MANAGER
from data_plane.cluster.resource import CONFIG_MAP, Object, head

NAME = "splitplane-node-addresses"
NAMESPACE = "kube-system"
PODS = ".pods"
"""What follows a node's name in the key of the range of its pods."""


def node_addresses() -> Object:
    """The list as such. Nodes are added to it and taken off it one by one."""
    return head(CONFIG_MAP, NAME, NAMESPACE, labels={MANAGED_BY: MANAGER})


def with_address(node: str, address: str) -> Object:
    """The change that lets a node have this address in the overlay, such as `10.64.16.7`."""
    return {"data": {node: address}}


def with_pods(node: str, pods: str) -> Object:
    """The change that lets a node's pods have addresses of `pods`, such as `10.48.3.0/24`."""
    return {"data": {f"{node}{PODS}": pods}}


def without(node: str) -> Object:
    return {"data": {node: None, f"{node}{PODS}": None}}
