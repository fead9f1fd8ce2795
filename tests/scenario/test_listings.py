"""What a provider's listing may do to the records, and what it may not: freezes, absences, orphans."""

import asyncio
import dataclasses
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from control_plane.db import account_requests, accounts, catalogue
from control_plane.db import leases as lease_rows
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor, ActorKind
from control_plane.domain.failure import FailReason
from control_plane.domain.freeze import MissingPermit
from control_plane.domain.ids import MachineId, OrganizationId, ProviderRef
from control_plane.domain.lease import EndReason, Lease
from control_plane.domain.machine import MachineState
from control_plane.domain.network import range_of
from control_plane.domain.orphan import Choice, HeldCode
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sighting import Sighting
from control_plane.domain.status import project
from control_plane.domain.tariff import unit_seconds_total
from control_plane.outcomes import machines as machine_outcomes
from control_plane.services import accounts as accounts_service
from control_plane.services import orphans
from control_plane.services.orphans import ListedOrphan
from data_plane.mesh.port import HubIdentity, Network, Peer
from providers.base import ListedOffer
from providers.fake import FakeMachine, Fault
from reconciler import network
from reconciler.loop import Report
from tests.support.rows import rows
from tests.support.stage import FAKE, Stage

pytestmark = pytest.mark.database
OPERATOR = Actor(ActorKind.OPERATOR, "key_1")
PLATFORM = OrganizationId(UUID(int=1))

_HAVE_RECORDS = text("""
UPDATE machines m SET state = 'verified', gone_at = NULL, gone_evidence = NULL, fail_reason = NULL, provider_ref = o.ref
FROM (SELECT unnest(CAST(:refs AS text[])) AS ref, unnest(CAST(:keys AS text[])) AS key) AS o
WHERE m.launch_key = o.key
""")
_WAS_NEVER_ASKED = text("""
UPDATE machines SET state = 'intended', asked_at = NULL, gone_at = NULL, gone_evidence = NULL, fail_reason = NULL,
  due_at = 'infinity', deadline_at = 'infinity' WHERE launch_key = :key
""")
_METERED = text("SELECT metered_until FROM leases WHERE id = :id")


async def _ready(stage: Stage, count: int) -> list[Lease]:
    organization_id = await stage.organization()
    leases = [await stage.lease(organization_id) for _ in range(count)]
    for lease in leases:
        await stage.play_until(lease, "ready", seconds_max=60)
    await stage.play(4)
    return leases


async def _machine(stage: Stage, lease: Lease) -> FakeMachine:
    machine = (await stage.machines(lease))[-1]
    return stage.cloud.machines[machine.provider_ref or ProviderRef("")]


async def _missed_lists(stage: Stage, lease: Lease) -> int:
    return (await stage.machines(lease))[0].missed_lists


async def _frozen(stage: Stage) -> str | None:
    async with stage.db.reading() as connection:
        freeze = (await accounts.get(connection, FAKE)).freeze
    return freeze.why if freeze else None


async def _metered_until(stage: Stage, lease: Lease) -> datetime | None:
    async with stage.db.reading() as connection:
        until: datetime | None = (await rows(connection, _METERED, id=lease.id))[0].metered_until
    return until


async def _states(stage: Stage, leases: list[Lease]) -> list[str]:
    return [await stage.state(lease) for lease in leases]


# Lists that are not to be believed.


async def test_a_machine_in_a_region_that_the_settings_lost_is_never_taken_for_gone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, ended = await _ready(stage, 2)
    region = (await stage.machines(kept))[0].native_region
    monkeypatch.setattr(stage.world.accounts[FAKE], "lists", lambda native: native != region)
    refs = list(stage.cloud.machines)
    for ref in refs:
        stage.cloud.hide(ref)
    await stage.release(ended)
    await stage.play(3_600, step=300)
    assert await stage.state(kept) == "ready"
    states = [machine.state for lease in (kept, ended) for machine in await stage.machines(lease)]
    assert states == [MachineState.VERIFIED, MachineState.TERMINATING]
    stage.clock.advance(60)
    (report,) = await stage.run("observe_machines")
    (error,) = report.errors
    assert error.startswith(f"machines may exist in {region}, and the account has another region now: ")
    monkeypatch.undo()
    for ref in refs:
        stage.cloud.show(ref)
    await stage.play(120, step=10)
    states = [machine.state for lease in (kept, ended) for machine in await stage.machines(lease)]
    assert states == [MachineState.VERIFIED, MachineState.GONE]
    await stage.finish()


