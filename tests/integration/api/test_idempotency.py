"""One effect per Idempotency-Key, on every POST."""

import asyncio
import hashlib
import hmac
import itertools
import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import text

from control_plane.domain.money import NANO_PER_CENT
from control_plane.domain.organization import OrganizationState
from control_plane.domain.period import MAIN_ISSUER
from control_plane.services import principals
from control_plane.world import uuid7
from tests.integration.api.conftest import Api, Shared, Tenant, tenant_in, top_up
from tests.integration.api.endpoints import (
    ENDPOINTS,
    PUBLIC_KEY,
    SERVER_HOST,
    SSH_KEY,
    SUPPLIER_PART,
    Endpoint,
)
from tests.integration.api.problems import hold
from tests.integration.api.test_node_pools import made_pool, node_of, ready_cluster
from tests.integration.api.test_ssh_certificates import ready
from tests.integration.db.sample import a_row, insert
from tests.support.rows import rows

pytestmark = pytest.mark.database
POSTS = [endpoint for endpoint in ENDPOINTS if endpoint.method == "POST"]
BEFORE = {
    "suspensions": OrganizationState.ACTIVE,
    "resumptions": OrganizationState.SUSPENDED,
    "closures": OrganizationState.ACTIVE,
    "deletions": OrganizationState.CLOSED,
}
"""The state in which an organization has to be for the last word of a path."""
PROJECT = text("SELECT id FROM projects WHERE organization_id = :id")
_NUMBERS = itertools.count(1)
KEY = {"Idempotency-Key": "order 66 / 7f3a"}


_FINANCE = tuple(
    f"/v1/finance/{things}"
    for things in ("periods", "transactions", "credit-notes", "price-agreements", "supplier-", "sla-credits")
)


async def _path(endpoint: Endpoint, shared: Shared) -> str:
    if "{node}" in endpoint.path:
        return await _of_a_node(endpoint, shared)
    if "kubeconfigs" in endpoint.path or endpoint.path.endswith("{cluster}/key-rotations"):
        return await _of_a_kubeconfig(endpoint, shared)
    if endpoint.id_prefix == "le" or "ssh-certificates" in endpoint.path:
        return await _of_a_lease(endpoint, shared)
    if "{quota_request_id}" in endpoint.path:
        return await _of_a_quota_request(endpoint, shared)
    if endpoint.id_prefix in {"user", "sa", "key", "prj"} or endpoint.path == "/v1/role-bindings":
        return endpoint.at(await _of_the_organization(endpoint, shared))
    if endpoint.path.startswith(_FINANCE):
        return await _of_finance(endpoint, shared)
    if "{action_id}" in endpoint.path or "{detector}" in endpoint.path:
        return await _of_enforcement(endpoint, shared)
    if endpoint.path.endswith("/orphan-decisions") or endpoint.id_prefix in {"li", "mc"}:
        is_machine = endpoint.id_prefix == "mc"
        return await (_of_a_machine if is_machine else _of_an_orphan)(endpoint, shared)
    if endpoint.path.startswith(("/v1/operator/clusters", "/v1/operator/server-hosts", "/v1/node-pools")):
        return await _of_clusters(endpoint, shared)
    return await _of_an_organization(endpoint, shared)


async def _of_an_organization(endpoint: Endpoint, shared: Shared) -> str:
    """An organization in the state in which the request is possible, or a lease of one."""
    if "{lease_id}" in endpoint.path:
        path = endpoint.path.replace("{organization_id}", f"org_{shared.acme.id.hex}")
        return path.replace("{lease_id}", await shared.acme.lease())
    state = BEFORE.get(endpoint.path.rpartition("/")[2])
    if state is not None:
        name = f"{state} {next(_NUMBERS)}"
        return endpoint.at(f"org_{(await tenant_in(shared.api, shared.operator, state, name)).id.hex}")
    return endpoint.at(f"org_{shared.acme.id.hex}")


