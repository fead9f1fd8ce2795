"""Rules that the API server applies to everything in tenants' namespaces, whoever asks, workload controllers and nodes
included: pods run on the nodes of their own project and nowhere else.

One policy adds to each pod what the scheduler needs: the node label of its project, and the toleration of its nodes'
taint. The other one refuses what would get around the scheduler or reach outside. The second binds also where the first
one is missing. All are evaluated inside the API server: there is no webhook that could be away.

The same is added to the template of a DaemonSet, which makes a pod for each node that its template fits before any
rule about pods applies. Without it, it would have none on the project's nodes, whose taint it does not tolerate; and
one that tolerates everything would have a pod for each node of everybody, with the node's name in it.

A pod chooses its neighbours among those of its own namespace. One that wanted none at all, of any namespace, on nodes
that share a label which all nodes have, would keep the pods of all tenants from every node.

Nodes register themselves. One that we do not expect is refused, and so is one that leaves out our taint: otherwise pods
of the system, which choose no nodes, could land on a machine that nobody has checked. A node neither chooses the range
of its pods, which could be another one's, nor holds up the deletion of its Node and of the pods on it. It creates no
pods anywhere: K3s has no static pods, and a mirror pod with the label of the cluster's DNS would answer the queries of
all tenants.

A node says itself which addresses its pods have, and all nodes enforce network policies for the addresses that are said
(kube-router, pkg/controllers/netpol). One that claimed the address of somebody else's pod for a pod of its own would
have its project's policies applied to both: they let the project in, and everybody else out, also at the cluster's DNS.

What workloads are asked for is a ConfigMap in the tenant's namespace, whose ConfigMaps the tenant may change. This one
is ours alone, so that what a program reads there is what we asked for.

It says its own address as well. K3s reaches kubelets through the tunnel of the node that has said their address last
(pkg/daemons/control/tunnel.go), and signs a server's certificate for any address. So one that claimed another node's
would be taken for its kubelet: it would see what is typed into `kubectl exec` there, and answer it. K3s also copies the
host name of each node into the cluster's DNS (pkg/node/controller.go), which answers all tenants with it, line breaks
and further names included. What a machine calls itself (pkg/agent/run.go, getHostname) mostly has no dots, and a name
without dots is no name of anything else but another node. One that has them is left out: K3s tries to write it, and
says so in its log.

K3s gives the agents of all nodes one more certificate, that of `system:k3s-controller`. Since 1.32 it may change the
status of every Node (manifests/rolebindings.yaml), and with it the metadata: flannel writes its annotations that way
(pkg/subnet/kube/kube.go, AcquireLease). NodeRestriction does not bind it. Without a rule of ours, whoever owns one
machine could relabel the nodes of others, have them deleted, or have the API server look for kubelets elsewhere.
"""

from data_plane.cluster.objects.expected_nodes import NAME as EXPECTED_NODES
from data_plane.cluster.objects.expected_nodes import NAMESPACE as EXPECTED_NODES_NAMESPACE
from data_plane.cluster.objects.node import EFFECT, JOINING
from data_plane.cluster.objects.node_addresses import NAME as ADDRESSES
from data_plane.cluster.objects.node_addresses import NAMESPACE as ADDRESSES_NAMESPACE
from data_plane.cluster.objects.node_addresses import PODS as PODS_OF_NODE
from data_plane.cluster.objects.signal import NAME as SIGNAL
from data_plane.cluster.objects.tenant import (
    KUBECONFIGS_NAMESPACE,
    MANAGED_BY,
    MANAGER,
    NODE_PROJECT,
    PROJECT,
)
from data_plane.cluster.resource import (
    CONFIG_MAP,
    DAEMON_SET,
    MUTATING_ADMISSION_POLICY,
    MUTATING_ADMISSION_POLICY_BINDING,
    VALIDATING_ADMISSION_POLICY,
    VALIDATING_ADMISSION_POLICY_BINDING,
    Object,
    Objects,
    head,
)

