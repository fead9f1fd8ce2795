"""A tenant of a cluster: one project, which gets one namespace. Names and labels that everything else refers to.

Labels below `node-restriction.kubernetes.io/` cannot be set by a node on itself, nor taken away (the admission plugin
NodeRestriction). Every other label of a Node is what the node says about itself, so nothing here selects by one.
"""

import re
from dataclasses import dataclass

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "splitplane"
OWN_PREFIX = "splitplane.io"
ORGANIZATION = f"{OWN_PREFIX}/organization"
PROJECT = f"{OWN_PREFIX}/project"
INTERNET = f"{OWN_PREFIX}/internet"
"""A pod with this label, of value `true`, reaches the internet."""
NODE_PREFIX = "node-restriction.kubernetes.io"
NODE_ORGANIZATION = f"{NODE_PREFIX}/organization"
NODE_PROJECT = f"{NODE_PREFIX}/project"
NODE_LEASE = f"{NODE_PREFIX}/lease"
NODE_POOL = f"{NODE_PREFIX}/pool"
NODE_GPU = f"{NODE_PREFIX}/gpu"
"""Whose GPUs a node was sold with; nodes without GPUs do not have it."""
KUBECONFIGS_NAMESPACE = "splitplane-kubeconfigs"
"""Where the ServiceAccounts behind kubeconfigs are. No tenant has a right there: in a namespace of its own, a tenant
could mount such an account's token into a pod or have a Secret filled with one, and so outlive its own expiry."""
_ID = re.compile(r"[a-z]+_[0-9a-z]{1,50}")


@dataclass(frozen=True, slots=True)
class Tenant:
    organization: str
    """Its id as on the wire: `org_...`."""
    project: str
    """`prj_...`"""

    def __post_init__(self) -> None:
        checked(self.organization)
        checked(self.project)

    @property
    def namespace(self) -> str:
        return name_of(self.project)

    @property
    def labels(self) -> dict[str, str]:
        return {MANAGED_BY: MANAGER, ORGANIZATION: self.organization, PROJECT: self.project}


def checked(identifier: str) -> str:
    """Raises ValueError for what is no id. An id is a valid value of a label."""
    if not _ID.fullmatch(identifier):
        raise ValueError(f"{identifier!r} is no id")
    return identifier


def name_of(identifier: str) -> str:
    """An id as a name in Kubernetes, where `_` is not allowed."""
    return checked(identifier).replace("_", "-")