async def _of_a_lease(endpoint: Endpoint, shared: Shared) -> str:
    if "ssh-certificates" in endpoint.path:
        return await _of_a_ready_lease(endpoint, shared)
    if endpoint.path.endswith(("/reboot", "/stop", "/start", "/replace")):
        return await _of_a_machine_to_switch(endpoint, shared)
    return endpoint.at(await shared.operator.lease())


async def _of_a_ready_lease(endpoint: Endpoint, shared: Shared) -> str:
    """A lease that is ready, and a certificate of it for what is done to one."""
    lease = await ready(shared.api, shared.operator)
    if "{certificate_id}" not in endpoint.path:
        return endpoint.at(lease)
    body = {"key": SSH_KEY}
    asked = await shared.operator.http.post(f"/v1/leases/{lease}/ssh-certificates", json=body)
    path = endpoint.path.replace("{certificate_id}", asked.json()["id"])
    return path.replace("{lease_id}", lease)


async def _of_a_machine_to_switch(endpoint: Endpoint, shared: Shared) -> str:
    lease = await ready(shared.api, shared.operator)
    await add_machine(shared.api, shared.operator, lease, number=7_000 + next(_NUMBERS))
    return endpoint.at(lease)


async def _of_a_machine(endpoint: Endpoint, shared: Shared) -> str:
    """A verified machine, which is out for maintenance if it is to be returned."""
    lease, number = await ready(shared.api, shared.operator), 8_000 + next(_NUMBERS)
    await add_machine(shared.api, shared.operator, lease, number=number)
    machine = f"mc_{a_row('machines', shared.operator.id, number)['id'].hex}"
    if endpoint.path.endswith("/return"):
        taken = await shared.operator.http.post(
            f"/v1/operator/machines/{machine}/maintenance", json={"why": "ticket 4711"}
        )
        assert taken.is_success, taken.text
    return endpoint.at(machine)


async def add_machine(api: Api, tenant: Tenant, lease: str, *, number: int) -> None:
    """Give a ready lease a machine with whose power everything can be done."""
    machine = a_row("machines", tenant.id, number, account="fake", gpu_count=1, state="verified")
    machine["asked_at"] = machine["created_at"]
    async with api.owner.db.transaction() as connection:
        await insert(connection, "machines", machine)
        await connection.execute(
            _CLAIM,
            {"id": machine["id"], "lease": UUID(hex=lease.removeprefix("le_")), "now": machine["created_at"]},
        )


_CLAIM = text("""
INSERT INTO claims (id, organization_id, project_id, lease_id, machine_id, attempt, due_at, claimed_at, admitted_at)
SELECT :id, organization_id, project_id, id, :id, 1, :now, :now, :now FROM leases WHERE id = :lease
""")


async def _of_a_quota_request(endpoint: Endpoint, shared: Shared) -> str:
    """A new quota request: of acme for its ceiling, or of the platform's organization for its own default project.

    Nobody decides on what they asked for themselves, so another service account asks.
    """
    operator, wanted = shared.operator.http, {"limits": {"gpus": 64}, "reason": "more"}
    if endpoint.id_prefix == "org":
        asked = await shared.acme.http.post("/v1/quota-requests", json=wanted)
        path = endpoint.path.replace("{quota_request_id}", asked.json()["id"])
        return path.replace("{organization_id}", f"org_{shared.acme.id.hex}")
    headers = {}
    if not endpoint.path.endswith("/withdraw"):
        account = {"name": f"asker {next(_NUMBERS)}"}
        asker = (await operator.post("/v1/service-accounts", json=account)).json()["id"]
        await operator.post(
            "/v1/role-bindings", json={"subject": asker, "role": "admin", "scope": {"kind": "organization"}}
        )
        key = await operator.post("/v1/api-keys", json={"name": "asker", "subject": asker})
        headers = {"Authorization": f"Bearer {key.json()['secret']}"}
    asked = await operator.post("/v1/quota-requests", json=wanted | {"project": "default"}, headers=headers)
    assert asked.is_success, asked.text
    return endpoint.at(asked.json()["id"])


