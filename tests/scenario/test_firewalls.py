"""A machine has the firewall of its lease before its customer is admitted, and every change of it within seconds."""

from datetime import timedelta

import pytest

from control_plane.db import firewalls
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.firewall import LOOK_EVERY, FirewallProblem, FirewallRule, FirewallState
from control_plane.domain.lease import Lease
from control_plane.domain.refusal import Refused
from control_plane.services import firewalls as service
from data_plane.mesh.firewall import ruleset
from data_plane.simulation.access import FakeMachine
from tests.support.firewall_rules import SOURCES, opened
from tests.support.stage import Stage

pytestmark = pytest.mark.database
LOOP = "apply_firewalls"


async def shown(stage: Stage, lease: Lease) -> service.Shown:
    found = await service.show(stage.api, lease.organization_id, lease.id, reach=EVERYWHERE)
    assert not isinstance(found, Refused), found
    return found


async def settled(stage: Stage) -> None:
    """The rules are told to the machines, and to the provider."""
    for loop in (LOOP, "apply_provider_firewalls"):
        await stage.run(loop)


async def machine_of(stage: Stage, lease: Lease) -> FakeMachine:
    (machine,) = await stage.machines(lease)
    return stage.access.machine(str(machine.address))


def ports(machine: FakeMachine) -> set[int]:
    """What the rules of a simulated machine open to our sources."""
    assert machine.firewall is not None
    lines = [line.split() for line in machine.firewall.splitlines() if SOURCES[0] in line]
    return {int(line[line.index("dport") + 1]) for line in lines}


