"""The server of a cluster is not taken away from whoever builds it."""

import asyncio
import dataclasses
from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import text

from control_plane.db import server_hosts
from control_plane.domain.cluster import server_name
from data_plane.cluster.files import StillSending
from data_plane.cluster.servers import ServerIdentity, ServerOrder
from data_plane.simulation.servers import FakeServers
from reconciler.loop import Report
from reconciler.server_hosts import HELD_FOR
from tests.support import clusters
from tests.support.rows import rows
from tests.support.ssh_rotation import store_authorities
from tests.support.stage import Stage
from tests.support.workers import Stall, kill

pytestmark = pytest.mark.database


async def _state(stage: Stage) -> str:
    async with stage.db.reading() as connection:
        (row,) = await rows(connection, text("SELECT state FROM clusters ORDER BY created_at LIMIT 1"))
    return str(row.state)


async def test_a_cluster_to_whose_host_files_are_still_sent_has_not_failed_and_goes_on_at_once(
    stage: Stage,
) -> None:
    await store_authorities(stage)
    await clusters.created(stage, "eu-1")
    assert isinstance(stage.world.servers, FakeServers)
    megabyte = 1_000_000
    sent = StillSending(150 * megabyte, 265 * megabyte, arrived=150 * megabyte, seconds=240)
    stage.world.servers.fail_next = [sent]
    await stage.run("build_clusters")
    async with stage.db.reading() as connection:
        (row,) = await rows(connection, text("SELECT state, failing_since, tries FROM clusters"))
    assert (row.state, row.failing_since, row.tries) == ("building", None, 0)
    await stage.run("build_clusters")
    assert await _state(stage) == "ready"


async def test_a_worker_that_stalled_neither_removes_the_next_server_of_a_host_nor_brings_back_one_that_is_gone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store_authorities(stage)
    servers = stage.world.servers
    assert isinstance(servers, FakeServers)

    async def stalls(call: str, loop: str) -> tuple[Stall, "asyncio.Task[Sequence[Report]]"]:
        """A worker that stalls in its call to the host for longer than it holds the cluster."""
        stall = Stall(getattr(servers, call))
        with monkeypatch.context() as patch:
            patch.setattr(servers, call, stall)
            late = asyncio.create_task(stage.run(loop))
            await stall.reached.wait()
        stage.clock.advance(HELD_FOR.total_seconds())
        return stall, late

    await clusters.created(stage, "eu-1")
    builds, late_build = await stalls("install", "build_clusters")
    await stage.run("build_clusters")
    await clusters.deleted(stage, "eu-1")
    dismantles, late_dismantling = await stalls("dismantle", "dismantle_clusters")
    await stage.run("dismantle_clusters")
    assert (await _state(stage), servers.running) == ("gone", {})
    second = await clusters.created(stage, "eu-2", on_new_host=False)
    await stage.run("build_clusters")
    for stall, late in ((builds, late_build), (dismantles, late_dismantling)):
        stall.over.set()
        (report,) = await late
        assert "a later worker has changed this host" in " ".join(report.errors)
        (order,) = servers.running.values()
        assert order.name == server_name(second.id)


async def test_a_fence_is_higher_than_the_one_before_whatever_the_clock_says(stage: Stage) -> None:
    await store_authorities(stage)
    cluster, now = await clusters.created(stage, "eu-1"), stage.clock.now()
    fences = []
    for at in (now, now - timedelta(days=1), now):
        async with stage.db.transaction() as connection:
            fences.append((await server_hosts.next_fences(connection, [cluster.id], now=at))[cluster.id])
    assert fences == sorted(set(fences))


async def test_a_cluster_waits_a_minute_for_the_process_that_built_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store_authorities(stage)
    await clusters.created(stage, "eu-1")
    stall = Stall(stage.world.servers.install)
    with monkeypatch.context() as patch:
        patch.setattr(stage.world.servers, "install", stall)
        killed = asyncio.create_task(stage.run("build_clusters"))
        await stall.reached.wait()
    await kill(killed)
    stage.clock.advance(60)
    await stage.run("build_clusters")
    assert await _state(stage) == "ready"


class _SlowServers(FakeServers):
    def __init__(self, inner: FakeServers) -> None:
        super().__init__(inner.running)
        self.under_way, self.goes_on = asyncio.Event(), asyncio.Event()

    async def install(self, order: ServerOrder) -> ServerIdentity:
        self.under_way.set()
        await self.goes_on.wait()
        return await super().install(order)


async def test_a_cluster_that_is_deleted_while_it_is_built_leaves_no_server_on_its_host(stage: Stage) -> None:
    await store_authorities(stage)
    await clusters.created(stage, "eu-1")
    assert isinstance(stage.world.servers, FakeServers)
    slow = _SlowServers(stage.world.servers)
    builds = asyncio.create_task(
        stage.run("build_clusters", world=dataclasses.replace(stage.world, servers=slow))
    )
    await slow.under_way.wait()
    await clusters.deleted(stage, "eu-1")
    await stage.run("dismantle_clusters")
    assert await _state(stage) == "deleting", "its server is still being installed"
    slow.goes_on.set()
    await builds
    await stage.run("dismantle_clusters")
    assert await _state(stage) == "gone"
    assert not stage.world.servers.running
    async with stage.db.reading() as connection:
        assert not await rows(connection, text("SELECT 1 FROM secrets WHERE purpose LIKE 'cluster%'"))
