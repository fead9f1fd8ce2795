"""Provider accounts over HTTP, and permits to terminate machines there."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from control_plane.db import accounts
from control_plane.domain.call_budget import pace_of
from control_plane.domain.ids import Prefix, on_wire
from providers.base import RateLimit, Verb
from providers.fake import Fault
from providers.pacing import Draw
from reconciler.call_budgets import SharedBudget
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.problems import hold
from tests.support.stage import FAKE, Stage

pytestmark = pytest.mark.database


async def test_an_operator_sees_accounts_and_whether_they_are_well(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    await stage.play(10)
    items = (await operator.http.get("/v1/operator/provider-accounts")).json()["items"]
    assert [(account["name"], account["frozen_since"], account["failing_why"]) for account in items] == [
        ("fake", None, None)
    ]
    assert items[0]["listing_asked_at"] is not None


async def test_an_operator_sees_the_rate_limits_of_an_account_and_that_the_provider_throttled_us(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    await stage.play(5)
    limit = RateLimit("all", 1, 1.0, frozenset(Verb))
    draw = Draw(FAKE, limit, pace_of(calls=1, seconds=1.0))
    budget = SharedBudget(stage.db, stage.clock.now)
    assert await budget.draw([draw], urgency=1.0, wait_seconds_max=1.0) is not None
    await budget.slow(draw, 30.0)
    (account,) = (await operator.http.get("/v1/operator/provider-accounts")).json()["items"]
    (shown,) = account["limits"]
    due = datetime.fromisoformat(shown.pop("next_turn_at")) - stage.clock.now()
    assert due.total_seconds() == pytest.approx(30, abs=0.01)
    assert shown == {
        "bucket": "all",
        "calls": 1,
        "seconds": 1.0,
        "burst": None,
        "share_percent": 70,
        "turns_last_minute": 0,
    }


async def test_an_operator_reads_on_an_account_what_fails_there_and_since_when(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    async def shown() -> tuple[Any, Any]:
        (account,) = (await operator.http.get("/v1/operator/provider-accounts")).json()["items"]
        since = account["failing_since"]
        return since and datetime.fromisoformat(since), account["failing_why"]

    first, later = stage.clock.now(), stage.clock.now() + timedelta(minutes=1)
    async with stage.db.transaction() as connection:
        await accounts.record_offers_failure(connection, FAKE, why="Throttled", now=first)
    assert await shown() == (first, "offers: Throttled")
    async with stage.db.transaction() as connection:
        await accounts.record_failure(connection, FAKE, why="Unavailable", now=later)
    assert await shown() == (first, "Unavailable; offers: Throttled")
    async with stage.db.transaction() as connection:
        await accounts.record_refresh(connection, FAKE, now=later)
    assert await shown() == (later, "Unavailable")


async def test_an_operator_reads_on_an_account_what_is_not_ordered_there_and_since_when(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    stage.cloud.faults.script("launch", Fault.QUOTA_REACHED)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    refused, _ = await stage.machines(lease)
    (account,) = (await operator.http.get("/v1/operator/provider-accounts")).json()["items"]
    (block,) = account["blocks"]
    assert block["machine_id"] == on_wire(Prefix.MACHINE, refused.id)
    assert (block["scope"], block["reason"]) == ("region", "quota_reached")
    assert block["subject"] == f"everything in {refused.region}"
    stage.clock.advance(301)
    (account,) = (await operator.http.get("/v1/operator/provider-accounts")).json()["items"]
    assert account["blocks"] == []


async def test_a_termination_permit_is_shown_with_who_gave_it_and_why_until_it_ends(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    async def shown() -> Any:
        return (await operator.http.get("/v1/operator/provider-accounts")).json()["items"][0][
            "termination_permit"
        ]

    assert await shown() is None
    order = {"account": "fake", "why": "ticket 4711: slices", "minutes": 30}
    made = await operator.http.post("/v1/operator/termination-permits", json=order)
    assert made.status_code == 201
    permit = made.json()
    assert (permit["account"], permit["why"]) == ("fake", "ticket 4711: slices")
    assert permit["actor"].startswith("sa_")
    assert datetime.fromisoformat(permit["until"]) - datetime.fromisoformat(permit["at"]) == timedelta(
        minutes=30
    )
    assert await shown() == permit
    api.clock.advance(30 * 60)
    assert await shown() is None
    for account in ("nobody", "fake/other"):
        refused = await operator.http.post(
            "/v1/operator/termination-permits", json=order | {"account": account}
        )
        hold(refused, "account_unknown")
