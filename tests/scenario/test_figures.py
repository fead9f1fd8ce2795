"""What the business metrics show, beside what the rows, the ledger and the provider say."""

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text

from control_plane.db import pools as pool_rows
from control_plane.db.engine import Database
from control_plane.domain.pool import PoolPolicy
from reconciler.figures import FIGURES
from reconciler.loops.housekeeping import audit_ledger
from tests.support import pools
from tests.support.rows import rows
from tests.support.stage import FAKE, Stage

pytestmark = pytest.mark.database
HOUR = 3_600


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FIGURES, "figures", None)
    monkeypatch.setattr(FIGURES, "audit", None)


def shown(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"splitplane_{name}", labels)


async def test_leases_machines_and_gpus_are_counted(stage: Stage) -> None:
    assert shown("leases", state="ready") is None, "nothing is claimed before it was read"
    organization_id = await stage.organization()
    ready = await stage.lease(organization_id)
    await stage.play_until(ready, "ready")
    await stage.lease(organization_id)
    await stage.run("read_figures")
    assert shown("figures_read_timestamp_seconds") == stage.clock.now().timestamp()
    assert [shown("leases", state=state) for state in ("placing", "starting", "ready", "ending")] == [
        1,
        0,
        1,
        0,
    ]
    assert shown("leases", state="ended") is None
    assert shown("machines", account=FAKE, state="verified") == 1
    async with stage.db.reading() as connection:
        (machine,) = await rows(
            connection, text("SELECT provider, region, gpu_model, gpu_count FROM machines")
        )
    held = shown("gpus_held", provider=machine.provider, region=machine.region, gpu_model=machine.gpu_model)
    assert held == machine.gpu_count
    assert shown("machines_unclaimed") == 0
    assert shown("account_frozen", account=FAKE) == 0
    assert shown("account_offers_timestamp_seconds", account=FAKE)


async def test_leases_that_nobody_looks_at_are_counted_until_somebody_does(stage: Stage) -> None:
    organization_id = await stage.organization()
    starts = await stage.lease(organization_id)
    await stage.play_until(starts, "starting")
    await stage.lease(organization_id)
    await stage.run("read_figures")
    assert shown("leases_unattended") == 0
    stage.clock.advance(HOUR)
    await stage.run("read_figures")
    assert shown("leases_unattended") == 2, "one waits for a machine, and the machine of the other one for us"
    await stage.round()
    await stage.run("read_figures")
    assert shown("leases_unattended") == 0


async def test_the_time_to_ready_is_counted_once_for_each_lease(stage: Stage) -> None:
    def counted() -> tuple[float | None, float | None]:
        return shown("lease_ready_seconds_count"), shown("lease_ready_seconds_sum")

    count, seconds = counted()
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready")
    async with stage.db.reading() as connection:
        (took,) = await rows(
            connection, text("SELECT l.ready_at - c.claimed_at AS took FROM leases l JOIN claims c ON true")
        )
    now = counted()
    assert now[0] == (count or 0) + 1
    assert now[1] == pytest.approx((seconds or 0) + took.took.total_seconds())
    await stage.play(60)
    assert shown("lease_ready_seconds_count") == (count or 0) + 1


