"""What a customer learns who asks for the console: from the provider, from the machine, or from our record alone."""

from datetime import timedelta

import pytest
from sqlalchemy import text

from control_plane.db.engine import Database
from control_plane.domain.console import (
    FETCHED_WITHIN,
    KEPT,
    RECENT_MAX,
    ConsoleSource,
    Finding,
    MachineAnswer,
    ProviderAnswer,
)
from control_plane.domain.lease import Lease
from control_plane.domain.refusal import Refused
from control_plane.services.consoles import Shown
from providers.fake import FakeMachine, Fault
from providers.fake import Settings as FakeSettings
from tests.support import consoles
from tests.support.clock import Clock
from tests.support.rows import rows
from tests.support.stage import Stage, set_stage

pytestmark = pytest.mark.database

SECRET = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END OPENSSH PRIVATE KEY-----\n"


@pytest.fixture
async def stage(db: Database, api_db: Database, clock: Clock) -> Stage:
    return await set_stage(db, clock, api_db=api_db, settings=FakeSettings(boot_seconds=30.0))


async def a_ready_lease(stage: Stage) -> Lease:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=120)
    return lease


def the_machine(stage: Stage) -> FakeMachine:
    (machine,) = stage.cloud.alive()
    return machine


async def found(stage: Stage, lease: Lease) -> Shown:
    console = await consoles.wanted(stage, lease)
    await stage.run("read_consoles")
    shown = await consoles.shown(stage, console)
    assert isinstance(shown, Shown), shown
    return shown


async def stored(stage: Stage) -> int:
    async with stage.db.reading() as connection:
        return len(await rows(connection, text("SELECT id FROM consoles")))


async def finding(stage: Stage, lease: Lease) -> Finding:
    shown = await found(stage, lease)
    assert shown.console.finding is not None
    return shown.console.finding


async def test_the_provider_is_asked_first_and_the_steps_are_always_told(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    before = await finding(stage, lease)
    assert (before.source, before.provider) == (ConsoleSource.STEPS, ProviderAnswer.NOT_ASKED)
    await stage.play_until(lease, "starting", seconds_max=30)
    await stage.play(10, step=5)
    booting = await finding(stage, lease)
    assert (booting.source, booting.machine) == (ConsoleSource.PROVIDER, MachineAnswer.NOT_ASKED)
    assert "Linux version" in booting.printed.lines[0]
    await stage.play_until(lease, "ready", seconds_max=120)
    the_machine(stage).printed = f"before\n{SECRET}after\x1b[2J\n"
    shown = await found(stage, lease)
    assert shown.console.finding is not None
    assert shown.console.finding.printed.lines == ("before", "[a private key, which is not shown]", "after")
    assert shown.steps[0].event == "admitted"
    assert {"verified", "ready"} & {step.state_after for step in shown.steps}
    assert shown.steps[-1].number == max(step.number for step in shown.steps)
    await stage.check()


async def test_where_the_provider_has_nothing_the_machine_is_asked_and_then_nobody(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    machine = the_machine(stage)
    machine.printed = "\r\n"
    at = stage.access.machine(machine.address)
    at.journal = b"systemd[1]: Started sshd.\n\xff\n"
    answers = [await finding(stage, lease)]
    stage.clock.advance(61)
    at.unreachable = 1
    answers.append(await finding(stage, lease))
    at.step_fails["read boot journal"] = 1
    answers.append(await finding(stage, lease))
    assert [(each.source, each.provider, each.machine) for each in answers] == [
        (ConsoleSource.MACHINE, ProviderAnswer.EMPTY, MachineAnswer.READ),
        (ConsoleSource.STEPS, ProviderAnswer.EMPTY, MachineAnswer.UNREACHABLE),
        (ConsoleSource.STEPS, ProviderAnswer.EMPTY, MachineAnswer.FAILED),
    ]
    assert answers[0].printed.lines == ("systemd[1]: Started sshd.", "\ufffd")


async def test_a_provider_that_fails_is_passed_over_and_nothing_it_printed_is_reported(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    machine = the_machine(stage)
    machine.printed = "a word of the machine"
    stage.cloud.faults.script("console", *[Fault.UNAVAILABLE] * 3)
    await consoles.wanted(stage, lease)
    [report] = await stage.run("read_consoles")
    told = " ".join((*report.errors, *report.notes))
    assert "Unavailable" in told
    assert "a word" not in told
    stage.cloud.disappear(machine.provider_ref)
    gone = await finding(stage, lease)
    assert gone.provider is ProviderAnswer.UNKNOWN_MACHINE


async def test_a_console_that_is_fetched_first_is_asked_for_again_until_the_machine_is_asked_instead(
    db: Database, api_db: Database, clock: Clock
) -> None:
    settings = FakeSettings(boot_seconds=30.0, fetches_consoles=True)
    stage = await set_stage(db, clock, api_db=api_db, settings=settings)
    lease = await a_ready_lease(stage)
    console = await consoles.wanted(stage, lease)
    for calls in (1, 2):
        await stage.run("read_consoles")
        assert stage.cloud.calls_of("console") == calls
        stage.clock.advance(2)
    shown = await consoles.shown(stage, console)
    assert isinstance(shown, Shown)
    assert shown.console.finding is not None
    assert shown.console.finding.source is ConsoleSource.PROVIDER
    late = await consoles.wanted(stage, lease)
    stage.clock.advance(FETCHED_WITHIN.total_seconds())
    await stage.run("read_consoles")
    shown = await consoles.shown(stage, late)
    assert isinstance(shown, Shown)
    assert shown.console.finding is not None
    assert shown.console.finding.provider is ProviderAnswer.TOO_SLOW
    assert shown.console.finding.source is ConsoleSource.MACHINE


async def test_an_answer_is_deleted_after_ten_minutes_and_hidden_before_that(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    console = (await found(stage, lease)).console
    stage.clock.advance((KEPT - timedelta(seconds=1)).total_seconds())
    await stage.run("prune_records")
    assert isinstance(await consoles.shown(stage, console), Shown)
    stage.clock.advance(1)
    assert isinstance(await consoles.shown(stage, console), Refused)
    assert await stored(stage) == 1
    stage.clock.advance(1)
    await stage.run("prune_records")
    assert await stored(stage) == 0


async def test_impatience_and_the_end_of_the_lease_are_refused(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    for _ in range(RECENT_MAX):
        await consoles.wanted(stage, lease)
    refused = await consoles.ask(stage, lease)
    assert isinstance(refused, Refused)
    assert refused.code == "consoles_too_many"
    stage.clock.advance(61)
    waiting = await consoles.wanted(stage, lease)
    await stage.release(lease)
    refused = await consoles.ask(stage, lease)
    assert isinstance(refused, Refused)
    assert refused.code == "state_conflict"
    calls = stage.cloud.calls_of("console")
    await stage.run("read_consoles")
    shown = await consoles.shown(stage, waiting)
    assert isinstance(shown, Shown)
    assert shown.console.finding is not None
    assert shown.console.finding.source is ConsoleSource.STEPS
    assert stage.cloud.calls_of("console") == calls, "the machine is no longer the customer's"
