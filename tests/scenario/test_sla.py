"""Broken promises on a virtual clock: each is found once, credited once, corrected by new rows, and never edited."""

import dataclasses
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from functools import partial
from typing import Any, Literal

import pytest
from sqlalchemy import TextClause, text

from control_plane.db import sla, sla_credits
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.envelope import Envelope, Level
from control_plane.domain.failure import FailReason
from control_plane.domain.ids import OrganizationId, ProviderRef
from control_plane.domain.lease import EndReason, Lease
from control_plane.domain.listed_state import ListedState
from control_plane.domain.power_action import PowerAction
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sla import SlaTier
from control_plane.domain.sla_clock import SETTLES_AFTER, Promise
from control_plane.domain.sla_credit import ALWAYS_POSTED
from control_plane.services import billing
from control_plane.services import sla as sla_service
from control_plane.services.sla import LeaseSla
from control_plane.world import uuid7
from providers.fake import FakeMachine
from reconciler.worlds.complete import CompleteWorld
from tests.support.crash import Crash
from tests.support.faults import LOST, shows
from tests.support.hand_backs import asked_for_another
from tests.support.promises import broken, put_terms_in_force
from tests.support.ready import ready_leases
from tests.support.rows import rows
from tests.support.stage import FAKE, Stage

pytestmark = pytest.mark.database
GOLD = CapacityRequest("h100x1", sla=SlaTier.GOLD)
OF_SLA = ("judge_promises", "credit_breaches")
WHEN: tuple[Literal["before", "after"], ...] = ("before", "after")

_BREACHES = text("SELECT lease_id, promise, month, since, why FROM sla_breaches ORDER BY lease_id, promise")
_ASSESSMENTS = text("""
SELECT b.promise, a.number, a.charged_nano, a.credit_nano FROM sla_assessments a JOIN sla_breaches b ON b.id = a.breach_id
ORDER BY b.promise, a.number
""")
_POSTED = text("""
SELECT t.key, t.reason, t.approved_by, t.effective_at, p.amount_nano FROM transactions t
JOIN postings p ON p.transaction_id = t.id JOIN ledger_accounts a ON a.id = p.account_id
WHERE t.kind = 'credit' AND a.kind = 'wallet' ORDER BY t.number
""")
_CHARGED = text(
    "SELECT coalesce(sum(amount_nano), 0)::bigint AS nano FROM charges WHERE lease_id = :lease_id"
)
_LINES = text("SELECT event, at, state_after FROM journal WHERE lease_id = :lease_id ORDER BY number")
_QUEUE = text("SELECT breach_id FROM sla_uncredited")
_CHANGE = text("""
INSERT INTO health_changes (machine_id, at, verdict_before, verdict, fault, why, evidence)
VALUES (:machine_id, :at, :before, :verdict, :fault, 'a test', '{}')
""")
_WORK = text("""
INSERT INTO maintenances (id, machine_id, since, taken_by, why, planned_at, ended_at, ended_by)
VALUES (gen_random_uuid(), :machine_id, :since, 'user_1', 'a new cable', :planned, :until, 'user_1')
""")


async def _promise(stage: Stage) -> OrganizationId:
    await put_terms_in_force(stage)
    return await stage.organization()


async def _golden(stage: Stage, count: int = 1) -> list[Lease]:
    organization_id = await _promise(stage)
    leases = [await stage.lease(organization_id, GOLD) for _ in range(count)]
    for lease in leases:
        await stage.play_until(lease, "ready", seconds_max=90)
    await stage.play(60, step=20)
    return leases


async def _machine(stage: Stage, lease: Lease) -> FakeMachine:
    machine = (await stage.machines(lease))[-1]
    return stage.cloud.machines[machine.provider_ref or ProviderRef("")]


async def _found(stage: Stage, statement: TextClause, **values: object) -> Sequence[Any]:
    async with stage.db.reading() as connection:
        return await rows(connection, statement, **values)


async def _posted(stage: Stage) -> list[int]:
    return [row.amount_nano for row in await _found(stage, _POSTED)]


async def _charged(stage: Stage, lease: Lease) -> int:
    (row,) = await _found(stage, _CHARGED, lease_id=lease.id)
    return int(row.nano)


