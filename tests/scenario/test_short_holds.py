"""What a worker holds is kept for as long as a call takes, and waits a minute when its process is killed."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest

from control_plane.domain.node_key import KEY_LIFE
from control_plane.domain.node_tunnels import EVERY
from reconciler.loops.clusters import keep_tenants
from reconciler.renewal import RENEWED_EVERY
from tests.support import clusters, node_pools
from tests.support.firewall_rules import opened
from tests.support.node_cluster import Cluster
from tests.support.ssh_rotation import store_authorities
from tests.support.stage import FAKE, Stage
from tests.support.workers import Beats, Stall, kill

pytestmark = pytest.mark.database
KEPT_FOR = timedelta(minutes=15)
"""Longer than any of these was ever held without being renewed."""
HELD_FOR = timedelta(minutes=1)


@dataclass(frozen=True)
class Work:
    loop: str
    target: Callable[[Stage], object]
    """What the loop calls."""
    call: str
    begin: Callable[[Stage], Awaitable[None]]
    """Lets one thing be due."""


async def _cluster(stage: Stage) -> None:
    await store_authorities(stage)
    await clusters.created(stage, "eu-1")


async def _deleted_cluster(stage: Stage) -> None:
    await _cluster(stage)
    await stage.run("build_clusters")
    await clusters.deleted(stage, "eu-1")


async def _node(stage: Stage, after: timedelta) -> None:
    cluster = Cluster(stage)
    owner = await cluster.build()
    await node_pools.pool(stage, owner, nodes=1)
    await cluster.play_until(lambda: len(cluster.open_nodes) == 1)
    await cluster.play(10)
    stage.clock.advance(after.total_seconds())


async def _kubeconfig(stage: Stage) -> None:
    await store_authorities(stage)
    cluster = await clusters.created(stage, "eu-1")
    await stage.run("build_clusters")
    await clusters.asked(stage, cluster, await stage.organization(), "laptop")


async def _rule(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready")
    await opened(stage, lease, 8080)


WORK = (
    Work("build_clusters", lambda stage: stage.world.servers, "install", _cluster),
    Work("dismantle_clusters", lambda stage: stage.world.servers, "dismantle", _deleted_cluster),
    Work("check_tunnels", lambda stage: stage.world.members, "hears", lambda stage: _node(stage, EVERY)),
    Work(
        "rotate_node_keys",
        lambda stage: stage.world.members,
        "make_next_key",
        lambda stage: _node(stage, KEY_LIFE),
    ),
    Work("keep_tenants", lambda _: keep_tenants, "keep_tenant", _kubeconfig),
    Work("apply_provider_firewalls", lambda stage: stage.world.accounts[FAKE], "apply_ingress", _rule),
)


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.loop)
async def test_a_slow_call_keeps_what_is_held_and_a_dead_worker_holds_it_for_a_minute(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, work: Work
) -> None:
    await work.begin(stage)
    beats, target = Beats(), work.target(stage)
    stall = Stall(getattr(target, work.call))
    with monkeypatch.context() as patch:
        patch.setattr(target, work.call, stall)
        world = dataclasses.replace(stage.world, sleep=beats.sleep)
        worker = asyncio.create_task(stage.run(work.loop, world=world))
        await stall.reached.wait()
    for _ in range(KEPT_FOR // RENEWED_EVERY):
        await beats.next()
        stage.clock.advance(RENEWED_EVERY.total_seconds())
    assert await _taken(stage, work) == 0, "another worker took it"
    await kill(worker)
    stage.clock.advance(HELD_FOR.total_seconds())
    assert await _taken(stage, work) == 1


async def _taken(stage: Stage, work: Work) -> int:
    return sum(report.looked_at for report in await stage.run(work.loop))
