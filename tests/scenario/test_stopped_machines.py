"""What a stopped machine costs: its own price from the list that shows it stopped until one shows it running again."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text

from control_plane.db import catalogue, usage
from control_plane.db.engine import Database
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.auto_release import AutoRelease
from control_plane.domain.journal import Note
from control_plane.domain.lease import EndReason, Lease
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.domain.power import PowerState
from control_plane.domain.power_action import PowerAction
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest, LeaseTerms
from control_plane.domain.tariff import stopped_price
from control_plane.services import billing, ledger
from control_plane.services.catalogue import load_price_book
from providers.fake import CAPABILITIES, Fault
from providers.fake import Settings as FakeSettings
from tests.support.clock import Clock
from tests.support.laws import stopped_unit_seconds
from tests.support.power import ask, asked
from tests.support.rows import rows
from tests.support.stage import BOOK, FAKE, H100, H100X8, Stage, set_stage
from tests.support.values import PAID

pytestmark = pytest.mark.database

STOPPED = Nano(360_000_000)
"""A tenth of the price while it is on: 0.36 USD an hour."""
ON, OFF = PowerState.ON, PowerState.OFF


@pytest.fixture
async def stage(db: Database, api_db: Database, clock: Clock) -> Stage:
    made = await set_stage(db, clock, api_db=api_db, settings=FakeSettings(boot_seconds=10.0))
    await cost_while_stopped(made, Nano(50_000_000))
    return made


async def cost_while_stopped(stage: Stage, nano: Nano | None) -> None:
    stage.cloud.listing = tuple(
        replace(offer, stopped_cost_nano_per_hour=nano) for offer in stage.cloud.listing
    )
    stage.clock.advance(31)
    await stage.run("refresh_offers")


_WARNED = text("SELECT funding_warned_at FROM leases WHERE id = :lease_id")


async def a_ready_lease(
    stage: Stage, *, usd: int = 1_000, terms: LeaseTerms | None = None, sku: str = H100.sku.name
) -> Lease:
    organization_id = await stage.organization(usd=usd)
    stage.clock.advance(1)
    cheaper = [
        replace(price, stopped_nano_per_unit_hour=STOPPED) if price.sku.name == sku else price
        for price in BOOK
    ]
    async with stage.db.transaction() as connection:
        await load_price_book(connection, stage.api, cheaper)
    lease = await stage.lease(organization_id, CapacityRequest(sku), terms=terms)
    await stage.play_until(lease, "ready", seconds_max=90)
    return await stage.lease_row(lease)


async def stop(stage: Stage, lease: Lease) -> datetime:
    """Stop its machine. Returns when its price changed."""
    await asked(stage, lease, PowerAction.STOP)
    for _ in range(40):
        power = (await stage.shown(lease)).overview.power
        if power is not None and power.state is OFF:
            return (await stage.lease_row(lease)).switched_at[-1]
        await stage.play(5, step=5)
    raise AssertionError("it was not stopped")


async def bill(stage: Stage, lease: Lease) -> list[tuple[bool, int, Nano]]:
    """The lines of a bill: stopped or not, the seconds, and what they cost."""
    found = (await billing.bill(stage.api, lease.organization_id, reach=EVERYWHERE)).lines
    return [
        (
            line.stopped,
            line.unit_seconds + line.unrated_unit_seconds,
            Nano(line.amount_nano + line.unrated_nano),
        )
        for line in found
    ]


async def test_each_second_is_charged_at_the_price_of_its_state_and_charges_say_stopped(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    assert (lease.stopped_nano_per_unit_hour, lease.switched_at) == (STOPPED, ())
    since = lease.ready_at
    assert since is not None
    await stage.play(10 * 60, step=150)
    stopped_at = await stop(stage, lease)
    await stage.play(130 * 60, step=600)
    started_at = await start(stage, lease)
    await stage.check()
    assert (await stage.lease_row(lease)).switched_at == (stopped_at, started_at)
    await stage.release(lease)
    await stage.finish()
    ended = await stage.lease_row(lease)
    assert ended.billed_until is not None
    off = stopped_unit_seconds(ended, ended.billed_until)
    assert off == int(started_at.timestamp()) - int(stopped_at.timestamp())
    on = int((ended.billed_until - since).total_seconds()) - off
    assert await bill(stage, lease) == [(False, on, on * 1_000_000), (True, off, off * 100_000)]
    async with stage.db.reading() as connection:
        charges = await usage.charges(
            connection,
            lease.organization_id,
            EVERYWHERE,
            since=since - timedelta(days=1),
            until=started_at + timedelta(days=1),
            limit=100,
        )
    assert [(each.stopped, each.nano_per_unit_hour) for each in charges] == [
        (False, H100.nano_per_unit_hour),
        *[(True, STOPPED)] * 3,
        (False, H100.nano_per_unit_hour),
    ], "an interval for each hour, and one more at the stop and at the start"


async def start(stage: Stage, lease: Lease) -> datetime:
    """Start its machine. Returns when its price changed."""
    await asked(stage, lease, PowerAction.START)
    for _ in range(40):
        power = (await stage.shown(lease)).overview.power
        if power is not None and power.state is ON:
            return (await stage.lease_row(lease)).switched_at[-1]
        await stage.play(5, step=5)
    raise AssertionError("it was not started")


async def settled(stage: Stage, lease: Lease) -> tuple[PowerState, str | None, int]:
    """Its state once nothing changes any more, why the last request failed, and how often its price changed."""
    for _ in range(40):
        power = (await stage.shown(lease)).overview.power
        assert power is not None
        if power.settled_at is not None:
            await stage.check()
            return power.state, power.why, len((await stage.lease_row(lease)).switched_at)
        await stage.play(30, step=10)
    raise AssertionError("it is open still")


async def test_the_price_follows_the_lists_and_no_request_or_refusal(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    stage.cloud.faults.script("power", Fault.LOST_WITHOUT_EFFECT)
    asked_at = stage.clock.now()
    assert await stop(stage, lease) - asked_at >= timedelta(minutes=2), "the first request was lost"
    for fault, why in (
        (Fault.NO_CAPACITY, "the provider has no capacity for it now; try again later"),
        (Fault.ORDER_REFUSED, "the provider refused it"),
        (Fault.UNAUTHORIZED, "the provider refused it"),
    ):
        stage.cloud.faults.script("power", fault)
        await asked(stage, lease, PowerAction.START)
        assert await settled(stage, lease) == (OFF, why, 1), fault
    asked_at = stage.clock.now()
    assert await start(stage, lease) > asked_at
    await stage.finish()


async def test_the_refused_start_of_a_machine_that_runs_costs_the_full_price(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    for listed in (False, True):  # The refusal may come before or after the next list.
        stage.cloud.faults.script("power", Fault.UNAUTHORIZED)
        await asked(stage, lease, PowerAction.START)
        if listed:
            await stage.run("observe_machines")
        await stage.run("change_power")
        assert await settled(stage, lease) == (ON, "the provider refused it", 0)
    await stage.finish()
    assert {line[0] for line in await bill(stage, lease)} == {False}


async def test_a_machine_that_somebody_else_starts_costs_its_full_price_from_the_first_list_on(
    stage: Stage,
) -> None:
    lease = await a_ready_lease(stage)
    await stop(stage, lease)
    await stage.play(20 * 60, step=300)
    started_at = stage.clock.now()
    (machine,) = stage.cloud.alive()
    await stage.cloud.power(PowerAction.START, machine.provider_ref)
    stage.clock.advance(12)
    await stage.run("observe_machines")
    stage.clock.advance(300)
    await stage.play(30, step=5)
    assert (await settled(stage, lease))[0] is ON
    row = await stage.lease_row(lease)
    assert len(row.switched_at) == 2
    assert row.switched_at[1] - started_at <= timedelta(seconds=15), (
        "from the list, however late it was noticed"
    )
    assert (await stage.story(lease)).count(f"lease {Note.POWER_CHANGED}") == 2
    await stage.finish()


async def test_a_list_from_right_after_a_stop_that_shows_the_machine_as_before_starts_nothing(
    stage: Stage,
) -> None:
    lease = await a_ready_lease(stage)
    await stop(stage, lease)
    (machine,) = stage.cloud.alive()
    for stopped in (False, True):  # A list that lags, and one that does not any more.
        stage.clock.advance(10)
        machine.stopped = stopped
        for loop in ("observe_machines", "change_power"):
            await stage.run(loop)
    await stage.play(CAPABILITIES.list_lag_seconds + 60, step=20)
    assert await settled(stage, lease) == (OFF, None, 1)
    await stage.finish()


async def test_the_stopped_price_of_a_gpu_among_eight_is_that_of_the_domain(stage: Stage) -> None:
    """It is computed in SQL when the lease is ready (`db/leases.py`), and by `tariff.stopped_price` for its offer."""
    for nano in (8 * STOPPED - 1, 8 * STOPPED + 1):
        await cost_while_stopped(stage, Nano(nano))
        lease = await a_ready_lease(stage, sku=H100X8.sku.name)
        price = stopped_price(H100X8.nano_per_unit_hour, STOPPED, Nano(nano), 8)
        assert lease.stopped_nano_per_unit_hour == price, nano


async def test_a_start_that_nobody_passes_on_costs_nothing_more(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    await stop(stage, lease)
    await asked(stage, lease, PowerAction.START)
    stage.clock.advance(5 * 3_600)  # The reconciler is away.
    why = "the provider did not take the request within ten minutes"
    assert await settled(stage, lease) == (OFF, why, 1)
    await stage.finish()


async def test_a_stop_is_charged_from_its_list_on_however_late_it_is_noticed(stage: Stage) -> None:
    for ends in (False, True):
        lease = await a_ready_lease(stage)
        asked_at = stage.clock.now()
        await asked(stage, lease, PowerAction.STOP)
        await stage.run("change_power")
        for _ in range(10):
            stage.clock.advance(1800)
            for loop in ("observe_machines", "meter_usage", "fund_leases"):
                await stage.run(loop)
        await stage.check()
        if not ends:
            assert (await settled(stage, lease))[0] is OFF
        await stage.release(lease)
        await stage.finish()
        row = await stage.lease_row(lease)
        assert len(row.switched_at) == 1
        assert row.switched_at[0] - asked_at <= timedelta(seconds=1801), "the first list after it"


async def test_a_limit_of_the_cost_refuses_a_start_that_it_would_end(stage: Stage) -> None:
    limits = AutoRelease(spend_nano=Nano(900_000_000))
    lease = await a_ready_lease(stage, terms=LeaseTerms(auto_release=limits))
    await stop(stage, lease)
    row = await stage.lease_row(lease)
    assert row.release_at is not None
    stage.clock.advance((row.release_at - stage.clock.now()).total_seconds() - 60)
    for loop in ("observe_machines", "meter_usage"):
        await stage.run(loop)
    refused = await ask(stage, lease, PowerAction.START)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.RELEASE_TIME_PASSED
    await stage.finish()


async def test_a_warning_from_before_a_stop_does_not_silence_the_one_before_the_end(stage: Stage) -> None:
    lease = await a_ready_lease(stage, usd=4)
    await stage.play(34 * 60, step=290)
    story = [f"lease {Note.FUNDING_WARNED}"]
    assert (await stage.story(lease)).count(story[0]) == 1
    await stop(stage, lease)
    await stage.play(40 * 60, step=600)
    async with stage.db.reading() as connection:
        [held] = await rows(connection, _WARNED, lease_id=lease.id)
    assert held.funding_warned_at is None, "its end is far now"
    for _ in range(48):
        if await stage.state(lease) != "ready":
            break
        await stage.play(1_200, step=600)
    assert (await stage.lease_row(lease)).end_reason is EndReason.UNFUNDED
    assert (await stage.story(lease)).count(story[0]) == 2
    await stage.finish()


async def test_a_stopped_machine_costs_no_less_than_its_provider_bills_us(stage: Stage) -> None:
    for costs_us, price in ((Nano(900_000_001), 900_000_001), (None, 2_190_000_000)):
        await cost_while_stopped(stage, costs_us)
        lease = await a_ready_lease(stage)
        assert lease.stopped_nano_per_unit_hour == price
    await stop(stage, lease)
    before = sum(amount for _, _, amount in await bill(stage, lease))
    await stage.play(40 * 60, step=600)
    (machine, *_) = [each for each in stage.cloud.alive() if each.stopped]
    assert machine.cost_nano_per_hour == 2_190_000_000
    paid = sum(amount for _, _, amount in await bill(stage, lease)) - before
    assert paid >= 40 * 60 * machine.cost_nano_per_hour // 3_600
    await stage.finish()


async def test_money_lasts_longer_while_it_is_stopped_and_a_start_needs_an_hour_of_it(stage: Stage) -> None:
    lease = await a_ready_lease(stage, usd=4)
    await stage.play(24 * 60, step=290)
    await stop(stage, lease)
    await stage.play(90 * 60, step=600)
    assert await stage.state(lease) == "ready", (
        "it would have been unfunded after 57 minutes at the full price"
    )
    refused = await ask(stage, lease, PowerAction.START)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.BALANCE_TOO_LOW
    async with stage.db.transaction() as connection:
        await ledger.top_up(
            connection,
            stage.api,
            lease.organization_id,
            Nano(2 * NANO_PER_USD),
            key="for the start",
            approval=PAID,
        )
    await asked(stage, lease, PowerAction.START)
    await stage.play(25 * 60, step=290)
    assert await stage.state(lease) == "ready"
    await stage.check()
    await stop(stage, lease)
    for _ in range(24):
        await stage.play(1_800, step=600)
        if await stage.state(lease) != "ready":
            break
    assert (await stage.lease_row(lease)).end_reason is EndReason.UNFUNDED
    await stage.finish()


async def test_a_limit_of_its_cost_moves_with_each_stop_and_holds_when_it_ends_stopped(stage: Stage) -> None:
    limits = AutoRelease(spend_nano=Nano(900_000_000))
    lease = await a_ready_lease(stage, terms=LeaseTerms(auto_release=limits))
    before = lease.release_at
    stopped_at = await stop(stage, lease)
    after = (await stage.lease_row(lease)).release_at
    assert before is not None
    assert after is not None
    left = (before - stopped_at) // timedelta(seconds=1)
    assert abs((after - stopped_at) - timedelta(seconds=10 * left)) <= timedelta(seconds=20)
    stage.clock.advance((after - stage.clock.now()).total_seconds() - 30)
    await stage.play(120, step=30)
    await stage.finish()
    ended = await stage.lease_row(lease)
    assert (ended.end_reason, ended.billed_until) == (EndReason.AUTO_RELEASED, after)
    assert sum(amount for _, _, amount in await bill(stage, lease)) <= 900_000_000


_TERMS = text("""
SELECT increment_seconds, minimum_seconds, billed_while_booting, running_at > asked_at AS ran_later FROM machines
""")


async def test_a_machine_keeps_its_terms_and_what_can_be_done_with_it_when_its_offer_leaves_the_catalogue(
    stage: Stage,
) -> None:
    stage.world.accounts[FAKE].capabilities = replace(
        CAPABILITIES, billed_seconds_unit=600, billed_seconds_min=1_200, billed_while_booting=False
    )
    await cost_while_stopped(stage, Nano(50_000_000))
    lease = await a_ready_lease(stage)
    async with stage.db.transaction() as connection:
        await catalogue.replace_offers(connection, FAKE, [], now=stage.clock.now())
    shown = (await stage.shown(lease)).overview
    assert set(shown.power_offered) == set(PowerAction)
    async with stage.db.reading() as connection:
        [terms] = await rows(connection, _TERMS)
    assert tuple(terms) == (600, 1_200, False, True)
    await stop(stage, lease)
    await stage.finish()