async def _fail(stage: Stage, lease: Lease, seconds: float) -> None:
    """Let the machine of a lease fail for a while."""
    machine = await _machine(stage, lease)
    machine.failed = True
    await stage.play(seconds, step=60)
    machine.failed = False
    await stage.play(10)


async def _settle(stage: Stage) -> None:
    await stage.play(SETTLES_AFTER.total_seconds() + 20, step=10)


async def _evidence_of_health(stage: Stage, lease: Lease, *changes: tuple[datetime, str, str]) -> None:
    """Verdicts about a lease's machine, each with its time."""
    machine = (await stage.machines(lease))[-1]
    async with stage.db.transaction() as connection:
        before = "healthy"
        for at, verdict, fault in changes:
            values = {"machine_id": machine.id, "at": at, "before": before, "verdict": verdict}
            await connection.execute(_CHANGE, values | {"fault": fault or None})
            before = verdict


def _half_even(amount: int, percent: int) -> int:
    """A share of an amount, by other arithmetic than the product's."""
    return int((Decimal(amount) * percent / 100).to_integral_value(ROUND_HALF_EVEN))


async def test_a_machine_that_fails_for_too_long_is_credited_once_and_as_anybody_computes_from_the_journal(
    stage: Stage,
) -> None:
    (lease,) = await _golden(stage)
    await _fail(stage, lease, 1_200)
    await stage.play(700, step=100)
    assert [row.promise for row in await _found(stage, _BREACHES)] == [Promise.REPLACEMENT]
    assert await _posted(stage) == [], "the lease goes on, and so does the month"
    await stage.play(36_000, step=3_600)
    await stage.release(lease)
    await _settle(stage)
    breaches = await _found(stage, _BREACHES)
    assert [row.promise for row in breaches] == [Promise.AVAILABILITY, Promise.REPLACEMENT]

    lines = await _found(stage, _LINES, lease_id=lease.id)
    row = await stage.lease_row(lease)
    ready, ending = row.ready_at, next(line.at for line in lines if line.state_after == "ending")
    assert ready is not None
    down = next(line.at for line in lines if line.event == "machine_down")
    up = next(line.at for line in lines if line.event == "machine_up")
    promised, missed = (ending - ready).total_seconds(), (up - down).total_seconds()
    assert 0.95 < 1 - missed / promised < 0.99, "gold gives half back, and a quarter for the failure besides"
    charged = await _charged(stage, lease)
    half = _half_even(charged, 50)
    shares = [half, _half_even(charged, 75) - half]
    assert charged > 0
    assert sorted(await _posted(stage)) == sorted(shares)
    assert [
        (row.promise, row.credit_nano, row.charged_nano) for row in await _found(stage, _ASSESSMENTS)
    ] == [
        (Promise.AVAILABILITY, shares[0], charged),
        (Promise.REPLACEMENT, shares[1], charged),
    ]
    posted = max(await _found(stage, _POSTED), key=lambda row: row.amount_nano)
    assert posted.reason.startswith(
        f"SLA credit for {lease.name}, November 2026, availability: it was available for"
    )
    assert posted.approved_by == "credit_breaches"
    story = await stage.story(lease)
    assert (story.count("lease sla_breached"), story.count("lease sla_credited")) == (2, 2)

    bill = await billing.bill(stage.api, lease.organization_id, reach=EVERYWHERE)
    assert {credit.promise: credit.amount_nano for credit in bill.sla_credits} == {
        Promise.AVAILABILITY: shares[0],
        Promise.REPLACEMENT: shares[1],
    }
    shown = await sla_service.of_lease(stage.api, lease.organization_id, lease.id, reach=EVERYWHERE)
    assert isinstance(shown, LeaseSla)
    assert sum(breach.credited_nano for breach in shown.breaches) == sum(shares)

    await stage.play(3 * 86_400, step=7_200)
    assert sorted(await _posted(stage)) == sorted(shares), "nothing is posted again"
    await stage.check()
    await stage.finish()


