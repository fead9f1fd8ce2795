"""The tunnels of nodes over their lives: keys that change, relays for nodes behind NAT, paths that lose packets."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from types import ModuleType
from typing import Any, Literal

import pytest
from sqlalchemy import text

from control_plane.db import node_keys, node_tunnels, overlays
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import LeaseState
from control_plane.domain.node_key import KEY_LIFE, WAITED_FOR
from control_plane.domain.node_pool import NodePool
from data_plane.access.port import Unreachable
from data_plane.mesh.port import NETWORKS_MAX, Network, Peer
from reconciler.loops.clusters import rotate_node_keys
from reconciler.loops.clusters.sync_overlay import READ_AGAIN_AFTER
from reconciler.relays import KEPT_FOR
from reconciler.worlds.complete import CompleteWorld
from tests.support import node_pools
from tests.support.crash import Crash
from tests.support.node_cluster import Cluster
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database

SERVER = "eu-1.internal"


@pytest.fixture
def cluster(stage: Stage) -> Cluster:
    return Cluster(stage)


async def _opened(cluster: Cluster, *pools: tuple[OrganizationId, int]) -> list[NodePool]:
    """Pools that are ready, of so many nodes each."""
    made = [await node_pools.pool(cluster.stage, owner, nodes=nodes) for owner, nodes in pools]
    await cluster.play_until(lambda: len(cluster.open_nodes) == sum(nodes for _, nodes in pools))
    await cluster.play(10)
    return made


async def _nodes(cluster: Cluster) -> list[Any]:
    statement = text("""
    SELECT n.id, n.organization_id, n.lease_id, m.address, n.public_key, n.next_key, n.old_key, n.key_holders, n.key_due_at,
      n.endpoint, n.tunnels, n.handshake_at, n.peers_read_at, n.created_at
    FROM nodes n JOIN machines m ON m.id = n.machine_id WHERE n.state <> 'gone' ORDER BY n.number
    """)
    async with cluster.stage.db.reading() as connection:
        return list(await rows(connection, statement))


async def _run(cluster: Cluster, *names: str) -> None:
    for name in names:
        await cluster.stage.run(name)
        cluster.stage.clock.advance(2)


async def _due(cluster: Cluster, column: str) -> None:
    async with cluster.stage.db.transaction() as connection:
        await connection.execute(
            text(f"UPDATE nodes SET {column} = :now WHERE state = 'ready'"),
            {"now": cluster.stage.clock.now()},
        )


def _listed(cluster: Cluster, at: str) -> dict[str, tuple[str, ...]]:
    """The keys that a machine lists, each with its ranges."""
    return {peer.public_key: peer.allowed for peer in cluster.members.members[at].peers}


def _relays(cluster: Cluster) -> dict[int, tuple[Peer, ...]]:
    return {number: peers for number, peers in cluster.stage.hub.networks.items() if number >= NETWORKS_MAX}


# Keys


async def test_a_key_that_is_due_is_announced_switched_and_dropped_while_every_end_follows(
    cluster: Cluster,
) -> None:
    owner = await cluster.build()
    await _opened(cluster, (owner, 2))
    before = await _nodes(cluster)
    assert all(node.key_due_at - node.created_at >= KEY_LIFE for node in before)
    assert all(node.handshake_at is not None for node in before), "the age of handshakes is known"
    await _run(cluster, "rotate_node_keys")
    assert [node.next_key for node in await _nodes(cluster)] == [None, None], "before it is due"
    await _due(cluster, "key_due_at")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rotate_node_keys, "CHANGES_MAX", 1)
        await _run(cluster, "rotate_node_keys")
    assert [node.next_key is None for node in await _nodes(cluster)].count(False) == 1, "one at a time"
    changing = next(node for node in await _nodes(cluster) if node.next_key is not None)
    other = next(node for node in await _nodes(cluster) if node.id != changing.id)
    ends = (SERVER, other.address)
    await _run(cluster, "rotate_node_keys")
    machine = cluster.members.members[changing.address]
    assert machine.key == changing.public_key, "nobody lists its next key yet"
    await _run(cluster, "sync_overlay")
    for end in ends:
        assert _listed(cluster, end)[changing.public_key]
        assert _listed(cluster, end)[changing.next_key] == (), "it accepts no packet with it yet"
    await _run(cluster, "rotate_node_keys")
    assert machine.key == changing.next_key
    await _run(cluster, "sync_overlay")
    for end in ends:
        assert _listed(cluster, end)[changing.next_key]
        assert changing.public_key not in _listed(cluster, end)
    await _run(cluster, "rotate_node_keys")
    done = next(node for node in await _nodes(cluster) if node.id == changing.id)
    assert (done.public_key, done.old_key, done.key_holders) == (changing.next_key, None, None)
    assert done.key_due_at - cluster.stage.clock.now() > KEY_LIFE - timedelta(minutes=1)
    await cluster.stage.check()


async def test_a_change_of_key_that_is_killed_at_any_call_cuts_nobody_off_and_comes_to_its_end(
    cluster: Cluster,
) -> None:
    owner = await cluster.build()
    await _opened(cluster, (owner, 2))
    first = {node.public_key for node in await _nodes(cluster)}
    await _due(cluster, "key_due_at")
    calls: set[str] = set()
    when: Literal["before", "after"] = "before"
    at = 1
    for _ in range(100):
        for name in ("rotate_node_keys", "sync_overlay"):
            crash = Crash(at=at, when=when)

            async def activation(world: CompleteWorld, name: str = name) -> None:
                await cluster.stage.run(name, world=world)

            await crash.kills(activation, cluster.stage.replica("doomed"))
            calls.update(crash.calls)
            for node in await _nodes(cluster):
                used = cluster.members.members[node.address].key
                assert used in _listed(cluster, SERVER), "it uses a key that the server does not know"
        when, at = ("after", at) if when == "before" else ("before", at % 12 + 1)
        cluster.stage.clock.advance(timedelta(minutes=6).total_seconds())
        found = await _nodes(cluster)
        if all(node.key_holders is None for node in found) and not first & {
            node.public_key for node in found
        }:
            break
    assert not first & {node.public_key for node in found}, calls
    assert {"make next key", "switch key", "apply peers"} <= calls
    for node in found:
        assert cluster.members.members[node.address].key == node.public_key
        assert all(key not in _listed(cluster, SERVER) for key in first)


async def test_changes_of_keys_and_their_evidence_never_wait_for_each_other_in_a_circle(
    cluster: Cluster,
) -> None:
    """Each side has its first lock before either asks for its second one, unless it has to wait for it already."""
    owner = await cluster.build()
    await _opened(cluster, (owner, 3))
    await _due(cluster, "key_due_at")
    await _run(cluster, "rotate_node_keys")
    others = (overlays, "node_applied"), (overlays, "server_applied")
    await _beside(cluster, ["sync_overlay"], *others)
    assert not [key for node in await _nodes(cluster) for key in node.key_holders], "every end was read once"

    await _run(cluster, "rotate_node_keys")
    await _due(cluster, "tunnels_due_at")
    cluster.members.behind_nat.update(str(node.address) for node in await _nodes(cluster))
    await _run(cluster, "check_tunnels")
    await _due(cluster, "tunnels_due_at")
    stored = (node_tunnels, "store"), (overlays, "server_applied")
    await _beside(cluster, ["sync_overlay", "check_tunnels"], *stored)
    assert not [node.endpoint for node in await _nodes(cluster) if node.endpoint]


async def test_a_node_that_switches_late_and_the_servers_evidence_never_wait_for_each_other_in_a_circle(
    cluster: Cluster,
) -> None:
    owner = await cluster.build()
    await _opened(cluster, (owner, 2))
    node, away = await _nodes(cluster)
    async with cluster.stage.db.transaction() as connection:
        values = {"now": cluster.stage.clock.now(), "id": node.id}
        await connection.execute(text("UPDATE nodes SET key_due_at = :now WHERE id = :id"), values)
    cluster.members.faults.gone.add(str(away.address))
    await _run(cluster, "rotate_node_keys", "sync_overlay")
    cluster.stage.clock.advance(WAITED_FOR.total_seconds())
    places = (overlays, "soon"), (node_keys, "switched"), (overlays, "server_applied")
    await _beside(cluster, ["sync_overlay", "rotate_node_keys"], *places)
    assert cluster.members.members[node.address].key != node.public_key


async def _beside(cluster: Cluster, names: list[str], *places: tuple[ModuleType, str]) -> None:
    """Run loops side by side. The first two transactions that come to one of these functions go on together."""
    both = asyncio.Barrier(2)
    seen: set[object] = set()

    def meeting(locks: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def lock(connection: object, *args: object, **values: object) -> object:
            found = await locks(connection, *args, **values)
            if connection not in seen and len(seen) < both.parties:
                seen.add(connection)
                with suppress(TimeoutError, asyncio.BrokenBarrierError):
                    async with asyncio.timeout(0.2):  # The other one waits in PostgreSQL, or does not come.
                        await both.wait()
            return found

        return lock

    with pytest.MonkeyPatch.context() as patch:
        for module, name in places:
            patch.setattr(module, name, meeting(getattr(module, name)))
        found = await asyncio.gather(*(cluster.stage.run(name) for name in names))
    assert not [error for reports in found for report in reports for error in report.errors]
    cluster.stage.clock.advance(2)


async def test_a_node_that_leaves_while_its_key_changes_has_all_its_keys_removed(cluster: Cluster) -> None:
    owner = await cluster.build()
    (pool,) = await _opened(cluster, (owner, 3))
    await _due(cluster, "key_due_at")
    announced, switched, kept = await _nodes(cluster)
    async with cluster.stage.db.transaction() as connection:
        later = {"now": cluster.stage.clock.now() + timedelta(days=9), "ids": [announced.id, kept.id]}
        await connection.execute(text("UPDATE nodes SET key_due_at = :now WHERE id = ANY(:ids)"), later)
    await _run(cluster, "rotate_node_keys", "sync_overlay", "rotate_node_keys")
    await _due(cluster, "key_due_at")
    async with cluster.stage.db.transaction() as connection:
        await connection.execute(
            text("UPDATE nodes SET key_due_at = :now WHERE id = :id"), {"now": later["now"], "id": kept.id}
        )
    await _run(cluster, "rotate_node_keys")
    announced, switched, kept = await _nodes(cluster)
    assert announced.next_key
    assert switched.old_key
    gone = {announced.public_key, announced.next_key, switched.public_key, switched.old_key}
    assert gone & set(_listed(cluster, kept.address))
    cluster.members.faults.gone.add(str(kept.address))
    for lease in await node_pools.members(cluster.stage, pool):
        if lease.id != kept.lease_id:
            await node_pools.lose(cluster.stage, lease)
    await cluster.play(6 * 60, step=20)
    assert "cut_off" not in await cluster.steps(), "one of them was not read yet"
    cluster.members.faults.gone.clear()
    await cluster.play(150, step=10)  # A member that failed is tried again after two minutes at most.
    assert (await cluster.steps()).count("cut_off") == 2
    for end in (SERVER, kept.address):
        assert not gone & set(_listed(cluster, end))


async def test_a_machine_that_is_away_holds_up_a_change_of_key_for_a_day_and_a_server_for_ever(
    cluster: Cluster,
) -> None:
    owner = await cluster.build()
    await _opened(cluster, (owner, 2))
    node, away = await _nodes(cluster)
    async with cluster.stage.db.transaction() as connection:
        values = {"now": cluster.stage.clock.now(), "id": node.id}
        await connection.execute(text("UPDATE nodes SET key_due_at = :now WHERE id = :id"), values)
    cluster.members.faults.gone.update({SERVER, str(away.address)})
    await _run(cluster, "rotate_node_keys", "sync_overlay", "rotate_node_keys")
    cluster.stage.clock.advance(WAITED_FOR.total_seconds())
    await _run(cluster, "sync_overlay", "rotate_node_keys")
    assert cluster.members.members[node.address].key == node.public_key, (
        "without the server it would be cut off"
    )
    cluster.members.faults.gone.discard(SERVER)
    cluster.stage.clock.advance(60)
    await _run(cluster, "sync_overlay", "rotate_node_keys")
    assert cluster.members.members[node.address].key != node.public_key, "a day is over"


async def test_a_machine_whose_next_key_is_anothers_is_hostile_and_one_that_lost_it_makes_another(
    cluster: Cluster,
) -> None:
    owner = await cluster.build()
    (pool,) = await _opened(cluster, (owner, 2))
    liar, forgetful = await _nodes(cluster)
    members = cluster.members.members
    members[liar.address].next_key = members[SERVER].key
    await _due(cluster, "key_due_at")
    await _run(cluster, "rotate_node_keys", "sync_overlay")
    first = (await _nodes(cluster))[1].next_key
    members[forgetful.address].next_key = None
    await _run(cluster, "rotate_node_keys")
    cluster.stage.clock.advance(60)
    await _run(cluster, "rotate_node_keys", "sync_overlay", "rotate_node_keys")
    assert members[forgetful.address].key not in {first, forgetful.public_key}
    leases = await node_pools.members(cluster.stage, pool)
    assert sorted(lease.state for lease in leases) == [LeaseState.ENDING, LeaseState.READY]
    (lease,) = [lease for lease in leases if lease.state is not LeaseState.READY]
    assert "key of a member" in str((await cluster.stage.attempts(lease))[0].fail_why)


async def test_when_many_machines_have_next_keys_of_others_at_once_none_is_ended_and_operators_are_told(
    cluster: Cluster,
) -> None:
    owner = await cluster.build()
    (pool,) = await _opened(cluster, (owner, 3))
    members = cluster.members.members
    for node in await _nodes(cluster):
        members[node.address].next_key = members[SERVER].key
    await _due(cluster, "key_due_at")
    (report,) = await cluster.stage.run("rotate_node_keys")
    (error,) = report.errors
    assert error.startswith("eu-1: 3 nodes have next keys of other members, so none is ended; node-")
    leases = await node_pools.members(cluster.stage, pool)
    assert {lease.state for lease in leases} == {LeaseState.READY}
    assert all(node.key_due_at > cluster.stage.clock.now() for node in await _nodes(cluster))


# Relays


async def test_nodes_behind_nat_meet_at_a_relay_of_their_own_organization_and_it_goes_with_them(
    cluster: Cluster,
) -> None:
    one, other = await cluster.build(), await cluster.stage.organization()
    pools = await _opened(cluster, (one, 2), (other, 2))
    assert not _relays(cluster), "all of them were heard from outside"
    cluster.members.behind_nat.update(str(node.address) for node in await _nodes(cluster))
    await _due(cluster, "tunnels_due_at")
    await _run(cluster, "check_tunnels")
    assert all(node.endpoint for node in await _nodes(cluster)), "one look may have lost its packets"
    cluster.stage.clock.advance(300)
    await _run(cluster, "check_tunnels", "sync_overlay")
    found = await _nodes(cluster)
    assert [node.endpoint for node in found] == [None] * 4
    keys = {
        owner: {node.public_key for node in found if node.organization_id == owner} for owner in (one, other)
    }
    assert {frozenset(peer.public_key for peer in peers) for peers in _relays(cluster).values()} == {
        frozenset(keys[one]),
        frozenset(keys[other]),
    }
    async with cluster.stage.db.reading() as connection:
        stored = {row.organization_id: row for row in await rows(connection, text("SELECT * FROM relays"))}
    for node in found:
        listed = _listed(cluster, node.address)
        assert set(listed) == {
            cluster.members.members[SERVER].key,
            stored[node.organization_id].public_key,
        }, "through the relay of its own organization, and no other"
        assert len(listed[stored[node.organization_id].public_key]) == 2, "the other node, and its pods"

    cluster.stage.clock.advance(READ_AGAIN_AFTER.total_seconds())
    hub = cluster.stage.hub
    hub.fail_next = [Unreachable("no route to the hub")] * 2
    before = await _nodes(cluster)
    await _run(cluster, "sync_overlay")
    assert len(hub.fail_next) == 1, "the members do not wait for it once for each relay"
    now = [node.peers_read_at for node in await _nodes(cluster)]
    assert all(read_at > node.peers_read_at for read_at, node in zip(now, before, strict=True))

    await _a_node_leaves(cluster, pools[0], keys[one])
    assert [len(peers) for peers in _relays(cluster).values()] == [2], "the other organization's stays"
    await node_pools.delete(cluster.stage, pools[1])
    await cluster.play(60)
    await cluster.play(KEPT_FOR.total_seconds() + 60, step=60)
    assert not _relays(cluster)
    await cluster.stage.check()


async def _a_node_leaves(cluster: Cluster, pool: NodePool, keys: set[str]) -> None:
    """It is not cut off before the relay was told, and the relay that nobody needs any more goes."""
    hub = cluster.stage.hub
    hub.fail_next = [Unreachable("no route to the hub")] * 100
    await node_pools.scale(cluster.stage, await node_pools.stored(cluster.stage, pool.id), 1)
    await cluster.play(60)
    assert "cut_off" not in await cluster.steps(), "the relay may still let it in"
    hub.fail_next = []
    await cluster.play(30)
    assert "cut_off" in await cluster.steps()
    assert not keys & {peer.public_key for peers in hub.networks.values() for peer in peers}
    await cluster.play(KEPT_FOR.total_seconds() + 60, step=60)


async def test_a_relay_is_told_of_its_nodes_before_they_are_told_of_it(cluster: Cluster) -> None:
    owner = await cluster.build()
    await _opened(cluster, (owner, 2))
    addresses = [str(node.address) for node in await _nodes(cluster)]
    cluster.members.behind_nat.update(addresses)
    for _ in range(2):
        await _due(cluster, "tunnels_due_at")
        await _run(cluster, "check_tunnels")
    hub = cluster.stage.hub
    told = hub.sync

    async def sync(network: Network, peers: tuple[Peer, ...]) -> object:
        for address in addresses:
            assert all("/32" in allowed[0] for allowed in _listed(cluster, address).values())
            assert not any(
                peer.endpoint and peer.endpoint.startswith(hub.host)
                for peer in cluster.members.members[address].peers
            ), "it knows a relay that does not know it"
        return await told(network, peers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub, "sync", sync)
        await _run(cluster, "sync_overlay")
    assert all(len(_listed(cluster, address)) == 2 for address in addresses)


async def test_a_node_that_was_wrongly_taken_for_one_behind_nat_is_reached_directly_an_hour_later(
    cluster: Cluster,
) -> None:
    owner = await cluster.build()
    await node_pools.pool(cluster.stage, owner, nodes=1)
    address = await cluster.first_address()
    cluster.members.behind_nat.add(address)
    await cluster.play_until(lambda: cluster.open_nodes)
    await cluster.play(10)
    (node,) = await _nodes(cluster)
    assert node.endpoint is None
    statement = text("SELECT evidence FROM node_steps WHERE step = 'tunnelled'")
    async with cluster.stage.db.reading() as connection:
        (step,) = await rows(connection, statement)
    assert step.evidence["heard_from_outside"] is False
    assert step.evidence["looked_for_at"] == f"{address}:51820"
    cluster.members.behind_nat.clear()
    cluster.stage.clock.advance(3_600)
    await _run(cluster, "check_tunnels", "sync_overlay")
    (node,) = await _nodes(cluster)
    assert node.endpoint == f"{address}:51820"
    (peer,) = [peer for peer in cluster.members.members[SERVER].peers if peer.public_key == node.public_key]
    assert peer.endpoint == node.endpoint


# Paths


async def test_a_machine_whose_path_loses_large_packets_is_not_opened_and_an_open_one_is_shown(
    cluster: Cluster,
) -> None:
    owner = await cluster.build()
    pool = await node_pools.pool(cluster.stage, owner, nodes=1)
    narrow = await cluster.first_address()
    cluster.members.packets[narrow] = 1_340
    await cluster.play_until(lambda: cluster.open_nodes)
    await cluster.play(60)
    (lease,) = await node_pools.members(cluster.stage, pool)
    _, second = await cluster.stage.attempts(lease)
    machine = (await cluster.stage.machines(lease))[0]
    assert "more than 1340 bytes are lost" in str(machine.fail_why)
    assert second.outcome == "admitted"
    (node,) = [node for node in await _nodes(cluster) if node.address != narrow]
    cluster.members.packets[node.address] = 1_380
    await _due(cluster, "tunnels_due_at")
    await _run(cluster, "check_tunnels")
    (node,) = [node for node in await _nodes(cluster) if node.address != narrow]
    assert node.tunnels["largest_packet"] == 1_380
    assert "more than 1380 bytes are lost" in node.tunnels["problem"]
    assert (await cluster.stage.lease_row(lease)).state is LeaseState.READY, "nothing ends because of it"
