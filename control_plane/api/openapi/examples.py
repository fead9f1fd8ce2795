"""The examples of bodies in the OpenAPI document, made of the examples of their parts.

A request shows every field that it may have. An answer shows what a client gets at first: what may be null is null,
unless the field is what the operation is called for.
"""

from collections.abc import Mapping
from typing import Any

from control_plane.api.openapi.schemas import REF, Schema

_ID = "0190c2f07d1e7b3a9c54e1f2a3b4c5d6"
_TEXTS: Mapping[str, str] = {
    "legal_name": "Heliotrope GmbH",
    "seller": "Neocloud Ltd",
    "seller_address": "1 Quay Street",
    "seller_tax_id": "IE6388047V",
    "address_lines": "Salomon-Idler-Str. 12",
    "country": "DE",
    "tax_id": "DE811907980",
    "InvoiceSummaryView.number": "INV-2026-000001",
    "InvoiceView.number": "INV-2026-000001",
    "CreditNoteSummaryView.number": "CN-2026-000001",
    "CreditNoteView.number": "CN-2026-000001",
    "invoice_number": "INV-2026-000001",
    "CreditNoteSummaryView.issued_by": "user_0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
    "CreditNoteView.issued_by": "user_0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
    "MatchedMachineView.reference": "i-0a1b2c3d",
    "InvoiceView.issued_by": "user_0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
    "CreditTermsView.changed_by": "user_0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
    "CreditTermsView.reason": "contract 17",
    "BillingDetailsView.changed_by": "user_0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
    "NotInvoicedView.code": "billing_details_missing",
    "NotInvoicedView.detail": "It has no billing details; set who is invoiced.",
    "AccountView.name": "lambda_cloud/research",
    "GpuReading.name": "NVIDIA H100 80GB HBM3",
    "OrganizationView.name": "heliotrope",
    "SkuView.name": "h100-sxm.1x",
    "AdmittedKeyView.name": "laptop",
    "SshKeyView.name": "laptop",
    "ProjectView.name": "research",
    "EnvironmentView.name": "prod",
    "FirewallRuleView.protocol": "tcp",
    "FirewallRuleView.ports": "8080",
    "sources": "203.0.113.0/24",
    "lines": "[    0.000000] Linux version 6.8.0-86-generic",
    "NetworkView.name": "training",
    "NetworkView.range": "10.64.4.0/22",
    "ClusterView.name": "eu-1",
    "KubeconfigView.name": "laptop",
    "KubeconfigView.cluster": "eu-1",
    "KubeconfigView.project": "training",
    "KubeconfigView.namespace": "prj-0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
    "KubeconfigView.sealed": "N2UwYjY1ZDQ3MmYyMTk0YzNhZjA4ZTc2...",
    "ClusterView.version": "v1.36.3+k3s1",
    "ClusterView.endpoint": "https://k8s-1.example.com:6443",
    "NodePoolView.cluster": "eu-1",
    "NodePoolWaitingView.code": "balance_too_low",
    "TaintView.key": "batch",
    "TaintView.value": "only",
    "node_labels": "vision",
    "cluster": "eu-1",
    "node_pool": "train",
    "NodeView.name": f"node-{_ID}",
    "NodePoolReportView.organization": "heliotrope",
    "NodeReportView.organization": "heliotrope",
    "DifferenceView.organization": "heliotrope",
    "ReconciledCustomerView.organization": "heliotrope",
    "CustomerUsageView.organization": "heliotrope",
    "LedgerEntryView.organization": "heliotrope",
    "WalletView.organization": "heliotrope",
    "examples": f"ch_{_ID}",
    "ChargeExplanationView.organization": "heliotrope",
    "NodeReportView.address": "192.0.2.10",
    "NodeReportView.version": "v1.36.3+k3s1",
    "NodeReportView.endpoint": "192.0.2.10:51820",
    "StepEvidenceView.says": "packets of up to 1420 bytes pass to the server at 10.64.0.1",
    "conditions": "True",
    "lease": "train-c5d6a1b2",
    "ServerHostView.name": "k8s-1",
    "PoolView.name": "h100-eu",
    "PoolDetailView.name": "h100-eu",
    "SimulatedPolicyView.policy": "newsvendor",
    "ServerHostView.cluster": "eu-1",
    "ServerHostView.address": "192.0.2.10",
    "ServerHostView.outside": "k8s-1.example.com",
    "failing_why": "Unreachable: no answer from 192.0.2.10",
    "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl",
    "NetworkMemberView.lease": "train",
    "NetworkMemberView.address": "10.64.4.2",
    "network": "default",
    "UserView.name": "Ada Lovelace",
    "UserView.email": "ada@example.com",
    "ServiceAccountView.name": "ci-runner",
    "MeView.name": "ci-runner",
    "MeView.organization": "heliotrope",
    "PermissionView.permission": "leases.create",
    "environment": "prod",
    "granted_by": f"user_{_ID}",
    "ReportView.source": "nvml",
    "ReportView.id": _ID,
    "AuditEventView.id": f"aud_{_ID}",
    "AuditEventView.event": "leases.create",
    "AuditEventView.subject": f"sa_{_ID}",
    "targets": f"le_{_ID}",
    "chain": f"org_{_ID}",
    "BillView.since": "2026-11-01T00:00:00Z",
    "BillView.until": "2026-12-01T00:00:00Z",
    "offers_left_out": "unknown GPU: H100 (94 GB SXM5)",
    "RateLimitView.bucket": "launch",
    "OfferBlockView.subject": "gpu_8x_h100_sxm5 in us-east-1",
    "OfferBlockView.machine_id": f"mc_{_ID}",
    "RejectedView.code": "sold_out",
    "RejectedView.key": "lambda_cloud:us-east-1:gpu_1x_h100_sxm5",
    "RejectedView.region": "us-east-1",
    "bucket": "launch",
    "origin_why": "The answer to its launch was lost, and the search for it was given up.",
    "RejectedView.why": "lambda_cloud lists no stock in us-east-1",
    "LedgerTransactionView.reason": "ticket 4711",
    "approved_by": "user_0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
    "created_by": "user_0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
    "currency": "USD",
    "sha256": "ab" * 32,
    "issuer": "main",
    "QuotaRequestView.reason": "a larger model",
    "account": "lambda_cloud/research",
    "actor": f"sa_{_ID}",
    "taken_by": f"user_{_ID}",
    "HealthCheckView.detail": "The last sample is 9 s old.",
    "LeaseMachineHealth.why": "a GPU does not answer: GPU 3 does not answer",
    "EnforcementView.why": "63 % of the KV cache is in use, and 100 % will be in 10 min",
    "rules": "0f1e2d3c4b5a6978",
    "verdict_why": "a GPU does not answer: GPU 3 does not answer",
    "opened_why": "a GPU does not answer: GPU 3 does not answer",
    "LeftBehindView.kind": "volume",
    "OpenFaultView.detail": "a GPU does not answer: GPU 3 does not answer",
    "OpenAlertView.why": "the workload is asked for smaller batches",
    "RepairFaultView.detail": "GPU 3 does not answer",
    "HealthChangeView.why": "a GPU does not answer: GPU 3 does not answer",
    "RepairActView.what": "next step: reset; we saw the fault ourselves, and a reset may end it",
    "gpu_uuids": "GPU-b76c6f85-9473-52f2-a106-5c04476ce803",
    "ticket": "Machine i-0a1b2c3d is not healthy (quarantined): a GPU does not answer.",
    "RepairView.id": f"rp_{_ID}",
    "RepairView.why": "its customer was told that it will be replaced",
    "PreemptionView.why": "it has the lowest harm of the interruptible leases that can yield a machine",
    "PreemptionDecisionView.why": "preemption is not armed, so this is a dry run",
    "ConsideredView.why": "It yields its machine to another lease.",
    "PreemptionSwitchView.reason": "looked at a week of dry runs",
    "switched_by": f"user_{_ID}",
    "asked_by": f"sa_{_ID}",
    "imported_by": f"user_{_ID}",
    "agreed_by": f"user_{_ID}",
    "PriceAgreementView.reason": "contract 17",
    "AgentResultView.detail": "8 GPUs, 0 lost, 0 errors, nvml",
    "SessionView.client": "splitplane on laptop",
    "SessionView.address": "198.51.100.7",
    "below_percent": "99.90",
    "available_percent": "99.73",
    "month": "2026-10",
    "promised": "99.90 % of a calendar month (UTC)",
    "so_far": "99.73 % of 2026-10 so far",
    "counts": "Time in which its machine had failed.",
    "does_not_count": "Time in which you had the machine stopped.",
    "SlaBreachView.id": f"br_{_ID}",
    "SlaFactView.what": "not available for 7,200 s: its machine had failed; nothing was billed",
    "credit_percent": "10.00",
    "ready_credit_percent": "10.00",
    "replacement_credit_percent": "25.00",
    "notice_credit_percent": "10.00",
    "driver": "570.124.06",
    "event": "admitted",
    "fingerprint": "SHA256:05mmdsVVB/aUXDScbZBqqK3ZnvbK3ZXUCRyX1HVi3v4",
    "hint": "spk_fFZo...T2Ew",
    "key": "lambda_cloud:eu-central-1:gpu_1x_h100_sxm5",
    "launch_key": "sp-0190c2f07d1e7b3a",
    "lease_name": "train",
    "loop": "place_leases",
    "message": "Choosing a machine.",
    "name": "train",
    "native_status": "active",
    "native_type": "gpu_1x_h100_sxm5",
    "offer": "lambda_cloud:eu-central-1:gpu_1x_h100_sxm5",
    "project": "default",
    "provider": "lambda_cloud",
    "providers": "lambda_cloud",
    "provider_ref": "0920582c7ff041399e34823a0be62549",
    "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl you@host",
    "reason": "unpaid since May",
    "reference": "measured 2026-11-01",
    "proofs": f"pf_{_ID}",
    "region": "eu-central-1",
    "regions": "eu",
    "replica": "reconciler-1",
    "sku": "h100-sxm.1x",
    "skus": "h100-sxm.1x",
    "source": "cuda",
    "ssh_user": "ubuntu",
    "uuid": "GPU-b76c6f85-9473-52f2-a106-5c04476ce803",
    "why": "ticket 4711",
    "wing": "leases",
}
"""The text of a field: by struct and field, or by field alone where the schema has no example."""
UNKNOWN = "..."
"""The text of a field that is missing there, which a test refuses."""
_NUMBERS: Mapping[str, int | float] = {
    "acted_on": 0,
    "attempts": 0,
    "disk_gib": 1_000,
    "every_seconds": 2,
    "gpu": 0,
    "ending_leases": 0,
    "gpu_quota": 64,
    "gpu_seconds": 3_600,
    "late_after_seconds": 66,
    "machine_seconds": 0,
    "memory_gib": 200,
    "memory_mib": 81_559,
    "per_second": 2.1e12,
    "seconds": 31.4,
    "sold_bytes": 85_899_345_920,
    "ssh_port": 22,
    "steps_done": 0,
    "steps_total": 7,
    "unit_seconds": 3_600,
    "unrated_gpu_seconds": 0,
    "unrated_machine_seconds": 0,
    "unrated_unit_seconds": 0,
    "priority": 50,
    "ready_seconds": 900,
    "replacement_seconds": 900,
    "degraded_seconds": 600,
    "notice_seconds": 259_200,
    "vcpus": 24,
    "wait_timeout_seconds": 1_800,
}
"""The number of a field; 1 for any other."""
_NANO: Mapping[str, int] = {
    "available": 497_510_000_000,
    "balance": 500_000_000_000,
    "difference": 0,
    "unrated": 0,
}
"""The amount of a field in nano-US-dollars; any other has the one of the schema."""
_TRUE = frozenset({"admitted", "available"})
_EMPTY = frozenset(
    {
        "details",
        "errors",
        "evidence",
        "findings",
        "gpus_of_model",
        "hints",
        "links",
        "missing",
        "notes",
        "refusals",
        "RejectedView.proofs",
    }
)
_NOT_NULL: Mapping[str, Any] = {
    "secret": "spk_shown-only-once",
    "JournalLine.state_after": "placing",
    "gpu_model": "h100-sxm-80gb",
}
"""What may be null, and is there in the answer that clients look at the example for."""
_PRICES = frozenset({"price_per_gpu_hour", "price_per_hour", "price_per_hour_stopped", "first_hour"})
_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "releaseLease": {"state": "ending", "end_reason": "released", "end_why": "you released it"},
    "getMatch": {"missing_invoices": []},
}
"""What differs in the answer of an operation from what its schema and the values above make."""