PLACEMENT = "splitplane-placement"
DAEMON_SETS = "splitplane-daemon-sets"
PODS = "splitplane-pods"
SERVICES = "splitplane-services"
GPU_RUNTIME = "splitplane-gpu-runtime"
NODES = "splitplane-nodes"
NODE_CHANGES = "splitplane-node-changes"
NODE_PODS = "splitplane-node-pods"
NODE_POD_CHANGES = "splitplane-node-pod-changes"
POD_ADDRESSES = "splitplane-pod-addresses"
NODE_ADDRESSES = "splitplane-node-addresses"
NODE_NETWORK = "splitplane-node-network"
SIGNALS = "splitplane-signals"
_OURS = {MANAGED_BY: MANAGER}
_TENANTS = {"matchExpressions": [{"key": PROJECT, "operator": "Exists"}]}
_PROJECT_OF_NAMESPACE = f"namespaceObject.metadata.labels['{PROJECT}']"


def _placed(spec: str) -> list[str]:
    """What adds the node label and the toleration of a project to the pod that is at `spec` in the object, such as
    `spec`. Nothing is added twice.
    """
    at, path = f"object.{spec}", "/" + spec.replace(".", "/")
    # A map: the API server panics at a list of objects (apiserver 0.36, mutating/patch/json_patch.go).
    toleration = (
        f"""{{"key": "{PROJECT}", "operator": "Equal", "value": variables.project, "effect": "{EFFECT}"}}"""
    )
    select = f"""has({at}.nodeSelector) ?
  [JSONPatch{{op: "add", path: "{path}/nodeSelector/" + jsonpatch.escapeKey("{NODE_PROJECT}"),
              value: variables.project}}] :
  [JSONPatch{{op: "add", path: "{path}/nodeSelector", value: {{"{NODE_PROJECT}": variables.project}}}}]"""
    tolerate = f"""{at}.?tolerations.orValue([]).exists(it, it.?key.orValue("") == "{PROJECT}"
    && it.?value.orValue("") == variables.project && it.?effect.orValue("") == "{EFFECT}") ? [] :
  has({at}.tolerations) ? [JSONPatch{{op: "add", path: "{path}/tolerations/-", value: {toleration}}}] :
  [JSONPatch{{op: "add", path: "{path}/tolerations", value: [{toleration}]}}]"""
    return [select, tolerate]


_ASKS_FOR_GPUS = """object.spec.containers.exists(it, 'nvidia.com/gpu' in it.?resources.?limits.orValue({}))
  || object.spec.?initContainers.orValue([]).exists(it, 'nvidia.com/gpu' in it.?resources.?limits.orValue({}))"""

_NEIGHBOURS_OF_ITS_OWN = " && ".join(
    f"""object.spec.?affinity.?{kind}.?{how}DuringSchedulingIgnoredDuringExecution.orValue([]).all(it,
  !has({term}.namespaceSelector) && {term}.?namespaces.orValue([]).all(name, name == request.namespace))"""
    for kind in ("podAffinity", "podAntiAffinity")
    for how, term in (("required", "it"), ("preferred", "it.podAffinityTerm"))
)

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
    (
        _NEIGHBOURS_OF_ITS_OWN,
        "pods of other namespaces are no neighbours; leave namespaces and namespaceSelector out of affinities",
    ),
)
_DAEMON_SET_RULES = (
    (
        f"object.spec.template.spec.?nodeSelector['{NODE_PROJECT}'].orValue('') == variables.project",
        "the pods of a DaemonSet run on the nodes of its own project",
    ),
)
SERVICE_PORTS_MAX = 20
"""Each port of each Service is rules on the nodes of everybody."""
_SERVICE_RULES = (
    (
        "!has(object.spec.type) || object.spec.type == 'ClusterIP'",
        "a Service is of the type ClusterIP here; use kubectl port-forward from outside",
    ),
    (
        "!has(object.spec.externalIPs) || object.spec.externalIPs.size() == 0",
        "spec.externalIPs could take over addresses of others",
    ),
    (
        f"object.spec.?ports.orValue([]).size() <= {SERVICE_PORTS_MAX}",
        f"a Service has up to {SERVICE_PORTS_MAX} ports here, as each is a rule on every node",
    ),
)

