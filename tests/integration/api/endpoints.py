"""Every endpoint of the API, with the permission it needs and a request that works.

The tests of bad requests and of permissions are made of this table. A test holds it against the routes of the app, so
that no endpoint can be added without its tests.
"""

from dataclasses import dataclass, field
from typing import Any

from control_plane.domain.permission import Permission
from control_plane.domain.role_permissions import OWNER

SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl you@host"

ENVELOPE = {
    "gpus": 64,
    "gpus_of_model": {"h100-sxm-80gb": 64},
    "spend_usd_per_hour_max": "100",
    "spend_usd_per_month_max": "10000",
    "skus": ["h100x1"],
    "regions": ["eu"],
    "providers": ["fake"],
    "tiers": ["listed"],
    "purchases": ["on_demand"],
    "burst": {"over_percent": 50, "seconds": 3_600, "price_percent": 150},
    "ends_after_seconds": 3_600,
}


@dataclass(frozen=True)
class Endpoint:
    method: str
    path: str
    """The route's template; the tests fill in `{...}`."""
    permission: Permission | None
    """None: it needs no key."""
    body: dict[str, Any] | None = None
    """A body that is accepted; None when there is none."""
    query: frozenset[str] = field(default_factory=frozenset)

    @property
    def public(self) -> bool:
        return self.permission is None

    @property
    def for_customers(self) -> bool:
        return self.permission in OWNER

    @property
    def id_prefix(self) -> str | None:
        for name, prefix in (
            ("{organization_id}", "org"),
            ("{lease_id}", "le"),
            ("{liability_id}", "li"),
            ("{session_id}", "ses"),
            ("{node_pool_id}", "np"),
            ("{node}", "nd"),
            ("{proof_id}", "pf"),
            ("{request_id}", "arq"),
            ("{quota_request_id}", "qr"),
            ("{project}", "prj"),
            ("{user_id}", "user"),
            ("{service_account_id}", "sa"),
            ("{role_binding_id}", "rb"),
            ("{kubeconfig_id}", "kc"),
            ("{quote_id}", "qt"),
            ("{machine_id}", "mc"),
            ("{export_id}", "exp"),
            ("{reconciliation_id}", "rec"),
            ("{charge_id}", "ch"),
            ("{invoice_id}", "inv"),
            ("{agreement_id}", "pa"),
            ("{credit_note_id}", "cn"),
            ("{supplier_invoice_id}", "sinv"),
            ("{upload_id}", "sup"),
            ("{action_id}", "ea"),
            ("{breach_id}", "br"),
            ("{repair_id}", "rp"),
        ):
            if name in self.path:
                return prefix
        if "{key_id}" in self.path:
            return "ssh" if "ssh-keys" in self.path else "key"
        return None

    def at(self, wire_id: str) -> str:
        """Its path, with an id in place of the first `{...}`; a second one is a request, an environment or a network."""
        head, _, rest = self.path.replace("{month}", "2026-10").replace("{detector}", "idle").partition("{")
        path = head + (wire_id + rest.partition("}")[2] if rest else "")
        return (
            path.replace("{quota_request_id}", f"qr_{0:032x}")
            .replace("{environment}", "default")
            .replace("/leases/{lease_id}", f"/leases/le_{0:032x}")
            .replace("{rule_id}", f"fw_{0:032x}")
            .replace("{certificate_id}", f"cert_{0:032x}")
            .replace("{console_id}", f"con_{0:032x}")
            .replace("{network}", "default")
            .replace("{file}", "manifest.json")
            .replace("{cluster}", f"cl_{0:032x}")
            .replace("{host}", "k8s-1")
            .replace("{line}", "1")
        )

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def _get(path: str, permission: Permission | None, *query: str) -> Endpoint:
    return Endpoint("GET", path, permission, query=frozenset(query))


def _post(path: str, permission: Permission, body: dict[str, Any] | None = None) -> Endpoint:
    return Endpoint("POST", path, permission, body)