def of_request(schema: Schema, known: Mapping[str, Schema]) -> Any:
    """An example of a schema: its own first one, or one made of the examples of its parts."""
    if "$ref" in schema:
        return of_request(known[schema["$ref"].removeprefix(REF)], known)
    for key in ("examples", "enum"):
        if key in schema:
            return schema[key][0]
    if "anyOf" in schema:
        return of_request(schema["anyOf"][0], known)
    if "properties" in schema:
        return {name: of_request(part, known) for name, part in schema["properties"].items()}
    if schema.get("type") == "array":
        return [of_request(schema["items"], known)]
    return schema["default"]


def of_answer(operation: str, schema: Schema, known: Mapping[str, Schema]) -> Any:
    """An example of what the operation answers."""
    made = _value(schema, known, "", "")
    changes = _CHANGES.get(operation, {})
    if "status" in made and "state" in changes:
        made["status"] |= {"state": changes["state"], "message": "No longer billed."}
    return made | changes


def _value(schema: Schema, known: Mapping[str, Schema], struct: str, field: str) -> Any:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REF)
        if name == "Money" and field in _NANO:
            return {"usd": f"{_NANO[field] / 1e9:.9f}", "nano": _NANO[field]}
        return _value(known[name], known, name, field)
    if f"{struct}.{field}" in _TEXTS:
        return _TEXTS[f"{struct}.{field}"]
    if "properties" in schema:
        return {name: _field(part, known, struct, name) for name, part in schema["properties"].items()}
    for key in ("examples", "enum"):
        if key in schema:
            return schema[key][0]
    return _plain(schema, known, struct, field)


def _field(schema: Schema, known: Mapping[str, Schema], struct: str, field: str) -> Any:
    where = f"{struct}.{field}"
    if "anyOf" not in schema:
        return _value(schema, known, struct, field)
    if field in _PRICES:
        return _value(schema["anyOf"][0], known, struct, field)
    return _NOT_NULL.get(where, _NOT_NULL.get(field))


def _plain(schema: Schema, known: Mapping[str, Schema], struct: str, field: str) -> Any:
    """A value of a type that says nothing more about itself."""
    where = f"{struct}.{field}"
    match schema["type"]:
        case "array":
            empty = field in _EMPTY or where in _EMPTY
            return [] if empty else [_value(schema["items"], known, struct, field)]
        case "object":
            return {} if field in _EMPTY else {"team": "vision"}
        case "boolean":
            return field in _TRUE
        case "string":
            return _TEXTS.get(field, UNKNOWN)
        case _:
            return _NUMBERS.get(field, 1)
