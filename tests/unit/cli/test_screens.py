"""What every command shows, at 80 columns, held as golden files. GOLDEN=write, then look at the diff."""

import re
from pathlib import Path
from typing import Any

import httpx

from tests.support import golden
from tests.support.cases import case, check_every
from tests.unit.cli import answers, sla_answers
from tests.unit.cli.answers import LEASE_ID, PROOF_ID
from tests.unit.cli.stand import Answer, Stand
from tests.unit.domain.test_repair_ticket import TEXT as TICKET

FOLDER = Path("tests/golden/cli")
PAGE: Answer = {"items": answers.leases(), "next_cursor": None}
PAGE_OF_PROJECTS = answers.of_two_projects({"items": answers.leases(), "next_cursor": None}, "items")
EMPTY: Answer = {"items": [], "next_cursor": None}
PROBLEM: Answer = httpx.Response(
    403,
    json={
        "type": "urn:splitplane:error:permission_denied",
        "title": "Forbidden",
        "status": 403,
        "detail": "This needs the permission `loops.read`, which your roles (`owner`) do not include; the roles at platform scope"
        " that include it: `operator`, `auditor`.",
        "code": "permission_denied",
        "request_id": "req_1",
        "permission": "loops.read",
    },
)
SHOW = f"GET /v1/leases/{LEASE_ID}"
PROOF = f"GET /v1/proofs/{PROOF_ID}"
WHY = f"GET /v1/leases/{LEASE_ID}/explanation"
ORGANIZATIONS = "GET /v1/operator/organizations"
POST_ORGANIZATION = "POST /v1/operator/organizations"
RECONCILED = f"/v1/finance/reconciliations/{answers.RECONCILED['id']}"
OF_INVOICE = f"/v1/finance/invoices/{answers.INVOICE['id']}"
FRESH = answers.OTHER_ORGANIZATION
MANY_REJECTED: Answer = answers.QUOTE | {
    "rejected": [
        *answers.REJECTED,
        *(
            answers.a_rejected(
                "lambda_cloud", f"us-east-{n}", "gpu_8x_h100_sxm5", "sold_out", "It is sold out."
            )
            for n in range(12)
        ),
        *(
            answers.a_rejected("hyperstack", f"eu-{n}", "n3-H100x8", "too_old", f"It was listed {n} h ago.")
            for n in range(2, 5)
        ),
    ]
}
CERTIFICATES = {
    "items": [
        answers.a_certificate(),
        answers.a_certificate("revoked", id=f"cert_{'1' * 32}", subject=answers.USER),
        answers.a_certificate(
            "expired", id=f"cert_{'2' * 32}", minutes=-50, requested_at=answers.at(hours=1)
        ),
        answers.a_certificate("refused", id=f"cert_{'3' * 32}", requested_at=answers.at(days=2)),
    ],
    "next_cursor": None,
}
CERTIFICATE = f"GET /v1/leases/{LEASE_ID}/ssh-certificates/{answers.CERTIFICATE_ID}"


def _asked(verb: str, **outcome: Any) -> dict[str, Answer]:
    """What the API answers to a request concerning an account, and then to the question what came of it."""
    path = "/v1/operator/provider-account-requests"
    finished = answers.an_account_request(verb, **outcome)
    asked = finished | {"outcome": None, "code": None, "said": None, "finished_at": None}
    return {f"POST {path}": asked, f"GET {path}/{finished['id']}": finished}


DENIED_NAMES: dict[str, Answer] = dict.fromkeys(answers.NAMES, PROBLEM)

