"""GPU proof from the order to the end: which machines are used, challenged again and terminated, and who pays."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text

from control_plane.db import challenges, permits, proof_records
from control_plane.domain import proof
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.actor import Actor, ActorKind
from control_plane.domain.deadline import UNATTENDED_MAX
from control_plane.domain.failure import FailReason
from control_plane.domain.ids import AccountName, MachineId, OrganizationId
from control_plane.domain.lease import EndReason, Lease
from control_plane.domain.machine import ERASED_WITHIN, Machine, MachineState
from control_plane.domain.placement import PROOF_RECORD_WINDOW, RejectCode
from control_plane.domain.power_action import PowerAction
from control_plane.domain.progress import Step
from control_plane.domain.proof import FAILING_MACHINES_MAX, FAILING_WINDOW, Tier
from control_plane.domain.refusal import Refused
from control_plane.domain.request import CapacityRequest
from control_plane.services import accounts as account_service
from control_plane.services import billing, quotes
from control_plane.world import uuid7
from data_plane.access.port import Target
from data_plane.access.ssh import CLOSE_SECONDS, CONNECT_SECONDS
from data_plane.documents.health import Usage
from data_plane.proof.challenger.conversation import CONVERSATION_SECONDS_MAX
from data_plane.proof.challenger.port import Occasion, Outcome, ProofReport
from data_plane.proof.verifier.jobs import CHECK_SECONDS_MAX, VerifierAway
from data_plane.simulation.access import FakeMachine, idle
from reconciler import proving
from reconciler.loop import Report
from reconciler.loops.providers.refresh_offers import EVERY
from reconciler.worlds.complete import CompleteWorld
from tests.integration.db.sample import a_row, insert
from tests.support import proof_laws
from tests.support.challenger import AWAY, EMULATED, FAILED, PASSED, UNANSWERED, Answer, Interposed
from tests.support.power import asked
from tests.support.rows import rows
from tests.support.stage import FAKE, Stage

pytestmark = pytest.mark.database

PROVEN = CapacityRequest("h100x1-proven")
OPERATOR = Actor(ActorKind.OPERATOR, "key_1")
DUE = proof.idle_wait(0.5).total_seconds() + 60
"""The stage's chance is 0.5: by then an idle machine was challenged."""

_PROOFS = text("SELECT * FROM proofs ORDER BY at, id")


async def stored(stage: Stage) -> list[tuple[str, str]]:
    """Occasion and outcome of every proof; what is recorded of the machines agrees with them."""
    await proof_laws.check_records(stage.db)
    async with stage.db.reading() as connection:
        return [(row.occasion, row.outcome) for row in await rows(connection, _PROOFS)]


async def machine(stage: Stage, lease: Lease) -> Machine:
    """The machine of the lease's latest attempt."""
    return (await stage.machines(lease))[-1]


async def address(stage: Stage, lease: Lease) -> str:
    found = (await machine(stage, lease)).address
    assert found is not None
    return found


async def noted(stage: Stage, lease: Lease, event: str) -> list[str]:
    return [line.why or "" for line in (await stage.why(lease)).journal if line.event == event]


