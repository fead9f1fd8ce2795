"""What has served its time goes, and only that."""

import pytest
from sqlalchemy import text

from control_plane.db import idempotency
from control_plane.db.idempotency import StoredAnswer
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database
DAY = 86_400


async def test_a_stored_answer_is_kept_for_a_week_and_then_its_key_is_free(stage: Stage) -> None:
    organization_id = await stage.organization()
    answer = StoredAnswer(b"digest", 202, b"{}")
    for key, at_day in (("old", 0), ("young", 1)):
        stage.clock.advance(at_day * DAY)
        async with stage.db.transaction(organization_id) as connection:
            await idempotency.insert(connection, organization_id, key, answer, now=stage.clock.now())

    stage.clock.advance(6 * DAY + 1)
    (report,) = await stage.run("prune_records")
    assert report.acted_on == 1
    async with stage.db.reading() as connection:
        assert await idempotency.get(connection, organization_id, "old") is None
        assert await idempotency.get(connection, organization_id, "young") == answer


async def test_no_fact_is_ever_pruned(stage: Stage) -> None:
    organization_id = await stage.organization()
    lease = await stage.lease(organization_id)
    await stage.play_until(lease, "ready")
    before = await stage.story(lease)
    stage.clock.advance(400 * DAY)
    await stage.run("prune_records")
    assert await stage.story(lease) == before
    async with stage.db.reading() as connection:
        assert (await rows(connection, text("SELECT count(*) AS n FROM verification_reports")))[0].n == 1
