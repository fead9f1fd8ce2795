"""The kinds of objects that we touch in a cluster, by the names that Kubernetes has for them.

They are a closed list, so that nothing here asks a cluster which kinds it has: that question fails, or takes long,
while one aggregated API of the cluster is away.
"""

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object as JSON has it."""
Objects = list[Object]


@dataclass(frozen=True, slots=True)
class Resource:
    group: str
    """Empty for the core group."""
    version: str
    kind: str
    plural: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def _core(kind: str, plural: str, *, namespaced: bool = True) -> Resource:
    return Resource("", "v1", kind, plural, namespaced)


def _rbac(kind: str, plural: str, *, namespaced: bool) -> Resource:
    return Resource("rbac.authorization.k8s.io", "v1", kind, plural, namespaced)


def _admission(kind: str, plural: str) -> Resource:
    return Resource("admissionregistration.k8s.io", "v1", kind, plural, namespaced=False)


CUSTOM_RESOURCE_DEFINITION = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
NODE_POOL = Resource("splitplane.io", "v1alpha1", "NodePool", "nodepools", namespaced=True)
SCALING_POLICY = Resource("splitplane.io", "v1alpha1", "ScalingPolicy", "scalingpolicies", namespaced=True)
NAMESPACE = _core("Namespace", "namespaces", namespaced=False)
NODE = _core("Node", "nodes", namespaced=False)
POD = _core("Pod", "pods")
SECRET = _core("Secret", "secrets")
CONFIG_MAP = _core("ConfigMap", "configmaps")
SERVICE = _core("Service", "services")
SERVICE_ACCOUNT = _core("ServiceAccount", "serviceaccounts")
RESOURCE_QUOTA = _core("ResourceQuota", "resourcequotas")
LIMIT_RANGE = _core("LimitRange", "limitranges")
DAEMON_SET = Resource("apps", "v1", "DaemonSet", "daemonsets", namespaced=True)
RUNTIME_CLASS = Resource("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", namespaced=False)
NETWORK_POLICY = Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", namespaced=True)
ROLE_BINDING = _rbac("RoleBinding", "rolebindings", namespaced=True)
CLUSTER_ROLE = _rbac("ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING = _rbac("ClusterRoleBinding", "clusterrolebindings", namespaced=False)
MUTATING_ADMISSION_POLICY = _admission("MutatingAdmissionPolicy", "mutatingadmissionpolicies")
MUTATING_ADMISSION_POLICY_BINDING = _admission(
    "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"
)
VALIDATING_ADMISSION_POLICY = _admission("ValidatingAdmissionPolicy", "validatingadmissionpolicies")
VALIDATING_ADMISSION_POLICY_BINDING = _admission(
    "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"
)

RESOURCES = (
    NAMESPACE,
    NODE,
    POD,
    SECRET,
    CONFIG_MAP,
    SERVICE,
    SERVICE_ACCOUNT,
    RESOURCE_QUOTA,
    LIMIT_RANGE,
    DAEMON_SET,
    RUNTIME_CLASS,
    NETWORK_POLICY,
    ROLE_BINDING,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    MUTATING_ADMISSION_POLICY,
    MUTATING_ADMISSION_POLICY_BINDING,
    VALIDATING_ADMISSION_POLICY,
    VALIDATING_ADMISSION_POLICY_BINDING,
    CUSTOM_RESOURCE_DEFINITION,
    NODE_POOL,
    SCALING_POLICY,
)
_BY_NAME = {(resource.api_version, resource.kind): resource for resource in RESOURCES}


def resource_of(thing: Object) -> Resource:
    """The resource of an object. Raises KeyError for a kind that is not in the list."""
    return _BY_NAME[thing["apiVersion"], thing["kind"]]


def head(resource: Resource, name: str, namespace: str | None = None, **metadata: object) -> Object:
    """An object with nothing but its kind, its name and its metadata."""
    if resource.namespaced != (namespace is not None):
        raise ValueError(
            f"{resource.kind} {name}: a namespace is {'needed' if namespace is None else 'too much'}"
        )
    place = {"namespace": namespace} if namespace is not None else {}
    given = {key: value for key, value in metadata.items() if value}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, **place, **given},
    }
