"""The workers that set the members of an overlay up: when they compute the peer map, and what they do too late."""

import asyncio
import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from control_plane.domain import peer_map
from control_plane.domain.ids import OrganizationId
from control_plane.domain.node_pool import NodePool
from reconciler import relays
from reconciler.loops.clusters.sync_overlay import READ_AGAIN_AFTER
from reconciler.overlay_hold import HELD_FOR
from reconciler.renewal import RENEWED_EVERY
from tests.support import node_pools
from tests.support.node_cluster import OTHERS, Cluster
from tests.support.rows import rows
from tests.support.stage import Stage
from tests.support.workers import Beats, Stall, kill

pytestmark = pytest.mark.database

SERVER = "eu-1.internal"


@pytest.fixture
def cluster(stage: Stage) -> Cluster:
    return Cluster(stage)


async def _opened(cluster: Cluster, owner: OrganizationId, *, nodes: int) -> NodePool:
    made = await node_pools.pool(cluster.stage, owner, nodes=nodes)
    await cluster.play_until(lambda: len(cluster.open_nodes) == nodes)
    await cluster.play(10)
    return made


async def _nodes(cluster: Cluster) -> list[Any]:
    statement = text("""
    SELECT n.id, n.lease_id, m.address, n.public_key FROM nodes n JOIN machines m ON m.id = n.machine_id
    WHERE n.state <> 'gone' ORDER BY n.number
    """)
    async with cluster.stage.db.reading() as connection:
        return list(await rows(connection, statement))


async def _sync(cluster: Cluster, *, times: int) -> None:
    for _ in range(times):
        await cluster.stage.run("sync_overlay")
        cluster.stage.clock.advance(2)


def _listed(cluster: Cluster, at: str) -> set[str]:
    """The keys that a machine lists."""
    return {peer.public_key for peer in cluster.members.members[at].peers}