_THE_SIGNAL = {
    "name": "the-signal",
    "expression": f"(request.operation == 'DELETE' ? oldObject : object).metadata.name == '{SIGNAL}'",
}
_NOT_BY_US = {"name": "not-by-us", "expression": "!('system:masters' in request.userInfo.groups)"}
_SIGNAL_RULES = (
    (
        # Kubernetes itself deletes it with its namespace.
        f"""request.operation == 'DELETE'
  && !('system:serviceaccounts:{KUBECONFIGS_NAMESPACE}' in request.userInfo.groups)""",
        "this ConfigMap says what we ask workloads for; read it, and take another name for one of your own",
    ),
)

_BY_A_NODE = {"name": "by-a-node", "expression": "'system:nodes' in request.userInfo.groups"}
_NO_FINALIZERS = "a node does not hold up the deletion of its Node"
_NO_MORE_FINALIZERS = (
    "object.metadata.?finalizers.orValue([]).all(it, it in oldObject.metadata.?finalizers.orValue([]))"
)
MARKS_MAX = 500
"""How many labels and how many annotations a Node may have by its own doing. Rules that compare them take time that
grows with the square: with 20,000 annotations, the API server computed for five seconds at a single request."""
_FEW_MARKS = (
    " && ".join(
        f"object.metadata.?{marks}.orValue({{}}).size() <= {MARKS_MAX}" for marks in ("labels", "annotations")
    ),
    f"a Node has up to {MARKS_MAX} labels and {MARKS_MAX} annotations",
)
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
    _FEW_MARKS,
)
_CHANGE_RULES = (
    (
        "object.spec.?podCIDRs.orValue([]) == oldObject.spec.?podCIDRs.orValue([])",
        _NO_PODS,
    ),
    (_NO_MORE_FINALIZERS, _NO_FINALIZERS),
    _FEW_MARKS,
)

_NODE_POD_RULES = (("false", "nodes create no pods"),)
_NODE_POD_CHANGE_RULES = ((_NO_MORE_FINALIZERS, "a node does not hold up the deletion of its pods"),)
_POD_ADDRESS_RULES = (
    (
        f"""object.status.?podIPs.orValue([]).all(it, has(params.data)
  && (object.spec.nodeName + '{PODS_OF_NODE}') in params.data
  && cidr(params.data[object.spec.nodeName + '{PODS_OF_NODE}']).containsIP(it.ip))""",
        "the pods of a node have addresses of its own range",
    ),
)

ADDRESSES_MAX = 16
"""Of a Node: each is looked for among those of all nodes."""


def _node_address_rules(server_name: str) -> tuple[tuple[str, str], ...]:
    rule = f"""!has(params.data) || !(object.metadata.name in params.data)
  || object.status.?addresses.orValue([]).size() <= {ADDRESSES_MAX}
  && object.status.?addresses.orValue([]).all(it, it.type == 'Hostname'
       ? it.address == object.metadata.name || it.address != '{server_name}' && !(it.address in params.data)
           && it.address.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')
       : it.address == params.data[object.metadata.name])"""
    return (
        (
            rule,
            "a node has its own address in the overlay, and a host name without dots that is no other node's name",
        ),
    )


