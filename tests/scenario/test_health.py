"""Machines that report faults, or in which we see them: verdicts, what customers are told, repairs and replacements."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import text

from control_plane.db import health, permits, pools, repair_figures, repairs
from control_plane.db import machines as machine_rows
from control_plane.db.connection import Connection
from control_plane.db.engine import Database
from control_plane.db.health import Health, Notice
from control_plane.db.permits import Permit
from control_plane.db.repairs import Repair
from control_plane.db.rows import read
from control_plane.domain.actor import ActorKind
from control_plane.domain.envelope import Envelope
from control_plane.domain.failure import FailReason
from control_plane.domain.health import LOOK_AGAIN_AFTER, FaultCode, Verdict
from control_plane.domain.ids import MachineId, ProviderRef
from control_plane.domain.lease import Lease
from control_plane.domain.machine import Machine
from control_plane.domain.notice import NoticeKind
from control_plane.domain.proof import CLAIMED_APART
from control_plane.domain.repair import RepairOutcome, RepairStep
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sla import SlaTier
from control_plane.outcomes import repairs as outcomes
from control_plane.world import uuid7
from data_plane.documents.health import GpuHealth, PcieHealth, Usage
from data_plane.documents.health import Xid as HealthXid
from data_plane.documents.sample import Gpu, Xid, sample_gpus
from providers.fake import FakeMachine
from reconciler.loops.health import judge_health
from reconciler.loops.machines import order_spares
from tests.support import machine_samples
from tests.support.faults import GOOD, LOST, shows, taken_out, wants_a_spare
from tests.support.hand_backs import asked_for_another
from tests.support.locks import until_somebody_waits
from tests.support.machine_samples import JUST_SETTLED
from tests.support.promises import put_terms_in_force
from tests.support.ready import ready_leases
from tests.support.stage import FAKE, LOOPS, Stage

pytestmark = pytest.mark.database


async def machine_of(stage: Stage, lease: Lease) -> Machine:
    return (await stage.machines(lease))[-1]


async def reports(stage: Stage, lease: Lease, *gpus: Gpu, xids: tuple[Xid, ...] = ()) -> None:
    """The agent on the machine of a lease sends a sample, which is settled when this returns."""
    await machine_samples.sent(stage, lease, *gpus, xids=xids)
    stage.clock.advance(JUST_SETTLED.total_seconds())


async def health_of(stage: Stage, machine: Machine) -> Health | None:
    async with stage.db.reading() as connection:
        return (await health.of_machines(connection, [machine.id])).get(machine.id)


async def verdict_of(stage: Stage, machine: Machine) -> Verdict:
    found = await health_of(stage, machine)
    return Verdict.HEALTHY if found is None else found.verdict


async def repair_of(stage: Stage, machine: Machine) -> Repair | None:
    async with stage.db.reading() as connection:
        return (await repairs.of_machines(connection, [machine.id])).get(machine.id)


async def notices_of(stage: Stage, lease: Lease) -> Sequence[Notice]:
    async with stage.db.reading() as connection:
        found = await health.notices_of_lease(connection, lease.id, before=None, limit=50)
    return found[::-1]


async def test_what_a_machine_says_is_looked_at_and_ends_when_we_see_nothing(stage: Stage) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    machine = await machine_of(stage, lease)
    await reports(stage, lease, Gpu(0, rows_failed=True))
    await stage.run("judge_health")
    found = await health_of(stage, machine)
    assert found is not None
    assert (found.verdict, found.fault) == (Verdict.DEGRADED, FaultCode.MEMORY_BROKEN)
    assert "as the machine itself says" in found.why
    await stage.play(30, step=5)
    assert await verdict_of(stage, machine) is Verdict.HEALTHY
    closed = await repair_of(stage, machine)
    assert closed is not None
    assert closed.outcome is RepairOutcome.RECOVERED
    assert await notices_of(stage, lease) == []  # It came to nothing, so nobody is alarmed.
    assert await stage.state(lease) == "ready"
    await stage.finish()


async def test_an_error_that_comes_again_an_hour_later_is_remembered_and_counts_then(stage: Stage) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    machine = await machine_of(stage, lease)
    for expected in (None, FaultCode.GPU_ERROR):
        error = Xid("xid", 109, "0000:3b:00.0", int(stage.clock.now().timestamp()))
        await reports(stage, lease, Gpu(0, bus_id=error.bus_id), xids=(error,))
        await stage.run("judge_health")
        found = await health_of(stage, machine)
        assert found is not None
        assert found.fault == expected
        await stage.play(60 * 60, step=600)
    await stage.finish()


_ACCEPTED = text("""
INSERT INTO verification_reports (id, organization_id, project_id, lease_id, machine_id, at, verdict, source, reading)
SELECT :id, organization_id, project_id, lease_id, machine_id, at + interval '1 second', verdict, source,
  jsonb_set(reading, '{inventory,gpus,0,pcie}', '{"generation": 1, "generation_max": 5, "width": 16, "width_max": 16}')
