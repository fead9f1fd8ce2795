"""Leases that run as they should not: what is found, asked of the workload, announced and done, and that it ends."""

import dataclasses
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from control_plane.db import conditions as condition_rows
from control_plane.db import enforcement, health
from control_plane.db.conditions import Hour
from control_plane.db.enforcement import Arm, MachineSignal
from control_plane.db.engine import Database
from control_plane.domain import detection, throughput
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.enforcement import (
    ActionEnd,
    Basis,
    Case,
    Detector,
    EnforcementAction,
    Finding,
    FindingOutcome,
    Present,
    StopMachine,
    next_step,
)
from control_plane.domain.envelope import Envelope
from control_plane.domain.health import FaultCode
from control_plane.domain.ids import ClaimId
from control_plane.domain.lease import Lease
from control_plane.domain.notice import NoticeKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.throughput import THROUGHPUT_MAX
from control_plane.outcomes import enforcement as outcomes
from control_plane.outcomes.enforcement import Work
from control_plane.services import enforcement as services
from control_plane.services import sla
from control_plane.world import uuid7
from data_plane.documents.health import Throttle
from data_plane.documents.sample import Gpu, Server
from reconciler.loops.enforcement import enforce_rules
from tests.support import conditions, machine_samples, promises
from tests.support.faults import GOOD, shows
from tests.support.ready import ready_leases
from tests.support.rows import rows
from tests.support.stage import CUSTOMER, OPERATOR, Stage

pytestmark = pytest.mark.database
A = EnforcementAction
_ACTIONS = text("""
SELECT a.id, a.detector, a.action, a.armed, a.at, a.expires_at, a.planned_at, a.why, a.evidence, e.ended
FROM enforcement_actions a LEFT JOIN enforcement_ends e ON e.action_id = a.id WHERE a.lease_id = :id ORDER BY a.at, a.id
""")
_TRUSTED = text("""
INSERT INTO sla_trusts (organization_id, month, lease_id, since)
SELECT organization_id, date_trunc('month', CAST(:now AS timestamptz), 'UTC'), id, :now FROM leases WHERE id = :id
""")
_FINDINGS = text("SELECT detector, outcome, why FROM findings WHERE lease_id = :id ORDER BY opened_at, id")
_UNDO = text("""
INSERT INTO enforcement_undos (action_id, asked_at, asked_by, why) VALUES (:id, :now, 'test', 'a false alarm')
""")
_IDLE_STOP = text("""
INSERT INTO idle_stops (organization_id, lease_id, after_seconds, set_at, set_by)
VALUES (:organization_id, :id, :seconds, :now, 'test')
""")


async def actions(stage: Stage, lease: Lease) -> list[tuple[str, str, str | None]]:
    async with stage.db.reading() as connection:
        found = (await connection.execute(_ACTIONS, {"id": lease.id})).all()
    return [(row.detector, row.action, row.ended) for row in found]


async def findings(stage: Stage, lease: Lease) -> list[tuple[str, str | None]]:
    async with stage.db.reading() as connection:
        found = (await connection.execute(_FINDINGS, {"id": lease.id})).all()
    return [(row.detector, row.outcome) for row in found]


async def arm(stage: Stage, *detectors: Detector, armed: bool = True) -> None:
    async with stage.db.transaction() as connection:
        for detector in detectors:
            await enforcement.arm(
                connection,
                uuid7(),
                Arm(detector, armed=armed, at=stage.clock.now(), set_by="test", why="looked"),
            )


async def signal(ingest_db: Database, stage: Stage, lease: Lease) -> MachineSignal | None:
    """What the workload of a lease is asked for now, as the ingest process reads it."""
    async with ingest_db.reading() as connection:
        found = await enforcement.signals(connection, now=stage.clock.now())
    claims = await claims_of(stage, lease)
    return next((each for each in found.values() if each.claim_id in claims), None)


async def claims_of(stage: Stage, lease: Lease) -> set[UUID]:
    async with stage.db.reading() as connection:
        found = await rows(connection, text("SELECT id, lease_id FROM claims"))
    return {row.id for row in found if row.lease_id == lease.id}


