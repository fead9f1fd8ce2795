"""Credits that nothing but the machine shows: finance lists them and decides over HTTP, and the customer reads it."""

import pytest
from sqlalchemy import text

from control_plane.domain.ids import LeaseId, Prefix, off_wire
from tests.integration.api.conftest import Tenant
from tests.integration.api.problems import hold
from tests.support.promises import broken
from tests.support.stage import Stage

pytestmark = pytest.mark.database
WAITING = "/v1/finance/sla-credits"
_DOUBTED = text("""
INSERT INTO sla_assessments (breach_id, number, organization_id, assessed_at, charged_nano, credit_nano, outside_nano,
                             why, evidence)
SELECT breach_id, 2, organization_id, assessed_at, charged_nano, 20, 10, 'a GPU was lost', '{}' FROM sla_assessments
""")
_TRUST = text("""
INSERT INTO sla_trusts (organization_id, month, lease_id, since)
SELECT l.organization_id, date_trunc('month', CAST(:now AS timestamptz), 'UTC'), l.id, :now FROM leases l
WHERE l.name = 'trusted'
""")


async def _waiting(stage: Stage, tenant: Tenant) -> tuple[str, str]:
    """A lease of which half of a credit waits, and the id of the breach."""
    await tenant.lease(name="trusted")
    lease_id = await tenant.lease(name="doubted")
    await stage.play(60)
    await broken(stage, LeaseId(off_wire(Prefix.LEASE, lease_id)))
    async with stage.db.transaction() as connection:
        await connection.execute(_TRUST, {"now": stage.clock.now()})
        await connection.execute(_DOUBTED)
    await stage.run("credit_breaches")
    (breach,) = (await tenant.http.get(f"/v1/leases/{lease_id}/sla")).json()["breaches"]
    return lease_id, breach["id"]


async def test_finance_approves_what_waits_once_and_the_customer_sees_it_at_each_step(
    stage: Stage, acme: Tenant, operator: Tenant
) -> None:
    lease_id, breach_id = await _waiting(stage, acme)
    (shown,) = (await acme.http.get(f"/v1/leases/{lease_id}/sla")).json()["breaches"]
    assert (shown["credit"]["nano"], shown["credited"]["nano"], shown["waiting"]["nano"]) == (20, 10, 10)
    assert shown["waiting_since"]
    assert (await acme.http.get("/v1/sla-report")).json()["items"] == [shown]
    explained = (await acme.http.get(f"/v1/leases/{lease_id}/explanation")).text
    assert "only what we read on the machine shows it" in explained

    (listed,) = (await operator.http.get(WAITING)).json()["items"]
    assert (listed["id"], listed["organization_id"]) == (breach_id, f"org_{acme.id.hex}")
    approve, refuse = (f"{WAITING}/{breach_id}/{verb}" for verb in ("approve", "refuse"))
    once = {"Idempotency-Key": "ticket 7"}
    hold(await acme.http.post(approve, json={"reason": "mine"}, headers=once), "permission_denied")
    hold(
        await operator.http.post(approve, json={}, headers=once | {"Idempotency-Key": "a"}), "invalid_request"
    )
    hold(await operator.http.post(approve, json={"reason": "ticket 7"}), "idempotency_key_missing")
    approved = await operator.http.post(approve, json={"reason": "ticket 7"}, headers=once)
    again = await operator.http.post(approve, json={"reason": "ticket 7"}, headers=once)
    assert (again.status_code, again.json()) == (200, approved.json()), "decided once"
    assert (approved.status_code, approved.json()["waiting"]["nano"]) == (200, 10)
    hold(await operator.http.post(refuse, json={"reason": "no"}), "credit_not_waiting")
    hold(await operator.http.post(f"{WAITING}/br_{'0' * 31}7/refuse", json={"reason": "no"}), "not_found")
    await stage.run("credit_breaches")
    (paid,) = (await acme.http.get(f"/v1/leases/{lease_id}/sla")).json()["breaches"]
    assert (paid["credited"]["nano"], paid["waiting"]["nano"]) == (20, 0)
    assert (await operator.http.get(WAITING)).json()["items"] == []


async def test_finance_refuses_what_waits_and_the_customer_reads_the_reason(
    stage: Stage, acme: Tenant, operator: Tenant
) -> None:
    lease_id, breach_id = await _waiting(stage, acme)
    refused = await operator.http.post(f"{WAITING}/{breach_id}/refuse", json={"reason": "NVML was replaced"})
    assert refused.status_code == 200
    await stage.run("credit_breaches")
    (shown,) = (await acme.http.get(f"/v1/leases/{lease_id}/sla")).json()["breaches"]
    assert (shown["credited"]["nano"], shown["waiting"]["nano"]) == (10, 0)
    assert shown["refused_why"] == "NVML was replaced"
    assert shown["refused_at"]
    assert "NVML was replaced" in (await acme.http.get(f"/v1/leases/{lease_id}/explanation")).text


async def test_credits_that_are_many_are_approved_with_a_key_alone(operator: Tenant) -> None:
    many = {"reason": "provider outage"}
    hold(await operator.http.post("/v1/finance/sla-approvals", json=many), "idempotency_key_missing")
    approved = await operator.http.post(
        "/v1/finance/sla-approvals", json=many, headers={"Idempotency-Key": "outage"}
    )
    assert approved.status_code == 200