IN_CLUSTER: dict[str, Answer] = {"GET /v1/node-pools": answers.NODE_POOLS, "GET /v1/nodes": answers.NODES}
EVERYBODYS: dict[str, Answer] = {"GET /v1/operator/nodes": answers.NODE_REPORTS}
EVERYBODYS_IN_CLUSTER: dict[str, Answer] = {
    "GET /v1/operator/node-pools": answers.POOL_REPORTS,
    "GET /v1/operator/nodes": answers.NODE_REPORTS | {"items": answers.NODE_REPORTS["items"][:2]},
}
BATCH = answers.NODE_POOLS["items"][1]
SCALED = answers.SCALED_POOLS["items"][0]
SCREENS: dict[str, tuple[str, dict[str, Answer]]] = {
    "whoami": ("whoami", {"GET /v1/organization": answers.ORGANIZATION, "GET /v1/me": answers.ME}),
    "whoami_without_role": (
        "whoami",
        {"GET /v1/me": answers.ME_OF_A_PROJECT | {"roles": [], "permissions": []}},
    ),
    "whoami_project": ("whoami", answers.NAMES | {"GET /v1/me": answers.ME_OF_A_PROJECT}),
    "sla_tiers": ("sla tiers", {"GET /v1/sla-tiers": sla_answers.TIERS}),
    "sla_tiers_none": ("sla tiers", {"GET /v1/sla-tiers": EMPTY}),
    "sla_show": (
        f"sla show {LEASE_ID}",
        {SHOW: answers.a_lease(), f"{SHOW}/sla": sla_answers.STANDING},
    ),
    "sla_show_nothing": (
        f"sla show {LEASE_ID}",
        {SHOW: answers.a_lease(), f"{SHOW}/sla": sla_answers.NOTHING},
    ),
    "sla_report": ("sla report 2026-11", {"GET /v1/sla-report": sla_answers.REPORT}),
    "sla_report_all": ("sla report --all", {"GET /v1/finance/sla-report": sla_answers.REPORT}),
    "sla_report_without_breach": ("sla report", {"GET /v1/sla-report": sla_answers.WITHOUT_BREACH}),
    "sla_show_decided": (
        f"sla show {LEASE_ID}",
        {SHOW: answers.a_lease(), f"{SHOW}/sla": sla_answers.STANDING | {"breaches": sla_answers.DECIDED}},
    ),
    "sla_waiting": ("sla waiting", {"GET /v1/finance/sla-credits": sla_answers.WAITING}),
    "sla_waiting_none": ("sla waiting", {"GET /v1/finance/sla-credits": EMPTY}),
    "sla_approve_one": (
        f"sla approve br_{'0' * 31}1 --reason looked",
        {f"POST /v1/finance/sla-credits/br_{'0' * 31}1/approve": sla_answers.DECIDED[0]},
    ),
    "sla_refuse": (
        f"sla refuse br_{'0' * 31}1 --reason looked",
        {f"POST /v1/finance/sla-credits/br_{'0' * 31}1/refuse": sla_answers.DECIDED[0]},
    ),
    "sla_approve": (
        "sla approve --reason looked",
        {"POST /v1/finance/sla-approvals": sla_answers.APPROVAL},
    ),
    "user_list": ("user list", {"GET /v1/users": answers.USERS}),
    "user_list_empty": ("user list", {"GET /v1/users": EMPTY}),
    "user_invite": ("user invite ada@example.com Ada", {"POST /v1/users": answers.USERS["items"][0]}),
    "service_account_list": ("service-account list", {"GET /v1/service-accounts": answers.SERVICE_ACCOUNTS}),
    "role_list": ("role list", answers.NAMES | {"GET /v1/role-bindings": answers.ROLE_BINDINGS}),
    "role_list_ids": ("role list", DENIED_NAMES | {"GET /v1/role-bindings": answers.ROLE_BINDINGS}),
    "role_grant": (
        f"role grant member {answers.USER} --project research",
        answers.NAMES | {"POST /v1/role-bindings": answers.ROLE_BINDINGS["items"][1]},
    ),
    "environment_list": (
        "environment list --project research",
        {"GET /v1/projects/research/environments": answers.ENVIRONMENTS},
    ),
    "network_list": ("network list", {"GET /v1/projects/default/networks": answers.NETWORKS}),
    "network_show": (
        "network show default --project research",
        {
            "GET /v1/projects/research/networks/default/members": answers.NETWORK_MEMBERS,
            "GET /v1/projects/research/networks/default": answers.NETWORKS["items"][0],
        },
    ),
    "network_members": (
        "network members default",
        {"GET /v1/projects/default/networks/default/members": answers.NETWORK_MEMBERS},
    ),
    "network_create": (
        "network create training --label team=vision",
        {"POST /v1/projects/default/networks": answers.NETWORKS["items"][1]},
    ),
    "cluster_list": ("cluster list", {"GET /v1/clusters": answers.CLUSTERS}),
    "agent_list": ("agent list", {"GET /v1/operator/agents": answers.AGENTS}),
    "cluster_show": (
        "cluster show eu-1",
        IN_CLUSTER | {"GET /v1/clusters/eu-1": answers.CLUSTERS["items"][0]},
    ),
    "cluster_show_everybodys": (
        "cluster show eu-1 --all-organizations",
        EVERYBODYS_IN_CLUSTER | {"GET /v1/clusters/eu-1": answers.CLUSTERS["items"][0]},
    ),
    "cluster_rotate_key": (
        "cluster rotate-key eu-1",
        {
            "POST /v1/operator/clusters/eu-1/key-rotations": answers.CLUSTERS["items"][0]
            | {"key_change_requested_at": answers.at(seconds=2)}
        },
    ),
    "node_rotate_key": (
        f"node rotate-key {answers.ROTATING['node']['name']}",
        {f"POST /v1/operator/nodes/{answers.ROTATING['node']['name']}/key-rotations": answers.ROTATING},
    ),
    "cluster_show_failing": (
        "cluster show acme",
        {
            "GET /v1/node-pools": EMPTY,
            "GET /v1/nodes": EMPTY,
            "GET /v1/clusters/acme": answers.CLUSTERS["items"][1],
        },
    ),
    "node_pool_list": ("node-pool list", {"GET /v1/node-pools": answers.NODE_POOLS}),
    "node_pool_list_empty": ("node-pool list", {"GET /v1/node-pools": EMPTY}),
    "node_pool_show": (
        "node-pool show batch",
        {
            "GET /v1/node-pools": answers.NODE_POOLS,
            "GET /v1/nodes": answers.NODES_OF_BATCH,
            f"GET /v1/node-pools/{BATCH['id']}": BATCH,
        },
    ),
    "node_pool_list_scaled": ("node-pool list", {"GET /v1/node-pools": answers.SCALED_POOLS}),
    "node_pool_show_scaled": (
        "node-pool show grow",
        {
            "GET /v1/node-pools": answers.SCALED_POOLS,
            "GET /v1/nodes": EMPTY,
            f"GET /v1/node-pools/{SCALED['id']}": SCALED,
        },
    ),
    "node_pool_create": (
        "node-pool create train --cluster eu-1 --nodes 2 --sku h100-sxm.8x --taint batch=only:NoSchedule --no-wait",
        {"POST /v1/node-pools": answers.NODE_POOLS["items"][0]},
    ),
    "node_list": ("node list", {"GET /v1/nodes": answers.NODES}),
    "node_list_names": ("node list --names", {"GET /v1/nodes": answers.NODES}),
    "node_list_everybodys": ("node list --all-organizations", EVERYBODYS),
    "node_show_evidence": (
        "node show node-019aa --all-organizations",
        {"GET /v1/operator/nodes/node-019aa": answers.NODE_REPORTS["items"][0]},
    ),
    "node_show_left": (
        "node show node-019ab --all-organizations",
        {"GET /v1/operator/nodes/node-019ab": answers.NODE_REPORTS["items"][2]},
    ),
    "node_show": ("node show node-019aa", {"GET /v1/nodes/node-019aa": answers.NODES["items"][0]}),
    "pool_list": ("pool list", {"GET /v1/operator/pools": answers.POOLS}),
    "pool_show": ("pool show h100-eu", {"GET /v1/operator/pools/h100-eu": answers.POOL}),
    "pool_simulate": (
        "pool simulate --trace docs/traces/two-weeks.csv --idle 2.50",
        {"POST /v1/operator/pool-simulations": answers.POOL_SIMULATION},
    ),
    "server_host_list": ("server-host list", {"GET /v1/operator/server-hosts": answers.SERVER_HOSTS}),
    "session_list": ("session list", answers.NAMES | {"GET /v1/sessions": answers.SESSIONS}),
    "session_list_all": ("session list --all", answers.NAMES | {"GET /v1/sessions": answers.SESSIONS}),
    "session_list_empty": ("session list", {"GET /v1/sessions": EMPTY}),
    "ssh_key_list": ("ssh-key list", {"GET /v1/ssh-keys": answers.SSH_KEYS}),
    "ssh_key_list_empty": ("ssh-key list", {"GET /v1/ssh-keys": EMPTY}),
    "ssh_certificate_list": (
        f"ssh-certificate list {LEASE_ID}",
        answers.NAMES | {SHOW: answers.a_lease(), f"{SHOW}/ssh-certificates": CERTIFICATES},
    ),
    "ssh_certificate_list_empty": (
        f"ssh-certificate list {LEASE_ID}",
        {SHOW: answers.a_lease(), f"{SHOW}/ssh-certificates": EMPTY},
    ),
    "lease_metrics": (
        f"lease metrics {LEASE_ID}",
        {SHOW: answers.a_lease(), f"{SHOW}/metrics": answers.some_metrics()},
    ),
    "lease_metrics_none": (
        f"lease metrics {LEASE_ID}",
        {SHOW: answers.a_lease(), f"{SHOW}/metrics": answers.some_metrics(latest=None)},
    ),
    "lease_health": (
        f"lease health {LEASE_ID}",
        {SHOW: answers.a_lease(), f"{SHOW}/health": answers.some_health("quarantined")},
    ),
    "lease_health_well": (
        f"lease health {LEASE_ID}",
        {SHOW: answers.a_lease(), f"{SHOW}/health": answers.some_health()},
    ),
    "lease_health_groups": (
        "lease health --by sku",
        {"GET /v1/machine-health": answers.health_counts("h100x1", "h100x8", by="sku")},
    ),
    "lease_console": (
        f"lease console {LEASE_ID}",
        {
            SHOW: answers.a_lease("starting"),
            f"POST /v1/leases/{LEASE_ID}/consoles": answers.a_console(None),
            f"{SHOW}/consoles/{answers.CONSOLE_ID}": answers.a_console("machine"),
        },
    ),
    "lease_console_steps": (
        f"lease console {LEASE_ID}",
        {
            SHOW: answers.a_lease("starting"),
            f"POST /v1/leases/{LEASE_ID}/consoles": answers.a_console("steps", steps=[]),
            f"{SHOW}/consoles/{answers.CONSOLE_ID}": answers.a_console("steps"),
        },
    ),
    "firewall_list": (
        f"firewall list {LEASE_ID}",
        {SHOW: answers.a_lease(), f"{SHOW}/firewall-rules": answers.a_firewall()},
    ),
    "firewall_list_pending": (
        f"firewall list {LEASE_ID}",
        {
            SHOW: answers.a_lease(),
            f"{SHOW}/firewall-rules": answers.a_firewall(
                "pending", problem="unreachable", provider="fixed", applied_at=None, looked_at=None, rules=[]
            ),
        },
    ),
    "firewall_allow": (
        f"firewall allow {LEASE_ID} tcp/8080 --from 203.0.113.0/24 --from 2001:db8::/32",
        {
            SHOW: answers.a_lease(),
            f"{SHOW}/firewall-rules": answers.a_firewall(provider="fixed"),
            f"POST /v1/leases/{LEASE_ID}/firewall-rules": answers.FIREWALL_RULE,
        },
    ),
    "ssh_certificate_get": (
        f"ssh-certificate get {LEASE_ID}",
        {
            f"POST /v1/leases/{LEASE_ID}/ssh-certificates": answers.a_certificate(),
            CERTIFICATE: answers.a_certificate(),
        },
    ),
    "kubeconfig_list": (
        "kubeconfig list",
        answers.NAMES
        | {
            "GET /v1/kubeconfigs": {
                "items": [
                    answers.a_kubeconfig(),
                    answers.a_kubeconfig("revoked", id=f"kc_{'1' * 32}", role="view", subject=answers.USER),
                    answers.a_kubeconfig("refused", id=f"kc_{'2' * 32}", requested_at=answers.at(days=2)),
                ],
                "next_cursor": None,
            }
        },
    ),
    "kubeconfig_list_empty": ("kubeconfig list", {"GET /v1/kubeconfigs": EMPTY}),
    "envelope_show": ("envelope show", {"GET /v1/organization/envelope": answers.ENVELOPE}),
    "envelope_set": (
        "envelope set --project research --gpus 8 --model h100-sxm-80gb=4 --burst 50",
        {"PUT /v1/projects/research/envelope": answers.ENVELOPE},
    ),
    "quota_request": (
        "quota request --gpus 128 --reason model",
        {"POST /v1/quota-requests": answers.QUOTA_REQUEST},
    ),
    "quota_list_all": (
        "quota list --all-organizations --state pending",
        {ORGANIZATIONS: answers.ORGANIZATIONS, "GET /v1/operator/quota-requests": answers.QUOTA_REQUESTS},
    ),
    "lease_create_batch": (
        "lease create h100x1 --count 2 --name worker --no-wait",
        {"POST /v1/leases/batch": {"items": answers.leases()[:2]}},
    ),
    "lease_update": (
        f"lease update {LEASE_ID} --any-region --priority 80",
        {SHOW: answers.a_lease("placing"), f"PATCH /v1/leases/{LEASE_ID}": answers.a_lease("placing")},
    ),
    "lease_extend": (
        f"lease extend {LEASE_ID} --time 2h",
        {SHOW: answers.a_lease(), f"PATCH /v1/leases/{LEASE_ID}": answers.a_lease()},
    ),
    "lease_stop": (
        f"lease stop {LEASE_ID} --yes",
        {
            SHOW: answers.a_lease(),
            f"POST /v1/leases/{LEASE_ID}/stop": answers.a_lease(power=answers.a_power("stopping")),
        },
    ),
    "quota_list": ("quota list", {"GET /v1/quota-requests": answers.QUOTA_REQUESTS}),
    "quota_approve": (
        f"quota approve {answers.QUOTA_REQUEST['id']} --reason agreed",
        {f"POST /v1/quota-requests/{answers.QUOTA_REQUEST['id']}/approve": answers.QUOTA_REQUEST},
    ),
    "quota_decline": (
        f"quota decline {answers.QUOTA_REQUEST['id']} --reason no",
        {f"POST /v1/quota-requests/{answers.QUOTA_REQUEST['id']}/decline": answers.QUOTA_REQUEST},
    ),
    "project_list": ("project list", {"GET /v1/projects": answers.PROJECTS}),
    "project_show": ("project show research", {"GET /v1/projects/research": answers.PROJECTS["items"][1]}),
    "project_rename": (
        "project rename notebooks research",
        {"POST /v1/projects/notebooks/rename": answers.PROJECTS["items"][1]},
    ),
    "project_create": ("project create research", {"POST /v1/projects": answers.PROJECTS["items"][1]}),
    "skus": ("skus", {"GET /v1/skus": answers.SKUS}),
    "skus_empty": ("skus", {"GET /v1/skus": EMPTY}),
    "offers": ("offers", {"GET /v1/offers": answers.offers(cost=False)}),
    "offers_with_cpus": ("offers", {"GET /v1/offers": answers.offers_with_cpus()}),
    "offers_operator": ("offers", {"GET /v1/offers": answers.offers(cost=True)}),
    "offers_all": ("offers --all", {"GET /v1/offers": answers.offers(cost=False)}),
    "offers_none": ("offers --region ap", {"GET /v1/offers": answers.offers(cost=False)}),
    "offers_sold_out": ("offers --region eu-central-1", {"GET /v1/offers": answers.offers(cost=False)}),
    "quote": ("quote h100x8 --region eu", {"POST /v1/quotes": answers.QUOTE}),
    "quote_kept": ("quote h100x8 --keep", {"POST /v1/quotes": answers.QUOTE_KEPT}),
    "quote_shown": (
        f"quote {answers.KEPT_QUOTE['id']}",
        {f"GET /v1/quotes/{answers.KEPT_QUOTE['id']}": answers.KEPT_QUOTE},
    ),
    "quote_refused": ("quote h100x8 --region eu", {"POST /v1/quotes": answers.QUOTE_REFUSED}),
    "quote_folded": ("quote h100x8", {"POST /v1/quotes": MANY_REJECTED}),
    "quote_verbose": ("quote h100x8 --verbose", {"POST /v1/quotes": MANY_REJECTED}),
    "api_key_list": ("api-key list", answers.NAMES | {"GET /v1/api-keys": answers.API_KEYS}),
    "api_key_list_all": ("api-key list --all", answers.NAMES | {"GET /v1/api-keys": answers.API_KEYS}),
    "api_key_create": ("api-key create ci", {"POST /v1/api-keys": answers.ISSUED}),
    "audit_list": ("audit list", {"GET /v1/audit-events": answers.AUDIT_EVENTS}),
    "audit_list_empty": ("audit list", {"GET /v1/audit-events": EMPTY}),
    "organization_list": ("organization list", {ORGANIZATIONS: answers.ORGANIZATIONS}),
    "organization_create": ("organization create fresh", {POST_ORGANIZATION: answers.CREATED_ORGANIZATION}),
    "organization_show": (
        "organization show fresh",
        {ORGANIZATIONS: answers.ORGANIZATIONS, f"{ORGANIZATIONS}/{FRESH['id']}": FRESH},
    ),
    "organization_close": (
        "organization close fresh --reason unpaid --yes",
        {
            ORGANIZATIONS: answers.ORGANIZATIONS,
            f"{POST_ORGANIZATION}/{FRESH['id']}/closures": answers.CLOSURE,
        },
    ),
    "organization_history": (
        "organization history fresh",
        {ORGANIZATIONS: answers.ORGANIZATIONS, f"{ORGANIZATIONS}/{FRESH['id']}/history": answers.HISTORY},
    ),
    "finance_period_list": ("finance period list", {"GET /v1/finance/periods": answers.PERIODS}),
    "finance_period_close": (
        "finance period close 2026-10 --yes",
        {"POST /v1/finance/periods/2026-10/close": answers.PERIODS["items"][1]},
    ),
    "finance_period_reopen": (
        "finance period reopen 2026-09 --reason ticket-4711",
        {"POST /v1/finance/periods/2026-09/reopen": answers.PERIODS["items"][2]},
    ),
    "finance_reconcile": (
        "finance reconcile 2026-10",
        {
            "POST /v1/finance/reconciliations": answers.RECONCILIATION_ASKED,
            f"GET {RECONCILED}": answers.RECONCILED,
        },
    ),
    "finance_reconcile_different": (
        "finance reconcile 2026-10",
        {
            f"GET {RECONCILED}/differences": answers.DIFFERENCES,
            "POST /v1/finance/reconciliations": answers.RECONCILIATION_DIFFERENT,
        },
    ),
    "finance_reconcile_all": (
        "finance reconcile 2026-10 --all",
        {
            f"GET {RECONCILED}/differences": answers.DIFFERENCES,
            f"GET {RECONCILED}/customers": answers.RECONCILED_CUSTOMERS,
            "POST /v1/finance/reconciliations": answers.RECONCILIATION_DIFFERENT,
        },
    ),
    "finance_margin": ("finance margin 2026-10", {"GET /v1/finance/margin": answers.MARGIN}),
    "finance_credit_terms_set": (
        "finance credit-terms set fresh 5000 --days 30 --yes --reason contract-17",
        {
            ORGANIZATIONS: answers.ORGANIZATIONS,
            f"PUT /v1/finance/credit-terms/{FRESH['id']}": answers.CREDIT_TERMS,
        },
    ),
    "finance_credit_terms_show": (
        "finance credit-terms show fresh",
        {
            ORGANIZATIONS: answers.ORGANIZATIONS,
            f"GET /v1/finance/credit-terms/{FRESH['id']}": answers.CREDIT_TERMS,
        },
    ),
    "finance_price_agree": (
        "finance price agree fresh h100x8 2.19 --yes --reason contract-17",
        {
            ORGANIZATIONS: answers.ORGANIZATIONS,
            "POST /v1/finance/price-agreements": answers.PRICE_AGREEMENT,
        },
    ),
    "finance_price_list": (
        "finance price list",
        {ORGANIZATIONS: answers.ORGANIZATIONS, "GET /v1/finance/price-agreements": answers.PRICE_AGREEMENTS},
    ),
    "finance_price_end": (
        "finance price end pa_6666 --yes",
        {
            "GET /v1/finance/price-agreements": answers.PRICE_AGREEMENTS,
            f"POST /v1/finance/price-agreements/{answers.PRICE_AGREEMENTS['items'][1]['id']}/end": answers.PRICE_AGREEMENTS[
                "items"
            ][1],
        },
    ),
    "finance_supplier_invoice_list": (
        "finance supplier-invoice list",
        {"GET /v1/finance/supplier-invoices": answers.SUPPLIER_INVOICES},
    ),
    "finance_supplier_invoice_post": (
        "finance supplier-invoice post 2026-10 --provider verda",
        {
            "GET /v1/finance/supplier-invoices": answers.SUPPLIER_INVOICES,
            f"POST /v1/finance/supplier-invoices/sinv_{'8' * 32}/postings": answers.SUPPLIER_INVOICES[
                "items"
            ][0],
        },
    ),
    "finance_supplier_invoice_void": (
        "finance supplier-invoice void 2026-10 --provider verda --reason withdrawn",
        {
            "GET /v1/finance/supplier-invoices": answers.SUPPLIER_INVOICES,
            f"POST /v1/finance/supplier-invoices/sinv_{'8' * 32}/voids": answers.SUPPLIER_INVOICES["items"][0]
            | {"state": "voided", "reason": "withdrawn"},
        },
    ),
    "finance_match": ("finance match 2026-10", {"GET /v1/finance/match": answers.MATCHED}),
    "finance_match_different": (
        "finance match 2026-10 --provider verda",
        {"GET /v1/finance/match": answers.MATCH_DIFFERENT},
    ),
    "finance_explain": (
        f"finance explain {answers.CHARGE['charge']['id']}",
        {f"GET /v1/finance/charges/{answers.CHARGE['charge']['id']}": answers.CHARGE_INVOICED},
    ),
    "finance_usage": (
        "finance usage --month 2026-10",
        {"GET /v1/finance/usage": answers.USAGE_OF_ORGANIZATIONS},
    ),
    "finance_usage_by_sku": ("finance usage --by sku", {"GET /v1/finance/usage": answers.USAGE_OF_ALL}),
    "finance_usage_by_label": (
        "finance usage --by label:team",
        {"GET /v1/finance/usage": answers.USAGE_OF_ALL_BY_LABEL},
    ),
    "finance_usage_of_projects": (
        "finance usage --by project --organization fresh",
        {ORGANIZATIONS: answers.ORGANIZATIONS, "GET /v1/finance/usage": answers.USAGE_OF_PROJECTS},
    ),
    "finance_usage_empty": ("finance usage", {"GET /v1/finance/usage": EMPTY}),
    "finance_explain_line": (
        "finance explain INV-2026-000001 --line 2",
        {
            "GET /v1/finance/invoices": answers.INVOICES,
            f"GET {OF_INVOICE}": answers.INVOICE,
            f"GET {OF_INVOICE}/lines/2/charges": answers.INVOICED_CHARGES,
        },
    ),
    "finance_explain_line_of_a_credit": (
        f"finance explain {answers.INVOICE['id']} --line 3",
        {f"GET {OF_INVOICE}": answers.INVOICE, f"GET {OF_INVOICE}/lines/3/charges": EMPTY},
    ),
    "finance_explain_line_broken": (
        f"finance explain {answers.INVOICE['id']} --line 1",
        {f"GET {OF_INVOICE}": answers.INVOICE, f"GET {OF_INVOICE}/lines/1/charges": answers.INVOICED_CHARGES},
    ),
    "finance_explain_rest_of_a_term": (
        f"finance explain {answers.CHARGE_OF_A_REST['charge']['id']}",
        {f"GET /v1/finance/charges/{answers.CHARGE_OF_A_REST['charge']['id']}": answers.CHARGE_OF_A_REST},
    ),
    "finance_explain_broken": (
        f"finance explain {answers.CHARGE['charge']['id']}",
        {f"GET /v1/finance/charges/{answers.CHARGE['charge']['id']}": answers.CHARGE_NOT_POSTED},
    ),
    "finance_explain_lease": (
        f"finance explain {answers.CHARGE['lease_id']}",
        {f"GET /v1/finance/leases/{answers.CHARGE['lease_id']}/charges": answers.LEASE_CHARGES},
    ),
    "finance_reconciliation_list": (
        "finance reconciliation list",
        {"GET /v1/finance/reconciliations": answers.RECONCILIATIONS},
    ),
    "finance_reconciliation_show": (
        f"finance reconciliation show {answers.RECONCILED['id']}",
        {f"GET {RECONCILED}": answers.RECONCILED},
    ),
    "finance_reconciliation_show_all_of_a_daily_one": (
        f"finance reconciliation show {answers.RECONCILED['id']} --all",
        {
            f"GET {RECONCILED}/customers": {
                "items": answers.RECONCILED_CUSTOMERS["items"][1:2],
                "next_cursor": None,
            },
            f"GET {RECONCILED}/differences": answers.DIFFERENCES,
            f"GET {RECONCILED}": answers.RECONCILED_DAILY,
        },
    ),
    "finance_reconciliation_show_all": (
        f"finance reconciliation show {answers.RECONCILED['id']} --all",
        {
            f"GET {RECONCILED}/customers": answers.RECONCILED_CUSTOMERS,
            f"GET {RECONCILED}": answers.RECONCILED,
        },
    ),
    "invoice_list": ("invoice list", {"GET /v1/invoices": answers.INVOICES}),
    "invoice_list_empty": ("invoice list", {"GET /v1/invoices": EMPTY}),
    "invoice_show": (
        "invoice show INV-2026-000001",
        {"GET /v1/invoices": answers.INVOICES, f"GET /v1/invoices/{answers.INVOICE['id']}": answers.INVOICE},
    ),
    "invoice_show_voided": (
        f"invoice show {answers.INVOICE['id']}",
        {f"GET /v1/invoices/{answers.INVOICE['id']}": answers.INVOICE_VOIDED},
    ),
    "credit_note_list": ("credit-note list", {"GET /v1/credit-notes": answers.CREDIT_NOTES}),
    "credit_note_list_empty": ("credit-note list", {"GET /v1/credit-notes": EMPTY}),
    "credit_note_show": (
        "credit-note show CN-2026-000001",
        {
            "GET /v1/credit-notes": answers.CREDIT_NOTES,
            f"GET /v1/credit-notes/{answers.CREDIT_NOTE['id']}": answers.CREDIT_NOTE,
        },
    ),
    "finance_credit_note_create": (
        "finance credit-note create INV-2026-000001 --all --reason ticket --yes",
        {"GET /v1/finance/invoices": answers.INVOICES, "POST /v1/finance/credit-notes": answers.CREDIT_NOTE},
    ),
    "finance_credit_note_list": (
        "finance credit-note list",
        {"GET /v1/finance/credit-notes": answers.CREDIT_NOTES},
    ),
    "finance_credit_note_show": (
        f"finance credit-note show {answers.CREDIT_NOTE['id']}",
        {f"GET /v1/finance/credit-notes/{answers.CREDIT_NOTE['id']}": answers.CREDIT_NOTE},
    ),
    "finance_invoice_issue": (
        "finance invoice issue 2026-10",
        {"POST /v1/finance/invoices": answers.INVOICE_BATCH},
    ),
    "finance_invoice_draft": (
        "finance invoice issue 2026-10 --organization fresh --draft",
        {
            ORGANIZATIONS: answers.ORGANIZATIONS,
            "POST /v1/finance/invoices": answers.INVOICE_BATCH
            | {"items": [answers.INVOICE_DRAFT], "refused": []},
        },
    ),
    "finance_invoice_list": ("finance invoice list 2026-10", {"GET /v1/finance/invoices": answers.INVOICES}),
    "finance_invoice_show": (
        f"finance invoice show {answers.INVOICE['id']}",
        {f"GET /v1/finance/invoices/{answers.INVOICE['id']}": answers.INVOICE},
    ),
    "finance_billing_details_show": (
        "finance billing-details show fresh",
        {
            ORGANIZATIONS: answers.ORGANIZATIONS,
            f"GET /v1/finance/billing-details/{FRESH['id']}": answers.BILLING_DETAILS,
        },
    ),
    "finance_billing_details_set": (
        "finance billing-details set fresh FR 8.1 --name Fresh --address Paris",
        {
            ORGANIZATIONS: answers.ORGANIZATIONS,
            f"PUT /v1/finance/billing-details/{FRESH['id']}": answers.BILLING_DETAILS,
        },
    ),
    "finance_entries": (
        "finance entries --account cash --month 2026-11",
        {"GET /v1/finance/entries": answers.LEDGER_ENTRIES},
    ),
    "finance_entries_empty": (
        "finance entries --organization fresh",
        {ORGANIZATIONS: answers.ORGANIZATIONS, "GET /v1/finance/entries": EMPTY},
    ),
    "finance_wallets": ("finance wallets", {"GET /v1/finance/wallets": answers.WALLETS}),
    "finance_accounts": ("finance accounts", {"GET /v1/finance/accounts": answers.LEDGER_ACCOUNTS}),
    **{
        f"finance_{kind}": (
            f"finance {kind} fresh 24.90 --yes --reason ticket-4711",
            {
                ORGANIZATIONS: answers.ORGANIZATIONS,
                "POST /v1/finance/transactions": answers.LEDGER_TRANSACTION | {"kind": kind},
            },
        )
        for kind in ("refund", "payment")
    },
    "finance_topup": (
        "finance topup fresh 24.90 --yes --reason SEPA-000815",
        {
            ORGANIZATIONS: answers.ORGANIZATIONS,
            "POST /v1/finance/transactions": answers.LEDGER_TRANSACTION
            | {"kind": "top_up", "reason": "SEPA-000815"},
        },
    ),
    "finance_credit": (
        "finance credit fresh 24.90 --yes --reason ticket-4711",
        {
            ORGANIZATIONS: answers.ORGANIZATIONS,
            "POST /v1/finance/transactions": answers.LEDGER_TRANSACTION,
        },
    ),
    "reconciliation": ("reconciliation", {"GET /v1/reconciliation": answers.RECONCILIATION}),
    "reconciliation_of_another": (
        "reconciliation --organization fresh",
        {
            ORGANIZATIONS: answers.ORGANIZATIONS,
            f"{ORGANIZATIONS}/{FRESH['id']}/reconciliation": answers.RECONCILIATION,
        },
    ),
    "reconciliation_differs": (
        "reconciliation",
        {"GET /v1/reconciliation": answers.RECONCILIATION | {"difference": answers.usd(-20_000_001)}},
    ),
    "lease_list": ("lease list --all", {"GET /v1/leases": PAGE}),
    "lease_list_of_projects": ("lease list --all", {"GET /v1/leases": PAGE_OF_PROJECTS}),
    "lease_list_empty": ("lease list", {"GET /v1/leases": EMPTY}),
    "lease_show_placing": (f"lease show {LEASE_ID}", {SHOW: answers.a_lease("placing")}),
    "lease_show_waiting": (f"lease show {LEASE_ID}", {SHOW: answers.WAITING}),
    "lease_show_unconfirmed": (f"lease show {LEASE_ID}", {SHOW: answers.UNCONFIRMED}),
    "lease_show_starting": (f"lease show {LEASE_ID}", {SHOW: answers.a_lease("starting")}),
    "lease_show_ready": (f"lease show {LEASE_ID}", {SHOW: answers.a_lease()}),
    "lease_show_committed": (f"lease show {LEASE_ID}", {SHOW: answers.COMMITTED}),
    "lease_show_committed_and_released": (
        f"lease show {LEASE_ID}",
        {SHOW: answers.COMMITTED_AND_RELEASED},
    ),
    "lease_show_without_gpus": (
        f"lease show {LEASE_ID}",
        {
            SHOW: answers.a_lease()
            | {"gpu_model": None, "gpu_count": 0, "agent": None}
            | {"request": answers.a_lease()["request"] | {"sku": "cpu.16x"}}
            | {"price_per_gpu_hour": None, "price_per_hour": answers.usd(640_000_000)}
        },
    ),
    "lease_show_ended": (
        f"lease show {LEASE_ID}",
        {SHOW: answers.a_lease("ended", end_reason="released", end_why="released by the customer")},
    ),
    "lease_show_evicted": (
        f"lease show {LEASE_ID}",
        {
            SHOW: answers.a_lease("ended")
            | {
                "request": answers.SPOT_REQUEST,
                "price_per_hour": answers.usd(8_720_000_000),
                "price_per_gpu_hour": answers.usd(1_090_000_000),
                "end_reason": "evicted",
                "end_why": "its provider took it back, as announced at 2026-11-20T11:56:00+00:00",
            }
        },
    ),
    "lease_show_taken_back": (
        f"lease show {LEASE_ID}",
        {
            SHOW: answers.a_lease()
            | {
                "request": answers.SPOT_REQUEST | {"purchase": "interruptible"},
                "on_eviction": "replace",
                "taken_back_at": answers.at(seconds=-90),
            }
        },
    ),
    "why": (f"why {LEASE_ID}", {SHOW: answers.a_lease(), WHY: answers.EXPLANATION}),
    "why_verbose": (
        f"why {LEASE_ID} --verbose",
        {SHOW: answers.a_lease(), WHY: answers.EXPLANATION},
    ),
    "proof_list": (f"proof list {LEASE_ID}", {SHOW: answers.a_lease(), f"{SHOW}/proofs": answers.PROOFS}),
    "proof_list_empty": (f"proof list {LEASE_ID}", {SHOW: answers.a_lease(), f"{SHOW}/proofs": EMPTY}),
    "proof_show_passed": (
        f"proof show {LEASE_ID}",
        {SHOW: answers.a_lease(), PROOF: answers.a_proof("passed")},
    ),
    "proof_show_failed": (f"proof show {PROOF_ID}", {PROOF: answers.a_proof("failed")}),
    "proof_show_unanswered": (f"proof show {PROOF_ID}", {PROOF: answers.UNANSWERED}),
    "proof_show_emulated": (f"proof show {PROOF_ID}", {PROOF: answers.EMULATED}),
    "proof_record": ("proof record", {"GET /v1/operator/proofs": answers.PROOF_RECORDS}),
    "proof_record_none": ("proof record --account local", {"GET /v1/operator/proofs": EMPTY}),
    "account_permit_terminations": (
        "account permit-terminations lambda_cloud --reason slices --yes",
        {
            "GET /v1/operator/provider-accounts": answers.ACCOUNTS,
            "POST /v1/operator/termination-permits": answers.PERMIT,
        },
    ),
    "account_permit_terminations_missing": (
        "account permit-terminations lambda_cloud/research --missing --reason hall --yes",
        {
            "GET /v1/operator/provider-accounts": answers.ACCOUNTS,
            "POST /v1/operator/termination-permits": answers.MISSING_PERMIT,
        },
    ),
    "usage_by_label": ("usage --by label:team --month 2026-10", {"GET /v1/usage/sums": answers.USAGE_SUMS}),
    "usage_by_sku": ("usage --by sku", {"GET /v1/usage/sums": answers.USAGE_SUMS_WITH_CPUS}),
    "usage_by_day_empty": (
        "usage --by day --month 2026-10",
        {
            "GET /v1/usage/sums": answers.USAGE_SUMS
            | {"by": "day", "label_key": None, "groups": [], "gpu_seconds": 0, "amount": answers.usd(0)}
        },
    ),
    "usage_of_a_month": ("usage --month 2026-10", {"GET /v1/usage": EMPTY}),
    "bill_of_a_month": (
        "bill --month 2026-10",
        {
            "GET /v1/bill": answers.BILL_OF_PROJECTS
            | {"since": "2026-10-01T00:00:00Z", "until": "2026-11-01T00:00:00Z"}
        },
    ),
    "balance_show": ("balance show", {"GET /v1/balance": answers.BALANCE}),
    "balance_show_idle": (
        "balance show",
        {
            "GET /v1/balance": answers.BALANCE
            | {
                "running_leases": 0,
                "running_per_hour": answers.usd(0),
                "available_lasts_seconds": None,
                "due": answers.usd(0),
            }
        },
    ),
    "balance_entries": ("balance entries", {"GET /v1/balance/entries": answers.BALANCE_ENTRIES}),
    "balance_entries_empty": (
        "balance entries --month 2026-10 --kind credit",
        {"GET /v1/balance/entries": EMPTY},
    ),
    "usage": ("usage", {"GET /v1/usage": answers.USAGE}),
    "usage_of_projects": ("usage", {"GET /v1/usage": answers.of_two_projects(answers.USAGE, "items")}),
    "usage_empty": ("usage --since 7d", {"GET /v1/usage": EMPTY}),
    "bill": ("bill", {"GET /v1/bill": answers.BILL}),
    "bill_with_sla_credits": ("bill", {"GET /v1/bill": answers.BILL | {"sla_credits": sla_answers.BILLED}}),
    "bill_low": ("bill", {"GET /v1/bill": answers.BILL | {"balance_warning": answers.BALANCE_WARNING}}),
    "balance_alert_show": ("balance alert show", {"GET /v1/balance/alerts": answers.BALANCE_ALERTS}),
    "balance_alert_show_default": (
        "balance alert show",
        {"GET /v1/balance/alerts": answers.BALANCE_ALERTS_OF_NOBODY},
    ),
    "balance_alert_set": (
        "balance alert set --below 1000 --budget 5000",
        {"PUT /v1/balance/alerts": answers.BALANCE_ALERTS},
    ),
    "balance_alert_history": ("balance alert history", {"GET /v1/balance/events": answers.BALANCE_EVENTS}),
    "bill_of_projects": ("bill", {"GET /v1/bill": answers.BILL_OF_PROJECTS}),
    "bill_of_a_term": ("bill", {"GET /v1/bill": answers.BILL_OF_A_TERM}),
    "usage_of_a_term": ("usage", {"GET /v1/usage": answers.USAGE_OF_A_TERM}),
    "bill_with_cpus": ("bill", {"GET /v1/bill": answers.BILL_WITH_CPUS}),
    "bill_empty": (
        "bill",
        {
            "GET /v1/bill": answers.BILL
            | {"lines": [], "projects": [], "amount": answers.usd(0), "unrated": answers.usd(0)}
        },
    ),
    "loops": ("loops", {"GET /v1/operator/loops": answers.LOOPS}),
    "loops_of_two": ("loops", {"GET /v1/operator/loops": answers.LOOPS_OF_TWO}),
    "loops_none": ("loops", {"GET /v1/operator/loops": {"items": [], "missing": []}}),
    "fleet_list": ("fleet list", {"GET /v1/operator/fleet/machines": answers.FLEET}),
    "fleet_list_none": (
        "fleet list --silent",
        {"GET /v1/operator/fleet/machines": EMPTY},
    ),
    "fleet_totals": ("fleet totals", {"GET /v1/operator/fleet": answers.FLEET_TOTALS}),
    "fleet_totals_none": ("fleet totals --region eu", {"GET /v1/operator/fleet": answers.NO_MACHINES}),
    "liability_list": ("liability list", {"GET /v1/operator/liabilities": answers.LIABILITIES}),
    "liability_show": (
        "liability show computeinstance-e00abc",
        {
            "GET /v1/operator/liabilities": answers.LIABILITIES,
            f"GET /v1/operator/liabilities/{answers.LIABILITY_IDS[1]}": answers.LIABILITIES["items"][1],
        },
    ),
    "liability_end": (
        f"liability end {answers.LIABILITY_IDS[2][:8]} --reason ticket-4711 --yes",
        {
            "GET /v1/operator/liabilities": answers.LIABILITIES,
            f"GET /v1/operator/liabilities/{answers.LIABILITY_IDS[2]}": answers.LIABILITIES["items"][2],
            f"POST /v1/operator/liabilities/{answers.LIABILITY_IDS[2]}/end": answers.LIABILITIES["items"][2]
            | {
                "decision": {
                    "why": "ticket-4711",
                    "actor": "key_019aa1b2c3d47e5f8a9b0c1d2e3f4a5b",
                    "at": answers.at(seconds=1),
                }
            },
        },
    ),
    "liability_list_none": ("liability list", {"GET /v1/operator/liabilities": answers.NO_LIABILITIES}),
    "lease_notices": (
        f"lease notices {answers.LEASE_ID}",
        {
            f"GET /v1/leases/{answers.LEASE_ID}": answers.a_lease(),
            f"GET /v1/leases/{answers.LEASE_ID}/notices": answers.NOTICES,
        },
    ),
    "lease_notices_none": (
        f"lease notices {answers.LEASE_ID}",
        {
            f"GET /v1/leases/{answers.LEASE_ID}": answers.a_lease(),
            f"GET /v1/leases/{answers.LEASE_ID}/notices": EMPTY,
        },
    ),
    "lease_replace": (
        f"lease replace {answers.LEASE_ID} --reason broken --yes",
        {
            f"GET /v1/leases/{answers.LEASE_ID}": answers.a_lease(),
            f"POST /v1/leases/{answers.LEASE_ID}/replace": answers.a_lease(),
        },
    ),
    "repair_list": ("repair list --all", {"GET /v1/operator/repairs": answers.REPAIRS}),
    "repair_list_of_a_machine": (
        f"repair list --machine {answers.MACHINE_ID}",
        {"GET /v1/operator/repairs": EMPTY},
    ),
    "repair_show": (
        f"repair show {answers.REPAIR_ID}",
        {f"GET /v1/operator/repairs/{answers.REPAIR_ID}": answers.REPAIR | {"ticket": TICKET.splitlines()}},
    ),
    "repair_list_none": ("repair list", {"GET /v1/operator/repairs": EMPTY}),
    "preemption_list": ("preemption list --all", {"GET /v1/operator/preemptions": answers.PREEMPTIONS}),
    "preemption_list_none": ("preemption list", {"GET /v1/operator/preemptions": EMPTY}),
    "preemption_show": (
        f"preemption show {answers.OTHER_LEASE_ID}",
        {"GET /v1/operator/preemption-decisions": answers.PREEMPTION_DECISIONS},
    ),
    "preemption_show_none": ("preemption show", {"GET /v1/operator/preemption-decisions": EMPTY}),
    "preemption_status": (
        "preemption status",
        {
            "GET /v1/operator/preemption-switch": answers.PREEMPTION_SWITCH
            | {"armed": False, "at": None, "switched_by": None, "reason": None}
        },
    ),
    "preemption_arm": (
        "preemption arm --reason looked --yes",
        {"POST /v1/operator/preemption-switch": answers.PREEMPTION_SWITCH},
    ),
    "preemption_disarm": (
        "preemption disarm --reason ticket",
        {
            "POST /v1/operator/preemption-switch": answers.PREEMPTION_SWITCH
            | {"armed": False, "reason": "ticket"}
        },
    ),
    "repair_take_out": (
        f"repair take-out {answers.MACHINE_ID} --reason fan --yes",
        {f"POST /v1/operator/machines/{answers.MACHINE_ID}/maintenance": answers.MAINTENANCE},
    ),
    "repair_return": (
        f"repair return {answers.MACHINE_ID}",
        {
            f"POST /v1/operator/machines/{answers.MACHINE_ID}/return": answers.MAINTENANCE
            | {"ended_at": answers.at(seconds=1)}
        },
    ),
    "enforcement_list": ("enforcement list --all", {"GET /v1/operator/enforcement": answers.ACTIONS}),
    "enforcement_list_none": ("enforcement list", {"GET /v1/operator/enforcement": EMPTY}),
    "enforcement_show": (
        f"enforcement show {answers.ACTION_ID}",
        {f"GET /v1/operator/enforcement/{answers.ACTION_ID}": answers.ACTION},
    ),
    "enforcement_undo": (
        f"enforcement undo {answers.ACTION_ID} --reason benchmark --yes",
        {f"POST /v1/operator/enforcement/{answers.ACTION_ID}/undo": answers.ACTION},
    ),
    "enforcement_detectors": ("enforcement detectors", {"GET /v1/operator/detectors": answers.DETECTORS}),
    "enforcement_arm": (
        "enforcement arm kv_cache_growth --reason looked --yes",
        {"POST /v1/operator/detectors/kv_cache_growth/arm": answers.DETECTOR},
    ),
    "enforcement_disarm": (
        "enforcement disarm kv_cache_growth --reason wrong",
        {"POST /v1/operator/detectors/kv_cache_growth/disarm": answers.DETECTOR | {"armed": False}},
    ),
    "lease_enforcement": (
        f"lease enforcement {answers.LEASE_ID}",
        {
            f"GET /v1/leases/{answers.LEASE_ID}": answers.a_lease(),
            f"GET /v1/leases/{answers.LEASE_ID}/enforcement": answers.LEASE_ACTIONS,
        },
    ),
    "lease_enforcement_none": (
        f"lease enforcement {answers.LEASE_ID}",
        {
            f"GET /v1/leases/{answers.LEASE_ID}": answers.a_lease(),
            f"GET /v1/leases/{answers.LEASE_ID}/enforcement": answers.NO_LEASE_ACTIONS,
        },
    ),
    "lease_idle_stop": (
        f"lease idle-stop {answers.LEASE_ID} --after 2h",
        {
            f"GET /v1/leases/{answers.LEASE_ID}": answers.a_lease(),
            f"PUT /v1/leases/{answers.LEASE_ID}/idle-stop": {
                "lease_id": answers.LEASE_ID,
                "after_seconds": 7_200,
            },
        },
    ),
    "orphan_list": ("orphan list", {"GET /v1/operator/orphans": answers.ORPHANS}),
    "orphan_list_all": ("orphan list --all", {"GET /v1/operator/orphans": answers.ORPHANS_ALL}),
    "orphan_list_none": ("orphan list", {"GET /v1/operator/orphans": EMPTY}),
    "orphan_list_held": ("orphan list", {"GET /v1/operator/orphans": answers.ORPHANS_HELD}),
    "orphan_show": (
        "orphan show lambda_cloud i-2",
        {
            "GET /v1/operator/orphans": {
                "items": [
                    answers.ORPHANS["items"][0]
                    | {"origin": "second_machine", "not_adopted_why": None}
                    | {"held_code": "left", "held_why": "It is left alone. key_1 decided it: ticket 4711"}
                    | {"decision": answers.ORPHAN_DECISION | {"choice": "leave"}}
                ]
            }
        },
    ),
    "orphan_leave": (
        "orphan leave lambda_cloud i-2 --reason ticket-4711",
        {"POST /v1/operator/orphan-decisions": {"items": [answers.ORPHAN_DECISION | {"choice": "leave"}]}},
    ),
    "orphan_adopt": (
        "orphan adopt lambda_cloud i-2 --reason ticket-4711",
        {"POST /v1/operator/orphan-decisions": {"items": [answers.ORPHAN_DECISION | {"choice": "adopt"}]}},
    ),
    "orphan_revoke": (
        "orphan revoke lambda_cloud i-2 --reason ticket-4711",
        {"POST /v1/operator/orphan-decisions": {"items": [answers.ORPHAN_DECISION | {"choice": "revoke"}]}},
    ),
    "orphan_end": (
        "orphan end lambda_cloud --held --yes --reason ticket-4711",
        {
            "GET /v1/operator/orphans": answers.ORPHANS_HELD,
            "POST /v1/operator/orphan-decisions": {"items": [answers.ORPHAN_DECISION]},
        },
    ),
    "account_list": ("account list", {"GET /v1/operator/provider-accounts": answers.ACCOUNTS}),
    "account_show": (
        "account show lambda_cloud",
        {"GET /v1/operator/provider-accounts": answers.ACCOUNTS},
    ),
    "account_limits": ("account limits", {"GET /v1/operator/provider-accounts": answers.ACCOUNTS}),
    "account_limits_of_one": (
        "account limits lambda_cloud",
        {"GET /v1/operator/provider-accounts": answers.ACCOUNTS},
    ),
    "account_test": ("account test lambda_cloud", _asked("test")),
    "account_test_refused": ("account test lambda_cloud", _asked("test", **answers.REFUSED_CREDENTIALS)),
    "account_drain": (
        "account drain lambda_cloud --reason slices",
        _asked("drain", said="Nothing is ordered there any more."),
    ),
    "account_resume": (
        "account resume lambda_cloud --reason mended",
        _asked("resume", said="It is used again."),
    ),
    "account_arm": (
        "account arm lambda_cloud --reason ticket-4711 --yes",
        _asked("arm", said="Orphans there are terminated."),
    ),
    "account_disarm": (
        "account disarm lambda_cloud --reason ticket-4712",
        _asked("disarm", said="Orphans there are only reported."),
    ),
    "account_remove": (
        "account remove lambda_cloud --yes --reason closed",
        _asked("remove", said="It is removed, and its credentials are deleted."),
    ),
    "account_requests": (
        "account requests",
        {"GET /v1/operator/provider-account-requests": answers.ACCOUNT_REQUESTS},
    ),
    "account_requests_none": ("account requests", {"GET /v1/operator/provider-account-requests": EMPTY}),
    "permission_denied": ("loops", {"GET /v1/operator/loops": PROBLEM}),
}


