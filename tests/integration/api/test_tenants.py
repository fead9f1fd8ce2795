"""Tenants never meet: what belongs to another one does not exist, and lists show one's own."""

import pytest

from control_plane.domain.audit import Origin
from control_plane.domain.ids import Prefix, UserId, off_wire, on_wire
from control_plane.domain.period import MAIN_ISSUER
from control_plane.services import sessions
from tests.integration.api.conftest import Api, ProofOf, Tenant
from tests.integration.api.endpoints import ENDPOINTS, PUBLIC_KEY, SSH_KEY
from tests.integration.api.problems import hold
from tests.integration.api.test_node_pools import made_pool, node_of, ready_cluster
from tests.integration.db.sample import a_row, insert
from tests.support.cases import case

pytestmark = pytest.mark.database


async def test_what_belongs_to_another_tenant_does_not_exist(
    api: Api, acme: Tenant, other: Tenant, operator: Tenant, proof_of: ProofOf
) -> None:
    lease = await other.lease()
    key = {"name": "theirs", "public_key": SSH_KEY}
    theirs = {
        "le": lease,
        "prj": (await other.http.post("/v1/projects", json={"name": "theirs"})).json()["id"],
        "pf": await proof_of(other, lease),
        "ssh": (await other.http.post("/v1/ssh-keys", json=key)).json()["id"],
        "user": (await other.http.post("/v1/users", json={"email": "ada@example.com", "name": "Ada"})).json()[
            "id"
        ],
        "sa": (await other.http.post("/v1/service-accounts", json={"name": "ci"})).json()["id"],
        "rb": (await other.http.get("/v1/role-bindings")).json()["items"][0]["id"],
        "key": (await other.http.post("/v1/api-keys", json={"name": "second"})).json()["key"]["id"],
    }
    quota = {"limits": {"gpus": 128}, "reason": "a larger model"}
    theirs["qr"] = (await other.http.post("/v1/quota-requests", json=quota)).json()["id"]
    quoted = (await other.http.post("/v1/quotes", json={"sku": "h100x1", "keep": True})).json()
    theirs["qt"] = quoted.get("id") or f"qt_{0:032x}"
    theirs["ses"] = await _session_of(api, other, theirs["user"])
    cluster = await ready_cluster(api, operator, "eu-1")
    pool = await made_pool(other.http, "eu-1")
    theirs["np"] = pool["id"]
    (of_pool, *_) = [
        lease for lease in (await other.http.get("/v1/leases")).json()["items"] if lease["node_pool"]
    ]
    theirs["nd"] = f"nd_{(await node_of(api, other, cluster, pool, of_pool)).hex}"
    asked = {"name": "laptop", "public_key": PUBLIC_KEY}
    theirs["kc"] = (await other.http.post("/v1/clusters/eu-1/kubeconfigs", json=asked)).json()["id"]
    theirs["exp"] = (await other.http.post("/v1/exports", json={"period": "2026-11"})).json()["id"]
    invoice = a_row("invoices", other.id, issuer=MAIN_ISSUER)
    note = a_row("credit_notes", other.id, issuer=MAIN_ISSUER, invoice_id=invoice["id"])
    async with api.world.db.transaction(operator.id) as connection:
        await insert(connection, "invoices", invoice)
        await insert(connection, "credit_notes", note)
    theirs["inv"] = f"inv_{invoice['id'].hex}"
    theirs["cn"] = f"cn_{note['id'].hex}"
    assert (await other.http.get(f"/v1/invoices/{theirs['inv']}")).status_code == 200
    assert (await other.http.get(f"/v1/credit-notes/{theirs['cn']}")).status_code == 200
    for endpoint in ENDPOINTS:
        if not endpoint.id_prefix or not endpoint.for_customers:
            continue
        for outsider in (acme, operator):
            with case(endpoint):
                path = endpoint.at(theirs[endpoint.id_prefix])
                answer = await outsider.http.request(endpoint.method, path, json=endpoint.body)
                hold(answer, "lease_not_found", "not_found")
    assert (await other.http.get(f"/v1/leases/{lease}")).json()["state"] == "placing"
    keys = (await other.http.get("/v1/api-keys")).json()["items"]
    assert [key["revoked_at"] for key in keys] == [None, None]
    assert len((await other.http.get("/v1/ssh-keys")).json()["items"]) == 1
    assert [session["ended_at"] for session in (await other.http.get("/v1/sessions")).json()["items"]] == [
        None
    ]


async def _session_of(api: Api, tenant: Tenant, user: str) -> str:
    user_id = UserId(off_wire(Prefix.USER, user))
    async with api.world.db.transaction(tenant.id) as connection:
        session_id, _ = await sessions.begin(
            connection,
            api.world,
            tenant.id,
            user_id,
            client="laptop",
            address="198.51.100.7",
            origin=Origin(None, "req_1"),
        )
    return on_wire(Prefix.SESSION, session_id)


async def test_lists_show_one_tenant_only(acme: Tenant, other: Tenant) -> None:
    mine, theirs = await acme.lease(), await other.lease()
    assert [lease["id"] for lease in (await acme.http.get("/v1/leases")).json()["items"]] == [mine]
    assert [lease["id"] for lease in (await other.http.get("/v1/leases")).json()["items"]] == [theirs]
