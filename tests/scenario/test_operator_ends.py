"""Operators end leases in whatever state these are, while loops work on them: what ends, what is billed, what is left."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random

import pytest

from control_plane.domain.actor import ADMINISTRATOR
from control_plane.domain.ids import OrganizationId, ProviderRef
from control_plane.domain.lease import EndReason, Lease
from control_plane.domain.power_action import PowerAction
from control_plane.domain.refusal import Refused
from control_plane.services import lease_ends
from control_plane.services.lease_ends import EndOrder
from providers.fake import FakeMachine
from tests.support.power import ask, asked
from tests.support.ready import ready_leases
from tests.support.stage import Stage

pytestmark = pytest.mark.database


async def _end(stage: Stage, lease: Lease, by: OrganizationId) -> None:
    order = EndOrder(lease.organization_id, lease.id, by, "ticket 4711", ADMINISTRATOR)
    async with stage.db.transaction(by) as connection:
        ended = await lease_ends.end(connection, stage.api, order)
    assert not isinstance(ended, Refused), ended


async def _machine(stage: Stage, lease: Lease) -> FakeMachine:
    machine = (await stage.machines(lease))[-1]
    return stage.cloud.machines[machine.provider_ref or ProviderRef("")]


async def _failed(stage: Stage, lease: Lease) -> None:
    (await _machine(stage, lease)).failed = True


async def _stopped_by_itself(stage: Stage, lease: Lease) -> None:
    (await _machine(stage, lease)).stopped = True


async def _stopped(stage: Stage, lease: Lease) -> None:
    await asked(stage, lease, PowerAction.STOP)
    await stage.play(60)


async def _stopping(stage: Stage, lease: Lease) -> None:
    await asked(stage, lease, PowerAction.STOP)


async def _rebooting(stage: Stage, lease: Lease) -> None:
    await asked(stage, lease, PowerAction.REBOOT)


async def _back(stage: Stage, lease: Lease) -> None:
    """Its provider has called it failed twice, and lists it as running since some minutes."""
    machine = await _machine(stage, lease)
    for failed in (True, False, True, False):
        machine.failed = failed
        await stage.play(20)
    await stage.play(300, step=60)


async def _ready(_: Stage, __: Lease) -> None:
    pass


STATES: tuple[Callable[[Stage, Lease], Awaitable[None]], ...] = (
    *(_ready, _failed, _stopped_by_itself, _stopped, _stopping, _rebooting, _back),
)


@pytest.mark.parametrize("seed", [1, 2])
async def test_leases_that_operators_end_in_any_state_are_billed_until_then_at_most_and_leave_nothing(
    stage: Stage, seed: int
) -> None:
    random, platform = Random(seed), await stage.organization()
    leases = await ready_leases(stage, len(STATES), seconds=60)
    for lease, state in zip(leases, STATES, strict=True):
        await state(stage, lease)
    starting = [await stage.lease(leases[0].organization_id) for _ in range(3)]
    await stage.play(random.choice([2, 8, 30]))
    everyone = [*leases, *starting]
    random.shuffle(everyone)
    ended_at = stage.clock.now()
    for lease in everyone:
        # Twice, as of two operators, while loops are in the midst of their work.
        await asyncio.gather(_end(stage, lease, platform), _end(stage, lease, platform), stage.turns())
    for lease in everyone:
        row = await stage.lease_row(lease)
        assert row.end_reason is EndReason.ENDED_BY_OPERATOR, await stage.story(lease)
        assert row.billed_until is None or row.billed_until <= ended_at, await stage.story(lease)
    for lease in leases:
        assert isinstance(await ask(stage, lease, PowerAction.START), Refused), "nobody starts what has ended"
    await stage.play(900, step=30)
    assert not stage.cloud.alive()
    assert {await stage.state(lease) for lease in everyone} == {"ended"}
    failed = await stage.lease_row(leases[STATES.index(_failed)])
    assert failed.billed_until is not None
    assert ended_at - failed.billed_until > timedelta(seconds=60), "the time in which it was failed is free"
    await stage.check()
    await stage.finish()