async def test_a_lease_that_ends_because_its_machine_could_not_be_replaced_is_credited(stage: Stage) -> None:
    promise = '[bronze]\nreplacement_seconds = 900\nreplacement_credit = "25%"\n'
    await put_terms_in_force(stage, promise)
    lease, *_ = await ready_leases(stage, 3, seconds=60)
    await stage.play(3_600, step=600)
    stage.cloud.disappear((await _machine(stage, lease)).provider_ref)
    stage.cloud.stock.update(dict.fromkeys(set(stage.cloud.stock), 0))
    await stage.play(3_600, step=60)
    row = await stage.lease_row(lease)
    assert row.end_reason in {EndReason.NO_CAPACITY, EndReason.MACHINE_LOST}
    assert [breach.promise for breach in await _found(stage, _BREACHES)] == [Promise.REPLACEMENT]
    assert await _posted(stage) == [_half_even(await _charged(stage, lease), 25)]
    await stage.finish()


async def test_who_releases_a_lease_because_its_machine_failed_for_too_long_is_credited_all_the_same(
    stage: Stage,
) -> None:
    """Its pause never ended, and nobody took the machine away: the end of the bill is all that shows since when."""
    (lease,) = await _golden(stage)
    await stage.play(3_600, step=600)
    (await _machine(stage, lease)).failed = True
    await stage.play(1_800, step=60)
    assert [row.promise for row in await _found(stage, _BREACHES)] == [Promise.REPLACEMENT]
    await stage.release(lease)
    await _settle(stage)
    assert [row.promise for row in await _found(stage, _BREACHES)] == [
        Promise.AVAILABILITY,
        Promise.REPLACEMENT,
    ]
    assert sum(await _posted(stage)) == await _charged(stage, lease) > 0, (
        "all of it, because so much was missing"
    )
    await stage.finish()


async def test_a_lease_is_not_judged_while_its_credit_is_posted_nor_the_other_way_round(stage: Stage) -> None:
    """An assessment that came in between would take its place in the queue, and never be posted."""
    (lease,) = await ready_leases(stage, 1, seconds=60)
    await broken(stage, lease.id)
    now = stage.clock.now() + timedelta(days=1)
    async with stage.db.transaction() as posting, stage.db.transaction() as judging:
        assert len(await sla_credits.take_uncredited(posting, approved_only=False, limit=10)) == 1
        assert await sla.take_due(judging, now=now, limit=10) == []
    async with stage.db.transaction() as judging, stage.db.transaction() as posting:
        assert await sla.take_due(judging, now=now, limit=10) == [lease.id]
        assert await sla_credits.take_uncredited(posting, approved_only=False, limit=10) == []


async def test_whoever_hands_back_a_machine_that_works_gets_another_one_and_no_credit(stage: Stage) -> None:
    (lease,) = await _golden(stage)
    await stage.play(3_600, step=600)
    stock = dict(stage.cloud.stock)
    stage.cloud.stock.update(dict.fromkeys(stock, 0))
    await asked_for_another(stage, lease)
    await stage.play(1_200, step=60)
    stage.cloud.stock.update(stock)
    await stage.play_until(lease, "ready", seconds_max=600)
    await stage.play(3_600, step=600)
    await stage.release(lease)
    await _settle(stage)
    assert len(await stage.machines(lease)) == 2
    assert await _found(stage, _BREACHES) == []
    assert await _posted(stage) == []
    await stage.finish()


async def test_whoever_hands_back_a_broken_machine_before_we_looked_at_it_is_credited(stage: Stage) -> None:
    """Nothing was wrong with it by all that we knew. It is looked at before it goes, and by then we know."""
    (lease,) = await _golden(stage)
    await stage.play(3_600, step=600)
    shows(stage, (await stage.machines(lease))[-1], LOST)
    await asked_for_another(stage, lease)
    await stage.play_until(lease, "placing", seconds_max=60)
    await stage.play_until(lease, "ready", seconds_max=600)
    await stage.play(3_600, step=600)
    await stage.release(lease)
    await _settle(stage)
    assert {row.promise for row in await _found(stage, _BREACHES)} == {Promise.AVAILABILITY}
    assert sum(await _posted(stage)) > 0
    await stage.finish()


