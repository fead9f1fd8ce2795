"""The running month and the last one are reconciled once a day by themselves, and metrics show what came of it."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text

from control_plane.db import reconciliation_batches, reconciliations
from control_plane.db.engine import Database
from control_plane.db.reconciliation_batches import Batch, Difference
from control_plane.db.reconciliations import Reconciliation
from control_plane.db.rows import read_one
from control_plane.domain.money import Nano
from control_plane.domain.period import month_of
from control_plane.domain.reconciliation import Amounts, LinkName
from control_plane.domain.reconciliation_schedule import watched_months
from control_plane.outcomes.reconciliations import ask
from control_plane.world import uuid7
from reconciler.figures import FIGURES
from reconciler.loop import Report
from reconciler.loops.money import reconcile_periods, request_reconciliations
from reconciler.world import World
from tests.integration.api.conftest import Api, Tenant
from tests.integration.db.sample import a_row, insert
from tests.support.locks import until_somebody_waits

pytestmark = pytest.mark.database
PATH = "/v1/finance/reconciliations"
DAY = timedelta(days=1)
_PROJECT = text("SELECT project_id FROM leases WHERE id = :id")


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FIGURES, "reconciled", ())


@pytest.fixture
async def finance(api: Api) -> Tenant:
    return await api.tenant("us", platform=True, credit=None)


def _world(api: Api) -> World:
    return World(db=api.owner.db, now=api.clock.now, new_id=uuid7)


async def _request(api: Api) -> Report:
    return await request_reconciliations.activate(_world(api))


async def _examine(api: Api, times: int = 2) -> None:
    for _ in range(times):
        await reconcile_periods.activate(_world(api))


def _shown(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"splitplane_reconciliation_{name}", labels)


async def test_two_months_are_asked_for_once_a_day(api: Api, finance: Tenant) -> None:
    assert (await _request(api)).acted_on == 2
    await _examine(api)
    found = (await finance.http.get(PATH)).json()["items"]
    assert sorted(one["period"] for one in found) == ["2026-10", "2026-11"]
    assert {(one["state"], one["asked_by"]) for one in found} == {("reconciled", "request_reconciliations")}
    api.clock.advance((DAY - timedelta(seconds=1)).total_seconds())
    assert (await _request(api)).acted_on == 0
    api.clock.advance(1)
    assert (await _request(api)).acted_on == 2


async def test_one_that_finance_asked_for_counts_and_one_under_way_is_waited_for(
    api: Api, finance: Tenant
) -> None:
    await finance.http.post(PATH, json={"period": "2026-11"})
    assert (await _request(api)).acted_on == 1, "the last month alone"
    api.clock.advance(2 * DAY.total_seconds())
    assert (await _request(api)).acted_on == 0, "nobody has examined anything yet"
    await _examine(api)
    assert (await _request(api)).acted_on == 2


async def test_a_replica_waits_for_another_one_and_does_not_ask_again(
    api: Api, finance: Tenant, database_url: str
) -> None:
    owner = Database(database_url, role=None, pool_size=1, readers=1)
    try:
        async with api.owner.db.transaction() as connection:
            await reconciliations.lock(connection)
            for month in watched_months(api.clock.now()):
                await ask(
                    connection,
                    finance.id,
                    month,
                    reconciliation_id=uuid7(),
                    by="request_reconciliations",
                    all_customers=False,
                    now=api.clock.now(),
                )
            second = asyncio.create_task(_request(api))
            await until_somebody_waits(owner)
        assert (await second).acted_on == 0
    finally:
        await owner.close()
    assert len((await finance.http.get(PATH)).json()["items"]) == 2


async def test_of_a_daily_one_only_the_customers_that_differ_are_stored(api: Api, finance: Tenant) -> None:
    acme, _ = await api.tenant("acme"), await api.tenant("globex")
    await _charge_without_time(api, acme)
    await _request(api)
    await finance.http.post(PATH, json={"period": "2026-11"})
    await _examine(api, 3)
    found = (await finance.http.get(PATH)).json()["items"]
    assert {(one["state"], one["period"]) for one in found if one["differing_customers"]} == {
        ("different", "2026-11")
    }
    stored = {}
    for one in found:
        customers = (await finance.http.get(f"{PATH}/{one['id']}/customers")).json()["items"]
        stored[one["period"], one["all_customers"]] = {customer["organization"] for customer in customers}
        assert one["customers"] == 3
    assert stored == {
        ("2026-11", True): {"us", "acme", "globex"},
        ("2026-11", False): {"acme"},
        ("2026-10", False): set(),
    }


async def _charge_without_time(api: Api, tenant: Tenant) -> None:
    """A charge that nothing was metered for, and that the ledger lacks."""
    lease_id = UUID(hex=(await tenant.lease()).removeprefix("le_"))
    now, machine = api.clock.now(), a_row("machines", tenant.id, 1, account="fake", gpu_count=1)
    async with api.owner.db.transaction() as connection:
        project_id = await read_one(connection, _PROJECT, UUID, id=lease_id)
        charge = a_row(
            "charges",
            tenant.id,
            lease_id=lease_id,
            project_id=project_id,
            machine_id=machine["id"],
            sku="h100x1",
            price_book=1,
            started_at=now - timedelta(hours=1),
            ended_at=now,
            period=month_of(now),
        )
        await insert(connection, "machines", machine)
        await insert(connection, "charges", charge)


async def test_nobody_asks_before_somebody_runs_the_installation(api: Api) -> None:
    report = await _request(api)
    assert (report.looked_at, report.acted_on) == (0, 0)


async def test_a_difference_and_its_age_are_shown_until_a_reconciliation_finds_none(
    api: Api, finance: Tenant
) -> None:
    acme, globex = sorted([(await api.tenant("acme")).id, (await api.tenant("globex")).id])
    await _request(api)
    assert _shown("timestamp_seconds") is None, "none is done yet"
    await _examine(api)
    await _request(api)
    done_at = api.clock.now().timestamp()
    assert (_shown("difference_usd", month="running"), _shown("difference_usd", month="last")) == (0, 0)
    assert _shown("timestamp_seconds") == pytest.approx(done_at, abs=1)

    api.clock.advance(60)
    now = api.clock.now()
    wrong = Reconciliation(
        uuid7(),
        month_of(now),
        closed=False,
        export_id=None,
        asked_at=now,
        asked_by="user_grace",
        all_customers=True,
    )
    # One customer has too much, another one too little, and the suppliers' cost is not what is owed.
    amounts = Amounts(booked=Nano(8), posted=Nano(8), supplier_cost=Nano(7), supplier_lines=Nano(7))
    found = [
        Difference(wrong.id, 1, customer, LinkName.POSTED, Nano(4), Nano(4 + by), ())
        for customer, by in ((acme, 1), (globex, -1))
    ]
    async with api.owner.db.transaction() as connection:
        await reconciliations.insert(connection, wrong)
        batch = Batch(wrong.id, 1, globex, 2, 0, amounts, now)
        await reconciliation_batches.record(connection, batch, {}, found)
    (note,) = (await _request(api)).notes
    assert note == (f"The books of 2026-11 differ by 0.000000009 USD, customers: 2; rec_{wrong.id.hex}.")
    assert _shown("difference_usd", month="running") == 9e-9
    assert _shown("differing_customers", month="running") == 2
    assert _shown("difference_usd", month="last") == 0
    assert _shown("timestamp_seconds") == now.timestamp()

    api.clock.advance(60)
    await finance.http.post(PATH, json={"period": "2026-11"})
    await _examine(api)
    assert (await _request(api)).notes == []
    assert _shown("difference_usd", month="running") == 0
