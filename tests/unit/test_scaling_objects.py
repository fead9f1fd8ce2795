"""What objects of a cluster say about scaling, read as values: also those of somebody who means no good."""

from datetime import UTC, datetime
from typing import Any

import pytest

from control_plane.domain.pod_fit import WORDS_MAX, Amounts
from data_plane.cluster.objects.tenant import Tenant
from data_plane.cluster.resource import NODE_POOL, Object, head
from reconciler.scaling_objects import (
    UnreadableObjectError,
    asks_of,
    node_pool_wish,
    pending_pods,
    policy_wish,
    use_of_nodes,
)
from tests.support import scaling

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
TENANT = Tenant("org_1", "prj_1")
GIB = 2**30


def _container(**requests: str) -> Object:
    return {"name": "c", "resources": {"requests": requests}}


def test_a_pod_asks_for_its_containers_together_or_for_its_largest_init_container() -> None:
    spec: Object = {
        "containers": [_container(cpu="500m", memory="1Gi"), _container(cpu="1", memory="512Mi")],
        "initContainers": [_container(cpu="4", memory="64Mi")],
        "overhead": {"cpu": "10m"},
    }
    assert asks_of(spec) == Amounts(4_010, 3 * GIB // 2, 1)
    sidecar = {**_container(cpu="2"), "restartPolicy": "Always"}
    assert asks_of({**spec, "initContainers": [sidecar]}).cpu_millis == 3_510
    assert asks_of({**spec, "initContainers": [sidecar, _container(cpu="4")]}).cpu_millis == 6_010


def test_devices_are_asked_for_by_their_limits_and_small_amounts_are_rounded_up() -> None:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "1.0001"}}}
    asks = asks_of({"containers": [container]})
    assert (asks.devices, asks.cpu_millis) == ({"nvidia.com/gpu": 8}, 1_001)


def test_only_pods_that_the_scheduler_found_no_node_for_are_pending() -> None:
    waits = scaling.pending(TENANT, "waits", NOW)
    owned = {"kind": "DaemonSet", "controller": True, "name": "d", "uid": "u"}
    others = [
        {**waits, "spec": {**waits["spec"], "nodeName": "n"}},
        {**waits, "status": {"phase": "Pending", "conditions": []}},
        {**waits, "metadata": {**waits["metadata"], "deletionTimestamp": NOW.isoformat()}},
        {**waits, "metadata": {**waits["metadata"], "ownerReferences": [owned]}},
        {**waits, "status": {**waits["status"], "phase": "Failed"}},
        {
            **waits,
            "status": {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
            },
        },
    ]
    (found,) = pending_pods([waits, *others])
    assert (found.name, found.pending_since, found.beyond) == ("waits", NOW, None)


def test_what_scaling_does_not_understand_is_named() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"affinity": {"podAffinity": {required: [{}]}}}, "required podAffinity"),
        ({"affinity": {"podAntiAffinity": {required: [{}]}}}, "required podAntiAffinity"),
        (
            {"affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": [{"matchFields": [{}]}]}}}},
            "matchFields of node affinity",
        ),
        (
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            "topologySpreadConstraints",
        ),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]}, "volume claims"),
        ({"resourceClaims": [{"name": "g"}]}, "resourceClaims"),
    ]
    for spec, says in cases:
        (found,) = pending_pods([scaling.pending(TENANT, "p", NOW, **spec)])
        assert found.beyond is not None, says
        assert says in found.beyond
    (soft,) = pending_pods(
        [
            scaling.pending(
                TENANT, "p", NOW, topologySpreadConstraints=[{"whenUnsatisfiable": "ScheduleAnyway"}]
            )
        ]
    )
    assert soft.beyond is None


def test_daemons_and_what_has_ended_are_no_work_and_what_is_ending_is() -> None:
    waits = scaling.pending(TENANT, "p", NOW)
    runs = {**waits, "spec": {**waits["spec"], "nodeName": "n"}, "status": {"phase": "Running"}}
    owned = {"kind": "DaemonSet", "controller": True, "name": "d", "uid": "u"}
    daemon = {**runs, "metadata": {**runs["metadata"], "ownerReferences": [owned]}}
    ended = {**runs, "status": {"phase": "Succeeded"}}
    ending = {**runs, "metadata": {**runs["metadata"], "deletionTimestamp": NOW.isoformat()}}
    use = use_of_nodes([daemon, ended])["n"]
    assert (use.has_work, use.asks.pods) == (False, 1), "the daemon takes room"
    assert use_of_nodes([ending])["n"].has_work
    assert use_of_nodes([waits]) == {}


def test_an_object_that_is_not_as_its_schema_says_is_unreadable_and_reserved_labels_are_refused() -> None:
    made = {**scaling.node_pool("prj-1")}
    made["metadata"] = {**made["metadata"], "uid": "u", "creationTimestamp": NOW.isoformat()}
    assert node_pool_wish(made).request.sku == "h100x1"
    for spec, says in (
        ({"labels": {"node-restriction.kubernetes.io/project": "prj_2"}}, "reserved"),
        ({"taints": [{"key": "splitplane.io/joining", "effect": "NoSchedule"}]}, "reserved"),
        ({"maxUsdPerHour": "1e3"}, "spec.maxUsdPerHour"),
        ({"maxUsdPerHour": "9" * 30}, "too large"),
    ):
        with pytest.raises(UnreadableObjectError, match=says):
            node_pool_wish({**made, "spec": {**made["spec"], **spec}})


def test_a_policy_is_read_with_its_exact_budget() -> None:
    thing = scaling.policy("prj-1", usd_per_hour="0.000000001")
    thing["metadata"] = {
        **head(NODE_POOL, "grow", "prj-1")["metadata"],
        "creationTimestamp": "2026-11-28T12:00:00Z",
    }
    wish = policy_wish(thing)
    assert (wish.policy.nano_per_hour_max, wish.created_at) == (1, NOW)
    thing["spec"]["consolidation"] = {"enabled": False}
    assert policy_wish(thing).policy.empty_for is None


def test_a_pod_that_says_too_much_is_held_against_no_node() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    terms = {"nodeAffinity": {required: {"nodeSelectorTerms": [term] * 100}}}
    cases: list[dict[str, Any]] = [
        {"affinity": terms},
        {"tolerations": [{"key": f"k{number}"} for number in range(WORDS_MAX)]},
        {"nodeSelector": {f"k{number}": "v" for number in range(WORDS_MAX)}},
        {"containers": [{"name": f"c{number}"} for number in range(WORDS_MAX + 1)]},
        {"containers": [{"resources": {"limits": {f"example.com/{n}": "1" for n in range(WORDS_MAX)}}}]},
    ]
    for spec in cases:
        (found,) = pending_pods([scaling.pending(TENANT, "p", NOW, **spec)])
        assert found.beyond is not None, spec
        assert (found.terms, found.tolerations, found.selector, found.asks.devices) == ((), (), {}, {}), spec