async def challenged(stage: Stage, seconds: float, *, step: float) -> AsyncIterator[Report]:
    """Play on, and return what each run of `challenge_machines` reports."""
    for _ in range(int(seconds // step)):
        for report in await stage.run("challenge_machines"):
            yield report
        await stage.round(without={"challenge_machines"})
        stage.clock.advance(step)


async def booting(
    stage: Stage, request: CapacityRequest = PROVEN, organization: OrganizationId | None = None
) -> Lease:
    """A lease whose machine runs and was not connected to yet."""
    lease = await stage.lease(organization or await stage.organization(), request)
    while [found.state for found in (await stage.machines(lease))[-1:]] != [MachineState.BOOTSTRAPPING]:
        await stage.round(without={"bootstrap_machines"})
        stage.clock.advance(2)
    return lease


async def ready(
    stage: Stage, request: CapacityRequest = PROVEN, organization: OrganizationId | None = None
) -> Lease:
    lease = await stage.lease(organization or await stage.organization(), request)
    await stage.play_until(lease, "ready")
    return lease


async def set_up(stage: Stage, *, world: CompleteWorld | None = None) -> None:
    """Prove the machines that have booted, and admit their customers."""
    await stage.run("bootstrap_machines", world=world)
    await stage.run("admit_customers")


async def release(stage: Stage, lease: Lease) -> None:
    """Release the lease as its customer, and have the machine released."""
    await stage.release(lease)
    await stage.run("release_machines")


async def idle_challenge(stage: Stage, lease: Lease, *answers: Answer) -> str:
    """Play until the next challenge was made. It and those that follow get these answers; returns the address."""
    where = await address(stage, lease)
    stage.challenger.script(where, *answers)
    await stage.play(DUE, step=1_200)
    return where


def busy_health(stage: Stage, where: str, *, processes: int | None, percent: int | None) -> None:
    """From now on the machine at this address reports this load of its GPUs."""
    known = stage.access.machine(where)
    health = known.health or idle(stage.access.hardware(Target(where, 22, "", "")))
    gpus = tuple(
        dataclasses.replace(gpu, usage=Usage(compute_processes=processes, utilisation_percent=percent))
        for gpu in health.gpus
    )
    known.health = dataclasses.replace(health, gpus=gpus)


def compute_meanwhile(stage: Stage, where: str) -> None:
    """From now on the customer at this address begins to compute during every challenge."""
    stage.challenger.sleep = lambda _: busy_health(stage, where, processes=1, percent=90)


# Before a lease is ready.


async def test_a_sku_that_demands_proof_is_ready_only_after_a_pass_and_says_so(stage: Stage) -> None:
    lease = await booting(stage)
    where = await address(stage, lease)
    await stage.run("bootstrap_machines")
    assert (await machine(stage, lease)).step is Step.GPUS_PROVEN
    assert await stage.state(lease) == "starting"
    await stage.run("admit_customers")
    assert await stage.state(lease) == "ready"
    assert stage.challenger.occasions(where) == [Occasion.START]
    shown = await stage.shown(lease)
    assert shown.overview.evidence is not None
    assert shown.overview.evidence.step is Step.CERTIFICATES_ACCEPTED
    assert (shown.tier, shown.status.steps_done, shown.status.steps_total) == (Tier.PROVEN, 8, 8)
    assert shown.overview.proof is not None
    assert await stored(stage) == [("start", "passed")]
    await stage.finish()


async def test_a_sku_that_demands_none_is_not_challenged_at_all(stage: Stage) -> None:
    lease = await ready(stage, CapacityRequest("h100x1"))
    await stage.play(2 * 86_400, step=7_200)
    assert stage.challenger.asked == []
    assert (await stage.shown(lease)).tier is Tier.LISTED
    await stage.finish()
    assert stage.challenger.asked == [], "nothing to erase on a machine that was never proven"


async def test_the_customer_sees_that_the_gpus_are_being_proven(stage: Stage) -> None:
    lease = await booting(stage)
    seen: list[tuple[int, str]] = []

    async def look(_: str) -> None:
        status = (await stage.shown(lease)).status
        seen.append((status.steps_done, status.message))

    world = dataclasses.replace(stage.world, challenger=Interposed(stage.challenger, look))
    await stage.run("bootstrap_machines", world=world)
    assert seen == [(5, "The GPUs read as sold; proving them.")]
    await stage.finish()


@pytest.mark.parametrize(
    ("sku", "answer", "admitted"),
    [
        ("h100x1-proven", PASSED, True),
        ("h100x1-proven", FAILED, False),
        ("h100x1-proven", UNANSWERED, False),
        ("h100x1-proven", EMULATED, False),
        ("h100x1-attested", PASSED, False),
        ("h100x1-attested", dataclasses.replace(PASSED, attested=True), True),
    ],
)
async def test_nobody_is_on_a_machine_before_its_gpus_are_proven(
    stage: Stage, sku: str, answer: Answer, admitted: bool
) -> None:
    lease = await booting(stage, CapacityRequest(sku))
    known = stage.access.machine(await address(stage, lease))
    before: list[str] = []

    async def watch(_: str) -> None:
        before.extend(known.calls)

    stage.challenger.otherwise = answer
    world = dataclasses.replace(stage.world, challenger=Interposed(stage.challenger, watch))
    await set_up(stage, world=world)
    assert before == [
        "connect",
        "close other logins",
        "trust authorities",
        "run agent",
        "find agent",
        "prove",
    ]
    admitting = ["connect", "apply firewall", "make mesh key", "join mesh", "admit customer"]
    assert known.calls[len(before) :] == (admitting if admitted else [])
    stage.challenger.otherwise = dataclasses.replace(PASSED, attested=True)
    await stage.finish()


async def test_keys_that_cannot_be_installed_are_tried_again_without_another_proof(stage: Stage) -> None:
    lease = await booting(stage)
    where = await address(stage, lease)
    stage.access.machine(where).step_fails["admit customer"] = 1
    await set_up(stage)
    assert (await machine(stage, lease)).state is MachineState.VERIFIED
    assert await stage.state(lease) == "starting"
    await stage.play_until(lease, "ready", seconds_max=60)
    assert stage.challenger.occasions(where) == [Occasion.START]
    await stage.finish()


@pytest.mark.parametrize("answer", [EMULATED, dataclasses.replace(PASSED, source="emulated")])
async def test_an_emulation_is_never_proof_and_costs_its_offer_nothing(stage: Stage, answer: Answer) -> None:
    stage.challenger.otherwise = answer
    lease = await booting(stage)
    await stage.run("bootstrap_machines")
    refused = await machine(stage, lease)
    assert (refused.state, refused.fail_reason) == (MachineState.TERMINATING, FailReason.PROOF_EMULATED)
    assert await stored(stage) == [("start", "emulated")]
    async with stage.db.reading() as connection:
        assert await proof_records.disproven(connection, since=stage.clock.now() - PROOF_RECORD_WINDOW) == {}
    await stage.finish()


async def test_one_failure_is_looked_at_again_and_a_pass_then_makes_it_ready(stage: Stage) -> None:
    lease = await booting(stage)
    where = await address(stage, lease)
    stage.challenger.script(where, FAILED)
    await stage.run("bootstrap_machines")
    assert await stage.state(lease) == "starting"
    [why] = await noted(stage, lease, "proof_failed")
    assert "too_slow" in why
    await stage.run("bootstrap_machines")
    assert stage.challenger.occasions(where) == [Occasion.START], "at once is not in the same second"
    stage.clock.advance(proof.AGAIN_WHILE_STARTING.total_seconds())
    await set_up(stage)
    assert await stage.state(lease) == "ready"
    assert stage.challenger.occasions(where) == [Occasion.START, Occasion.START]
    assert (await stage.shown(lease)).tier is Tier.PROVEN
    await stage.finish()


async def test_a_first_failure_late_in_the_setting_up_still_gets_its_second_challenge(stage: Stage) -> None:
    lease = await booting(stage)
    where = await address(stage, lease)
    stage.challenger.script(where, FAILED)
    stage.clock.advance(9 * 60 + 50)
    await stage.run("bootstrap_machines")
    await stage.play_until(lease, "ready", seconds_max=60)
    assert len(await stage.attempts(lease)) == 1
    await stage.finish()


async def test_two_failures_send_the_lease_to_the_next_candidate(stage: Stage) -> None:
    lease = await booting(stage)
    where = await address(stage, lease)
    stage.challenger.always[where] = FAILED
    await stage.play_until(lease, "ready", seconds_max=300)
    first, second = await stage.machines(lease)
    assert (first.fail_reason, second.state) == (FailReason.PROOF_FAILED, MachineState.VERIFIED)
    assert (first.region, first.native_type) != (second.region, second.native_type)
    assert "failed again, too_slow" in str(first.fail_why)
    assert first.step is Step.GPUS_VERIFIED
    await stage.finish()


async def test_silence_while_starting_is_asked_again_until_the_deadline_and_is_no_failure(
    stage: Stage,
) -> None:
    lease = await booting(stage)
    stage.challenger.always[await address(stage, lease)] = UNANSWERED
    await stage.play_until(lease, "ready", seconds_max=1_200, step=20)
    first = (await stage.attempts(lease))[0]
    assert first.fail_reason is FailReason.UNREACHABLE
    assert {outcome for _, outcome in (await stored(stage))[:-1]} == {"unanswered"}
    await stage.finish()


async def test_our_own_verifier_being_away_is_no_strike_and_costs_the_machine_no_time(stage: Stage) -> None:
    lease = await booting(stage)
    where = await address(stage, lease)
    stage.challenger.always[where] = AWAY
    await stage.play(30 * 60, step=80)
    assert await stage.state(lease) == "starting"
    assert len(await stage.attempts(lease)) == 1
    assert await stored(stage) == []
    del stage.challenger.always[where]
    await stage.play_until(lease, "ready", seconds_max=60)
    await stage.finish()


async def test_a_verifier_that_stays_away_does_not_keep_a_machine_for_ever(stage: Stage) -> None:
    lease = await booting(stage)
    stage.challenger.otherwise = AWAY
    begun = stage.clock.now()
    while (attempt := (await stage.attempts(lease))[0]).fail_reason is None:
        for loop in ("observe_machines", "bootstrap_machines", "expire_machines"):
            await stage.run(loop)
        stage.clock.advance(60)
    assert attempt.fail_reason is FailReason.NOT_ATTENDED
    assert attempt.ended_at is not None
    assert UNATTENDED_MAX <= attempt.ended_at - begun <= UNATTENDED_MAX + timedelta(minutes=10)
    stage.challenger.otherwise = PASSED
    await stage.finish()


async def test_a_verifier_of_ours_that_is_slow_costs_the_machine_no_time_either(stage: Stage) -> None:
    lease = await booting(stage)
    asked = 0

    async def slow(_: str) -> None:
        nonlocal asked
        asked += 1
        for _step in range(24):
            stage.clock.advance(10)
            await stage.run("expire_machines")
        raise VerifierAway("no result within 180 s")

    world = dataclasses.replace(stage.world, challenger=Interposed(stage.challenger, slow))
    for _turn in range(40):
        await stage.run("bootstrap_machines", world=world)
        await stage.run("expire_machines")
        stage.clock.advance(5)
    assert asked > 5
    assert (await machine(stage, lease)).state is MachineState.BOOTSTRAPPING
    await stage.play_until(lease, "ready", seconds_max=60)
    await stage.finish()


async def test_a_second_challenge_that_began_in_time_may_finish(stage: Stage) -> None:
    lease = await booting(stage)
    where = await address(stage, lease)
    stage.clock.advance(9 * 60 + 50)
    looks = 0

    async def slow(_: str) -> None:
        nonlocal looks
        looks += 1
        for _step in range(20 if looks > 1 else 0):
            stage.clock.advance(10)
            await stage.run("expire_machines")

    stage.challenger.script(where, FAILED, PASSED)
    world = dataclasses.replace(stage.world, challenger=Interposed(stage.challenger, slow))
    await stage.run("bootstrap_machines", world=world)
    stage.clock.advance(15)
    await set_up(stage, world=world)
    assert looks == 2
    assert await stage.state(lease) == "ready"
    await stage.finish()


async def test_a_machine_past_its_time_is_tried_once_more_and_not_taken_up_again(stage: Stage) -> None:
    lease = await booting(stage)
    stage.challenger.otherwise = UNANSWERED
    stage.clock.advance(3_600)
    for _ in range(3):
        await stage.run("bootstrap_machines")
        stage.clock.advance(20)
    assert len(stage.challenger.asked) == 1
    await stage.run("expire_machines")
    assert (await machine(stage, lease)).fail_reason is FailReason.UNREACHABLE
    await stage.finish()


async def test_an_attested_machine_that_attests_no_more_goes_at_the_second_challenge(stage: Stage) -> None:
    stage.challenger.otherwise = dataclasses.replace(PASSED, attested=True)
    lease = await ready(stage, CapacityRequest("h100x1-attested"))
    where = await idle_challenge(stage, lease, PASSED, dataclasses.replace(PASSED, attested=True))
    await stage.play(900, step=180)
    assert (await stage.shown(lease)).tier is Tier.ATTESTED, "one pass without an attestation changes nothing"
    stage.challenger.always[where] = PASSED
    await stage.play(DUE, step=1_200)
    await stage.play(900, step=180)
    ended = await stage.lease_row(lease)
    assert ended.end_reason is EndReason.PROOF_FAILED
    assert "attested was sold" in str(ended.end_why)
    await stage.finish()


async def test_an_attested_sku_takes_no_machine_that_is_only_proven(stage: Stage) -> None:
    lease = await booting(stage, CapacityRequest("h100x1-attested"))
    first = await address(stage, lease)
    stage.challenger.always[first] = PASSED
    stage.challenger.otherwise = dataclasses.replace(PASSED, attested=True)
    await stage.play_until(lease, "ready", seconds_max=300)
    refused = (await stage.attempts(lease))[0]
    assert refused.fail_reason is FailReason.PROOF_FAILED
    assert "attested was sold" in str(refused.fail_why)
    assert (await stage.shown(lease)).tier is Tier.ATTESTED
    await stage.finish()


def test_what_a_challenge_waits_for_by_itself_ends_before_it_is_cut_off() -> None:
    """A challenge that is cut off counts as unanswered. A slow verifier of ours must not count against a machine."""
    pushing_the_agent_and_saying_goodbye = 30
    own = CONVERSATION_SECONDS_MAX + CHECK_SECONDS_MAX + pushing_the_agent_and_saying_goodbye
    assert own < proving.CHALLENGE_SECONDS_MAX


def test_nothing_that_a_machine_can_drag_out_outlasts_the_workers_hold_on_it() -> None:
    """Otherwise it could stall after a failure until another worker has it, and the failure would be dropped."""
    dialing = CONNECT_SECONDS + CLOSE_SECONDS
    longest = dialing + proving.CHALLENGE_SECONDS_MAX + 2 * proving.LOOK_SECONDS
    assert longest + 10 < proving.HELD_FOR.total_seconds()


async def test_a_look_after_a_failure_that_is_stalled_loses_no_failure(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await ready(stage)
    where = await address(stage, lease)
    monkeypatch.setattr(proving, "LOOK_SECONDS", 0.05)

    async def stall(_: Target, step: str) -> None:
        if step == "read health" and len(stage.challenger.occasions(where)) > 1:
            await asyncio.Event().wait()

    stage.access.before = stall
    await idle_challenge(stage, lease, FAILED)
    assert ("idle", "failed") in await stored(stage)


async def test_a_hung_challenge_is_cut_off_and_unanswered(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proving, "CHALLENGE_SECONDS_MAX", 0.05)
    lease = await booting(stage)
    stage.challenger.script(await address(stage, lease), Answer(hangs=True))
    await stage.run("bootstrap_machines")
    assert await stored(stage) == [("start", "unanswered")]
    await stage.play_until(lease, "ready", seconds_max=60)
    await stage.finish()


async def test_a_worker_that_lost_its_machine_during_the_proof_changes_nothing(stage: Stage) -> None:
    """A challenge that takes longer than the hold: two workers, and the slow one's pass is dropped."""
    lease = await booting(stage)
    where = await address(stage, lease)
    slow = proving.HELD_FOR.total_seconds() + 1

    async def take_over(_: str) -> None:
        stage.clock.advance(slow)
        await stage.run("bootstrap_machines", world=stage.replica("quick"))

    stage.challenger.script(where, FAILED, PASSED)
    taken_over = Interposed(stage.challenger, take_over)
    world = dataclasses.replace(stage.replica("slow"), challenger=taken_over)
    await stage.run("bootstrap_machines", world=world)
    assert await stored(stage) == [("start", "failed")], "the slow worker's proof counts although it had lost"
    assert await stage.state(lease) == "starting"
    await stage.play_until(lease, "ready", seconds_max=60)
    await stage.finish()


async def test_a_gpu_that_two_live_machines_show_is_sold_once(stage: Stage) -> None:
    first = await ready(stage)
    theirs = f"GPU-{await address(stage, first)}-0"
    second = await booting(stage)
    stage.challenger.always[await address(stage, second)] = dataclasses.replace(PASSED, gpu_uuids=(theirs,))
    await stage.play_until(second, "ready", seconds_max=300)
    refused = (await stage.attempts(second))[0]
    assert refused.fail_reason is FailReason.PROOF_FAILED
    assert "gpu_sold_twice" in str(refused.fail_why)
    [why, _] = await noted(stage, first, "gpu_sold_twice")
    assert "another machine" in why
    assert str(second.organization_id.hex) not in why
    # The one that was there first is asked whether it has the GPU.
    await stage.play(60)
    assert stage.challenger.occasions(await address(stage, first))[1:] != []
    await stage.finish()


async def keys_on(stage: Stage, lease: Lease) -> list[bool]:
    """Whether anybody's keys were ever installed on the machines of a lease, one answer per attempt."""
    addresses = [machine.address for machine in await stage.machines(lease)]
    return ["admit customer" in stage.access.machine(where).calls for where in addresses if where is not None]


async def test_no_key_is_ever_on_a_machine_whose_gpu_is_found_to_be_sold_twice(stage: Stage) -> None:
    """Both pass their challenge alone. Which of them is verified is decided before anybody's keys are installed."""
    organization = await stage.organization()
    leases = [await stage.lease(organization, PROVEN) for _ in range(2)]
    stage.challenger.otherwise = dataclasses.replace(PASSED, gpu_uuids=("GPU-of-both",))
    while len(await stored(stage)) < 2:
        await stage.round(without={"admit_customers", "challenge_machines"})
        stage.clock.advance(2)
    assert sorted(await stored(stage)) == [("start", "failed"), ("start", "passed")]
    [refused] = [lease for lease in leases if await noted(stage, lease, "proof_failed")]
    await set_up(stage)
    assert sorted([await stage.state(lease) for lease in leases]) == ["ready", "starting"]
    assert await keys_on(stage, refused) == [False]
    stage.clock.advance(proof.AGAIN_WHILE_STARTING.total_seconds())
    await set_up(stage)
    assert (await stage.attempts(refused))[0].fail_reason is FailReason.PROOF_FAILED
    stage.challenger.otherwise = PASSED
    await stage.play_until(refused, "ready", seconds_max=300)
    assert await keys_on(stage, refused) == [False, True]
    await stage.finish()


async def test_nobody_is_admitted_to_a_verified_machine_while_its_gpu_is_found_to_be_sold_twice(
    stage: Stage,
) -> None:
    first = await ready(stage)
    theirs = f"GPU-{await address(stage, first)}-0"
    second = await booting(stage)
    where = await address(stage, second)
    await stage.run("bootstrap_machines")
    assert (await machine(stage, second)).state is MachineState.VERIFIED
    stage.challenger.always[where] = dataclasses.replace(PASSED, gpu_uuids=(theirs,))
    async with stage.db.transaction() as connection:
        await challenges.challenge_now(connection, (await machine(stage, second)).id, now=stage.clock.now())
    await stage.run("challenge_machines")
    assert ("idle", "failed") in await stored(stage)
    await stage.run("admit_customers")
    assert "admit customer" not in stage.access.machine(where).calls
    await stage.play_until(second, "ready", seconds_max=900)
    assert await keys_on(stage, second) == [False, True]
    await stage.finish()


async def test_one_chip_that_attests_itself_on_two_machines_is_one_gpu_whatever_its_uuid_says(
    stage: Stage,
) -> None:
    attested = dataclasses.replace(PASSED, attested=True, devices=("chip 1",))
    stage.challenger.otherwise = attested
    first = await ready(stage, CapacityRequest("h100x1-attested"))
    second = await booting(stage, CapacityRequest("h100x1-attested"))
    for lease in (first, second):
        stage.challenger.always[await address(stage, lease)] = attested
    stage.challenger.otherwise = dataclasses.replace(attested, devices=("chip 2",))
    await stage.play_until(second, "ready", seconds_max=300)
    refused = (await stage.attempts(second))[0]
    assert "gpu_sold_twice" in str(refused.fail_why)
    await stage.finish()


async def test_a_gpu_that_a_machine_of_another_account_shows_blames_nobodys_offer(stage: Stage) -> None:
    """Either may lie: who rented a machine knows the UUIDs of its GPUs, and may show them as their own."""
    squatter = await ready(stage)
    theirs = f"GPU-{await address(stage, squatter)}-0"
    other = text("UPDATE machines SET account = :account WHERE id = :id")
    squatters = (await machine(stage, squatter)).id
    async with stage.db.transaction() as connection:
        await insert(
            connection, "provider_accounts", a_row("provider_accounts", number=1, name="b", provider="b")
        )
        await connection.execute(other, {"account": "b", "id": squatters})
    honest = await booting(stage)
    where = await address(stage, honest)
    stage.challenger.always[where] = dataclasses.replace(PASSED, gpu_uuids=(theirs,))
    for _ in range(2):
        await stage.run("bootstrap_machines")
        stage.clock.advance(60)
    assert (await stage.attempts(honest))[0].fail_reason is FailReason.PROOF_FAILED
    assert "gpu_shown_elsewhere" in str((await stage.attempts(honest))[0].fail_why)
    async with stage.db.transaction() as connection:
        since = stage.clock.now() - PROOF_RECORD_WINDOW
        assert await proof_records.disproven(connection, since=since) == {}
        assert await proof_records.failing_machines(connection, FAKE, since=since, but=squatters) == 0
        await connection.execute(other, {"account": FAKE, "id": squatters})
    await stage.finish()


async def test_a_gpu_that_comes_to_be_shown_by_two_machines_is_noticed_while_they_run(stage: Stage) -> None:
    """Two cards at the start, and one of them for both afterwards."""
    organization = await stage.organization(gpu_quota=64)
    liar, honest = [await ready(stage, organization=organization) for _ in range(2)]
    theirs = f"GPU-{await address(stage, honest)}-0"
    where = await address(stage, liar)
    stage.challenger.always[where] = dataclasses.replace(PASSED, gpu_uuids=(theirs,))
    await stage.play(DUE, step=1_200)
    await stage.play(900, step=180)
    ended = await stage.lease_row(liar)
    assert ended.end_reason is EndReason.PROOF_FAILED
    assert "gpu_sold_twice" in str(ended.end_why)
    assert await noted(stage, honest, "gpu_sold_twice")
    assert (await stage.shown(honest)).tier is Tier.PROVEN, "whoever is copied takes no harm"
    await stage.finish()


async def test_a_gpu_may_be_sold_again_once_its_machine_is_gone(stage: Stage) -> None:
    first = await ready(stage)
    theirs = f"GPU-{await address(stage, first)}-0"
    await stage.finish()
    second = await booting(stage)
    stage.challenger.always[await address(stage, second)] = dataclasses.replace(PASSED, gpu_uuids=(theirs,))
    await set_up(stage)
    assert await stage.state(second) == "ready"
    await stage.finish()


# While a customer has it.


async def test_an_idle_machine_is_asked_again_at_its_random_time_and_not_before(stage: Stage) -> None:
    lease = await ready(stage)
    where = await address(stage, lease)
    await stage.play(DUE - 180, step=1_200)
    assert stage.challenger.occasions(where) == [Occasion.START]
    await stage.play(240, step=60)
    assert stage.challenger.occasions(where) == [Occasion.START, Occasion.IDLE]
    await stage.play(DUE, step=1_200)
    assert stage.challenger.occasions(where)[2:] == [Occasion.IDLE]
    await stage.finish()


async def test_a_machine_that_passes_for_a_week_is_watched(stage: Stage) -> None:
    lease = await ready(stage)
    await stage.play(7.2 * 86_400, step=7_200)
    assert (await stage.shown(lease)).tier is Tier.WATCHED
    await stage.finish()


@pytest.mark.parametrize(("processes", "percent"), [(1, 0), (0, 90), (None, 90)])
async def test_a_customer_who_computes_is_not_disturbed(
    stage: Stage, processes: int | None, percent: int
) -> None:
    lease = await ready(stage)
    where = await address(stage, lease)
    busy_health(stage, where, processes=processes, percent=percent)
    await stage.play(2 * DUE, step=1_200)
    assert stage.challenger.occasions(where) == [Occasion.START]
    busy_health(stage, where, processes=0, percent=0)
    await stage.play(proof.BUSY_POSTPONED.total_seconds() + 60, step=240)
    assert stage.challenger.occasions(where) == [Occasion.START, Occasion.IDLE]
    await stage.finish()


async def test_a_challenge_that_the_customers_work_spoilt_is_no_strike(stage: Stage) -> None:
    lease = await ready(stage)
    where = await address(stage, lease)
    compute_meanwhile(stage, where)
    await idle_challenge(stage, lease, FAILED)
    assert await stored(stage) == [("start", "passed"), ("idle", "unanswered")]
    [why] = await noted(stage, lease, "proof_unanswered")
    assert "disturbed" in why
    assert (await stage.shown(lease)).tier is Tier.PROVEN
    await stage.finish()


@pytest.mark.parametrize("code", sorted(proof.VOID))
async def test_a_lease_goes_on_however_often_its_customers_work_disturbs_the_challenge(
    stage: Stage, code: str
) -> None:
    lease = await ready(stage)
    where = await address(stage, lease)
    stage.challenger.always[where] = dataclasses.replace(UNANSWERED, code=code)
    await stage.play(DUE, step=1_800)
    await stage.play(3 * 3_600, step=600)
    asked = stage.challenger.occasions(where)
    assert len(asked) > proof.STRIKES_MAX * proof.UNANSWERED_PER_STRIKE
    assert Occasion.RECHECK not in asked
    assert len(asked) < 4 * 3_600 / proof.BUSY_POSTPONED.total_seconds() + 3
    assert (await machine(stage, lease)).suspect_since is None
    assert (await stage.shown(lease)).tier is Tier.PROVEN
    await stage.play(proof.FRESH_FOR.total_seconds(), step=14_400)
    assert (await stage.shown(lease)).tier is Tier.LISTED, "what counts for nothing renews nothing"
    await stage.finish()


@pytest.mark.parametrize("code", ["wrong_digest", "unopened", "gpu_model"])
async def test_a_wrong_answer_is_not_excused_by_a_customer_who_computes(stage: Stage, code: str) -> None:
    lease = await ready(stage)
    where = await address(stage, lease)
    compute_meanwhile(stage, where)
    await idle_challenge(stage, lease, dataclasses.replace(FAILED, code=code))
    assert ("idle", "failed") in await stored(stage)


async def test_a_failure_counts_although_the_machine_cannot_be_looked_at_after_it(stage: Stage) -> None:
    lease = await ready(stage)
    where = await address(stage, lease)

    def breaks(_: float) -> None:
        stage.access.machine(where).step_fails["read health"] = 1

    stage.challenger.sleep = breaks
    await idle_challenge(stage, lease, FAILED)
    assert (await stored(stage))[:2] == [("start", "passed"), ("idle", "failed")]
    await stage.finish()


async def test_a_machine_in_reach_that_cannot_tell_its_health_is_not_challenged_and_not_excused(
    stage: Stage,
) -> None:
    lease = await ready(stage)
    where = await address(stage, lease)
    stage.access.machine(where).step_fails["read health"] = 10**6
    await stage.play(DUE, step=1_200)
    assert stage.challenger.occasions(where) == [Occasion.START]
    assert "no_health" in (await noted(stage, lease, "proof_unanswered"))[0]
    await stage.play(2 * proof.UNANSWERED_PER_STRIKE * 360, step=120)
    assert (await stage.lease_row(lease)).end_reason is EndReason.PROOF_FAILED
    stage.access.machine(where).step_fails.clear()
    await stage.finish()


async def test_a_hint_brings_the_next_challenge_forward(stage: Stage) -> None:
    lease = await ready(stage)
    where = await idle_challenge(stage, lease, dataclasses.replace(PASSED, hinted=True))
    asked = len(stage.challenger.occasions(where))
    await stage.play(proof.HINTED_WITHIN.total_seconds() + 60, step=300)
    assert len(stage.challenger.occasions(where)) == asked + 1
    await stage.finish()


async def test_a_machine_that_cannot_be_reached_is_not_judged(stage: Stage) -> None:
    lease = await ready(stage)
    where = await address(stage, lease)
    stage.access.script(where, unreachable=10**6)
    await stage.play(86_400, step=3_600)
    assert await stage.state(lease) == "ready"
    assert await stored(stage) == [("start", "passed")]
    await stage.finish()


async def test_failed_once_then_passed_clears_the_machine_and_bills_every_second(stage: Stage) -> None:
    lease = await ready(stage)
    where = await idle_challenge(stage, lease, FAILED, PASSED)
    await stage.play(600, step=60)
    assert stage.challenger.occasions(where)[1:3] == [Occasion.IDLE, Occasion.RECHECK]
    assert await stage.state(lease) == "ready"
    assert (await stage.shown(lease)).tier is Tier.PROVEN
    await stage.play(3_600, step=300)
    await stage.finish()  # The laws: every second from ready to the release is billed.


async def test_failed_twice_ends_the_lease_and_the_bill_stopped_at_the_first_failure(stage: Stage) -> None:
    lease = await ready(stage)
    where = await idle_challenge(stage, lease, FAILED, FAILED)
    await stage.play(900, step=180)
    ended = await stage.lease_row(lease)
    assert ended.end_reason is EndReason.PROOF_FAILED
    async with stage.db.reading() as connection:
        judged = [row for row in await rows(connection, _PROOFS) if row.outcome == "failed"]
    assert [row.occasion for row in judged] == ["idle", "recheck"]
    assert ended.billed_until == judged[0].at < judged[1].at
    assert (await machine(stage, lease)).fail_reason is FailReason.PROOF_FAILED
    assert stage.challenger.occasions(where)[-1] is not Occasion.END, "a liar's memory is not worth a wait"
    await stage.finish()


async def test_the_meter_never_passes_a_failure_that_stands(stage: Stage) -> None:
    """The end of an hour lies between the first failure and the second: metered, it would have to be taken back."""
    stage.clock.advance((50 * 60 - stage.clock.now().timestamp() - DUE) % 3_600)
    lease = await ready(stage)
    where = await address(stage, lease)
    await stage.play(DUE - 180, step=1_200)
    stage.challenger.script(where, FAILED, FAILED)
    while ("idle", "failed") not in await stored(stage):
        await stage.round()
        stage.clock.advance(10)
    failed_at = stage.clock.now()
    busy_health(stage, where, processes=1, percent=99)
    await stage.play(1_080, step=120)
    assert await stage.state(lease) == "ready"
    busy_health(stage, where, processes=0, percent=0)
    await stage.play(1_800, step=120)
    row = await stage.lease_row(lease)
    assert row.end_reason is EndReason.PROOF_FAILED
    assert row.billed_until is not None
    assert row.billed_until <= failed_at
    assert failed_at.hour != (failed_at + timedelta(seconds=1_080)).hour
    await stage.finish()


@pytest.mark.parametrize("how", ["busy", "out of reach"])
async def test_one_failure_stops_no_meter_for_longer_than_a_second_challenge_may_take(
    stage: Stage, how: str
) -> None:
    lease = await ready(stage)
    where = await address(stage, lease)
    await stage.play(DUE - 180, step=1_200)
    stage.challenger.script(where, FAILED, FAILED)
    while ("idle", "failed") not in await stored(stage):
        await stage.round()
        stage.clock.advance(60)
    if how == "busy":
        busy_health(stage, where, processes=1, percent=99)
    else:
        stage.access.script(where, unreachable=10**6)
    await stage.play(86_400, step=3_600)
    [why] = await noted(stage, lease, "proof_doubt_lapsed")
    assert "billing resumes" in why
    busy_health(stage, where, processes=0, percent=0)
    stage.access.script(where, unreachable=0)
    await stage.play(1_800, step=120)
    row = await stage.lease_row(lease)
    assert row.end_reason is EndReason.PROOF_FAILED
    assert row.billed_until is not None
    async with stage.db.reading() as connection:
        judged = [row.at for row in await rows(connection, _PROOFS) if row.outcome == "failed"]
    assert len(judged) == 2
    assert row.billed_until == judged[1], "a day of work is paid for"
    await stage.finish()


async def test_a_machine_that_is_off_is_not_doubted_for_longer_than_half_an_hour(stage: Stage) -> None:
    lease = await ready(stage)
    where = await address(stage, lease)
    await stage.play(DUE - 180, step=1_200)
    stage.challenger.script(where, FAILED)
    while ("idle", "failed") not in await stored(stage):
        await stage.round()
        stage.clock.advance(60)
    await asked(stage, lease, PowerAction.STOP)
    await stage.play(2 * 3_600, step=600)
    assert (await machine(stage, lease)).suspect_since is None
    [why] = await noted(stage, lease, "proof_doubt_lapsed")
    assert "billing resumes" in why, "it waited for as long as the machine was off"
    await stage.check()


async def test_who_computes_on_a_failed_machine_that_is_kept_pays_and_keeps_no_other_one(
    stage: Stage,
) -> None:
    stage.world = dataclasses.replace(stage.world, proof_dry_run=True)
    lease = await ready(stage)
    where = await address(stage, lease)
    stage.challenger.always[where] = FAILED
    await stage.play(DUE + 3_600, step=1_200)
    held = await machine(stage, lease)
    assert held.suspect_since is not None, "as long as it fails again and again the bill waits"
    busy_health(stage, where, processes=1, percent=99)
    await stage.play(840, step=120)
    assert (await machine(stage, lease)).suspect_since is not None, "it was looked at a moment ago"
    await stage.play(2 * 3_600, step=600)
    assert (await machine(stage, lease)).suspect_since is None
    async with stage.db.transaction() as connection:
        since = stage.clock.now() - FAILING_WINDOW
        but = MachineId(uuid7())
        assert await proof_records.failing_machines(connection, held.account, since=since, but=but) == 0
    await stage.release(lease)
    row = await stage.lease_row(lease)
    assert row.billed_until == stage.clock.now()
    await stage.finish()


@pytest.mark.parametrize("end", ["released", "unfunded", "machine_lost"])
async def test_a_machine_that_failed_twice_and_is_kept_is_not_paid_for_however_its_lease_ends(
    stage: Stage, end: str
) -> None:
    stage.world = dataclasses.replace(stage.world, proof_dry_run=True)
    organization = await stage.organization(usd=18 if end == "unfunded" else 1_000)
    lease = await ready(stage, organization=organization)
    where = await address(stage, lease)
    stage.challenger.always[where] = FAILED
    await stage.play(DUE + 3_600, step=1_200)
    failed = await machine(stage, lease)
    assert failed.provider_ref is not None
    assert failed.suspect_since is not None
    [line] = (await billing.bill(stage.api, organization, reach=EVERYWHERE)).lines
    match end:
        case "released":
            await stage.release(lease)
        case "machine_lost":
            stage.cloud.disappear(failed.provider_ref)
            await stage.play(20 * 60, step=60)
        case _:
            await stage.play(2 * 3_600, step=900)
    row = await stage.lease_row(lease)
    assert row.end_reason is not None
    assert row.end_reason.value == end
    assert row.billed_until == failed.suspect_since
    assert row.ready_at is not None
    used = (failed.suspect_since - row.ready_at).total_seconds()
    assert line.unit_seconds + line.unrated_unit_seconds == int(used), (
        "the running bill waits as the meter does"
    )
    await stage.finish()


async def test_lasting_silence_of_a_machine_that_can_be_reached_ends_it(stage: Stage) -> None:
    lease = await ready(stage)
    where = await address(stage, lease)
    stage.challenger.always[where] = UNANSWERED
    await stage.play(DUE, step=1_200)
    assert await stage.state(lease) == "ready"
    await stage.play(2 * proof.UNANSWERED_PER_STRIKE * 360, step=120)
    assert (await stage.lease_row(lease)).end_reason is EndReason.PROOF_FAILED
    async with stage.db.reading() as connection:
        speaks_against = await proof_records.disproven(
            connection, since=stage.clock.now() - PROOF_RECORD_WINDOW
        )
    [offer] = speaks_against.values()
    assert len(offer.proofs) == 1, "silence is no way to keep an offer's record clean"
    await stage.finish()


async def test_a_dry_run_ends_nothing_and_says_what_it_would(stage: Stage) -> None:
    stage.world = dataclasses.replace(stage.world, proof_dry_run=True)
    lease = await ready(stage)
    where = await address(stage, lease)
    stage.challenger.always[where] = FAILED
    errors = [error async for report in challenged(stage, 2 * DUE, step=1_200) for error in report.errors]
    assert await stage.state(lease) == "ready"
    assert "dry run: it would be terminated" in errors[0]
    assert "next challenge is in 15 min" in (await noted(stage, lease, "proof_termination_held"))[0]
    del stage.challenger.always[where]
    await stage.play(DUE, step=1_200)
    assert (await stage.shown(lease)).tier is Tier.PROVEN, "a machine that passes in the end is cleared"
    await stage.finish()


@pytest.mark.parametrize("answer", [FAILED, UNANSWERED, EMULATED])
async def test_many_failures_at_one_account_terminate_none_and_are_an_error_for_the_operator(
    stage: Stage, answer: Answer
) -> None:
    """Silence most of all: a fault of ours looks like that."""
    organization = await stage.organization(gpu_quota=64)
    leases = [await ready(stage, organization=organization) for _ in range(FAILING_MACHINES_MAX + 2)]
    await stage.play(DUE - 600, step=1_200)
    stage.challenger.otherwise = answer
    ended, errors = 0, list[str]()
    async for report in challenged(stage, 5_400, step=180):
        ended += sum("terminated" in note for note in report.notes)
        errors += report.errors
    assert ended == 0
    still = [await stage.state(lease) for lease in leases]
    assert still == ["ready"] * len(leases)
    assert any("mistake of ours" in error for error in errors)
    held = [why for lease in leases for why in await noted(stage, lease, "proof_termination_held")]
    assert held
    assert not any("account" in why for why in held), "what a customer reads says nothing of our accounts"
    stage.challenger.otherwise = PASSED
    await stage.play(3_600, step=600)
    assert [await stage.state(lease) for lease in leases] == still, "what passes now is left alone"
    await stage.finish()


async def test_an_operators_permit_allows_terminations_for_a_while_although_many_machines_fail(
    stage: Stage,
) -> None:
    organization = await stage.organization(gpu_quota=64)
    leases = [await ready(stage, organization=organization) for _ in range(FAILING_MACHINES_MAX + 1)]
    stage.challenger.otherwise = FAILED
    await stage.play(DUE + 900, step=300)
    assert [await stage.state(lease) for lease in leases] == ["ready"] * len(leases)
    async with stage.api.db.transaction(await stage.operators()) as connection:
        permitted = await account_service.permit_terminations(
            connection, stage.api, FAKE, minutes=60, why="they sold slices", actor=OPERATOR
        )
    assert isinstance(permitted, account_service.Permit)
    ended = [
        sum("terminated" in note for note in report.notes)
        async for report in challenged(stage, proof.HELD_AGAIN.total_seconds() + 60, step=30)
    ]
    assert sum(ended) == len(leases)
    assert max(ended) <= proof.ENDED_PER_RUN_MAX, "many at once is still too many"
    await stage.finish()


async def test_a_permit_ends_with_its_time_and_is_of_one_account(stage: Stage) -> None:
    async def permitted(account: AccountName) -> bool:
        async with stage.db.reading() as connection:
            return bool(await permits.valid(connection, now=stage.clock.now(), account=account))

    async with stage.api.db.transaction(await stage.operators()) as connection:
        for minutes in (10, 30, 20):
            await account_service.permit_terminations(
                connection, stage.api, FAKE, minutes=minutes, why="w", actor=OPERATOR
            )
        nobody = AccountName("nobody")
        refused = await account_service.permit_terminations(
            connection, stage.api, nobody, minutes=1, why="w", actor=OPERATOR
        )
    assert isinstance(refused, Refused)
    assert await permitted(FAKE)
    assert not await permitted(AccountName("fake/other"))
    stage.clock.advance(29 * 60)
    assert await permitted(FAKE)
    stage.clock.advance(60)
    assert not await permitted(FAKE)


async def test_our_verifier_being_away_postpones_and_judges_nobody(stage: Stage) -> None:
    lease = await ready(stage)
    await idle_challenge(stage, lease, *[AWAY] * 40)
    await stage.play(3_600, step=300)
    assert await stored(stage) == [("start", "passed")]
    assert await stage.state(lease) == "ready"
    await stage.finish()


# An offer's record.


async def test_an_offer_whose_machines_failed_is_passed_over_for_everybody_for_a_day(stage: Stage) -> None:
    cheapest = (await _candidates(stage))[0]

    async def lie(where: str) -> None:
        by_address = {known.address: known for known in stage.cloud.machines.values()}
        order = by_address[where].order
        lies = _key_of(order.native_type, order.native_region) == cheapest
        stage.challenger.script(where, FAILED if lies else PASSED)

    stage.world = dataclasses.replace(stage.world, challenger=Interposed(stage.challenger, lie))
    for _ in range(2):
        lease = await ready(stage)
        reasons = [attempt.fail_reason for attempt in await stage.attempts(lease)]
        assert reasons == [FailReason.PROOF_FAILED, None]
    assert cheapest not in await _candidates(stage)
    third = await ready(stage)
    assert len(await stage.attempts(third)) == 1
    ranking = (await stage.why(third)).placements[0].ranking
    [lost] = [rejected for rejected in ranking.rejected if rejected.code is RejectCode.PROOF_RECORD]
    assert len(lost.proofs) == 2
    stage.clock.advance(PROOF_RECORD_WINDOW.total_seconds())
    await stage.run("refresh_offers")
    assert cheapest in await _candidates(stage)
    await stage.finish()


async def test_a_supplier_whose_machines_failed_is_passed_over_under_every_number(stage: Stage) -> None:
    """A host that cheats on a marketplace offers its machines under a new number after each failure."""
    cheapest = (await _candidates(stage))[0]
    (first,) = (
        dataclasses.replace(each, supplier="cheat")
        for each in stage.cloud.listing
        if _key_of(each.native_type, each.native_region) == cheapest
    )
    anew = dataclasses.replace(first, native_type="anew")
    others = [each for each in stage.cloud.listing if dataclasses.replace(each, supplier="cheat") != first]
    stage.cloud.listing = [first, anew, *others]
    stage.cloud.stock[anew.native_type, anew.native_region] = 1
    ours = {_key_of(each.native_type, each.native_region) for each in (first, anew)}

    async def lie(where: str) -> None:
        by_address = {known.address: known for known in stage.cloud.machines.values()}
        placed = by_address[where].order
        lies = _key_of(placed.native_type, placed.native_region) in ours
        stage.challenger.script(where, FAILED if lies else PASSED)

    stage.world = dataclasses.replace(stage.world, challenger=Interposed(stage.challenger, lie))
    stage.clock.advance(EVERY.total_seconds())
    await stage.run("refresh_offers")
    lease = await ready(stage)
    # The supplier's other offer, at the same price, is not tried by this lease,
    reasons = [attempt.fail_reason for attempt in await stage.attempts(lease)]
    assert reasons == [FailReason.PROOF_FAILED, None]
    async with stage.db.reading() as connection:  # and the failure counts against the supplier for everybody.
        since = stage.clock.now() - PROOF_RECORD_WINDOW
        speaks_against = await proof_records.disproven(connection, since=since)
    assert {key: len(of.proofs) for key, of in speaks_against.items()} == {f"{FAKE}@cheat": 1}
    await stage.finish()


def _key_of(native_type: str, native_region: str) -> str:
    return f"{native_type} in {native_region}"


async def _candidates(stage: Stage) -> list[str]:
    """Offer keys as a quote ranks them, by type and region."""
    organization = await stage.organization()
    await stage.run("refresh_offers")
    quote = await quotes.quote(stage.api, organization, PROVEN, reach=EVERYWHERE)
    assert not isinstance(quote, Refused)
    return [_key_of(offer.native_type, offer.native_region) for offer in quote.ranking.candidates]


# When a lease ends.


async def test_a_released_machine_is_overwritten_before_it_is_terminated(stage: Stage) -> None:
    lease = await ready(stage)
    where = await address(stage, lease)
    await release(stage, lease)
    released = stage.clock.now()
    assert (await stage.lease_row(lease)).billed_until == released
    await stage.run("terminate_machines")
    assert stage.cloud.calls_of("terminate") == 0, "the end waits for the proof"
    await stage.run("erase_machines")
    assert stage.access.machine(where).calls[-3:] == ["end customer", "find agent", "prove"]
    assert stage.challenger.occasions(where)[-1] is Occasion.END
    assert stage.access.machine(where).customer is None
    await stage.run("terminate_machines")
    assert stage.cloud.calls_of("terminate") == 1, "and not a moment longer"
    assert await stored(stage) == [("start", "passed"), ("end", "passed")]
    assert await noted(stage, lease, "memory_overwritten")
    await stage.finish()


async def test_an_unfunded_lease_leaves_no_memory_behind_either(stage: Stage) -> None:
    lease = await ready(stage, organization=await stage.organization(usd=4))
    await stage.play(50 * 60, step=300)
    await stage.play(20 * 60, step=60)
    assert (await stage.lease_row(lease)).end_reason is EndReason.UNFUNDED
    assert (await stored(stage))[-1] == ("end", "passed")
    await stage.finish()


@pytest.mark.parametrize("answer", [FAILED, UNANSWERED, EMULATED])
async def test_a_machine_that_does_not_show_it_is_ended_all_the_same(stage: Stage, answer: Answer) -> None:
    lease = await ready(stage)
    stage.challenger.script(await address(stage, lease), answer)
    await release(stage, lease)
    await stage.run("erase_machines")
    await stage.run("terminate_machines")
    assert stage.cloud.calls_of("terminate") == 1
    assert await noted(stage, lease, "memory_not_shown_overwritten")
    await stage.finish()


def _unreachable(known: FakeMachine) -> None:
    known.unreachable = 10**6


def _resists(known: FakeMachine) -> None:
    known.step_fails = {"end customer": 10**6}


@pytest.mark.parametrize("trouble", [_unreachable, _resists])
async def test_nothing_on_the_machine_delays_its_end_beyond_the_bound(
    stage: Stage, trouble: Callable[[FakeMachine], None]
) -> None:
    lease = await ready(stage)
    trouble(stage.access.machine(await address(stage, lease)))
    await stage.release(lease)
    await _terminated_within(stage, stage.clock.now())
    await stage.finish()


async def test_a_verifier_that_is_away_delays_no_end_beyond_the_bound(stage: Stage) -> None:
    lease = await ready(stage)
    stage.challenger.otherwise = AWAY
    await stage.release(lease)
    await _terminated_within(stage, stage.clock.now())
    await stage.finish()


async def _terminated_within(stage: Stage, released: datetime) -> None:
    while stage.cloud.calls_of("terminate") == 0:
        await stage.round()
        stage.clock.advance(2)
        assert stage.clock.now() - released <= ERASED_WITHIN + timedelta(seconds=6)
    assert stage.clock.now() - released > ERASED_WITHIN


async def test_tries_to_overwrite_do_not_put_off_the_terminating(stage: Stage) -> None:
    lease = await ready(stage)
    stage.access.script(await address(stage, lease), unreachable=10**6)
    await release(stage, lease)
    for _ in range(int(ERASED_WITHIN.total_seconds())):
        await stage.run("erase_machines")
        stage.clock.advance(1)
    tries = (await machine(stage, lease)).tries
    assert tries == 0
    await stage.run("terminate_machines")
    assert stage.cloud.calls_of("terminate") == 1
    await stage.finish()


async def test_a_prover_that_hangs_delays_no_end_beyond_the_bound(stage: Stage) -> None:
    lease = await ready(stage)
    stage.challenger.script(await address(stage, lease), Answer(hangs=True))
    await release(stage, lease)
    hung = asyncio.create_task(stage.run("erase_machines", world=stage.replica("hung")))
    await stage.challenger.hanging.wait()
    await stage.run("terminate_machines")
    assert stage.cloud.calls_of("terminate") == 0
    stage.clock.advance(ERASED_WITHIN.total_seconds())
    await stage.run("terminate_machines")
    assert stage.cloud.calls_of("terminate") == 1, "the hold of the hung worker ended with the wait"
    hung.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hung
    await stage.finish()


async def test_a_machine_that_was_never_ready_is_ended_at_once(stage: Stage) -> None:
    lease = await booting(stage)
    await release(stage, lease)
    await stage.run("terminate_machines")
    assert stage.cloud.calls_of("terminate") == 1
    await stage.finish()
    assert stage.challenger.asked == []


# What is stored.


async def test_a_provers_words_are_stored_printable_and_bounded(stage: Stage) -> None:
    lease = await booting(stage)
    where = await address(stage, lease)

    def rude(report: ProofReport) -> ProofReport:
        return dataclasses.replace(
            report,
            driver="570\x00\x1b[31m" + "x" * 10_000,
            gpu_uuids=("GPU-\udc80",),
            evidence={"a\x00": ["\ud800", {"b": "\u202e"}], "big": "x" * 300_000},
        )

    world = dataclasses.replace(stage.world, challenger=Interposed(stage.challenger, instead=rude))
    await set_up(stage, world=world)
    assert await stage.state(lease) == "ready", where
    async with stage.db.reading() as connection:
        [row] = await rows(connection, _PROOFS)
    assert row.driver.startswith("570\ufffd\ufffd[31m")
    assert len(row.driver) == proving.TEXT_MAX
    assert row.evidence.keys() == {"too_large_bytes"}
    await stage.finish()


async def test_the_outcome_of_a_proof_is_where_everybody_looks(stage: Stage) -> None:
    """The lease, the explanation, the journal and the provider's record name the same proof."""
    lease = await ready(stage)
    explained = await stage.why(lease)
    latest = explained.shown.overview.proof
    assert latest is not None
    assert latest.outcome.value == Outcome.PASSED.value
    assert [row.id for row in explained.proofs] == [latest.id]
    assert latest.id.hex in (await noted(stage, lease, "proof_passed"))[0]
    async with stage.db.reading() as connection:
        [line] = await proof_records.record_page(connection, account=None, outcome=None, before=None, limit=9)
    assert (line.proof_id, line.ended) == (latest.id, False)
    await stage.finish()