async def test_a_machine_that_is_handed_back_and_cannot_be_looked_at_goes_after_a_minute(
    stage: Stage,
) -> None:
    (lease,) = await _golden(stage)
    machine = (await stage.machines(lease))[-1]
    stage.access.script(machine.address or "", unreachable=1_000)
    await asked_for_another(stage, lease)
    await stage.play(45, step=5)
    assert len(await stage.machines(lease)) == 1, "we try to look at it"
    await stage.play_until(lease, "placing", seconds_max=60)
    await stage.play_until(lease, "ready", seconds_max=600)
    await stage.finish()


async def test_evidence_that_arrives_late_corrects_a_credit_by_another_row_up_and_down(stage: Stage) -> None:
    (lease,) = await _golden(stage)
    since = stage.clock.now()
    await stage.play(20 * 3_600, step=3_600)
    await stage.release(lease)
    await _settle(stage)
    assert await _posted(stage) == []
    broken = ("quarantined", "gpu_lost")
    # 20 h are promised. 12 minutes are 2 after the grace of 10, 0.17 %: below 99.9 %. 72 are 62: below 95 %.
    await _evidence_of_health(stage, lease, (since, *broken), (since + timedelta(minutes=12), "healthy", ""))
    await stage.play(90_000, step=7_200)
    charged = await _charged(stage, lease)
    assert await _posted(stage) == [_half_even(charged, 10)]
    await _evidence_of_health(
        stage,
        lease,
        (since + timedelta(hours=2), *broken),
        (since + timedelta(hours=3, minutes=12), "healthy", ""),
    )
    await stage.play(2 * 86_400, step=7_200)
    ten = _half_even(charged, 10)
    assert await _posted(stage) == [ten, charged - ten]
    keys = [row.key.rpartition(":")[2] for row in await _found(stage, _POSTED)]
    assert keys == ["1", "2"], "the number of the assessment is in the key"
    # Work that was announced in time excuses all of it.
    machine = (await stage.machines(lease))[-1]
    async with stage.db.transaction() as connection:
        values = {"machine_id": machine.id, "since": since - timedelta(days=4), "planned": since}
        await connection.execute(_WORK, values | {"until": since + timedelta(hours=4)})
    await stage.play(2 * 86_400, step=7_200)
    assert await _posted(stage) == [ten, charged - ten, -charged]
    reasons = [row.reason for row in await _found(stage, _POSTED)]
    assert reasons[-1].startswith(f"SLA credit, corrected for {lease.name}")
    assert "by late evidence, the promise was kept" in reasons[-1]
    await stage.finish()


async def test_when_capacity_is_short_gold_is_placed_before_an_older_lease_of_its_organization(
    stage: Stage,
) -> None:
    organization_id = await _promise(stage)
    kinds = set(stage.cloud.stock)
    stage.cloud.stock.update(dict.fromkeys(kinds, 0))
    bronze = await stage.lease(organization_id)
    await stage.play(60, step=10)
    gold = await stage.lease(organization_id, GOLD)
    await stage.play(60, step=10)
    assert (bronze.priority, gold.priority) == (50, 80)
    stage.cloud.stock["h100-sxm-80gb.1", "us-east-1"] = 1
    await stage.play_until(gold, "ready", seconds_max=240)
    assert await stage.state(bronze) == "placing"
    await stage.finish()


async def test_without_terms_nothing_is_promised_and_nothing_is_judged(stage: Stage) -> None:
    organization_id = await stage.organization()
    lease = await stage.lease(organization_id)
    await stage.play_until(lease, "ready", seconds_max=90)
    await stage.play(60, step=20)
    await _fail(stage, lease, 1_200)
    await stage.release(lease)
    await _settle(stage)
    assert (lease.sla, lease.sla_version) == (SlaTier.BRONZE, None)
    assert await _found(stage, _BREACHES) == []
    await stage.finish()


async def test_until_an_operator_turns_credits_on_they_are_computed_and_not_posted(stage: Stage) -> None:
    stage.world = dataclasses.replace(stage.world, sla_dry_run=True)
    (lease,) = await _golden(stage)
    await _fail(stage, lease, 1_200)
    await stage.release(lease)
    await _settle(stage)
    assert len(await _found(stage, _ASSESSMENTS)) == 2
    assert await _posted(stage) == []
    (report,) = await stage.run("credit_breaches")
    assert report.notes == ["1 credits wait: SPLITPLANE_SLA_CREDITS is not set, so nothing is posted"]
    stage.world = dataclasses.replace(stage.world, sla_dry_run=False)
    await stage.run("credit_breaches")
    assert await _posted(stage) == [await _charged(stage, lease)]
    await stage.finish()


