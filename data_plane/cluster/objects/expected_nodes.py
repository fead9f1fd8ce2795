"""Which Nodes may register: a ConfigMap with their names, which our admission rule reads.

K3s binds a bootstrap token to no name, and a kubelet's certificate works for a year after its node has left. Without
this list, whoever holds either could register Nodes as long as it lasts.
"""

from data_plane.cluster.objects.tenant import MANAGED_BY, MANAGER
from data_plane.cluster.resource import CONFIG_MAP, Object, head

NAME = "splitplane-expected-nodes"
NAMESPACE = "kube-system"


def expected_nodes() -> Object:
    """The list as such. Names are added to it and taken off it one by one."""
    return head(CONFIG_MAP, NAME, NAMESPACE, labels={MANAGED_BY: MANAGER})


def expecting(node: str) -> Object:
    """The change that lets a Node of this name register."""
    return {"data": {node: "expected"}}


def no_longer_expecting(node: str) -> Object:
    return {"data": {node: None}}
