"""Machines that serve nobody and cost money: open, with a figure in dollars, until their provider shows their end."""

import pytest
from prometheus_client import REGISTRY

from control_plane.domain.machine import MachineState
from providers.faults import Fault
from reconciler.figures import FIGURES
from tests.support.stage import Stage

pytestmark = pytest.mark.database
HOURS = 3


async def test_a_termination_that_is_refused_for_hours_is_never_given_up_and_its_dollars_grow(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FIGURES, "figures", None)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    stage.cloud.faults.always("terminate", Fault.NOT_YET)
    await stage.release(lease)
    await stage.play(HOURS * 3_600, step=900)
    (machine,) = await stage.machines(lease)
    assert machine.state is MachineState.TERMINATING
    assert await stage.state(lease) == "ending", "the lease stays open as well, and bills nothing"
    asked = stage.cloud.calls_of("terminate")
    assert asked >= HOURS * 4, "it is asked for in every quarter of an hour that was played"
    dollars = REGISTRY.get_sample_value("splitplane_open_liabilities_usd", {"kind": "unclaimed"})
    per_hour = REGISTRY.get_sample_value("splitplane_open_liabilities_usd_per_hour", {"kind": "unclaimed"})
    assert dollars is not None
    assert per_hour is not None
    assert dollars == pytest.approx(HOURS * per_hour, rel=0.05)
    assert per_hour == pytest.approx(2.19)
    (offer,) = stage.cloud.alive()
    assert offer.cost_nano(stage.clock.now()) >= dollars * 1e9, "it is what the provider charges, and no more"
    stage.cloud.faults.clear()
    await stage.play_until(lease, "ended", seconds_max=600, step=30)
    await stage.check_finished()