async def _of_the_organization(endpoint: Endpoint, shared: Shared) -> str:
    """A new user, service account, key or project of the platform's organization."""
    http, number = shared.operator.http, next(_NUMBERS)
    if endpoint.id_prefix == "key":
        return str((await http.post("/v1/api-keys", json={"name": "x"})).json()["key"]["id"])
    if endpoint.id_prefix == "prj":
        return str((await http.post("/v1/projects", json={"name": f"project of {number}"})).json()["id"])
    if endpoint.id_prefix == "user":
        user = {"email": f"ada{number}@example.com", "name": "Ada"}
        return str((await http.post("/v1/users", json=user)).json()["id"])
    account = (await http.post("/v1/service-accounts", json={"name": f"account {number}"})).json()["id"]
    if endpoint.path == "/v1/role-bindings":
        (endpoint.body or {})["subject"] = account
    return str(account)


async def _of_finance(endpoint: Endpoint, shared: Shared) -> str:
    """A customer or an invoice in the endpoint's body; or a month that is over, and closed already if it is to be reopened."""
    if endpoint.path == "/v1/finance/credit-notes":
        return await _of_an_invoice(endpoint, shared)
    if endpoint.path.startswith("/v1/finance/supplier-"):
        return await _of_a_supplier(endpoint, shared)
    if endpoint.id_prefix == "br":
        return await _of_a_credit(endpoint, shared)
    if endpoint.path.startswith("/v1/finance/price-agreements"):
        return await _of_a_price(endpoint, shared)
    if "{month}" not in endpoint.path:
        if endpoint.body and "organization_id" in endpoint.body:
            endpoint.body["organization_id"] = f"org_{shared.acme.id.hex}"
        return endpoint.path
    number = next(_NUMBERS)
    path = endpoint.path.replace("{month}", f"{1990 + number // 12}-{number % 12 + 1:02}")
    if path.endswith("/reopen"):
        closed = await shared.operator.http.post(path.replace("/reopen", "/close"))
        assert closed.is_success, closed.text
    return path


async def _of_a_credit(endpoint: Endpoint, shared: Shared) -> str:
    """A broken promise with a credit that waits for a decision."""
    number, whose = 6_000 + next(_NUMBERS), shared.acme.id
    lease_id = UUID((await ready(shared.api, shared.acme)).removeprefix("le_"))
    async with shared.api.owner.db.transaction() as connection:
        found = await rows(connection, text("SELECT project_id FROM leases WHERE id = :id"), id=lease_id)
        terms = a_row("sla_terms", whose, effective_from=datetime(2999, 1, 1, tzinfo=UTC))
        if not await rows(connection, text("SELECT FROM sla_terms")):
            await insert(connection, "sla_terms", terms)
        breach = a_row("sla_breaches", whose, number, lease_id=lease_id, project_id=found[0].project_id)
        of_breach = {"breach_id": breach["id"]}
        await insert(connection, "sla_breaches", breach)
        await insert(connection, "sla_assessments", a_row("sla_assessments", whose, 1, **of_breach))
        await insert(connection, "sla_undecided", a_row("sla_undecided", whose, 1, assessment=1, **of_breach))
    return endpoint.at(f"br_{breach['id'].hex}")


async def _of_a_price(endpoint: Endpoint, shared: Shared) -> str:
    """A price of a region that has none yet in the endpoint's body, or an agreement to end."""
    body = {
        "organization_id": f"org_{shared.acme.id.hex}",
        "sku": "h100x1",
        "usd_per_unit_hour": "2.19",
        "reason": "contract 17",
        "region": f"eu-{next(_NUMBERS)}",
    }
    if endpoint.id_prefix is None:
        (endpoint.body or {}).update(body)
        return endpoint.path
    made = await shared.operator.http.post("/v1/finance/price-agreements", json=body)
    return endpoint.at(made.json()["id"])


