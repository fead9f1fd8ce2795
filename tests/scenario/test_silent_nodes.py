"""Who pays for a node that is not ready, and when it is given up (docs/decisions/0057-silent-nodes.md)."""

import dataclasses
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text

from control_plane.domain.lease import Lease, LeaseState
from control_plane.domain.node_pool import NodePool
from data_plane.cluster.objects.device_plugin import DevicePlugin
from tests.support import node_pools
from tests.support.node_cluster import Cluster
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database
PLUGIN = DevicePlugin("registry.invalid/plugin@sha256:" + "0" * 64, is_at_hand=True)
MINUTE = timedelta(minutes=1)
LOOK = timedelta(minutes=4)
"""How often the loops work here."""


@pytest.fixture
def cluster(stage: Stage) -> Cluster:
    return Cluster(stage)


async def _opened(cluster: Cluster, nodes: int) -> NodePool:
    organization_id = await cluster.build()
    pool = await node_pools.pool(cluster.stage, organization_id, nodes=nodes)
    await cluster.play_until(lambda: len(cluster.open_nodes) == nodes)
    await cluster.play(20)
    return pool


async def _play(cluster: Cluster, minutes: float) -> None:
    """Time passes, and the loops that meter and rate work, too."""
    for _ in range(int(minutes / 4)):
        await cluster.play(240, step=240)
        for loop in ("meter_usage", "rate_usage", "fund_leases"):
            await cluster.stage.run(loop)


async def _charged_until(cluster: Cluster, lease: Lease) -> timedelta:
    """How much of the use of a lease is charged."""
    statement = text("SELECT coalesce(sum(unit_seconds), 0) AS n FROM charges WHERE lease_id = :id")
    async with cluster.stage.db.reading() as connection:
        (row,) = await rows(connection, statement, id=lease.id)
    return timedelta(seconds=int(row.n))


async def _begun(cluster: Cluster, pool: NodePool) -> tuple[Lease, datetime, str]:
    """The first node: its lease, when that began, and the address of its machine."""
    lease = (await node_pools.members(cluster.stage, pool))[0]
    (machine,) = await cluster.stage.machines(lease)
    assert lease.ready_at is not None
    return lease, lease.ready_at, str(machine.address)


async def test_a_lost_node_is_not_charged_from_when_it_was_not_ready_and_one_that_comes_back_is_charged_for_all(
    cluster: Cluster,
) -> None:
    """Also across full hours. A kubelet that says `False` is worth no more than one that says nothing (law 11)."""
    pool = await _opened(cluster, 3)
    stage = cluster.stage
    *lost, back = await node_pools.members(stage, pool)
    words = zip([*lost, back], ("Unknown", "False", "Unknown"), strict=True)
    await _play(cluster, 20)
    broken_at = stage.clock.now()
    for lease, word in words:
        cluster.kubelets.ready[str((await stage.machines(lease))[0].address)] = word
        if lease != back:
            continue
        await _play(cluster, 52)
        assert lease.ready_at is not None
        assert await _charged_until(cluster, lease) <= broken_at + LOOK - lease.ready_at, "nobody knows yet"
        del cluster.kubelets.ready[str((await stage.machines(lease))[0].address)]
    await _play(cluster, 60)
    for lease in lost:
        row = await stage.lease_row(lease)
        assert row.state in {LeaseState.ENDING, LeaseState.ENDED}, "it was replaced after an hour"
        assert row.billed_until is not None
        assert lease.ready_at is not None
        assert row.billed_until <= broken_at + LOOK
        assert await _charged_until(cluster, lease) <= broken_at + LOOK - lease.ready_at
    assert (await stage.lease_row(back)).state is LeaseState.READY
    assert await _charged_until(cluster, back) > 100 * MINUTE, "its pods may have run on"
    await stage.check()


