"""Credits that nothing but the machine shows, on a virtual clock: one lease's are posted, the others' wait for finance."""

import dataclasses
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import pytest
from sqlalchemy import TextClause, text

from control_plane.domain.access import EVERYWHERE
from control_plane.domain.ids import OrganizationId, ProviderRef
from control_plane.domain.lease import Lease
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sla import SlaTier
from control_plane.domain.sla_clock import SETTLES_AFTER
from control_plane.services import sla
from control_plane.services.sla import BreachRecord, LeaseSla
from providers.base import ListedState
from reconciler.worlds.complete import CompleteWorld
from tests.support.crash import Crash
from tests.support.promises import put_terms_in_force
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database
GOLD = CapacityRequest("h100x1", sla=SlaTier.GOLD)
WHEN: tuple[Literal["before", "after"], ...] = ("before", "after")
_CHANGE = text("""
INSERT INTO health_changes (machine_id, at, verdict_before, verdict, fault, why, evidence)
VALUES (:machine_id, :at, 'healthy', :verdict, :fault, 'a test', '{}')
""")
_POSTED = text("""
SELECT t.key, t.reason, t.approved_by, t.organization_id, p.amount_nano FROM transactions t
JOIN postings p ON p.transaction_id = t.id JOIN ledger_accounts a ON a.id = p.account_id
WHERE t.kind = 'credit' AND t.key LIKE 'credit:sla:%' AND a.kind = 'wallet' ORDER BY t.number
""")
_PROOF = text("""
INSERT INTO proofs (id, machine_id, account, offer_key, gpu_model, occasion, outcome, source, driver, reference, attested,
  code, findings, hints, rates, gpu_uuids, devices, proven_bytes, seconds, evidence, at)
SELECT gen_random_uuid(), id, account, 'x', 'h100-sxm-80gb', 'start', :outcome, 'cuda', '1', '', false, :code, '[]', '[]',
  '[]', ARRAY['GPU-1'], '{}', '{}', 1, '{}', :at FROM machines WHERE id = :machine_id
""")


async def _organization(stage: Stage) -> OrganizationId:
    await put_terms_in_force(stage)
    return await stage.organization()


async def _leases(stage: Stage, organization_id: OrganizationId, count: int) -> list[Lease]:
    leases = [await stage.lease(organization_id, GOLD) for _ in range(count)]
    for lease in leases:
        await stage.play_until(lease, "ready", seconds_max=120)
    return leases


async def _found(stage: Stage, statement: TextClause, **values: object) -> Sequence[Any]:
    async with stage.db.reading() as connection:
        return await rows(connection, statement, **values)


async def _posted(stage: Stage) -> list[int]:
    return [row.amount_nano for row in await _found(stage, _POSTED)]


async def _looks_broken(stage: Stage, lease: Lease) -> None:
    """From now on, a GPU of the lease's machine does not answer us."""
    machine = (await stage.machines(lease))[-1]
    async with stage.db.transaction() as connection:
        values = {"machine_id": machine.id, "at": stage.clock.now(), "verdict": "quarantined"}
        await connection.execute(_CHANGE, values | {"fault": "gpu_lost"})


async def _end(stage: Stage, *leases: Lease) -> None:
    await stage.play(3_600, step=600)
    for lease in leases:
        await stage.release(lease)
        await stage.play(SETTLES_AFTER.total_seconds() + 20, step=10)


async def _two_broken(stage: Stage) -> tuple[Lease, Lease]:
    """Two leases of an organization whose machines look broken to us. The first one has its credit."""
    first, second = await _leases(stage, await _organization(stage), 2)
    for lease in (first, second):
        await _looks_broken(stage, lease)
    await _end(stage, first, second)
    return first, second


async def _breaches(stage: Stage, lease: Lease) -> Sequence[BreachRecord]:
    shown = await sla.of_lease(stage.api, lease.organization_id, lease.id, reach=EVERYWHERE)
    assert isinstance(shown, LeaseSla)
    return shown.breaches


async def _decide(
    stage: Stage, breach: BreachRecord, *, approved: bool, by: str = "user_9"
) -> BreachRecord | Refused:
    async with stage.db.transaction() as connection:
        return await sla.decide(
            connection, stage.api, breach.id, approved=approved, by=by, reason="looked at the card"
        )


async def test_of_what_only_machines_show_one_lease_of_an_organization_is_paid_and_the_next_one_waits(
    stage: Stage,
) -> None:
    first, second = await _two_broken(stage)
    (paid,), (waits,) = await _breaches(stage, first), await _breaches(stage, second)
    assert await _posted(stage) == [paid.credit_nano]
    assert (paid.credited_nano, paid.waiting_nano, paid.waiting_since) == (paid.credit_nano, 0, None)
    assert waits.credit_nano > 0
    assert (waits.credited_nano, waits.waiting_nano) == (0, waits.credit_nano)
    assert waits.waiting_since is not None
    story = await stage.story(second)
    assert story.count("lease sla_credit_waits") == 1
    async with stage.db.reading() as connection:
        (listed,) = await rows(connection, text("SELECT breach_id FROM sla_undecided"))
    assert listed.breach_id == waits.id
    await stage.play(2 * 86_400, step=7_200)
    assert len(await _posted(stage)) == 1, "it waits however long it takes"
    assert (await stage.story(second)).count("lease sla_credit_waits") == 1
    await stage.check()


async def test_another_project_brings_no_second_one_and_another_organization_does(stage: Stage) -> None:
    mine = await _organization(stage)
    other = await stage.organization()
    (first,), (theirs,) = await _leases(stage, mine, 1), await _leases(stage, other, 1)
    for lease in (first, theirs):
        await _looks_broken(stage, lease)
    await _end(stage, first, theirs)
    paid = {row.organization_id for row in await _found(stage, _POSTED)}
    assert paid == {mine, other}