ANSWERED = [name for name in SCREENS if name not in {"account_test_refused", "permission_denied"}]
FILTERED = {
    "account_show",
    "offers",
    "offers_with_cpus",
    "offers_operator",
    "offers_none",
    "offers_sold_out",
    "api_key_list",
    "finance_reconcile_all",
    "finance_reconciliation_show_all",
    "finance_reconciliation_show_all_of_a_daily_one",
}
"""Screens that show a part of the answer, or several answers."""


def test_a_screen_reads_as_it_should(tmp_path: Path) -> None:
    def check(name: str) -> None:
        command, known = SCREENS[name]
        shown = Stand(tmp_path, known).run(*command.split())
        golden.check(FOLDER / f"{name}.txt", f"$ splitplane {command}\n{shown.golden()}")

    check_every(SCREENS, check)


def test_a_screen_fits_its_terminal_and_ends_its_lines_where_the_text_ends(tmp_path: Path) -> None:
    def check(name: str) -> None:
        command, known = SCREENS[name]
        for width in (80, 120):
            for line in Stand(tmp_path, known, width=width).run(*command.split()).out.splitlines():
                assert len(line) <= width, line
                assert line == line.rstrip()

    check_every(ANSWERED, check)


def test_a_screen_at_a_terminal_is_the_same_text_with_colours(tmp_path: Path) -> None:
    def check(name: str) -> None:
        command, known = SCREENS[name]
        piped = Stand(tmp_path, known).run(*command.split()).out
        coloured = Stand(tmp_path, known, at_a_terminal=True).run(*command.split()).out
        plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
        assert [line.rstrip() for line in plain.splitlines()] == piped.splitlines()

    check_every(SCREENS, check)


