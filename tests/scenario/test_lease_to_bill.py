"""The main story: from a request to a bill that adds up."""

import pytest

from control_plane.domain.money import Nano
from control_plane.services import billing
from tests.support import laws
from tests.support.stage import Stage

pytestmark = pytest.mark.database


async def test_a_lease_becomes_ready_is_billed_by_the_second_and_leaves_nothing(stage: Stage) -> None:
    organization_id = await stage.organization()
    lease = await stage.lease(organization_id)
    await stage.play_until(lease, "ready")
    await laws.check(stage.db, stage.cloud)
    ready_at = (await stage.lease_row(lease)).ready_at
    assert ready_at is not None

    await stage.play(5_000, step=50)
    await stage.release(lease)
    released_at = stage.clock.now()
    await stage.play_until(lease, "ended")
    await stage.play(10)
    await laws.check_finished(stage.db, stage.cloud)

    seconds = int((released_at - ready_at).total_seconds())
    totals = await billing.reconcile(stage.api, organization_id)
    assert totals.gpu_seconds == seconds
    assert totals.rated_nano == totals.posted_nano == Nano(seconds * 1_000_000)
    assert await stage.story(lease) == [
        "lease admitted",
        "lease placed",
        "machine intended",
        "machine asked",
        "machine accepted",
        "machine reachable",
        "machine verified",
        "lease verified",
        "lease released",
        "machine released",
        "machine confirmed_gone",
        "lease machines_gone",
    ]
