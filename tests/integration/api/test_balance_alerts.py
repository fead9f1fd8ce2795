"""Balance alerts over HTTP: set as a whole, refused where they make no sense, and the record of what was told."""

from datetime import timedelta

import pytest

from control_plane.db.engine import Database
from control_plane.domain.balance_alert import BUDGET_PERCENTS
from control_plane.world import uuid7
from reconciler.loops.money import watch_balances
from reconciler.world import World
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.problems import hold

pytestmark = pytest.mark.database
PATH = "/v1/balance/alerts"


async def _look(db: Database, api: Api) -> None:
    """Run the loop as the reconciler does, a moment later."""
    now = api.world.now() + timedelta(seconds=1)
    report = await watch_balances.activate(World(db=db, now=lambda: now, new_id=uuid7))
    assert not report.errors


async def test_a_customer_sets_a_threshold_and_reads_the_warning_with_its_bill(
    db: Database, api: Api, acme: Tenant
) -> None:
    before = (await acme.http.get(PATH)).json()
    assert (before["state"], before["below"], before["budget_percents"]) == (
        "funded",
        None,
        [*BUDGET_PERCENTS],
    )
    wanted = {"below_usd": "2000", "month_budget_usd": "500", "budget_percents": [90, 50, 90]}
    answer = await acme.http.put(PATH, json=wanted)
    assert answer.status_code == 200, answer.text
    assert answer.json()["budget_percents"] == [50, 90]
    await _look(db, api)
    alerts, bill = (await acme.http.get(PATH)).json(), (await acme.http.get("/v1/bill")).json()
    assert alerts["state"] == "low"
    assert (
        alerts["warning"]
        == bill["balance_warning"]
        == ("The balance is 1,000.00 USD, below 2,000.00 USD; top up.")
    )
    await acme.http.put(PATH, json={"below_usd": "0"})
    await _look(db, api)
    await _look(db, api)
    events = (await acme.http.get("/v1/balance/events")).json()["items"]
    assert [event["event"] for event in events] == ["recovered", "fell_low"]
    assert events[1]["limit"]["usd"] == "2000.000000000"
    assert (await acme.http.get("/v1/bill")).json()["balance_warning"] is None


async def test_alerts_that_make_no_sense_are_refused_and_change_nothing(acme: Tenant) -> None:
    await acme.http.put(PATH, json={"below_usd": "7"})
    for spoilt in (
        {"below_usd": "-1"},
        {"budget_percents": [0]},
        {"budget_percents": [50] * 11},
        {"above": "1"},
    ):
        hold(await acme.http.put(PATH, json=spoilt), "invalid_request")
    assert (await acme.http.get(PATH)).json()["below"]["usd"] == "7.000000000"