async def test_an_approved_credit_is_posted_once_with_who_approved_it(stage: Stage) -> None:
    _, second = await _two_broken(stage)
    (waits,) = await _breaches(stage, second)
    assert isinstance(await _decide(stage, waits, approved=True), BreachRecord)
    again = await _decide(stage, waits, approved=False)
    assert isinstance(again, Refused)
    assert again.code is RefusalCode.CREDIT_NOT_WAITING
    await stage.play(30)
    (paid,) = await _breaches(stage, second)
    assert (paid.credited_nano, paid.waiting_nano, paid.refused_at) == (waits.credit_nano, 0, None)
    last = (await _found(stage, _POSTED))[-1]
    assert (last.approved_by, last.amount_nano) == ("user_9", waits.credit_nano)
    assert "approved: looked at the card" in last.reason
    late = await _decide(stage, waits, approved=False)
    assert isinstance(late, Refused), "what is posted is not refused"
    await stage.play(2 * 86_400, step=7_200)
    assert len(await _posted(stage)) == 2
    await stage.check()
    await stage.finish()


async def test_a_refused_credit_is_not_posted_and_its_customer_reads_why(stage: Stage) -> None:
    _, second = await _two_broken(stage)
    (waits,) = await _breaches(stage, second)
    await _decide(stage, waits, approved=False)
    await stage.play(30)
    (refused,) = await _breaches(stage, second)
    assert (refused.credited_nano, refused.waiting_nano) == (0, 0)
    assert (refused.refused_why, refused.refused_at is None) == ("looked at the card", False)
    assert "lease sla_credit_refused" in await stage.story(second)
    await stage.play(2 * 86_400, step=7_200)
    assert len(await _posted(stage)) == 1
    await stage.finish()


async def test_nobody_decides_on_the_credit_of_a_lease_that_they_asked_for(stage: Stage) -> None:
    _, second = await _two_broken(stage)
    (waits,) = await _breaches(stage, second)
    async with stage.db.reading() as connection:
        asked = await rows(
            connection,
            text("SELECT actor FROM journal WHERE lease_id = :id AND event = 'admitted'"),
            id=second.id,
        )
    refused = await _decide(stage, waits, approved=True, by=asked[0].actor)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.OWN_REQUEST


async def test_what_its_provider_lists_as_failed_is_paid_however_many_there_are(stage: Stage) -> None:
    leases = await _leases(stage, await _organization(stage), 3)
    await stage.play(3_600, step=600)
    for lease in leases:
        machine = (await stage.machines(lease))[-1]
        failed = stage.cloud.machines[machine.provider_ref or ProviderRef("")]
        failed.stopped, failed.listed_as = True, ListedState.FAILED
    await stage.play(5_400, step=60)  # Until they are given up, for want of other machines.
    await _end(stage, *leases)
    for lease in leases:
        for breach in await _breaches(stage, lease):
            assert breach.credited_nano == breach.credit_nano
            assert breach.waiting_nano == 0
    assert len(await _posted(stage)) >= 3
    assert await _found(stage, text("SELECT lease_id FROM sla_trusts")) == [], "nobody had to be believed"
    await stage.finish()


async def test_a_gpu_that_fails_elsewhere_as_well_has_the_waiting_credit_posted(stage: Stage) -> None:
    organization_id = await _organization(stage)
    first, second = await _leases(stage, organization_id, 2)
    (other,) = await _leases(stage, await stage.organization(), 1)
    begun = stage.clock.now()
    machine = (await stage.machines(second))[-1]
    elsewhere = (await stage.machines(other))[-1]
    async with stage.db.transaction() as connection:
        values = {"machine_id": machine.id, "outcome": "passed", "code": None, "at": begun}
        await connection.execute(_PROOF, values)
    for lease in (first, second):
        await _looks_broken(stage, lease)
    await _end(stage, first, second)
    (waits,) = await _breaches(stage, second)
    assert waits.waiting_nano > 0
    for code, posted in (("gpu_sold_twice", 1), ("compute_wrong", 2)):
        async with stage.db.transaction() as connection:
            values = {"machine_id": elsewhere.id, "outcome": "failed", "code": code}
            await connection.execute(_PROOF, values | {"at": begun + timedelta(hours=2)})
        await stage.play(2 * 86_400, step=7_200)
        assert len(await _posted(stage)) == posted, code
    (paid,) = await _breaches(stage, second)
    assert (paid.credited_nano, paid.waiting_nano) == (paid.credit_nano, 0)


async def test_loops_that_die_at_each_step_post_a_decided_credit_once(stage: Stage) -> None:
    stage.world = dataclasses.replace(stage.world, sla_dry_run=True)
    first, second = await _two_broken(stage)
    stage.world = dataclasses.replace(stage.world, sla_dry_run=False)

    async def activation(world: CompleteWorld) -> None:
        await stage.run("credit_breaches", world=world)

    async def killed_at_each_step() -> None:
        deaths = 0
        for when in WHEN:
            call = 1
            while await Crash(at=call, when=when).kills(partial(activation), stage.replica("doomed")):
                deaths, call = deaths + 1, call + 1
                if call > 20:
                    break
        assert deaths > 0
        await stage.run("credit_breaches")

    await killed_at_each_step()
    assert len(await _posted(stage)) == 1
    records = [record for lease in (first, second) for record in await _breaches(stage, lease)]
    (waits,) = [record for record in records if record.waiting_nano]
    await _decide(stage, waits, approved=True)
    await killed_at_each_step()
    assert sorted(await _posted(stage)) == sorted(record.credit_nano for record in records)
    await stage.finish()
