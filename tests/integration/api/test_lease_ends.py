"""Operators end a single lease of a customer: what ends, what its customer reads, and what stays."""

import pytest

from control_plane.domain.ids import Prefix, on_wire
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.problems import hold
from tests.integration.api.test_node_pools import made_pool, ready_cluster
from tests.support.stage import Stage

pytestmark = pytest.mark.database
REASON = {"reason": "mines coins, ticket 4711"}


def _end(tenant: Tenant, lease: str) -> str:
    return f"/v1/operator/organizations/{on_wire(Prefix.ORGANIZATION, tenant.id)}/leases/{lease}/end"


async def test_an_operator_ends_one_lease_and_its_customer_reads_why(
    stage: Stage, acme: Tenant, other: Tenant, operator: Tenant
) -> None:
    lease, kept = await acme.lease(), await acme.lease()
    await stage.play(300)
    assert (await acme.http.get(f"/v1/leases/{lease}")).json()["state"] == "ready"

    hold(await operator.http.post(_end(other, lease), json=REASON), "lease_not_found")
    hold(await acme.http.post(_end(acme, lease), json=REASON), "permission_denied")
    hold(await operator.http.post(_end(acme, lease), json={"reason": ""}), "invalid_request")
    ended = await operator.http.post(_end(acme, lease), json=REASON)
    assert ended.status_code == 202, ended.text
    now = stage.clock.now()
    assert (ended.json()["state"], ended.json()["end_reason"]) == ("ending", "ended_by_operator")

    read = (await acme.http.get(f"/v1/leases/{lease}")).json()
    assert read["end_why"] == ended.json()["end_why"] == "an operator ended it: mines coins, ticket 4711"
    assert read["billed_until"] <= now.isoformat().replace("+00:00", "Z")
    (line,) = [
        line
        for line in (await acme.http.get(f"/v1/leases/{lease}/journal")).json()["items"]
        if line["event"] == "ended_by_operator"
    ]
    assert line["actor_kind"] == "operator"
    await stage.run("seal_audit")
    for tenant in (acme, operator):
        found = await tenant.http.get("/v1/audit-events", params={"event": "leases.end"})
        assert any(lease in each["targets"] for each in found.json()["items"]), found.text
    assert (await acme.http.get(f"/v1/leases/{kept}")).json()["state"] == "ready"
    assert (await acme.http.get("/v1/organization")).json()["state"] == "active"

    stage.clock.advance(60)
    again = (await operator.http.post(_end(acme, lease), json={"reason": "once more"})).json()
    assert again["billed_until"] == ended.json()["billed_until"]
    assert again["end_why"] == ended.json()["end_why"]
    await stage.play(600)
    assert (await acme.http.get(f"/v1/leases/{lease}")).json()["state"] == "ended"
    assert (await operator.http.post(_end(acme, lease), json=REASON)).json()["state"] == "ended"
    await acme.http.post(f"/v1/leases/{kept}/release")
    await stage.finish()


async def test_a_lease_without_a_machine_ends_without_a_bill(
    stage: Stage, acme: Tenant, operator: Tenant
) -> None:
    lease = await acme.lease()
    ended = (await operator.http.post(_end(acme, lease), json=REASON)).json()
    assert (ended["state"], ended["billed_until"]) == ("ending", None)
    await stage.play(60)
    assert (await acme.http.get(f"/v1/leases/{lease}")).json()["state"] == "ended"
    await stage.finish()


async def test_a_node_is_not_ended_alone_because_its_pool_would_replace_it(
    api: Api, acme: Tenant, operator: Tenant
) -> None:
    await ready_cluster(api, operator, "eu-1")
    await made_pool(acme.http, "eu-1")
    (node, *_) = (await acme.http.get("/v1/leases")).json()["items"]
    refused = await operator.http.post(_end(acme, node["id"]), json=REASON)
    hold(refused, "lease_of_node_pool")
    assert "suspend the organization" in refused.json()["detail"]
    assert (await acme.http.get(f"/v1/leases/{node['id']}")).json()["state"] == "placing"
