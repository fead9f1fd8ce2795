"""The OpenAPI document as it is served, printed and kept as docs/generated/openapi.json."""

from typing import Any

from litestar import Litestar

from control_plane.api.openapi import headers, operations, schemas

_TAGS = {
    "leases": "The right to use GPUs: what is asked for, followed, explained, released and billed.",
    "catalogue": "What is sold, what providers have, and what a lease would cost.",
    "proofs": "How GPUs answered our challenges.",
    "billing": "Charges, the running bill, and the sums of both.",
    "finance": "For those who keep the books: accounting periods, the ledger, invoices, and reconciliations.",
    "projects": "What an organization divides its leases and costs by.",
    "networks": "Private networks of a project, which the machines of leases join.",
    "clusters": "Kubernetes clusters, and for operators the hosts that their servers run on.",
    "kubeconfigs": "What opens the namespace of a project in a cluster, for hours at most.",
    "node pools": "Nodes in Kubernetes clusters: equal ones of one SKU, each of which is a lease.",
    "envelopes": "Limits, what is used of them, requests for higher ones, and what was decided by them.",
    "SSH keys": "Public keys that leases can be limited to.",
    "SSH certificates": "What one logs in to the machines of leases with: signed for a key, for minutes.",
    "firewalls": "Which ports of the machine of a lease are open to whom.",
    "consoles": "What the machine of a lease printed on its console, for when it does not come up.",
    "API keys": "The keys that requests are authorized by, each with its owner.",
    "sessions": "Where people are signed in.",
    "users": "The people of an organization.",
    "service accounts": "The machine identities of an organization.",
    "roles": "Who may do what where.",
    "organizations": "Tenants, their money and their quota.",
    "audit log": "What was asked, allowed, refused and done, in hash chains.",
    "invoices": "What was used in a month, with tax, as documents in whole cents.",
    "sla": "Service levels: how the promises of leases stand, which were broken, and what was given back.",
    "exports": "The charges of a month as files in FOCUS, with a manifest.",
    "provider accounts": "For operators: our accounts at providers.",
    "loops": "For operators: what the reconciler's loops reported.",
    "agents": "For operators: what the agents on machines reported last.",
    "orphans": "For operators: machines that no record claims.",
    "telemetry": "What machines measured, how they are, and both for Prometheus.",
    "enforcement": "What is found about leases that run, and what is done about it.",
    "machine health": "What customers are told about machines, and what is done about unhealthy ones.",
    "fleet": "For operators: every machine that may exist, and counts of them.",
    "liabilities": "For operators: what costs money for nobody.",
    "health": "Whether the process can serve. No key is needed.",
}


def document(app: Litestar) -> dict[str, Any]:
    """The whole document. It costs some tenths of a second, so its callers keep it."""
    made = app.openapi_schema.to_schema()
    known = schemas.components()
    operations.complete(made["paths"], app, known)
    made["tags"] = [{"name": name, "description": text} for name, text in _TAGS.items()]
    made["components"] |= {
        "schemas": known,
        "responses": operations.problems(),
        "parameters": headers.PARAMETERS,
        "headers": headers.components(),
    }
    return made
