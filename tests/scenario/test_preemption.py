"""An interruptible lease yields its machine to a lease that was promised one: notice, interruption, and two exact bills."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

import pytest
from sqlalchemy import TextClause, text

from control_plane.db import pools, preemptions
from control_plane.db.engine import Database
from control_plane.db.preemptions import Preemption, StoredDecision, Switch
from control_plane.domain import preemption as rules
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import EndReason, Lease
from control_plane.domain.money import Nano, accrued
from control_plane.domain.notice import NoticeKind
from control_plane.domain.placement import RejectCode
from control_plane.domain.pool import PoolPolicy
from control_plane.domain.power import PowerState
from control_plane.domain.power_action import PowerAction
from control_plane.domain.preemption import (
    LET_GO_MAX,
    NOTICE,
    STARTED_MAX,
    PreemptionDecision,
    PreemptionState,
)
from control_plane.domain.purchase import OnEviction, PurchaseKind
from control_plane.domain.request import CapacityRequest, LeaseTerms
from control_plane.domain.sla import SlaTier
from control_plane.domain.tariff import unit_seconds_total
from control_plane.outcomes import preemptions as outcomes
from control_plane.services import quotes
from control_plane.world import uuid7
from reconciler.loops.leases import preempt_leases
from reconciler.worlds.complete import CompleteWorld
from tests.scenario.test_enforcement import signal
from tests.support.crash import Crash
from tests.support.pools import a_pool
from tests.support.power import asked
from tests.support.promises import put_terms_in_force
from tests.support.rows import rows
from tests.support.stage import BOOK, Stage

pytestmark = pytest.mark.database

D, S = PreemptionDecision, PreemptionState
PRICE = Nano(3_000_000_000)
"""Of an hour of an interruptible H100."""
BOOK_WITH_IT = tuple(
    replace(price, interruptible_nano_per_unit_hour=PRICE if price.sku.shape.gpu_count == 1 else None)
    for price in BOOK
)
YIELDING = CapacityRequest("h100x1", purchase=PurchaseKind.INTERRUPTIBLE)
GOLD = CapacityRequest("h100x1", sla=SlaTier.GOLD)
REPLACED = LeaseTerms(on_eviction=OnEviction.REPLACE, wait_timeout_seconds=7_200)

_CHARGES = text("""
SELECT purchase, started_at, ended_at, unit_seconds, nano_per_unit_hour, amount_nano FROM charges WHERE lease_id = :id
ORDER BY number
""")
_LINES = text("SELECT at, why FROM journal WHERE lease_id = :id AND event = :event ORDER BY number")
_NOTICES = text("SELECT kind, planned_at, message FROM notices WHERE lease_id = :id ORDER BY number")


async def found(stage: Stage, statement: TextClause, **values: object) -> Sequence[Any]:
    async with stage.db.reading() as connection:
        return await rows(connection, statement, **values)


async def arm(stage: Stage, *, armed: bool = True) -> None:
    async with stage.db.transaction() as connection:
        await preemptions.put_switch(
            connection, uuid7(), Switch(stage.clock.now(), armed, "user_1", "a test")
        )


async def all_of_them(stage: Stage) -> list[Preemption]:
    """Oldest first."""
    async with stage.db.reading() as connection:
        page = await preemptions.page(connection, only_open=False, before=None, limit=100)
    return page[::-1]


async def decisions(stage: Stage) -> list[StoredDecision]:
    """Oldest first."""
    async with stage.db.reading() as connection:
        page = await preemptions.decisions(connection, for_lease_id=None, before=None, limit=100)
    return page[::-1]


async def seller(stage: Stage) -> OrganizationId:
    """A customer, where interruptible leases are sold and service levels are promised."""
    stage.book = BOOK_WITH_IT
    await put_terms_in_force(stage)
    return await stage.organization()


async def short_of(
    stage: Stage, count: int = 1, terms: LeaseTerms | None = None, *, sku: str = "h100x1"
) -> list[Lease]:
    """Interruptible leases of one customer that have all H100 there are, and an hour of work."""
    organization_id = await seller(stage)
    await stage.run("refresh_offers")
    request = replace(YIELDING, sku=sku)
    leases = [await stage.lease(organization_id, request, terms=terms) for _ in range(count)]
    for lease in leases:
        await stage.play_until(lease, "ready", seconds_max=300)
    for place in stage.cloud.stock:
        stage.cloud.stock[place] = 0
    await stage.play(3_600, step=300)
    return [await stage.lease_row(lease) for lease in leases]


async def a_golden_one(stage: Stage, *, sku: str = "h100x1") -> Lease:
    """A lease of another customer that is promised a machine, and waits."""
    return await stage.lease(await stage.organization(), replace(GOLD, sku=sku))


async def stopped(stage: Stage, lease: Lease) -> None:
    """Its customer stops its machine."""
    await asked(stage, lease, PowerAction.STOP)
    for _ in range(20):
        power = (await stage.shown(lease)).overview.power
        if power is not None and power.state is PowerState.OFF:
            return
        await stage.play(5, step=5)
    raise AssertionError("it was not stopped")


async def billed(stage: Stage, lease: Lease, price: Nano) -> int:
    """The seconds that a lease was charged, after holding each charge against the price to the last nano-dollar."""
    charges = await found(stage, _CHARGES, id=lease.id)
    seconds = 0
    for charge in charges:
        before = accrued(price, seconds)
        seconds += charge.unit_seconds
        assert charge.nano_per_unit_hour == price
        assert charge.amount_nano == accrued(price, seconds) - before
    return seconds


async def test_a_lease_that_was_promised_a_machine_gets_the_place_of_an_interruptible_one_and_both_bills_are_exact(
    stage: Stage,
) -> None:
    (yields,) = await short_of(stage)
    await arm(stage)
    golden = await a_golden_one(stage)
    (old,) = stage.cloud.alive()
    assert yields.nano_per_hour == PRICE
    await stage.play_until(golden, "ready", seconds_max=900, step=5)
    (preemption,) = await all_of_them(stage)
    row, got = await stage.lease_row(yields), await stage.lease_row(golden)
    assert (row.end_reason, row.billed_until) == (EndReason.PREEMPTED, preemption.interrupted_at)
    assert preemption.interrupted_at is not None
    assert timedelta() <= preemption.interrupted_at - preemption.interrupt_at < timedelta(seconds=15)
    assert preemption.interrupt_at - preemption.notified_at == NOTICE
    assert got.ready_at is not None
    assert got.ready_at - got.created_at <= timedelta(minutes=15), "the promise was kept"
    (new,) = stage.cloud.alive()
    assert new.launch_key != old.launch_key, "no customer gets a machine that another one had"
    assert new.order.native_type == old.order.native_type
    kinds = [notice.kind for notice in await found(stage, _NOTICES, id=yields.id)]
    assert kinds == [NoticeKind.PREEMPTION_PLANNED, NoticeKind.PREEMPTED]
    assert "lease preemption_planned" in await stage.story(yields)
    assert "lease preempted" in await stage.story(yields)
    assert "lease preemption_planned" in await stage.story(golden)
    await stage.play(1_800, step=300)
    await stage.release(golden)
    await stage.finish()
    assert [each.state for each in await all_of_them(stage)] == [S.SERVED]
    assert [each.decision for each in await decisions(stage)][-4:] == [
        *(D.NOTIFIED, D.INTERRUPTED, D.ORDERED, D.SERVED)
    ]
    assert row.ready_at is not None
    used = unit_seconds_total(row.ready_at, 1, preemption.interrupted_at)
    assert await billed(stage, yields, PRICE) == used
    ended = await stage.lease_row(golden)
    assert ended.billed_until is not None
    assert await billed(stage, golden, golden.nano_per_hour) == unit_seconds_total(
        got.ready_at, 1, ended.billed_until
    )
    assert {charge.purchase for charge in await found(stage, _CHARGES, id=yields.id)} == {"interruptible"}


async def test_the_machine_proves_that_it_was_overwritten_before_another_one_takes_its_place(
    stage: Stage,
) -> None:
    (yields,) = await short_of(stage, sku="h100x1-proven")
    await arm(stage)
    golden = await a_golden_one(stage, sku="h100x1-proven")
    await stage.play_until(golden, "ready", seconds_max=900, step=5)
    (overwritten,) = await found(stage, _LINES, id=yields.id, event="memory_overwritten")
    *_, intended = await found(stage, _LINES, id=golden.id, event="preemption")
    (gone,) = await found(stage, _LINES, id=yields.id, event="confirmed_gone")
    assert overwritten.at <= gone.at <= intended.at
    assert "A machine was ordered for it" in intended.why
    (new,) = await stage.machines(golden)
    assert (new.reserved_for, new.purpose) == (golden.id, "pool")
    await stage.finish()


async def test_nobody_else_takes_the_place_however_long_the_order_takes(stage: Stage) -> None:
    (yields,) = await short_of(stage, terms=REPLACED)
    await arm(stage)
    terms = LeaseTerms(wait_timeout_seconds=7_200)
    others = [await stage.lease(await stage.organization(), terms=terms) for _ in range(2)]
    golden = await a_golden_one(stage)
    while stage.cloud.alive():
        await stage.play(10, step=5)
    await stage.play(90, step=5, without={"preempt_leases"})  # Offers are refreshed, and show the free place.
    assert not stage.cloud.alive()
    *_, placement = (await stage.why(others[0])).placements
    assert {rejection.code for rejection in placement.ranking.rejected} >= {RejectCode.YIELDED}
    asker = await stage.organization()
    quote = await quotes.quote(stage.api, asker, CapacityRequest("h100x1"), reach=EVERYWHERE)
    assert isinstance(quote, quotes.Quote)
    assert not quote.ranking.candidates, "a quote ranks as a placement does"
    assert not placement.ranking.candidates
    assert {rejection.code for rejection in quote.ranking.rejected} >= {RejectCode.YIELDED}
    await stage.play_until(golden, "ready", seconds_max=600, step=5)
    assert [await stage.state(lease) for lease in (yields, *others)] == ["placing"] * 3
    await stage.finish()


async def test_no_pool_takes_the_place_that_a_lease_in_need_waits_for(stage: Stage) -> None:
    (yields,) = await short_of(stage)
    await arm(stage)
    (machine,) = await stage.machines(yields)
    golden = await a_golden_one(stage)
    while stage.cloud.alive():
        await stage.play(10, step=5)
    now = stage.clock.now()
    pool = a_pool(
        policy=PoolPolicy.FIXED, machines_min=1, region=machine.region, created_at=now, changed_at=now
    )
    async with stage.db.transaction() as connection:
        assert await pools.insert(connection, pool)
    await stage.play(90, step=5, without={"preempt_leases"})  # Offers are refreshed, and show the free place.
    assert not stage.cloud.alive()
    await stage.play_until(golden, "ready", seconds_max=600, step=5)
    await stage.finish()


async def test_a_lease_that_was_interrupted_has_its_next_machine_for_an_hour(stage: Stage) -> None:
    (yields,) = await short_of(stage, terms=REPLACED)
    await arm(stage)
    first = await a_golden_one(stage)
    await stage.play_until(first, "ready", seconds_max=900, step=5)
    await stage.release(first)
    await stage.play_until(yields, "ready", seconds_max=900, step=10)
    for place in stage.cloud.stock:
        stage.cloud.stock[place] = 0
    second = await a_golden_one(stage)
    await stage.play(1_200, step=20)
    assert (await stage.state(yields), await stage.state(second)) == ("ready", "placing")
    *_, last = [each for each in await decisions(stage) if each.for_lease_id == second.id]
    assert (last.decision, [each.kept for each in last.evidence.considered]) == (D.HELD_BACK, ["cools_down"])
    await stage.finish()


async def test_until_an_operator_arms_it_everything_is_decided_and_nothing_is_done(stage: Stage) -> None:
    (yields,) = await short_of(stage)
    golden = await a_golden_one(stage)
    await stage.play(800, step=20)
    assert (await stage.state(yields), await stage.state(golden)) == ("ready", "placing")
    assert await all_of_them(stage) == []
    (would,) = [each for each in await decisions(stage) if each.decision is D.WOULD_NOTIFY]
    assert (would.for_lease_id, would.lease_id, would.preemption_id) == (golden.id, yields.id, None)
    assert [(each.lease_id, each.kept) for each in would.evidence.considered] == [(yields.id, None)]
    assert await found(stage, _NOTICES, id=yields.id) == []
    await stage.finish()


async def test_a_lease_that_waits_to_be_replaced_is_paused_to_the_second_and_does_not_take_its_place_back(
    stage: Stage,
) -> None:
    (yields,) = await short_of(stage, terms=REPLACED)
    await arm(stage)
    golden = await a_golden_one(stage)
    await stage.play_until(golden, "ready", seconds_max=900, step=5)
    (preemption,) = await all_of_them(stage)
    waiting = await stage.lease_row(yields)
    assert (waiting.state, waiting.paused_at) == ("placing", (preemption.interrupted_at,))
    await stage.play(600, step=60)
    await stage.release(golden)
    await stage.play_until(yields, "ready", seconds_max=900, step=10)
    again = await stage.lease_row(yields)
    assert len(again.paused_at) == 2
    await stage.play(1_200, step=300)
    await stage.release(yields)
    await stage.finish()
    ended = await stage.lease_row(yields)
    assert ended.ready_at is not None
    assert ended.billed_until is not None
    first = unit_seconds_total(ended.ready_at, 1, again.paused_at[0])
    second = unit_seconds_total(again.paused_at[1], 1, ended.billed_until)
    assert abs(await billed(stage, yields, PRICE) - first - second) <= 1


async def test_a_lease_in_need_that_goes_away_during_the_notice_interrupts_nobody(
    stage: Stage, ingest_db: Database
) -> None:
    (yields,) = await short_of(stage)
    await arm(stage)
    golden = await a_golden_one(stage)
    while not await all_of_them(stage):
        await stage.play(20, step=5)
    (preemption,) = await all_of_them(stage)
    evicts = await signal(ingest_db, stage, yields)
    assert evicts is not None, "the workload can read it on the machine"
    assert (evicts.action, evicts.reason, evicts.ends_at) == ("evict", "preemption", preemption.interrupt_at)
    await stage.release(golden)
    await stage.play(300, step=20)
    assert await stage.state(yields) == "ready"
    assert [each.state for each in await all_of_them(stage)] == [S.WITHDRAWN]
    assert await signal(ingest_db, stage, yields) is None
    kinds = [notice.kind for notice in await found(stage, _NOTICES, id=yields.id)]
    assert kinds == [NoticeKind.PREEMPTION_PLANNED, NoticeKind.PREEMPTION_WITHDRAWN]
    assert "lease preemption_withdrawn" in await stage.story(yields)
    await stage.finish()


async def test_a_machine_that_its_customer_stopped_is_not_taken_back(stage: Stage) -> None:
    """At some providers it holds no place any more, so ending it would delete its disk for nothing."""
    (yields,) = await short_of(stage)
    await stopped(stage, yields)
    await arm(stage)
    golden = await a_golden_one(stage)
    await stage.play(1_200, step=60)
    assert (await stage.state(golden), await stage.state(yields)) == ("placing", "ready")
    assert await all_of_them(stage) == []
    (last,) = [each for each in await decisions(stage) if each.evidence.considered]
    assert [each.kept for each in last.evidence.considered] == ["not_listed"]
    await stage.finish()


async def test_a_machine_that_its_customer_stops_during_the_notice_is_not_taken_back(stage: Stage) -> None:
    (yields,) = await short_of(stage)
    await arm(stage)
    await a_golden_one(stage)
    while not await all_of_them(stage):
        await stage.play(20, step=5)
    await stopped(stage, yields)
    await stage.play(300, step=20)
    assert await stage.state(yields) == "ready"
    assert [each.state for each in await all_of_them(stage)] == [S.WITHDRAWN]
    await stage.finish()


async def test_nobody_is_interrupted_for_a_customer_who_was_suspended_during_the_notice(stage: Stage) -> None:
    (yields,) = await short_of(stage)
    await arm(stage)
    golden = await a_golden_one(stage)
    while not await all_of_them(stage):
        await stage.play(20, step=5)
    await stage.suspend_organization(golden.organization_id)
    await stage.play(300, step=20)
    assert (await stage.state(golden), await stage.state(yields)) == ("placing", "ready")
    assert [each.state for each in await all_of_them(stage)] == [S.WITHDRAWN]
    await stage.finish()


async def test_a_customer_who_lets_go_again_and_again_interrupts_nobody_for_the_rest_of_the_day(
    stage: Stage,
) -> None:
    """A lease that waits costs nothing, so each of these would interrupt another customer for nothing."""
    (yields,) = await short_of(stage)
    await arm(stage)
    hasty, soon = await stage.organization(), LeaseTerms(wait_timeout_seconds=1_200)
    for number in range(1, LET_GO_MAX + 1):
        lease = await stage.lease(hasty, GOLD, terms=soon)
        while len(await all_of_them(stage)) < number:
            await stage.play(20, step=5)
        await stage.release(lease)
        await stage.play(60, step=10)
    last = await stage.lease(hasty, GOLD, terms=soon)
    await stage.play(900, step=30)
    assert [each.state for each in await all_of_them(stage)] == [S.WITHDRAWN] * LET_GO_MAX
    assert f"released {LET_GO_MAX} leases in 24 hours" in (await decisions(stage))[-1].why
    await stage.release(last)
    golden = await a_golden_one(stage)
    await stage.play_until(golden, "ready", seconds_max=900, step=5)
    assert await stage.state(yields) == "ended", "the promise to another customer is kept"
    await stage.finish()


async def test_of_many_the_one_with_the_lowest_harm_yields_and_no_more_than_are_needed(stage: Stage) -> None:
    leases = await short_of(stage, 3)
    await arm(stage)
    youngest = max(leases, key=lambda lease: lease.ready_at or lease.created_at)
    golden = await a_golden_one(stage)
    await stage.play_until(golden, "ready", seconds_max=900, step=5)
    await stage.play(600, step=60)
    assert [each.lease_id for each in await all_of_them(stage)] == [youngest.id]
    assert sorted([await stage.state(lease) for lease in leases]) == ["ended", "ready", "ready"]
    await stage.finish()


async def test_leases_without_a_promised_time_take_nothing_and_leases_with_one_yield_nothing(
    stage: Stage,
) -> None:
    (yields,) = await short_of(stage)
    await arm(stage)
    organization_id = await stage.organization()
    (machine,) = await stage.machines(yields)
    elsewhere = "us" if machine.region.startswith("eu") else "eu"
    bronze = await stage.lease(organization_id)
    silver = await stage.lease(organization_id, replace(GOLD, sla=SlaTier.SILVER, regions=(elsewhere,)))
    await stage.play(1_500, step=60)
    assert (await stage.state(bronze), await stage.state(silver)) == ("placing", "placing")
    assert await all_of_them(stage) == []
    (last,) = [each for each in await decisions(stage) if each.evidence.considered]
    assert [each.kept for each in last.evidence.considered] == ["does_not_fit"]
    await stage.finish()


async def test_customers_take_turns_however_many_leases_of_one_wait(stage: Stage) -> None:
    """Leases that nothing can serve wait for hours and cost nothing, so nobody's may take all the places there are."""
    await short_of(stage)
    greedy = await stage.organization()
    many = [await stage.lease(greedy, GOLD) for _ in range(3)]
    await stage.play(60, step=20)
    golden = await a_golden_one(stage)
    await stage.play(60, step=20)
    async with stage.db.reading() as connection:
        in_need = await preemptions.waiting(connection, now=stage.clock.now(), limit=2)
    assert [each.lease_id for each in in_need] == [many[0].id, golden.id]
    await stage.finish()


