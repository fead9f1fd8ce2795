"""Rules that the API server applies to everything in tenants' namespaces, whoever asks, workload controllers and nodes
included: pods run on the nodes of their own project and nowhere else.

One policy adds to each pod what the scheduler needs: the node label of its project, and the toleration of its nodes'
taint. The other one refuses what would get around the scheduler or reach outside. The second binds also where the first
one is missing. All are evaluated inside the API server: there is no webhook that could be away.

Nodes register themselves. One that we do not expect is refused, and so is one that leaves out our taint: otherwise pods
of the system, which choose no nodes, could land on a machine that nobody has checked. A node neither chooses the range
of its pods, which could be another one's, nor holds up the deletion of its Node. It creates no pods anywhere: K3s
has no static pods, and a mirror pod with the label of the cluster's DNS would answer the queries of all tenants.

K3s gives the agents of all nodes one more certificate, that of `system:k3s-controller`. Since 1.32 it may change the
status of every Node (manifests/rolebindings.yaml), and with it the metadata: flannel writes its annotations that way
(pkg/subnet/kube/kube.go, AcquireLease). NodeRestriction does not bind it. Without a rule of ours, whoever owns one
machine could relabel the nodes of others, have them deleted, or have the API server look for kubelets elsewhere.
"""

from data_plane.cluster.objects.expected_nodes import NAME as EXPECTED_NODES
from data_plane.cluster.objects.expected_nodes import NAMESPACE as EXPECTED_NODES_NAMESPACE
from data_plane.cluster.objects.node import EFFECT, JOINING
from data_plane.cluster.objects.tenant import MANAGED_BY, MANAGER, NODE_PROJECT, PROJECT
from data_plane.cluster.resource import (
    CONFIG_MAP,
    MUTATING_ADMISSION_POLICY,
    MUTATING_ADMISSION_POLICY_BINDING,
    VALIDATING_ADMISSION_POLICY,
    VALIDATING_ADMISSION_POLICY_BINDING,
    Object,
    Objects,
    head,
)

PLACEMENT = "splitplane-placement"
PODS = "splitplane-pods"
SERVICES = "splitplane-services"
GPU_RUNTIME = "splitplane-gpu-runtime"
NODES = "splitplane-nodes"
NODE_CHANGES = "splitplane-node-changes"
NODE_PODS = "splitplane-node-pods"
NODE_NETWORK = "splitplane-node-network"
_OURS = {MANAGED_BY: MANAGER}
_TENANTS = {"matchExpressions": [{"key": PROJECT, "operator": "Exists"}]}
_PROJECT_OF_NAMESPACE = f"namespaceObject.metadata.labels['{PROJECT}']"

_SELECT = f"""has(object.spec.nodeSelector) ?
  [JSONPatch{{op: "add", path: "/spec/nodeSelector/" + jsonpatch.escapeKey("{NODE_PROJECT}"),
              value: variables.project}}] :
  [JSONPatch{{op: "add", path: "/spec/nodeSelector", value: {{"{NODE_PROJECT}": variables.project}}}}]"""

_TOLERATE = f"""has(object.spec.tolerations) ?
  [JSONPatch{{op: "add", path: "/spec/tolerations/-", value: Object.spec.tolerations{{
     key: "{PROJECT}", operator: "Equal", value: variables.project, effect: "NoSchedule"}}}}] :
  [JSONPatch{{op: "add", path: "/spec/tolerations", value: [Object.spec.tolerations{{
     key: "{PROJECT}", operator: "Equal", value: variables.project, effect: "NoSchedule"}}]}}]"""

_ASKS_FOR_GPUS = """object.spec.containers.exists(it, 'nvidia.com/gpu' in it.?resources.?limits.orValue({}))
  || object.spec.?initContainers.orValue([]).exists(it, 'nvidia.com/gpu' in it.?resources.?limits.orValue({}))"""

