"""What the workloads on nodes are asked for, as pods read it in their cluster."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import text

from control_plane.db import cluster_tenants, enforcement
from control_plane.domain.enforcement import ActionEnd, Detector
from control_plane.domain.lease import Lease
from control_plane.domain.node_pool import NodePool
from control_plane.domain.request import CapacityRequest
from control_plane.services.node_pools import PoolOverview, WantedPool
from data_plane.cluster.objects.signal import NAME
from data_plane.cluster.resource import CONFIG_MAP, Object
from data_plane.documents.sample import Gpu, Server
from data_plane.documents.signal import NAME as STRONGEST
from data_plane.simulation.kubernetes import FakeKubernetes
from reconciler.cluster_tenants import tenant_of
from reconciler.loops.clusters.keep_tenants import AGAIN, HELD_FOR
from tests.scenario.test_enforcement import arm
from tests.support import machine_samples
from tests.support import node_pools as pools
from tests.support.node_cluster import Cluster
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database
_DUE = text("UPDATE cluster_tenants SET due_at = :now")
_RUNNING = text("""
SELECT id FROM enforcement_actions a WHERE NOT EXISTS (SELECT FROM enforcement_ends e WHERE e.action_id = a.id)
""")
_UNDO_ALL = text("""
INSERT INTO enforcement_undos (action_id, asked_at, asked_by, why)
SELECT id, :now, 'an operator', 'a test' FROM enforcement_actions ON CONFLICT DO NOTHING
""")
FULL = Gpu(0, memory_total_mib=80_000, memory_used_mib=79_000, utilisation_percent=90)
CALM = Gpu(0, memory_total_mib=80_000, memory_used_mib=60_000, utilisation_percent=90)


@pytest.fixture
def cluster(stage: Stage) -> Cluster:
    return Cluster(stage)


async def _opened(cluster: Cluster, nodes: int) -> tuple[NodePool, list[Lease]]:
    organization_id = await cluster.build()
    made = await pools.try_wanted(
        cluster.stage, organization_id, WantedPool("eu-1", "train", CapacityRequest("h100x1"), nodes)
    )
    assert isinstance(made, PoolOverview), made
    await cluster.play_until(lambda: len(cluster.open_nodes) == nodes)
    for _ in range(2):
        await cluster.stage.run("keep_tenants")
        cluster.stage.clock.advance(1)
    return made.pool, await pools.members(cluster.stage, made.pool)


async def _lasts(cluster: Cluster, pool: NodePool, leases: list[tuple[Lease, Gpu]], seconds: int) -> None:
    """The agents of these nodes send a sample every 15 s, and pods read at once what is decided."""
    for _ in range(seconds // 15):
        for lease, gpu in leases:
            is_full = gpu is FULL
            server = Server(8000, "vllm", kv_cache_bp=9_900 if is_full else 1_000, running=8, waiting=0)
            await machine_samples.sent(cluster.stage, lease, gpu, servers=(server,))
        for loop in ("enforce_rules", "end_actions", "keep_tenants"):
            (report,) = await cluster.stage.run(loop)
            assert not report.errors
        async with cluster.stage.db.reading() as connection:
            decided = await enforcement.signals(connection, now=cluster.stage.clock.now())
        files = await _read(cluster, pool)
        files.pop(STRONGEST, None)
        assert sorted((each["action"], each["until"]) for each in files.values()) == sorted(
            (signal.action, int(signal.until.timestamp())) for signal in decided.values()
        )
        cluster.stage.clock.advance(15)


async def _read(cluster: Cluster, pool: NodePool) -> dict[str, dict[str, Any]]:
    """The files that pods of the pool's project have, by name."""
    namespace = tenant_of(pool.organization_id, pool.project_id).namespace
    found = await cluster.server.get(CONFIG_MAP, NAME, namespace)
    return {name: json.loads(content) for name, content in found["data"].items()}


def _node_of(cluster: Cluster, lease: Lease) -> str:
    (name,) = [
        node["metadata"]["name"]
        for node in cluster.open_nodes
        if node["metadata"]["labels"]["node-restriction.kubernetes.io/lease"].endswith(lease.id.hex)
    ]
    return str(name)


