"""Machines that run, and that lists of their provider hide or call ended: what ends, and what does not."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest

from control_plane.db import accounts
from control_plane.domain.agent import SILENT_AFTER
from control_plane.domain.ids import ProviderRef
from control_plane.domain.lease import EndReason, Lease
from control_plane.domain.listed_state import ListedState
from data_plane.simulation.collector import FakeCollector
from providers.base import Sighting
from tests.support.ready import ready_leases
from tests.support.stage import FAKE, Stage

pytestmark = pytest.mark.database
SILENT_SECONDS = SILENT_AFTER.total_seconds()


async def _refs(stage: Stage, leases: Sequence[Lease]) -> set[ProviderRef]:
    found = [machine.provider_ref for lease in leases for machine in await stage.machines(lease)]
    return {ref for ref in found if ref is not None}


def _silence(stage: Stage, refs: set[ProviderRef]) -> None:
    """Their agents report no more, though the machines run."""
    collector = cast("FakeCollector", stage.world.collector)
    collector.silent |= {str(stage.cloud.machines[ref].address) for ref in refs}


def _mislist(
    patch: pytest.MonkeyPatch, stage: Stage, refs: set[ProviderRef], state: ListedState | None
) -> None:
    """The provider's lists show these machines in that state; None: not at all."""
    provider = stage.world.accounts[FAKE]
    inventory = provider.inventory

    async def wrong() -> tuple[Sighting, ...]:
        listed = await inventory()
        kept = [each for each in listed if state is not None or each.provider_ref not in refs]
        return tuple(
            replace(each, state=state, native_status="notfound")
            if state is not None and each.provider_ref in refs
            else each
            for each in kept
        )

    patch.setattr(provider, "inventory", wrong)


async def _states(stage: Stage, leases: Sequence[Lease]) -> list[str]:
    return [await stage.state(lease) for lease in leases]


@pytest.mark.parametrize("listed", [None, ListedState.GONE])
async def test_a_live_machine_that_lists_lose_is_kept_while_its_agent_reports_and_not_given_up_by_a_short_fault(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, listed: ListedState | None
) -> None:
    speaks, falls_silent, *others = leases = await ready_leases(stage, 4, seconds=120)
    live = await _refs(stage, leases)
    lost = await _refs(stage, [falls_silent])
    for lease in (speaks, falls_silent):
        with monkeypatch.context() as patch:
            _mislist(patch, stage, await _refs(stage, [lease]), listed)
            await stage.play(SILENT_SECONDS + 240, step=30)
            assert await _states(stage, leases) == ["ready"] * 4, "their agents report"
        await stage.play(20, step=10)
    _silence(stage, lost)
    await stage.play(2 * SILENT_SECONDS, step=60)
    with monkeypatch.context() as patch:
        _mislist(patch, stage, lost, listed)
        await stage.play(50, step=10)
    await stage.play(300, step=20)
    assert await _states(stage, leases) == ["ready"] * 4, "not even a silent one, for less than a minute"
    assert {machine.provider_ref for machine in stage.cloud.alive()} == live
    last_seen = stage.clock.now()
    stage.clock.advance(2)
    with monkeypatch.context() as patch:
        _mislist(patch, stage, lost, listed)
        await stage.play(240, step=10)
    assert await _states(stage, [speaks, *others]) == ["ready"] * 3
    row = await stage.lease_row(falls_silent)
    assert row.end_reason is EndReason.MACHINE_LOST, "nothing says that it lives: 0043 takes that risk"
    assert row.billed_until is not None
    assert row.billed_until <= last_seen
    await stage.finish()


async def test_lists_that_call_every_machine_ended_end_no_lease_however_long(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider's backend loses its database: each machine is listed, with the word for an end. The hub is away too."""
    leases = await ready_leases(stage, 5, seconds=120)
    refs = await _refs(stage, leases)
    with monkeypatch.context() as patch:
        _mislist(patch, stage, refs, ListedState.GONE)
        stage.clock.advance(2)
        await stage.round()
        await stage.round()
    assert await _states(stage, leases) == ["ready"] * 5, "one list"
    _silence(stage, refs)
    with monkeypatch.context() as patch:
        _mislist(patch, stage, refs, ListedState.GONE)
        await stage.play(2 * 3_600, step=300)
        async with stage.db.reading() as connection:
            freeze = (await accounts.get(connection, FAKE)).freeze
        assert freeze is not None
        assert (freeze.missing, freeze.needs_permit) == (5, True)
        assert stage.clock.now() - freeze.since > timedelta(hours=1)
    assert await _states(stage, leases) == ["ready"] * 5
    assert {machine.provider_ref for machine in stage.cloud.alive()} == refs
    assert stage.cloud.calls_of("terminate") == 0
    await stage.play(60, step=10)
    await stage.finish()
