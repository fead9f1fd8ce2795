"""The workers that set the members of an overlay up: when they compute the peer map, and what they do too late."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import text

from control_plane.domain import peer_map
from control_plane.domain.ids import OrganizationId
from control_plane.domain.node_pool import NodePool
from reconciler import relays
from reconciler.loops.clusters.sync_overlay import READ_AGAIN_AFTER
from reconciler.overlay_hold import HELD_FOR
from tests.support import node_pools
from tests.support.node_cluster import Cluster
from tests.support.rows import rows
from tests.support.stage import Stage

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


class _Stall:
    """Calls wait here until they may go on."""

    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        self.reached, self.over = asyncio.Event(), asyncio.Event()
        self._call = call

    async def __call__(self, *arguments: object, **named: object) -> object:
        self.reached.set()
        await self.over.wait()
        return await self._call(*arguments, **named)


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
        stall = _Stall(getattr(owner_of_call, name))
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
