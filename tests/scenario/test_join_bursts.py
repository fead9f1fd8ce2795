"""Many machines join at once, and none of them is lost because of that."""

import asyncio

import pytest
from sqlalchemy import text

from control_plane.domain.node import JOINS_IN_FLIGHT_MAX
from control_plane.domain.node_files import SENDS_IN_FLIGHT_MAX
from data_plane.access.port import Target
from data_plane.cluster.agents import AgentOrder, Prepared, Started
from data_plane.cluster.files import StillSending
from tests.support import node_pools
from tests.support.node_cluster import OTHERS, Cluster
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database
MB = 1_000_000


@pytest.fixture
def cluster(stage: Stage) -> Cluster:
    return Cluster(stage)


class Gate:
    """Lets calls wait until it is opened, and counts those that do."""

    def __init__(self) -> None:
        self.waiting = self.most = 0
        self.opened = asyncio.Event()

    async def __call__(self) -> None:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        await self.opened.wait()
        self.waiting -= 1


async def _held(cluster: Cluster) -> int:
    """How many nodes workers hold."""
    async with cluster.stage.db.reading() as connection:
        (row,) = await rows(connection, text("SELECT count(work_until) AS n FROM nodes"))
    return int(row.n)


async def _most(cluster: Cluster, gate: Gate) -> int:
    """How many calls wait at a gate when every node is due again and again, and several replicas work."""
    working: list[asyncio.Task[object]] = []
    for _ in range(8):
        working.append(asyncio.create_task(cluster.stage.run("join_nodes")))
        while not working[-1].done() and not 0 < gate.waiting == await _held(cluster):  # noqa: ASYNC110 - rows ring no bell
            await asyncio.sleep(0)
        await cluster.stage.run("sync_overlay")
        cluster.stage.clock.advance(5)
    gate.opened.set()
    await asyncio.gather(*working)
    return gate.most


async def test_files_are_sent_to_few_machines_and_few_agents_start_at_the_same_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both caps: removed, all ten machines are sent files, or start, at once."""
    organization_id = await cluster.build()
    await node_pools.pool(cluster.stage, organization_id, nodes=10)
    sends, starts = Gate(), Gate()
    prepare, start = cluster.agents.prepare, cluster.agents.start

    async def prepared(machine: Target) -> Prepared:
        await sends()
        return await prepare(machine)

    async def started(order: AgentOrder) -> Started:
        await starts()
        return await start(order)

    monkeypatch.setattr(cluster.agents, "prepare", prepared)
    monkeypatch.setattr(cluster.agents, "start", started)
    without = OTHERS | {"join_nodes"}
    while await _verified(cluster) < 10:
        await cluster.stage.play(5, step=5, without=without)
    assert await _most(cluster, sends) == SENDS_IN_FLIGHT_MAX
    assert await _most(cluster, starts) == JOINS_IN_FLIGHT_MAX
    await cluster.play_until(lambda: len(cluster.open_nodes) == 10)


async def test_a_machine_to_which_files_arrive_is_not_late_and_one_with_a_slow_line_is(
    cluster: Cluster,
) -> None:
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=1, wait_timeout_seconds=4 * 3_600)
    turns = cluster.members.faults.fail.setdefault("prepare", [])
    turns.extend(StillSending(10 * MB, 265 * MB, arrived=40 * MB, seconds=240) for _ in range(900))
    await cluster.play(40 * 60, step=120)
    (lease,) = await node_pools.members(cluster.stage, pool)
    (machine,) = await cluster.stage.machines(lease)
    assert machine.fail_reason is None, "files arrive"
    async with cluster.stage.db.reading() as connection:
        (node,) = await rows(connection, text("SELECT failing_why FROM nodes"))
    assert node.failing_why == "10 of 265 MB of the K3s files have arrived, 40 MB of them in the last 240 s"
    turns[:] = [StillSending(11 * MB, 265 * MB, arrived=1 * MB, seconds=240) for _ in turns]
    await cluster.play(10 * 60, step=120)
    (machine,) = [each for each in await cluster.stage.machines(lease) if each.id == machine.id]
    assert machine.fail_reason == "node_failed", "its line is too slow"
    turns.clear()
    await cluster.play_until(lambda: cluster.open_nodes)


async def _verified(cluster: Cluster) -> int:
    async with cluster.stage.db.reading() as connection:
        (row,) = await rows(connection, text("SELECT count(*) AS n FROM machines WHERE state = 'verified'"))
    return int(row.n)