async def test_letting_go_of_a_node_that_is_not_ready_costs_no_more_than_waiting_until_it_is_given_up(
    cluster: Cluster,
) -> None:
    pool = await _opened(cluster, 2)
    stage = cluster.stage
    lease, ready_at, address = await _begun(cluster, pool)
    await _play(cluster, 12)
    broken_at = stage.clock.now()
    cluster.kubelets.ready[address] = "Unknown"
    await _play(cluster, 52)
    assert (await stage.lease_row(lease)).state is LeaseState.READY
    await node_pools.delete(stage, pool)
    await _play(cluster, 40)
    row = await stage.lease_row(lease)
    assert row.billed_until is not None
    assert row.billed_until <= broken_at + LOOK
    assert await _charged_until(cluster, lease) <= broken_at + LOOK - ready_at
    async with stage.db.reading() as connection:
        statement = text("SELECT why FROM journal WHERE event = 'use_not_billed'")
        said = {row.why for row in await rows(connection, statement)}
    assert any("its node was not ready" in why for why in said), said
    await stage.check()


async def test_a_node_that_is_alone_is_given_up_for_what_we_see_ourselves_and_not_while_our_side_may_be_broken(
    cluster: Cluster,
) -> None:
    pool = await _opened(cluster, 1)
    stage = cluster.stage
    (first,) = cluster.open_nodes
    lease, ready_at, address = await _begun(cluster, pool)
    broken_at = stage.clock.now()
    cluster.kubelets.ready[address] = "Unknown"
    cluster.members.deaf.add(address)
    await _play(cluster, 80)
    assert (await stage.lease_row(lease)).state is LeaseState.READY, (
        "its machine answers, and no tunnel works"
    )
    cluster.members.faults.gone.update({address, "eu-1.internal"})
    await _play(cluster, 12)
    assert (await stage.lease_row(lease)).state is LeaseState.READY, "our server does not answer either"
    assert await _charged_until(cluster, lease) <= broken_at + LOOK - ready_at, "nobody pays meanwhile"
    cluster.members.faults.gone.clear()
    cluster.members.deaf.clear()
    await _play(cluster, 4)
    assert (await stage.lease_row(lease)).state in {LeaseState.ENDING, LeaseState.ENDED}, "its tunnel works"
    await cluster.play_until(
        lambda: any(node["metadata"]["uid"] != first["metadata"]["uid"] for node in cluster.open_nodes)
    )
    await cluster.play(20)
    (lease,) = [each for each in await node_pools.members(stage, pool) if each.id != lease.id]
    (machine,) = await stage.machines(lease)
    cluster.members.faults.gone.add(str(machine.address))
    cluster.members.deaf.add(str(machine.address))
    await _play(cluster, 56)
    assert (await stage.lease_row(lease)).state is LeaseState.READY
    await _play(cluster, 16)
    assert (await stage.lease_row(lease)).state in {LeaseState.ENDING, LeaseState.ENDED}, "nobody reaches it"
    await stage.check()


async def test_a_node_whose_pods_get_no_gpus_is_not_charged_and_is_replaced_unless_no_node_gives_them(
    cluster: Cluster,
) -> None:
    stage = cluster.stage
    stage.world = dataclasses.replace(stage.world, device_plugin=PLUGIN)
    organization_id = await cluster.build()
    cluster.kubelets.gpus = 1
    pool = await node_pools.pool(stage, organization_id, nodes=2)
    await cluster.play_until(lambda: len(cluster.open_nodes) == 2)
    await cluster.play(20)
    lease, ready_at, address = await _begun(cluster, pool)
    lost_at = stage.clock.now()
    cluster.kubelets.gpus = 0
    await _play(cluster, 88)
    leases = await node_pools.members(stage, pool)
    assert [each.state for each in leases] == [LeaseState.READY] * 2, "the device plugin may be at fault"
    assert await _charged_until(cluster, lease) <= lost_at + LOOK - ready_at
    cluster.kubelets.gpus = 1
    cluster.kubelets.claims[address] = {"nvidia.com/gpu": "0"}
    await _play(cluster, 4)
    assert (await stage.lease_row(lease)).state in {LeaseState.ENDING, LeaseState.ENDED}
    assert (await stage.lease_row(lease)).billed_until <= lost_at + LOOK  # type: ignore[operator] # It has ended.
    await stage.check()
