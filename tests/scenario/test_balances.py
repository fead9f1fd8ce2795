"""A balance that falls and is filled up again: the customer is warned once per crossing, and everything is recorded."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from control_plane.db import balance_alerts, holds
from control_plane.db.balance_alerts import Recorded
from control_plane.domain.balance_alert import BalanceAlerts
from control_plane.domain.exhaustion import BalanceEvent, BalanceState
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import EndReason, Lease
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.domain.payment import PaymentEvent, PaymentEventKind
from control_plane.domain.power_action import PowerAction
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.services import ledger, payments
from reconciler.loops.money import watch_balances
from tests.support.power import asked
from tests.support.rows import rows
from tests.support.stage import Stage
from tests.support.values import PAID

pytestmark = pytest.mark.database
E = BalanceEvent
_DUE = text("SELECT balance_due_at FROM standings WHERE organization_id = :id")
_KEPT = text("SELECT kept_until FROM holds WHERE lease_id = :id")
_STANDING = text("SELECT posted_nano, held_nano FROM standings WHERE organization_id = :id")
_MAKE_DUE = text("UPDATE standings SET balance_due_at = :now")
_AUDITED = text("""
SELECT rule FROM audit_events WHERE organization_id = :id AND event = 'balances.notice' ORDER BY sequence
""")


def usd(amount: float) -> Nano:
    return Nano(int(amount * NANO_PER_USD))


async def recorded(stage: Stage, organization_id: OrganizationId) -> list[Recorded]:
    """What the customer was told, oldest first."""
    async with stage.db.reading() as connection:
        return list(reversed(await balance_alerts.page(connection, organization_id, before=None, limit=100)))


async def top_up(stage: Stage, organization_id: OrganizationId, amount: Nano) -> None:
    async with stage.api.db.transaction(organization_id) as connection:
        key = stage.api.new_id().hex
        assert await ledger.top_up(connection, stage.api, organization_id, amount, key=key, approval=PAID)


async def test_a_low_balance_and_a_budget_are_told_once_each_until_a_top_up_arms_the_warning_again(
    stage: Stage,
) -> None:
    organization_id = await stage.organization(usd=20)
    async with stage.api.db.transaction(organization_id) as connection:
        wanted = BalanceAlerts(below_nano=usd(18), month_budget_nano=usd(6))
        await balance_alerts.set_alerts(
            connection, organization_id, wanted, now=stage.clock.now(), by="user_of_the_test"
        )
    lease = await stage.lease(organization_id)  # 3.60 USD an hour.
    await stage.play_until(lease, "ready", seconds_max=60)
    await stage.play(75 * 60, step=900)
    low, half = await recorded(stage, organization_id)
    assert (low.event, low.state_after, low.limit_nano) == (E.FELL_LOW, BalanceState.LOW, usd(18))
    assert low.balance_nano < usd(18)
    assert (half.event, half.limit_nano) == (E.BUDGET_REACHED, usd(3))
    async with stage.db.transaction() as connection:
        await connection.execute(_MAKE_DUE, {"now": stage.clock.now()})
    for replica in (stage.world, stage.replica("another")):
        await watch_balances.activate(replica)
    assert len(await recorded(stage, organization_id)) == 2, "nothing new has happened"

    await top_up(stage, organization_id, usd(10))
    await watch_balances.activate(stage.world)
    *_, last = told = await recorded(stage, organization_id)
    assert last.event is E.RECOVERED
    await stage.finish()
    await watch_balances.activate(stage.world)
    async with stage.db.reading() as connection:
        audited = [row.rule for row in await rows(connection, _AUDITED, id=organization_id)]
        due_at = (await rows(connection, _DUE, id=organization_id))[0].balance_due_at
    assert audited == [f"balance:{event.event}" for event in told]
    assert due_at is None or due_at > stage.clock.now(), "it is not looked at all the time"


async def stopped_for_lack_of_money(stage: Stage) -> Lease:
    """A lease of 3.60 USD an hour, 0.36 while stopped, whose second hour cannot be paid."""
    stage.sell_cheap_stops()
    lease = await stage.lease(await stage.organization(usd=4))
    await stage.play_until(lease, "ready", seconds_max=60)
    await stage.play(32 * 60, step=480)
    refused = await stage.try_lease(lease.organization_id, name="another")
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.BALANCE_EXHAUSTED
    assert "top up 6.80 USD" in refused.why, "3.60 for the lease that runs and 3.60 for this one, less 0.40"
    await stage.play(12 * 60, step=60)
    assert [machine.stopped for machine in stage.cloud.alive()] == [True]
    assert await stage.state(lease) == "ready"
    refused = await stage.try_lease(lease.organization_id, name="another")
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.BALANCE_EXHAUSTED, "what was stopped comes first as well"
    assert (await stage.story(lease)).count("lease funding_warned") == 1
    return lease


async def warning(stage: Stage, lease: Lease) -> str | None:
    async with stage.db.reading() as connection:
        stored = await balance_alerts.state(connection, lease.organization_id)
    assert stored is not None
    return stored.why


async def events(stage: Stage, lease: Lease) -> list[BalanceEvent]:
    return [event.event for event in await recorded(stage, lease.organization_id)]


async def test_a_machine_that_cannot_be_paid_is_stopped_and_its_data_is_deleted_when_the_stated_time_is_over(
    stage: Stage,
) -> None:
    lease = await stopped_for_lack_of_money(stage)
    told = await warning(stage, lease)
    assert told is not None
    stated = re.search(r"until (\d{4}-\d\d-\d\d \d\d:\d\d) UTC", told)
    assert stated is not None, told
    until = datetime.strptime(stated[1], "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
    kept = until - stage.clock.now()
    assert timedelta(hours=2) < kept < timedelta(hours=3), "as long as 0.88 USD pay for 0.36 USD an hour"
    await stage.play(int(kept.total_seconds()) - 120, step=1_200)
    assert await stage.state(lease) == "ready", "the stated time is the customer's"
    await stage.play_until(lease, "ended", seconds_max=600, step=60)
    assert (await stage.lease_row(lease)).end_reason is EndReason.UNFUNDED
    await stage.play(60, step=15)
    assert await events(stage, lease) == [
        E.FELL_LOW,
        E.RAN_OUT,
        E.MACHINES_STOPPED,
        E.DATA_DELETED,
        E.RECOVERED,
    ]
    await stage.check_finished()


async def test_a_top_up_lets_the_customer_start_a_machine_that_was_stopped_for_lack_of_money(
    stage: Stage,
) -> None:
    lease = await stopped_for_lack_of_money(stage)
    await top_up(stage, lease.organization_id, usd(200))
    await stage.play(60, step=15)
    assert [machine.stopped for machine in stage.cloud.alive()] == [True], "nothing starts by itself"
    assert (await events(stage, lease))[-2:] == [E.RELIEVED, E.RECOVERED]
    assert await warning(stage, lease) is None
    async with stage.db.transaction() as connection:  # As if no loop had looked since the top-up.
        await holds.keep(connection, lease.id, until=stage.clock.now())
    await asked(stage, lease, PowerAction.START)
    await stage.play(60, step=10)
    await stage.play(60 * 60, step=1_200)
    assert [machine.stopped for machine in stage.cloud.alive()] == [False]
    async with stage.db.reading() as connection:
        assert (await rows(connection, _KEPT, id=lease.id))[0].kept_until is None, (
            "it may be stopped for good reasons"
        )
    assert await stage.state(lease) == "ready"
    await stage.finish()


async def told(stage: Stage, organization_id: OrganizationId, kind: PaymentEventKind, *, event: str) -> bool:
    """The payment provider tells of 100 USD of a payment. False when it was posted before."""
    found = await payments.take(
        stage.api,
        PaymentEvent(event, kind, organization_id, "pay-1", usd(100), stage.clock.now()),
    )
    assert isinstance(found, bool), found
    return found


async def test_a_charged_back_payment_takes_a_prepaid_customer_down_the_steps_and_what_it_lacks_back_up(
    stage: Stage,
) -> None:
    stage.sell_cheap_stops()
    organization_id = await stage.organization(usd=1)
    assert await told(stage, organization_id, PaymentEventKind.SUCCEEDED, event="evt-1")
    lease = await stage.lease(organization_id)  # 3.60 USD an hour.
    await stage.play_until(lease, "ready", seconds_max=60)
    await stage.play(60 * 60, step=600)
    assert await recorded(stage, organization_id) == []

    assert await told(stage, organization_id, PaymentEventKind.CHARGED_BACK, event="evt-2")
    assert not await told(stage, organization_id, PaymentEventKind.CHARGED_BACK, event="evt-2")
    await stage.play(30, step=15)
    low, *_ = await recorded(stage, organization_id)
    assert low.event is E.FELL_LOW
    assert "The balance is -2." in low.why, "it does not read as if nothing were missing"
    refused = await stage.try_lease(organization_id, name="another")
    assert isinstance(refused, Refused), "nothing new is admitted, at once"
    assert await stage.state(lease) == "ready", "the hour that was set aside is not cut off"
    await stage.check()

    await stage.play(50 * 60, step=60)
    assert [machine.stopped for machine in stage.cloud.alive()] == [True]
    assert await events(stage, lease) == [E.FELL_LOW, E.RAN_OUT, E.MACHINES_STOPPED]
    await stage.check()
    async with stage.db.reading() as connection:
        (standing,) = await rows(connection, _STANDING, id=organization_id)
    assert -usd(8) < standing.posted_nano < 0, (
        "what was used of the money that is gone, and no more than a hold"
    )
    why = await warning(stage, lease)
    assert why is not None
    asked_for = re.search(r"Top up (\d+\.\d\d) USD", why)
    assert asked_for is not None, why

    await top_up(stage, organization_id, usd(float(asked_for[1])))
    await stage.play(60, step=15)
    assert (await events(stage, lease))[3:] == [E.RELIEVED]
    assert not await told(stage, organization_id, PaymentEventKind.CHARGED_BACK, event="evt-2"), "nor later"
    await asked(stage, lease, PowerAction.START)
    await stage.play(10 * 60, step=60)
    assert [machine.stopped for machine in stage.cloud.alive()] == [False]
    await stage.finish()
