"""Nodes whose machines are not healthy, or are announced to go: what their owners are told, and how pools replace them."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text

from control_plane.db import health, node_pools
from control_plane.domain.lease import LIVE, EndReason, Lease, LeaseState
from control_plane.domain.machine import Machine
from control_plane.domain.node import DRAIN_MAX, LeaveReason
from control_plane.domain.node_pool import NodePool
from control_plane.domain.notice import NoticeKind
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sla import SlaTier
from control_plane.domain.sla_clock import Promise
from control_plane.services.node_pools import PoolOverview, WantedPool
from data_plane.documents.sample import Gpu
from tests.support import machine_samples
from tests.support import node_pools as pools
from tests.support.faults import LOST, planned_by_provider, shows, taken_out, wants_a_spare
from tests.support.machine_samples import JUST_SETTLED
from tests.support.node_cluster import OTHERS, Cluster
from tests.support.promises import put_terms_in_force
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database
UNPLAYED = OTHERS - {
    "read_planned_work",
    *("judge_health", "look_at_machines", "repair_machines", "order_spares", "keep_pools"),
    *("judge_promises", "meter_usage", "rate_usage", "fund_leases"),
}


@pytest.fixture
def cluster(stage: Stage) -> Cluster:
    return Cluster(stage)


async def _opened(cluster: Cluster, tier: SlaTier, nodes: int = 2) -> NodePool:
    """A pool of this tier that is ready."""
    organization_id = await cluster.build()
    wanted = WantedPool("eu-1", "train", CapacityRequest("h100x1", sla=tier), nodes)
    made = await pools.try_wanted(cluster.stage, organization_id, wanted)
    assert isinstance(made, PoolOverview), made
    await cluster.play_until(lambda: len(cluster.open_nodes) == nodes)
    await cluster.play(20)
    return made.pool


async def _break(cluster: Cluster, lease: Lease) -> None:
    """The only GPU of a node does not answer: its agent says so, and a look of ours shows it."""
    (machine,) = await cluster.stage.machines(lease)
    shows(cluster.stage, machine, LOST)
    await machine_samples.sent(cluster.stage, lease, Gpu(0, lost=True))
    cluster.stage.clock.advance(JUST_SETTLED.total_seconds())


async def _play_until(
    cluster: Cluster, done: Callable[[Lease], bool], lease: Lease, *, seconds_max: int, step: int = 10
) -> Lease:
    """Play until it is so of a lease."""
    for _ in range(seconds_max // step):
        row = await cluster.stage.lease_row(lease)
        if done(row):
            return row
        await cluster.stage.play(step, step=step, without=UNPLAYED)
    raise AssertionError(f"not within {seconds_max} s: {await cluster.stage.story(lease)}")


def _is_over(lease: Lease) -> bool:
    return lease.state not in LIVE


async def _left(cluster: Cluster, lease: Lease) -> tuple[str, str, datetime, list[str]]:
    """Why the node of a lease left, when that began, and by which steps."""
    about = text("""
    SELECT n.leave_reason, n.leave_why, n.leaving_at, (
      SELECT array_agg(s.step ORDER BY s.at, s.xmin::text::bigint) FROM node_steps s WHERE s.node_id = n.id
        AND s.at >= n.leaving_at) AS steps
    FROM nodes n WHERE n.lease_id = :id
    """)
    async with cluster.stage.db.reading() as connection:
        (row,) = await rows(connection, about, id=lease.id)
    return row.leave_reason, row.leave_why, row.leaving_at, row.steps or []


async def _notices(cluster: Cluster, lease: Lease) -> list[health.Notice]:
    async with cluster.stage.db.reading() as connection:
        found = await health.notices_of_lease(connection, lease.id, before=None, limit=50)
    return found[::-1]


async def _reserved(cluster: Cluster) -> int:
    async with cluster.stage.db.reading() as connection:
        (row,) = await rows(
            connection, text("SELECT count(*) AS n FROM machines WHERE reserved_for IS NOT NULL")
        )
    return int(row.n)


async def _live(cluster: Cluster, pool: NodePool) -> list[Lease]:
    return [lease for lease in await pools.members(cluster.stage, pool) if lease.state in LIVE]


async def test_a_faulty_node_is_drained_and_replaced_and_nobody_is_asked_for_what_is_refused(
    cluster: Cluster,
) -> None:
    """Also of the tier that promises no replacement: a lease of a node can be neither rebooted nor replaced."""
    pool = await _opened(cluster, SlaTier.BRONZE)
    broken, kept = await pools.members(cluster.stage, pool)
    await _break(cluster, broken)
    ended = await _play_until(cluster, _is_over, broken, seconds_max=1_200)
    told = await _notices(cluster, broken)
    assert [notice.kind for notice in told] == [
        NoticeKind.FAULT_FOUND,
        NoticeKind.REPLACEMENT_PLANNED,
        NoticeKind.REPLACED,
    ]
    planned, replaced = told[1:]
    assert "The node pool train replaces this node." in planned.message
    assert "nothing that you have to do" in planned.message
    assert "the node pool train replaces it; its lease ends" in replaced.message
    assert not [notice for notice in told if "splitplane lease" in notice.message]
    assert planned.planned_at is not None
    assert planned.planned_at <= replaced.at, "not before it was said"
    assert (ended.end_reason, ended.billed_until) == (EndReason.MACHINE_LOST, replaced.at)

    await cluster.stage.play(600, step=10, without=UNPLAYED)
    reason, why, _, steps = await _left(cluster, broken)
    assert reason == LeaveReason.TAKEN_AWAY
    assert "a GPU does not answer" in why
    assert steps == ["cordoned", "drained", "cut_off", "deleted", "cleaned"]
    assert (await cluster.stage.lease_row(kept)).state is LeaseState.READY
    assert len(await _live(cluster, pool)) == 2
    await cluster.play_until(lambda: len(cluster.open_nodes) == 2)
    assert await _reserved(cluster) == 0
    await cluster.stage.check()


async def test_where_the_tier_promises_it_the_pool_has_another_node_before_the_faulty_one_goes(
    cluster: Cluster,
) -> None:
    await put_terms_in_force(cluster.stage)
    pool = await _opened(cluster, SlaTier.GOLD)
    broken, _ = await pools.members(cluster.stage, pool)
    await _break(cluster, broken)
    ready_when_it_ended: list[int] = []

    def over(row: Lease) -> bool:
        if not _is_over(row):
            ready_when_it_ended[:] = [len(cluster.open_nodes)]
        return _is_over(row)

    ended = await _play_until(cluster, over, broken, seconds_max=2_400)
    assert ready_when_it_ended == [3]
    assert "once it has another node in its place" in (await _notices(cluster, broken))[1].message
    assert len(await pools.members(cluster.stage, pool)) == 3, "one was bought, and no other one as a spare"
    assert await _reserved(cluster) == 0
    assert ended.end_reason is EndReason.MACHINE_LOST
    await cluster.stage.play(2 * 3_600, step=120, without=UNPLAYED)
    assert len(await pools.members(cluster.stage, pool)) == 3
    assert len(cluster.open_nodes) == 2
    async with cluster.stage.db.reading() as connection:
        breaches = await rows(connection, text("SELECT promise, why FROM sla_breaches"))
    assert [row.why for row in breaches if row.promise == Promise.REPLACEMENT] == []
    await cluster.stage.check()


async def test_a_node_that_its_provider_takes_back_is_drained_at_once_and_replaced(cluster: Cluster) -> None:
    """Providers give half a minute to two minutes: no notice of ours has room in that."""
    pool = await _opened(cluster, SlaTier.BRONZE, nodes=3)
    first, second, kept = await pools.members(cluster.stage, pool)
    for lease in (first, second):  # Two of three: a wave of them says nothing of us, and holds nothing back.
        (machine,) = await cluster.stage.machines(lease)
        assert machine.provider_ref is not None
        cluster.stage.cloud.announce_eviction(machine.provider_ref)
    announced_at = cluster.stage.clock.now()
    for lease in (first, second):
        await _play_until(cluster, _is_over, lease, seconds_max=60, step=5)
    await cluster.stage.play(20, step=5, without=UNPLAYED)
    for lease in (first, second):
        reason, why, leaving_at, steps = await _left(cluster, lease)
        assert (reason, steps[:2]) == (LeaveReason.TAKEN_AWAY, ["cordoned", "drained"])
        assert "its provider takes it back" in why
        assert leaving_at - announced_at <= timedelta(seconds=45)
        told = [notice.kind for notice in await _notices(cluster, lease)]
        assert told == [NoticeKind.FAULT_FOUND, NoticeKind.REPLACED]
    assert (await cluster.stage.lease_row(kept)).state is LeaseState.READY
    await cluster.play_until(lambda: len(cluster.open_nodes) == 3)
    await cluster.stage.check()


@pytest.mark.parametrize(
    ("planned", "reason_told"),
    [
        (taken_out, "an operator took it out: fan, not before "),
        (
            planned_by_provider,
            "its provider will work on it: it will be rebooted (planned-reboot), not before ",
        ),
    ],
)
async def test_planned_work_drains_a_node_just_before_it_and_not_earlier(
    cluster: Cluster, planned: Callable[[Stage, Machine, datetime], Awaitable[None]], reason_told: str
) -> None:
    await put_terms_in_force(cluster.stage)
    pool = await _opened(cluster, SlaTier.SILVER, nodes=1)
    (lease,) = await pools.members(cluster.stage, pool)
    (machine,) = await cluster.stage.machines(lease)
    planned_at = cluster.stage.clock.now() + timedelta(hours=1)
    await planned(cluster.stage, machine, planned_at)
    before = timedelta(hours=1) - DRAIN_MAX - timedelta(minutes=1)
    await cluster.stage.play(before.total_seconds(), step=60, without=UNPLAYED)
    assert (await cluster.stage.lease_row(lease)).state is LeaseState.READY
    told = await _notices(cluster, lease)
    assert [(notice.kind, notice.planned_at) for notice in told] == [
        (NoticeKind.MAINTENANCE_PLANNED, planned_at),
        (NoticeKind.REPLACEMENT_PLANNED, planned_at - DRAIN_MAX),
    ]
    await _play_until(cluster, _is_over, lease, seconds_max=900)
    await cluster.stage.play(30, step=5, without=UNPLAYED)
    reason, why, leaving_at, steps = await _left(cluster, lease)
    assert (reason, why) == (
        LeaveReason.TAKEN_AWAY,
        f"{reason_told}{planned_at:%Y-%m-%d %H:%M} UTC",
    )
    assert leaving_at < planned_at
    assert steps[:2] == ["cordoned", "drained"]
    await cluster.play_until(lambda: len(cluster.open_nodes) == 1)


async def test_a_node_that_recovers_stays_and_what_its_pool_bought_in_its_place_goes(
    cluster: Cluster,
) -> None:
    await put_terms_in_force(cluster.stage)
    pool = await _opened(cluster, SlaTier.GOLD)
    stage = cluster.stage
    first, second = await pools.members(stage, pool)
    (machine,) = await stage.machines(first)
    await wants_a_spare(stage, machine)
    await stage.run("scale_pools")
    assert len(await _live(cluster, pool)) == 3
    (report,) = await stage.run("order_spares")
    assert report.looked_at == 0, "its pool buys, and nothing is reserved for its lease"
    async with stage.db.reading() as connection:
        assert not await node_pools.can_do_without(connection, first.id)
    await stage.run("repair_machines")  # The machine is healthy, so its repair is closed.
    await stage.run("scale_pools")
    assert [lease.id for lease in await _live(cluster, pool)] == [first.id, second.id]
