"""An operator has a WireGuard key changed because it has leaked: of a node, and of a cluster's server."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from control_plane.db import node_keys
from control_plane.domain.journal import Note
from control_plane.domain.node_key import ASKED_WAITED_FOR
from reconciler.loops.clusters import rotate_node_keys
from reconciler.loops.clusters.sync_overlay import READ_AGAIN_AFTER
from tests.support import clusters, node_pools
from tests.support.node_cluster import Cluster
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database

SERVER = "eu-1.internal"


@pytest.fixture
def cluster(stage: Stage) -> Cluster:
    return Cluster(stage)


async def _opened(cluster: Cluster, *, number: int) -> list[Any]:
    owner = await cluster.build()
    await node_pools.pool(cluster.stage, owner, nodes=number)
    await cluster.play_until(lambda: len(cluster.open_nodes) == number)
    await cluster.play(10)
    return await _nodes(cluster)


async def _nodes(cluster: Cluster) -> list[Any]:
    statement = text("""
    SELECT n.id, n.name, n.lease_id, m.address, n.public_key, n.next_key, n.old_key, n.key_asked_at
    FROM nodes n JOIN machines m ON m.id = n.machine_id WHERE n.state <> 'gone' ORDER BY n.number
    """)
    async with cluster.stage.db.reading() as connection:
        return list(await rows(connection, statement))


async def _overlay(cluster: Cluster) -> Any:
    statement = text("""
    SELECT o.public_key, o.next_key, o.old_key, k.server_key_asked_at AS asked_at
    FROM overlays o JOIN clusters k ON k.id = o.cluster_id
    """)
    async with cluster.stage.db.reading() as connection:
        (found,) = await rows(connection, statement)
    return found


async def _journal(cluster: Cluster, node: Any) -> list[Any]:
    statement = text("SELECT event FROM journal WHERE lease_id = :id")
    async with cluster.stage.db.reading() as connection:
        return list(await rows(connection, statement, id=node.lease_id))


async def _ask(cluster: Cluster, node: Any) -> bool:
    """As the API does. False when it is asked for already."""
    async with cluster.stage.db.transaction() as connection:
        return await node_keys.ask(connection, node.id, now=cluster.stage.clock.now())


async def _run(cluster: Cluster, *names: str) -> None:
    for name in names:
        await cluster.stage.run(name)
        cluster.stage.clock.advance(2)


def _listed(cluster: Cluster, at: str) -> dict[str, tuple[str, ...]]:
    return {peer.public_key: peer.allowed for peer in cluster.members.members[at].peers}


async def test_a_leaked_key_of_a_node_is_changed_before_those_that_are_due_and_waits_two_minutes_for_who_is_away(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    routine, leaked, away = await _opened(cluster, number=3)
    members = cluster.members.members
    monkeypatch.setattr(rotate_node_keys, "CHANGES_MAX", 1)
    monkeypatch.setattr(rotate_node_keys, "NODES_PER_ACTIVATION_MAX", 1)
    async with cluster.stage.db.transaction() as connection:
        values = {"at": cluster.stage.clock.now() - timedelta(days=1)}
        await connection.execute(text("UPDATE nodes SET key_due_at = :at"), values)
    await _run(cluster, "rotate_node_keys")
    assert len([node for node in await _nodes(cluster) if node.next_key]) == 1, "there is room for no more"
    (begun,) = [node.id for node in await _nodes(cluster) if node.next_key]
    leaked, away = [node for node in (routine, leaked, away) if node.id != begun]
    members[leaked.address].next_key = stale = "made before the leak"
    cluster.members.faults.gone.add(str(away.address))

    assert await _ask(cluster, leaked)
    assert not await _ask(cluster, leaked), "it is under way"
    await _run(cluster, "rotate_node_keys", "sync_overlay")
    announced = next(node for node in await _nodes(cluster) if node.id == leaked.id)
    assert announced.next_key not in {None, stale}
    assert _listed(cluster, SERVER)[announced.next_key] == ()
    cluster.stage.clock.advance(ASKED_WAITED_FOR.total_seconds() - 30)
    await _run(cluster, "rotate_node_keys")
    assert members[leaked.address].key == leaked.public_key, "one of its peers was not reached yet"
    cluster.stage.clock.advance(30)
    await _run(cluster, "rotate_node_keys", "sync_overlay")
    assert members[leaked.address].key == announced.next_key
    assert leaked.public_key not in _listed(cluster, SERVER), "the leaked key opens nothing there"
    assert leaked.public_key in _listed(cluster, str(away.address))

    cluster.stage.clock.advance(timedelta(hours=2).total_seconds())
    await _run(cluster, "rotate_node_keys")
    assert next(n for n in await _nodes(cluster) if n.id == leaked.id).key_asked_at, "it may be listed still"
    cluster.members.faults.gone.clear()
    cluster.stage.clock.advance(READ_AGAIN_AFTER.total_seconds())
    await _run(cluster, "sync_overlay", "sync_overlay", "rotate_node_keys")  # Those that answered come first.
    done = next(node for node in await _nodes(cluster) if node.id == leaked.id)
    assert (done.public_key, done.old_key, done.key_asked_at) == (announced.next_key, None, None)
    assert leaked.public_key not in _listed(cluster, str(away.address))
    notes = [row.event for row in await _journal(cluster, leaked)]
    assert notes.count(Note.NODE_KEY_CHANGED) == 1


async def test_a_key_that_was_made_before_it_was_asked_for_is_followed_by_another(cluster: Cluster) -> None:
    node, _ = await _opened(cluster, number=2)
    async with cluster.stage.db.transaction() as connection:
        values = {"at": cluster.stage.clock.now(), "id": node.id}
        await connection.execute(text("UPDATE nodes SET key_due_at = :at WHERE id = :id"), values)
    await _run(cluster, "rotate_node_keys")
    under_way = (await _nodes(cluster))[0].next_key
    assert await _ask(cluster, node)
    for _ in range(8):
        await _run(cluster, "sync_overlay", "rotate_node_keys")
        (found, _) = await _nodes(cluster)
        assert found.key_asked_at or found.public_key != under_way, "it was made too early to count"
        cluster.stage.clock.advance(60)
    done = (await _nodes(cluster))[0]
    assert done.public_key not in {node.public_key, under_way}
    assert (done.next_key, done.old_key, done.key_asked_at) == (None, None, None)
    assert cluster.members.members[node.address].key == done.public_key


async def test_the_leaked_key_of_a_server_is_changed_and_every_node_follows_in_the_same_activation(
    cluster: Cluster,
) -> None:
    node, away = await _opened(cluster, number=2)
    old, members = (await _overlay(cluster)).public_key, cluster.members.members
    await _run(cluster, "sync_overlay")
    assert (await _overlay(cluster)).next_key is None, "nobody asked"
    await clusters.key_asked(cluster.stage, "eu-1")
    await _run(cluster, "sync_overlay")
    following = (await _overlay(cluster)).next_key
    for end in (node, away):
        assert _listed(cluster, str(end.address))[old]
        assert _listed(cluster, str(end.address))[following] == (), "it accepts no packet with it yet"
    assert members[SERVER].key == old
    await _run(cluster, "sync_overlay")
    assert members[SERVER].key == following
    for end in (node, away):
        assert _listed(cluster, str(end.address))[following]
        assert old not in _listed(cluster, str(end.address))
    await _run(cluster, "sync_overlay")
    done = await _overlay(cluster)
    assert (done.public_key, done.next_key, done.old_key, done.asked_at) == (following, None, None, None)

    # Who is away follows later, and one that lost its next key makes another.
    cluster.members.faults.gone.add(str(away.address))
    await clusters.key_asked(cluster.stage, "eu-1")
    await _run(cluster, "sync_overlay", "sync_overlay")
    members[SERVER].next_key = None
    cluster.stage.clock.advance(ASKED_WAITED_FOR.total_seconds())
    await _run(cluster, "sync_overlay", "sync_overlay")
    assert members[SERVER].key == following
    cluster.stage.clock.advance(ASKED_WAITED_FOR.total_seconds())
    await _run(cluster, "sync_overlay")
    second = members[SERVER].key
    assert second not in {old, following}
    assert second in _listed(cluster, str(node.address))
    assert (await _overlay(cluster)).asked_at, "a node may list the leaked key still"
    cluster.members.faults.gone.clear()
    cluster.stage.clock.advance(READ_AGAIN_AFTER.total_seconds())
    await _run(cluster, "sync_overlay", "sync_overlay", "sync_overlay")  # Those that answered come first.
    assert (await _overlay(cluster)).asked_at is None
    assert following not in _listed(cluster, str(away.address))