async def test_pods_on_a_node_whose_memory_is_full_read_that_smaller_batches_are_asked_for_and_when_it_is_over(
    cluster: Cluster,
) -> None:
    pool, (full, calm) = await _opened(cluster, 2)
    await arm(cluster.stage, Detector.MEMORY_PRESSURE)
    assert await _read(cluster, pool) == {}
    await _lasts(cluster, pool, [(full, FULL), (calm, CALM)], 7 * 60)
    files = await _read(cluster, pool)
    node = _node_of(cluster, full)
    assert set(files) == {STRONGEST, f"{node}.json"}, "nothing is asked on the other node"
    asked = files[f"{node}.json"]
    assert files[STRONGEST] == asked
    assert (asked["action"], asked["reason"], asked["node"]) == ("smaller_batch", "memory_pressure", node)
    assert 0 < asked["until"] - cluster.stage.clock.now().timestamp() <= 15 * 60
    await _lasts(cluster, pool, [(full, CALM), (calm, CALM)], 5 * 60)
    assert await _read(cluster, pool) == {}


async def test_what_ends_while_a_place_is_read_is_taken_back_by_the_next_look(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, (full,) = await _opened(cluster, 1)
    await arm(cluster.stage, Detector.MEMORY_PRESSURE)
    await _lasts(cluster, pool, [(full, FULL)], 7 * 60)
    assert await _read(cluster, pool) != {}

    def ending(read: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The action ends as soon as this was read."""

        async def wrapped(*arguments: Any, **values: Any) -> Any:
            found = await read(*arguments, **values)
            async with cluster.stage.db.transaction() as connection:
                for row in await rows(connection, _RUNNING):
                    await enforcement.end(
                        connection,
                        row.id,
                        ActionEnd.OVER,
                        by="test",
                        why="over",
                        now=cluster.stage.clock.now(),
                    )
            return found

        return wrapped

    for name in ("leased", "asked"):
        monkeypatch.setattr(cluster_tenants, name, ending(getattr(cluster_tenants, name)))
    async with cluster.stage.db.transaction() as connection:
        await connection.execute(_DUE, {"now": cluster.stage.clock.now()})
    for _ in range(2):
        await cluster.stage.run("keep_tenants")
        cluster.stage.clock.advance(2)
    assert await _read(cluster, pool) == {}


async def test_what_a_node_is_asked_for_goes_with_its_time_and_with_the_node(cluster: Cluster) -> None:
    pool, (first, second) = await _opened(cluster, 2)
    await arm(cluster.stage, Detector.MEMORY_PRESSURE)
    await _lasts(cluster, pool, [(first, FULL), (second, FULL)], 7 * 60)
    nodes = {f"{_node_of(cluster, lease)}.json" for lease in (first, second)}
    assert set(await _read(cluster, pool)) == {STRONGEST, *nodes}
    await pools.scale(cluster.stage, pool, 1)
    await cluster.stage.run("scale_pools")
    await cluster.play_until(lambda: len(cluster.open_nodes) == 1)
    await cluster.stage.run("keep_tenants")
    (node,) = cluster.open_nodes
    assert set(await _read(cluster, pool)) == {STRONGEST, f"{node['metadata']['name']}.json"}
    # No loop of enforcement looks any more.
    cluster.stage.clock.advance(16 * 60)
    await cluster.stage.run("keep_tenants")
    assert await _read(cluster, pool) == {}


async def test_a_worker_that_was_stopped_brings_nothing_back_that_is_over(cluster: Cluster) -> None:
    """It read what is asked for, and writes it after another worker has written that nothing is any more."""
    stage = cluster.stage
    pool, (full,) = await _opened(cluster, 1)
    await arm(stage, Detector.MEMORY_PRESSURE)
    await _lasts(cluster, pool, [(full, FULL)], 7 * 60)
    assert await _read(cluster, pool)
    apply, other = FakeKubernetes.apply, stage.replica("another one")

    async def stops(server: FakeKubernetes, intent: Object, *, take_over: bool = False) -> Object:
        if intent["metadata"]["name"] == NAME:
            patch.setattr(FakeKubernetes, "apply", apply)
            stage.clock.advance(HELD_FOR.total_seconds())
            await _end_all(stage)
            await stage.run("keep_tenants", world=other)
            assert await _read(cluster, pool) == {}
        return await apply(server, intent, take_over=take_over)

    stage.clock.advance(AGAIN.total_seconds())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeKubernetes, "apply", stops)
        await stage.run("keep_tenants")
    await stage.run("keep_tenants")
    assert await _read(cluster, pool) == {}


async def _end_all(stage: Stage) -> None:
    """An operator undoes every action."""
    async with stage.db.transaction() as connection:
        await connection.execute(_UNDO_ALL, {"now": stage.clock.now()})
    await stage.run("end_actions")
