"""The endpoints of those who run the installation: they reach every tenant, so they must not be a tenant's."""

from typing import Any

import httpx

from tests.support.hostile_tenant.way import Call, Stand, Way

_ONE = "/v1/operator/organizations/{organization}"


def _way(name: str, event: str, method: str, path: str, body: Any = None, **query: str) -> Way:
    call = Call(method, path, body, query)

    async def control(stand: Stand) -> httpx.Response:
        return await call.send(stand.as_operator(), stand.mine)

    return Way(
        name=name,
        why="the endpoint is there for every key, and reads or changes any organization",
        attempt=call.send,
        refused="permission_denied",
        control=control,
        event=event,
        by_operator=True,
    )


WAYS = (
    _way("list all organizations", "organizations.read_all", "GET", "/v1/operator/organizations"),
    _way("list all quota requests", "organizations.read_all", "GET", "/v1/operator/quota-requests"),
    _way("list all proofs", "proof_records.read", "GET", "/v1/operator/proofs"),
    _way("read the ceiling of an organization", "organizations.read_all", "GET", f"{_ONE}/envelope"),
    _way("read an organization's quota requests", "organizations.read_all", "GET", f"{_ONE}/quota-requests"),
    _way("read an organization as an operator", "organizations.read_all", "GET", _ONE),
    _way("read what became of an organization", "organizations.read_all", "GET", f"{_ONE}/history"),
    _way("reconcile an organization's money", "organizations.read_all", "GET", f"{_ONE}/reconciliation"),
    _way(
        "read the decisions on an organization's requests",
        "organizations.read_all",
        "GET",
        f"{_ONE}/admission-decisions",
    ),
    _way(
        "set the ceiling of an organization", "envelopes.set_ceiling", "PUT", f"{_ONE}/envelope", {"gpus": 64}
    ),
    _way(
        "end a lease of an organization",
        "leases.end",
        "POST",
        f"{_ONE}/leases/{{second lease}}/end",
        {"reason": "it stands in my way"},
    ),
    _way(
        "read an organization's audit log",
        "audit.read_all",
        "GET",
        "/v1/operator/audit-events",
        chain="{organization}",
    ),
    _way(
        "export an organization's audit log",
        "audit.read_all",
        "GET",
        "/v1/operator/audit-events/export",
        chain="{organization}",
    ),
)