async def test_a_machine_is_closed_before_its_customer_is_admitted(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    other = await stage.lease(await stage.organization())
    await opened(stage, lease, 8080)
    assert (await shown(stage, lease)).state is FirewallState.WAITING
    await stage.play_until(lease, "ready")
    await stage.play_until(other, "ready")
    machine = await machine_of(stage, lease)
    calls = machine.calls
    assert calls.index("apply firewall") < calls.index("admit customer")
    assert ports(machine) == {8080}
    assert (await machine_of(stage, other)).firewall == ruleset([])
    await settled(stage)
    for each in (lease, other):
        assert (await shown(stage, each)).state is FirewallState.APPLIED
    (report,) = await stage.run(LOOP)
    assert report.looked_at == 0, "nothing is left to do"


async def test_a_machine_that_takes_no_rules_admits_nobody(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "starting")
    (machine,) = await stage.machines(lease)
    stage.access.script(str(machine.address), step_fails={"apply firewall": 1})
    while (await shown(stage, lease)).state is FirewallState.WAITING:
        calls = stage.access.machine(str(machine.address)).calls
        assert "admit customer" not in calls or calls.count("apply firewall") == 2
        await stage.play(2)


async def test_a_change_reaches_the_machine_with_the_next_turn_and_no_other_machine(stage: Stage) -> None:
    organization = await stage.organization()
    lease, other = await stage.lease(organization), await stage.lease(organization)
    for each in (lease, other):
        await stage.play_until(each, "ready")
    machine, untouched = await machine_of(stage, lease), await machine_of(stage, other)
    before = untouched.calls.count("apply firewall")
    rule = await opened(stage, lease, 8080)
    await opened(stage, lease, 9090)
    assert (await shown(stage, lease)).state is FirewallState.PENDING
    await settled(stage)
    assert ports(machine) == {8080, 9090}
    assert (await shown(stage, lease)).state is FirewallState.APPLIED
    noted: list[FirewallRule] = []
    gone = await service.delete(
        stage.api, lease.organization_id, lease.id, rule.id, reach=EVERYWHERE, note=noted.append
    )
    assert (gone, noted) == (None, [rule])
    await stage.run(LOOP)
    assert ports(machine) == {9090}
    assert untouched.calls.count("apply firewall") == before


async def test_a_machine_that_is_away_or_refuses_is_tried_again_and_the_customer_is_told_why(
    stage: Stage,
) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready")
    (row,) = await stage.machines(lease)
    await opened(stage, lease, 8080)
    for unreachable, fails, breaks, problem in (
        (1, {}, set(), FirewallProblem.UNREACHABLE),
        (0, {"apply firewall": 1}, set(), FirewallProblem.FAILED),
        (0, {}, {"apply firewall"}, FirewallProblem.UNREACHABLE),
    ):
        script = f"{unreachable} {fails} {breaks}"
        stage.access.script(
            str(row.address),
            unreachable=unreachable,
            step_fails=dict[str, int](fails),
            breaks_in=set[str](breaks),
        )
        (report,) = await stage.run(LOOP)
        assert (report.acted_on, len(report.notes)) == (0, 1), script
        found = await shown(stage, lease)
        assert (found.state, found.firewall.problem) == (FirewallState.PENDING, problem), script
        (report,) = await stage.run(LOOP)
        assert report.looked_at == 0, "it rests"
        stage.clock.advance(20)
    (report,) = await stage.run(LOOP)
    assert report.acted_on == 1
    await settled(stage)
    found = await shown(stage, lease)
    assert (found.state, found.firewall.problem) == (FirewallState.APPLIED, None)


async def test_a_change_ends_the_rest_of_a_machine_that_was_away(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready")
    (row,) = await stage.machines(lease)
    stage.access.script(str(row.address), unreachable=5)
    await opened(stage, lease, 8080)
    for _ in range(5):
        await stage.run(LOOP)
        stage.clock.advance(90)
    await opened(stage, lease, 9090)
    await stage.run(LOOP)
    assert ports(await machine_of(stage, lease)) == {8080, 9090}


async def test_rules_that_change_while_a_machine_is_being_told_reach_it_with_the_next_turn(
    stage: Stage,
) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready")
    machine = await machine_of(stage, lease)
    await opened(stage, lease, 8080)

    async def meanwhile(_: object, step: str) -> None:
        if step == "apply firewall" and 8080 not in ports(machine):
            await opened(stage, lease, 9090)

    stage.access.before, before = meanwhile, stage.access.before
    (report,) = await stage.run(LOOP)
    stage.access.before = before
    assert report.more, "the next turn begins at once"
    assert ports(machine) == {8080}
    assert (await shown(stage, lease)).state is FirewallState.PENDING
    await stage.run(LOOP)
    assert ports(machine) == {8080, 9090}


async def test_what_a_customer_with_root_changed_is_shown_and_left_alone_until_the_rules_change(
    stage: Stage,
) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready")
    machine = await machine_of(stage, lease)
    for flushed in ("table of the customer's own", None):
        machine.firewall = flushed
        stage.clock.advance(LOOK_EVERY.total_seconds())
        (report,) = await stage.run(LOOP)
        assert len(report.notes) == 1
        assert (await shown(stage, lease)).state is FirewallState.CHANGED
        assert machine.firewall == flushed
        assert [report.looked_at for report in await stage.run(LOOP)] == [0], "it is not fought"
    await opened(stage, lease, 8080)
    await settled(stage)
    assert ports(machine) == {8080}
    assert (await shown(stage, lease)).state is FirewallState.APPLIED


async def test_a_machine_whose_lease_has_ended_is_left_alone(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready")
    await opened(stage, lease, 8080)
    await stage.release(lease)
    assert [report.looked_at for report in await stage.run(LOOP)] == [0]


async def test_a_worker_that_was_too_slow_records_nothing(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready")
    await opened(stage, lease, 8080)
    world = stage.replica("slow")
    now = stage.clock.now()
    (row,) = await stage.machines(lease)
    async with stage.db.transaction() as connection:
        (due,) = await firewalls.take(
            connection, row.account, token=world.new_id(), now=now, until=now + timedelta(seconds=90), limit=9
        )
        stored = await firewalls.applied(
            connection, due, 1, "0" * 64, token=world.new_id(), now=now, look_at=now + LOOK_EVERY
        )
    assert not stored
    assert [report.looked_at for report in await stage.run(LOOP)] == [0], "somebody holds it"
    assert (await shown(stage, lease)).state is FirewallState.PENDING
    stage.clock.advance(91)
    await settled(stage)
    assert (await shown(stage, lease)).state is FirewallState.APPLIED