async def test_a_listing_that_fails_half_way_concludes_nothing(stage: Stage) -> None:
    leases = await _ready(stage, 2)
    orphan = await stage.plant()
    stage.cloud.faults.always("inventory", Fault.LISTING_FAILS)
    stage.cloud.disappear((await _machine(stage, leases[0])).provider_ref)
    await stage.play(900, step=90)
    assert await _states(stage, leases) == ["ready", "ready"]
    assert [await _missed_lists(stage, lease) for lease in leases] == [0, 0]
    assert orphan.ended_at is None
    reports = await stage.run("observe_machines")
    assert reports[0].errors or reports[0].looked_at == 0
    stage.cloud.faults.clear()
    await stage.play(200, step=20)
    assert await _states(stage, leases) == ["ended", "ready"]
    await stage.finish()


async def test_a_listing_that_fails_closes_no_record_of_a_machine_that_has_to_go(stage: Stage) -> None:
    (lease,) = await _ready(stage, 1)
    stage.cloud.faults.always("terminate", Fault.NOT_YET)
    stage.cloud.faults.always("inventory", Fault.LISTING_FAILS)
    await stage.release(lease)
    await stage.play(900, step=90)
    assert (await stage.machines(lease))[0].state is MachineState.TERMINATING
    assert await stage.state(lease) == "ending"
    await stage.check()
    stage.cloud.faults.clear()
    await stage.play(400, step=40)
    await stage.finish()


async def test_an_account_whose_listing_fails_buys_nothing_until_it_answers(stage: Stage) -> None:
    await _ready(stage, 1)
    stage.cloud.faults.always("inventory", Fault.LISTING_FAILS)
    await stage.play(10)
    lease = await stage.lease(await stage.organization())
    await stage.play(60, step=5)
    assert await stage.state(lease) == "placing"
    ranking = (await stage.why(lease)).placements[-1].ranking
    assert "account_unhealthy" in {offer.code for offer in ranking.rejected}
    stage.cloud.faults.clear()
    await stage.play_until(lease, "ready", seconds_max=120)
    await stage.finish()


async def _account(stage: Stage) -> accounts.Account:
    async with stage.db.reading() as connection:
        return await accounts.get(connection, FAKE)


async def _breaks(*_: object, **__: object) -> None:
    raise RuntimeError("a row that holds a secret")