async def test_a_flood_of_breaches_waits_for_an_operator(stage: Stage) -> None:
    leases = await _golden(stage, ALWAYS_POSTED + 1)
    for lease in leases:
        (await _machine(stage, lease)).failed = True
    await stage.play(1_200, step=60, without=OF_SLA)
    for lease in leases:
        (await _machine(stage, lease)).failed = False
    await stage.play(20, without=OF_SLA)
    for lease in leases:
        await stage.release(lease)
    await _settle(stage)
    assert len(await _found(stage, _QUEUE)) == ALWAYS_POSTED + 1
    assert await _posted(stage) == []
    (report,) = await stage.run("credit_breaches")
    assert "splitplane sla approve" in report.notes[0]
    async with stage.db.transaction() as connection:
        await sla_credits.approve(connection, uuid7(), by="user_1", reason="looked at", now=stage.clock.now())
    await stage.run("credit_breaches")
    assert len(await _posted(stage)) == ALWAYS_POSTED + 1
    assert await _found(stage, _QUEUE) == []
    await stage.finish()


async def test_loops_that_die_after_each_step_change_no_figure(stage: Stage) -> None:
    (lease,) = await _golden(stage)
    await _fail(stage, lease, 1_200)
    await stage.release(lease)
    await stage.play(SETTLES_AFTER.total_seconds() + 20, step=10, without=OF_SLA)

    async def activation(world: CompleteWorld, name: str) -> None:
        await stage.run(name, world=world)

    for name in OF_SLA:
        deaths = 0
        for when in WHEN:
            call = 1
            while await Crash(at=call, when=when).kills(
                partial(activation, name=name), stage.replica("doomed")
            ):
                deaths, call = deaths + 1, call + 1
                if call > 20:
                    break
        assert deaths > 0, name
        await stage.run(name)
    await stage.run("credit_breaches")
    assert await _posted(stage) == [await _charged(stage, lease)]
    assert len(await _found(stage, _ASSESSMENTS)) == 2
    await stage.finish()


async def _of(stage: Stage, lease: Lease) -> LeaseSla:
    shown = await sla_service.of_lease(stage.api, lease.organization_id, lease.id, reach=EVERYWHERE)
    assert isinstance(shown, LeaseSla)
    return shown


async def _held(stage: Stage, lease: Lease) -> list[int]:
    """The moments at which its envelope began and ceased to hold it, in seconds after its creation."""
    async with stage.db.reading() as connection:
        found = await rows(connection, text("SELECT created_at, held_at FROM leases"))
    return [int((moment - found[0].created_at).total_seconds()) for moment in found[0].held_at]


async def test_the_clock_until_a_lease_is_ready_stands_still_while_its_customers_envelope_holds_it_back(
    stage: Stage,
) -> None:
    organization_id = await _promise(stage)
    lease = await stage.lease(organization_id, GOLD)
    await stage.narrow(organization_id, Envelope(gpus=0), Level.ORGANIZATION)
    await stage.play(1_200, step=15)
    assert (await stage.lease_row(lease)).state == "placing"
    (begun,) = await _held(stage, lease)
    await stage.narrow(organization_id, Envelope(gpus=8), Level.ORGANIZATION)
    await stage.play_until(lease, "ready", seconds_max=90)
    begun_again, ended = await _held(stage, lease)
    assert (begun_again, begun) == (begun, begun)
    assert 1_180 <= ended - begun <= 1_220
    await stage.play(700, step=100)
    shown = await _of(stage, lease)
    assert shown.clocks is not None
    assert shown.clocks.held_seconds in range(ended - begun - 1, ended - begun + 2)
    assert shown.clocks.ready_seconds < 120
    assert not shown.breaches, "1,200 s of it were the customer's"
    story = await stage.story(lease)
    assert story.index("lease envelope_held") < story.index("lease envelope_passed")