FLANNEL = "flannel.alpha.coreos.com"
_FLANNEL_WRITES = {
    f"{FLANNEL}/backend-data": r'\{"VNI":1,"VtepMAC":"[0-9a-f][26ae](:[0-9a-f]{2}){5}"\}',
    f"{FLANNEL}/backend-type": "vxlan",
    f"{FLANNEL}/kube-subnet-manager": "true",
    f"{FLANNEL}/public-ip": "[0-9.]+",
}
"""The annotations of a Node that flannel writes, in a cluster with IPv4 alone, and what it writes.

It writes `backend-v6-data` and `public-ipv6` only where the cluster's range of pods has IPv6, which ours has not
(pkg/backend/vxlan/vxlan.go, newSubnetAttrs).

At its next start flannel takes the MAC of its device from there (GetStoredMacAddresses). The kernel refuses a device
with one that is not a single device's, and K3s ends when flannel does: the server's, too. Those that flannel makes are
local ones (pkg/mac/mac.go), so their second digit is 2, 6, a or e."""
_BY_AN_AGENT = {
    "name": "by-an-agent",
    "expression": "request.userInfo.username == 'system:k3s-controller'",
}
_NETWORK_ALONE = "the certificate of all agents changes nothing of a Node but the annotations of flannel"
_ANNOTATIONS = "metadata.?annotations.orValue({})"
_SAME_ANNOTATIONS = f"""object.{_ANNOTATIONS}.all(it, it in {list(_FLANNEL_WRITES)}
  || oldObject.metadata.?annotations[?it] == optional.of(object.metadata.annotations[it]))"""
_NO_FEWER_ANNOTATIONS = f"oldObject.{_ANNOTATIONS}.all(it, it in object.{_ANNOTATIONS})"
_AS_FLANNEL_WRITES = " && ".join(
    f"(!('{name}' in object.{_ANNOTATIONS}) || object.metadata.annotations['{name}'].matches(r'^{pattern}$'))"
    for name, pattern in _FLANNEL_WRITES.items()
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
    (_AS_FLANNEL_WRITES, "this is not what flannel writes there"),
    (_OWN_ADDRESS, "packets for a node's pods go to the node's own address"),
)


def admission_policies(server_name: str) -> Objects:
    """`server_name` is that of the Node of the cluster's server."""
    return [
        *_placement(),
        *_refusals(PODS, _on("pods", ["CREATE"]), _POD_RULES),
        *_refusals(DAEMON_SETS, _daemon_sets(), _DAEMON_SET_RULES),
        *_refusals(SERVICES, _on("services", ["CREATE", "UPDATE"]), _SERVICE_RULES),
        *_registration(),
        *_changes(),
        *_validating(NODE_PODS, _for_nodes(_on("pods", ["CREATE"]), _NODE_POD_RULES)),
        *_validating(NODE_POD_CHANGES, _for_nodes(_on("pods/status", ["UPDATE"]), _NODE_POD_CHANGE_RULES)),
        *_addresses_of_pods(),
        *_addresses_of_nodes(server_name),
        *_network(),
        *_signals(),
    ]


def gpu_runtime_policy(runtime: str) -> Objects:
    """Gives pods that ask for GPUs the runtime with which they see them, unless they name one themselves."""
    conditions = [
        {"name": "asks-for-gpus", "expression": _ASKS_FOR_GPUS},
        {"name": "names-no-runtime", "expression": "!has(object.spec.runtimeClassName)"},
    ]
    patch = f'[JSONPatch{{op: "add", path: "/spec/runtimeClassName", value: "{runtime}"}}]'
    return _mutating(GPU_RUNTIME, _on("pods", ["CREATE"]), [patch], {"matchConditions": conditions})


def _placement() -> Objects:
    project = {"variables": [{"name": "project", "expression": _PROJECT_OF_NAMESPACE}]}
    return [
        *_mutating(PLACEMENT, _on("pods", ["CREATE"]), _placed("spec"), project),
        *_mutating(DAEMON_SETS, _daemon_sets(), _placed("spec.template.spec"), project),
    ]


