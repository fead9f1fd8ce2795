"""Rented machines become nodes of a cluster, and leave it without a trace."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Literal

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text

from control_plane.db import clusters as db_clusters
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.agent import AgentState, AgentTask, state
from control_plane.domain.lease import LeaseState
from control_plane.domain.node_capacity import GPU
from control_plane.domain.node_evidence import phrase
from control_plane.domain.node_marks import Taint, TaintEffect
from control_plane.domain.node_pool import NodePool, NodePoolState
from control_plane.domain.overlay import SERVER_NUMBER, address_of
from control_plane.domain.refusal import Refused
from control_plane.domain.request import CapacityRequest
from control_plane.outcomes import machines as machine_outcomes
from control_plane.services import nodes
from control_plane.services.node_pools import PoolOverview, WantedPool
from control_plane.services.nodes import NodeFilter
from data_plane.access.port import StepFailed, Target, Unreachable
from data_plane.cluster.agents import AgentOrder, Cleaned, Started
from data_plane.cluster.objects import expected_nodes
from data_plane.cluster.objects.device_plugin import DevicePlugin
from data_plane.cluster.objects.node import joining_taint
from data_plane.cluster.objects.tenant import NODE_GPU, NODE_PROJECT
from data_plane.cluster.port import Conflict
from data_plane.cluster.resource import CONFIG_MAP, NODE, SECRET, Object, Resource, head
from data_plane.simulation.agents import FakeAgents
from data_plane.simulation.collector import FakeCollector
from data_plane.simulation.kubernetes import FakeKubernetes
from data_plane.simulation.members import FakeMember
from reconciler.loop import Report
from reconciler.nodes import HELD_FOR
from reconciler.worlds.complete import CompleteWorld
from tests.support import clusters, machines_without_gpus, node_pools
from tests.support.crash import Crash
from tests.support.node_cluster import OTHERS, Cluster
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database
PLUGIN = DevicePlugin("registry.invalid/plugin@sha256:" + "0" * 64, is_at_hand=True)


@pytest.fixture
def cluster(stage: Stage) -> Cluster:
    return Cluster(stage)


async def _state(cluster: Cluster, pool: NodePool) -> NodePoolState:
    return (await node_pools.stored(cluster.stage, pool.id)).state


async def _lease_states(cluster: Cluster, pool: NodePool) -> list[LeaseState]:
    return [lease.state for lease in await node_pools.members(cluster.stage, pool)]


async def test_machines_become_nodes_are_billed_from_then_on_and_leave_nothing(cluster: Cluster) -> None:
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=2)
    await cluster.play_until(lambda: len(cluster.open_nodes) == 2)
    await cluster.play(10)
    assert await _state(cluster, pool) is NodePoolState.READY
    leases = await node_pools.members(cluster.stage, pool)
    assert {lease.state for lease in leases} == {LeaseState.READY}
    assert len({lease.ready_at for lease in leases}) == 1, "all began together"
    assert await cluster.row_counts() == {"ready": 2}
    assert not [name for name in cluster.server.named(SECRET) if name.startswith("bootstrap-token-")]
    assert not cluster.agents.tokens
    assert not _expected(cluster), "none may register again"
    await cluster.stage.check()

    await node_pools.delete(cluster.stage, pool)
    await cluster.play_until(lambda: not cluster.stage.cloud.alive())
    await cluster.play(30)
    await cluster.nothing_is_left()
    assert await _state(cluster, pool) is NodePoolState.GONE
    await cluster.stage.check()


def _expected(cluster: Cluster) -> dict[str, str]:
    """The names under which Nodes may register."""
    found = cluster.server.objects[CONFIG_MAP.plural, expected_nodes.NAMESPACE, expected_nodes.NAME]
    names: dict[str, str] = found["data"]
    return names


async def _opened(cluster: Cluster, nodes: int = 2) -> NodePool:
    """A pool that is ready."""
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=nodes)
    await cluster.play_until(lambda: len(cluster.open_nodes) == nodes)
    await cluster.play(10)
    assert await _state(cluster, pool) is NodePoolState.READY
    return pool


async def test_no_node_is_opened_and_nothing_is_billed_before_all_nodes_of_the_pool_are_healthy(
    cluster: Cluster,
) -> None:
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=2)
    sick = await cluster.first_address()
    cluster.kubelets.pressure[sick] = "DiskPressure"
    await cluster.play(120, step=5)
    assert not cluster.open_nodes
    labels = {name for node in cluster.nodes for name in node["metadata"]["labels"]}
    assert NODE_PROJECT not in labels, "a pod that tolerates everything would run there"
    assert await _lease_states(cluster, pool) == [LeaseState.STARTING] * 2
    assert (await cluster.steps()).count("healthy") == 1
    del cluster.kubelets.pressure[sick]
    await cluster.play_until(lambda: len(cluster.open_nodes) == 2)
    await cluster.play(10)
    assert await _lease_states(cluster, pool) == [LeaseState.READY] * 2


async def _shown(cluster: Cluster) -> nodes.NodeOverview:
    """The only node, as operators see it."""
    (node,) = cluster.nodes
    found = await nodes.report(cluster.stage.api, node["metadata"]["name"])
    assert not isinstance(found, Refused)
    return found.overview


async def test_with_a_device_plugin_a_node_is_opened_once_pods_can_have_all_gpus_that_were_sold(
    cluster: Cluster,
) -> None:
    cluster.stage.world = dataclasses.replace(cluster.stage.world, device_plugin=PLUGIN)
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=1)
    await cluster.play_until(lambda: cluster.nodes)
    await cluster.play(60)
    assert not cluster.open_nodes
    assert (await cluster.steps())[-1] == "measured"
    found = await _shown(cluster)
    assert found.failing_why == "its device plugin reports 0 of 1 GPU"
    (labelled,) = cluster.nodes
    assert labelled["metadata"]["labels"]["node-restriction.kubernetes.io/gpu"] == "nvidia"
    assert NODE_PROJECT not in labelled["metadata"]["labels"]

    address = str(cluster.stage.cloud.alive()[0].address)
    cluster.kubelets.claims[address] = {GPU: "1"}
    await cluster.play_until(lambda: cluster.open_nodes)
    await cluster.play(40)
    assert await _lease_states(cluster, pool) == [LeaseState.READY]

    cluster.kubelets.claims[address] = {GPU: "0"}
    await cluster.play(40)
    found = await _shown(cluster)
    assert found.conditions == {"Ready": "True", "GpusMissing": "True"}
    assert await _lease_states(cluster, pool) == [LeaseState.READY], "its pods may still run"
    await cluster.stage.run("read_figures")
    assert REGISTRY.get_sample_value("splitplane_nodes_without_gpus", {"cluster": "eu-1"}) == 1


async def test_a_node_that_claims_more_gpus_than_were_sold_once_it_was_measured_is_never_opened(
    cluster: Cluster,
) -> None:
    cluster.stage.world = dataclasses.replace(cluster.stage.world, device_plugin=PLUGIN)
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=1)
    liar = await cluster.first_address()
    await cluster.play_until(lambda: cluster.nodes)
    await cluster.play(30)
    assert (await cluster.steps())[-1] == "measured"
    cluster.kubelets.claims[liar] = {GPU: "64"}
    await cluster.play(30)
    (lease,) = await node_pools.members(cluster.stage, pool)
    assert (await cluster.stage.attempts(lease))[0].fail_reason == "node_hostile"
    assert not cluster.open_nodes


async def test_a_pool_without_gpus_joins_beside_one_with_them_under_its_labels_and_taints(
    cluster: Cluster,
) -> None:
    organization_id = await cluster.build()
    with_gpus = await node_pools.pool(cluster.stage, organization_id, nodes=1)
    await machines_without_gpus.sell(cluster.stage)
    taint = Taint("only", "loaders", TaintEffect.NO_SCHEDULE)
    wanted = WantedPool(
        "eu-1", "load", CapacityRequest("cpu.16x"), 1, node_labels={"role": "loader"}, node_taints=(taint,)
    )
    made = await node_pools.try_wanted(cluster.stage, organization_id, wanted)
    assert isinstance(made, PoolOverview), made
    without = made.pool
    await cluster.play_until(lambda: len(cluster.stage.cloud.alive()) == 2)
    (small,) = [each for each in cluster.stage.cloud.alive() if each.order.native_type == "cpu.16"]
    honest = {"cpu": "16", "memory": "64Gi"}
    cluster.kubelets.claims[str(small.address)] = honest
    await cluster.play_until(lambda: len(cluster.open_nodes) == 2)
    await cluster.play(10)
    assert [await _state(cluster, pool) for pool in (with_gpus, without)] == [NodePoolState.READY] * 2
    (node,) = [node for node in cluster.open_nodes if "role" in node["metadata"]["labels"]]
    assert node["metadata"]["labels"]["role"] == "loader"
    assert NODE_GPU not in node["metadata"]["labels"]
    assert {"key": "only", "value": "loaders", "effect": "NoSchedule"} in node["spec"]["taints"]
    (lease,) = await node_pools.members(cluster.stage, without)
    (machine,) = await cluster.stage.machines(lease)
    assert (lease.state, machine.native_type, machine.address) == (
        LeaseState.READY,
        "cpu.16",
        small.address,
    )
    await cluster.stage.check()
    cluster.kubelets.claims[str(machine.address)] = {**honest, GPU: "1"}
    await cluster.play(60)
    ended = await cluster.stage.lease_row(lease)
    assert (ended.end_reason, "nvidia.com/gpu" in str(ended.end_why)) == ("proof_failed", True)


async def test_nodes_that_join_while_a_device_plugin_is_switched_on_get_it(cluster: Cluster) -> None:
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=2)
    sick = await cluster.first_address()
    cluster.kubelets.pressure[sick] = "DiskPressure"
    await cluster.play(120)
    assert (await cluster.steps()).count("healthy") == 1, (
        "one of them waits to be opened, the other for its disk"
    )
    cluster.stage.world = dataclasses.replace(cluster.stage.world, device_plugin=PLUGIN)
    await cluster.play(40)
    assert [node["metadata"]["labels"].get(NODE_GPU) for node in cluster.nodes] == ["nvidia"] * 2
    for machine in cluster.stage.cloud.alive():
        cluster.kubelets.claims[str(machine.address)] = {GPU: "1"}
    cluster.kubelets.pressure.clear()
    await cluster.play_until(lambda: len(cluster.open_nodes) == 2)
    await cluster.play(10)
    assert await _lease_states(cluster, pool) == [LeaseState.READY] * 2


async def test_a_pool_that_is_not_ready_in_time_costs_its_customer_nothing_and_leaves_nothing(
    cluster: Cluster,
) -> None:
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=2, wait_timeout_seconds=600)
    cluster.kubelets.pressure[await cluster.first_address()] = "DiskPressure"
    await cluster.play(900, step=15)
    await cluster.nothing_is_left()
    assert not any(lease.ready_at for lease in await node_pools.members(cluster.stage, pool))
    await cluster.stage.check()


async def test_a_machine_that_claims_more_than_was_bought_leaves_as_hostile_and_another_one_is_tried(
    cluster: Cluster,
) -> None:
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=1)
    liar = await cluster.first_address()
    cluster.kubelets.claims[liar] = {"cpu": "1000"}
    await cluster.play_until(lambda: cluster.open_nodes)
    await cluster.play(60)
    assert liar not in cluster.agents.running
    assert await _lease_states(cluster, pool) == [LeaseState.READY]
    (lease,) = await node_pools.members(cluster.stage, pool)
    first, second = await cluster.stage.attempts(lease)
    assert first.fail_reason == "node_hostile"
    async with cluster.stage.db.reading() as connection:
        told = await rows(connection, text("SELECT fail_why FROM machines WHERE fail_reason IS NOT NULL"))
    assert "1000000m of CPU" in told[0].fail_why
    steps = [step for step in await cluster.steps() if step in {"cut_off", "deleted", "cleaned"}]
    assert steps == ["cut_off", "deleted", "cleaned"], "its tunnels go before anything else"
    assert second.fail_reason is None
    assert len(cluster.stage.cloud.alive()) == 1


@pytest.mark.parametrize(
    "lie",
    [
        "without the taint",
        "with a weaker one",
        "with pods of its own",
        "with another's key",
        "with a phrase as its capacity",
    ],
)
async def test_a_machine_that_comes_without_the_taint_or_with_anothers_key_is_hostile(
    cluster: Cluster, lie: str
) -> None:
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=1)
    liar = await cluster.first_address()
    if lie == "without the taint":
        cluster.kubelets.taints[liar] = []
    elif lie == "with a weaker one":
        cluster.kubelets.taints[liar] = [{**joining_taint(), "effect": "PreferNoSchedule"}]
    elif lie == "with pods of its own":
        cluster.kubelets.pods[liar] = "fd00::/64"
    elif lie == "with a phrase as its capacity":
        cluster.kubelets.claims[liar] = {"cpu": "call 555-0100"}
    else:
        await cluster.stage.run("sync_overlay")
        members = cluster.agents.members.members
        members[liar] = FakeMember(key=members["eu-1.internal"].key)
    await cluster.play_until(lambda: cluster.open_nodes and liar not in cluster.agents.running)
    await cluster.play(30)
    (lease,) = await node_pools.members(cluster.stage, pool)
    attempts = await cluster.stage.attempts(lease)
    assert [attempt.fail_reason for attempt in attempts] == ["node_hostile", None]
    assert "555" not in str(attempts[0].fail_why), "customers read it"


@pytest.mark.parametrize("accepted", [False, True])
async def test_a_machine_with_less_than_was_bought_is_a_node_only_where_emulated_machines_are_accepted(
    cluster: Cluster, accepted: bool
) -> None:
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=1)
    small = await cluster.first_address()
    cluster.kubelets.claims[small] = {"cpu": "2"}
    # It was verified while they were accepted: its GPUs are emulated.
    await cluster.play_until(lambda: small in cluster.agents.members.members)
    cluster.stage.world = dataclasses.replace(cluster.stage.world, accept_emulated=accepted)
    await cluster.play_until(lambda: small in cluster.agents.running)
    await cluster.play(120)
    (lease,) = await node_pools.members(cluster.stage, pool)
    attempt = (await cluster.stage.attempts(lease))[0]
    assert (lease.state is LeaseState.READY, attempt.fail_reason) == (
        (True, None) if accepted else (False, "node_failed")
    )


async def test_a_disk_that_is_smaller_than_what_was_sold_is_shown_to_operators_and_ends_nothing(
    cluster: Cluster,
) -> None:
    organization_id = await cluster.build()
    await node_pools.pool(cluster.stage, organization_id, nodes=1)
    cluster.kubelets.claims[await cluster.first_address()] = {"ephemeral-storage": "60Gi"}
    await cluster.play_until(lambda: cluster.open_nodes)
    async with cluster.stage.db.reading() as connection:
        (row,) = await rows(connection, text("SELECT evidence FROM node_steps WHERE step = 'measured'"))
    assert "its pods have 60 GiB of disk, of " in phrase("measured", row.evidence)


async def test_a_machine_on_which_a_step_keeps_failing_is_given_up_and_another_one_is_tried(
    cluster: Cluster,
) -> None:
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=1)
    faults = cluster.agents.members.faults
    faults.fail["prepare"] = [StepFailed("prepare", 1, "no space left on device")] * 5
    await cluster.play_until(lambda: cluster.open_nodes)
    await cluster.play(60)
    (lease,) = await node_pools.members(cluster.stage, pool)
    first, second = await cluster.stage.attempts(lease)
    assert (first.fail_reason, first.fail_why) == ("node_failed", "it did not become a node of the cluster")
    async with cluster.stage.db.reading() as connection:
        told = await rows(connection, text("SELECT fail_why FROM machines WHERE fail_reason IS NOT NULL"))
    assert "no space left" in told[0].fail_why, "operators read what the machine said"
    assert second.outcome == "admitted"
    assert len(cluster.stage.cloud.alive()) == 1


async def test_a_reconciler_that_is_killed_at_any_point_of_joining_and_leaving_is_taken_over(
    cluster: Cluster,
) -> None:
    """Each activation is killed at the next call, before it or after it, until the node is open, and until it is gone."""
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=1, wait_timeout_seconds=86_400)
    calls = await _killed_until(cluster, lambda: len(cluster.open_nodes) == 1)
    assert {"prepare", "make key", "probe", "start", "drop token", "patch Node"} <= calls
    await cluster.play(60)
    assert await _lease_states(cluster, pool) == [LeaseState.READY]
    await node_pools.delete(cluster.stage, pool)
    calls = await _killed_until(cluster, lambda: not cluster.nodes)
    assert {"patch Node", "list Pod", "delete Node", "delete Secret"} <= calls
    await cluster.play(15 * 60, step=60)
    await cluster.nothing_is_left(cleaned=False)
    assert len(await node_pools.members(cluster.stage, pool)) == 1, "no machine was blamed for it"
    await cluster.stage.check()


async def _killed_until(cluster: Cluster, done: Callable[[], object]) -> set[str]:
    """Kill the loops of nodes at every call until it is done; returns what they had called."""
    calls: set[str] = set()
    ours = ("join_nodes", "sync_overlay", "leave_nodes")
    when: Literal["before", "after"] = "before"
    at = 1
    for _ in range(80):
        if done():
            return calls
        for name in ours:
            crash = Crash(at=at, when=when)

            async def activation(world: CompleteWorld, name: str = name) -> None:
                await cluster.stage.run(name, world=world)

            await crash.kills(activation, cluster.stage.replica("doomed"))
            calls.update(crash.calls)
        when, at = ("after", at) if when == "before" else ("before", at % 12 + 1)
        cluster.stage.clock.advance(HELD_FOR.total_seconds() + 1)
        # Without watch_nodes, which puts taints right: it would open a node whose lease has begun.
        await cluster.stage.round(without=OTHERS | {*ours, "watch_nodes"})
    raise AssertionError(f"it did not come to an end: {await cluster.steps()}")


async def test_lost_answers_are_asked_for_again(cluster: Cluster) -> None:
    organization_id = await cluster.build()
    await node_pools.pool(cluster.stage, organization_id, nodes=1)
    faults = cluster.agents.members.faults
    faults.lose.update({"make_key": 2, "prepare": 1, "start": 1, "drop_token": 1, "apply": 2, "probe": 1})
    await cluster.play_until(lambda: cluster.open_nodes)
    assert len(cluster.nodes) == 1


async def test_a_machine_that_its_provider_lost_is_replaced_and_billed_no_longer_than_its_node_was_ready(
    cluster: Cluster,
) -> None:
    pool = await _opened(cluster)
    stage = cluster.stage
    lost, kept = await node_pools.members(stage, pool)
    (machine,) = await stage.machines(lost)
    cluster.agents.members.faults.gone.add(str(machine.address))
    await cluster.play(5 * 60, step=15)
    assert (await stage.lease_row(lost)).state is LeaseState.READY, "losing contact ends nothing"
    gone_at = stage.clock.now()
    assert machine.provider_ref is not None
    stage.cloud.disappear(machine.provider_ref)
    await cluster.play_until(lambda: len(cluster.open_nodes) == 2 and len(stage.cloud.alive()) == 2)
    await cluster.play(60)
    row = await stage.lease_row(lost)
    assert row.state in {LeaseState.ENDING, LeaseState.ENDED}
    assert row.billed_until is not None
    assert row.billed_until <= gone_at
    assert (await stage.lease_row(kept)).state is LeaseState.READY
    await stage.check()


async def test_a_node_that_stays_unready_is_given_up_after_an_hour_unless_all_are(cluster: Cluster) -> None:
    pool = await _opened(cluster, nodes=3)
    stage = cluster.stage
    addresses = sorted(cluster.agents.running)
    gone = cluster.agents.members.faults.gone
    gone.update(addresses)
    await cluster.play(2 * 3_600, step=120)
    assert {lease.state for lease in await node_pools.members(stage, pool)} == {LeaseState.READY}
    gone.difference_update(addresses[1:])
    await cluster.play(30 * 60, step=60)
    states = [lease.state for lease in await node_pools.members(stage, pool)]
    assert states.count(LeaseState.READY) == 3, states
    assert len(states) == 4, "one was replaced"
    assert len(cluster.open_nodes) == 3


async def test_what_somebody_changes_about_a_node_is_put_right(cluster: Cluster) -> None:
    await _opened(cluster, nodes=1)
    (node,) = cluster.nodes
    before = node["metadata"]["labels"]
    cluster.server.put(
        {**node, "metadata": {**node["metadata"], "labels": {}}, "spec": {**node["spec"], "taints": []}}
    )
    await cluster.play(60, step=5)
    (node,) = cluster.nodes
    ours = {name: value for name, value in before.items() if name.startswith("node-restriction")}
    assert ours
    assert ours.items() <= node["metadata"]["labels"].items()
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["splitplane.io/project"]


async def test_what_a_node_says_in_control_characters_is_stored_printable(cluster: Cluster) -> None:
    await _opened(cluster, nodes=1)
    cluster.kubelets.pressure[min(cluster.agents.running)] = "\x00\x1b[2J"
    await cluster.play(60)
    async with cluster.stage.db.reading() as connection:
        (row,) = await rows(connection, text("SELECT reported -> 'conditions' AS told FROM nodes"))
    assert row.told == {"Ready": "True", "\N{REPLACEMENT CHARACTER}" * 2 + "[2J": "True"}


async def test_a_node_that_grows_after_it_was_opened_is_hostile(cluster: Cluster) -> None:
    pool = await _opened(cluster, nodes=2)
    liar, babbler = sorted(cluster.agents.running)
    cluster.kubelets.claims[liar] = {"nvidia.com/gpu": "64"}
    cluster.kubelets.claims[babbler] = {"cpu": "call 555-0100"}
    await cluster.play_until(lambda: not {liar, babbler} & set(cluster.agents.running))
    ended = [
        lease
        for lease in await node_pools.members(cluster.stage, pool)
        if lease.ended_at or lease.billed_until
    ]
    assert [lease.end_reason for lease in ended] == ["proof_failed"] * 2
    said = {str(lease.end_why) for lease in ended}
    assert "its capacity cannot be read" in said, "customers read it, so it does not quote the machine"


async def test_many_nodes_that_seem_to_lie_get_no_new_pods_until_they_tell_the_truth_again(
    cluster: Cluster,
) -> None:
    pool = await _opened(cluster, nodes=3)

    def taints() -> list[set[str]]:
        return [{taint["key"] for taint in node["spec"]["taints"]} for node in cluster.nodes]

    before = taints()
    cluster.kubelets.claims.update({address: {GPU: "64"} for address in cluster.agents.running})
    await cluster.play(70)
    assert taints() == [keys | {"splitplane.io/quarantined"} for keys in before]
    cluster.kubelets.claims.clear()
    await cluster.play(70)
    assert taints() == before
    assert await _lease_states(cluster, pool) == [LeaseState.READY] * 3


async def test_neither_todays_offers_nor_pressure_nor_one_node_that_cannot_be_put_right_end_another_node(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = await _opened(cluster, nodes=3)
    stage = cluster.stage
    stubborn, pressed, _ = sorted(cluster.nodes, key=lambda node: str(node["metadata"]["name"]))
    patch = FakeKubernetes.patch

    async def refused(
        server: FakeKubernetes, resource: Resource, name: str, change: Object, namespace: str | None = None
    ) -> Object:
        if name == stubborn["metadata"]["name"]:
            raise Conflict(f"{name} was changed meanwhile")
        return await patch(server, resource, name, change, namespace)

    monkeypatch.setattr(FakeKubernetes, "patch", refused)
    cluster.server.put({**stubborn, "metadata": {**stubborn["metadata"], "labels": {}}})
    addresses = {order.node: address for address, order in cluster.agents.running.items()}
    cluster.kubelets.pressure[addresses[pressed["metadata"]["name"]]] = "DiskPressure"
    async with stage.db.transaction() as connection:
        await connection.execute(text("UPDATE offers SET vcpus = vcpus - 2, memory_gib = memory_gib / 2"))
    reports: list[Report] = []
    for _ in range(13):
        stage.clock.advance(360)
        reports.extend(await stage.run("watch_nodes"))
    assert await _lease_states(cluster, pool) == [LeaseState.READY] * 3
    assert all("Conflict" in "".join(report.errors) for report in reports)
    async with stage.db.reading() as connection:
        told = await rows(connection, text("SELECT unready_since, reported FROM nodes"))
    assert [row.unready_since for row in told] == [None] * 3
    assert sum("DiskPressure" in str(row.reported) for row in told) == 1, "it is shown"


async def test_a_cluster_that_does_not_answer_keeps_no_machine_for_ever(cluster: Cluster) -> None:
    pool = await _opened(cluster)
    cluster.server.away = True
    await cluster.play(120, step=15)
    assert len(cluster.stage.cloud.alive()) == 2, "an API server that is away says nothing about its nodes"
    await node_pools.delete(cluster.stage, pool)
    await cluster.play(10 * 60, step=60)
    assert len(cluster.stage.cloud.alive()) == 2, "its pods may still be saved"
    await cluster.play(20 * 60, step=60)
    assert not cluster.stage.cloud.alive()
    statement = text("SELECT step FROM node_steps WHERE evidence ? 'given_up' ORDER BY node_id, step")
    async with cluster.stage.db.reading() as connection:
        given_up = [row.step for row in await rows(connection, statement)]
    assert given_up == ["cordoned", "deleted", "drained"] * 2
    await cluster.stage.check()


async def test_a_node_whose_cluster_answers_again_only_before_its_end_may_not_register_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = await _opened(cluster, nodes=1)
    (node,) = cluster.nodes
    _expected(cluster)[node["metadata"]["name"]] = "expected"  # As that of a node which has never registered.
    clean = FakeAgents.clean

    async def answers_again(agents: FakeAgents, machine: Target) -> Cleaned:
        cluster.server.away = False
        return await clean(agents, machine)

    monkeypatch.setattr(FakeAgents, "clean", answers_again)
    cluster.server.away = True
    await node_pools.delete(cluster.stage, pool)
    await cluster.play(31 * 60, step=60)
    assert await cluster.row_counts() == {"gone": 1}
    assert not cluster.server.away, "it answered too late for the step that deletes the node"
    assert not _expected(cluster)


async def test_a_cluster_is_dismantled_when_its_last_node_is_gone(cluster: Cluster) -> None:
    await _opened(cluster)
    await clusters.deleted(cluster.stage, "eu-1")
    await cluster.play(10 * 60, step=10)
    await cluster.nothing_is_left()
    async with cluster.stage.db.reading() as connection:
        (row,) = await rows(
            connection, text("SELECT state, (SELECT count(*) FROM overlays) AS left FROM clusters")
        )
    assert (row.state, row.left) == ("gone", 0)


async def test_a_pool_that_shrinks_drains_the_node_that_goes(cluster: Cluster) -> None:
    pool = await _opened(cluster)
    await node_pools.scale(cluster.stage, await node_pools.stored(cluster.stage, pool.id), 1)
    await cluster.play_until(lambda: len(cluster.nodes) == 1 and len(cluster.stage.cloud.alive()) == 1)
    steps = [
        step
        for step in await cluster.steps()
        if step in {"cordoned", "drained", "deleted", "cut_off", "cleaned"}
    ]
    assert steps[:2] == ["cordoned", "drained"]
    (left,) = cluster.agents.running
    peers = {peer.public_key for peer in cluster.agents.members.members[left].peers}
    assert len(peers) == 1, "only the server is left"
    assert steps[2:] == ["cut_off", "deleted", "cleaned"], "it cannot register again through its tunnel"

    statement = text("SELECT name FROM nodes WHERE state = 'gone'")
    async with cluster.stage.db.reading() as connection:
        (gone,) = await rows(connection, statement)
    cluster.server.put(head(NODE, gone.name))
    _expected(cluster)[gone.name] = "expected"  # Where the API server was away until the node had left.
    await cluster.play(35)
    assert gone.name not in cluster.server.named(NODE), "it registered again with a certificate that it kept"
    assert gone.name not in _expected(cluster)


async def test_a_machine_that_registers_again_or_keeps_its_claim_while_it_leaves_is_not_gone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=1)
    faults = cluster.agents.members.faults
    faults.fail["prepare"] = [StepFailed("prepare", 1, "no space left on device")] * 5
    cleaned: list[str] = []
    clean = FakeAgents.clean

    async def registers_again(agents: FakeAgents, machine: Target) -> Cleaned:
        cleaned.append(machine.address)
        cluster.server.put(head(NODE, (await names())[0]))
        return await clean(agents, machine)

    async def names() -> list[str]:
        async with cluster.stage.db.reading() as connection:
            found = await rows(connection, text("SELECT name FROM nodes ORDER BY created_at"))
            return [row.name for row in found]

    monkeypatch.setattr(FakeAgents, "clean", registers_again)
    fail = machine_outcomes.fail

    async def never(*_: object, **__: object) -> bool:
        return False

    monkeypatch.setattr(machine_outcomes, "fail", never)
    await cluster.play_until(lambda: cleaned)
    await cluster.play(30)
    assert await cluster.row_counts() == {"leaving": 1}, "its claim is open"
    assert not cluster.nodes
    monkeypatch.setattr(machine_outcomes, "fail", fail)
    await cluster.play_until(lambda: cluster.open_nodes)
    (lease,) = await node_pools.members(cluster.stage, pool)
    assert [attempt.fail_reason for attempt in await cluster.stage.attempts(lease)] == ["node_failed", None]


async def test_what_is_left_on_a_machine_is_named_as_given_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = await _opened(cluster, nodes=1)

    async def unclean(_: FakeAgents, __: Target) -> Cleaned:
        return Cleaned(left=("mount /var/lib/kubelet",), looked_for=("mounts",))

    monkeypatch.setattr(FakeAgents, "clean", unclean)
    await node_pools.delete(cluster.stage, pool)
    events = []
    for _ in range(40):
        cluster.stage.clock.advance(30)
        for name in ("leave_nodes", "sync_overlay"):
            events += [event for report in await cluster.stage.run(name) for event in report.events]
    (event,) = events
    assert event.name == "node_step_given_up"
    assert event.facts["step"] == "cleaned"
    assert "mount /var/lib/kubelet" in event.facts["why"]


async def _synced(cluster: Cluster) -> tuple[Report, str | None]:
    """One round of sync_overlay: its report, and what the overlay shows afterwards."""
    cluster.stage.clock.advance(3)
    (report,) = await cluster.stage.run("sync_overlay")
    async with cluster.stage.db.reading() as connection:
        (row,) = await rows(connection, text("SELECT failing_why, work_token FROM overlays"))
    assert row.work_token is None, "it was given back"
    return report, row.failing_why


async def test_a_member_that_does_not_answer_is_not_tried_in_every_round_and_what_fails_is_shown(
    cluster: Cluster,
) -> None:
    await _opened(cluster, nodes=1)
    (dead,) = cluster.agents.running
    cluster.agents.members.faults.gone.add(dead)
    async with cluster.stage.db.transaction() as connection:
        await connection.execute(text("UPDATE nodes SET applied_version = NULL"))
    assert "Unreachable" in str((await _synced(cluster))[1])
    async with cluster.stage.db.reading() as connection:
        shown = await db_clusters.named(connection, "eu-1")
    assert shown is not None
    assert "tunnels: member" in str(shown.failing_why), "operators read it at the cluster"
    assert (await _synced(cluster))[1] is None, "it waits for its next try"
    assert "Unreachable" in str((await _synced(cluster))[1])
    async with cluster.stage.db.transaction() as connection:
        await connection.execute(text("UPDATE server_hosts SET cluster_id = NULL"))
    report, why = await _synced(cluster)
    assert report.errors == [why]


async def test_the_agent_of_a_node_reports_to_the_server_of_its_cluster_and_goes_with_the_node(
    cluster: Cluster,
) -> None:
    pool = await _opened(cluster, nodes=1)
    stage = cluster.stage
    (lease,) = await node_pools.members(stage, pool)
    await stage.run("install_agents")
    (installed,) = (each for each in stage.access.machines.values() if each.agent is not None)
    assert installed.agent is not None
    server, node = address_of(0, SERVER_NUMBER), address_of(0, SERVER_NUMBER + 1)
    assert (installed.agent.hub, installed.agent.own) == (server, node)
    assert cluster.agents.members.members[str(stage.cloud.alive()[0].address)].is_at(node)
    for _ in range(9):
        await stage.run("collect_heartbeats")
        stage.clock.advance(15)
    assert isinstance(stage.world.collector, FakeCollector)
    assert set(stage.world.collector.mailboxes) == {server}, "the hub was not asked"
    assert stage.world.collector.holders == {server: {node: 0}}
    found = await nodes.page(
        stage.api, lease.organization_id, NodeFilter(), before=None, limit=9, reach=EVERYWHERE
    )
    assert not isinstance(found, Refused)
    (evidence,) = (each.agent for each in found)
    assert evidence is not None
    assert state(evidence, stage.clock.now()) is AgentState.REPORTING
    assert evidence.results.keys() == set(AgentTask)

    stage.world.collector.fail_next.append(Unreachable("the server is away"))
    (report,) = await stage.run("collect_heartbeats")
    assert report.errors == ["the collector on the server host host of eu-1: Unreachable: the server is away"]
    await node_pools.delete(stage, pool)
    await stage.run("collect_heartbeats")
    assert installed.agent is None, "it was told that its lease has ended"
    await cluster.play_until(lambda: not stage.cloud.alive())
    await cluster.play(30)
    (report,) = await stage.run("collect_heartbeats")
    assert report.looked_at == 0, "nobody asks the server about a node that has left"


async def test_a_node_that_becomes_unhealthy_again_holds_up_its_pool_for_ten_minutes_and_nobody_uses_the_others(
    cluster: Cluster,
) -> None:
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=2, wait_timeout_seconds=3_600)
    sick = await cluster.first_address()
    cluster.kubelets.pressure[sick] = "DiskPressure"
    await cluster.play(120, step=15)
    healthy = text("""
        INSERT INTO node_steps (node_id, step, organization_id, at, evidence)
        SELECT id, 'healthy', organization_id, :now, '{}' FROM nodes ON CONFLICT DO NOTHING""")
    async with cluster.stage.db.transaction() as connection:
        await connection.execute(healthy, {"now": cluster.stage.clock.now()})
    await cluster.play(8 * 60, step=60)
    assert not cluster.open_nodes
    assert await _lease_states(cluster, pool) == [LeaseState.STARTING] * 2
    assert await cluster.row_counts() == {"joining": 2}
    await cluster.play_until(lambda: len(cluster.open_nodes) == 2)
    leases = await node_pools.members(cluster.stage, pool)
    assert {lease.state for lease in leases} == {LeaseState.READY}
    reasons = [attempt.fail_reason for lease in leases for attempt in await cluster.stage.attempts(lease)]
    assert sorted(map(str, reasons)) == ["None", "None", "node_failed"]


async def test_an_outage_of_ours_past_the_deadline_of_a_joining_node_gives_no_machine_up(
    cluster: Cluster,
) -> None:
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=1, wait_timeout_seconds=7_200)
    sick = await cluster.first_address()
    cluster.kubelets.pressure[sick] = "DiskPressure"
    await cluster.play_until(lambda: cluster.nodes)
    cluster.stage.clock.advance(25 * 60)
    await cluster.play(60)
    assert await cluster.row_counts() == {"joining": 1}, (
        "it has some time to do what it could not while we were away"
    )
    del cluster.kubelets.pressure[sick]
    await cluster.play_until(lambda: cluster.open_nodes)
    (lease,) = await node_pools.members(cluster.stage, pool)
    assert len(await cluster.stage.attempts(lease)) == 1


async def test_a_worker_that_dies_between_the_beginning_of_a_lease_and_the_opening_of_its_node_is_made_up_for(
    cluster: Cluster,
) -> None:
    """Where the node cannot be opened for ten minutes, it has failed, and nothing of it is billed."""
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=1)
    refused = cluster.server.refuse_patches = {NODE.plural}
    await cluster.play_until(lambda: cluster.nodes)
    await cluster.play(60)
    (first,) = await node_pools.members(cluster.stage, pool)
    assert first.state is LeaseState.READY
    assert not cluster.open_nodes
    await cluster.play(11 * 60, step=15)
    refused.clear()
    await cluster.play_until(lambda: cluster.open_nodes)
    row = await cluster.stage.lease_row(first)
    assert row.state in {LeaseState.ENDING, LeaseState.ENDED}
    assert row.billed_until == row.ready_at
    assert (await cluster.steps()).count("opened") == 1
    await cluster.stage.check()


async def test_an_outage_of_the_api_server_ends_no_node_that_was_to_be_opened_and_none_of_it_is_billed(
    cluster: Cluster,
) -> None:
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=1)
    cluster.server.refuse_patches = {NODE.plural}
    await cluster.play_until(lambda: cluster.nodes)
    await cluster.play(60)
    cluster.server.away = True
    await cluster.play(12 * 60, step=30)
    (lease,) = await node_pools.members(cluster.stage, pool)
    assert lease.state is LeaseState.READY
    cluster.stage.clock.advance(3_600)
    await cluster.play(10)
    (report,) = await cluster.stage.run("meter_usage")
    assert report.acted_on == 0, "charges for it could not be taken back"
    await node_pools.delete(cluster.stage, pool)
    (ended,) = await node_pools.members(cluster.stage, pool)
    assert ended.billed_until == ended.ready_at == lease.ready_at
    await cluster.stage.check()


async def test_an_outage_of_the_clusters_server_or_of_a_network_uses_up_no_tries_of_a_machine(
    cluster: Cluster,
) -> None:
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=1, wait_timeout_seconds=7_200)
    faults = cluster.agents.members.faults
    faults.fail["prepare"] = [*[Unreachable("no answer")] * 6, StepFailed("prepare", 1, "odd")]
    faults.gone.add("eu-1.internal")
    await cluster.play_until(lambda: cluster.nodes or cluster.agents.prepared)
    await cluster.play(25 * 60, step=60)
    assert await cluster.row_counts() == {"joining": 1}
    faults.gone.clear()
    await cluster.play_until(lambda: cluster.open_nodes)
    (lease,) = await node_pools.members(cluster.stage, pool)
    assert len(await cluster.stage.attempts(lease)) == 1


async def test_a_lease_tries_another_machine_while_the_one_that_failed_is_still_leaving(
    cluster: Cluster,
) -> None:
    organization_id = await cluster.build()
    await node_pools.pool(cluster.stage, organization_id, nodes=1)
    first = await cluster.first_address()
    # What nobody thought of counts as well.
    cluster.agents.members.faults.fail["prepare"] = [RuntimeError("odd")] * 5
    cluster.agents.left[first] = ("mount /run/k3s",)
    await cluster.play_until(lambda: len(cluster.stage.cloud.alive()) == 2, seconds_max=300)
    await cluster.play_until(lambda: cluster.open_nodes, seconds_max=300)
    assert (await cluster.row_counts())["leaving"] == 1
    assert first in {str(machine.address) for machine in cluster.stage.cloud.alive()}, "it waits for its node"


class _SlowAgents(FakeAgents):
    """Agents whose start takes until somebody says so."""

    def __init__(self, inner: FakeAgents) -> None:
        super().__init__(inner.members, inner.prepared, inner.running, inner.tokens, inner.left)
        self.under_way, self.goes_on = asyncio.Event(), asyncio.Event()

    async def start(self, order: AgentOrder) -> Started:
        self.under_way.set()
        await self.goes_on.wait()
        return await super().start(order)


async def test_a_node_does_not_leave_before_whoever_lets_it_join_has_finished(cluster: Cluster) -> None:
    """What is deleted before that would be made anew: an agent that starts late registers a Node."""
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=1)
    first = await cluster.first_address()
    await cluster.play_until(lambda: first in cluster.agents.prepared)
    slow = _SlowAgents(cluster.agents)
    world = dataclasses.replace(cluster.stage.world, agents=slow)
    while not slow.under_way.is_set():
        joins = asyncio.create_task(cluster.stage.run("join_nodes", world=world))
        await asyncio.wait(
            {joins, asyncio.create_task(slow.under_way.wait())}, return_when=asyncio.FIRST_COMPLETED
        )
        await cluster.stage.run("sync_overlay")
        cluster.stage.clock.advance(3)
    await node_pools.delete(cluster.stage, pool)
    await cluster.play(20)
    assert await cluster.row_counts() == {"joining": 1}
    slow.goes_on.set()
    await joins
    await cluster.play_until(lambda: not cluster.stage.cloud.alive())
    await cluster.play(30)
    await cluster.nothing_is_left()
