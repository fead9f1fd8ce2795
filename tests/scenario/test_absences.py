"""Loops that are away for minutes or hours: no healthy machine pays for our outage, and no customer pays without evidence."""

from collections.abc import Collection
from datetime import timedelta

import pytest
from sqlalchemy import text

from control_plane.domain.deadline import UNATTENDED_MAX
from control_plane.domain.failure import FailReason
from control_plane.domain.lease import Lease
from control_plane.domain.machine import MachineState
from control_plane.domain.metering import EVIDENCE_LASTS
from data_plane.access.port import StepFailed
from providers.fake import Fault
from reconciler import registry
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database

TEN_MINUTES, AN_HOUR, THREE_HOURS = 600, 3_600, 10_800
LIFE = ("place_leases", "launch_machines", "observe_machines", "bootstrap_machines", "admit_customers")
"""Loops in the order in which a lease needs them."""
EXPIRING = ("refresh_offers", *LIFE, "expire_machines", "release_machines", "terminate_machines")
"""Without the loops that do nothing here, because hours of them take long."""


async def _brought_to(stage: Stage, state: MachineState) -> Lease:
    """A lease whose machine is in this state. A launch stays under way because its answer is lost."""
    lease = await stage.lease(await stage.organization())
    await stage.run("refresh_offers")
    if state is MachineState.LAUNCHING:
        stage.cloud.faults.script("launch", Fault.LOST_AFTER_EFFECT)
    for _ in range(30):
        for loop in LIFE[:-1]:
            machines = await stage.machines(lease)
            if machines and machines[-1].state is state:
                return lease
            await stage.run(loop)
            stage.clock.advance(1)
    raise AssertionError(await stage.story(lease))


async def _failed(stage: Stage, lease: Lease) -> list[FailReason | None]:
    return [attempt.fail_reason for attempt in await stage.attempts(lease)]


async def _is_served_by_its_first_machine(stage: Stage, lease: Lease, case: object) -> None:
    await stage.play_until(lease, "ready", seconds_max=300)
    assert await _failed(stage, lease) == [None], case
    assert stage.cloud.ever_by_key() == {(await stage.machines(lease))[0].launch_key: 1}, case
    await stage.check()


@pytest.mark.parametrize("state", ["intended", "launching", "booting", "bootstrapping", "verified"])
@pytest.mark.parametrize("seconds", [TEN_MINUTES, THREE_HOURS])
async def test_nothing_is_given_up_because_the_whole_reconciler_was_away(
    stage: Stage, state: str, seconds: int
) -> None:
    lease = await _brought_to(stage, MachineState(state))
    stage.clock.advance(seconds)
    # The worst order: what gives up comes back first.
    for _ in range(3):
        await stage.run("expire_machines")
    await _is_served_by_its_first_machine(stage, lease, (state, seconds))
    await stage.finish()


@pytest.mark.parametrize("wing", registry.wings())
async def test_no_machine_is_given_up_because_a_wing_was_away_for_ten_minutes(
    stage: Stage, wing: str
) -> None:
    lease = await _brought_to(stage, MachineState.BOOTING)
    await stage.play(TEN_MINUTES + 120, step=55, without=set(registry.of_wing(wing)))
    await _is_served_by_its_first_machine(stage, lease, wing)
    await stage.finish()


async def _without(stage: Stage, away: Collection[str], seconds: float) -> None:
    """Play the loops that matter here without some of them, densely enough for every deadline to be seen."""
    for _ in range(int(seconds / 55) + 1):
        for loop in EXPIRING:
            if loop not in away:
                await stage.run(loop)
        stage.clock.advance(55)


@pytest.mark.parametrize(
    ("state", "away"),
    [
        ("intended", "launch_machines"),
        ("launching", "observe_machines"),
        ("booting", "observe_machines"),
        ("bootstrapping", "bootstrap_machines"),
        ("verified", "admit_customers"),
    ],
)
async def test_no_machine_is_given_up_because_the_loop_that_it_waits_for_was_away_for_hours(
    stage: Stage, state: str, away: str
) -> None:
    lease = await _brought_to(stage, MachineState(state))
    first = (await stage.machines(lease))[0]
    await _without(stage, {away}, AN_HOUR if state == "intended" else THREE_HOURS)
    if state == "intended":
        # An order that nobody requested keeps no machine, so its lease chooses again after half an hour.
        assert await _failed(stage, lease) == [FailReason.NOT_ATTENDED, None]
        assert stage.cloud.ever_by_key() == {}
        await stage.play_until(lease, "ready", seconds_max=300)
    else:
        assert (await stage.machines(lease))[0].id == first.id
        await _is_served_by_its_first_machine(stage, lease, state)
    await stage.finish()


