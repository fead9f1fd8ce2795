"""A process that was stopped between two of its transactions decides anew when it goes on, and not as of the past."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from control_plane.db import leases
from control_plane.db.connection import Connection
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.envelope import Envelope
from control_plane.domain.envelope_watch import UNWATCHED_AFTER
from control_plane.domain.ids import LeaseId
from control_plane.domain.lease import EndReason, Lease
from control_plane.domain.tariff import billing_start
from control_plane.services import billing
from tests.support.stage import Stage

pytestmark = pytest.mark.database


async def _stopped_before_the_end(stage: Stage, stopped: timedelta) -> Lease:
    """A lease outside of its envelope, which a process was about to end when it was stopped. Others list and meter."""
    stage.clock.advance(53 * 60)  # So that an hour ends while the process stands still.
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready")
    await stage.narrow(lease.organization_id, Envelope(gpus=0, ends_after_seconds=60))
    await stage.run("watch_envelopes")
    await stage.play(70, step=35, without=["watch_envelopes"])
    lock: Callable[..., Any] = leases.lock

    async def then_locks(connection: Connection, ids: Sequence[LeaseId]) -> Any:
        stage.clock.advance(stopped.total_seconds())
        for other in ("observe_machines", "meter_usage", "rate_usage"):
            await stage.run(other)
        return await lock(connection, ids)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leases, "lock", then_locks)
        await stage.run("watch_envelopes")
    return await stage.lease_row(lease)


async def test_a_lease_ends_when_the_process_goes_on_and_is_billed_until_then(stage: Stage) -> None:
    row = await _stopped_before_the_end(stage, UNWATCHED_AFTER - timedelta(minutes=1))
    assert (row.end_reason, row.billed_until) == (EndReason.ENVELOPE_EXCEEDED, stage.clock.now())
    assert row.ready_at is not None
    used = (stage.clock.now() - billing_start(row.ready_at)) // timedelta(seconds=1)
    await stage.play(10, step=5)
    await stage.check()
    bill = await billing.bill(stage.api, row.organization_id, reach=EVERYWHERE)
    (line,) = [line for line in bill.lines if line.lease_id == row.id]
    assert line.unit_seconds + line.unrated_unit_seconds == used


async def test_a_lease_is_not_ended_by_a_process_that_did_not_look_for_longer_than_the_grace_allows(
    stage: Stage,
) -> None:
    row = await _stopped_before_the_end(stage, 2 * UNWATCHED_AFTER)
    assert row.end_reason is None, "an outage of ours ends no lease"
