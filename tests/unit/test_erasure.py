"""What a deletion of an organization erases is held against the tables: a new column of words is erased, or named here."""

from sqlalchemy import ARRAY, Text
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.db.erasure import DELETED, ERASED
from control_plane.db.tables.every import metadata
from control_plane.db.tables.marks import Tenancy, marks_of

# Ids, codes and words of ours; the client's name and address stay, as who did what has to, until the line is pruned.
_AUDIT = {
    *("event", "outcome", "code", "subject", "subject_kind", "credential", "subject_organization", "project"),
    *("targets", "address", "client", "region", "rule", "request_id", "links", "details"),
}
KEPT = {
    "audit_events": _AUDIT,
    "audit_pending": _AUDIT,
    "agents": {"digest", "next_digest", "agent_sha256", "why", "heartbeat", "results"},
    "api_keys": {"role", "scopes", "project_ids"},
    "attempts": {"offer_key", "outcome", "fail_reason", "fail_why"},
    "balance_alerts": {"budget_percents", "changed_by"},
    "balance_states": {"state", "why"},
    "capacity_held": {"gpu_model"},
    "claims": {"step", "waits_for"},
    "data_keys": {"purpose", "master", "why"},
    "envelope_warnings": {"why"},
    "export_files": {"name", "sums"},
    "export_runs": {"seller", "created_by"},
    "envelopes": {"level", "limits", "set_by"},
    "findings": {"detector", "why", "outcome"},
    "hub_networks": {"public_key", "endpoint"},
    "idle_stops": {"set_by"},
    "leases": {
        *("sku", "gpu_model", "purchase", "proof", "regions", "providers", "state", "end_reason"),
        *(
            "end_why",
            "waiting_why",
            "traceparent",
            "switched_at",
            "on_eviction",
            "paused_at",
            "held_at",
            "unattributed_at",
            "sla",
        ),
    },
    "master_keys": {"master"},
    "networks": set(),
    "cluster_tenants": {"failing_why", "node_digest"},
    "node_pools": {"request", "state", "waiting_code", "waiting_why", "why"},
    "nodes": {
        *(
            "name",
            "state",
            "public_key",
            "next_key",
            "endpoint",
            "old_key",
            "key_holders",
            "tunnels",
            "applied_version",
            "holders",
            "uid",
            "reported",
        ),
        *("leave_reason", "leave_why", "failing_why"),
    },
    "organizations": {"name", "state", "issuer"},
    "preemptions": {"offer_key", "state", "why"},
    "powers": {"state", "why", "boot_id", "listed"},
    "peers": {"public_key", "address", "hub_key", "hub_endpoint"},
    "quotes": {"sku", "regions", "providers", "purchase", "sla"},
    "sla_clocks": {"maintenance"},
    "sla_months": {"sla"},
    "quota_requests": {"level", "limits", "state", "asked_by", "decided_by"},
    "relays": {"public_key", "endpoint", "applied_version"},
    "role_bindings": {"role", "scope", "granted_by"},
    "secrets": {"purpose"},
    "service_accounts": {"state"},
    "sessions": {"ended_why"},
    "users": {"state"},
}
"""Words of ours, ids, and what the outcome replaces beside the statements (the organization's name)."""
_WORDS = (Text, JSONB, ARRAY)


def test_every_column_of_words_that_a_customer_may_write_is_erased_or_known_to_be_ours() -> None:
    for table in metadata.tables.values():
        marks = marks_of(table)
        ours = (
            marks.tenancy
            in (Tenancy.SHARED, Tenancy.PLATFORM, Tenancy.OFFERED, Tenancy.CLAIMED, Tenancy.OF_MACHINE)
            and table.name != "organizations"
        )
        if marks.fact or ours or table.name in DELETED:
            continue
        words = {column.name for column in table.columns if isinstance(column.type, _WORDS)}
        known = ERASED.get(table.name, {}).keys() | KEPT.get(table.name, set())
        assert words <= known, (
            f"{table.name}: erase {sorted(words - known)} in db/erasure.py, or keep them here"
        )


def test_what_is_erased_exists() -> None:
    for table, columns in ERASED.items():
        assert columns.keys() <= set(metadata.tables[table].columns.keys()), table
    assert set(DELETED) <= set(metadata.tables)