async def test_a_machine_that_was_tried_in_vain_before_an_outage_is_tried_again_after_it(
    stage: Stage,
) -> None:
    lease = await _brought_to(stage, MachineState.VERIFIED)
    (machine,) = await stage.machines(lease)
    stage.access.script(str(machine.address), unreachable=3)
    for _ in range(3):
        await stage.run("admit_customers")
        stage.clock.advance(15)
    stage.clock.advance(THREE_HOURS)
    await stage.run("expire_machines")
    await _is_served_by_its_first_machine(stage, lease, "tried before")
    await stage.finish()


async def test_a_machine_that_is_dead_after_an_outage_is_given_up_for_what_was_seen_of_it(
    stage: Stage,
) -> None:
    lease = await _brought_to(stage, MachineState.VERIFIED)
    (machine,) = await stage.machines(lease)
    stage.clock.advance(TEN_MINUTES + 120)
    stage.access.script(str(machine.address), unreachable=1_000_000)
    await stage.play_until(lease, "ready", seconds_max=900, step=15)
    assert await _failed(stage, lease) == [FailReason.UNREACHABLE, None]
    await stage.finish()


async def test_an_account_that_is_tried_and_does_not_answer_keeps_no_lease_waiting(stage: Stage) -> None:
    lease = await _brought_to(stage, MachineState.BOOTING)
    stage.cloud.faults.always("inventory", Fault.LISTING_FAILS)
    boot = stage.cloud.capabilities.boot_seconds_max
    await _without(stage, {"place_leases"}, boot + 120)
    assert await _failed(stage, lease) == [FailReason.NEVER_BOOTED]
    stage.cloud.faults.clear()
    await stage.finish()


async def test_a_hub_that_is_away_for_hours_is_our_fault_and_not_the_machines(stage: Stage) -> None:
    lease = await _brought_to(stage, MachineState.VERIFIED)
    stage.hub.fail_next += [StepFailed("sync", 1, "No space left")] * 10_000
    await _without(stage, {"place_leases"}, THREE_HOURS)
    assert await _failed(stage, lease) == [None]
    stage.hub.fail_next.clear()
    await _is_served_by_its_first_machine(stage, lease, "the hub was away")
    await stage.finish()


async def test_a_machine_that_we_neglect_for_too_long_ends_with_a_reason_of_ours_and_its_offer_stays_good(
    stage: Stage,
) -> None:
    lease = await _brought_to(stage, MachineState.VERIFIED)
    (first,) = await stage.machines(lease)
    begun = stage.clock.now()
    away = {"admit_customers", "place_leases"}
    await _without(stage, away, (UNATTENDED_MAX - timedelta(minutes=1)).total_seconds())
    assert await _failed(stage, lease) == [None]
    await _without(stage, away, 600)
    (attempt,) = await stage.attempts(lease)
    assert attempt.fail_reason is FailReason.NOT_ATTENDED
    assert attempt.fail_why is not None
    assert "neither the provider nor the machine is to blame" in attempt.fail_why
    assert attempt.ended_at is not None
    assert attempt.ended_at - begun < UNATTENDED_MAX + timedelta(minutes=10)

    await stage.run("refresh_offers")
    await stage.run("place_leases")
    again = (await stage.machines(lease))[-1]
    assert again.offer_key == first.offer_key, "nothing is concluded about the offer"
    await stage.play_until(lease, "ready", seconds_max=120)
    await stage.finish()


# The bill.


_NOT_BILLED = text("SELECT why FROM journal WHERE lease_id = :id AND event = 'use_not_billed'")


async def _not_billed(stage: Stage, lease: Lease) -> list[str]:
    async with stage.db.reading() as connection:
        return [row.why for row in await rows(connection, _NOT_BILLED, id=lease.id)]


async def test_a_release_is_not_billed_for_the_time_in_which_nobody_listed_the_machine(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready")
    await stage.play(100, step=10)
    listed_at = (await stage.machines(lease))[0].sighted_at
    assert listed_at is not None
    machine = stage.cloud.alive()[0]
    await stage.play(TEN_MINUTES, step=60, without=set(registry.of_wing("machines")))
    stage.cloud.disappear(machine.provider_ref)
    await stage.release(lease)
    row = await stage.lease_row(lease)
    assert row.billed_until == listed_at + EVIDENCE_LASTS
    seconds = int((stage.clock.now() - listed_at - EVIDENCE_LASTS).total_seconds())
    (why,) = await _not_billed(stage, lease)
    assert why.startswith(
        f"{seconds} s of use ({seconds / 1_000:.9f} USD) are not billed: the provider's last list"
    )
    await stage.finish()


async def test_a_release_is_billed_until_now_while_accounts_are_listed(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready")
    await stage.play(100, step=10)
    stage.clock.advance(EVIDENCE_LASTS.total_seconds())
    await stage.release(lease)
    assert (await stage.lease_row(lease)).billed_until == stage.clock.now()
    assert await _not_billed(stage, lease) == []
    await stage.finish()
