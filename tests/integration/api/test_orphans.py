"""Orphans over HTTP."""

import pytest

from control_plane.db import accounts
from tests.integration.api.conftest import Api, Tenant
from tests.support.stage import Stage

pytestmark = pytest.mark.database


async def test_an_operator_sees_machines_that_no_record_claims(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    stage.plant()
    await stage.play(10)
    orphans = (await operator.http.get("/v1/operator/orphans")).json()["items"]
    assert [orphan["account"] for orphan in orphans] == ["fake"]
    assert orphans[0]["launch_key"] in stage.planted


async def test_an_orphan_that_was_terminated_is_on_record_for_thirty_days(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    planted = stage.plant()
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
    assert orphan["note"] == "gone after its termination was requested"
    for days, kept in ((29, 1), (2, 0)):
        stage.clock.advance(days * 86_400)
        await stage.run("prune_records")
        async with stage.db.reading() as connection:
            assert len(await accounts.orphans_shown(connection, gone=True)) == kept, days


async def test_an_operator_decides_to_terminate_an_orphan_and_it_is_shown_with_who_and_why(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    planted = stage.plant()
    await stage.play(10)
    ref, path = planted.provider_ref, "/v1/operator/orphan-terminations"
    body = {"account": "fake", "provider_refs": [ref], "why": "ticket 4711"}
    for name, wrong in (
        ("another id", {"provider_refs": [ref, "no-such-machine"]}),
        ("another account", {"account": "other"}),
    ):
        refused = await operator.http.post(path, json=body | wrong)
        assert (refused.status_code, refused.json()["code"]) == (422, "orphan_unknown"), name
    (orphan,) = (await operator.http.get("/v1/operator/orphans")).json()["items"]
    assert (orphan["held_code"], orphan["termination"]) == ("watched", None), "all or none are decided"
    (decided,) = (await operator.http.post(path, json=body)).json()["items"]
    assert (decided["provider_ref"], decided["why"]) == (ref, "ticket 4711")
    assert decided["actor"].startswith("key_")
    (orphan,) = (await operator.http.get("/v1/operator/orphans")).json()["items"]
    assert orphan["termination"] == decided
