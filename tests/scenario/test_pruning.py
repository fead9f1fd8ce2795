"""What has served its time goes, and only that."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from control_plane.db import idempotency, loops
from control_plane.db.idempotency import StoredAnswer
from reconciler.loops.housekeeping import prune_records
from tests.integration.db.sample import a_row, insert
from tests.support.cases import case
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database
DAY = 86_400
KEYS = text("SELECT key FROM idempotency_keys WHERE organization_id = :organization_id ORDER BY created_at")


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


async def test_what_belongs_to_signing_in_goes_when_its_life_is_over(stage: Stage) -> None:
    """For each table, one row whose life ends in a moment and one that lives on, in the order of their lives."""
    tenant = await stage.organization()
    now = stage.clock.now()
    lives = {
        "device_authorizations": ("expires_at", prune_records.DEVICES_KEPT),
        "request_budgets": ("refilled_at", prune_records.BUDGETS_KEPT),
        "refresh_tokens": ("replaced_at", prune_records.REPLACED_TOKENS_KEPT),
        "sessions": ("expires_at", prune_records.SESSIONS_KEPT),
    }
    user = a_row("users", tenant)
    session = a_row("sessions", tenant, 9, user_id=user["id"], expires_at=now + timedelta(days=99))
    async with stage.db.transaction() as connection:
        await insert(connection, "users", user)
        await insert(connection, "sessions", session)
        for table, (column, life) in lives.items():
            for number, margin in ((1, timedelta(seconds=1)), (2, -timedelta(seconds=1))):
                given: dict[str, Any] = {column: now - life - margin}
                if table == "sessions":
                    given["user_id"] = user["id"]
                if table == "refresh_tokens":
                    given["session_id"] = session["id"]
                await insert(connection, table, a_row(table, tenant, number, **given))
    (report,) = await stage.run("prune_records")
    assert report.acted_on == len(lives)
    async with stage.db.reading() as connection:
        for table, (column, life) in lives.items():
            kept = await rows(
                connection, text(f"SELECT {column} AS at FROM {table} WHERE {column} < :now"), now=now
            )
            assert [row.at for row in kept] == [now - life + timedelta(seconds=1)], table
        (line,) = await rows(
            connection, text("SELECT details FROM audit_pending WHERE event = 'records.prune'")
        )
    assert "4" in str(line.details)


async def test_a_kind_is_pruned_in_batches_until_nothing_is_left(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune_records, "DROPPED_PER_ACTIVATION_MAX", 2)
    tenant, old = await stage.organization(), stage.clock.now() - timedelta(days=9)
    async with stage.db.transaction() as connection:
        for number in range(5):
            await insert(
                connection, "request_budgets", a_row("request_budgets", tenant, number, refilled_at=old)
            )
    reports = [(await stage.run("prune_records"))[0] for _ in range(3)]
    assert [(report.acted_on, report.more) for report in reports] == [(2, True), (2, True), (1, False)]


async def _report(stage: Stage, loop: str, replica: str, *, account: str = "") -> None:
    now = stage.clock.now()
    async with stage.db.transaction() as connection:
        await loops.record(
            connection,
            loop=loop,
            account=account,
            replica=replica,
            started_at=now,
            finished_at=now,
            every_seconds=1,
            late_after_seconds=60,
            looked_at=0,
            acted_on=0,
            errors=[],
            notes=[],
        )


async def test_the_newest_report_of_a_loop_that_nobody_runs_stays(stage: Stage) -> None:
    await _report(stage, "place_leases", "older")
    await _report(stage, "observe_machines", "older", account="one")
    stage.clock.advance(60)
    for replica in ("newer", "twin"):
        await _report(stage, "place_leases", replica)
    await _report(stage, "observe_machines", "newer", account="two")
    await _report(stage, "meter_usage", "older")
    stage.clock.advance(2 * DAY)
    await _report(stage, "meter_usage", "running")
    await stage.run("prune_records")
    async with stage.db.reading() as connection:
        kept = [(report.loop, report.account, report.replica) for report in await loops.reports(connection)]
    assert kept == [
        ("meter_usage", "", "running"),
        ("observe_machines", "one", "older"),
        ("observe_machines", "two", "newer"),
        ("place_leases", "", "twin"),
    ]


async def test_the_oldest_answers_go_early_when_an_organization_has_too_many(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowded, other = await stage.organization(), await stage.organization()
    for most, most_bytes in ((3, 1_000), (1_000, 50)):
        monkeypatch.setattr(prune_records, "ANSWERS_MAX", most)
        monkeypatch.setattr(prune_records, "ANSWER_BYTES_MAX", most_bytes)
        for organization_id, count in ((crowded, 5), (other, 3)):
            for number in range(count):
                stage.clock.advance(1)
                async with stage.db.transaction(organization_id) as connection:
                    await idempotency.insert(
                        connection,
                        organization_id,
                        f"{most} {number}",
                        StoredAnswer(b"digest", 202, b"x" * 16),
                        now=stage.clock.now(),
                    )
        (report,) = await stage.run("prune_records")
        async with stage.db.reading() as connection:
            kept = {
                organization_id: [
                    row.key for row in await rows(connection, KEYS, organization_id=organization_id)
                ]
                for organization_id in (crowded, other)
            }
        with case(most, most_bytes):
            assert kept[crowded] == [f"{most} {number}" for number in (2, 3, 4)]
            assert kept[other] == [f"{most} {number}" for number in (0, 1, 2)]
            assert report.acted_on > 0


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
