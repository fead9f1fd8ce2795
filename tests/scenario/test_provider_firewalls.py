"""Where a provider's firewall follows the rules of a lease, it lets in what they open, before the machine decides too."""

from dataclasses import replace

import pytest

from control_plane.db import provider_firewalls
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.firewall import (
    LOOK_EVERY,
    FirewallProblem,
    FirewallState,
    Protocol,
    ProviderFirewall,
)
from control_plane.domain.ingress import Ingress
from control_plane.domain.lease import Lease
from control_plane.domain.refusal import Refused
from control_plane.services import firewalls as service
from providers.fake import FakeMachine, Fault
from tests.support.firewall_rules import SOURCES, opened
from tests.support.stage import FAKE, Stage

pytestmark = pytest.mark.database
LOOP = "apply_provider_firewalls"
BY_HAND = Ingress(Protocol.UDP, 53, 53, "0.0.0.0/0")


async def shown(stage: Stage, lease: Lease) -> service.Shown:
    found = await service.show(stage.api, lease.organization_id, lease.id, reach=EVERYWHERE)
    assert not isinstance(found, Refused), found
    return found


async def ready(stage: Stage, *ports: int) -> tuple[Lease, FakeMachine]:
    lease = await stage.lease(await stage.organization())
    for port in ports:
        await opened(stage, lease, port)
    await stage.play_until(lease, "ready")
    (machine,) = await stage.machines(lease)
    assert machine.provider_ref is not None
    return lease, stage.cloud.machines[machine.provider_ref]


def ports(machine: FakeMachine) -> set[int]:
    assert {each.source for each in machine.lets_in} <= set(SOURCES)
    return {each.first_port for each in machine.lets_in}


async def test_rules_reach_the_provider_after_the_machine_closed_and_change_there_with_the_lease(
    stage: Stage,
) -> None:
    lease, machine = await ready(stage, 8080)
    other, untouched = await ready(stage)
    await stage.run(LOOP)
    assert (ports(machine), ports(untouched)) == ({8080}, set())
    assert stage.cloud.calls_of("firewall") == 2, "one step, and a look; none for a lease without rules"
    rule = await opened(stage, lease, 9090)
    await stage.run("apply_firewalls")
    assert (await shown(stage, lease)).state is FirewallState.PENDING
    await stage.run(LOOP)
    assert ports(machine) == {8080, 9090}
    found = await shown(stage, lease)
    assert (found.state, found.provider) == (FirewallState.APPLIED, ProviderFirewall.FOLLOWS)
    assert found.firewall.provider_applied_at == stage.clock.now()
    assert (await shown(stage, other)).state is FirewallState.APPLIED
    await service.delete(
        stage.api, lease.organization_id, lease.id, rule.id, reach=EVERYWHERE, note=lambda _: None
    )
    await stage.run(LOOP)
    assert ports(machine) == {8080}