async def test_an_account_whose_list_cannot_be_stored_is_failing_until_one_is(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.play(10)
    with monkeypatch.context() as patch:
        patch.setattr(accounts, "record_listing", _breaks)
        stage.clock.advance(2)
        with pytest.raises(RuntimeError, match="a row that holds a secret"):
            await stage.run("observe_machines")
        failing = await _account(stage)
        assert failing.failing_since == stage.clock.now()
        assert failing.failing_why == "its list could not be stored: RuntimeError", (
            "the text is for the report alone"
        )
        lease = await stage.lease(await stage.organization())
        await stage.run("place_leases")
        assert await stage.state(lease) == "placing", "what we cannot watch, we do not buy"
    await stage.play(4)
    assert (await _account(stage)).failing_since is None
    await stage.finish()


@pytest.mark.parametrize("how", ["listed", "stored"])
async def test_an_account_whose_offers_cannot_be_refreshed_says_so_until_they_are(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=60)
    if how == "listed":
        stage.cloud.faults.script("offers", *[Fault.UNAVAILABLE] * 3)
        stage.clock.advance(40)
        await stage.run("refresh_offers")
    else:
        with monkeypatch.context() as patch:
            patch.setattr(catalogue, "replace_offers", _breaks)
            stage.clock.advance(40)
            with pytest.raises(RuntimeError):
                await stage.run("refresh_offers")
    failing = await _account(stage)
    assert failing.offers_failing_since == stage.clock.now()
    expected = {"listed": "Unavailable", "stored": "they could not be stored: RuntimeError"}
    assert str(failing.offers_failing_why).startswith(expected[how])
    assert failing.failing_since is None, "its machines are listed as before"
    stage.clock.advance(2)
    await stage.run("observe_machines")
    assert (await _account(stage)).offers_failing_since is not None, "a list of machines is no list of offers"
    await stage.play(40, step=10)
    assert (await _account(stage)).offers_failing_since is None
    await stage.finish()


async def test_a_machine_whose_loss_cannot_be_recorded_keeps_no_other_loss_waiting(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_ = await _ready(stage, 8)
    for lease in (first, second):
        stage.cloud.disappear((await _machine(stage, lease)).provider_ref)
    poison = (await stage.machines(first))[0].id
    fail = machine_outcomes.fail

    async def fails_for_the_first(
        connection: Connection, machine_id: MachineId, *rest: Any, **more: Any
    ) -> bool:
        assert machine_id != poison, "a loss that cannot be recorded"
        return await fail(connection, machine_id, *rest, **more)

    monkeypatch.setattr(machine_outcomes, "fail", fails_for_the_first)
    await stage.play(600, step=30)
    assert await stage.state(first) == "ready"
    assert await stage.state(second) != "ready"
    monkeypatch.undo()
    await stage.finish()


@pytest.mark.parametrize("fault", [Fault.EMPTY_LISTING, Fault.SHRUNKEN_LISTING])
async def test_a_list_that_misses_too_much_freezes_the_account_and_a_sane_one_thaws_it(
    stage: Stage, fault: Fault
) -> None:
    orphan = await stage.plant()
    leases = await _ready(stage, 5)
    stage.cloud.faults.script("inventory", *[fault] * 60)
    await stage.play(140, step=10)
    assert "should be on it" in (await _frozen(stage) or "")
    assert await _states(stage, leases) == ["ready"] * 5
    assert [await _missed_lists(stage, lease) for lease in leases] == [0] * 5
    assert orphan.ended_at is None
    assert len(stage.cloud.alive()) == 6

    waiting = await stage.lease(await stage.organization())
    await stage.play(20, step=5)
    assert await stage.state(waiting) == "placing", "nothing is bought at a frozen account"
    stage.cloud.faults.clear()
    await stage.play(170, step=20)
    assert await _frozen(stage) is None
    assert await _states(stage, [*leases, waiting]) == ["ready"] * 6
    assert orphan.ended_at is not None
    await stage.finish()


async def test_an_empty_list_that_stays_for_a_quarter_of_an_hour_is_believed_and_bills_nothing_of_it(
    stage: Stage,
) -> None:
    leases = await _ready(stage, 3)
    last_seen = stage.clock.now()
    for lease in leases:
        stage.cloud.disappear((await _machine(stage, lease)).provider_ref)
    stage.clock.advance(2)
    await stage.play(14 * 60, step=60)
    assert await _states(stage, leases) == ["ready"] * 3
    assert await _frozen(stage) is not None
    await stage.play(5 * 60, step=30)
    assert await _states(stage, leases) == ["ended"] * 3
    for lease in leases:
        row = await stage.lease_row(lease)
        assert row.end_reason is EndReason.MACHINE_LOST
        assert row.billed_until is not None
        assert row.billed_until <= last_seen
    await stage.finish()


async def test_machines_that_report_are_kept_however_long_the_lists_are_wrong_and_billed_once_they_are_right(
    stage: Stage,
) -> None:
    first, second = await _ready(stage, 2)
    last_seen = stage.clock.now()
    stage.cloud.faults.always("inventory", Fault.EMPTY_LISTING)
    await stage.play(90 * 60, step=180)
    assert await _states(stage, [first, second]) == ["ready"] * 2
    assert len(stage.cloud.alive()) == 2
    assert "2 of them reported in the last five minutes." in (await _frozen(stage) or "")
    until = await _metered_until(stage, first)
    assert until is None or until <= last_seen, "what a machine says moves no money"
    message = project(
        await stage.lease_row(first), (await stage.shown(first)).overview.evidence, stage.clock.now()
    )
    assert message.unconfirmed is not None, "its customer is told"
    stage.cloud.faults.clear()
    await stage.play(60, step=10)
    assert await _frozen(stage) is None
    await stage.release(first)
    row = await stage.lease_row(first)
    assert row.ready_at is not None
    assert row.billed_until is not None
    assert row.billed_until - row.ready_at > timedelta(minutes=90)
    await stage.finish()


async def test_a_silent_fleet_behind_wrong_lists_is_kept_until_an_operator_permits_its_end(
    stage: Stage,
) -> None:
    """The hub is away and the list is empty: nothing tells whether the machines live."""
    leases = await _ready(stage, 5)
    last_seen = stage.clock.now()
    for lease in leases:
        stage.cloud.disappear((await _machine(stage, lease)).provider_ref)
    await stage.play(2 * 3_600, step=300)
    assert await _states(stage, leases) == ["ready"] * 5
    freeze = (await _account(stage)).freeze
    assert freeze is not None
    assert (freeze.missing, freeze.needs_permit) == (5, True)
    platform = await stage.operators()

    async def permit(seen: MissingPermit) -> accounts_service.Permit | Refused:
        async with stage.api.db.transaction(platform) as connection:
            return await accounts_service.permit_terminations(
                connection, stage.api, FAKE, minutes=30, why="a hall", actor=OPERATOR, missing=seen
            )

    for seen in (MissingPermit(freeze.since, 4), MissingPermit(freeze.since - timedelta(seconds=1), 5)):
        refused = await permit(seen)
        assert isinstance(refused, Refused)
        assert refused.code is RefusalCode.LISTING_CHANGED
    await stage.play(300, step=60)
    assert await _states(stage, leases) == ["ready"] * 5
    assert isinstance(await permit(MissingPermit(freeze.since, 5)), accounts_service.Permit)
    await stage.play(240, step=20)
    assert await _states(stage, leases) == ["ended"] * 5
    for lease in leases:
        row = await stage.lease_row(lease)
        assert row.end_reason is EndReason.MACHINE_LOST
        assert row.billed_until is not None
        assert row.billed_until <= last_seen
    assert await _frozen(stage) is None
    refused = await permit(MissingPermit(freeze.since, 5))
    assert isinstance(refused, Refused)
    await stage.finish()


async def test_lists_that_lose_a_few_machines_at_a_time_end_no_more_leases_than_a_few(stage: Stage) -> None:
    leases = await _ready(stage, 8)
    for lease in leases[:2]:
        stage.cloud.disappear((await _machine(stage, lease)).provider_ref)
    await stage.play(400, step=20)
    assert await _states(stage, leases) == ["ended"] * 2 + ["ready"] * 6, "two of eight are believed"
    for lease in leases[2:4]:
        stage.cloud.disappear((await _machine(stage, lease)).provider_ref)
    await stage.play(30 * 60, step=180)
    assert await _states(stage, leases) == ["ended"] * 2 + ["ready"] * 6, "four of eight are not"
    assert "The list misses 4 of 8 machines" in (await _frozen(stage) or "")
    await stage.play(60 * 60, step=300)
    assert await _states(stage, leases) == ["ended"] * 4 + ["ready"] * 4, "an hour later these are two of six"
    await stage.finish()


# Answers that come late.


async def test_a_list_that_arrives_after_one_that_was_asked_for_later_is_dropped(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _ready(stage, 3)
    other = stage.replica("two")

    async def late() -> tuple[Sighting, ...]:
        stage.clock.advance(2)
        await stage.run("observe_machines", world=other)
        return ()

    stage.clock.advance(2)
    with monkeypatch.context() as patch:
        patch.setattr(stage.world.accounts[FAKE], "inventory", late)
        (report,) = await stage.run("observe_machines")
    assert report.notes == ["a list that was asked for later is stored already"]
    assert (await _frozen(stage), (await _account(stage)).listing_size) == (None, 3)
    await stage.finish()


async def test_offers_that_arrive_late_replace_no_newer_ones_and_bring_no_removed_account_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = stage.replica("two")
    await stage.run("refresh_offers")
    listed = stage.cloud.listing

    async def offers() -> int:
        async with stage.db.reading() as connection:
            return len(await catalogue.offers(connection))

    async def overtaken() -> Sequence[ListedOffer]:
        stage.clock.advance(30)
        await stage.run("refresh_offers", world=other)
        return listed[:1]

    async def removed() -> Sequence[ListedOffer]:
        async with stage.db.transaction() as connection:
            await account_requests.remove(connection, FAKE, now=stage.clock.now())
        return listed

    assert await offers() == len(listed) > 1
    for answer, kept in ((overtaken, len(listed)), (removed, 0)):
        stage.clock.advance(30)
        with monkeypatch.context() as patch:
            patch.setattr(stage.world.accounts[FAKE], "offers", answer)
            (report,) = await stage.run("refresh_offers")
        assert report.notes == ["the account was removed, or offers that were asked for later are stored"]
        assert await offers() == kept


async def test_one_list_that_misses_one_machine_proves_nothing(stage: Stage) -> None:
    leases = await _ready(stage, 3)
    machine = await _machine(stage, leases[0])
    stage.cloud.hide(machine.provider_ref)
    await stage.play(6)
    assert await _missed_lists(stage, leases[0]) > 0
    stage.cloud.show(machine.provider_ref)
    await stage.play(300, step=10)
    assert await _states(stage, leases) == ["ready"] * 3
    assert await _missed_lists(stage, leases[0]) == 0
    await stage.finish()


# Machines that go by themselves.


async def test_a_ready_machine_that_vanishes_is_billed_through_the_last_list_that_showed_it(
    stage: Stage,
) -> None:
    gone, stays = await _ready(stage, 2)
    await stage.play(3_000, step=300)
    last_seen = stage.clock.now()
    stage.cloud.disappear((await _machine(stage, gone)).provider_ref)
    stage.clock.advance(10)
    await stage.play_until(gone, "ended", seconds_max=420, step=10)
    row = await stage.lease_row(gone)
    assert (row.end_reason, row.billed_until) == (EndReason.MACHINE_LOST, last_seen)
    assert (await stage.attempts(gone))[0].fail_reason is FailReason.VANISHED
    assert await stage.state(stays) == "ready"
    await stage.finish()


async def test_a_machine_that_the_provider_ended_during_an_outage_is_billed_through_the_last_list_before_it(
    stage: Stage,
) -> None:
    stage.cloud.settings = dataclasses.replace(stage.cloud.settings, terminated_visible_seconds=86_400.0)
    gone, stays = await _ready(stage, 2)
    last_seen = stage.clock.now()
    stage.clock.advance(5)
    stage.cloud.faults.always("inventory", Fault.LISTING_FAILS)
    await stage.cloud.terminate((await _machine(stage, gone)).provider_ref)
    await stage.play(2 * 3_600, step=300)
    stage.cloud.faults.clear()
    stage.clock.advance(60)
    await stage.play_until(gone, "ended", seconds_max=240, step=20)
    row = await stage.lease_row(gone)
    assert row.end_reason is EndReason.MACHINE_LOST
    assert row.billed_until == last_seen
    assert await stage.state(stays) == "ready"
    await stage.check()
    await stage.finish()


async def test_the_meter_of_a_machine_found_ended_does_not_run_on_the_list_that_shows_its_end(
    stage: Stage,
) -> None:
    """The list is recorded, the process dies, and the meter runs before the lease is ended."""
    stage.cloud.settings = dataclasses.replace(stage.cloud.settings, terminated_visible_seconds=86_400.0)
    gone, _ = await _ready(stage, 2)
    last_seen = stage.clock.now()
    await stage.cloud.terminate((await _machine(stage, gone)).provider_ref)
    stage.clock.advance(2 * 3_600)

    async def dies(*_: object, **__: object) -> bool:
        raise ConnectionError("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("control_plane.outcomes.machines.fail", dies)
        for _ in range(4):
            (report,) = await stage.run("observe_machines")
            await stage.run("meter_usage")
            stage.clock.advance(30)
        assert report.errors == ["ConnectionError: killed"]
    until = await _metered_until(stage, gone)
    assert until is None or until <= last_seen
    await stage.play_until(gone, "ended", seconds_max=120, step=5)
    assert (await stage.lease_row(gone)).billed_until == last_seen
    await stage.finish()


async def test_a_ready_machine_that_the_provider_calls_failed_is_left_to_its_customer(stage: Stage) -> None:
    (lease,) = await _ready(stage, 1)
    stage.cloud.die((await _machine(stage, lease)).provider_ref)
    await stage.play(600, step=30)
    assert await stage.state(lease) == "ready"
    assert len(stage.cloud.alive()) == 1
    await stage.finish()


async def test_a_ready_machine_that_stays_listed_as_failed_waits_for_no_lock_with_each_list(
    stage: Stage,
) -> None:
    (lease,) = await _ready(stage, 1)
    stage.cloud.die((await _machine(stage, lease)).provider_ref)
    stage.clock.advance(2)
    async with stage.db.transaction() as connection:
        await lease_rows.lock(connection, [lease.id])
        (report,) = await stage.run("observe_machines")
    assert (report.looked_at, report.errors) == (1, [])
    await stage.release(lease)
    await stage.finish()


# The meter through an outage.


async def test_the_meter_never_runs_ahead_of_evidence_and_catches_up_after_an_outage(stage: Stage) -> None:
    (lease,) = await _ready(stage, 1)
    last_seen = stage.clock.now()
    stage.cloud.faults.always("inventory", Fault.LISTING_FAILS)
    for _ in range(8):
        await stage.play(1_350, step=450)
        until = await _metered_until(stage, lease)
        assert until is None or until <= last_seen
        await stage.check()
    silent = [error for report in await stage.run("meter_usage") for error in report.errors]
    assert silent == ["1 running leases had no usage for over 2:00:00"]
    stage.cloud.faults.clear()
    await stage.play(40, step=10)
    caught_up = await _metered_until(stage, lease)
    assert caught_up == stage.clock.now().replace(minute=0, second=0, microsecond=0)
    await stage.release(lease)
    await stage.finish()
    row = await stage.lease_row(lease)
    assert row.ready_at is not None
    assert row.billed_until is not None
    assert unit_seconds_total(row.ready_at, 1, row.billed_until) > 8 * 1_350


# Orphans.


async def _collect(stage: Stage) -> Report:
    """What the next run of the loop does."""
    stage.clock.advance(15)
    (report,) = await stage.run("collect_orphans")
    return report


async def test_an_old_orphan_with_our_key_is_ended_after_its_grace_and_not_before(stage: Stage) -> None:
    (lease,) = await _ready(stage, 1)
    orphan = await stage.plant()
    await stage.play(118, step=6)
    assert orphan.ended_at is None
    await stage.play(22, step=2)
    assert orphan.ended_at is not None
    assert await stage.state(lease) == "ready"
    await stage.finish()


async def test_a_machine_of_another_installation_or_without_our_mark_is_never_touched(stage: Stage) -> None:
    await _ready(stage, 1)
    foreign = stage.plant_unrecorded(f"sp-00000000-{'a' * 32}")
    odd = stage.plant_unrecorded("sp-somebody-elses-name")
    await stage.play(600, step=60)
    assert foreign.ended_at is None
    assert odd.ended_at is None
    stage.cloud.disappear(foreign.provider_ref)
    stage.cloud.disappear(odd.provider_ref)
    await stage.finish()


async def test_too_many_orphans_mean_that_our_records_were_lost_and_none_is_terminated(stage: Stage) -> None:
    leases = await _ready(stage, 3)
    orphans = [await stage.plant() for _ in range(4)]
    await stage.play(400, step=10)
    assert [orphan.ended_at for orphan in orphans] == [None] * 4
    report = await _collect(stage)
    assert report.errors == [
        "4 of 7 machines look like orphans; it is more likely that our records were lost."
    ]
    assert await _states(stage, leases) == ["ready"] * 3
    stage.cloud.disappear(orphans[0].provider_ref)
    await stage.play(60, step=5)
    assert [orphan.ended_at is None for orphan in orphans] == [False, True, True, True], "they were spared"
    account = await _account(stage)
    assert (account.armed_at, account.disarmed_why) == (None, report.errors[0])
    assert {(orphan.held_code, orphan.held_why) for orphan in await _orphans(stage)} == {
        (HeldCode.NOT_ARMED, f"The account was disarmed: {report.errors[0]}")
    }
    async with stage.db.transaction() as connection:
        await account_requests.arm(connection, FAKE, now=stage.clock.now())
    await stage.play(60, step=5)
    assert [orphan.ended_at is None for orphan in orphans] == [False] * 4, "an operator looked, and armed it"
    await stage.finish()


async def test_a_database_restored_to_half_an_hour_ago_ends_no_machine_of_a_customer(stage: Stage) -> None:
    """A hundred machines run. The records of the last fifteen are younger than the backup, and of one order the backup
    knows only that it was about to be placed.
    """
    (lease,) = await _ready(stage, 1)
    stage.cloud.stock["h100-sxm-80gb.1", "us-east-1"] = 200
    kept = [await stage.plant() for _ in range(84)]
    async with stage.db.transaction() as connection:
        await connection.execute(
            _HAVE_RECORDS,
            {
                "refs": [machine.provider_ref for machine in kept],
                "keys": [machine.launch_key for machine in kept],
            },
        )
    lost = [stage.plant_unrecorded() for _ in range(14)]
    about = await stage.plant()
    async with stage.db.transaction() as connection:
        await connection.execute(_WAS_NEVER_ASKED, {"key": about.launch_key})
    lost.append(about)
    leak = await stage.plant()
    await stage.play(3_600, step=120)
    assert [machine.ended_at for machine in lost] == [None] * 15
    assert leak.ended_at is None, "what restored records say of another orphan may be as old as they are"
    shown = {orphan.provider_ref: orphan for orphan in await _orphans(stage)}
    found = [shown[machine.provider_ref] for machine in lost]
    assert {orphan.held_code for orphan in found} == {HeldCode.UNRECORDED}
    assert sum(orphan.cost_nano_per_hour or 0 for orphan in found) == 15 * 2_190_000_000
    account = await _account(stage)
    assert account.armed_at is None
    assert (account.disarmed_why or "").startswith("15 of 101 machines have no record of their order")
    assert shown[leak.provider_ref].held_code is HeldCode.LOST_RECORDS

    async with stage.db.transaction() as connection:
        await account_requests.arm(connection, FAKE, now=stage.clock.now())
    report = await _collect(stage)
    assert report.errors[0].endswith("Nothing but a decision ends it.")
    assert (await _account(stage)).armed_at is None, "nobody decided on them yet"
    await _decide(stage, lost[:14], Choice.LEAVE, why="their records are being restored")
    await _decide(stage, lost[14:], why="nobody's")
    async with stage.db.transaction() as connection:
        await account_requests.arm(connection, FAKE, now=stage.clock.now())
    await stage.play(60, step=15)
    assert [machine.ended_at is None for machine in lost] == [True] * 14 + [False]
    assert leak.ended_at is not None
    assert await stage.state(lease) == "ready"


async def test_orphans_of_a_restored_database_are_held_until_an_operator_decides_one_and_then_all(
    stage: Stage,
) -> None:
    """A restore from an old backup: sixty machines run, and nothing on record claims them."""
    (lease,) = await _ready(stage, 1)
    planted = [stage.plant_unrecorded() for _ in range(60)]
    await stage.play(400, step=20)
    assert [machine.ended_at for machine in planted] == [None] * 60
    assert {orphan.held_code for orphan in await _orphans(stage)} == {HeldCode.UNRECORDED}
    first, *others = planted
    await _decide(stage, [first], why="ticket 4711")
    report = await _collect(stage)
    assert [machine.provider_ref for machine in planted if machine.ended_at] == [first.provider_ref]
    (line,) = report.events
    assert line.facts["why"].startswith("key_1 decided it at ")
    assert line.facts["why"].endswith(": ticket 4711")
    (shown,) = [orphan for orphan in await _orphans(stage) if orphan.provider_ref == first.provider_ref]
    assert (shown.held_code, shown.decided_by, shown.decided_why) == (None, "key_1", "ticket 4711")
    await _decide(stage, others, why="ticket 4712")
    await stage.play(120, step=15)
    assert all(machine.ended_at for machine in planted)
    assert await stage.state(lease) == "ready"
    await stage.finish()


async def test_what_an_operator_decides_ends_in_a_dry_run_and_on_a_frozen_account(stage: Stage) -> None:
    leases = await _ready(stage, 6)
    orphans = [await stage.plant() for _ in range(2)]
    stage.world = dataclasses.replace(stage.world, orphans_dry_run=True)
    await stage.play(200, step=20)
    assert {orphan.held_code for orphan in await _orphans(stage)} == {HeldCode.DRY_RUN}
    await _decide(stage, orphans[:1])
    await _collect(stage)
    assert [orphan.ended_at is None for orphan in orphans] == [False, True]
    stage.world = dataclasses.replace(stage.world, orphans_dry_run=False)
    hidden = [machine for machine in stage.cloud.alive() if machine not in orphans]
    for machine in hidden:
        stage.cloud.hide(machine.provider_ref)
    stage.clock.advance(60)
    await stage.run("observe_machines")
    await _collect(stage)
    assert {orphan.held_code for orphan in await _orphans(stage)} >= {HeldCode.ACCOUNT_FROZEN}
    await _decide(stage, orphans[1:])
    await _collect(stage)
    assert [orphan.ended_at is None for orphan in orphans] == [False, False]
    for machine in hidden:
        stage.cloud.show(machine.provider_ref)
    await stage.play(60, step=20)
    assert await _states(stage, leases) == ["ready"] * 6
    await stage.finish()


async def _orphans(stage: Stage) -> list[ListedOrphan]:
    """All orphans, with the operators' decisions, which only the platform's organization sees in the API's role."""
    world = dataclasses.replace(stage.api, db=stage.db)
    return [*await orphans.page(world, PLATFORM, gone=False, after=None, limit=1_000)]


async def _decide(
    stage: Stage, machines: list[FakeMachine], choice: Choice = Choice.END, *, why: str = "it is ours"
) -> None:
    refs = [machine.provider_ref for machine in machines]
    async with stage.db.transaction() as connection:
        decided = await orphans.decide(connection, stage.api, FAKE, refs, choice, why=why, actor=OPERATOR)
    assert isinstance(decided, list), decided


async def test_machines_that_ended_long_ago_and_are_still_listed_shield_no_orphan(stage: Stage) -> None:
    """Some clouds list a terminated machine for an hour."""
    stage.cloud.settings = dataclasses.replace(stage.cloud.settings, terminated_visible_seconds=3_600.0)
    leases = await _ready(stage, 6)
    await stage.release_all()
    for lease in leases:
        await stage.play_until(lease, "ended", seconds_max=60)
    terminates = stage.cloud.calls_of("terminate")
    orphan = await stage.plant()
    await stage.play(200, step=20)
    assert orphan.ended_at is not None
    assert stage.cloud.calls_of("terminate") == terminates + 1
    await stage.finish()


async def test_a_dry_run_ends_no_orphan_and_says_which_it_would(stage: Stage) -> None:
    await _ready(stage, 1)
    orphan = await stage.plant()
    stage.world = dataclasses.replace(stage.world, orphans_dry_run=True)
    await stage.play(300, step=30)
    report = await _collect(stage)
    assert report.notes == [f"would terminate {orphan.provider_ref} ({orphan.launch_key})"]
    assert orphan.ended_at is None
    stage.world = dataclasses.replace(stage.world, orphans_dry_run=False)
    await stage.play(30, step=10)
    await stage.finish()


async def test_an_orphan_that_is_gone_between_the_look_and_the_kill_stops_nothing(stage: Stage) -> None:
    await _ready(stage, 1)
    orphans = [await stage.plant() for _ in range(2)]
    await stage.play(110, step=10)
    stage.clock.advance(20)
    await stage.run("observe_machines")
    stage.cloud.disappear(orphans[0].provider_ref)
    report = await _collect(stage)
    assert report.errors == []
    assert orphans[1].ended_at is not None
    await stage.finish()


async def test_an_orphan_whose_end_is_refused_is_asked_again(stage: Stage) -> None:
    await _ready(stage, 1)
    orphan = await stage.plant()
    stage.cloud.faults.script("terminate", Fault.NOT_YET, Fault.LOST_WITHOUT_EFFECT)
    await stage.play(180, step=5)
    assert orphan.ended_at is not None
    await stage.finish()


async def test_three_replicas_together_terminate_no_more_orphans_per_run_than_one(stage: Stage) -> None:
    leases = await _ready(stage, 1)
    orphans = [await stage.plant() for _ in range(3)]
    await stage.play(110, step=10)
    stage.clock.advance(20)
    await stage.run("observe_machines")
    reports = [
        (await stage.run("collect_orphans", world=stage.replica(name)))[0] for name in ("one", "two", "three")
    ]
    assert [report.looked_at for report in reports] == [3, 0, 0]
    assert all(orphan.ended_at for orphan in orphans)
    assert await _states(stage, leases) == ["ready"]
    await stage.finish()


async def test_no_orphan_is_terminated_while_the_listing_fails(stage: Stage) -> None:
    await _ready(stage, 1)
    orphan = await stage.plant()
    await stage.play(100, step=10)
    stage.cloud.faults.always("inventory", Fault.LISTING_FAILS)
    await stage.play(120, step=10)
    assert orphan.ended_at is None
    assert {shown.held_code for shown in await _orphans(stage)} == {HeldCode.ACCOUNT_FAILING}
    stage.cloud.faults.clear()
    await stage.play(60, step=10)
    assert orphan.ended_at is not None
    await stage.finish()


async def test_machines_of_others_and_machines_that_ended_make_no_breaker_blunter(stage: Stage) -> None:
    """An account that is shared with a large fleet: a fifth of that fleet is no measure of ours."""
    await _ready(stage, 3)
    foreign = [stage.plant_unrecorded(f"sp-00000000-{number:032x}") for number in range(40)]
    orphans = [await stage.plant() for _ in range(4)]
    await stage.play(200, step=20)
    assert (await _account(stage)).listing_size == 7
    assert [orphan.ended_at for orphan in orphans] == [None] * 4
    for machine in (*foreign, *orphans):
        stage.cloud.disappear(machine.provider_ref)
    await stage.finish()


# The hub.


async def test_a_machine_that_ended_while_the_hub_was_being_updated_leaves_the_hub_at_the_next_turn(
    stage: Stage,
) -> None:
    ends, stays = await _ready(stage, 2)
    hub_called, goes_on = asyncio.Event(), asyncio.Event()
    hub = stage.hub

    class _Slow:
        async def sync(self, net: Network, peers: list[Peer], *, fence: int) -> HubIdentity:
            hub_called.set()
            await goes_on.wait()
            return await hub.sync(net, peers, fence=fence)

    slow = dataclasses.replace(stage.replica("slow"), hub=_Slow())  # type: ignore[arg-type]
    async with stage.db.reading() as connection:
        number = (await rows(connection, text("SELECT number FROM hub_networks")))[0].number
    of_lease = Network(number, range_of(0))
    assert ends.network_id is not None
    telling = asyncio.create_task(network.sync(slow, ends.network_id, of_lease))
    await hub_called.wait()
    await stage.release(ends)
    await stage.run("sync_hub")
    goes_on.set()
    await telling
    stage.clock.advance(5)
    await stage.run("sync_hub")
    kept = {machine.id for machine in await stage.machines(stays)}
    assert await _on_hub(stage, number) == kept
    await stage.finish()


async def _on_hub(stage: Stage, number: int) -> set[MachineId]:
    async with stage.db.reading() as connection:
        known = await rows(
            connection,
            text("SELECT c.machine_id AS id, p.address FROM claims c JOIN peers p ON p.claim_id = c.id"),
        )
    by_address = {row.address: MachineId(row.id) for row in known}
    return {
        by_address.get(peer.address, MachineId(stage.world.new_id())) for peer in stage.hub.networks[number]
    }


async def test_a_request_for_a_region_waits_out_a_frozen_account_and_is_served_after_it(stage: Stage) -> None:
    leases = await _ready(stage, 2)
    stage.cloud.faults.script("inventory", *[Fault.EMPTY_LISTING] * 10)
    await stage.play(6)
    lease = await stage.lease(await stage.organization(), CapacityRequest("h100x1", regions=("eu",)))
    await stage.play_until(lease, "ready", seconds_max=120)
    assert (await stage.machines(lease))[0].state is MachineState.VERIFIED
    assert (stage.clock.now() - lease.created_at) < timedelta(minutes=2)
    assert await _states(stage, leases) == ["ready"] * 2
    await stage.finish()


async def test_one_odd_offer_is_left_out_with_a_note_and_the_others_are_refreshed(stage: Stage) -> None:
    good = stage.cloud.listing
    odd = dataclasses.replace(
        good[0], native_type="odd\0", shape=dataclasses.replace(good[0].shape, disk_gib=2**40)
    )
    stage.cloud.listing = [*good, good[0], odd]
    (report,) = await stage.run("refresh_offers")
    assert report.errors == []
    assert (report.looked_at, len(report.notes)) == (len(good), 2)
    assert "listed twice" in report.notes[0]
    async with stage.db.reading() as connection:
        stored = await catalogue.offers(connection)
    assert len(stored) == len(good)
    assert all(offer.observed_at == stage.clock.now() for offer in stored)