async def test_leases_that_keep_their_machine_hide_no_other_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "RUNNING_PER_LOOK_MAX", 1)
    leases = await short_of(stage, 2)
    await arm(stage)
    async with stage.db.transaction() as connection:
        (keeps,) = await preemptions.running(
            connection, leases[0].gpu_model, 1, fitting=[], now=stage.clock.now(), limit=1, passed=0
        )
        await connection.execute(
            text("""
            UPDATE machines SET suspect_since = :now
            WHERE id = (SELECT machine_id FROM claims WHERE lease_id = :id AND ended_at IS NULL)"""),
            {"now": stage.clock.now(), "id": keeps.lease_id},
        )
    await a_golden_one(stage)
    await stage.run("place_leases")
    stage.clock.advance(5 * 60)
    await stage.run("refresh_offers")
    await stage.run("preempt_leases")
    (yields,) = [lease.id for lease in leases if lease.id != keeps.lease_id]
    assert [each.lease_id for each in await all_of_them(stage)] == [yields]


async def test_a_region_where_machines_end_slowly_holds_up_no_preemption_in_another_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "OPEN_PER_PLACE_MAX", 1)
    organization_id = await seller(stage)
    await stage.run("refresh_offers")
    in_eu = [await stage.lease(organization_id, replace(YIELDING, regions=("eu",))) for _ in range(2)]
    in_us = await stage.lease(organization_id, replace(YIELDING, regions=("us",)))
    for lease in (*in_eu, in_us):
        await stage.play_until(lease, "ready", seconds_max=300)
    for place in stage.cloud.stock:
        stage.cloud.stock[place] = 0
    await arm(stage)
    for regions in (("eu",), ("eu",), ("us",)):
        await stage.lease(await stage.organization(), replace(GOLD, regions=regions))
    await stage.play(600, step=10, without={"terminate_machines"})
    taken = [each.lease_id for each in await all_of_them(stage)]
    assert len(taken) == 2, "one in each region, however long the end of the first one takes"
    assert in_us.id in taken
    held = [each for each in await decisions(stage) if each.decision is D.HELD_BACK][-1]
    assert "place_full" in [each.kept for each in held.evidence.considered]
    await stage.play(1_200, step=20)
    assert len(await all_of_them(stage)) == 3, "the second one in eu follows"
    await stage.finish()