async def lasts(
    stage: Stage,
    lease: Lease,
    seconds: int,
    *,
    kv_bp: int = 1_000,
    growth_bp: int = 0,
    gpu: Gpu | None = None,
) -> None:
    """The agent sends a sample every 15 s. The loops of enforcement run after each, all others every few minutes."""
    for number in range(seconds // 15):
        server = Server(
            8000, "vllm", kv_cache_bp=min(10_000, kv_bp + growth_bp * number), running=8, waiting=0
        )
        servers = (server,) if gpu is None else ()
        card = gpu or Gpu(0, memory_total_mib=80_000, memory_used_mib=72_000, utilisation_percent=90)
        await machine_samples.sent(stage, lease, card, servers=servers)
        if number % 16 == 0:
            await stage.turns()
        await stage.run("enforce_rules")
        await stage.run("end_actions")
        stage.clock.advance(15)


IDLE = Gpu(0, memory_total_mib=80_000, memory_used_mib=10, utilisation_percent=0)


async def stop_when_idle(stage: Stage, lease: Lease) -> None:
    """Its customer wants its machine stopped after an idle hour."""
    async with stage.db.transaction(lease.organization_id) as connection:
        values = {"organization_id": lease.organization_id, "id": lease.id, "seconds": 3_600}
        await connection.execute(_IDLE_STOP, {**values, "now": stage.clock.now()})


async def about_to_be_stopped(stage: Stage) -> Lease:
    """A lease whose machine idles, and is stopped in a few minutes, as its customer wanted and was told."""
    stage.sell_cheap_stops()
    (lease,) = await ready_leases(stage, 1, seconds=60)
    await arm(stage, Detector.IDLE)
    await stop_when_idle(stage, lease)
    await lasts(stage, lease, 55 * 60, gpu=IDLE)
    return lease


async def test_a_cache_that_fills_up_is_told_and_asked_about_and_the_file_goes_when_it_is_over(
    stage: Stage, ingest_db: Database
) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    await arm(stage, Detector.KV_CACHE_GROWTH)
    await lasts(stage, lease, 8 * 60, kv_bp=2_500, growth_bp=150)
    asked = await signal(ingest_db, stage, lease)
    assert asked is not None
    assert (asked.action, asked.reason, asked.ends_at) == (A.STOP_ADMISSION, Detector.KV_CACHE_GROWTH, None)
    assert [(action, ended) for _, action, ended in await actions(stage, lease)] == [
        (A.NOTIFY, "superseded"),
        (A.THROTTLE_ADMISSION, "superseded"),
        (A.STOP_ADMISSION, None),
    ]
    async with stage.db.reading() as connection:
        (notice,) = await health.notices_of_lease(connection, lease.id, before=None, limit=50)
    assert notice.kind is NoticeKind.CONDITION_FOUND
    await lasts(stage, lease, 9 * 60, kv_bp=1_000)
    assert await signal(ingest_db, stage, lease) is None
    assert await findings(stage, lease) == [(Detector.KV_CACHE_GROWTH, FindingOutcome.RECOVERED)]
    story = await stage.story(lease)
    assert story.count("lease enforcement") == 4, "the three actions, and that it is over"
    assert await stage.state(lease) == "ready"
    await stage.finish()


async def test_without_an_operators_word_everything_is_decided_and_nothing_is_done(
    stage: Stage, ingest_db: Database
) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    await lasts(stage, lease, 8 * 60, kv_bp=2_500, growth_bp=150)
    assert [action for _, action, _ in await actions(stage, lease)] == [
        A.NOTIFY,
        A.THROTTLE_ADMISSION,
        A.STOP_ADMISSION,
    ]
    assert await signal(ingest_db, stage, lease) is None
    async with stage.db.reading() as connection:
        assert await health.notices_of_lease(connection, lease.id, before=None, limit=50) == []
    assert "lease enforcement" not in await stage.story(lease)
    await stage.finish()


async def test_a_machine_that_falls_silent_is_asked_for_nothing_any_more(
    stage: Stage, ingest_db: Database
) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    await arm(stage, Detector.KV_CACHE_GROWTH)
    await lasts(stage, lease, 8 * 60, kv_bp=2_500, growth_bp=150)
    await stage.play(6 * 60, step=60)
    assert await signal(ingest_db, stage, lease) is None
    assert await findings(stage, lease) == [(Detector.KV_CACHE_GROWTH, FindingOutcome.SILENT)]
    await stage.finish()


async def test_what_an_operator_undid_is_gone_at_once_and_not_done_again_for_a_while(
    stage: Stage, ingest_db: Database
) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    await arm(stage, Detector.KV_CACHE_GROWTH)
    await lasts(stage, lease, 8 * 60, kv_bp=2_500, growth_bp=150)
    async with stage.db.transaction() as connection:
        (last,) = (await connection.execute(_ACTIONS, {"id": lease.id})).all()[-1:]
        await connection.execute(_UNDO, {"id": last.id, "now": stage.clock.now()})
    await stage.run("end_actions")
    assert await signal(ingest_db, stage, lease) is None
    before = len(await actions(stage, lease))
    await lasts(stage, lease, 50 * 60, kv_bp=9_900)
    assert len(await actions(stage, lease)) == before
    assert await findings(stage, lease) == [(Detector.KV_CACHE_GROWTH, FindingOutcome.UNDONE)]
    await lasts(stage, lease, 15 * 60, kv_bp=9_900)
    assert (await findings(stage, lease))[-1] == (Detector.KV_CACHE_GROWTH, None)
    assert "lease enforcement" in await stage.story(lease)
    await stage.finish()


async def test_an_idle_machine_is_stopped_as_its_customer_wanted_after_a_notice(
    stage: Stage, ingest_db: Database
) -> None:
    stage.sell_cheap_stops()
    (lease,) = await ready_leases(stage, 1, seconds=60)
    await arm(stage, Detector.IDLE)
    await stop_when_idle(stage, lease)
    began = stage.clock.now()
    await lasts(stage, lease, 55 * 60, gpu=IDLE)
    asked = await signal(ingest_db, stage, lease)
    assert asked is not None
    assert asked.action is A.SHUTDOWN
    assert asked.ends_at is not None
    assert timedelta(minutes=59) < asked.ends_at - began < timedelta(minutes=61)
    async with stage.db.reading() as connection:
        stop, told = await health.notices_of_lease(connection, lease.id, before=None, limit=50)
    assert (stop.kind, told.kind) == (NoticeKind.STOP_PLANNED, NoticeKind.CONDITION_FOUND)
    assert stop.planned_at == asked.ends_at
    await lasts(stage, lease, 8 * 60, gpu=IDLE)
    assert await findings(stage, lease) == [(Detector.IDLE, FindingOutcome.STOPPED)]
    assert [ended for _, _, ended in await actions(stage, lease)] == ["superseded", "done"]
    await stage.play(5 * 60, step=15)
    assert await stage.state(lease) == "ready", "the lease stays, and its disk"
    assert "lease power_changed" in await stage.story(lease)
    await stage.finish()


async def test_an_idle_machine_whose_customer_did_not_ask_for_it_is_never_stopped(
    stage: Stage, ingest_db: Database
) -> None:
    stage.sell_cheap_stops()
    (lease,) = await ready_leases(stage, 1, seconds=60)
    await arm(stage, Detector.IDLE)
    await lasts(stage, lease, 3 * 3_600, gpu=IDLE)
    assert {action for _, action, _ in await actions(stage, lease)} == {A.NOTIFY}
    assert await signal(ingest_db, stage, lease) is None
    await stage.finish()


async def test_a_machine_that_works_again_before_the_announced_time_runs_on(
    stage: Stage, ingest_db: Database
) -> None:
    lease = await about_to_be_stopped(stage)
    await lasts(stage, lease, 15 * 60, kv_bp=1_000)
    assert await findings(stage, lease) == [(Detector.IDLE, FindingOutcome.RECOVERED)]
    assert await signal(ingest_db, stage, lease) is None
    assert "lease power_requested" not in await stage.story(lease)
    await stage.finish()


async def test_a_stop_that_was_only_decided_is_announced_before_it_happens_once_the_detector_is_armed(
    stage: Stage, ingest_db: Database
) -> None:
    stage.sell_cheap_stops()
    (lease,) = await ready_leases(stage, 1, seconds=60)
    await stop_when_idle(stage, lease)
    await lasts(stage, lease, 58 * 60, gpu=IDLE)
    assert [action for _, action, _ in await actions(stage, lease)] == [A.NOTIFY, A.SHUTDOWN]
    await arm(stage, Detector.IDLE)
    armed_at = stage.clock.now()
    await lasts(stage, lease, 4 * 60, gpu=IDLE)
    assert "lease power_requested" not in await stage.story(lease), "its customer was told of nothing before"
    asked = await signal(ingest_db, stage, lease)
    assert asked is not None
    assert asked.ends_at is not None
    assert asked.ends_at - armed_at >= timedelta(minutes=10)
    async with stage.db.reading() as connection:
        stop, told = await health.notices_of_lease(connection, lease.id, before=None, limit=50)
    assert (stop.kind, told.kind) == (NoticeKind.STOP_PLANNED, NoticeKind.CONDITION_FOUND)
    await lasts(stage, lease, 8 * 60, gpu=IDLE)
    assert await findings(stage, lease) == [(Detector.IDLE, FindingOutcome.STOPPED)]
    await stage.finish()


async def test_a_stop_that_was_announced_is_taken_back_when_the_detector_is_disarmed(
    stage: Stage, ingest_db: Database
) -> None:
    lease = await about_to_be_stopped(stage)
    assert await signal(ingest_db, stage, lease) is not None
    await arm(stage, Detector.IDLE, armed=False)
    await lasts(stage, lease, 8 * 60, gpu=IDLE)
    assert await findings(stage, lease) == [(Detector.IDLE, FindingOutcome.UNDONE)], "nothing was stopped"
    assert [ended for _, _, ended in await actions(stage, lease)] == [ActionEnd.SUPERSEDED, ActionEnd.OVER]
    assert await signal(ingest_db, stage, lease) is None
    story = await stage.story(lease)
    assert "lease power_requested" not in story
    assert story.count("lease enforcement") == 3, "the notice, the announcement, and that it is taken back"
    await stage.finish()


async def test_what_changed_since_the_look_keeps_a_machine_from_being_stopped(stage: Stage) -> None:
    lease = await about_to_be_stopped(stage)
    async with stage.db.reading() as connection:
        (watched,) = await condition_rows.watched(connection, after=None, limit=10)
        (finding,) = (await enforcement.open_findings(connection, [watched.claim_id])).values()
    present = Present(finding.since, "idle", Basis.CONSENT)

    async def stops(finding: Finding) -> bool:
        case = Case(watched, Detector.IDLE, present, finding)
        async with stage.db.transaction() as connection:
            work = Work(connection, armed=True, rules="", actor=OPERATOR, now=stage.clock.now())
            return await outcomes.stop_machine(work, case, finding, StopMachine(present))

    await services.set_idle_stop(
        stage.api, lease.organization_id, lease.id, None, actor=CUSTOMER, reach=EVERYWHERE
    )
    assert not await stops(finding), "its customer does not want it any more"
    assert "lease power_requested" not in await stage.story(lease)
    await stop_when_idle(stage, lease)
    assert await stops(finding)
    await stage.finish()


async def test_a_lease_outside_of_an_envelope_is_asked_to_end_before_the_envelope_ends_it(
    stage: Stage, ingest_db: Database
) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    await arm(stage, Detector.ENVELOPE_BREACH)
    await stage.narrow(lease.organization_id, Envelope(gpus=0, ends_after_seconds=3_600))
    await stage.play(58 * 60, step=60)
    async with stage.db.reading() as connection:
        asks, told = await health.notices_of_lease(connection, lease.id, before=None, limit=50)
    assert told.planned_at is not None
    assert f"otherwise the lease ends at {told.planned_at:%Y-%m-%d %H:%M} UTC" in told.message
    assert asks.planned_at == told.planned_at
    asked = await signal(ingest_db, stage, lease)
    assert asked is not None
    assert asked.action is A.EVICT
    assert asked.ends_at is not None
    assert [action for _, action, _ in await actions(stage, lease)] == [
        A.NOTIFY,
        A.THROTTLE_ADMISSION,
        A.STOP_ADMISSION,
        A.EVICT,
    ]
    await stage.play(5 * 60, step=60)
    assert await stage.state(lease) in (
        "ending",
        "ended",
    )  # By the loop that watches envelopes, and by no action.
    assert await findings(stage, lease) == [(Detector.ENVELOPE_BREACH, FindingOutcome.GONE)]
    await stage.finish()


async def test_a_lease_whose_money_runs_out_is_asked_to_end_before_it_does_and_a_top_up_takes_it_back(
    stage: Stage, ingest_db: Database
) -> None:
    organization = await stage.organization(usd=4)
    lease = await stage.lease(organization)
    await stage.play_until(lease, "ready", seconds_max=90)
    await arm(stage, Detector.UNFUNDED)
    await stage.play(52 * 60, step=60)
    found = await actions(stage, lease)
    assert [action for _, action, _ in found][:1] == [A.NOTIFY]
    assert found[-1][1] == A.EVICT
    asked = await signal(ingest_db, stage, lease)
    assert asked is not None
    assert asked.ends_at is not None
    assert timedelta(minutes=0) < asked.ends_at - stage.clock.now() < timedelta(minutes=11)
    await stage.finish()


async def test_operators_arm_see_and_undo_and_customers_wish_and_read(stage: Stage) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    whose = platform = lease.organization_id
    operators = dataclasses.replace(stage.api, db=stage.db)  # Who see the rows of all tenants.
    async with operators.db.transaction() as connection:
        await services.set_arm(connection, operators, Detector.IDLE, armed=True, why="looked", actor=OPERATOR)
    states = {state.detector: state for state in await services.detectors(operators, platform)}
    assert states[Detector.IDLE].arm is not None
    assert states[Detector.UNFUNDED].arm is None
    made = await conditions.taken(stage, lease)
    hidden = await conditions.taken(stage, lease, detector=Detector.MEMORY_PRESSURE, armed=False)
    shown = await services.page(operators, platform, only_running=True, lease_id=None, before=None, limit=10)
    assert {action.id for action in shown} == {made, hidden}
    async with operators.db.transaction() as connection:
        undone = await services.undo(connection, operators, made, why="a benchmark", actor=OPERATOR)
    assert isinstance(undone, services.ShownAction)
    await stage.run("end_actions")
    async with operators.db.transaction() as connection:
        again = await services.undo(connection, operators, made, why="again", actor=OPERATOR)
    assert isinstance(again, Refused)
    assert again.code is RefusalCode.ENFORCEMENT_ENDED
    refused = await services.set_idle_stop(
        stage.api, whose, lease.id, 7_200, actor=CUSTOMER, reach=EVERYWHERE
    )
    assert refused is None
    read = await services.of_lease(stage.api, whose, lease.id, before=None, limit=10, reach=EVERYWHERE)
    assert isinstance(read, services.LeaseEnforcement)
    assert read.idle_stop_seconds == 7_200
    assert [(action.id, action.ended) for action in read.actions] == [(made, ActionEnd.UNDONE)]
    await stage.release(lease)
    late = await services.set_idle_stop(stage.api, whose, lease.id, None, actor=CUSTOMER, reach=EVERYWHERE)
    assert isinstance(late, Refused)
    assert late.code is RefusalCode.LEASE_ENDING
    await stage.finish()


async def test_a_broken_promise_is_told_and_its_credit_is_named_once_and_given_once(stage: Stage) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    await arm(stage, Detector.SLA_VIOLATION)
    await promises.broken(stage, lease.id)
    await stage.run("enforce_rules")
    assert [action for _, action, _ in await actions(stage, lease)] == [A.NOTIFY]
    await stage.run("credit_breaches")
    for _ in range(4):
        stage.clock.advance(15)
        await stage.run("enforce_rules")
        await stage.run("credit_breaches")
    assert await actions(stage, lease) == [
        (Detector.SLA_VIOLATION, A.NOTIFY, "superseded"),
        (Detector.SLA_VIOLATION, A.CREDIT, "done"),
    ]
    assert await findings(stage, lease) == [(Detector.SLA_VIOLATION, FindingOutcome.CREDITED)]
    async with stage.db.reading() as connection:
        given = await rows(connection, text("SELECT amount_nano FROM sla_credits"))
    assert [row.amount_nano for row in given] == [10]
    await stage.finish()


async def test_a_credit_that_finance_refused_is_waited_for_no_longer(stage: Stage) -> None:
    first, second = await ready_leases(stage, 2, seconds=60)
    await arm(stage, Detector.SLA_VIOLATION)
    await promises.broken(stage, first.id)
    breach = await promises.broken(stage, second.id, outside=0)
    async with stage.db.transaction() as connection:
        await connection.execute(_TRUSTED, {"id": first.id, "now": stage.clock.now()})
    for _ in range(3):
        await stage.run("credit_breaches")
        await stage.run("enforce_rules")
        stage.clock.advance(15)
    assert await findings(stage, second) == [(Detector.SLA_VIOLATION, None)], "finance has yet to decide"
    async with stage.db.transaction() as connection:
        decided = await sla.decide(
            connection, stage.api, breach, approved=False, by="user_9", reason="its NVML was replaced"
        )
    assert not isinstance(decided, Refused), decided
    await stage.run("credit_breaches")
    await stage.run("enforce_rules")
    assert await findings(stage, second) == [(Detector.SLA_VIOLATION, FindingOutcome.RECOVERED)]
    assert [action for _, action, _ in await actions(stage, second)] == [A.NOTIFY]
    await stage.finish()


async def test_what_many_leases_show_is_stored_over_several_runs_and_none_is_left_out(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enforce_rules, "FINDINGS_PER_ACTIVATION_MAX", 3)
    monkeypatch.setattr(enforce_rules, "ACTIONS_PER_ACTIVATION_MAX", 2)
    leases = await ready_leases(stage, 7, seconds=60)
    await arm(stage, Detector.SLA_VIOLATION)
    for lease in leases:
        await promises.broken(stage, lease.id)
    done = []
    while True:
        (report,) = await stage.run("enforce_rules")
        found = [len(await findings(stage, lease)) for lease in leases]
        told = [len(await actions(stage, lease)) for lease in leases]
        done.append((sum(found), sum(told)))
        if not report.more:
            break
    assert done == [(3, 2), (6, 4), (7, 6), (7, 7)]
    assert {action for lease in leases for _, action, _ in await actions(stage, lease)} == {A.NOTIFY}
    await stage.finish()


async def _is_slow(stage: Stage, lease: Lease, seconds: int, *, throttle_reasons: int) -> None:
    """Its inference server generates half of what it does usually, and its GPU's clocks are reduced."""
    (claim,) = map(ClaimId, await claims_of(stage, lease))
    hour = stage.clock.now().replace(minute=0, second=0, microsecond=0)
    hours = [
        Hour(claim, lease.organization_id, hour - timedelta(hours=ago), throughput.batch_of(8), 100_000)
        for ago in range(2, 10)
    ]
    async with stage.db.transaction() as connection:
        await condition_rows.add_hours(connection, hours)
    card = Gpu(
        0,
        memory_total_mib=80_000,
        memory_used_mib=60_000,
        utilisation_percent=95,
        throttle_reasons=throttle_reasons,
    )
    server = Server(
        8000, "vllm", kv_cache_bp=1_000, running=8, waiting=0, generation_tokens_per_second=8 * 50
    )
    for _ in range(seconds // 15):
        await machine_samples.sent(stage, lease, card, servers=(server,))
        await stage.run("enforce_rules")
        await stage.run("end_actions")
        stage.clock.advance(15)


_DUE = text("UPDATE machines SET proof_due_at = :at WHERE id = :id")
_LOOKS = text("""
SELECT h.looked_at, h.look_due_at, m.proof_due_at FROM machines m LEFT JOIN machine_health h ON h.machine_id = m.id
WHERE m.id = :id
""")


async def _checks(stage: Stage, lease: Lease) -> Any:
    (machine,) = await stage.machines(lease)
    async with stage.db.reading() as connection:
        (row,) = await rows(connection, _LOOKS, id=machine.id)
    return row


async def test_a_machine_that_is_slow_because_it_is_hot_is_looked_at_and_proves_itself_once(
    stage: Stage,
) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    (machine,) = await stage.machines(lease)
    await arm(stage, Detector.THROUGHPUT_DEGRADATION)
    tomorrow = stage.clock.now() + timedelta(days=1)
    async with stage.db.transaction() as connection:
        await connection.execute(_DUE, {"id": machine.id, "at": tomorrow})
    await _is_slow(stage, lease, 20 * 60, throttle_reasons=1 << 5)
    assert [action for _, action, _ in await actions(stage, lease)] == [A.NOTIFY, A.CHECK_MACHINE]
    asked = await _checks(stage, lease)
    assert asked.looked_at is None
    assert asked.look_due_at < stage.clock.now()
    assert asked.proof_due_at < stage.clock.now(), "whatever its next challenge was due for"
    shows(stage, machine, replace(GOOD, throttle=Throttle(reasons=1 << 6)))
    await stage.run("judge_health")  # It finds nothing, and does not forget that a look was asked for.
    await stage.run("look_at_machines")
    async with stage.db.reading() as connection:
        (found,) = (await health.of_machines(connection, [machine.id])).values()
    assert [fault.code for fault in found.faults] == [FaultCode.HARDWARE_SLOWDOWN]
    looked_at = (await _checks(stage, lease)).looked_at
    assert looked_at is not None
    await _is_slow(stage, lease, 10 * 60, throttle_reasons=1 << 5)
    assert len(await actions(stage, lease)) == 2
    assert "lease enforcement" in await stage.story(lease)
    await stage.finish()


@pytest.mark.parametrize(
    ("armed", "reasons"), [(False, 1 << 5), (True, 1 << 2)], ids=["only_decided", "at_its_power_limit"]
)
async def test_no_machine_is_checked_for_what_is_only_decided_or_for_being_slow_at_its_usual_power(
    stage: Stage, armed: bool, reasons: int
) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    await arm(stage, Detector.THROUGHPUT_DEGRADATION, armed=armed)
    before = await _checks(stage, lease)
    await _is_slow(stage, lease, 20 * 60, throttle_reasons=reasons)
    wanted = [A.NOTIFY, A.NOTIFY if armed else A.CHECK_MACHINE][: 1 if armed else 2]
    assert [action for _, action, _ in await actions(stage, lease)] == wanted
    after = await _checks(stage, lease)
    assert (after.look_due_at, after.proof_due_at) == (before.look_due_at, before.proof_due_at)
    await stage.finish()


async def test_nothing_that_one_machine_claims_keeps_other_leases_from_being_watched(stage: Stage) -> None:
    forger, other = await ready_leases(stage, 2, seconds=60)
    await arm(stage, Detector.MEMORY_PRESSURE)
    start = stage.clock.now().replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    stage.clock.advance((start - stage.clock.now()).total_seconds() + 5 * 60)
    absurd = Server(8000, "vllm", running=1, generation_tokens_per_second=2**64 - 1)
    for number in range(30):
        await machine_samples.sent(stage, forger, servers=(absurd,), ago=timedelta(seconds=5 * number))
    stage.clock.advance(60 * 60)
    await machine_samples.sent(stage, forger, servers=(absurd,))
    await conditions.full_memory(stage, other)
    (report,) = await stage.run("enforce_rules")
    assert report.errors == []
    assert await findings(stage, other) == [(Detector.MEMORY_PRESSURE, None)]
    async with stage.db.reading() as connection:
        found = await rows(connection, text("SELECT throughput FROM throughput_hours WHERE batch > 0"))
    assert [row.throughput for row in found] == [THROUGHPUT_MAX]


async def test_the_database_takes_the_median_of_hours_as_the_rules_do(stage: Stage) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    (claim,) = map(ClaimId, await claims_of(stage, lease))
    now = stage.clock.now()
    of_batch = {0: (0, 0), 2: (7,), 3: (5, 1, 3), 4: (100, 110, 90, 5_000, 105, 95)}
    hours = [
        condition_rows.Hour(claim, lease.organization_id, now - timedelta(hours=ago), batch, value)
        for batch, values in of_batch.items()
        for ago, value in enumerate(values, start=1)
    ]
    before = condition_rows.Hour(claim, lease.organization_id, now - timedelta(days=8), 3, 1)
    async with stage.db.transaction() as connection:
        await condition_rows.add_hours(connection, [*hours, before])
        found = await condition_rows.usual(connection, [claim], since=now - timedelta(days=7))
    assert [(each.batch, each.hours, each.median) for each in found[claim]] == [
        (2, 1, 7),
        (3, 3, 3),
        (4, 6, 100),
    ]
    await stage.finish()


async def test_a_failure_about_one_lease_is_told_and_the_others_are_acted_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, other = await ready_leases(stage, 2, seconds=60)
    for lease in (broken, other):
        await conditions.full_memory(stage, lease)

    def fails_for_one(case: Case, *more: Any) -> Any:
        if case.lease.lease_id == broken.id:
            raise OverflowError("a number that nobody thought of")
        return next_step(case, *more)

    monkeypatch.setattr("reconciler.loops.enforcement.enforce_rules.next_step", fails_for_one)
    (report,) = await stage.run("enforce_rules")
    assert report.errors == [f"{broken.id}: OverflowError: a number that nobody thought of"]
    assert await findings(stage, other) == [(Detector.MEMORY_PRESSURE, None)]
    assert await findings(stage, broken) == []
    await stage.finish()


async def test_samples_that_a_detector_fails_about_keep_no_other_lease_from_being_watched(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = await ready_leases(stage, 2, seconds=60)
    for lease in leases:
        await conditions.full_memory(stage, lease)
    read = detection.sample_symptoms
    fails = iter([True])

    def fails_once(*values: Any) -> Any:
        if next(fails, False):
            raise OverflowError("a number that nobody thought of")
        return read(*values)

    monkeypatch.setattr(detection, "sample_symptoms", fails_once)
    (report,) = await stage.run("enforce_rules")
    (error,) = report.errors
    (broken,) = [lease for lease in leases if error.startswith(f"{lease.id}: OverflowError: ")]
    for lease in leases:
        assert await findings(stage, lease) == ([] if lease is broken else [(Detector.MEMORY_PRESSURE, None)])
    await stage.finish()


async def test_a_machine_that_sends_many_samples_has_a_shorter_window_and_no_larger_one(stage: Stage) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    stage.clock.advance(1_000)
    for number in range(120):
        await machine_samples.sent(stage, lease, ago=timedelta(seconds=number))
    (claim_id,) = await claims_of(stage, lease)
    length, now = timedelta(seconds=120), stage.clock.now()
    async with stage.db.reading() as connection:
        found = await condition_rows.windows(connection, {ClaimId(claim_id): length}, now)
    (samples,) = found.values()
    assert len(samples) == condition_rows.samples_max(length) == 22
    assert samples[-1].at == now, "the latest ones, in their order"
    assert [sample.at for sample in samples] == sorted(sample.at for sample in samples)
    await stage.finish()


async def test_processes_together_take_no_more_actions_in_a_region_than_one_may(stage: Stage) -> None:
    leases = await ready_leases(stage, 4, seconds=60)
    await arm(stage, Detector.MEMORY_PRESSURE)
    rules = stage.world.enforcement_rules
    bounds = dataclasses.replace(rules.ladders.bounds, actions_per_region=2)
    rules = dataclasses.replace(rules, ladders=dataclasses.replace(rules.ladders, bounds=bounds))
    stage.world = dataclasses.replace(stage.world, enforcement_rules=rules)
    full = Gpu(0, memory_total_mib=80_000, memory_used_mib=79_500, utilisation_percent=90)
    server = Server(8000, "vllm", kv_cache_bp=9_900, running=8, waiting=0)

    async def taken() -> int:
        found = [each for lease in leases for each in await actions(stage, lease)]
        return sum(action == A.THROTTLE_ADMISSION for _, action, _ in found)

    replicas = [stage.replica(name) for name in ("a", "b", "c")]
    seen: list[int] = []
    for _ in range(40):
        for lease in leases:
            await machine_samples.sent(stage, lease, full, servers=(server,))
        for replica in replicas:
            await stage.run("enforce_rules", world=replica)
        seen.append(await taken())
        if seen[-1] == len(leases):
            break
        stage.clock.advance(15)
    assert sorted({*seen}) == [0, 2, 4], "two in each region within 15 s, whoever comes next"
    await stage.finish()