async def test_a_machine_that_outlives_its_claim_is_a_liability_that_grows(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready")
    await stage.release(lease)
    async with stage.db.reading() as connection:
        (machine,) = await rows(connection, text("SELECT cost_nano_per_hour FROM machines"))
    per_hour = machine.cost_nano_per_hour / 1e9
    for hours in (0, 1, 3):
        await stage.run("read_figures")
        assert shown("machines_unclaimed") == 1
        assert shown("open_liabilities_usd_per_hour", kind="unclaimed") == per_hour
        assert shown("open_liabilities_usd", kind="unclaimed") == pytest.approx(per_hour * hours), hours
        stage.clock.advance((1, 2, 0)[(0, 1, 3).index(hours)] * HOUR)
    await stage.finish()
    await stage.run("read_figures")
    assert shown("machines_unclaimed") == 0
    assert shown("open_liabilities_usd", kind="unclaimed") == 0


async def test_an_orphan_is_shown_with_its_age_and_without_a_price_that_nobody_knows(stage: Stage) -> None:
    await stage.organization()
    orphan = stage.plant_unrecorded(is_sold=False)
    await stage.run("observe_machines")
    first = stage.clock.now().timestamp()
    stage.clock.advance(60)
    await stage.run("read_figures")
    assert shown("orphans", account=FAKE) == shown("orphans_unpriced", account=FAKE) == 1
    assert shown("orphans_oldest_timestamp_seconds", account=FAKE) == first
    assert shown("open_liabilities_usd", kind="orphan") == 0
    stage.cloud.disappear(orphan.provider_ref)
    await stage.play(600)
    await stage.run("read_figures")
    assert shown("orphans", account=FAKE) == 0
    assert shown("orphans_oldest_timestamp_seconds", account=FAKE) is None


async def test_a_warm_pool_shows_its_machines_its_hits_and_misses_and_what_its_waiting_costs(
    stage: Stage,
) -> None:
    """Beside what the product is told and the provider sees: nothing here is computed from the pool's own figures."""
    organization = await stage.organization()
    await stage.run("refresh_offers")
    now = stage.clock.now()
    pool = pools.a_pool(
        policy=PoolPolicy.FIXED, machines_min=1, machines_max=3, created_at=now, changed_at=now
    )
    async with stage.db.transaction() as connection:
        assert await pool_rows.insert(connection, pool)
    await stage.play(HOUR, step=20)
    (ordered,) = stage.cloud.alive()
    leases = [await stage.lease(organization) for _ in range(3)]
    for lease in leases:
        await stage.play_until(lease, "ready")
    await stage.play(HOUR, step=20)
    await stage.run("read_figures")
    assert (shown("pool_target", pool=pool.name), shown("pool_wanted", pool=pool.name)) == (1, 1)
    assert [shown("pool_machines", pool=pool.name, state=state) for state in ("verified", "starting")] == [
        1,
        0,
    ]
    claimed = {machine.provider_ref for lease in leases for machine in await stage.machines(lease)}
    assert ordered.provider_ref in claimed
    assert len(stage.cloud.alive()) == 4, "one of them waits again"
    assert shown("pool_requests", pool=pool.name, outcome="hit") == 1
    assert shown("pool_requests", pool=pool.name, outcome="miss") == 2
    per_hour = 2.19
    idle = shown("pool_idle_usd", pool=pool.name)
    assert idle == pytest.approx(2 * per_hour, rel=0.05), "one machine at a time waited for two hours"
    assert shown("pool_avoided_wait_seconds", pool=pool.name)
    assert shown("pool_budget_usd_per_day", pool=pool.name) == 1_000
    stage.clock.advance(26 * HOUR)
    await stage.run("read_figures")
    assert [shown("pool_requests", pool=pool.name, outcome=outcome) for outcome in ("hit", "miss")] == [0, 0]
    assert shown("pool_idle_usd", pool=pool.name) == 0, "what is older than a day is not counted"


async def test_use_without_a_charge_and_meters_that_stand_still_are_shown(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready")
    stage.clock.advance(3 * HOUR)
    await stage.run("read_figures")
    assert shown("leases_unmetered") == 1
    assert shown("unrated_intervals") == 0
    assert shown("unrated_oldest_timestamp_seconds") is None
    await stage.run("observe_machines")
    await stage.run("meter_usage")
    metered_at = stage.clock.now().timestamp()
    await stage.run("read_figures")
    async with stage.db.reading() as connection:
        (waiting,) = await rows(
            connection,
            text("""SELECT count(*) AS n, sum(unit_seconds * l.nano_per_unit_hour / 3600.0) / 1e9 AS usd
                    FROM intervals i JOIN leases l ON l.id = i.lease_id"""),
        )
    assert waiting.n
    assert shown("unrated_intervals") == waiting.n
    assert shown("unrated_usd") == pytest.approx(float(waiting.usd))
    assert shown("unrated_oldest_timestamp_seconds") == metered_at
    await stage.run("rate_usage")
    await stage.run("read_figures")
    assert shown("unrated_usd") == 0


async def test_the_ledger_is_added_up_in_parts_and_a_difference_is_an_error(
    stage: Stage, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_ledger, "POSTINGS_PER_STATEMENT", 3)
    for _ in range(4):
        await stage.organization()
    (report,) = await stage.run("audit_ledger")
    assert not report.errors
    assert report.looked_at > 2 * audit_ledger.POSTINGS_PER_STATEMENT
    assert shown("ledger_difference_usd") == 0
    assert shown("ledger_postings") == report.looked_at
    owner = Database(database_url, role=None, pool_size=1, readers=1)
    try:
        async with owner.transaction() as connection:
            await connection.execute(text("SET LOCAL session_replication_role = replica"))
            await connection.execute(
                text("""UPDATE postings SET amount_nano = amount_nano + 1
                        WHERE (transaction_id, line) = (SELECT transaction_id, line FROM postings LIMIT 1)""")
            )
    finally:
        await owner.close()
    (report,) = await stage.run("audit_ledger")
    assert report.errors == ["The sum of all postings is 0.000000001 USD instead of 0."]
    assert shown("ledger_difference_usd") == 1e-9


async def test_a_machine_that_vanished_is_counted_from_the_first_one_on(stage: Stage) -> None:
    organization_id = await stage.organization()
    gone, stays = [await stage.lease(organization_id) for _ in range(2)]
    for lease in (gone, stays):
        await stage.play_until(lease, "ready")
    before = shown("machines_vanished_total", account=FAKE)
    assert before is not None, "an increase needs a first value"
    stage.cloud.disappear(stage.cloud.alive()[0].provider_ref)
    stage.clock.advance(10)
    await stage.play(120, step=5)
    assert shown("machines_vanished_total", account=FAKE) == before + 1