async def test_before_its_customer_is_admitted_nothing_is_opened(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await opened(stage, lease, 8080)
    await stage.play(60, without={"admit_customers"})
    (machine,) = stage.cloud.machines.values()
    assert [row.state for row in await stage.machines(lease)] == ["verified"]
    assert not machine.lets_in
    await stage.play_until(lease, "ready")
    await stage.run(LOOP)
    assert ports(machine) == {8080}


async def test_a_provider_that_fails_is_asked_again_and_the_customer_is_told(stage: Stage) -> None:
    lease, machine = await ready(stage)
    await stage.run("apply_firewalls")
    for fault in (Fault.UNAVAILABLE, Fault.ORDER_REFUSED, Fault.LOST_AFTER_EFFECT, Fault.THROTTLED):
        await opened(stage, lease, 8080 + len(machine.lets_in) + list(Fault).index(fault))
        await stage.run("apply_firewalls")
        stage.cloud.faults.script("firewall", *[fault] * 3)
        (report,) = await stage.run(LOOP)
        assert (report.acted_on, len(report.errors)) == (0, 1), fault
        found = await shown(stage, lease)
        assert (found.state, found.firewall.problem) == (FirewallState.PENDING, FirewallProblem.PROVIDER)
        assert [report.looked_at for report in await stage.run(LOOP)] == [0], "it rests"
        stage.clock.advance(20)
        stage.cloud.faults.clear()
        await stage.run(LOOP)
        found = await shown(stage, lease)
        assert (found.state, found.firewall.problem) == (FirewallState.APPLIED, None), fault
    stage.cloud.faults.script("firewall", Fault.ORDER_REFUSED)
    await opened(stage, lease, 9000)
    await stage.run(LOOP)
    await opened(stage, lease, 9001)
    await stage.run(LOOP)
    assert ports(machine) >= {9000, 9001}, "another change of the rules ends the rest"


async def test_what_somebody_changed_at_the_provider_is_put_back_within_an_hour(stage: Stage) -> None:
    _, machine = await ready(stage, 8080)
    await stage.run(LOOP)
    machine.lets_in |= {BY_HAND}
    assert [report.looked_at for report in await stage.run(LOOP)] == [0]
    stage.clock.advance(LOOK_EVERY.total_seconds())
    (report,) = await stage.run(LOOP)
    assert ports(machine) == {8080}
    assert len(report.notes) == 1


async def test_a_provider_whose_firewall_follows_nothing_is_not_asked(stage: Stage) -> None:
    provider = stage.world.accounts[FAKE]
    provider.capabilities = replace(provider.capabilities, firewall=ProviderFirewall.FIXED)
    lease, machine = await ready(stage, 8080)
    assert [report.looked_at for report in await stage.run(LOOP)] == [0]
    assert not machine.lets_in
    found = await shown(stage, lease)
    assert (found.state, found.provider) == (FirewallState.APPLIED, ProviderFirewall.FIXED)


async def test_a_lease_that_has_ended_opens_nothing_more(stage: Stage) -> None:
    lease, machine = await ready(stage)
    await opened(stage, lease, 8080)
    await stage.release(lease)
    assert [report.looked_at for report in await stage.run(LOOP)] == [0]
    assert not machine.lets_in


async def test_rules_that_change_between_two_steps_are_those_that_the_provider_gets(stage: Stage) -> None:
    lease, machine = await ready(stage, 8080)
    changed = False

    async def meanwhile() -> None:
        nonlocal changed
        if not changed:
            changed = True
            await opened(stage, lease, 9090)

    stage.cloud.slow = meanwhile
    stage.cloud.faults.script("firewall", Fault.SLOW)
    await stage.run(LOOP)
    assert ports(machine) == {8080, 9090}
    assert [report.looked_at for report in await stage.run(LOOP)] == [0], (
        "the version that it got is recorded"
    )


async def test_rules_that_change_during_the_last_look_have_the_next_turn_begin_at_once(stage: Stage) -> None:
    lease, machine = await ready(stage, 8080)

    async def meanwhile() -> None:
        await opened(stage, lease, 9090)

    stage.cloud.slow = meanwhile
    stage.cloud.faults.script("firewall", Fault.NONE, Fault.SLOW)
    (report,) = await stage.run(LOOP)
    assert report.more
    (report,) = await stage.run(LOOP)
    assert (ports(machine), report.more) == ({8080, 9090}, False)


async def test_a_worker_that_was_too_slow_records_nothing(stage: Stage) -> None:
    lease, machine = await ready(stage, 8080)
    world, now = stage.replica("slow"), stage.clock.now()
    (row,) = await stage.machines(lease)
    async with stage.db.transaction() as connection:
        (due,) = await provider_firewalls.take(
            connection, row.account, token=world.new_id(), now=now, until=now, limit=9
        )
        stored = await provider_firewalls.applied(
            connection, due, 1, token=world.new_id(), now=now, look_at=now + LOOK_EVERY
        )
    assert not stored
    await stage.run(LOOP)
    assert ports(machine) == {8080}
    assert (await shown(stage, lease)).state is FirewallState.APPLIED
