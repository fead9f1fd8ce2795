"""Orphans over HTTP."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from control_plane.api import paging
from control_plane.db import accounts, orphans
from control_plane.domain.ids import AccountName, ProviderRef
from control_plane.domain.money import Nano, accrued
from providers.fake import Fault
from providers.listings import REFERENCE_CHARACTERS_MAX
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.problems import hold
from tests.support.rows import rows
from tests.support.stage import Stage
from tests.support.values import a_sighting

pytestmark = pytest.mark.database
DECISIONS = text("SELECT actor_kind, request_id FROM orphan_decisions")


async def test_an_operator_sees_machines_that_no_record_claims(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    await stage.plant()
    await stage.play(10)
    (orphan,) = (await operator.http.get("/v1/operator/orphans")).json()["items"]
    assert orphan["account"] == "fake"
    assert orphan["launch_key"] in stage.planted


async def test_an_orphan_shows_how_it_became_one_and_what_it_burns(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    stage.cloud.faults.script("launch", Fault.FALSE_NO_CAPACITY)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    await stage.play(4)
    (refused, _) = await stage.machines(lease)

    async def shown(path: str) -> dict[str, Any]:
        items = (await operator.http.get(path)).json()["items"]
        return {orphan["launch_key"]: orphan for orphan in items}

    early = (await shown("/v1/operator/orphans"))[refused.launch_key]
    assert (early["origin"], early["origin_why"][:26]) == ("late_success", "The provider refused the o")
    assert early["cost_per_hour"] == {"usd": "2.190000000", "nano": 2_190_000_000}
    await stage.play(300, step=5)
    late = (await shown("/v1/operator/orphans?gone=true"))[refused.launch_key]
    lasted = datetime.fromisoformat(late["gone_at"]) - datetime.fromisoformat(late["first_seen_at"])
    assert late["cost"]["nano"] == accrued(Nano(2_190_000_000), int(lasted.total_seconds()))
    assert timedelta(minutes=2) < lasted < timedelta(minutes=4), "it burns nothing once it is gone"
    known = stage.plant_unrecorded()
    unknown = stage.plant_unrecorded(is_sold=False)
    await stage.play(4)
    strange = await shown("/v1/operator/orphans")
    assert strange[known.launch_key]["cost_per_hour"]["nano"] == 2_190_000_000, "the price of its type"
    assert strange[known.launch_key]["origin"] == "unrecorded"
    assert strange[unknown.launch_key]["cost_per_hour"] is None
    for machine in (known, unknown):
        stage.cloud.disappear(machine.provider_ref)
    await stage.finish()


async def test_an_orphan_that_was_terminated_is_on_record_for_thirty_days(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    planted = await stage.plant()
    await stage.play(130, step=5, without=["collect_orphans"])
    (report,) = await stage.run("collect_orphans")
    assert planted.ended_at is not None
    (line,) = report.events
    assert line.name == "orphan_terminated"
    assert dict(line.facts) == {
        "account": "fake",
        "provider_ref": planted.provider_ref,
        "launch_key": planted.order.launch_key,
        "first_seen_at": line.facts["first_seen_at"],
        "why": line.facts["why"],
    }
    await stage.play(60, step=5)
    assert (await operator.http.get("/v1/operator/orphans")).json()["items"] == []
    (orphan,) = (await operator.http.get("/v1/operator/orphans?gone=true")).json()["items"]
    assert orphan["provider_ref"] == planted.provider_ref
    assert orphan["first_seen_at"] == line.facts["first_seen_at"].replace("+00:00", "Z")
    assert orphan["terminate_asked_at"] <= orphan["gone_at"]
    assert orphan["note"].startswith("terminated: no open record has matched")
    for days, kept in ((29, 1), (2, 0)):
        stage.clock.advance(days * 86_400)
        await stage.run("prune_records")
        async with stage.db.reading() as connection:
            assert len(await orphans.page(connection, gone=True, after=None, limit=10)) == kept, days


async def test_an_operator_decides_to_terminate_an_orphan_and_it_is_shown_with_who_and_why(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    planted = await stage.plant()
    await stage.play(20)
    ref, path = planted.provider_ref, "/v1/operator/orphan-decisions"
    body = {"account": "fake", "provider_refs": [ref], "choice": "end", "why": "ticket 4711"}
    for name, wrong in (
        ("another id", {"provider_refs": [ref, "no-such-machine"]}),
        ("another account", {"account": "other"}),
    ):
        refused = await operator.http.post(path, json=body | wrong)
        assert (refused.status_code, refused.json()["code"]) == (422, "orphan_unknown"), name
    (orphan,) = (await operator.http.get("/v1/operator/orphans")).json()["items"]
    assert (orphan["held_code"], orphan["decision"]) == ("watched", None), "all or none are decided"
    (decided,) = (await operator.http.post(path, json=body)).json()["items"]
    assert (decided["provider_ref"], decided["why"]) == (ref, "ticket 4711")
    assert decided["actor"].startswith("sa_")
    (orphan,) = (await operator.http.get("/v1/operator/orphans")).json()["items"]
    assert orphan["decision"] == decided


async def test_a_foreign_machine_cannot_be_decided_on_and_nobody_can_adopt_without_a_record(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    ours, foreign = stage.plant_unrecorded(), stage.plant_unrecorded(f"sp-00000000-{'a' * 32}")
    await stage.play(20)
    for machine, choice, status, code in (
        (foreign, "end", 422, "orphan_unknown"),
        (foreign, "leave", 422, "orphan_unknown"),
        (ours, "adopt", 409, "orphan_not_adoptable"),
        (ours, "burn", 422, "invalid_request"),
    ):
        body = {"account": "fake", "provider_refs": [machine.provider_ref], "choice": choice, "why": "4711"}
        refused = await operator.http.post("/v1/operator/orphan-decisions", json=body)
        assert (refused.status_code, refused.json()["code"]) == (status, code), choice
    only: dict[str, str] = {"account": "fake", "provider_ref": ours.provider_ref}
    (shown,) = (await operator.http.get("/v1/operator/orphans", params=only)).json()["items"]
    assert (shown["decision"], shown["not_adopted_why"]) == (None, "No record has its launch key.")
    for name, value in (("account", "other"), ("provider_ref", str(foreign.provider_ref))):
        found = await operator.http.get("/v1/operator/orphans", params=only | {name: value})
        assert found.json()["items"] == [], name
    stage.cloud.disappear(foreign.provider_ref)


async def test_whatever_id_a_provider_gives_an_orphan_it_can_be_decided_and_who_did_is_stored(
    api: Api, operator: Tenant
) -> None:
    account = AccountName("odd/ids")
    refs = ["i 1", "x" * REFERENCE_CHARACTERS_MAX, "\u00e9", "a/b", '"', "\\u0000"]
    listed = [replace(a_sighting(number), provider_ref=ProviderRef(ref)) for number, ref in enumerate(refs)]
    now = api.world.now()
    async with api.owner.db.transaction() as connection:
        await accounts.register(connection, account, "odd", now=now)
        await orphans.see(connection, account, listed, believed=True, asked_at=now)
    for fault in (
        '{"gone_at":null,"account":"a","provider_ref":"\\u0000"}',
        '{"gone_at":null}',
        "{",
        "[]",
        "",
    ):
        wrong = {"cursor": paging._pack(f"orphans:{fault}")}
        hold(await operator.http.get("/v1/operator/orphans", params=wrong), "invalid_cursor")
    assert await _pages(operator, limit=1) == await _pages(operator, limit=50) == sorted(refs)
    body = {"account": account, "provider_refs": refs, "choice": "leave", "why": "ticket 4711"}
    answer = await operator.http.post("/v1/operator/orphan-decisions", json=body)
    assert answer.status_code == 201, answer.text
    async with api.owner.db.reading() as connection:
        stored = await rows(connection, DECISIONS)
    request_id = answer.headers["x-request-id"]
    assert [(row.actor_kind, row.request_id) for row in stored] == [("operator", request_id)] * len(refs)


async def _pages(operator: Tenant, *, limit: int) -> list[str]:
    found: list[str] = []
    query: dict[str, str] = {"limit": str(limit)}
    while True:
        page = (await operator.http.get("/v1/operator/orphans", params=query)).json()
        found += [orphan["provider_ref"] for orphan in page["items"]]
        if page["next_cursor"] is None:
            return sorted(found)
        query["cursor"] = page["next_cursor"]