PRIORITY_RULE = "priority classes of the system are not for workloads"
_POD_RULES = (
    (
        f"object.spec.?nodeSelector['{NODE_PROJECT}'].orValue('') == variables.project",
        "a pod runs on the nodes of its own project",
    ),
    (
        "!has(object.spec.nodeName) || object.spec.nodeName == ''",
        "spec.nodeName is for the scheduler to set; choose nodes by nodeSelector or affinity",
    ),
    (
        "!has(object.spec.priorityClassName) || !object.spec.priorityClassName.startsWith('system-')",
        PRIORITY_RULE,
    ),
)
_SERVICE_RULES = (
    (
        "!has(object.spec.type) || object.spec.type == 'ClusterIP'",
        "a Service is of the type ClusterIP here; use kubectl port-forward from outside",
    ),
    (
        "!has(object.spec.externalIPs) || object.spec.externalIPs.size() == 0",
        "spec.externalIPs could take over addresses of others",
    ),
)


_BY_A_NODE = {"name": "by-a-node", "expression": "'system:nodes' in request.userInfo.groups"}
_NO_FINALIZERS = "a node does not hold up the deletion of its Node"
_NO_PODS = "the cluster assigns the range of a node's pods"
_REGISTRATION_RULES = (
    (
        "has(params.data) && object.metadata.name in params.data",
        "no machine is expected to join under this name",
    ),
    (
        f"object.spec.?taints.orValue([]).exists(it, it.key == '{JOINING}' && it.effect == '{EFFECT}')",
        f"a node registers with the taint {JOINING}",
    ),
    (
        "object.spec.?podCIDRs.orValue([]).size() == 0",
        _NO_PODS,
    ),
    ("object.metadata.?finalizers.orValue([]).size() == 0", _NO_FINALIZERS),
)
_CHANGE_RULES = (
    (
        "object.spec.?podCIDRs.orValue([]) == oldObject.spec.?podCIDRs.orValue([])",
        _NO_PODS,
    ),
    (
        "object.metadata.?finalizers.orValue([]).all(it, it in oldObject.metadata.?finalizers.orValue([]))",
        _NO_FINALIZERS,
    ),
)

_NODE_POD_RULES = (("false", "nodes create no pods"),)

FLANNEL = "flannel.alpha.coreos.com"
_FLANNEL_WRITES = [
    f"{FLANNEL}/{name}" for name in ("backend-data", "backend-type", "kube-subnet-manager", "public-ip")
]
"""The annotations of a Node that flannel writes, in a cluster with IPv4 alone."""
_BY_AN_AGENT = {
    "name": "by-an-agent",
    "expression": "request.userInfo.username == 'system:k3s-controller'",
}
_NETWORK_ALONE = "the certificate of all agents changes nothing of a Node but the annotations of flannel"
_ANNOTATIONS = "metadata.?annotations.orValue({})"
_SAME_ANNOTATIONS = f"""object.{_ANNOTATIONS}.all(it, it in {_FLANNEL_WRITES}
  || oldObject.metadata.?annotations[?it] == optional.of(object.metadata.annotations[it]))"""
_NO_FEWER_ANNOTATIONS = (
    f"oldObject.{_ANNOTATIONS}.all(it, it in {_FLANNEL_WRITES} || it in object.{_ANNOTATIONS})"
)
_OWN_ADDRESS = f"""!('{FLANNEL}/public-ip' in object.{_ANNOTATIONS})
  || object.status.?addresses.orValue([]).exists(it, it.type == 'InternalIP'
       && it.address == object.metadata.annotations['{FLANNEL}/public-ip'])"""
_NETWORK_RULES = (
    ("object.status == oldObject.status", _NETWORK_ALONE),
    ("object.metadata.?labels.orValue({}) == oldObject.metadata.?labels.orValue({})", _NETWORK_ALONE),
    ("object.metadata.?finalizers.orValue([]) == oldObject.metadata.?finalizers.orValue([])", _NETWORK_ALONE),
    (
        "object.metadata.?ownerReferences.orValue([]) == oldObject.metadata.?ownerReferences.orValue([])",
        _NETWORK_ALONE,
    ),
    (_SAME_ANNOTATIONS, _NETWORK_ALONE),
    (_NO_FEWER_ANNOTATIONS, _NETWORK_ALONE),
    (_OWN_ADDRESS, "packets for a node's pods go to the node's own address"),
)


