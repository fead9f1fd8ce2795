"""What is rendered for a cluster, read without one. That a real API server enforces it is tested against a real one."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from data_plane.cluster.objects import node, role
from data_plane.cluster.objects.admission import admission_policies
from data_plane.cluster.objects.bootstrap_token import LIFE_MAX, BootstrapToken, bootstrap_secret
from data_plane.cluster.objects.device_plugin import DevicePlugin, device_plugin_objects
from data_plane.cluster.objects.expected_nodes import expected_nodes
from data_plane.cluster.objects.kubeconfig import kubeconfig
from data_plane.cluster.objects.namespace import deletion_problem, kubeconfigs_namespace, tenant_namespace
from data_plane.cluster.objects.network_policy import network_policies
from data_plane.cluster.objects.node_addresses import node_addresses
from data_plane.cluster.objects.probe import probe
from data_plane.cluster.objects.resource_quota import (
    OBJECTS_MAX_WITHOUT_NODES,
    Allowance,
    limit_range,
    resource_quota,
)
from data_plane.cluster.objects.signal import NodeSignal, signal_map
from data_plane.cluster.objects.tenant import KUBECONFIGS_NAMESPACE, NODE_PREFIX, Tenant
from data_plane.cluster.port import Token
from data_plane.cluster.resource import NODE, POD, Object, head, resource_of

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
TENANT = Tenant("org_019aa0000000700080000000000000a1", "prj_019aa0000000700080000000000000b1")
OTHER = Tenant("org_019aa0000000700080000000000000a2", "prj_019aa0000000700080000000000000b2")
ALLOWANCE = Allowance(nodes=2, gpus=16, cpu_millis=192_000, memory_bytes=2**41)
TOKEN = BootstrapToken("abcdef", "0123456789abcdef")


def _everything(tenant: Tenant) -> list[Object]:
    return [
        tenant_namespace(tenant),
        *network_policies(tenant),
        resource_quota(tenant, ALLOWANCE),
        limit_range(tenant),
        signal_map(tenant, [NodeSignal("node-1", "smaller_batch", "memory_pressure", 1_764_343_200, None)]),
        role.service_account(tenant, "kc_1"),
        *role.bindings(tenant, "kc_1", work_role=role.EDIT_ROLE, nodes_role=role.own_nodes_role_name(tenant)),
        role.own_nodes_role(tenant, ["a"]),
        probe(tenant, "probe-1"),
    ]


def _shared() -> list[Object]:
    return [
        kubeconfigs_namespace(),
        expected_nodes(),
        node_addresses(),
        role.view_role(),
        role.edit_role(),
        role.all_nodes_role(),
        *admission_policies("cl-1"),
        *device_plugin_objects(DevicePlugin("registry.invalid/plugin@sha256:" + "0" * 64, is_at_hand=True)),
    ]


def test_every_object_is_of_a_kind_that_the_port_knows_and_marked_as_ours() -> None:
    for thing in [*_everything(TENANT), *_shared()]:
        assert resource_of(thing)
        assert thing["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "splitplane"


_CHOICES = ("nodeSelector", "nodeAffinity", "topologySpreadConstraints", "topologyKey")
"""Fields by which a pod chooses nodes, or groups of nodes, by their labels."""


def _choices(thing: object) -> Iterator[str]:
    """What each such field of an object says, and each expression that sets one."""
    if isinstance(thing, str):
        if any(field in thing for field in _CHOICES):
            yield thing
    elif isinstance(thing, list):
        for each in thing:
            yield from _choices(each)
    elif isinstance(thing, dict):
        for field, value in thing.items():
            if field in _CHOICES:
                yield json.dumps(value)
            else:
                yield from _choices(value)


def test_nodes_are_chosen_by_labels_that_no_node_can_set() -> None:
    """A kubelet may set labels below kubernetes.io on its own Node, such as its zone: NodeRestriction leaves it these."""
    found = [choice for thing in [*_everything(TENANT), *_shared()] for choice in _choices(thing)]
    assert len(found) >= 3, (
        "of the device plugin, of the rule that places pods and of the one that checks them"
    )
    for choice in found:
        names = re.findall(r"[a-z0-9.-]+\.[a-z]+/[\w./-]+", choice)
        assert all(name.startswith(f"{NODE_PREFIX}/") for name in names), choice
        assert names or "spec.nodeName" in choice, choice


def test_a_device_plugin_that_runs_is_not_replaced_when_its_image_changes() -> None:
    (found,) = (
        thing["spec"]
        for thing in device_plugin_objects(
            DevicePlugin(f"registry.invalid/x@sha256:{'0' * 64}", is_at_hand=True)
        )
        if thing["kind"] == "DaemonSet"
    )
    assert found["updateStrategy"] == {"type": "OnDelete"}, "its node would lose its GPUs"


def test_objects_of_one_tenant_say_nothing_of_another_one() -> None:
    for mine, theirs in zip(_everything(TENANT), _everything(OTHER), strict=True):
        assert OTHER.project not in json.dumps(mine)
        assert OTHER.namespace not in json.dumps(mine)
        assert mine != theirs


def test_what_is_no_id_names_nothing_in_a_cluster() -> None:
    for bad in ("", "prj", "prj_", "PRJ_1", "prj_1/x", "prj_" + "a" * 51, "prj_1\n", "prj_a_b"):
        with pytest.raises(ValueError, match="is no id"):
            Tenant("org_1", bad)
        with pytest.raises(ValueError, match="is no id"):
            role.service_account(TENANT, bad)


def test_an_object_has_a_namespace_exactly_if_its_kind_has_one() -> None:
    with pytest.raises(ValueError, match="needed"):
        head(POD, "p")
    with pytest.raises(ValueError, match="too much"):
        head(NODE, "n", "ns")


def test_no_rule_of_a_tenant_reaches_beyond_workloads() -> None:
    rules = role.edit_role()["rules"]
    writes = {
        (group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if set(rule["verbs"]) - {"get", "list", "watch"}
    }
    never = {
        "nodes",
        "namespaces",
        "roles",
        "rolebindings",
        "serviceaccounts/token",
        "networkpolicies",
        "resourcequotas",
    }
    assert not {resource for _, resource in writes} & (
        never | {"limitranges", "endpoints", "endpointslices", "pods/binding"}
    )
    named = [name for rule in rules for part in ("verbs", "resources", "apiGroups") for name in rule[part]]
    assert not {"*", "bind", "escalate", "impersonate"} & set(named)
    assert not [name for name in named if name.startswith("nodes")]


def test_who_may_view_reads_what_an_editor_reads_but_no_secrets_and_opens_no_connection_into_a_pod() -> None:
    verbs = {verb for rule in role.view_role()["rules"] for verb in rule["verbs"]}
    assert verbs == {"get", "list", "watch"}
    seen, edited = (
        {
            (group, resource)
            for rule in made["rules"]
            if "get" in rule["verbs"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
        }
        for made in (role.view_role(), role.edit_role())
    )
    connections = {
        ("", f"pods/{name}") for name in ("exec", "attach", "portforward", "ephemeralcontainers", "resize")
    }
    scales = {("apps", f"{name}/scale") for name in ("deployments", "replicasets", "statefulsets")}
    scales.add(("splitplane.io", "nodepools/scale"))
    assert edited - seen == {("", "secrets"), *connections, *scales}
    assert not seen - edited


def test_a_shared_clusters_role_for_nodes_names_them_and_grants_nothing_without_names() -> None:
    named = role.own_nodes_role(TENANT, ["b", "a"])["rules"]
    assert [rule["resourceNames"] for rule in named] == [["a", "b"]]
    # A rule with an empty list of names would permit all of them.
    assert role.own_nodes_role(TENANT, [])["rules"] == []


def test_accounts_behind_kubeconfigs_are_where_no_tenant_is() -> None:
    account = role.service_account(TENANT, "kc_1")
    assert account["metadata"]["namespace"] == KUBECONFIGS_NAMESPACE != TENANT.namespace
    for binding in role.bindings(TENANT, "kc_1", work_role=role.VIEW_ROLE, nodes_role=role.ALL_NODES_ROLE):
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "kc-1", "namespace": KUBECONFIGS_NAMESPACE}
        ]


def test_a_quota_has_no_room_for_services_that_open_ports_of_nodes() -> None:
    hard = resource_quota(TENANT, ALLOWANCE)["spec"]["hard"]
    assert (hard["services.nodeports"], hard["services.loadbalancers"]) == ("0", "0")
    assert (hard["requests.nvidia.com/gpu"], hard["pods"]) == ("16", "220")


def test_a_project_without_nodes_has_room_for_few_objects_and_for_its_kubeconfigs() -> None:
    with_nodes = resource_quota(TENANT, ALLOWANCE)["spec"]["hard"]
    without = resource_quota(TENANT, replace(ALLOWANCE, nodes=0))["spec"]["hard"]
    assert without.keys() == with_nodes.keys()
    counted = {name: int(most) for name, most in without.items() if name.startswith("count/")}
    assert counted.pop("count/serviceaccounts") == 50
    assert counted.pop("count/pods") == 0
    assert set(counted.values()) == {OBJECTS_MAX_WITHOUT_NODES}
    written = {"configmaps", "secrets", "jobs.batch", "horizontalpodautoscalers.autoscaling"}
    assert {f"count/{kind}" for kind in written} <= counted.keys()


def test_pods_read_what_their_node_is_asked_for_and_the_strongest_of_all_in_one_file_each() -> None:
    slower = NodeSignal("node-a", "throttle_admission", "kv_cache_growth", 900, None)
    smaller = NodeSignal("node-b", "smaller_batch", "memory_pressure", 900, None)
    late = NodeSignal("node-c", "evict", "unfunded", 2_000, 1_900)
    soon = NodeSignal("node-d", "evict", "preemption", 1_000, 900)
    known = signal_map(TENANT, [late, soon, smaller, slower])["data"]
    assert set(known) == {"signal.json", "node-a.json", "node-b.json", "node-c.json", "node-d.json"}
    assert json.loads(known["node-b.json"]) == {
        "version": 1,
        "action": "smaller_batch",
        "reason": "memory_pressure",
        "until": 900,
        "ends_at": None,
        "node": "node-b",
    }
    for asked, strongest in (
        ([slower, smaller, late, soon], soon),
        ([soon, late, smaller, slower], soon),
        ([late, replace(soon, ends_at=None)], late),
        ([smaller, slower], smaller),
        ([slower, replace(slower, node="node-0", until=901)], replace(slower, node="node-0", until=901)),
    ):
        known = signal_map(TENANT, asked)["data"]
        assert known["signal.json"] == known[f"{strongest.node}.json"], strongest
    assert signal_map(TENANT, [])["data"] == {}


def test_a_kubeconfig_has_one_context_and_the_clusters_own_authority() -> None:
    text = kubeconfig(
        name="gpus",
        endpoint="https://h:6443",
        authority="PEM",
        server_name="cl-1",
        tenant=TENANT,
        token=Token("t"),
    )
    document = json.loads(text)
    assert [context["context"]["namespace"] for context in document["contexts"]] == [TENANT.namespace]
    assert document["clusters"][0]["cluster"] == {
        "server": "https://h:6443",
        "certificate-authority-data": "UEVN",
        "tls-server-name": "cl-1",
    }
    assert document["users"] == [{"name": "gpus", "user": {"token": "t"}}]


def test_a_bootstrap_token_lives_for_minutes_and_is_shown_nowhere() -> None:
    secret = bootstrap_secret(TOKEN, "gpu-1", NOW, timedelta(minutes=15))
    assert secret["stringData"]["expiration"] == "2026-11-22T12:15:00Z"
    assert secret["metadata"]["name"] == "bootstrap-token-abcdef"
    for life in (timedelta(0), -timedelta(minutes=1), LIFE_MAX + timedelta(seconds=1)):
        with pytest.raises(ValueError, match="lives at most"):
            bootstrap_secret(TOKEN, "gpu-1", NOW, life)
    assert TOKEN.secret not in repr(TOKEN)
    for part in ("abcde", "ABCDEF", "abcdef\n"):
        with pytest.raises(ValueError, match="6 and 16"):
            replace(TOKEN, id=part)


def test_the_text_of_a_bootstrap_token_pins_the_file_of_the_authority() -> None:
    # sha256 of "PEM\n", as `sha256sum` prints it for a file with that line.
    assert TOKEN.text("PEM\n") == (
        "K10a0278171ab77da84cdf84cc11c10e4d8923a3aadc855775d8aae2b6a9333415e::abcdef.0123456789abcdef"
    )


def test_admission_of_a_node_replaces_our_taints_and_labels_and_leaves_those_of_kubernetes() -> None:
    unready = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    before: Object = {
        "metadata": {"labels": {f"{NODE_PREFIX}/old": "x", "kubernetes.io/arch": "amd64"}},
        "spec": {"taints": [unready, node.joining_taint(), node.tenant_taint(OTHER)]},
    }
    assert node.taints_with(before, TENANT) == [unready, node.tenant_taint(TENANT)]
    assert node.labels_of_nobody(before) == {f"{NODE_PREFIX}/old": None}
    assert all(
        name.startswith(f"{NODE_PREFIX}/") for name in node.labels(TENANT, "le_1", "gpu", has_gpus=True)
    )


def test_what_is_no_name_of_a_pool_becomes_no_label() -> None:
    for bad in ("", "GPU", "-a", "a-", "a" * 64, "a/b", "a\n"):
        with pytest.raises(ValueError, match="node pool"):
            node.labels(TENANT, "le_1", bad, has_gpus=True)


def test_a_namespace_that_cannot_go_says_why() -> None:
    def condition(kind: str, status: str) -> Object:
        return {
            "type": kind,
            "status": status,
            "reason": "DiscoveryFailed",
            "message": "metrics.k8s.io/v1beta1",
        }

    held_up = {"status": {"conditions": [condition("NamespaceDeletionDiscoveryFailure", "True")]}}
    assert deletion_problem(held_up) == "DiscoveryFailed: metrics.k8s.io/v1beta1"
    going = {"status": {"conditions": [condition("NamespaceDeletionDiscoveryFailure", "False")]}}
    assert deletion_problem(going) is None
    assert deletion_problem({}) is None