async def test_all_workers_together_give_no_more_notices_than_one_may(stage: Stage) -> None:
    await short_of(stage, 4)
    await arm(stage)
    for _ in range(4):
        await a_golden_one(stage)
    await stage.run("place_leases")
    stage.clock.advance(5 * 60)
    await stage.run("refresh_offers")
    workers = [stage.replica(name) for name in ("a", "b", "c")]
    await asyncio.gather(*(preempt_leases.activate(worker) for worker in workers))
    assert len(await all_of_them(stage)) == STARTED_MAX
    stage.clock.advance(10)
    await asyncio.gather(*(preempt_leases.activate(worker) for worker in workers))
    assert len(await all_of_them(stage)) == 2 * STARTED_MAX


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_that_dies_between_any_two_steps_loses_nothing_and_takes_nothing_twice(
    stage: Stage, when: Literal["before", "after"]
) -> None:
    """The loop is killed at each of its calls in turn, at every step of a preemption."""
    deaths = 0
    (yields,) = await short_of(stage)
    await arm(stage)
    golden = await a_golden_one(stage)

    async def activation(world: CompleteWorld) -> None:
        await stage.run("preempt_leases", world=world)

    end, call = stage.clock.now() + timedelta(minutes=25), 1
    while await stage.state(golden) != "ready":
        assert stage.clock.now() < end, await stage.story(golden)
        killed = await Crash(at=call, when=when).kills(activation, stage.replica("doomed"))
        deaths += killed
        call = call + 1 if killed else 1
        await stage.check()
        await stage.play(10, step=5, without={"preempt_leases"})
    assert deaths > 10
    (preemption,) = await all_of_them(stage)
    assert preemption.orders == 1
    assert len(stage.cloud.alive()) == 1
    assert await stage.state(yields) in ("ending", "ended")
    await stage.finish()
    assert [each.state for each in await all_of_them(stage)] == [S.SERVED]
