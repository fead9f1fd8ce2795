"""Node pools from the request to the last machine: all or none, replaced, scaled, given up, deleted."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from control_plane.db import server_hosts
from control_plane.domain.decision import Action, Verdict
from control_plane.domain.envelope import Envelope
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import LIVE, EndReason, Lease, LeaseKind, LeaseState
from control_plane.domain.node_pool import REPLACEMENT_WAIT_SECONDS, NodePool, NodePoolState
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.services import admissions
from control_plane.services.admissions import Decided
from control_plane.services.node_pools import PoolOverview
from reconciler.loops.clusters import scale_pools
from tests.support import clusters
from tests.support import node_pools as pools
from tests.support.stage import Stage

pytestmark = pytest.mark.database

S, L = NodePoolState, LeaseState


async def _organization(stage: Stage, **terms: int) -> OrganizationId:
    """An organization, and the ready cluster eu-1 that it may use."""
    organization_id = await stage.organization(**terms)
    await stage.operators()
    await clusters.created(stage, "eu-1")
    await stage.run("build_clusters")
    return organization_id


async def _live(stage: Stage, pool: NodePool) -> list[Lease]:
    return [lease for lease in await pools.members(stage, pool) if lease.state in LIVE]


async def _decisions(stage: Stage, organization_id: OrganizationId, *actions: Action) -> list[Decided]:
    found = await admissions.page(stage.api, organization_id, limit=100)
    return [each for each in found if each.action in actions]


async def test_the_leases_of_all_nodes_are_admitted_by_one_decision_and_none_is_for_logging_in(
    stage: Stage,
) -> None:
    organization_id = await _organization(stage)
    pool = await pools.pool(stage, organization_id, nodes=3)
    leases = await _live(stage, pool)
    assert len(leases) == 3
    assert {(lease.kind, lease.node_pool, lease.cluster, lease.network_id) for lease in leases} == {
        (LeaseKind.NODE, "train", "eu-1", None)
    }
    decided = await _decisions(stage, organization_id, Action.NODE_POOL_CREATE)
    assert {each.lease_id for each in decided} == {lease.id for lease in leases}
    wanted = {spoken.wanted for each in decided for spoken in each.rules if spoken.rule == "gpus"}
    assert wanted == {"3"}, "the decision is about all of them together"


async def test_a_pool_that_does_not_fit_as_a_whole_stores_nothing(stage: Stage) -> None:
    organization_id = await _organization(stage, gpu_quota=3)
    refused = await pools.try_pool(stage, organization_id, nodes=4)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.QUOTA_EXCEEDED
    assert await stage.states() == {}
    made = await pools.pool(stage, organization_id, nodes=3)  # The name is free, and so is the quota.
    refused = await pools.scale(stage, made, 4)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.QUOTA_EXCEEDED
    assert (await pools.stored(stage, made.id)).nodes == 3
    assert len(await _live(stage, made)) == 3


async def test_a_pool_that_is_not_ready_in_time_ends_with_all_its_leases_and_nobody_pays(
    stage: Stage,
) -> None:
    organization_id = await _organization(stage)
    pool = await pools.pool(stage, organization_id, nodes=2, wait_timeout_seconds=60)
    await stage.run("scale_pools")
    assert (await pools.stored(stage, pool.id)).state is S.PENDING
    stage.clock.advance(61)
    await stage.run("scale_pools")
    given_up = await pools.stored(stage, pool.id)
    assert given_up.state is S.DELETING
    assert given_up.why is not None
    assert "60 seconds" in given_up.why
    leases = await pools.members(stage, pool)
    assert {lease.end_reason for lease in leases} == {EndReason.NO_CAPACITY}
    assert {lease.ready_at for lease in leases} == {None}
    await stage.finish()
    await stage.run("scale_pools")
    assert (await pools.stored(stage, pool.id)).state is S.GONE


async def test_a_late_loop_gives_a_pool_more_time_instead_of_giving_it_up(stage: Stage) -> None:
    organization_id = await _organization(stage)
    pool = await pools.pool(stage, organization_id, wait_timeout_seconds=60)
    stage.clock.advance(3_600)
    await stage.run("scale_pools")
    late = await pools.stored(stage, pool.id)
    assert late.state is S.PENDING
    assert late.due_at > stage.clock.now()
    stage.clock.advance((late.due_at - stage.clock.now()).total_seconds())
    await stage.run("scale_pools")
    assert (await pools.stored(stage, pool.id)).state is S.DELETING


async def _ready(stage: Stage, organization_id: OrganizationId, nodes: int = 2) -> NodePool:
    pool = await pools.pool(stage, organization_id, nodes=nodes)
    for _ in range(200):
        if {lease.state for lease in await _live(stage, pool)} == {L.STARTING}:
            break
        await stage.play(1)
    return await pools.opened(stage, pool)


async def test_what_is_lost_is_replaced_and_its_lease_waits_for_stock(stage: Stage) -> None:
    organization_id = await _organization(stage)
    pool = await _ready(stage, organization_id)
    first, second = await _live(stage, pool)
    await pools.lose(stage, first)
    await stage.run("scale_pools")
    kept, new = await _live(stage, pool)
    assert kept.id == second.id
    assert new.wait_timeout_seconds == REPLACEMENT_WAIT_SECONDS
    assert [each.lease_id for each in await _decisions(stage, organization_id, Action.NODE_REPLACE)] == [
        new.id
    ]
    await stage.run("scale_pools")
    assert len(await _live(stage, pool)) == 2, "it is replaced once"


async def test_a_replacement_that_is_refused_shows_at_the_pool_and_is_tried_again(stage: Stage) -> None:
    organization_id = await _organization(stage)
    pool = await _ready(stage, organization_id, nodes=3)
    lost = (await _live(stage, pool))[:2]
    for lease in lost:
        await pools.lose(stage, lease)
    await stage.narrow(organization_id, Envelope(gpus=2))
    for _ in range(5):
        await stage.run("scale_pools")
        stage.clock.advance(31)
    assert len(await _live(stage, pool)) == 2, "one of the two is within the limit"
    waiting = await pools.stored(stage, pool.id)
    assert waiting.waiting_code is RefusalCode.QUOTA_EXCEEDED
    assert waiting.waiting_since is not None
    assert stage.clock.now() - waiting.waiting_since > timedelta(minutes=2)
    decided = await _decisions(stage, organization_id, Action.NODE_REPLACE)
    assert Counter(each.outcome for each in decided) == {Verdict.ALLOWED: 1, Verdict.REFUSED: 1}
    await stage.narrow(organization_id, Envelope(gpus=3))
    await stage.run("scale_pools")
    assert len(await _live(stage, pool)) == 3
    assert (await pools.stored(stage, pool.id)).waiting_code is None


async def test_growing_is_admitted_as_a_whole_and_shrinking_stops_the_bill_at_once(stage: Stage) -> None:
    organization_id = await _organization(stage)
    pool = await _ready(stage, organization_id)
    old = {lease.id for lease in await _live(stage, pool)}
    grown = await pools.scale(stage, pool, 4)
    assert isinstance(grown, PoolOverview)
    assert (grown.counts.leases, grown.counts.ready) == (4, 2)
    assert len(await _decisions(stage, organization_id, Action.NODE_POOL_SCALE)) == 2
    shrunk = await pools.scale(stage, pool, 1)
    assert isinstance(shrunk, PoolOverview)
    (left,) = await _live(stage, pool)
    assert left.id in old, "what has run longest stays"
    ended = [lease for lease in await pools.members(stage, pool) if lease.id in old - {left.id}]
    assert [lease.billed_until for lease in ended] == [stage.clock.now()]
    assert ended[0].end_why == "the node pool train was scaled to 1 node"
    await stage.run("scale_pools")
    assert len(await _live(stage, pool)) == 1


async def test_a_suspended_organization_gets_no_replacement_until_it_is_resumed(stage: Stage) -> None:
    organization_id = await _organization(stage)
    pool = await _ready(stage, organization_id)
    await stage.suspend_organization(organization_id, end_leases=True)
    await stage.run("scale_pools")
    assert await _live(stage, pool) == []
    assert (await pools.stored(stage, pool.id)).waiting_code is RefusalCode.ORGANIZATION_SUSPENDED
    await stage.resume_organization(organization_id)
    stage.clock.advance(31)
    await stage.run("scale_pools")
    assert len(await _live(stage, pool)) == 2


async def test_a_pool_ends_with_its_organization(stage: Stage) -> None:
    organization_id = await _organization(stage)
    pool = await pools.pool(stage, organization_id)
    await stage.close_organization(organization_id)
    await stage.run("scale_pools")
    ended = await pools.stored(stage, pool.id)
    assert (ended.state, ended.why) == (S.DELETING, "the organization is closed")


async def test_a_cluster_is_dismantled_only_after_its_pools_are_gone(stage: Stage) -> None:
    organization_id = await _organization(stage)
    pool = await _ready(stage, organization_id)
    await clusters.deleted(stage, "eu-1")
    await stage.run("dismantle_clusters")
    await stage.run("scale_pools")
    assert (await pools.stored(stage, pool.id)).why == "the cluster eu-1 is being deleted"
    assert {lease.end_reason for lease in await pools.members(stage, pool)} == {EndReason.RELEASED}
    await stage.run("dismantle_clusters")
    assert await _hosts(stage) == ["eu-1"], "its machines may still be nodes"
    await stage.finish()
    await stage.run("scale_pools")
    assert (await pools.stored(stage, pool.id)).state is S.GONE
    await stage.run("dismantle_clusters")
    assert await _hosts(stage) == [None]


async def test_a_pool_that_waits_because_its_leases_fail_is_scaled_and_deleted_at_once(stage: Stage) -> None:
    organization_id = await _organization(stage)
    pool = await _ready(stage, organization_id, nodes=3)
    for lease in (await _live(stage, pool))[:2]:
        await pools.lose(stage, lease)
    await stage.run("scale_pools")
    assert (await pools.stored(stage, pool.id)).waiting_code is RefusalCode.NODE_POOL_FAILING
    scaled = await pools.scale(stage, pool, 1)
    assert isinstance(scaled, PoolOverview)
    assert (scaled.pool.waiting_code, scaled.pool.waiting_since, scaled.pool.waiting_why) == (
        None,
        None,
        None,
    )
    await clusters.deleted(stage, "eu-1")
    stage.clock.advance(31)
    await stage.run("scale_pools")
    assert (await pools.stored(stage, pool.id)).state is S.DELETING


async def _hosts(stage: Stage) -> list[str | None]:
    async with stage.db.reading() as connection:
        return [host.cluster_name for host in await server_hosts.every(connection)]


async def test_two_replicas_replace_a_lost_node_once(stage: Stage) -> None:
    organization_id = await _organization(stage)
    pool = await _ready(stage, organization_id)
    await pools.lose(stage, (await _live(stage, pool))[0])
    await asyncio.gather(*(scale_pools.activate(stage.replica(name)) for name in ("a", "b", "c")))
    assert len(await _live(stage, pool)) == 2


async def test_a_deleted_pool_is_gone_when_its_machines_are(stage: Stage) -> None:
    organization_id = await _organization(stage)
    pool = await _ready(stage, organization_id)
    deleted = await pools.delete(stage, pool)
    assert (deleted.pool.state, deleted.counts.leases, deleted.counts.ending) == (S.DELETING, 0, 2)
    again = await pools.delete(stage, pool)
    assert again.pool.generation == deleted.pool.generation
    refused = await pools.scale(stage, pool, 3)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.NODE_POOL_DELETING
    await stage.run("scale_pools")
    assert (await pools.stored(stage, pool.id)).state is S.DELETING
    await stage.finish()
    await stage.run("scale_pools")
    gone = await pools.stored(stage, pool.id)
    assert (gone.state, gone.gone_at) == (S.GONE, stage.clock.now())
    assert isinstance(await pools.try_pool(stage, organization_id), PoolOverview), "the name is free again"