def admission_policies() -> Objects:
    return [
        *_placement(),
        *_refusals(PODS, _on("pods", ["CREATE"]), _POD_RULES),
        *_refusals(SERVICES, _on("services", ["CREATE", "UPDATE"]), _SERVICE_RULES),
        *_registration(),
        *_changes(),
        *_validating(NODE_PODS, _for_nodes(_on("pods", ["CREATE"]), _NODE_POD_RULES)),
        *_network(),
    ]


def gpu_runtime_policy(runtime: str) -> Objects:
    """Gives pods that ask for GPUs the runtime with which they see them, unless they name one themselves."""
    conditions = [
        {"name": "asks-for-gpus", "expression": _ASKS_FOR_GPUS},
        {"name": "names-no-runtime", "expression": "!has(object.spec.runtimeClassName)"},
    ]
    patch = f'[JSONPatch{{op: "add", path: "/spec/runtimeClassName", value: "{runtime}"}}]'
    return _mutating(GPU_RUNTIME, [patch], {"matchConditions": conditions})


def _placement() -> Objects:
    project = {"variables": [{"name": "project", "expression": _PROJECT_OF_NAMESPACE}]}
    return _mutating(PLACEMENT, [_SELECT, _TOLERATE], project)


def _mutating(name: str, patches: list[str], more: Object) -> Objects:
    """A policy that changes pods of tenants when they are created, and its binding."""
    spec = {
        "matchConstraints": {"resourceRules": [_on("pods", ["CREATE"])], "namespaceSelector": _TENANTS},
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}} for patch in patches],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        **more,
    }
    binding = head(MUTATING_ADMISSION_POLICY_BINDING, name, labels=_OURS)
    return [
        {**head(MUTATING_ADMISSION_POLICY, name, labels=_OURS), "spec": spec},
        {**binding, "spec": {"policyName": name}},
    ]


def _refusals(name: str, what: Object, rules: tuple[tuple[str, str], ...]) -> Objects:
    spec = {
        "matchConstraints": {"resourceRules": [what], "namespaceSelector": _TENANTS},
        "variables": [{"name": "project", "expression": _PROJECT_OF_NAMESPACE}],
        "validations": [{"expression": rule, "message": message} for rule, message in rules],
        "failurePolicy": "Fail",
    }
    return _validating(name, spec)


def _registration() -> Objects:
    """With the list of expected nodes as a parameter. Without the list, nobody registers."""
    spec = {
        "paramKind": {"apiVersion": CONFIG_MAP.api_version, "kind": CONFIG_MAP.kind},
        **_for_nodes(_on("nodes", ["CREATE"]), _REGISTRATION_RULES),
    }
    policy, binding = _validating(NODES, spec)
    binding["spec"]["paramRef"] = {
        "name": EXPECTED_NODES,
        "namespace": EXPECTED_NODES_NAMESPACE,
        "parameterNotFoundAction": "Deny",
    }
    return [policy, binding]


def _changes() -> Objects:
    """Whoever changes a Node's status can change its metadata as well."""
    return _validating(NODE_CHANGES, _for_nodes(_on("nodes", ["UPDATE"], "nodes/status"), _CHANGE_RULES))


def _network() -> Objects:
    what = _on("nodes", ["UPDATE"], "nodes/status")
    return _validating(NODE_NETWORK, _for_nodes(what, _NETWORK_RULES, _BY_AN_AGENT))


def _for_nodes(what: Object, rules: tuple[tuple[str, str], ...], by: Object = _BY_A_NODE) -> Object:
    """A kubelet registers at each of its starts, and looks for its Node only if the refusal is Forbidden."""
    return {
        "matchConstraints": {"resourceRules": [what]},
        "matchConditions": [by],
        "validations": [
            {"expression": rule, "message": message, "reason": "Forbidden"} for rule, message in rules
        ],
        "failurePolicy": "Fail",
    }


def _validating(name: str, spec: Object) -> Objects:
    binding = head(VALIDATING_ADMISSION_POLICY_BINDING, name, labels=_OURS)
    return [
        {**head(VALIDATING_ADMISSION_POLICY, name, labels=_OURS), "spec": spec},
        {**binding, "spec": {"policyName": name, "validationActions": ["Deny"]}},
    ]


def _on(plural: str, operations: list[str], *more: str) -> Object:
    what = {"apiGroups": [""], "apiVersions": ["v1"], "operations": operations}
    return {**what, "resources": [plural, *more]}
