"""Admitting customers to machines that are verified: what goes wrong on the way, and what becomes of the lease."""

from typing import Any

import pytest

from control_plane.db import claims
from control_plane.db.connection import Connection
from control_plane.domain.claim import Claim
from control_plane.domain.failure import FailReason
from control_plane.domain.ids import MachineId
from control_plane.domain.lease import Lease
from control_plane.domain.machine import Machine, MachineState
from control_plane.domain.progress import Step
from control_plane.outcomes import machines as machine_outcomes
from data_plane.access.port import AccessError, HostKeyChanged, StepFailed, Unreachable
from tests.support.stage import Stage

pytestmark = pytest.mark.database


async def _verified(stage: Stage) -> tuple[Lease, Machine]:
    """A lease whose machine is verified, and whose customer waits."""
    lease = await stage.lease(await stage.organization())
    for _ in range(30):
        await stage.round(without={"admit_customers"})
        machines = await stage.machines(lease)
        if machines and machines[-1].state is MachineState.VERIFIED:
            return lease, machines[-1]
        stage.clock.advance(2)
    raise AssertionError(await stage.story(lease))


async def _claim(stage: Stage, machine: Machine) -> Claim:
    async with stage.db.reading() as connection:
        (claim,) = await claims.open_of_machine(connection, machine.id)
    return claim


async def _failed(stage: Stage, lease: Lease) -> list[FailReason | None]:
    return [attempt.fail_reason for attempt in await stage.attempts(lease)]


async def test_a_customer_is_admitted_in_one_go_network_first_and_keys_last(stage: Stage) -> None:
    lease, machine = await _verified(stage)
    known = stage.access.machine(str(machine.address))
    assert "admit customer" not in known.calls, "nobody is on a machine that is being verified"
    assert (await stage.shown(lease)).status.step is Step.GPUS_VERIFIED
    before = len(known.calls)
    await stage.run("admit_customers")
    assert known.calls[before:] == [
        "connect",
        "apply firewall",
        "make mesh key",
        "join mesh",
        "admit customer",
    ]
    assert await stage.state(lease) == "ready"
    shown = await stage.shown(lease)
    assert shown.overview.evidence is not None
    assert known.link is not None
    assert shown.overview.evidence.mesh_address == known.link.address
    assert shown.status.step is Step.CERTIFICATES_ACCEPTED
    await stage.finish()


async def test_a_machine_on_which_a_step_fails_again_and_again_is_given_up_and_costs_the_customer_nothing(
    stage: Stage,
) -> None:
    lease, machine = await _verified(stage)
    stage.access.script(str(machine.address), step_fails={"admit customer": 5})
    await stage.play_until(lease, "ready", seconds_max=200)
    assert await _failed(stage, lease) == [FailReason.SETUP_FAILED, None]
    assert (await stage.machines(lease))[0].state in (MachineState.TERMINATING, MachineState.GONE)
    assert (await stage.lease_row(lease)).ready_at == (await stage.attempts(lease))[1].ended_at
    await stage.finish()


async def test_a_machine_that_falls_silent_is_given_up_at_the_deadline_and_not_before(stage: Stage) -> None:
    lease, machine = await _verified(stage)
    stage.access.script(str(machine.address), unreachable=1_000_000)
    await stage.play(590, step=20)
    assert await stage.state(lease) == "starting"
    assert (await _claim(stage, machine)).tries > 5, "silence alone ends nothing"
    await stage.play_until(lease, "ready", seconds_max=120)
    assert await _failed(stage, lease) == [FailReason.UNREACHABLE, None]
    await stage.finish()


async def test_an_overdue_machine_that_cannot_be_given_up_keeps_no_other_one_waiting(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, poison), (second, silent) = await _verified(stage), await _verified(stage)
    stage.clock.advance(700)
    for machine in (poison, silent):
        stage.access.script(str(machine.address), unreachable=1)
    await stage.run("admit_customers")
    fail = machine_outcomes.fail

    async def fails_for_the_first(
        connection: Connection, machine_id: MachineId, *rest: Any, **more: Any
    ) -> bool:
        assert machine_id != poison.id, "a failure that cannot be recorded"
        return await fail(connection, machine_id, *rest, **more)

    monkeypatch.setattr(machine_outcomes, "fail", fails_for_the_first)
    (report,) = await stage.run("expire_machines")
    assert (report.looked_at, report.acted_on, len(report.errors)) == (2, 1, 1)
    monkeypatch.undo()
    assert [await stage.state(lease) for lease in (first, second)] == ["starting", "placing"]
    await stage.finish()


async def test_another_machine_at_the_address_gets_no_keys(stage: Stage) -> None:
    lease, machine = await _verified(stage)
    known = stage.access.script(str(machine.address), host_key_changed=True)
    await stage.play_until(lease, "ready", seconds_max=300, step=5)
    assert await _failed(stage, lease) == [FailReason.HOST_KEY_CHANGED, None]
    assert "admit customer" not in known.calls
    await stage.finish()


async def test_a_hub_that_is_away_is_waited_for(stage: Stage) -> None:
    lease, _ = await _verified(stage)
    stage.hub.fail_next += [Unreachable("the hub is away")] * 3
    await stage.play_until(lease, "ready", seconds_max=120)
    assert await _failed(stage, lease) == [None]
    await stage.finish()


@pytest.mark.parametrize("error", [StepFailed("sync", 1, "No space left"), HostKeyChanged("the hub is new")])
async def test_a_fault_of_our_hub_is_not_blamed_on_the_machine_however_long_it_lasts(
    stage: Stage, error: AccessError
) -> None:
    lease, machine = await _verified(stage)
    stage.hub.fail_next += [error] * 200
    await stage.play(900, step=60)
    assert await _failed(stage, lease) == [None]
    stage.hub.fail_next.clear()
    await stage.play_until(lease, "ready", seconds_max=60)
    assert (await stage.machines(lease))[-1].id == machine.id
    await stage.finish()


async def test_a_customer_who_releases_before_being_admitted_pays_nothing_and_the_machine_goes(
    stage: Stage,
) -> None:
    lease, machine = await _verified(stage)
    await stage.release(lease)
    (report,) = await stage.run("admit_customers")
    assert report.looked_at == 0
    await stage.run("release_machines")
    (released,) = await stage.machines(lease)
    assert (released.state, released.erasing_until) == (MachineState.TERMINATING, None), "nobody was on it"
    assert "admit customer" not in stage.access.machine(str(machine.address)).calls
    await stage.finish()
    assert (await stage.lease_row(lease)).ready_at is None