POOL = {
    "name": "h100-eu",
    "sku": "h100x1",
    "region": "eu",
    "machines_max": 4,
    "machines_min": 1,
    "step_max": 2,
    "idle_usd_per_day": "100",
    "waiting_usd_per_hour": "20",
    "policy": "newsvendor",
    "sla": "gold",
    "dry_run": True,
}
SERVER_HOST = {
    "name": "k8s-1",
    "region": "eu-central-1",
    "address": "192.0.2.10",
    "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl",
    "ssh_port": 22,
    "outside": "k8s-1.example.com",
}
BALANCE_ALERTS = {"below_usd": "100", "month_budget_usd": "5000", "budget_percents": [50, 100]}
CREDIT_TERMS = {"credit_limit_usd": "5000", "payment_days": 30, "reason": "contract 17"}
PRICE_AGREEMENT = {
    "organization_id": f"org_{'0' * 31}1",
    "sku": "h100x1",
    "usd_per_unit_hour": "2.19",
    "reason": "contract 17",
}
SUPPLIER_INVOICE = {"upload_id": f"sup_{0:032x}", "parts": 1}
SUPPLIER_PART = {
    "number": 1,
    "first_line": 1,
    "csv": "machine,from,to,quantity,unit,amount,currency\n"
    "fake-1,2026-11-20T12:00:00Z,2026-11-20T13:00:00Z,1,hour,2.19,USD\n",
}
BUYER = {
    "legal_name": "Heliotrope GmbH",
    "address_lines": ["Salomon-Idler-Str. 12", "86159 Augsburg"],
    "country": "DE",
    "tax_id": "DE811907980",
    "tax_rate": 1900,
    "reverse_charge": False,
}
PUBLIC_KEY = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
FLEET_FILTERS = (
    *("provider", "account", "region", "gpu_model", "verdict", "silent", "state"),
    *("organization", "project"),
)
AUDIT_FILTERS = ("since", "until", "event", "outcome", "subject", "target", "limit", "cursor")
ENDPOINTS = (
    _get("/healthz", None),
    _get("/readyz", None),
    _get("/docs", None),
    _get("/schema", None),
    _get("/schema/openapi.json", None),
    _get("/v1/organization", Permission.ORGANIZATIONS_READ),
    _get("/v1/api-keys", Permission.API_KEYS_READ, "limit", "cursor"),
    _post(
        "/v1/api-keys",
        Permission.API_KEYS_CREATE,
        {"name": "ci", "scopes": ["leases.read"], "projects": ["default"]},
    ),
    _post("/v1/api-keys/{key_id}/rotations", Permission.API_KEYS_CREATE, {"overlap_hours": 2}),
    Endpoint("DELETE", "/v1/api-keys/{key_id}", Permission.API_KEYS_REVOKE),
    _get("/v1/me", Permission.ME_READ),
    _get("/v1/users", Permission.USERS_READ, "limit", "cursor"),
    _post("/v1/users", Permission.USERS_INVITE, {"email": "ada@example.com", "name": "Ada Lovelace"}),
    _get("/v1/users/{user_id}", Permission.USERS_READ),
    _post("/v1/users/{user_id}/suspend", Permission.USERS_SUSPEND),
    _post("/v1/users/{user_id}/resume", Permission.USERS_SUSPEND),
    Endpoint("DELETE", "/v1/users/{user_id}", Permission.USERS_REMOVE),
    _get("/v1/service-accounts", Permission.SERVICE_ACCOUNTS_READ, "limit", "cursor"),
    _post("/v1/service-accounts", Permission.SERVICE_ACCOUNTS_CREATE, {"name": "ci runner"}),
    _get("/v1/service-accounts/{service_account_id}", Permission.SERVICE_ACCOUNTS_READ),
    _post("/v1/service-accounts/{service_account_id}/suspend", Permission.SERVICE_ACCOUNTS_SUSPEND),
    _post("/v1/service-accounts/{service_account_id}/resume", Permission.SERVICE_ACCOUNTS_SUSPEND),
    Endpoint("DELETE", "/v1/service-accounts/{service_account_id}", Permission.SERVICE_ACCOUNTS_REMOVE),
    _get("/v1/role-bindings", Permission.ROLE_BINDINGS_READ, "subject", "limit", "cursor"),
    _post(
        "/v1/role-bindings",
        Permission.ROLE_BINDINGS_CREATE,
        {"subject": f"sa_{'0' * 32}", "role": "viewer", "scope": {"kind": "project", "id": "default"}},
    ),
    Endpoint("DELETE", "/v1/role-bindings/{role_binding_id}", Permission.ROLE_BINDINGS_DELETE),
    _get("/v1/sessions", Permission.SESSIONS_READ, "limit", "cursor"),
    Endpoint("DELETE", "/v1/sessions/{session_id}", Permission.SESSIONS_REVOKE),
    _get("/v1/ssh-keys", Permission.SSH_KEYS_READ, "limit", "cursor"),
    _post(
        "/v1/ssh-keys",
        Permission.SSH_KEYS_CREATE,
        {"name": "laptop", "public_key": SSH_KEY, "project": "default"},
    ),
    Endpoint("DELETE", "/v1/ssh-keys/{key_id}", Permission.SSH_KEYS_DELETE),
    _get("/v1/leases/{lease_id}/firewall-rules", Permission.FIREWALL_RULES_READ),
    _post(
        "/v1/leases/{lease_id}/firewall-rules",
        Permission.FIREWALL_RULES_CREATE,
        {"protocol": "tcp", "ports": "8080", "sources": ["203.0.113.0/24"]},
    ),
    Endpoint("DELETE", "/v1/leases/{lease_id}/firewall-rules/{rule_id}", Permission.FIREWALL_RULES_DELETE),
    _post("/v1/leases/{lease_id}/consoles", Permission.CONSOLES_READ),
    _get("/v1/leases/{lease_id}/consoles/{console_id}", Permission.CONSOLES_READ),
    _post("/v1/leases/{lease_id}/ssh-certificates", Permission.SSH_CERTIFICATES_CREATE, {"key": SSH_KEY}),
    _get("/v1/leases/{lease_id}/ssh-certificates", Permission.SSH_CERTIFICATES_READ, "limit", "cursor"),
    _get("/v1/leases/{lease_id}/ssh-certificates/{certificate_id}", Permission.SSH_CERTIFICATES_READ),
    _post(
        "/v1/leases/{lease_id}/ssh-certificates/{certificate_id}/revoke", Permission.SSH_CERTIFICATES_REVOKE
    ),
    _get("/v1/projects", Permission.PROJECTS_READ, "limit", "cursor"),
    _post("/v1/projects", Permission.PROJECTS_CREATE, {"name": "research"}),
    _get("/v1/projects/{project}", Permission.PROJECTS_READ),
    _get("/v1/projects/{project}/environments", Permission.ENVIRONMENTS_READ, "limit", "cursor"),
    _post("/v1/projects/{project}/environments", Permission.ENVIRONMENTS_CREATE, {"name": "prod"}),
    _get("/v1/projects/{project}/networks", Permission.NETWORKS_READ, "limit", "cursor"),
    _post(
        "/v1/projects/{project}/networks",
        Permission.NETWORKS_CREATE,
        {"name": "training", "labels": {"team": "vision"}},
    ),
    _get("/v1/projects/{project}/networks/{network}", Permission.NETWORKS_READ),
    _get("/v1/projects/{project}/networks/{network}/members", Permission.NETWORKS_READ, "limit", "cursor"),
    Endpoint(
        "PUT",
        "/v1/projects/{project}/networks/{network}/labels",
        Permission.NETWORKS_LABEL,
        {"labels": {"team": "vision"}},
    ),
    Endpoint("DELETE", "/v1/projects/{project}/networks/{network}", Permission.NETWORKS_DELETE),
    _post("/v1/projects/{project}/rename", Permission.PROJECTS_RENAME, {"name": "renamed"}),
    _get("/v1/balance/alerts", Permission.BILLING_READ),
    Endpoint("PUT", "/v1/balance/alerts", Permission.BALANCE_ALERTS_SET, BALANCE_ALERTS),
    _get("/v1/balance/events", Permission.BILLING_READ, "limit", "cursor"),
    _get("/v1/organization/envelope", Permission.ENVELOPES_READ),
    Endpoint("PUT", "/v1/organization/envelope", Permission.ENVELOPES_SET, ENVELOPE),
    _get("/v1/projects/{project}/envelope", Permission.ENVELOPES_READ),
    Endpoint("PUT", "/v1/projects/{project}/envelope", Permission.ENVELOPES_SET, ENVELOPE),
    _get("/v1/projects/{project}/environments/{environment}/envelope", Permission.ENVELOPES_READ),
    Endpoint(
        "PUT",
        "/v1/projects/{project}/environments/{environment}/envelope",
        Permission.ENVELOPES_SET,
        ENVELOPE,
    ),
    _get("/v1/operator/organizations/{organization_id}/envelope", Permission.ORGANIZATIONS_READ_ALL),
    Endpoint(
        "PUT",
        "/v1/operator/organizations/{organization_id}/envelope",
        Permission.ENVELOPES_SET_CEILING,
        ENVELOPE,
    ),
    _get("/v1/quota-requests", Permission.QUOTA_REQUESTS_READ, "state", "limit", "cursor"),
    _get("/v1/operator/quota-requests", Permission.ORGANIZATIONS_READ_ALL, "state", "limit", "cursor"),
    _post(
        "/v1/quota-requests",
        Permission.QUOTA_REQUESTS_CREATE,
        {"limits": {"gpus": 128}, "reason": "a larger model"},
    ),
    _get("/v1/quota-requests/{quota_request_id}", Permission.QUOTA_REQUESTS_READ),
    *(
        _post(
            f"/v1/quota-requests/{{quota_request_id}}/{verb}",
            Permission.QUOTA_REQUESTS_DECIDE,
            {"reason": "agreed with the team"},
        )
        for verb in ("approve", "decline")
    ),
    _post("/v1/quota-requests/{quota_request_id}/withdraw", Permission.QUOTA_REQUESTS_CREATE),
    _get(
        "/v1/operator/organizations/{organization_id}/quota-requests",
        Permission.ORGANIZATIONS_READ_ALL,
        "state",
        "limit",
        "cursor",
    ),
    *(
        _post(
            f"/v1/operator/organizations/{{organization_id}}/quota-requests/{{quota_request_id}}/{verb}",
            Permission.QUOTA_REQUESTS_DECIDE_CEILING,
            {"reason": "agreed with the team"},
        )
        for verb in ("approve", "decline")
    ),
    _get(
        "/v1/admission-decisions",
        Permission.ADMISSION_DECISIONS_READ,
        "lease",
        "outcome",
        "limit",
        "cursor",
    ),
    _get(
        "/v1/operator/organizations/{organization_id}/admission-decisions",
        Permission.ORGANIZATIONS_READ_ALL,
        "lease",
        "outcome",
        "limit",
        "cursor",
    ),
    _get("/v1/skus", Permission.SKUS_READ, "limit", "cursor"),
    _get("/v1/sla-tiers", Permission.SKUS_READ, "limit", "cursor"),
    _get("/v1/sla-report", Permission.BILLING_READ, "month", "limit", "cursor"),
    _get("/v1/finance/sla-report", Permission.LEDGER_READ, "month", "limit", "cursor"),
    _post("/v1/finance/sla-approvals", Permission.LEDGER_POST, {"reason": "looked at"}),
    _get("/v1/finance/sla-credits", Permission.LEDGER_READ, "limit", "cursor"),
    *(
        _post(
            f"/v1/finance/sla-credits/{{breach_id}}/{verb}", Permission.LEDGER_POST, {"reason": "looked at"}
        )
        for verb in ("approve", "refuse")
    ),
    _get("/v1/leases/{lease_id}/sla", Permission.LEASES_READ),
    _get(
        *("/v1/offers", Permission.OFFERS_READ, "limit", "cursor"),
        *("gpu_model", "provider", "region", "network_gbps_min", "sla"),
    ),
    _post(
        "/v1/quotes",
        Permission.QUOTES_CREATE,
        {
            "sku": "h100x1",
            "regions": [],
            "providers": [],
            "price_usd_per_hour_max": "25",
            "network_gbps_min": 100,
            "priority": 50,
            "project": "default",
            "environment": "default",
            "purchase": "on_demand",
        },
    ),
    _get("/v1/quotes/{quote_id}", Permission.QUOTES_READ),
    _get("/v1/leases", Permission.LEASES_READ, "limit", "cursor", "state", "project", "label", "waiting"),
    _post(
        "/v1/leases",
        Permission.LEASES_CREATE,
        {
            "sku": "h100x1",
            "name": "train",
            "project": "default",
            "environment": "default",
            "regions": [],
            "providers": [],
            "price_usd_per_hour_max": "25.5",
            "priority": 50,
            "purchase": "on_demand",
            "ssh_key_ids": [],
            "wait_timeout_seconds": 600,
            "labels": {"team": "vision"},
            "auto_release": {"after_seconds": 3_600, "spend_usd": "100"},
        },
    ),
    _post(
        "/v1/leases/batch",
        Permission.LEASES_CREATE,
        {"sku": "h100x1", "count": 2, "name": "worker", "ssh_key_ids": [], "priority": 50},
    ),
    _get("/v1/leases/{lease_id}", Permission.LEASES_READ),
    Endpoint(
        "PATCH",
        "/v1/leases/{lease_id}",
        Permission.LEASES_UPDATE,
        {
            "sku": "h100x1",
            "regions": ["eu"],
            "providers": ["fake"],
            "price_usd_per_hour_max": "25",
            "priority": 80,
            "wait_timeout_seconds": 600,
            "auto_release": {"after_seconds": 3_600, "spend_usd": "100"},
        },
    ),
    Endpoint("PUT", "/v1/leases/{lease_id}/labels", Permission.LEASES_LABEL, {"labels": {"team": "vision"}}),
    Endpoint(
        "POST",
        "/v1/leases/{lease_id}/release",
        Permission.LEASES_RELEASE,
        query=frozenset({"accept_fee_usd"}),
    ),
    _post("/v1/leases/{lease_id}/reboot", Permission.LEASES_POWER),
    _post("/v1/leases/{lease_id}/stop", Permission.LEASES_POWER),
    _post("/v1/leases/{lease_id}/start", Permission.LEASES_POWER),
    _get("/v1/leases/{lease_id}/journal", Permission.LEASES_READ, "limit", "cursor"),
    _get("/v1/leases/{lease_id}/proofs", Permission.PROOFS_READ, "limit", "cursor"),
    _get("/v1/leases/{lease_id}/explanation", Permission.LEASES_READ),
    _get("/v1/leases/{lease_id}/events", Permission.LEASES_READ, "until"),
    _get("/v1/proofs/{proof_id}", Permission.PROOFS_READ),
    _get("/v1/leases/{lease_id}/metrics", Permission.TELEMETRY_READ, "last"),
    _get("/v1/leases/{lease_id}/health", Permission.TELEMETRY_READ),
    _get("/v1/machine-health", Permission.TELEMETRY_READ, "by"),
    _get("/v1/metrics", Permission.TELEMETRY_READ),
    _get("/v1/operator/metrics", Permission.TELEMETRY_READ_ALL),
    _get("/v1/exports", Permission.EXPORTS_READ, "limit", "cursor"),
    _post("/v1/exports", Permission.EXPORTS_CREATE, {"period": "2026-11", "final": False}),
    _get("/v1/exports/{export_id}", Permission.EXPORTS_READ),
    _get("/v1/exports/{export_id}/files/{file}", Permission.EXPORTS_READ),
    _get("/v1/finance/exports", Permission.EXPORTS_READ_ALL, "limit", "cursor"),
    _post("/v1/finance/exports", Permission.EXPORTS_CREATE_ALL, {"period": "2026-11", "final": False}),
    _get("/v1/finance/exports/{export_id}", Permission.EXPORTS_READ_ALL),
    _get("/v1/finance/exports/{export_id}/files/{file}", Permission.EXPORTS_READ_ALL),
    _get("/v1/usage", Permission.BILLING_READ, "since", "until", "project", "limit", "cursor"),
    _get("/v1/usage/sums", Permission.BILLING_READ, "by", "label_key", "month", "project"),
    _get("/v1/balance", Permission.BILLING_READ),
    _get("/v1/balance/entries", Permission.BILLING_READ, "month", "kind", "limit", "cursor"),
    _get("/v1/balance/entries.csv", Permission.BILLING_READ, "month", "kind"),
    _get("/v1/usage.csv", Permission.BILLING_READ, "since", "until", "project"),
    _get("/v1/bill", Permission.BILLING_READ, "month", "project"),
    _get("/v1/reconciliation", Permission.BILLING_READ),
    _get("/v1/audit-events", Permission.AUDIT_READ, *AUDIT_FILTERS),
    _get("/v1/audit-events/export", Permission.AUDIT_READ, "after"),
    _get("/v1/audit-chain", Permission.AUDIT_READ),
    _get("/v1/operator/audit-events", Permission.AUDIT_READ_ALL, "chain", *AUDIT_FILTERS),
    _get("/v1/operator/audit-events/export", Permission.AUDIT_READ_ALL, "chain", "after"),
    _get("/v1/operator/loops", Permission.LOOPS_READ, "limit", "cursor"),
    _get("/v1/operator/agents", Permission.AGENTS_READ, "silent", "limit", "cursor"),
    _get(
        "/v1/operator/orphans", Permission.ORPHANS_READ, "account", "provider_ref", "gone", "limit", "cursor"
    ),
    _get("/v1/operator/fleet/machines", Permission.FLEET_READ, *FLEET_FILTERS, "limit", "cursor"),
    _get("/v1/operator/fleet", Permission.FLEET_READ, *FLEET_FILTERS),
    _post("/v1/leases/{lease_id}/replace", Permission.LEASES_POWER, {"why": "GPU 3 does not answer"}),
    _get("/v1/leases/{lease_id}/notices", Permission.LEASES_READ, "limit", "cursor"),
    _get("/v1/operator/repairs", Permission.FLEET_READ, "closed", "machine", "limit", "cursor"),
    _get("/v1/operator/repairs/{repair_id}", Permission.FLEET_READ),
    _post("/v1/operator/machines/{machine_id}/maintenance", Permission.MACHINES_MAINTAIN, {"why": "fan"}),
    _post("/v1/operator/machines/{machine_id}/return", Permission.MACHINES_MAINTAIN),
    _get("/v1/operator/preemptions", Permission.FLEET_READ, "closed", "limit", "cursor"),
    _get("/v1/operator/preemption-decisions", Permission.FLEET_READ, "for_lease_id", "limit", "cursor"),
    _get("/v1/operator/preemption-switch", Permission.FLEET_READ),
    _post(
        "/v1/operator/preemption-switch", Permission.PREEMPTIONS_SWITCH, {"armed": True, "reason": "looked"}
    ),
    _get("/v1/leases/{lease_id}/enforcement", Permission.LEASES_READ, "limit", "cursor"),
    Endpoint("PUT", "/v1/leases/{lease_id}/idle-stop", Permission.LEASES_POWER, {"after_seconds": 7_200}),
    _get("/v1/operator/enforcement", Permission.FLEET_READ, "ended", "lease", "limit", "cursor"),
    _get("/v1/operator/enforcement/{action_id}", Permission.FLEET_READ),
    _post("/v1/operator/enforcement/{action_id}/undo", Permission.ENFORCEMENT_MANAGE, {"why": "a benchmark"}),
    _get("/v1/operator/detectors", Permission.FLEET_READ),
    _post("/v1/operator/detectors/{detector}/arm", Permission.ENFORCEMENT_MANAGE, {"why": "looked at it"}),
    _post("/v1/operator/detectors/{detector}/disarm", Permission.ENFORCEMENT_MANAGE, {"why": "wrong"}),
    _get("/v1/operator/liabilities", Permission.FLEET_READ, "limit", "cursor"),
    _get("/v1/operator/liabilities/{liability_id}", Permission.FLEET_READ),
    _post("/v1/operator/liabilities/{liability_id}/end", Permission.ORPHANS_DECIDE, {"why": "ticket 4711"}),
    _get("/v1/finance/periods", Permission.PERIODS_READ, "limit", "cursor"),
    _get("/v1/finance/accounts", Permission.LEDGER_READ, "limit", "cursor"),
    _get(
        "/v1/finance/entries", Permission.LEDGER_READ, "account", "organization", "month", "limit", "cursor"
    ),
    _get("/v1/finance/wallets", Permission.LEDGER_READ, "limit", "cursor"),
    _get(
        "/v1/finance/usage",
        Permission.RECONCILIATIONS_READ,
        "by",
        "label_key",
        "month",
        "organization",
        "limit",
        "cursor",
    ),
    _get("/v1/finance/charges/{charge_id}", Permission.RECONCILIATIONS_READ),
    _get("/v1/finance/leases/{lease_id}/charges", Permission.RECONCILIATIONS_READ, "limit", "cursor"),
    _get(
        "/v1/finance/invoices/{invoice_id}/lines/{line}/charges",
        Permission.RECONCILIATIONS_READ,
        "limit",
        "cursor",
    ),
    _get("/v1/invoices", Permission.INVOICES_READ, "limit", "cursor"),
    _get("/v1/invoices/{invoice_id}", Permission.INVOICES_READ),
    _get("/v1/invoices/{invoice_id}/page", Permission.INVOICES_READ),
    _get("/v1/finance/invoices", Permission.INVOICES_READ_ALL, "period", "limit", "cursor"),
    _get("/v1/finance/invoices/{invoice_id}", Permission.INVOICES_READ_ALL),
    _get("/v1/finance/invoices/{invoice_id}/page", Permission.INVOICES_READ_ALL),
    _get("/v1/credit-notes", Permission.INVOICES_READ, "limit", "cursor"),
    _get("/v1/credit-notes/{credit_note_id}", Permission.INVOICES_READ),
    _get("/v1/credit-notes/{credit_note_id}/page", Permission.INVOICES_READ),
    _get("/v1/finance/credit-notes", Permission.INVOICES_READ_ALL, "limit", "cursor"),
    _get("/v1/finance/credit-notes/{credit_note_id}", Permission.INVOICES_READ_ALL),
    _get("/v1/finance/credit-notes/{credit_note_id}/page", Permission.INVOICES_READ_ALL),
    _post(
        "/v1/finance/credit-notes",
        Permission.INVOICES_ISSUE,
        {"invoice_id": f"inv_{0:032x}", "reason": "ticket", "lines": [{"line": 1, "amount_usd": "1.50"}]},
    ),
    _get("/v1/finance/invoice-drafts/{organization_id}/{month}/page", Permission.INVOICES_READ_ALL),
    _post("/v1/finance/invoices", Permission.INVOICES_ISSUE, {"period": "2026-11", "draft": True}),
    _get("/v1/finance/billing-details/{organization_id}", Permission.INVOICES_READ_ALL),
    Endpoint("PUT", "/v1/finance/billing-details/{organization_id}", Permission.BILLING_DETAILS_SET, BUYER),
    _get("/v1/finance/credit-terms/{organization_id}", Permission.LEDGER_READ),
    Endpoint("PUT", "/v1/finance/credit-terms/{organization_id}", Permission.CREDIT_TERMS_SET, CREDIT_TERMS),
    _get("/v1/finance/price-agreements", Permission.PRICE_AGREEMENTS_READ, "organization", "limit", "cursor"),
    _post("/v1/finance/price-agreements", Permission.PRICE_AGREEMENTS_MAKE, PRICE_AGREEMENT),
    _post("/v1/finance/price-agreements/{agreement_id}/end", Permission.PRICE_AGREEMENTS_MAKE, {}),
    _get("/v1/finance/supplier-invoices", Permission.MARGINS_READ, "limit", "cursor"),
    _post("/v1/finance/supplier-invoices", Permission.SUPPLIER_INVOICES_IMPORT, SUPPLIER_INVOICE),
    _post(
        "/v1/finance/supplier-invoices/{supplier_invoice_id}/postings",
        Permission.LEDGER_POST,
        {"reason": "ticket"},
    ),
    _post(
        "/v1/finance/supplier-invoices/{supplier_invoice_id}/voids",
        Permission.LEDGER_POST,
        {"reason": "ticket"},
    ),
    _post(
        "/v1/finance/supplier-uploads",
        Permission.SUPPLIER_INVOICES_IMPORT,
        {"provider": "fake", "period": "2026-11"},
    ),
    _post(
        "/v1/finance/supplier-uploads/{upload_id}/parts", Permission.SUPPLIER_INVOICES_IMPORT, SUPPLIER_PART
    ),
    _get("/v1/finance/match", Permission.MARGINS_READ, "month", "provider", "lines"),
    _get("/v1/finance/margin", Permission.MARGINS_READ, "month", "by", "lines"),
    _get("/v1/finance/reconciliations", Permission.RECONCILIATIONS_READ, "limit", "cursor"),
    _post("/v1/finance/reconciliations", Permission.RECONCILIATIONS_CREATE, {"period": "2026-11"}),
    _get("/v1/finance/reconciliations/{reconciliation_id}", Permission.RECONCILIATIONS_READ),
    _get(
        "/v1/finance/reconciliations/{reconciliation_id}/customers",
        Permission.RECONCILIATIONS_READ,
        "limit",
        "cursor",
    ),
    _get(
        "/v1/finance/reconciliations/{reconciliation_id}/differences",
        Permission.RECONCILIATIONS_READ,
        "limit",
        "cursor",
    ),
    _get("/v1/clusters", Permission.CLUSTERS_READ, "limit", "cursor"),
    _get("/v1/clusters/{cluster}", Permission.CLUSTERS_READ),
    _post(
        "/v1/clusters/{cluster}/kubeconfigs",
        Permission.KUBECONFIGS_CREATE,
        {
            "name": "laptop",
            "public_key": PUBLIC_KEY,
            "project": "default",
            "role": "view",
            "lasts_minutes": 60,
        },
    ),
    _get("/v1/kubeconfigs", Permission.KUBECONFIGS_READ, "limit", "cursor"),
    _get("/v1/kubeconfigs/{kubeconfig_id}", Permission.KUBECONFIGS_READ),
    _post(
        "/v1/kubeconfigs/{kubeconfig_id}/rotations",
        Permission.KUBECONFIGS_CREATE,
        {"public_key": PUBLIC_KEY, "overlap_minutes": 30},
    ),
    _post("/v1/kubeconfigs/{kubeconfig_id}/revoke", Permission.KUBECONFIGS_REVOKE),
    _post(
        "/v1/operator/clusters",
        Permission.CLUSTERS_MANAGE,
        {"name": "eu-1", "region": "eu-central-1", "organization_id": None},
    ),
    _post("/v1/operator/clusters/{cluster}/deletion", Permission.CLUSTERS_MANAGE),
    _post("/v1/operator/clusters/{cluster}/key-rotations", Permission.NODES_ROTATE_KEYS),
    _get(
        "/v1/node-pools", Permission.NODE_POOLS_READ, "limit", "cursor", "state", "project", "cluster", "name"
    ),
    _post(
        "/v1/node-pools",
        Permission.NODE_POOLS_MANAGE,
        {
            "cluster": "eu-1",
            "name": "train",
            "sku": "h100x1",
            "nodes": 1,
            "regions": [],
            "providers": [],
            "price_usd_per_hour_max": "25.5",
            "priority": 50,
            "project": "default",
            "environment": "default",
            "node_labels": {"team": "vision"},
            "node_taints": [{"key": "batch", "value": "only", "effect": "NoSchedule"}],
            "wait_timeout_seconds": 600,
        },
    ),
    _get("/v1/node-pools/{node_pool_id}", Permission.NODE_POOLS_READ),
    Endpoint("PATCH", "/v1/node-pools/{node_pool_id}", Permission.NODE_POOLS_MANAGE, {"nodes": 3}),
    _post("/v1/node-pools/{node_pool_id}/deletion", Permission.NODE_POOLS_MANAGE),
    _get("/v1/nodes", Permission.NODE_POOLS_READ, "limit", "cursor", "state", "cluster", "node_pool"),
    _get("/v1/nodes/{node}", Permission.NODE_POOLS_READ),
    _get("/v1/operator/nodes", Permission.NODES_READ_ALL, "limit", "cursor", "state", "cluster"),
    _get("/v1/operator/nodes/{node}", Permission.NODES_READ_ALL),
    _post("/v1/operator/nodes/{node}/key-rotations", Permission.NODES_ROTATE_KEYS),
    _get("/v1/operator/node-pools", Permission.NODES_READ_ALL, "limit", "cursor", "state", "cluster"),
    _get("/v1/operator/pools", Permission.POOLS_READ, "limit", "cursor"),
    _post("/v1/operator/pools", Permission.POOLS_MANAGE, POOL),
    _get("/v1/operator/pools/{pool}", Permission.POOLS_READ),
    Endpoint("PATCH", "/v1/operator/pools/{pool}", Permission.POOLS_MANAGE, {"machines_max": 3}),
    Endpoint("DELETE", "/v1/operator/pools/{pool}", Permission.POOLS_MANAGE),
    _post(
        "/v1/operator/pool-simulations",
        Permission.POOLS_READ,
        {
            "series": [{"sku": "h100-sxm.1x", "region": "eu", "seconds": [0, 60, 75]}],
            "idle_usd_per_hour": "2.50",
            "waiting_usd_per_hour": "20",
            "lead_seconds": 300,
            "machines_max": 5,
        },
    ),
    _get("/v1/operator/server-hosts", Permission.SERVER_HOSTS_READ, "limit", "cursor"),
    _post("/v1/operator/server-hosts", Permission.SERVER_HOSTS_MANAGE, SERVER_HOST),
    Endpoint("DELETE", "/v1/operator/server-hosts/{host}", Permission.SERVER_HOSTS_MANAGE),
    _get("/v1/operator/provider-accounts", Permission.PROVIDER_ACCOUNTS_READ, "limit", "cursor"),
    _post(
        "/v1/operator/provider-accounts",
        Permission.PROVIDER_ACCOUNTS_MANAGE,
        {"account": "fake/second", "settings": {"api_key": "planted"}},
    ),
    _post(
        "/v1/operator/provider-accounts/rotate",
        Permission.PROVIDER_ACCOUNTS_MANAGE,
        {"account": "fake", "settings": {"api_key": "planted"}},
    ),
    _post(
        "/v1/operator/provider-account-requests",
        Permission.PROVIDER_ACCOUNTS_MANAGE,
        {"account": "fake", "verb": "drain", "why": "ticket 4711"},
    ),
    _get(
        "/v1/operator/provider-account-requests",
        Permission.PROVIDER_ACCOUNTS_READ,
        "account",
        "limit",
        "cursor",
    ),
    _get("/v1/operator/provider-account-requests/{request_id}", Permission.PROVIDER_ACCOUNTS_READ),
    _get("/v1/operator/proofs", Permission.PROOF_RECORDS_READ, "account", "outcome", "limit", "cursor"),
    _post(
        "/v1/operator/termination-permits",
        Permission.TERMINATIONS_PERMIT,
        {"account": "fake", "why": "slices", "minutes": 30},
    ),
    _get("/v1/operator/organizations", Permission.ORGANIZATIONS_READ_ALL, "state", "name", "limit", "cursor"),
    _get(
        "/v1/operator/organizations/{organization_id}/history",
        Permission.ORGANIZATIONS_READ_ALL,
        "limit",
        "cursor",
    ),
    _post(
        "/v1/operator/organizations/{organization_id}/suspensions",
        Permission.ORGANIZATIONS_SUSPEND,
        {"reason": "unpaid", "end_leases": True},
    ),
    _post(
        "/v1/operator/organizations/{organization_id}/resumptions",
        Permission.ORGANIZATIONS_RESUME,
        {"reason": "paid"},
    ),
    _post(
        "/v1/operator/organizations/{organization_id}/closures",
        Permission.ORGANIZATIONS_CLOSE,
        {"reason": "contract ended"},
    ),
    _post(
        "/v1/operator/organizations/{organization_id}/leases/{lease_id}/end",
        Permission.LEASES_END,
        {"reason": "ticket 4711"},
    ),
    _post(
        "/v1/operator/organizations/{organization_id}/deletions",
        Permission.ORGANIZATIONS_DELETE,
        {"reason": "asked for by the customer"},
    ),
    _get("/v1/operator/organizations/{organization_id}", Permission.ORGANIZATIONS_READ_ALL),
    _get("/v1/operator/organizations/{organization_id}/reconciliation", Permission.ORGANIZATIONS_READ_ALL),
    _post("/v1/finance/periods/{month}/close", Permission.PERIODS_CLOSE),
    _post("/v1/finance/periods/{month}/reopen", Permission.PERIODS_REOPEN, {"reason": "ticket 4711"}),
    _post(
        "/v1/finance/transactions",
        Permission.LEDGER_POST,
        {"organization_id": f"org_{'0' * 32}", "kind": "credit", "amount_usd": "5", "reason": "ticket 4711"},
    ),
    _post(
        "/v1/operator/orphan-decisions",
        Permission.ORPHANS_DECIDE,
        {"account": "fake", "provider_refs": ["fake-1"], "choice": "end", "why": "ticket 4711"},
    ),
    _post(
        "/v1/operator/organizations",
        Permission.ORGANIZATIONS_CREATE,
        {"name": "newcomer", "gpu_quota": 8, "key_name": "first"},
    ),
)