FROM verification_reports WHERE machine_id = :machine
RETURNING reading->'gpus'->0->>'uuid'
""")


async def test_a_link_that_is_narrower_than_when_the_machine_was_accepted_degrades_it_with_both_values(
    stage: Stage,
) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    machine = await machine_of(stage, lease)
    async with stage.db.transaction() as connection:
        (uuid,) = await read(connection, _ACCEPTED, str, id=uuid7(), machine=machine.id)
    narrow = PcieHealth(generation=5, width=8, width_max=16, generation_max=5)
    at_work = GpuHealth(0, uuid, "0000:3b:00.0", lost=False, usage=Usage(utilisation_percent=95), pcie=narrow)
    shows(stage, machine, at_work)
    seen = stage.access.machine(machine.address or "").health
    assert seen is not None
    for _ in range(14):
        await reports(stage, lease, *sample_gpus(seen))
        await stage.play(5, step=5)
    found = await health_of(stage, machine)
    assert found is not None
    assert (found.verdict, found.fault) == (Verdict.DEGRADED, FaultCode.PCIE_REDUCED)
    assert found.why.endswith("GPU 0 has PCIe 5.0 x8 at 95 % use, and had 5.0 x16 before")
    shows(
        stage,
        machine,
        replace(at_work, pcie=replace(narrow, generation=1), usage=Usage(utilisation_percent=0)),
    )
    await stage.play(20 * 60, step=60)
    assert await verdict_of(stage, machine) is Verdict.DEGRADED, "an idle GPU tells nothing of its link"
    shows(stage, machine, replace(at_work, pcie=replace(narrow, width=16)))
    await stage.play(10 * 60, step=60)
    assert await verdict_of(stage, machine) is Verdict.HEALTHY
    await stage.finish()


async def test_a_link_that_was_never_as_fast_as_is_possible_degrades_nothing_and_one_that_was_does(
    stage: Stage,
) -> None:
    """Virtual machines may name a generation of PCIe that they never reach."""
    for fast, verdict in ((False, Verdict.HEALTHY), (True, Verdict.DEGRADED)):
        (lease,) = await ready_leases(stage, 1, seconds=60)
        machine = await machine_of(stage, lease)
        async with stage.db.transaction() as connection:
            (uuid,) = await read(connection, _ACCEPTED, str, id=uuid7(), machine=machine.id)
        slow = PcieHealth(generation=3, width=16, width_max=16, generation_max=5)
        at_work = GpuHealth(
            0, uuid, "0000:3b:00.0", lost=False, usage=Usage(utilisation_percent=95), pcie=slow
        )
        generations = [5, 5, *[3] * 14] if fast else [3] * 14
        for generation in generations:
            shows(stage, machine, replace(at_work, pcie=replace(slow, generation=generation)))
            seen = stage.access.machine(machine.address or "").health
            assert seen is not None
            await reports(stage, lease, *sample_gpus(seen))
            await stage.play(5, step=5)
            if generation == 5:
                assert await health_of(stage, machine) is None, "nothing about it was worth a judgement"
        assert await verdict_of(stage, machine) is verdict
    found = await health_of(stage, machine)
    assert found is not None
    assert found.why.endswith("GPU 0 has PCIe 3.0 x16 at 95 % use, and had 5.0 x16 before")
    await stage.finish()


async def test_a_fault_that_we_see_ourselves_is_told_and_the_customer_decides(stage: Stage) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    machine = await machine_of(stage, lease)
    shows(stage, machine, LOST)
    await reports(stage, lease, Gpu(0, lost=True))
    await stage.play(60, step=5)
    assert await verdict_of(stage, machine) is Verdict.QUARANTINED
    async with stage.db.reading() as connection:
        counted = await repair_figures.repairs(connection)
    assert [(each.verdict, each.planned, each.machines) for each in counted.unhealthy] == [
        (Verdict.QUARANTINED, False, 1)
    ]
    assert [(each.step, each.repairs) for each in counted.repairs] == [(RepairStep.REPLACE, 1)]
    kinds = [notice.kind for notice in await notices_of(stage, lease)]
    assert kinds == [NoticeKind.FAULT_FOUND, NoticeKind.REPLACEMENT_RECOMMENDED]
    await stage.play(2 * 60 * 60, step=600)
    assert await stage.state(lease) == "ready"  # Nobody takes it away from them.
    waiting = await repair_of(stage, machine)
    assert waiting is not None
    assert waiting.step is RepairStep.TICKET
    await stage.finish()


async def test_the_customer_of_a_faulty_machine_has_it_replaced_and_pays_nothing_in_between(
    stage: Stage,
) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    machine = await machine_of(stage, lease)
    shows(stage, machine, LOST)
    await reports(stage, lease, Gpu(0, lost=True))
    await stage.play(60, step=5)
    await asked_for_another(stage, lease)
    await stage.play_until(lease, "placing", seconds_max=60)
    await stage.play_until(lease, "ready", seconds_max=300)
    replaced, again = (await stage.machines(lease))[-2:]
    assert (replaced.id, replaced.fail_reason) == (machine.id, FailReason.UNHEALTHY)
    assert again.id != machine.id
    row = await stage.lease_row(lease)
    assert len(row.paused_at) == 2
    closed = await repair_of(stage, machine)
    assert closed is not None
    assert closed.outcome is RepairOutcome.REPLACED
    assert (await notices_of(stage, lease))[-1].kind is NoticeKind.REPLACED
    await stage.finish()


async def test_planned_work_reboots_nobody_waits_for_its_time_and_holds_back_no_other_repair(
    stage: Stage,
) -> None:
    await put_terms_in_force(stage)
    organization = await stage.organization()
    leases = [
        await stage.lease(organization, CapacityRequest("h100x1", sla=SlaTier.SILVER), name=f"work-{number}")
        for number in range(4)
    ]
    for lease in leases:
        await stage.play_until(lease, "ready", seconds_max=120)
    planned = stage.clock.now() + timedelta(hours=8)
    for lease in leases[:3]:
        machine = await machine_of(stage, lease)
        await taken_out(stage, machine, planned)
    await stage.play(2 * 3_600, step=300)
    assert [len(await stage.machines(lease)) for lease in leases] == [1, 1, 1, 1]
    assert "rebooted" not in await stage.story(leases[0])
    shows(stage, await machine_of(stage, leases[3]), LOST)
    await reports(stage, leases[3], Gpu(0, lost=True))
    await stage.play(30 * 60, step=60)
    assert [len(await stage.machines(lease)) for lease in leases] == [1, 1, 1, 2]
    await stage.play(7 * 3_600, step=300)
    assert [len(await stage.machines(lease)) for lease in leases] == [2, 2, 2, 2]
    await stage.finish()


async def test_a_sick_account_keeps_its_machines_until_an_operator_permits_it(stage: Stage) -> None:
    """Machines that all fail at once are more likely our fault than theirs."""
    await put_terms_in_force(stage)
    organization = await stage.organization()
    leases = [
        await stage.lease(organization, CapacityRequest("h100x1", sla=SlaTier.SILVER), name=f"sick-{number}")
        for number in range(3)
    ]
    for lease in leases:
        await stage.play_until(lease, "ready", seconds_max=120)
    for lease in leases:
        shows(stage, await machine_of(stage, lease), LOST)
        await reports(stage, lease, Gpu(0, lost=True))
    await stage.play(20 * 60, step=60)
    assert [len(await stage.machines(lease)) for lease in leases] == [1, 1, 1]
    held = await repair_of(stage, await machine_of(stage, leases[0]))
    assert held is not None
    assert "3 of 3 machines there are not healthy" in held.why
    now = stage.clock.now()
    permit = Permit(FAKE, "theirs", ActorKind.OPERATOR, "test", None, now, now + timedelta(hours=1))
    async with stage.db.transaction() as connection:
        await permits.insert(connection, uuid7(), permit)
    await stage.play(5 * 60, step=30)
    assert [len(await stage.machines(lease)) for lease in leases] == [2, 2, 2]
    await stage.finish()


async def test_a_look_that_cannot_be_made_is_no_fault_and_is_made_again(stage: Stage) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    machine = await machine_of(stage, lease)
    stage.access.script(machine.address or "", unreachable=1_000)
    await reports(stage, lease, Gpu(0, rows_failed=True))
    await stage.play(60, step=5)
    found = await health_of(stage, machine)
    assert found is not None
    assert found.verdict is Verdict.DEGRADED
    assert found.looked_why_not is not None
    before = len(stage.access.machine(machine.address or "").calls)
    await stage.play(10 * 60, step=5, without=frozenset(LOOPS) - {"judge_health", "look_at_machines"})
    tries = len(stage.access.machine(machine.address or "").calls) - before
    assert 5 <= tries <= 10, "once in a minute, so that many such machines keep no other one waiting"
    stage.access.script(machine.address or "")
    await stage.play(5 * 60, step=10)
    assert await verdict_of(stage, machine) is Verdict.HEALTHY
    await stage.finish()


async def test_an_error_that_takes_a_gpu_out_has_it_challenged_and_a_reset_or_a_proof_ends_it(
    stage: Stage,
) -> None:
    lease = await stage.lease(await stage.organization(), CapacityRequest("h100x1-proven", (), (), None, 0))
    await stage.play_until(lease, "ready", seconds_max=300)
    machine = await machine_of(stage, lease)
    assert machine.last_challenged_at is not None
    stage.clock.advance(CLAIMED_APART.total_seconds())
    await reports(stage, lease, xids=(Xid("xid", 95, None, int(stage.clock.now().timestamp())),))
    await stage.play(3 * 60, step=5)
    again = await machine_of(stage, lease)
    assert again.last_challenged_at is not None
    assert again.last_challenged_at > machine.last_challenged_at
    assert await verdict_of(stage, machine) is Verdict.HEALTHY
    await stage.finish()


async def test_a_machine_that_reports_errors_again_and_again_is_not_challenged_all_the_time(
    stage: Stage,
) -> None:
    """Whoever has root on a machine can have it report a new error as soon as it has passed."""
    lease = await stage.lease(await stage.organization(), CapacityRequest("h100x1-proven", (), (), None, 0))
    await stage.play_until(lease, "ready", seconds_max=300)
    machine = await machine_of(stage, lease)
    for _ in range(60):
        error = Xid("xid", 95, None, int(stage.clock.now().timestamp()))
        await reports(stage, lease, xids=(error,))
        await stage.play(50, step=10)
    challenged = stage.challenger.occasions(machine.address or "")
    assert 1 < len(challenged) <= 1 + 60 * 60 / CLAIMED_APART.total_seconds()
    await stage.finish()


async def test_what_a_look_has_contradicted_is_looked_at_again_minutes_later(stage: Stage) -> None:
    """Otherwise a machine could have us look at it, and store a verdict and a repair, twice a minute and for ever."""
    (lease,) = await ready_leases(stage, 1, seconds=60)
    machine = await machine_of(stage, lease)
    minutes, began = 20, stage.clock.now()
    for _ in range(minutes * 4):
        await machine_samples.sent(stage, lease, Gpu(0, rows_pending=True))
        await stage.play(15, step=5)
    async with stage.db.reading() as connection:
        changed = await health.changes(connection, machine.id, since=began, until=None, limit=200)
    assert 0 < len(changed) <= 2 * (1 + minutes * 60 / LOOK_AGAIN_AFTER.total_seconds())
    await stage.finish()


async def test_an_error_from_a_time_that_no_clock_shows_counts_as_an_old_one(stage: Stage) -> None:
    """The times of a machine are its own: the oldest that it may send is further back than our calendar begins."""
    (lease,) = await ready_leases(stage, 1, seconds=60)
    machine = await machine_of(stage, lease)
    impossible = 1 << 50  # Milliseconds: the year 37,648.
    await machine_samples.sent(
        stage, lease, Gpu(0, lost=True), xids=(Xid("xid", 79, None, 0),), at_ms=impossible
    )
    stage.clock.advance(JUST_SETTLED.total_seconds())
    (report,) = await stage.run("judge_health")
    assert not report.errors
    found = await health_of(stage, machine)
    assert found is not None
    assert [fault.code for fault in found.faults] == [FaultCode.GPU_LOST]
    await stage.finish()


async def test_a_machine_that_sends_more_than_all_others_keeps_nobody_from_being_judged(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_health, "SAMPLES_PER_PAGE_MAX", 4)
    loud, quiet = await ready_leases(stage, 2, seconds=60)
    for ago in range(20, 1, -2):
        error = Xid("xid", 1_000 + ago, None, int(stage.clock.now().timestamp()))
        await machine_samples.sent(stage, loud, xids=(error,), ago=timedelta(seconds=ago))
    await reports(stage, quiet, Gpu(0, lost=True))
    (report,) = await stage.run("judge_health")
    assert report.more
    found = await health_of(stage, await machine_of(stage, quiet))
    assert found is not None
    assert [fault.code for fault in found.faults] == [FaultCode.GPU_LOST]
    for _ in range(5):
        (report,) = await stage.run("judge_health")
    assert not report.more
    found = await health_of(stage, await machine_of(stage, loud))
    assert found is not None
    assert len({fault.xid for fault in found.faults}) == 10, "each of them was seen once"
    await stage.finish()


async def test_a_repair_that_fails_holds_up_no_other_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await ready_leases(stage, 2, seconds=60)
    for lease in (first, second):
        await reports(stage, lease, Gpu(0, rows_failed=True))
    await stage.run("judge_health")
    advance = outcomes.advance
    failed: list[MachineId] = []

    async def fails_at_first(connection: Connection, repair: Repair, **more: Any) -> outcomes.Done:
        if not failed:
            failed.append(repair.machine_id)
            raise OverflowError("date value out of range")
        return await advance(connection, repair, **more)

    monkeypatch.setattr(outcomes, "advance", fails_at_first)
    (report,) = await stage.run("repair_machines")
    assert report.errors == ["OverflowError: date value out of range"]
    waits = {}
    for lease in (first, second):
        repair = await repair_of(stage, await machine_of(stage, lease))
        assert repair is not None
        waits[repair.machine_id] = repair.why
    assert waits[failed.pop()] == "something is wrong with it"
    assert "we look at it ourselves" in waits.values()
    await stage.finish()


async def test_a_machine_is_rebooted_once_and_then_looked_at(stage: Stage) -> None:
    """A reboot takes less time than we leave between two looks, so it must not follow from what the last one showed."""
    await put_terms_in_force(stage)
    lease = await stage.lease(await stage.organization(), CapacityRequest("h100x1", sla=SlaTier.SILVER))
    await stage.play_until(lease, "ready", seconds_max=120)
    machine = await machine_of(stage, lease)
    at = int(stage.clock.now().timestamp())
    shows(stage, machine, GOOD)
    known = stage.access.machine(machine.address or "")
    assert known.health is not None
    known.health = replace(known.health, xids=(HealthXid("xid", 48, GOOD.bus_id, at, "both"),))
    await reports(stage, lease, xids=(Xid("xid", 48, None, at),))
    rebooted = stage.cloud.on_power
    assert rebooted is not None

    def mended(before: str, at_provider: FakeMachine) -> None:
        rebooted(before, at_provider)
        shows(stage, machine, GOOD)

    stage.cloud.on_power = mended
    await stage.play(40 * 60, step=10)
    assert stage.cloud.calls_of("reboot") == 1
    assert await verdict_of(stage, machine) is Verdict.HEALTHY
    assert [each.id for each in await stage.machines(lease)] == [machine.id]
    await stage.finish()


async def test_what_the_provider_lists_is_a_verdict_too_and_ends_with_the_list(stage: Stage) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    machine = await machine_of(stage, lease)
    at_provider = stage.cloud.machines[machine.provider_ref or ProviderRef("")]
    at_provider.failed = True
    await stage.play(30, step=5)
    assert await verdict_of(stage, machine) is Verdict.LOST
    at_provider.failed = False
    await stage.play(30, step=5)
    assert await verdict_of(stage, machine) is Verdict.HEALTHY
    assert [notice.kind for notice in await notices_of(stage, lease)] == [
        NoticeKind.FAULT_FOUND,
        NoticeKind.RECOVERED,
    ]
    await stage.finish()


async def test_a_lease_whose_tier_promises_it_keeps_its_machine_until_another_one_is_ready(
    stage: Stage,
) -> None:
    await put_terms_in_force(stage)
    lease = await stage.lease(await stage.organization(), CapacityRequest("h100x1", sla=SlaTier.GOLD))
    await stage.play_until(lease, "ready", seconds_max=90)
    (machine,) = await stage.machines(lease)
    shows(stage, machine, LOST)
    await reports(stage, lease, Gpu(0, lost=True))
    lived_together = False
    for _ in range(120):
        await stage.turns()
        stage.clock.advance(5)
        lived_together = lived_together or len(stage.cloud.alive()) == 2
        if await stage.state(lease) != "ready":
            break
    assert lived_together, "it has its machine until the other one is ready"
    await stage.play_until(lease, "ready", seconds_max=30)
    old, spare = await stage.machines(lease)
    assert (old.id, old.fail_reason, spare.reserved_for) == (machine.id, FailReason.UNHEALTHY, lease.id)
    row = await stage.lease_row(lease)
    assert (row.paused_at[1] - row.paused_at[0]).total_seconds() < 30, "the bill hardly stopped"
    await stage.finish()


async def test_a_spare_that_is_not_needed_any_more_is_ended(stage: Stage) -> None:
    await put_terms_in_force(stage)
    lease = await stage.lease(await stage.organization(), CapacityRequest("h100x1", sla=SlaTier.GOLD))
    await stage.play_until(lease, "ready", seconds_max=90)
    (machine,) = await stage.machines(lease)
    await wants_a_spare(stage, machine)
    await stage.run("order_spares")
    await stage.run("order_spares")
    async with stage.db.reading() as connection:
        assert len(await pools.waiting(connection, (), [lease.id])) == 1
    await stage.play(60, step=5)  # The machine is healthy, so its repair is closed.
    async with stage.db.reading() as connection:
        assert await pools.waiting(connection, (), [lease.id]) == []
    assert await stage.state(lease) == "ready"
    await stage.finish()


async def test_no_spare_is_ordered_where_an_envelope_of_the_lease_allows_none(stage: Stage) -> None:
    """The lease could not claim it, and would lose the machine that it has all the same."""
    await put_terms_in_force(stage)
    lease = await stage.lease(await stage.organization(), CapacityRequest("h100x1", sla=SlaTier.GOLD))
    await stage.play_until(lease, "ready", seconds_max=90)
    (machine,) = await stage.machines(lease)
    await stage.narrow(lease.organization_id, Envelope(regions=frozenset({machine.region})))
    for native_type, native_region in stage.cloud.stock:
        if native_region == machine.native_region:
            stage.cloud.stock[native_type, native_region] = 0
    stage.clock.advance(31)
    await stage.run("refresh_offers")
    await wants_a_spare(stage, machine)
    await stage.run("order_spares")
    async with stage.db.reading() as connection:
        assert await pools.waiting(connection, (), [lease.id]) == []
    await stage.narrow(lease.organization_id, Envelope())
    stage.clock.advance(16)
    await stage.run("order_spares")
    async with stage.db.reading() as connection:
        (spare,) = await pools.waiting(connection, (), [lease.id])
    assert spare.region != machine.region
    await stage.finish()


async def test_a_lease_that_no_offer_can_serve_is_looked_at_later_and_later_and_holds_up_no_other_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a place for one lease in a run, the other one comes next."""
    monkeypatch.setattr(order_spares, "LEASES_PER_ACTIVATION_MAX", 1)
    await put_terms_in_force(stage)
    gold = CapacityRequest("h100x1", sla=SlaTier.GOLD)
    starved, served = [await stage.lease(await stage.organization(), gold) for _ in range(2)]
    for lease in (starved, served):
        await stage.play_until(lease, "ready", seconds_max=90)
    await stage.narrow(starved.organization_id, Envelope(regions=frozenset({"nowhere"})))
    for lease in (starved, served):
        (machine,) = await stage.machines(lease)
        await wants_a_spare(stage, machine)
        stage.clock.advance(1)
    (report,) = await stage.run("order_spares")
    assert (report.looked_at, report.acted_on) == (1, 0)
    (report,) = await stage.run("order_spares")
    assert (report.looked_at, report.acted_on) == (1, 1), report
    async with stage.db.reading() as connection:
        assert len(await pools.waiting(connection, (), [served.id])) == 1
    looked = []
    for second in range(120):
        stage.clock.advance(1)
        (report,) = await stage.run("order_spares")
        if report.looked_at:
            looked.append(second)
    apart = [after - before for before, after in pairwise(looked)]
    assert apart == [30, 60], f"it is looked at again after 15 s, and then later and later: {looked}"


_HOLD_REPAIR = text("SELECT id FROM repairs WHERE machine_id = :id FOR UPDATE")


async def test_who_judges_a_machine_holds_nothing_while_its_repair_is_advanced(
    stage: Stage, database_url: str
) -> None:
    """Both lock the machine first. Otherwise the one waits for the repair, and the other for the machine's health."""
    (lease,) = await ready_leases(stage, 1, seconds=60)
    machine = await machine_of(stage, lease)
    await reports(stage, lease, Gpu(0, rows_failed=True))
    await stage.run("judge_health")
    await reports(stage, lease, Gpu(0, lost=True))
    owner = Database(database_url, role=None, pool_size=1, readers=1)
    async with stage.db.transaction() as connection:
        await machine_rows.lock(connection, [machine.id])
        await connection.execute(_HOLD_REPAIR, {"id": machine.id})
        judging = asyncio.create_task(stage.run("judge_health"))
        await until_somebody_waits(owner)
        assert await health.lock(connection, machine.id, now=stage.clock.now()) is not None
    (report,) = await judging
    assert report.errors == []
    await owner.close()
    await stage.finish()
