"""Every address of the API, with a request that works: what the tables of bad requests are made of.

A test holds this list against the app's routes, so an address cannot be added without its tests.
"""

from dataclasses import dataclass, field
from typing import Any

SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl you@host"


@dataclass(frozen=True)
class Endpoint:
    method: str
    path: str
    """The route's template; `{...}` is filled by the tests."""
    body: dict[str, Any] | None = None
    """A body that is accepted; None when there is none."""
    query: frozenset[str] = field(default_factory=frozenset)
    operator: bool = False
    open: bool = False
    """Needs no key."""

    @property
    def id_prefix(self) -> str | None:
        for name, prefix in (
            ("{lease_id}", "le"),
            ("{organization_id}", "org"),
            ("{proof_id}", "pf"),
        ):
            if name in self.path:
                return prefix
        if "{key_id}" in self.path:
            return "ssh" if "ssh-keys" in self.path else "key"
        return None

    def at(self, wire_id: str) -> str:
        head, _, rest = self.path.partition("{")
        return head + (wire_id + rest.partition("}")[2] if rest else "")

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def _get(path: str, *query: str, **kwargs: Any) -> Endpoint:
    return Endpoint("GET", path, query=frozenset(query), **kwargs)


ENDPOINTS = (
    _get("/healthz", open=True),
    _get("/readyz", open=True),
    _get("/schema", open=True),
    _get("/schema/openapi.json", open=True),
    _get("/v1/organization"),
    _get("/v1/api-keys"),
    Endpoint("POST", "/v1/api-keys", {"name": "ci", "operator": False}),
    Endpoint("DELETE", "/v1/api-keys/{key_id}"),
    _get("/v1/ssh-keys"),
    Endpoint("POST", "/v1/ssh-keys", {"name": "laptop", "public_key": SSH_KEY}),
    Endpoint("DELETE", "/v1/ssh-keys/{key_id}"),
    _get("/v1/skus"),
    _get("/v1/offers", "gpu_model"),
    Endpoint(
        "POST",
        "/v1/quotes",
        {"sku": "h100x1", "regions": [], "providers": [], "price_usd_per_hour_max": "25"},
    ),
    _get("/v1/leases", "limit", "cursor", "state"),
    Endpoint(
        "POST",
        "/v1/leases",
        {
            "sku": "h100x1",
            "name": "train",
            "regions": [],
            "providers": [],
            "price_usd_per_hour_max": "25.5",
            "ssh_key_ids": [],
        },
    ),
    _get("/v1/leases/{lease_id}"),
    Endpoint("POST", "/v1/leases/{lease_id}/release"),
    _get("/v1/leases/{lease_id}/journal", "limit", "cursor"),
    _get("/v1/leases/{lease_id}/proofs", "limit", "cursor"),
    _get("/v1/leases/{lease_id}/explanation"),
    _get("/v1/leases/{lease_id}/events", "until"),
    _get("/v1/proofs/{proof_id}"),
    _get("/v1/usage", "since", "until", "limit", "cursor"),
    _get("/v1/usage.csv", "since", "until"),
    _get("/v1/bill"),
    _get("/v1/reconciliation"),
    _get("/v1/operator/loops", operator=True),
    _get("/v1/operator/orphans", operator=True),
    _get("/v1/operator/accounts", operator=True),
    _get("/v1/operator/proofs", "account", "outcome", "limit", "cursor", operator=True),
    Endpoint(
        "POST",
        "/v1/operator/ending-permits",
        {"account": "fake", "why": "slices", "minutes": 30},
        operator=True,
    ),
    Endpoint(
        "POST",
        "/v1/operator/organizations",
        {"name": "newcomer", "gpu_quota": 8, "key_name": "first"},
        operator=True,
    ),
    Endpoint(
        "POST", "/v1/operator/organizations/{organization_id}/credits", {"amount_usd": "10"}, operator=True
    ),
)
