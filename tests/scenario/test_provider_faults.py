"""What providers and machines do to a lease, one fault at a time: from the launch to the verified machine."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import cast

import pytest

from control_plane.db.connection import Connection
from control_plane.db.engine import Database
from control_plane.domain.failure import FailReason
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, ProviderRef
from control_plane.domain.lease import EndReason, Lease, LeaseState
from control_plane.domain.machine import Machine, MachineState
from control_plane.domain.money import Nano
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest, LeaseTerms
from control_plane.domain.waiting import ATTEMPTS_MAX
from data_plane.documents.inventory import Inventory
from providers.base import LaunchOrder, Provider
from providers.fake import Fault
from providers.fake_offers import an_offer
from reconciler import simulated
from reconciler.loops.machines import launch_machines, observe_machines
from tests.support.stage import FAKE, H100, Stage, set_stage

pytestmark = pytest.mark.database

FIRST = "10.0.0.1"
"""The address of the first machine that the fake sells."""


async def _failed(stage: Stage, lease: Lease) -> list[FailReason | None]:
    return [attempt.fail_reason for attempt in await stage.attempts(lease)]


async def _only(stage: Stage, lease: Lease) -> Machine:
    (machine,) = await stage.machines(lease)
    return machine


# The launch.


async def test_a_lost_answer_to_a_launch_is_looked_for_and_the_one_machine_is_found(stage: Stage) -> None:
    stage.cloud.faults.script("launch", Fault.LOST_AFTER_EFFECT)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    assert stage.cloud.ever((await _only(stage, lease)).launch_key) == 1
    assert stage.cloud.calls_of("launch") == 1
    assert "machine found" in await stage.story(lease)
    await stage.finish()


async def test_a_launch_that_is_refused_after_it_was_accepted_costs_seconds_and_not_the_time_of_a_boot(
    stage: Stage,
) -> None:
    stage.cloud.faults.script("launch", Fault.REFUSED_LATER)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=60)
    assert await _failed(stage, lease) == [FailReason.NO_CAPACITY, None]
    refused, found = await stage.machines(lease)
    assert refused.native_region != found.native_region or refused.native_type != found.native_type
    await stage.play(600, step=60)
    assert (await stage.machines(lease))[0].state is MachineState.GONE
    assert stage.cloud.ever(refused.launch_key) == 0
    await stage.finish()


async def test_a_lost_launch_that_had_no_effect_is_never_posted_again_and_the_lease_tries_elsewhere(
    stage: Stage,
) -> None:
    stage.cloud.faults.script("launch", Fault.LOST_WITHOUT_EFFECT)
    lease = await stage.lease(await stage.organization())
    await stage.play(200, step=20)
    assert stage.cloud.calls_of("launch") == 1
    await stage.play_until(lease, "ready", seconds_max=120, step=5)
    lost, found = await stage.machines(lease)
    assert [lost.fail_reason, found.fail_reason] == [FailReason.LAUNCH_ANSWER_LOST, None]
    assert lost.region != found.region
    assert lost.state is MachineState.TERMINATING, "nothing has proved yet that no machine is there"
    assert [stage.cloud.ever(one.launch_key) for one in (lost, found)] == [0, 1]
    await stage.play(600, step=60)
    assert (await stage.machines(lease))[0].state is MachineState.GONE
    await stage.finish()


async def test_a_machine_that_shows_up_long_after_its_lost_launch_is_ended_and_the_lease_keeps_its_own(
    stage: Stage,
) -> None:
    stage.cloud.faults.script("launch", Fault.LOST_AFTER_EFFECT)
    lease = await stage.lease(await stage.organization())
    await _booting(stage)
    (late,) = stage.cloud.alive()
    stage.cloud.hide(late.provider_ref)
    await stage.play_until(lease, "ready", seconds_max=300, step=5)
    stage.cloud.show(late.provider_ref)
    await stage.play(20)
    assert late.ended_at is not None
    assert await stage.state(lease) == "ready"
    assert (await stage.machines(lease))[0].provider_ref == late.provider_ref
    await stage.finish()


async def test_a_machine_that_stays_hidden_beyond_every_window_is_ended_as_an_orphan_when_it_shows(
    stage: Stage,
) -> None:
    stage.cloud.faults.script("launch", Fault.LOST_AFTER_EFFECT)
    lease = await stage.lease(await stage.organization())
    await _booting(stage)
    (hidden,) = stage.cloud.alive()
    stage.cloud.hide(hidden.provider_ref)
    await stage.play(900, step=60)
    assert (await stage.machines(lease))[0].state is MachineState.GONE
    stage.cloud.show(hidden.provider_ref)
    await stage.play(200, step=10)
    assert hidden.ended_at is not None
    assert await stage.state(lease) == "ready"
    await stage.finish()


async def test_no_capacity_that_launches_all_the_same_is_an_orphan_watched_for_two_minutes_then_ended(
    stage: Stage,
) -> None:
    stage.cloud.faults.script("launch", Fault.FALSE_NO_CAPACITY)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    lied, kept = await stage.machines(lease)
    assert [lied.fail_reason, kept.fail_reason] == [FailReason.NO_CAPACITY, None]
    (orphan,) = stage.cloud.alive(lied.launch_key)
    seen_since = stage.clock.now()
    await stage.play(100, step=5)
    assert orphan.ended_at is None, "a record may be about to claim it"
    await stage.play(60, step=5)
    assert orphan.ended_at is not None
    assert (orphan.ended_at - seen_since).total_seconds() <= 140
    assert len(stage.cloud.alive(kept.launch_key)) == 1
    await stage.finish()


async def test_a_throttled_launch_is_put_back_and_asked_again_under_the_same_key(stage: Stage) -> None:
    stage.cloud.faults.script("launch", Fault.THROTTLED, seconds=20.0)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=60)
    assert stage.cloud.ever((await _only(stage, lease)).launch_key) == 1
    story = await stage.story(lease)
    assert story.count("machine put_back") == 1
    assert story.count("machine asked") == 2
    await stage.finish()


async def test_an_account_that_takes_no_orders_gives_its_intents_up_so_that_the_lease_goes_elsewhere(
    stage: Stage,
) -> None:
    stage.cloud.faults.always("launch", Fault.THROTTLED, seconds=10.0)
    lease = await stage.lease(await stage.organization())
    await stage.play(400, step=10)
    first, *others = await stage.machines(lease)
    assert first.state is MachineState.GONE
    assert first.fail_reason is FailReason.NOT_TAKEN
    assert others[0].region != first.region
    assert stage.cloud.ever_by_key() == {}
    stage.cloud.faults.clear()
    await stage.play_until(lease, "ready", seconds_max=120)
    await stage.finish()


async def test_sold_out_everywhere_waits_and_then_takes_what_comes_back(stage: Stage) -> None:
    for place in stage.cloud.stock:
        stage.cloud.stock[place] = 0
    lease = await stage.lease(await stage.organization())
    await stage.play(600, step=30)
    assert await stage.state(lease) == "placing"
    rejected = {offer.code for offer in (await stage.why(lease)).placements[-1].ranking.rejected}
    assert "sold_out" in rejected
    for place in stage.cloud.stock:
        stage.cloud.stock[place] = 1
    await stage.play_until(lease, "ready", seconds_max=120)
    await stage.finish()


async def test_a_lease_that_finds_no_capacity_for_half_an_hour_is_given_up_with_its_reason_and_costs_nothing(
    stage: Stage,
) -> None:
    for place in stage.cloud.stock:
        stage.cloud.stock[place] = 0
    organization_id = await stage.organization(usd=4, gpu_quota=1)
    lease = await stage.lease(organization_id)
    await stage.play(29 * 60, step=60)
    assert await stage.state(lease) == "placing"
    await stage.play_until(lease, "ended", seconds_max=120, step=15)
    row = await stage.lease_row(lease)
    assert row.end_reason is EndReason.NO_CAPACITY
    assert row.ended_at is not None
    assert row.ended_at >= row.created_at + timedelta(minutes=30)
    assert "sold out" in (row.end_why or "")
    assert isinstance(await stage.try_lease(organization_id), Lease), "quota and hold came back"
    await stage.finish()


async def test_a_lease_whose_every_machine_fails_stops_at_the_limit(stage: Stage) -> None:
    stage.cloud.faults.always("launch", Fault.LOST_WITHOUT_EFFECT)
    lease = await stage.lease(await stage.organization(), terms=LeaseTerms(wait_timeout_seconds=86_400))
    await stage.play_until(lease, "ended", seconds_max=36_000, step=60)
    assert (await stage.lease_row(lease)).end_reason is EndReason.NO_CAPACITY
    assert await _failed(stage, lease) == [FailReason.LAUNCH_ANSWER_LOST] * ATTEMPTS_MAX
    await stage.check_finished()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.QUOTA_REACHED, FailReason.QUOTA_REACHED),
        (Fault.ORDER_REFUSED, FailReason.ORDER_REFUSED),
    ],
)
async def test_a_definite_no_closes_the_attempt_at_once_and_the_next_candidate_is_tried(
    stage: Stage, fault: Fault, reason: FailReason
) -> None:
    stage.cloud.faults.script("launch", fault)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    refused, kept = await stage.machines(lease)
    assert (refused.state, refused.fail_reason) == (MachineState.GONE, reason)
    assert refused.region != kept.region
    await stage.finish()


async def test_an_adapters_bug_in_a_launch_is_a_lost_answer(stage: Stage) -> None:
    stage.cloud.faults.script("launch", Fault.ADAPTER_BUG)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    assert stage.cloud.ever((await _only(stage, lease)).launch_key) == 1
    await stage.finish()


# The constraints of a request.


async def test_a_price_ceiling_below_the_price_is_refused_and_one_at_the_price_is_kept(stage: Stage) -> None:
    organization_id = await stage.organization()
    below = CapacityRequest("h100x1", price_nano_per_hour_max=Nano(H100.nano_per_hour - 1))
    refused = await stage.try_lease(organization_id, below)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.PRICE_ABOVE_CEILING
    lease = await stage.lease(
        organization_id, CapacityRequest("h100x1", price_nano_per_hour_max=Nano(H100.nano_per_hour))
    )
    await stage.play_until(lease, "ready", seconds_max=30)
    await stage.finish()


async def test_an_offer_that_costs_more_than_it_is_sold_for_is_not_bought(stage: Stage) -> None:
    stage.cloud.listing = (
        an_offer(GpuModel.H100_SXM_80GB, 1, "eu-central-1", usd_per_gpu_hour="3.61"),
        an_offer(GpuModel.H100_SXM_80GB, 1, "us-east-1", usd_per_gpu_hour="3.60"),
    )
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    assert (await _only(stage, lease)).region == "us-east-1"
    ranking = (await stage.why(lease)).placements[-1].ranking
    assert [(offer.region, offer.code) for offer in ranking.rejected] == [
        ("eu-central-1", "costs_more_than_sold")
    ]
    await stage.finish()


async def test_the_cheaper_offer_is_bought_first(stage: Stage) -> None:
    stage.cloud.listing = (
        an_offer(GpuModel.H100_SXM_80GB, 1, "eu-central-1", usd_per_gpu_hour="2.20"),
        an_offer(GpuModel.H100_SXM_80GB, 1, "us-east-1", usd_per_gpu_hour="2.19"),
    )
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    assert (await _only(stage, lease)).region == "us-east-1"
    await stage.finish()


async def test_a_region_of_the_request_is_kept_even_when_it_fails_and_another_would_do(stage: Stage) -> None:
    organization_id = await stage.organization()
    await stage.round()
    stage.cloud.faults.script("launch", Fault.NO_CAPACITY)
    lease = await stage.lease(organization_id, CapacityRequest("h100x1", regions=("us",)))
    await stage.play_until(lease, "ready", seconds_max=300, step=5)
    assert [one.region for one in await stage.machines(lease)] == ["us-east-1", "us-east-1"]
    refused = await stage.try_lease(organization_id, CapacityRequest("h100x1", regions=("ap-tokyo",)))
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.REGION_NOT_SERVED
    await stage.finish()


async def test_a_provider_of_the_request_is_kept_and_an_unknown_one_refused(stage: Stage) -> None:
    organization_id = await stage.organization()
    refused = await stage.try_lease(organization_id, CapacityRequest("h100x1", providers=("nimbus",)))
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.PROVIDER_UNKNOWN
    lease = await stage.lease(organization_id, CapacityRequest("h100x1", providers=("fake",)))
    await stage.play_until(lease, "ready", seconds_max=30)
    await stage.finish()


# The boot.


async def test_a_machine_that_never_boots_is_ended_and_the_next_candidate_is_tried(stage: Stage) -> None:
    stage.cloud.faults.script("launch", Fault.NEVER_BOOTS)
    lease = await stage.lease(await stage.organization())
    await stage.play(590, step=20)
    assert await stage.state(lease) == "starting"
    await stage.play_until(lease, "ready", seconds_max=70)
    stuck, kept = await stage.machines(lease)
    assert stuck.fail_reason is FailReason.NEVER_BOOTED
    assert stuck.region != kept.region, "an offer that failed just now rests"
    await stage.play(10)
    assert stage.cloud.alive(stuck.launch_key) == ()
    await stage.finish()


async def test_a_machine_that_the_provider_calls_failed_while_it_boots_is_replaced(stage: Stage) -> None:
    stage.cloud.settings = dataclasses.replace(stage.cloud.settings, boot_seconds=60.0)
    lease = await stage.lease(await stage.organization())
    await stage.play(20)
    (broken,) = stage.cloud.alive()
    stage.cloud.die(broken.provider_ref)
    await stage.play_until(lease, "ready", seconds_max=120)
    assert await _failed(stage, lease) == [FailReason.PROVIDER_REPORTED_FAILURE, None]
    assert broken.ended_at is not None
    await stage.finish()


async def test_a_machine_that_vanishes_while_it_boots_is_replaced(stage: Stage) -> None:
    stage.cloud.settings = dataclasses.replace(stage.cloud.settings, boot_seconds=30.0)
    other = await stage.lease(await stage.organization())
    await stage.play_until(other, "ready", seconds_max=60)
    stage.cloud.settings = dataclasses.replace(stage.cloud.settings, boot_seconds=300.0)
    lease = await stage.lease(await stage.organization())
    await stage.play(10)
    stage.cloud.disappear((await _only(stage, lease)).provider_ref or ProviderRef(""))
    stage.cloud.settings = dataclasses.replace(stage.cloud.settings, boot_seconds=30.0)
    await stage.play_until(lease, "ready", seconds_max=180)
    assert await _failed(stage, lease) == [FailReason.VANISHED, None]
    await stage.finish()


async def test_status_words_that_nobody_knows_conclude_nothing(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    stage.cloud.faults.always("inventory", Fault.UNKNOWN_STATUSES)
    other = await stage.lease(await stage.organization())
    await stage.play(300, step=10)
    assert [await stage.state(one) for one in (lease, other)] == ["ready", "starting"]
    stage.cloud.faults.clear()
    await stage.play_until(other, "ready", seconds_max=30)
    await stage.finish()


# The bootstrap.


async def test_a_machine_whose_ssh_never_answers_is_given_up_as_unreachable_and_replaced(
    stage: Stage,
) -> None:
    stage.access.script(FIRST, unreachable=1_000_000)
    lease = await stage.lease(await stage.organization())
    await stage.play(580, step=20)
    assert await stage.state(lease) == "starting"
    await stage.play_until(lease, "ready", seconds_max=90)
    silent, kept = await stage.machines(lease)
    assert silent.fail_reason is FailReason.UNREACHABLE
    assert silent.region != kept.region
    await stage.play(10)
    assert stage.cloud.alive(silent.launch_key) == ()
    await stage.finish()


async def test_a_machine_that_answers_late_is_waited_for(stage: Stage) -> None:
    stage.access.script(FIRST, unreachable=8, login_refused=3)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=300)
    assert await _failed(stage, lease) == [None]
    await stage.finish()


async def test_a_machine_with_another_host_key_gets_no_secret_and_is_ended(stage: Stage) -> None:
    stage.access.script(FIRST, host_key_changed=True)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=300, step=5)
    strange, _ = await stage.machines(lease)
    assert strange.fail_reason is FailReason.HOST_KEY_CHANGED
    assert set(stage.access.machine(FIRST).calls) == {"connect"}, "nothing was sent to it"
    await stage.play(10)
    assert stage.cloud.alive(strange.launch_key) == ()
    await stage.finish()


@pytest.mark.parametrize(
    "step", ["apply firewall", "admit customer", "make mesh key", "join mesh", "run agent"]
)
async def test_a_connection_that_breaks_in_a_step_is_taken_up_again(stage: Stage, step: str) -> None:
    stage.access.script(FIRST, breaks_in={step})
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=60)
    assert await _failed(stage, lease) == [None]
    await stage.finish()


async def test_a_step_that_fails_again_and_again_ends_the_machine(stage: Stage) -> None:
    stage.access.script(FIRST, step_fails={"join mesh": 5})
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=120)
    assert await _failed(stage, lease) == [FailReason.SETUP_FAILED, None]
    await stage.finish()


def _sold() -> Inventory:
    return simulated.report(H100.sku.shape, "simulated")


def _other_model() -> Inventory:
    return simulated.report(dataclasses.replace(H100.sku.shape, gpu_model=GpuModel.L4_24GB), "simulated")


def _two() -> Inventory:
    return simulated.report(dataclasses.replace(H100.sku.shape, gpu_count=2), "simulated")


def _none() -> Inventory:
    return dataclasses.replace(_sold(), gpus=())


def _half_the_memory() -> Inventory:
    (gpu,) = _sold().gpus
    return dataclasses.replace(_sold(), gpus=(dataclasses.replace(gpu, memory_total_mib=40_000),))


@pytest.mark.parametrize(
    ("reading", "code"),
    [
        (_other_model, "gpu_model"),
        (_two, "gpu_count"),
        (_none, "gpu_count"),
        (_half_the_memory, "gpu_memory"),
    ],
)
async def test_a_machine_with_the_wrong_gpu_is_ended_with_its_reading_kept_and_its_offer_never_tried_again(
    stage: Stage, reading: Callable[[], Inventory], code: str
) -> None:
    stage.access.script(FIRST, inventory=reading())
    await stage.round()
    lease = await stage.lease(await stage.organization(), CapacityRequest("h100x1", regions=("eu",)))
    await stage.play(900, step=90)
    wrong = await _only(stage, lease)
    assert (wrong.state, wrong.fail_reason) == (MachineState.GONE, FailReason.GPU_MISMATCH)
    assert (wrong.fail_why or "").startswith(code)
    explained = await stage.why(lease)
    (report,) = explained.reports
    gpus = report.reading["gpus"]
    assert isinstance(gpus, list)
    assert (report.verdict, len(gpus)) == ("mismatch", len(reading().gpus))
    codes = {offer.region: offer.code for offer in explained.placements[-1].ranking.rejected}
    assert codes["eu-central-1"] in {"failed_before", "shape_differs"}
    assert (await stage.lease_row(lease)).ready_at is None
    await stage.check()
    await stage.play_until(lease, "ended", seconds_max=1_800, step=120)
    await stage.check_finished()


async def test_an_emulated_reading_proves_nothing_where_the_deployment_wants_real_gpus(stage: Stage) -> None:
    stage.world = dataclasses.replace(stage.world, accept_emulated=False)
    lease = await stage.lease(await stage.organization())
    await stage.play(120, step=5)
    machines = await stage.machines(lease)
    assert [(machine.region, machine.fail_reason) for machine in machines] == [
        ("eu-central-1", FailReason.GPU_MISMATCH),
        ("us-east-1", FailReason.GPU_MISMATCH),
    ]
    assert (machines[0].fail_why or "").startswith("emulated_not_accepted")
    assert (await stage.lease_row(lease)).ready_at is None
    assert stage.cloud.alive() == ()
    await stage.finish()


# The release.


async def _nothing(stage: Stage) -> None:
    """The lease was admitted."""


async def _placed(stage: Stage) -> None:
    await stage.run("refresh_offers")
    await stage.run("place_leases")


async def _unknown(stage: Stage) -> None:
    stage.cloud.faults.script("launch", Fault.LOST_AFTER_EFFECT)
    await _placed(stage)
    await stage.run("launch_machines")


async def _unknown_and_nothing(stage: Stage) -> None:
    stage.cloud.faults.script("launch", Fault.LOST_WITHOUT_EFFECT)
    await _placed(stage)
    await stage.run("launch_machines")


async def _booting(stage: Stage) -> None:
    await _placed(stage)
    await stage.run("launch_machines")


async def _bootstrapping(stage: Stage) -> None:
    await _booting(stage)
    stage.clock.advance(3)
    await stage.run("observe_machines")


async def _verified(stage: Stage) -> None:
    await _bootstrapping(stage)
    await stage.run("bootstrap_machines")


async def _ready(stage: Stage) -> None:
    await _verified(stage)
    await stage.run("admit_customers")


async def _between_attempts(stage: Stage) -> None:
    stage.access.script(FIRST, inventory=_two())
    await _verified(stage)


@pytest.mark.parametrize(
    ("reach", "lease_state", "machine_states"),
    [
        (_nothing, LeaseState.PLACING, []),
        (_placed, LeaseState.STARTING, [MachineState.INTENDED]),
        (_unknown, LeaseState.STARTING, [MachineState.LAUNCHING]),
        (_unknown_and_nothing, LeaseState.STARTING, [MachineState.LAUNCHING]),
        (_booting, LeaseState.STARTING, [MachineState.BOOTING]),
        (_bootstrapping, LeaseState.STARTING, [MachineState.BOOTSTRAPPING]),
        (_verified, LeaseState.STARTING, [MachineState.VERIFIED]),
        (_ready, LeaseState.READY, [MachineState.VERIFIED]),
        (_between_attempts, LeaseState.PLACING, [MachineState.TERMINATING]),
    ],
)
async def test_a_release_in_any_state_ends_everything_and_a_second_one_changes_nothing(
    stage: Stage,
    reach: Callable[[Stage], Awaitable[None]],
    lease_state: LeaseState,
    machine_states: list[MachineState],
) -> None:
    lease = await stage.lease(await stage.organization())
    await reach(stage)
    assert await stage.state(lease) == lease_state
    assert [one.state for one in await stage.machines(lease)] == machine_states
    await stage.release(lease)
    await stage.check()
    await stage.release(lease)
    for seconds in (2, 15, 60, 120, 240, 300, 60, 60):
        await stage.round()
        await stage.release(lease)
        await stage.check()
        stage.clock.advance(seconds)
    await stage.round()
    assert await stage.state(lease) == "ended"
    assert (await stage.story(lease)).count("lease released") == 1
    assert stage.cloud.calls_of("launch") <= 1
    await stage.check_finished()


async def test_two_releases_at_once_are_one(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    await stage.play(100, step=20)
    first, second = await asyncio.gather(stage.release(lease), stage.release(lease))
    assert first.lease.billed_until == second.lease.billed_until == stage.clock.now()
    assert (await stage.story(lease)).count("lease released") == 1
    await stage.finish()


@pytest.mark.parametrize(
    ("reach", "loop"),
    [
        (_bootstrapping, "bootstrap_machines"),
        (_verified, "admit_customers"),
    ],
)
async def test_a_release_and_a_step_of_the_set_up_at_once_leave_a_lease_that_ends(
    stage: Stage, reach: Callable[[Stage], Awaitable[None]], loop: str
) -> None:
    lease = await stage.lease(await stage.organization())
    await reach(stage)
    await asyncio.gather(stage.release(lease), stage.run(loop))
    await stage.check()
    await stage.finish()


@dataclasses.dataclass
class _LateAnswer:
    """A provider whose answer to a launch is on its way until `arrives` is set."""

    inner: Provider
    launched: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    arrives: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.capabilities = self.inner.capabilities
        self.offers, self.inventory = self.inner.offers, self.inner.inventory
        self.terminate, self.close = self.inner.terminate, self.inner.close

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        try:
            return await self.inner.launch(order)
        finally:
            self.launched.set()
            await self.arrives.wait()


def _late(stage: Stage) -> _LateAnswer:
    late = _LateAnswer(stage.world.accounts[FAKE])
    stage.world = dataclasses.replace(stage.world, accounts={FAKE: late})
    return late


@pytest.mark.parametrize(
    "fault",
    [
        Fault.NONE,
        Fault.LOST_AFTER_EFFECT,
        Fault.LOST_WITHOUT_EFFECT,
        Fault.NO_CAPACITY,
        Fault.THROTTLED,
        Fault.FALSE_NO_CAPACITY,
    ],
)
@pytest.mark.parametrize("meanwhile", [(), ("observe_machines",), ("release_machines",)])
async def test_a_release_while_the_launch_is_in_flight_ends_whatever_comes_of_it(
    stage: Stage, fault: Fault, meanwhile: Sequence[str]
) -> None:
    """`meanwhile`: loops that run after the release and before the answer."""
    stage.cloud.faults.script("launch", fault, seconds=5.0)
    lease = await stage.lease(await stage.organization())
    await _placed(stage)
    late = _late(stage)
    launching = asyncio.create_task(stage.run("launch_machines"))
    await late.launched.wait()
    await stage.release(lease)
    stage.clock.advance(3)
    for loop in meanwhile:
        await stage.run(loop)
    late.arrives.set()
    await launching
    await stage.check()
    await stage.run("release_machines")
    machine = await _only(stage, lease)
    if fault is Fault.NONE or ("observe_machines" in meanwhile and stage.cloud.alive()):
        assert machine.state is MachineState.TERMINATING, "a machine is there: no answer may close its record"
        assert machine.provider_ref == stage.cloud.alive()[0].provider_ref
    await stage.finish()
    assert stage.cloud.calls_of("launch") == 1


async def test_an_answer_that_comes_after_the_inventory_showed_the_machine_changes_nothing(
    stage: Stage,
) -> None:
    lease = await stage.lease(await stage.organization())
    await _placed(stage)
    late = _late(stage)
    launching = asyncio.create_task(stage.run("launch_machines"))
    await late.launched.wait()
    stage.clock.advance(3)
    await stage.run("observe_machines")
    late.arrives.set()
    await launching
    await stage.play_until(lease, "ready", seconds_max=30)
    assert stage.cloud.ever((await _only(stage, lease)).launch_key) == 1
    await stage.finish()


@dataclasses.dataclass
class _Between:
    """A database on which something happens before each transaction but the first."""

    inner: Database
    happens: Callable[[], Awaitable[None]]
    transactions: int = 0

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        self.transactions += 1
        if self.transactions > 1:
            await self.happens()
        async with self.inner.transaction() as connection:
            yield connection


async def test_a_machine_found_while_its_attempt_expires_is_kept(stage: Stage) -> None:
    """The deadline was judged on a row that moved on meanwhile."""
    stage.cloud.faults.script("launch", Fault.LOST_AFTER_EFFECT)
    lease = await stage.lease(await stage.organization())
    await _placed(stage)
    await stage.run("launch_machines")
    stage.clock.advance(300)
    # A list from after the deadline that does not show the machine yet is the evidence against it.
    stage.cloud.faults.script("inventory", Fault.EMPTY_LISTING)
    await stage.run("observe_machines")
    stage.clock.advance(5)

    async def observe() -> None:
        await stage.run("observe_machines")

    between = _Between(stage.db, observe)
    await stage.run("expire_machines", world=dataclasses.replace(stage.world, db=cast("Database", between)))
    assert between.transactions == 2
    assert (await _only(stage, lease)).state is MachineState.BOOTING
    await stage.play_until(lease, "ready", seconds_max=30)
    await stage.finish()


# The end.


@pytest.mark.parametrize(
    "fault",
    [
        Fault.NOT_YET,
        Fault.THROTTLED,
        Fault.UNAVAILABLE,
        Fault.UNAUTHORIZED,
        Fault.LOST_AFTER_EFFECT,
        Fault.LOST_WITHOUT_EFFECT,
        Fault.ADAPTER_BUG,
    ],
)
async def test_a_terminate_that_fails_is_asked_again_until_the_machine_is_gone(
    stage: Stage, fault: Fault
) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    stage.cloud.faults.script("terminate", fault, fault, seconds=1.0)
    await stage.release(lease)
    await stage.play_until(lease, "ended", seconds_max=400, step=5)
    await stage.check_finished()


async def test_a_machine_that_the_provider_denies_to_know_is_open_until_the_lists_agree(stage: Stage) -> None:
    keeps, lease = [await stage.lease(await stage.organization()) for _ in range(2)]
    await stage.play_until(lease, "ready", seconds_max=30)
    ref = (await _only(stage, lease)).provider_ref or ProviderRef("")
    await stage.release(lease)
    stage.cloud.disappear(ref)
    await stage.run("release_machines")
    await stage.run("terminate_machines")
    assert (await _only(stage, lease)).state is MachineState.TERMINATING, "a 404 is no proof"
    await stage.play(40)
    assert (await _only(stage, lease)).state is MachineState.TERMINATING, "one list is no proof either"
    await stage.play_until(lease, "ended", seconds_max=60)
    assert await stage.state(keeps) == "ready"
    await stage.finish()


# Two accounts.


@pytest.fixture
async def two_accounts(stage: Stage) -> Stage:
    two = await set_stage(stage.db, stage.clock, names=("fake", "fake/second"), api_db=stage.api.db)
    await two.round()
    return two


SECOND = AccountName("fake/second")


async def test_an_account_that_does_not_answer_is_left_out_and_the_other_one_sells(
    two_accounts: Stage,
) -> None:
    stage = two_accounts
    for verb in ("offers", "launch", "inventory"):
        stage.cloud.faults.always(verb, Fault.UNAVAILABLE)
    stage.clock.advance(3)
    await stage.run("observe_machines")
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    assert (await _only(stage, lease)).account == SECOND
    codes = {offer.code for offer in (await stage.why(lease)).placements[0].ranking.rejected}
    assert "account_unhealthy" in codes
    stage.cloud.faults.clear()
    await stage.finish()


async def test_an_account_whose_calls_hang_delays_no_lease_of_another(two_accounts: Stage) -> None:
    stage = two_accounts
    organization_id = await stage.organization()
    hanging = await stage.lease(organization_id)
    stage.clouds[SECOND].stock = dict.fromkeys(stage.clouds[SECOND].stock, 0)
    stage.clock.advance(30)
    await stage.run("refresh_offers")
    await stage.run("place_leases")
    assert (await _only(stage, hanging)).account == FAKE
    waiting = asyncio.Event()

    async def hang() -> None:
        await waiting.wait()

    stage.cloud.slow = hang
    for verb in ("launch", "inventory"):
        stage.cloud.faults.always(verb, Fault.SLOW)
    stage.clock.advance(3)
    tasks = [
        asyncio.create_task(loop.LOOP.activate(stage.world, FAKE))
        for loop in (launch_machines, observe_machines)
    ]
    second = dataclasses.replace(
        stage.world, accounts={SECOND: stage.world.accounts[SECOND]}, account_names=(SECOND,)
    )
    stage.clouds[SECOND].stock = dict.fromkeys(stage.clouds[SECOND].stock, 1)
    stage.clouds[SECOND].listing = (
        an_offer(GpuModel.H100_SXM_80GB, 1, "us-east-1", usd_per_gpu_hour="1.00"),
    )
    stage.clock.advance(30)
    await stage.run("refresh_offers", world=second)
    lease = await stage.lease(organization_id)
    for _ in range(6):
        await stage.round(world=second, without={"refresh_offers"})
        stage.clock.advance(2)
    assert await stage.state(lease) == "ready"
    assert not any(task.done() for task in tasks)
    stage.cloud.faults.clear()
    waiting.set()
    await asyncio.gather(*tasks)
    await stage.play_until(hanging, "ready", seconds_max=200, step=10)
    await stage.finish()