async def _of_an_invoice(endpoint: Endpoint, shared: Shared) -> str:
    """An issued invoice in the endpoint's body."""
    number = next(_NUMBERS)
    month = datetime(2000 + number // 12, number % 12 + 1, 1, tzinfo=UTC)
    invoice = a_row("invoices", shared.acme.id, issuer=MAIN_ISSUER, period=month, subtotal_cents=150)
    invoice |= {"id": uuid7(), "number": f"INV-{number}", "usage_nano": 150 * NANO_PER_CENT}
    used = dict.fromkeys(("project", "sku"), "a") | dict.fromkeys(("nano_per_unit_hour", "unit_seconds"), 1)
    async with shared.api.owner.db.transaction() as connection:
        project = (await rows(connection, PROJECT, id=shared.acme.id))[0].id
        line = a_row("invoice_lines", shared.acme.id, 1, invoice_id=invoice["id"], kind="usage", cents=150)
        line |= used | {"project_id": project, "used_in": month, "purchase": "spot", "unit": "gpu"}
        line |= {"number": 1, "stopped": False, "unused": False, "sla": "bronze"} | dict.fromkeys(
            ("credit_id", "lease_id", "reason")
        )
        await insert(connection, "invoices", invoice)
        await insert(connection, "invoice_lines", line)
    assert endpoint.body is not None
    endpoint.body["invoice_id"] = f"inv_{invoice['id'].hex}"
    return endpoint.path


async def _of_a_supplier(endpoint: Endpoint, shared: Shared) -> str:
    """A supplier's file that is uploaded, its import, and for what is voided, its posting."""
    if endpoint.path == "/v1/finance/supplier-uploads":
        return endpoint.path
    http, number = shared.operator.http, next(_NUMBERS)
    wanted = {"provider": "fake", "period": "2026-11"}
    upload = (await http.post("/v1/finance/supplier-uploads", json=wanted)).json()["id"]
    if "{upload_id}" in endpoint.path:
        return endpoint.at(upload)
    part = SUPPLIER_PART | {"csv": str(SUPPLIER_PART["csv"]).replace("fake-1", f"fake-{number}")}
    stored = await http.post(f"/v1/finance/supplier-uploads/{upload}/parts", json=part)
    assert stored.is_success, stored.text
    whole = {"upload_id": upload, "parts": 1}
    if endpoint.path == "/v1/finance/supplier-invoices":
        (endpoint.body or {}).update(whole)
        return endpoint.path
    invoice = (await http.post("/v1/finance/supplier-invoices", json=whole)).json()["id"]
    if endpoint.path.endswith("/voids"):
        posted = await http.post(
            f"/v1/finance/supplier-invoices/{invoice}/postings",
            json={"reason": "ticket"},
            headers={"Idempotency-Key": f"posting {number}"},
        )
        assert posted.is_success, posted.text
    return endpoint.at(invoice)


async def _of_enforcement(endpoint: Endpoint, shared: Shared) -> str:
    """A detector, or an action that is in force."""
    if "{detector}" in endpoint.path:
        return endpoint.path.replace("{detector}", "idle")
    tenant, number = shared.operator, 9_000 + next(_NUMBERS)
    lease = await ready(shared.api, tenant)
    await add_machine(shared.api, tenant, lease, number=number)
    ids = {name: a_row("machines", tenant.id, number)["id"] for name in ("machine_id", "claim_id")}
    ids["lease_id"] = UUID(hex=lease.removeprefix("le_"))
    async with shared.api.owner.db.transaction() as connection:
        ids["project_id"] = (await rows(connection, PROJECT, id=tenant.id))[0].id
        finding = a_row("findings", tenant.id, number, **ids)
        action = a_row("enforcement_actions", tenant.id, number, finding_id=finding["id"], **ids)
        await insert(connection, "findings", finding)
        await insert(connection, "enforcement_actions", action)
    return endpoint.at(f"ea_{action['id'].hex}")


async def _of_clusters(endpoint: Endpoint, shared: Shared) -> str:
    """A new name in the endpoint's body, and a free server host; for what is done to a cluster, a cluster."""
    if endpoint.path.startswith("/v1/node-pools"):
        return await _of_node_pools(endpoint, shared)
    operator, name = shared.operator.http, f"made {next(_NUMBERS)}"
    if endpoint.body is not None:
        endpoint.body["name"] = name
    if "server-hosts" in endpoint.path:
        return endpoint.path
    host = await operator.post("/v1/operator/server-hosts", json=SERVER_HOST | {"name": f"of {name}"})
    assert host.is_success, host.text
    if "{cluster}" in endpoint.path:
        made = await operator.post("/v1/operator/clusters", json={"name": name, "region": "eu-central-1"})
        return endpoint.path.replace("{cluster}", made.json()["id"])
    return endpoint.path


_READY = text("""
UPDATE clusters SET state = 'ready', version = 'v1', endpoint = 'https://k8s.example.com', ca_pem = '' WHERE id = :id
""")
_ISSUED = text(
    "UPDATE kubeconfigs SET issued_at = requested_at, expires_at = requested_at + interval '1 day'"
)


async def _of_a_kubeconfig(endpoint: Endpoint, shared: Shared) -> str:
    """A cluster that is ready, as far as the API can tell, and a kubeconfig of it for what is done to one."""
    operator, name = shared.operator.http, f"made {next(_NUMBERS)}"
    await operator.post("/v1/operator/server-hosts", json=SERVER_HOST | {"name": f"of {name}"})
    made = await operator.post("/v1/operator/clusters", json={"name": name, "region": "eu-central-1"})
    cluster = made.json()["id"]
    async with shared.api.owner.db.transaction() as connection:
        await connection.execute(_READY, {"id": UUID(hex=cluster.removeprefix("cl_"))})
    if "{cluster}" in endpoint.path:
        return endpoint.path.replace("{cluster}", cluster)
    wanted = {"name": "laptop", "public_key": PUBLIC_KEY}
    asked = await operator.post(f"/v1/clusters/{cluster}/kubeconfigs", json=wanted)
    async with shared.api.owner.db.transaction() as connection:
        await connection.execute(_ISSUED)
    return endpoint.at(asked.json()["id"])


async def _of_node_pools(endpoint: Endpoint, shared: Shared) -> str:
    """A ready cluster and a new name in the endpoint's body; for what is done to a node pool, a node pool."""
    cluster, name = f"cluster-{next(_NUMBERS)}", f"pool-{next(_NUMBERS)}"
    await ready_cluster(shared.api, shared.operator, cluster)
    if endpoint.body is not None and "{" not in endpoint.path:
        endpoint.body.update(cluster=cluster, name=name)
        return endpoint.path
    return endpoint.at(str((await made_pool(shared.operator.http, cluster, name=name, nodes=1))["id"]))


_OPEN = text("UPDATE nodes SET state = 'ready', ready_at = created_at WHERE id = :id")


async def _of_a_node(endpoint: Endpoint, shared: Shared) -> str:
    """A node that is ready, as far as the API can tell."""
    cluster, http = f"cluster-{next(_NUMBERS)}", shared.operator.http
    cluster_id = await ready_cluster(shared.api, shared.operator, cluster)
    pool = await made_pool(http, cluster, nodes=1)
    leases = (await http.get("/v1/leases")).json()["items"]
    (lease,) = [each for each in leases if each["node_pool_id"] == pool["id"]]
    number = 100 + next(_NUMBERS)
    node = await node_of(shared.api, shared.operator, cluster_id, pool, lease, number=number)
    async with shared.api.owner.db.transaction() as connection:
        await connection.execute(_OPEN, {"id": node})
    return endpoint.at(f"nd_{node.hex}")


async def _of_an_orphan(endpoint: Endpoint, shared: Shared) -> str:
    if endpoint.id_prefix is None:
        (ref,) = (endpoint.body or {})["provider_refs"]
        await _plant_orphan(shared, ref)
        return endpoint.path
    ref = f"i-{next(_NUMBERS)}"
    await _plant_orphan(shared, ref)
    listed = (await shared.operator.http.get("/v1/operator/liabilities")).json()["items"]
    return endpoint.at(next(each["id"] for each in listed if each["provider_ref"] == ref))


async def _plant_orphan(shared: Shared, ref: str) -> None:
    """Have an orphan listed, unless it is already."""
    listed = (await shared.operator.http.get("/v1/operator/orphans")).json()["items"]
    if any(orphan["provider_ref"] == ref for orphan in listed):
        return
    async with shared.api.owner.db.transaction() as connection:
        await insert(
            connection, "orphans", a_row("orphans", shared.acme.id, provider_ref=ref, account="fake")
        )


async def _post(
    tenant: Tenant, path: str, body: dict[str, Any] | None, key: dict[str, str]
) -> httpx.Response:
    headers = key | ({"Content-Type": "application/json"} if body is not None else {})
    return await tenant.http.post(
        path, content=json.dumps(body) if body is not None else b"", headers=headers
    )


@pytest.mark.parametrize("endpoint", POSTS, ids=str)
async def test_the_same_request_twice_has_one_effect_and_one_answer(
    endpoint: Endpoint, shared: Shared
) -> None:
    operator, path = shared.operator, await _path(endpoint, shared)
    key = {"Idempotency-Key": f"twice: {endpoint}"}
    first = await _post(operator, path, endpoint.body, key)
    assert first.is_success, first.text
    assert "idempotency-replayed" not in first.headers
    again = await _post(operator, path, endpoint.body, key)
    assert again.headers["idempotency-replayed"] == "true"
    assert (again.status_code, again.headers.get("location")) == (
        first.status_code,
        first.headers.get("location"),
    )
    # Except for a secret, which is shown once.
    assert again.json() == first.json() | ({"secret": None} if "secret" in first.json() else {})


async def test_the_same_request_twice_at_once_has_one_effect_and_one_answer(
    api: Api, acme: Tenant, operator: Tenant
) -> None:
    """The second one finds the name taken, or the state changed, by the first; and is still the same request."""
    shared = Shared(api, acme, operator)  # Not that of other tests, which may have taken the names.
    for endpoint in POSTS:
        path = await _path(endpoint, shared)
        key = {"Idempotency-Key": f"at once: {endpoint}"}
        twins = await asyncio.gather(
            *(_post(shared.operator, path, endpoint.body, key) for _ in range(2)),
        )
        assert all(twin.is_success for twin in twins), f"{endpoint}: {[twin.text for twin in twins]}"
        replayed = ["idempotency-replayed" in twin.headers for twin in twins]
        assert sorted(replayed) == [False, True], str(endpoint)
        made = [{name: value for name, value in twin.json().items() if name != "secret"} for twin in twins]
        assert made[0] == made[1], str(endpoint)


async def test_an_answer_is_not_replayed_to_a_key_of_another_role(shared: Shared) -> None:
    """A quote discloses our costs to an operator's key, and not to another key of the same operator that is limited."""
    key, quote = {"Idempotency-Key": "a quote of ours"}, {"sku": "h100x1"}
    shown = await shared.operator.http.post("/v1/quotes", json=quote, headers=key)
    assert shown.is_success, shown.text
    limited = {"name": "limited", "scopes": ["quotes.create"]}
    own = {"Authorization": f"Bearer {shared.operator.secret}"}
    issued = (await shared.operator.http.post("/v1/api-keys", json=limited, headers=own)).json()
    other = {"Authorization": f"Bearer {issued['secret']}"}
    hold(
        await shared.operator.http.post("/v1/quotes", json=quote, headers=key | other),
        "idempotency_key_reused",
    )


@pytest.mark.parametrize("endpoint", POSTS, ids=str)
async def test_a_key_belongs_to_one_request(endpoint: Endpoint, shared: Shared) -> None:
    operator, path = shared.operator, await _path(endpoint, shared)
    key = {"Idempotency-Key": f"of another request: {endpoint}"}
    same = {"Authorization": f"Bearer {operator.secret_for('POST', path)}"}
    made = await operator.http.post("/v1/api-keys", json={"name": "x"}, headers=key | same)
    assert made.status_code == 201
    hold(await _post(operator, path, endpoint.body, key), "idempotency_key_reused")


async def test_the_stored_digest_of_a_request_cannot_be_tried_out_without_its_key(
    acme: Tenant, api: Api
) -> None:
    """A body may hold credentials. Otherwise whoever reads the database could look for those that are easy to guess."""
    body, key = b'{"sku":"h100x1","ssh_key_ids":[]}', KEY["Idempotency-Key"]
    headers = KEY | {"Content-Type": "application/json"}
    assert (await acme.http.post("/v1/leases", content=body, headers=headers)).status_code == 202
    async with api.owner.db.reading() as connection:
        (row,) = await rows(connection, text("SELECT * FROM idempotency_keys"))
    assert key not in str(row)
    principal = await principals.of_secret(api.world, acme.secret)
    assert principal is not None
    head = f"POST /v1/leases {principal.fingerprint}\n".encode()
    for known in (b"", row.key.encode(), bytes.fromhex(row.key), principal.subject.on_wire.encode()):
        assert hmac.digest(known, head + body, "sha256") != row.request_hmac
    for guess in (body, head + body):
        assert hashlib.sha256(guess).digest() != row.request_hmac
    assert hmac.digest(key.encode(), head + body, "sha256") == row.request_hmac, (
        "with the key, it is the digest"
    )


async def test_one_byte_of_difference_is_another_request(acme: Tenant) -> None:
    body = {"sku": "h100x1", "name": "a", "ssh_key_ids": []}
    assert (await _post(acme, "/v1/leases", body, KEY)).status_code == 202
    hold(await _post(acme, "/v1/leases", body | {"name": "b"}, KEY), "idempotency_key_reused")
    assert len((await acme.http.get("/v1/leases")).json()["items"]) == 1


async def test_the_same_request_twice_at_the_same_time_makes_one_lease(acme: Tenant) -> None:
    twins = [_post(acme, "/v1/leases", {"sku": "h100x1", "ssh_key_ids": []}, KEY) for _ in range(4)]
    answers = await asyncio.gather(*twins)
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert [("idempotency-replayed" in answer.headers) for answer in answers].count(False) == 1
    assert len((await acme.http.get("/v1/leases")).json()["items"]) == 1
    assert (await acme.http.get("/v1/organization")).json()["gpus_held"] == 1


async def test_a_refusal_leaves_the_key_free(operator: Tenant, api: Api) -> None:
    poor = await api.tenant("poor", credit=None)
    hold(await _post(poor, "/v1/leases", {"sku": "h100x1", "ssh_key_ids": []}, KEY), "balance_too_low")
    await top_up(operator, f"org_{poor.id.hex}", "100")
    repeated = await _post(poor, "/v1/leases", {"sku": "h100x1", "ssh_key_ids": []}, KEY)
    assert repeated.status_code == 202
    assert "idempotency-replayed" not in repeated.headers


async def test_two_tenants_may_use_the_same_key(acme: Tenant, other: Tenant) -> None:
    mine = await _post(acme, "/v1/leases", {"sku": "h100x1", "ssh_key_ids": []}, KEY)
    theirs = await _post(other, "/v1/leases", {"sku": "h100x1", "ssh_key_ids": []}, KEY)
    assert mine.json()["id"] != theirs.json()["id"]
    assert "idempotency-replayed" not in theirs.headers


async def test_money_moves_once_per_key_and_never_without_one(acme: Tenant, operator: Tenant) -> None:
    body = {
        "organization_id": f"org_{acme.id.hex}",
        "kind": "top_up",
        "amount_usd": "5",
        "reason": "SEPA 815",
    }
    path = "/v1/finance/transactions"
    hold(await operator.http.post(path, json=body), "idempotency_key_missing")
    posted = [await _post(operator, path, body, KEY) for _ in range(3)]
    assert len({answer.json()["id"] for answer in posted}) == 1
    assert (await acme.http.get("/v1/reconciliation")).json()["balance"]["usd"] == "1005.000000000"