def _mutating(name: str, what: Object, patches: list[str], more: Object) -> Objects:
    """A policy that changes objects of tenants when they are created or changed, and its binding."""
    spec = {
        "matchConstraints": {"resourceRules": [what], "namespaceSelector": _TENANTS},
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
    spec = _for_nodes(_on("nodes", ["CREATE"]), _REGISTRATION_RULES)
    return _with_list(NODES, spec, EXPECTED_NODES, EXPECTED_NODES_NAMESPACE)


def _addresses_of_pods() -> Objects:
    """Without the list of addresses, no kubelet says anything about tenants' pods."""
    spec = _for_nodes(_on("pods/status", ["UPDATE"]), _POD_ADDRESS_RULES)
    spec["matchConstraints"]["namespaceSelector"] = _TENANTS
    return _with_list(POD_ADDRESSES, spec, ADDRESSES, ADDRESSES_NAMESPACE)


def _addresses_of_nodes(server_name: str) -> Objects:
    """Whoever writes them, as K3s itself copies what a kubelet has written elsewhere into its Node. Nodes that are not
    on the list are those of servers, which are ours; without a list, all are taken for such.
    """
    spec = {
        "matchConstraints": {"resourceRules": [_on("nodes", ["CREATE"]), _on("nodes/status", ["UPDATE"])]},
        "validations": _forbidding(_node_address_rules(server_name)),
        "failurePolicy": "Fail",
    }
    return _with_list(NODE_ADDRESSES, spec, ADDRESSES, ADDRESSES_NAMESPACE, when_missing="Allow")


def _with_list(
    name: str, spec: Object, config_map: str, namespace: str, *, when_missing: str = "Deny"
) -> Objects:
    """A policy that reads a ConfigMap. `when_missing`: what it does with every request where there is none."""
    kind = {"apiVersion": CONFIG_MAP.api_version, "kind": CONFIG_MAP.kind}
    policy, binding = _validating(name, {"paramKind": kind, **spec})
    binding["spec"]["paramRef"] = {
        "name": config_map,
        "namespace": namespace,
        "parameterNotFoundAction": when_missing,
    }
    return [policy, binding]


def _changes() -> Objects:
    """Whoever changes a Node's status can change its metadata as well."""
    return _validating(NODE_CHANGES, _for_nodes(_on("nodes", ["UPDATE"], "nodes/status"), _CHANGE_RULES))


def _network() -> Objects:
    what = _on("nodes", ["UPDATE"], "nodes/status")
    return _validating(NODE_NETWORK, _for_nodes(what, _NETWORK_RULES, _BY_AN_AGENT))


def _signals() -> Objects:
    spec = {
        "matchConstraints": {
            "resourceRules": [_on("configmaps", ["CREATE", "UPDATE", "DELETE"])],
            "namespaceSelector": _TENANTS,
        },
        "matchConditions": [_THE_SIGNAL, _NOT_BY_US],
        "validations": _forbidding(_SIGNAL_RULES),
        "failurePolicy": "Fail",
    }
    return _validating(SIGNALS, spec)


def _for_nodes(what: Object, rules: tuple[tuple[str, str], ...], by: Object = _BY_A_NODE) -> Object:
    """A kubelet registers at each of its starts, and looks for its Node only if the refusal is Forbidden."""
    return {
        "matchConstraints": {"resourceRules": [what]},
        "matchConditions": [by],
        "validations": _forbidding(rules),
        "failurePolicy": "Fail",
    }


def _forbidding(rules: tuple[tuple[str, str], ...]) -> Objects:
    return [{"expression": rule, "message": message, "reason": "Forbidden"} for rule, message in rules]


def _validating(name: str, spec: Object) -> Objects:
    binding = head(VALIDATING_ADMISSION_POLICY_BINDING, name, labels=_OURS)
    return [
        {**head(VALIDATING_ADMISSION_POLICY, name, labels=_OURS), "spec": spec},
        {**binding, "spec": {"policyName": name, "validationActions": ["Deny"]}},
    ]


def _on(plural: str, operations: list[str], *more: str, group: str = "") -> Object:
    what = {"apiGroups": [group], "apiVersions": ["v1"], "operations": operations}
    return {**what, "resources": [plural, *more]}


def _daemon_sets() -> Object:
    return _on("daemonsets", ["CREATE", "UPDATE"], group=DAEMON_SET.group)