async def test_a_worker_that_stalls_puts_no_key_back_that_was_removed_meanwhile(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await cluster.build()
    pool = await _opened(cluster, owner, nodes=3)
    kept = (await _nodes(cluster))[0]
    leases = [lease for lease in await node_pools.members(cluster.stage, pool) if lease.id != kept.lease_id]
    ends = (SERVER, str(kept.address))
    # In its calls to machines, and before it makes them: with the map in its hands in both cases.
    for owner_of_call, name, refused_by in (
        (cluster.members, "apply", "this machine was set up by a later worker"),
        (relays, "keep", "another worker holds the overlay by now"),
    ):
        cluster.stage.clock.advance(READ_AGAIN_AFTER.total_seconds())
        lost = leases.pop()
        key = next(each.public_key for each in await _nodes(cluster) if each.lease_id == lost.id)
        stall = Stall(getattr(owner_of_call, name))
        with monkeypatch.context() as patch:
            patch.setattr(owner_of_call, name, stall)
            late = asyncio.create_task(cluster.stage.run("sync_overlay"))
            await stall.reached.wait()
        assert all(key in _listed(cluster, end) for end in ends)
        cluster.stage.clock.advance(HELD_FOR.total_seconds())
        removed = (await cluster.steps()).count("cut_off") + 1
        await node_pools.lose(cluster.stage, lost)
        while (await cluster.steps()).count("cut_off") < removed:
            await cluster.play(20, step=20)
        stall.over.set()
        notes = [note for report in await late for note in report.notes]
        assert notes
        assert all(refused_by in note for part in notes for note in part.split("; ")), notes
        assert not any(key in _listed(cluster, end) for end in ends), name


async def test_a_cluster_waits_for_seconds_when_the_worker_that_holds_its_overlay_is_killed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await cluster.build()
    pool = await _opened(cluster, owner, nodes=2)
    cluster.stage.clock.advance(READ_AGAIN_AFTER.total_seconds())
    stall = Stall(cluster.members.apply)
    with monkeypatch.context() as patch:
        patch.setattr(cluster.members, "apply", stall)
        killed = asyncio.create_task(cluster.stage.run("sync_overlay"))
        await stall.reached.wait()
    await kill(killed)
    (lease, _) = await node_pools.members(cluster.stage, pool)
    (key,) = {node.public_key for node in await _nodes(cluster) if node.lease_id == lease.id}
    await node_pools.lose(cluster.stage, lease)
    died_at = cluster.stage.clock.now()
    await cluster.play_until(lambda: key not in _listed(cluster, SERVER))
    assert cluster.stage.clock.now() - died_at <= timedelta(seconds=45)


async def test_a_worker_keeps_a_node_while_it_sends_files_and_another_goes_on_when_it_is_killed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await cluster.build()
    await node_pools.pool(cluster.stage, owner, nodes=1)
    await cluster.stage.play(120, step=5, without=OTHERS | {"join_nodes"})
    stage, clock, beats = cluster.stage, cluster.stage.clock, Beats()
    stall = Stall(cluster.agents.prepare)
    with monkeypatch.context() as patch:
        patch.setattr(cluster.agents, "prepare", stall)
        world = dataclasses.replace(stage.world, sleep=beats.sleep)
        worker = asyncio.create_task(stage.run("join_nodes", world=world))
        await stall.reached.wait()
    for _ in range(30):
        await beats.next()
        clock.advance(RENEWED_EVERY.total_seconds())
    (report,) = await stage.run("join_nodes")
    assert report.looked_at == 0, "another worker took the node"
    await kill(worker)
    died_at = clock.now()
    await cluster.play_until(lambda: cluster.agents.running)
    assert clock.now() - died_at <= timedelta(seconds=90)


async def test_a_worker_keeps_an_overlay_while_a_machine_takes_minutes_to_answer(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await cluster.build()
    await _opened(cluster, owner, nodes=2)
    clock = cluster.stage.clock
    clock.advance(READ_AGAIN_AFTER.total_seconds())
    stall, beats = Stall(cluster.members.apply), Beats()
    with monkeypatch.context() as patch:
        patch.setattr(cluster.members, "apply", stall)
        slow = asyncio.create_task(
            cluster.stage.run(
                "sync_overlay", world=dataclasses.replace(cluster.stage.world, sleep=beats.sleep)
            )
        )
        await stall.reached.wait()
    for _ in range(60):
        await beats.next()
        clock.advance(RENEWED_EVERY.total_seconds())
    (report,) = await cluster.stage.run("sync_overlay")
    assert report.looked_at == 0, "another worker took the overlay"
    stall.over.set()
    (report,) = await slow
    assert (report.acted_on, report.notes, report.errors) == (3, [], [])


async def test_a_map_is_computed_when_a_row_has_changed_or_a_member_is_due_and_never_in_between(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await cluster.build()
    await _opened(cluster, owner, nodes=2)
    node = (await _nodes(cluster))[0]
    computed: list[str] = []
    versions = peer_map.versions

    def counted(overlay: peer_map.Overlay) -> dict[peer_map.Holder, peer_map.Version]:
        computed.append("versions")
        return versions(overlay)

    monkeypatch.setattr(peer_map, "versions", counted)

    async def rounds(number: int) -> int:
        """How many of so many activations computed a map."""
        computed.clear()
        await _sync(cluster, times=number)
        return len(computed)

    async def change(statement: str, **values: object) -> None:
        async with cluster.stage.db.transaction() as connection:
            await connection.execute(text(statement), values)

    await rounds(3)
    assert await rounds(10) == 0
    calls = len(cluster.members.faults.calls)
    # Somebody puts a row right by hand, say: no loop has to tell this one.
    changes = (
        "UPDATE nodes SET endpoint = '203.0.113.77:51820' WHERE id = :id",
        "UPDATE server_hosts SET outside = '203.0.113.78'",
        "UPDATE nodes SET applied_version = NULL WHERE id = :id",
        "UPDATE clusters SET server_key_asked_at = :now",
    )
    for statement in changes:
        values = {"id": node.id, "now": cluster.stage.clock.now()}
        await change(statement, **{name: value for name, value in values.items() if f":{name}" in statement})
        assert await rounds(1) > 0, statement
        await rounds(40)
        assert await rounds(2) == 0, statement
    assert len(cluster.members.faults.calls) > calls
    cluster.stage.clock.advance(READ_AGAIN_AFTER.total_seconds())
    assert await rounds(1) > 0
    assert await rounds(9) < 9
