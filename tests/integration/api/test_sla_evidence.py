"""The evidence of a broken promise over HTTP: the facts by which it was found."""

from datetime import datetime

import pytest
from sqlalchemy import text

from tests.integration.api.conftest import Tenant
from tests.support.promises import put_terms_in_force
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database
_STORED = text("SELECT evidence FROM sla_breaches")


async def _machine_failed(stage: Stage, tenant: Tenant) -> str:
    """A gold lease whose machine failed for twenty minutes; fifteen are promised."""
    await stage.organization()
    await put_terms_in_force(stage)
    lease_id = await tenant.lease(sla="gold")
    await stage.play(120, step=10)
    (machine,) = stage.cloud.machines.values()
    machine.failed = True
    await stage.play(1_200, step=60)
    machine.failed = False
    await stage.play(700, step=100)
    return lease_id


async def test_a_broken_promise_has_the_facts_by_which_it_was_found_with_their_sources(
    stage: Stage, acme: Tenant
) -> None:
    lease_id = await _machine_failed(stage, acme)
    (breach,) = (await acme.http.get(f"/v1/leases/{lease_id}/sla")).json()["breaches"]
    assert breach["promise"] == "replacement"
    async with stage.db.reading() as connection:
        (row,) = await rows(connection, _STORED)
    (down,) = row.evidence["down"]
    (told,) = [fact for fact in breach["evidence"] if fact["source"] == "bill"]
    assert [datetime.fromisoformat(told[key]) for key in ("at", "until")] == [
        datetime.fromisoformat(down[key]) for key in ("since", "until")
    ]
    assert told["what"].startswith("not available for 1,")
    assert "its machine had failed, or was being replaced; nothing was billed" in told["what"]
    said = [fact for fact in breach["evidence"] if fact["source"] == "provider"]
    assert any("was lost: its provider lists it as down" in fact["what"] for fact in said)
    report = (await acme.http.get("/v1/sla-report")).json()
    assert report["items"][0]["evidence"] == breach["evidence"]