def test_json_is_the_answer_itself_on_every_command(tmp_path: Path) -> None:
    def check(name: str) -> None:
        command, known = SCREENS[name]
        shown = Stand(tmp_path, known).run(*command.split(), "--json")
        answered = [answer for answer in known.values() if isinstance(answer, dict)][-1]
        printed = httpx.Response(200, text=shown.out).json()
        if name not in FILTERED:
            assert printed == answered
        assert [item for item in printed.get("items", []) if item not in answered["items"]] == []

    check_every(ANSWERED, check)


def test_quiet_prints_ids_a_line_each_and_no_remark(tmp_path: Path) -> None:
    for name, ids in {
        "lease_list": [lease["id"] for lease in answers.leases()],
        "lease_list_empty": [],
        "lease_show_ready": [LEASE_ID],
        "skus": [sku["name"] for sku in answers.SKUS["items"]],
        "offers": [answers.offers(cost=False)["items"][at]["key"] for at in (0, 2, 3)],
        "api_key_create": [answers.ISSUED["secret"]],
        "organization_create": [answers.ISSUED["secret"]],
        "ssh_key_list": [key["id"] for key in answers.SSH_KEYS["items"]],
        "node_list_everybodys": [report["id"] for report in answers.NODE_REPORTS["items"]],
        "orphan_list": [orphan["provider_ref"] for orphan in answers.ORPHANS["items"]],
    }.items():
        with case(name):
            command, known = SCREENS[name]
            shown = Stand(tmp_path, known).run(*command.split(), "--quiet")
            assert (shown.out.splitlines(), shown.err, shown.code) == (ids, "", 0)