async def test_a_ceiling_of_the_operator_stops_no_clock(stage: Stage) -> None:
    organization_id = await _promise(stage)
    lease = await stage.lease(organization_id, GOLD)
    await stage.narrow(organization_id, Envelope(gpus=0), Level.CEILING)
    await stage.play(1_000, step=50)
    assert await _held(stage, lease) == []
    await stage.play(700, step=100)
    assert [breach.promise for breach in (await _of(stage, lease)).breaches] == [Promise.READY]


async def test_an_outage_of_ours_is_not_the_customers_however_long_an_envelope_would_have_held(
    stage: Stage,
) -> None:
    organization_id = await _promise(stage)
    lease = await stage.lease(organization_id, GOLD)
    await stage.narrow(organization_id, Envelope(gpus=0), Level.ORGANIZATION)
    await stage.play(60, step=15)
    stage.clock.advance(1_500)
    await stage.play(60, step=15)
    begun, ended, again = await _held(stage, lease)
    assert ended - begun <= 90
    assert again - ended >= 1_400


SHUT_DOWN = (ListedState.STOPPED, ListedState.OFF_OR_FAILED)
"""As what providers list a machine that its customer shut down from inside (domain/outage.py)."""


async def _shut_down(stage: Stage, lease: Lease, word: ListedState) -> FakeMachine:
    machine = await _machine(stage, lease)
    machine.stopped, machine.listed_as = True, word
    return machine


def _can(stage: Stage, power: frozenset[PowerAction]) -> None:
    """What the provider can do with the power of machines that are ordered from now on."""
    account = stage.world.accounts[FAKE]
    account.capabilities = dataclasses.replace(account.capabilities, power=power)


@pytest.mark.parametrize("word", SHUT_DOWN)
@pytest.mark.parametrize("power", [frozenset({PowerAction.REBOOT}), frozenset(PowerAction)])
async def test_nobody_earns_by_shutting_a_machine_down_and_starting_it_again(
    stage: Stage, word: ListedState, power: frozenset[PowerAction]
) -> None:
    _can(stage, power)
    (lease,) = await _golden(stage)
    machine = await _shut_down(stage, lease, word)
    await stage.play(2_400, step=60)
    machine.stopped, machine.listed_as = False, None
    await stage.play(7_200, step=300)
    row = await stage.lease_row(lease)
    assert (len(row.paused_at), len(row.switched_at)) == (
        (0, 2) if word is ListedState.STOPPED else (2, 0)
    ), "the price while stopped, or nothing where it may have failed"
    await stage.release(lease)
    await _settle(stage)
    assert await _found(stage, _BREACHES) == []
    assert await _posted(stage) == []
    await stage.check()
    await stage.finish()


@pytest.mark.parametrize("word", SHUT_DOWN)
async def test_nobody_earns_by_shutting_down_a_machine_that_nobody_can_start(
    stage: Stage, word: ListedState
) -> None:
    _can(stage, frozenset())
    lost, replaced, released = await _golden(stage, 3)
    for lease in (lost, replaced, released):
        await _shut_down(stage, lease, word)
    await stage.play(1_800, step=60)
    await asked_for_another(stage, replaced)
    await stage.release(released)
    await stage.play(2_400, step=60)
    assert (await stage.attempts(lost))[0].fail_reason is FailReason.NOT_RUNNING
    await stage.play(7_200, step=300)
    for lease in (lost, replaced):
        await stage.release(lease)
    await _settle(stage)
    assert await _found(stage, _BREACHES) == []
    assert await _posted(stage) == []
    await stage.check()
    await stage.finish()


@pytest.mark.parametrize("word", [ListedState.STOPPED_BY_PROVIDER, ListedState.FAILED])
async def test_a_failure_that_the_provider_admits_is_free_and_credited(
    stage: Stage, word: ListedState
) -> None:
    (lease,) = await _golden(stage)
    machine = await _shut_down(stage, lease, word)
    await stage.play(2_400, step=60)
    machine.stopped, machine.listed_as = False, None
    await stage.play(7_200, step=300)
    row = await stage.lease_row(lease)
    assert (len(row.paused_at), len(row.switched_at)) == (2, 0)
    await stage.release(lease)
    await _settle(stage)
    assert [breach.promise for breach in await _found(stage, _BREACHES)] == [
        Promise.AVAILABILITY,
        Promise.REPLACEMENT,
    ]
    assert sum(await _posted(stage)) > 0
    await stage.check()
    await stage.finish()
