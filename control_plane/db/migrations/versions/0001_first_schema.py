"""The first schema: the tables, and the rules that the database itself enforces.

A tenant sees only its own rows, facts are never edited, and every transaction of the ledger sums to zero.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from control_plane.db.migrations import (
    audit_triggers,
    certificate_triggers,
    cost_functions,
    hold_triggers,
    ledger_functions,
    period_triggers,
    repair_functions,
    sample_functions,
    steps,
)

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

FACTS = (
    "admission_decisions",
    "audit_checkpoints",
    "audit_keys",
    "balance_events",
    "charges",
    "credit_note_lines",
    "credit_notes",
    "detector_arms",
    "enforcement_actions",
    "enforcement_ends",
    "enforcement_undos",
    "export_files",
    "export_runs",
    "health_changes",
    "intervals",
    "invoice_lines",
    "invoices",
    "journal",
    "key_destructions",
    "ledger_accounts",
    "leftover_decisions",
    "node_steps",
    "notices",
    "organization_events",
    "orphan_decisions",
    "period_events",
    "placements",
    "pool_decisions",
    "postings",
    "preemption_decisions",
    "preemption_switches",
    "price_book_withdrawals",
    "price_books",
    "prices",
    "proof_records",
    "proofs",
    "reconciliation_batches",
    "reconciliation_customers",
    "reconciliation_differences",
    "reconciliations",
    "samples",
    "sla_approvals",
    "sla_assessments",
    "sla_breaches",
    "sla_credits",
    "sla_decisions",
    "sla_terms",
    "sla_trusts",
    "supplier_invoice_parts",
    "supplier_invoices",
    "supplier_postings",
    "termination_permits",
    "transactions",
    "verification_reports",
)
TENANTS = (
    "admission_decisions",
    "api_keys",
    "attempts",
    "audit_pending",
    "balance_alerts",
    "balance_events",
    "balance_states",
    "capacity_held",
    "charge_names",
    "charges",
    "claims",
    "cluster_tenants",
    "consoles",
    "data_keys",
    "envelope_warnings",
    "envelopes",
    "environments",
    "export_files",
    "export_runs",
    "firewalls",
    "hand_backs",
    "holds",
    "hub_networks",
    "idempotency_keys",
    "idle_stops",
    "intervals",
    "journal",
    "key_destructions",
    "kubeconfigs",
    "leases",
    "master_keys",
    "month_spends",
    "networks",
    "node_pools",
    "node_steps",
    "nodes",
    "notices",
    "organization_events",
    "peers",
    "placements",
    "postings",
    "powers",
    "projects",
    "proofs",
    "provider_firewalls",
    "quota_requests",
    "quotes",
    "refresh_tokens",
    "relays",
    "request_budgets",
    "role_bindings",
    "scaled_pools",
    "secrets",
    "service_accounts",
    "sessions",
    "sla_clocks",
    "ssh_certificates",
    "ssh_keys",
    "standings",
    "throughput_hours",
    "transactions",
    "unrated",
    "users",
    "verification_reports",
)
"""Tables whose rows have an organization, or none while they concern only us."""

API_MAY: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "account_requests": (("INSERT",), ()),
    "admission_decisions": (("INSERT",), ()),
    "agents": ((), ()),
    "api_keys": (("INSERT",), ("expires_at", "last_used_at", "revoked_at")),
    "api_processes": ((), ()),
    "attempts": ((), ("ended_at", "outcome")),
    "audit_chains": ((), ()),
    "audit_checkpoints": ((), ()),
    "audit_events": ((), ()),
    "audit_keys": ((), ()),
    "audit_pending": (("INSERT",), ()),
    "call_budgets": ((), ()),
    "balance_alerts": (("INSERT", "UPDATE"), ()),
    "balance_events": ((), ()),
    "balance_states": ((), ()),
    "billing_details": (("INSERT", "UPDATE"), ()),
    "capacity_held": (("INSERT", "UPDATE"), ()),
    "charge_names": ((), ()),
    "charges": ((), ()),
    "claims": ((), ("ended_at",)),
    "cluster_tenants": ((), ()),
    "clusters": (
        ("INSERT",),
        (
            "due_at",
            "failing_since",
            "failing_why",
            "generation",
            "gone_at",
            "ready_at",
            "server_key_asked_at",
            "state",
            "tries",
            "work_token",
            "work_until",
        ),
    ),
    "consoles": (("INSERT",), ()),
    "credit_note_lines": (("INSERT",), ()),
    "credit_notes": (("INSERT",), ()),
    "credit_terms": (("INSERT", "UPDATE"), ()),
    "data_keys": (("INSERT",), ()),
    "device_authorizations": (
        ("INSERT",),
        ("approved_organization", "approved_user", "interval_seconds", "polled_at", "state"),
    ),
    "document_numbers": (("INSERT",), ("last",)),
    "detector_arms": (("INSERT",), ()),
    "enforcement_actions": ((), ()),
    "enforcement_ends": ((), ()),
    "enforcement_undos": (("INSERT",), ()),
    "findings": ((), ()),
    "idle_stops": (("INSERT", "UPDATE", "DELETE"), ()),
    "throughput_hours": ((), ()),
    "envelope_warnings": ((), ()),
    "envelopes": (("INSERT", "UPDATE"), ()),
    "environments": (("INSERT",), ()),
    "export_files": (("INSERT",), ()),
    "export_runs": (("INSERT",), ()),
    "firewalls": (("INSERT",), ("version", "rules", "changed_at", "due_at", "tries")),
    "hand_backs": (("INSERT",), ()),
    "health_changes": ((), ()),
    "holds": (("INSERT", "UPDATE"), ()),
    "hub_networks": ((), ()),
    "idempotency_keys": (("INSERT",), ()),
    "installation": ((), ()),
    "intervals": ((), ()),
    "invoice_lines": (("INSERT",), ()),
    "invoices": (("INSERT",), ()),
    "issuers": ((), ()),
    "journal": (("INSERT",), ()),
    "key_destructions": ((), ()),
    "leases": (("INSERT", "UPDATE"), ()),
    "kubeconfigs": (("INSERT",), ("revoked_at", "revoked_why", "due_at")),
    "ledger_accounts": (("INSERT",), ()),
    "loop_reports": ((), ()),
    "loop_roster": ((), ()),
    "machine_health": ((), ()),
    "machines": ((), ()),
    "maintenances": (("INSERT",), ("ended_at", "ended_by")),
    "master_keys": ((), ()),
    "month_spends": ((), ()),
    "networks": (("INSERT",), ("deleted_at", "labels")),
    "node_pools": (("INSERT", "UPDATE"), ()),
    "node_steps": ((), ()),
    "nodes": ((), ("key_asked_at", "key_due_at")),
    "notices": ((), ()),
    "offer_blocks": ((), ()),
    "offers": ((), ()),
    "organization_events": (("INSERT",), ()),
    "organizations": (("INSERT",), ("state", "generation")),
    "leftover_decisions": (("INSERT",), ()),
    "leftovers": ((), ()),
    "priced_children": ((), ()),
    "orphan_decisions": (("INSERT",), ()),
    "orphans": ((), ()),
    "overlays": ((), ()),
    "peers": ((), ()),
    "period_events": (("INSERT",), ()),
    "periods": (
        ("INSERT",),
        (
            *("state", "changed_at", "changed_by"),
            *("reopening_requested_at", "reopening_requested_by", "reopening_reason"),
        ),
    ),
    "placements": ((), ()),
    "postings": (("INSERT",), ()),
    "powers": (
        ("INSERT",),
        (
            *("state", "generation", "due_at", "tries", "wanted_at", "settled_at", "why"),
            *("asked_at", "accepted", "boot_id", "listed", "listed_from", "listed_at", "stopped"),
        ),
    ),
    "preemption_decisions": ((), ()),
    "preemption_switches": (("INSERT",), ()),
    "preemptions": ((), ()),
    "price_agreements": (("INSERT",), ("valid_until", "ended_at", "ended_by")),
    "price_book_withdrawals": ((), ()),
    "price_books": ((), ()),
    "prices": ((), ()),
    "pool_decisions": ((), ()),
    "pool_hours": ((), ()),
    "pools": (
        ("INSERT",),
        (
            "state",
            "policy",
            "machines_min",
            "machines_max",
            "step_max",
            "idle_nano_per_day",
            "waiting_nano_per_hour",
            "generation",
            "changed_at",
            "due_at",
            "deleted_at",
        ),
    ),
    "projects": (("INSERT",), ("name",)),
    "proof_records": ((), ()),
    "proof_references": ((), ()),
    "proofs": ((), ()),
    "provider_accounts": ((), ()),
    "provider_firewalls": ((), ()),
    "quota_requests": (("INSERT", "UPDATE"), ()),
    "quotes": (("INSERT",), ()),
    "reconciliation_batches": ((), ()),
    "reconciliation_customers": ((), ()),
    "reconciliation_differences": ((), ()),
    "reconciliations": (("INSERT",), ()),
    "refresh_tokens": (("INSERT",), ("replaced_at",)),
    "relays": ((), ()),
    "repairs": ((), ()),
    "request_budgets": ((), ()),
    "role_bindings": (("DELETE", "INSERT"), ()),
    "sample_archives": ((), ()),
    "sample_exports": ((), ()),
    "samples": ((), ()),
    "scaled_pools": ((), ()),
    "scaling_turns": ((), ()),
    "secrets": (("INSERT",), ()),
    "server_hosts": (("DELETE", "INSERT"), ("cluster_id",)),
    "service_accounts": (("INSERT",), ("state",)),
    "sessions": (("INSERT",), ("ended_at", "ended_why", "last_used_at")),
    "signing_keys": (("INSERT",), ("master", "wrapped", "nonce", "ciphertext")),
    "skus": ((), ()),
    "sla_approvals": (("INSERT",), ()),
    "sla_assessments": ((), ()),
    "sla_breaches": ((), ()),
    "sla_clocks": (("INSERT",), ()),
    "sla_credits": ((), ()),
    "sla_decisions": (("INSERT",), ()),
    "sla_months": ((), ()),
    "sla_terms": ((), ()),
    "sla_trusts": ((), ()),
    "sla_uncredited": ((), ()),
    "sla_undecided": ((), ()),
    "ssh_authorities": ((), ()),
    "ssh_certificates": (("INSERT",), ("revoked_at", "revoked_why")),
    "ssh_keys": (("DELETE", "INSERT"), ("name",)),
    "standings": (("INSERT", "UPDATE"), ()),
    "supplier_invoice_parts": (("INSERT",), ()),
    "supplier_invoices": (("INSERT",), ()),
    "supplier_postings": (("INSERT",), ()),
    "supplier_upload_parts": (
        ("INSERT",),
        ("amount_nano", "content", "first_line", "line_count", "lines", "size"),
    ),
    "supplier_uploads": (("DELETE", "INSERT"), ()),
    "termination_permits": (("INSERT",), ()),
    "transactions": (("INSERT",), ()),
    "unrated": ((), ()),
    "users": (("INSERT",), ("issuer", "name", "state", "subject")),
    "verification_reports": ((), ()),
}
"""What the public process may write: rights on whole rows, and the columns that it may update."""

API_READS: dict[str, tuple[str, ...]] = {
    "data_keys": ("id", "organization_id", "purpose", "made_at", "destroyed_at"),
    "secrets": ("id", "organization_id", "purpose", "version", "created_at", "rotated_at"),
}
"""The columns that the public process may read, of tables of which it may not read all."""

ADMIN_MAY: dict[str, tuple[str, ...]] = {
    "api_keys": ("INSERT",),
    "audit_pending": ("INSERT",),
    "envelopes": ("INSERT", "UPDATE"),
    "environments": ("INSERT",),
    "ledger_accounts": ("INSERT",),
    "master_keys": ("DELETE", "INSERT", "UPDATE"),
    "networks": ("INSERT",),
    "organizations": ("INSERT",),
    "postings": ("INSERT",),
    "price_book_withdrawals": ("INSERT",),
    "price_books": ("INSERT",),
    "prices": ("INSERT",),
    "projects": ("INSERT",),
    "role_bindings": ("INSERT",),
    "service_accounts": ("INSERT",),
    "signing_keys": ("UPDATE",),
    "skus": ("INSERT", "UPDATE"),
    "sla_terms": ("INSERT",),
    "standings": ("INSERT", "UPDATE"),
    "transactions": ("INSERT",),
}
"""What the administrator's commands may write. They read these tables too, and no other."""

LOOKED_UP: dict[str, tuple[str, ...]] = {
    "agents": (
        "claim_id",
        "organization_id",
        "machine_id",
        "lease_id",
        "digest",
        "next_digest",
        "reported_at",
        "ended_at",
    ),
    "api_keys": (
        "id",
        "organization_id",
        "user_id",
        "service_account_id",
        "secret_sha256",
        "scopes",
        "project_ids",
        "expires_at",
        "revoked_at",
    ),
    **audit_triggers.LOOKED_UP,
    "claims": (
        "id",
        "organization_id",
        "project_id",
        "lease_id",
        "machine_id",
        "slot",
        "claimed_at",
        "admitted_at",
        "ended_at",
    ),
    "enforcement_actions": (
        "id",
        "claim_id",
        "detector",
        "action",
        "armed",
        "expires_at",
        "planned_at",
    ),
    "enforcement_ends": ("action_id",),
    "preemptions": ("id", "claim_id", "state", "interrupt_at", "closed_at", "offer_key"),
    "journal": ("number", "transaction", "machine_id", "at", "event", "why"),
    "leases": (
        "id",
        "organization_id",
        "name",
        "sku",
        "sla",
        "units",
        "state",
        "switched_at",
        "ready_at",
        "metered_until",
        "meter_closed",
        "billed_until",
        "paused_at",
    ),
    "ledger_accounts": ("id", "organization_id", "kind"),
    "machine_health": ("machine_id", "verdict"),
    "machines": (
        "id",
        "purpose",
        "pool_id",
        "reserved_for",
        "account",
        "provider",
        "region",
        "native_region",
        "native_type",
        "spot",
        "cost_nano_per_hour",
        "stopped_cost_nano_per_hour",
        "increment_seconds",
        "minimum_seconds",
        "billed_while_booting",
        "asked_at",
        "running_at",
        "gone_at",
        "gpu_model",
        "gpu_count",
        "state",
        "due_at",
        "tries",
        "created_at",
        "terminate_asked_at",
        "provider_ref",
        "provider_state",
        "missed_since",
        "down_since",
        "suspect_since",
    ),
    "node_pools": ("id", "organization_id", "cluster_id", "state", "created_at"),
    "nodes": ("id", "organization_id", "cluster_id", "name", "state", "created_at"),
    "organizations": ("id", "name", "platform", "state", "created_at", "issuer"),
    "pools": ("id", "sla"),
    "projects": ("id", "name"),
    "postings": ("transaction_id", "organization_id", "account_id", "amount_nano"),
    **period_triggers.LOOKED_UP,
    "priced_children": (
        "id",
        "account",
        "provider",
        "kind",
        "ref",
        "nano_per_hour",
        "first_seen_at",
        "last_seen_at",
        "gone_at",
        "left_at",
        "machine_id",
    ),
    "powers": ("organization_id", "claim_id", "state"),
    "quota_requests": ("id", "organization_id", "state", "asked_at", "expires_at"),
    "role_bindings": (
        "id",
        "user_id",
        "service_account_id",
        "role",
        "scope",
        "project_id",
        "environment_id",
        "lease_id",
    ),
    "samples": (
        "organization_id",
        "project_id",
        "claim_id",
        "lease_id",
        "machine_id",
        "sequence",
        "at",
        "received_at",
        "skew_ms",
        "notable",
        "document",
    ),
    "service_accounts": ("id", "state"),
    "sessions": ("id", "organization_id", "user_id", "expires_at", "ended_at"),
    "users": ("id", "organization_id", "email", "issuer", "subject", "state"),
    "verification_reports": ("machine_id", "at", "reading"),
}
"""The columns that functions with their owner's rights read, and the look for a restored journal (db/restored.py)."""

# What is added to a transaction sums to zero, so a transaction does at the end of every statement. Once for each statement
# instead of each row, and without a look at older postings. Runs with the owner's rights, because what it looks up must
# not depend on the rows that the writer may see. Each transaction and each account is looked up once, by its key: joined
# as tables, all accounts and transactions would be read for every statement. Accounts are facts, which nobody deletes, so
# this is all that a foreign key would check, for each posting.
TRANSACTION_BALANCES = """
CREATE FUNCTION transaction_balances() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, public AS $$
DECLARE
  wrong record;
  stranger uuid;
BEGIN
  SELECT a.transaction_id, sum(a.amount_nano) AS total INTO wrong FROM (
    SELECT p.transaction_id, sum(p.amount_nano) AS amount_nano,
           (SELECT t.project_id FROM public.transactions t WHERE t.id = p.transaction_id)
           IS DISTINCT FROM p.project_id AS elsewhere
    FROM added p GROUP BY p.transaction_id, p.project_id
  ) a
  GROUP BY a.transaction_id HAVING sum(a.amount_nano) <> 0 OR bool_or(a.elsewhere) LIMIT 1;
  IF FOUND AND wrong.total <> 0 THEN
    RAISE EXCEPTION 'transaction % is out of balance by % nano-USD', wrong.transaction_id, wrong.total
      USING ERRCODE = 'check_violation';
  END IF;
  IF FOUND THEN
    RAISE EXCEPTION 'transaction % has a posting of another project', wrong.transaction_id
      USING ERRCODE = 'foreign_key_violation';
  END IF;
  SELECT a.account_id INTO stranger FROM (SELECT DISTINCT p.account_id, p.organization_id FROM added p) a
  WHERE NOT EXISTS (SELECT FROM public.ledger_accounts l WHERE l.id = a.account_id
                    AND (l.organization_id IS NULL OR l.organization_id = a.organization_id)) LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'a posting is to %, which is no account, or an account of another organization', stranger
      USING ERRCODE = 'foreign_key_violation';
  END IF;
  RETURN NULL;
END $$
"""
BALANCES = """
CREATE TRIGGER balances AFTER INSERT ON postings REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION transaction_balances()
"""

# The owner of API keys that are valid at a moment, with the roles of the owner and the limits of each key.
_PRINCIPALS = """
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT k.organization_id, o.platform, o.state, k.user_id, k.service_account_id, k.id, k.scopes, k.project_ids,
    k.expires_at, coalesce((
      SELECT jsonb_agg(jsonb_build_object('binding_id', b.id, 'role', b.role, 'scope', jsonb_build_object('kind',
        b.scope, 'project_id', b.project_id, 'environment_id', b.environment_id, 'lease_id', b.lease_id)) ORDER BY b.id)
      FROM public.role_bindings b WHERE b.user_id = k.user_id OR b.service_account_id = k.service_account_id), '[]')
  FROM public.api_keys k JOIN public.organizations o ON o.id = k.organization_id
  LEFT JOIN public.users u ON u.id = k.user_id
  LEFT JOIN public.service_accounts s ON s.id = k.service_account_id
  WHERE {keys} AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > at)
    AND coalesce(u.state, s.state) IN ('active', 'invited') AND o.state IN ('active', 'suspended')
$$
"""
_PRINCIPAL = """
RETURNS TABLE (organization_id uuid, platform boolean, organization_state text, user_id uuid, service_account_id uuid,
  api_key_id uuid, scopes text[], project_ids uuid[], expires_at timestamptz, roles jsonb)
"""
# These run with the owner's rights: no tenant is set before the key is known, and the open streams of a process belong
# to many tenants.
API_KEY_PRINCIPAL = (
    f"CREATE FUNCTION api_key_principal(secret bytea, at timestamptz) {_PRINCIPAL}"
    f"{_PRINCIPALS.format(keys='k.secret_sha256 = secret')}"
)
API_KEY_PRINCIPALS = (
    f"CREATE FUNCTION api_key_principals(ids uuid[], at timestamptz) {_PRINCIPAL}"
    f"{_PRINCIPALS.format(keys='k.id = ANY(ids)')}"
)
# The same of sessions that are open.
SESSION_PRINCIPALS = f"""
CREATE FUNCTION session_principals(ids uuid[], at timestamptz) {_PRINCIPAL}
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT k.organization_id, o.platform, o.state, k.user_id, NULL::uuid, k.id, NULL::text[], NULL::uuid[], k.expires_at,
    coalesce((
      SELECT jsonb_agg(jsonb_build_object('binding_id', b.id, 'role', b.role, 'scope', jsonb_build_object('kind',
        b.scope, 'project_id', b.project_id, 'environment_id', b.environment_id, 'lease_id', b.lease_id)) ORDER BY b.id)
      FROM public.role_bindings b WHERE b.user_id = k.user_id), '[]')
  FROM public.sessions k JOIN public.organizations o ON o.id = k.organization_id
  JOIN public.users u ON u.id = k.user_id
  WHERE k.id = ANY(ids) AND k.ended_at IS NULL AND k.expires_at > at
    AND u.state = 'active' AND o.state IN ('active', 'suspended')
$$
"""
# Runs with the owner's rights: a person signs in before it is known in which organizations they are users. It answers
# only users whom this issuer and subject, or an address that the issuer verified, identify.
SIGN_IN_USERS = """
CREATE FUNCTION sign_in_users(from_issuer text, from_subject text, verified_email text)
RETURNS TABLE (organization_id uuid, organization text, user_id uuid, state text, bound boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT u.organization_id, o.name, u.id, u.state, u.issuer IS NOT NULL
  FROM public.users u JOIN public.organizations o ON o.id = u.organization_id
  WHERE u.state IN ('active', 'invited') AND o.state IN ('active', 'suspended')
    AND ((u.issuer = from_issuer AND u.subject = from_subject)
      OR (u.issuer IS NULL AND lower(u.email) = lower(verified_email)))
  ORDER BY o.name, o.id LIMIT 100
$$
"""

# Runs with the owner's rights: operators see which organizations there are. It answers nothing about them; each is read
# as its own tenant.
ORGANIZATION_IDS = """
CREATE FUNCTION organization_ids(after_at timestamptz, after_id uuid, states text[], part text, size integer)
RETURNS TABLE (id uuid, created_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT o.id, o.created_at FROM public.organizations o
  WHERE (after_at IS NULL OR (o.created_at, o.id) > (after_at, after_id))
    AND (states IS NULL OR o.state = ANY(states))
    AND (part IS NULL OR position(lower(part) IN lower(o.name)) > 0)
  ORDER BY o.created_at, o.id LIMIT size
$$
"""

# Runs with the owner's rights: a quote ranks offers as a placement does, which knows whose machines were taken back for
# whom. It answers the keys of offers, and nothing about a tenant.
KEPT_OFFERS = """
CREATE FUNCTION kept_offers() RETURNS TABLE (offer_key text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT DISTINCT p.offer_key FROM public.preemptions p
  WHERE p.closed_at IS NULL AND p.state IN ('interrupted', 'ordered')
$$
"""

# Runs with the owner's rights: operators see which quota requests there are. It answers nothing about them; each is read
# as its own tenant.
QUOTA_REQUEST_IDS = """
CREATE FUNCTION quota_request_ids(moment timestamptz, states text[], before_at timestamptz, before_id uuid, size integer)
RETURNS TABLE (organization_id uuid, id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT q.organization_id, q.id FROM public.quota_requests q
  WHERE (states IS NULL
      OR CASE WHEN q.state = 'pending' AND q.expires_at <= moment THEN 'expired' ELSE q.state END = ANY(states))
    AND (before_at IS NULL OR (q.asked_at, q.id) < (before_at, before_id))
  ORDER BY q.asked_at DESC, q.id DESC LIMIT size
$$
"""

# Runs with the owner's rights: operators see which nodes there are, and each is read as its own tenant.
NODE_IDS = """
CREATE FUNCTION node_ids(
  cluster uuid, states text[], node uuid, called text, before_at timestamptz, before_id uuid, size integer)
RETURNS TABLE (organization_id uuid, id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT n.organization_id, n.id FROM public.nodes n
  WHERE (cluster IS NULL OR n.cluster_id = cluster) AND (states IS NULL OR n.state = ANY(states))
    AND (node IS NULL OR n.id = node) AND (called IS NULL OR n.name = called)
    AND (before_at IS NULL OR (n.created_at, n.id) < (before_at, before_id))
  ORDER BY n.created_at DESC, n.id DESC LIMIT size
$$
"""

# Runs with the owner's rights: operators see which node pools there are, and each is read as its own tenant.
NODE_POOL_IDS = """
CREATE FUNCTION node_pool_ids(cluster uuid, states text[], before_at timestamptz, before_id uuid, size integer)
RETURNS TABLE (organization_id uuid, id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT p.organization_id, p.id FROM public.node_pools p
  WHERE (cluster IS NULL OR p.cluster_id = cluster) AND (states IS NULL OR p.state = ANY(states))
    AND (before_at IS NULL OR (p.created_at, p.id) < (before_at, before_id))
  ORDER BY p.created_at DESC, p.id DESC LIMIT size
$$
"""

# Runs with the owner's rights: operators read the machines of everybody with whoever holds each, a page of hundreds or
# counts of all, which cannot be read tenant by tenant. It answers nothing unless the API acts for the platform's
# organization.
FLEET_MACHINES = """
CREATE FUNCTION fleet_machines(
  silent_before timestamptz, of_provider text, of_account text, in_region text, of_model text, whose_verdict text,
  only_silent boolean, whose_state text, of_organization uuid, of_project uuid, only_unused boolean, after_id uuid, size integer)
RETURNS TABLE (
  id uuid, account text, provider text, region text, gpu_model text, gpu_count integer, state text, verdict text,
  silent boolean, stopped boolean, provider_ref text, provider_state text, cost_nano_per_hour bigint, created_at timestamptz, organization_id uuid,
  organization text, project_id uuid, project text, lease_id uuid, lease text, lease_state text, unused_since timestamptz,
  terminate_asked_at timestamptz, due_at timestamptz, tries integer, asked_at timestamptz,
  stopped_cost_nano_per_hour bigint, switched_at timestamptz[], claimed_at timestamptz, increment_seconds integer,
  minimum_seconds integer, billed_while_booting boolean, running_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT f.* FROM (
    SELECT m.id, m.account, m.provider, m.region, m.gpu_model, m.gpu_count, m.state,
      CASE WHEN m.state = 'verified' THEN coalesce(h.verdict, 'healthy') END AS verdict,
      m.state = 'verified' AND coalesce(g.reported_at < silent_before, false)
        AND coalesce(w.state NOT IN ('stopping', 'off', 'starting'), true) AS silent,
      m.state = 'verified' AND coalesce(w.state IN ('stopping', 'off', 'starting'), false) AS stopped,
      m.provider_ref, m.provider_state, m.cost_nano_per_hour, m.created_at, c.organization_id, o.name, c.project_id,
      p.name, c.lease_id, l.name, l.state,
      CASE WHEN c.id IS NULL AND (m.purpose = 'lease' OR m.state = 'terminating') THEN coalesce(
        (SELECT max(e.ended_at) FROM public.claims e WHERE e.machine_id = m.id), m.created_at) END AS unused_since,
      m.terminate_asked_at, m.due_at, m.tries, m.asked_at, m.stopped_cost_nano_per_hour,
      coalesce(l.switched_at, past.switched_at, '{}') AS switched_at, coalesce(c.claimed_at, past.claimed_at),
      m.increment_seconds, m.minimum_seconds, m.billed_while_booting, m.running_at
    FROM public.machines m
    LEFT JOIN LATERAL (
      SELECT k.id, k.organization_id, k.project_id, k.lease_id, k.claimed_at FROM public.claims k
      WHERE k.machine_id = m.id AND k.ended_at IS NULL ORDER BY k.slot NULLS FIRST LIMIT 1) c ON true
    LEFT JOIN LATERAL (
      SELECT x.switched_at, e.claimed_at FROM public.claims e JOIN public.leases x ON x.id = e.lease_id
      WHERE c.id IS NULL AND e.machine_id = m.id ORDER BY e.ended_at DESC LIMIT 1) past ON true
    LEFT JOIN public.machine_health h ON h.machine_id = m.id
    LEFT JOIN public.leases l ON l.id = c.lease_id
    LEFT JOIN public.organizations o ON o.id = c.organization_id
    LEFT JOIN public.projects p ON p.id = c.project_id
    LEFT JOIN public.agents g ON g.claim_id = c.id AND g.ended_at IS NULL
    LEFT JOIN public.powers w ON w.organization_id = c.organization_id AND w.claim_id = c.id
    WHERE m.state <> 'gone' AND m.state <> 'intended'
      AND (of_provider IS NULL OR m.provider = of_provider) AND (of_account IS NULL OR m.account = of_account)
      AND (in_region IS NULL OR m.region = in_region OR m.region LIKE in_region || '-%')
      AND (of_model IS NULL OR m.gpu_model = of_model) AND (whose_state IS NULL OR m.state = whose_state)
      AND (of_organization IS NULL OR c.organization_id = of_organization)
      AND (of_project IS NULL OR c.project_id = of_project)
      AND (after_id IS NULL OR m.id < after_id)
      AND EXISTS (SELECT FROM public.organizations us WHERE us.platform
                  AND us.id = NULLIF(current_setting('app.organization_id', true), '')::uuid)
  ) f
  WHERE (whose_verdict IS NULL OR f.verdict = whose_verdict) AND (NOT only_silent OR f.silent)
    AND (NOT only_unused OR f.unused_since IS NOT NULL)
  ORDER BY f.id DESC LIMIT size
$$
"""

# Runs with its owner's rights, because a process asks for many organizations in one statement. It can only take tokens
# from buckets, and answers how full those are that it was asked for. Rows are locked in one order, so that processes
# that ask at the same time wait and never deadlock.
TAKE_REQUEST_TOKENS = """
CREATE FUNCTION take_request_tokens(process uuid, asks jsonb)
RETURNS TABLE (processes bigint, bucket uuid, granted double precision, level double precision)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public AS $$
#variable_conflict use_column
DECLARE
  moment timestamptz := clock_timestamp();
  running bigint;
BEGIN
  INSERT INTO public.api_processes AS p (id, seen_at) VALUES (process, moment)
    ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at;
  DELETE FROM public.api_processes p WHERE p.seen_at < moment - interval '1 minute';
  SELECT count(*) INTO running FROM public.api_processes p WHERE p.seen_at >= moment - interval '5 seconds';
  INSERT INTO public.request_budgets (bucket, organization_id, level, granted, refilled_at)
    SELECT a.bucket, a.organization_id, a.burst, 0, moment
    FROM jsonb_to_recordset(asks) AS a(bucket uuid, organization_id uuid, burst double precision)
    ORDER BY a.bucket ON CONFLICT DO NOTHING;
  PERFORM FROM public.request_budgets b
    WHERE b.bucket IN (SELECT a.bucket FROM jsonb_to_recordset(asks) AS a(bucket uuid)) ORDER BY b.bucket FOR UPDATE;
  RETURN QUERY SELECT running, NULL::uuid, NULL::double precision, NULL::double precision;
  RETURN QUERY
    WITH refilled AS (
      SELECT b.bucket, a.wanted, greatest(-a.burst, least(a.burst, b.level + a.rate
          * greatest(0, extract(epoch FROM moment - b.refilled_at))) - a.taken) AS tokens
      FROM public.request_budgets b JOIN jsonb_to_recordset(asks)
        AS a(bucket uuid, taken double precision, wanted double precision, rate double precision, burst double precision)
        ON a.bucket = b.bucket
    )
    UPDATE public.request_budgets b
    SET granted = greatest(0, least(r.wanted, r.tokens)), level = r.tokens - greatest(0, least(r.wanted, r.tokens)),
        refilled_at = greatest(b.refilled_at, moment)
    FROM refilled r WHERE b.bucket = r.bucket
    RETURNING running, b.bucket, b.granted, b.level;
END $$
"""

# What the API's processes hear (db/listen.py). Changes of leases are only told to the writer, which passes them on after
# its commit: see db/bell.py. A revocation is rare and has to arrive, so it is sent with the commit itself.
CHANGES = (
    """
    CREATE FUNCTION tell_of_journal() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
    DECLARE ids text;
    BEGIN
      SELECT string_agg(DISTINCT lease_id::text, ' ') INTO ids FROM added;
      IF ids IS NOT NULL THEN RAISE NOTICE 'splitplane_leases %', ids; END IF;
      IF EXISTS (SELECT FROM added WHERE event = 'admitted') THEN RAISE NOTICE 'splitplane_placing'; END IF;
      RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER tells AFTER INSERT ON journal REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION tell_of_journal()
    """,
    # A wait for stock and the steps of a set-up are no lines of the journal, but the status shows them.
    """
    CREATE FUNCTION tell_of_wait() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
    BEGIN
      RAISE NOTICE 'splitplane_leases %', NEW.id;
      RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER tells AFTER UPDATE OF waiting_since, waiting_why ON leases
    FOR EACH ROW WHEN ((NEW.waiting_since, NEW.waiting_why) IS DISTINCT FROM (OLD.waiting_since, OLD.waiting_why))
    EXECUTE FUNCTION tell_of_wait()
    """,
    """
    CREATE FUNCTION tell_of_claim() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
    BEGIN
      RAISE NOTICE 'splitplane_leases %', NEW.lease_id;
      RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER tells AFTER UPDATE OF step ON claims
    FOR EACH ROW WHEN (NEW.step IS DISTINCT FROM OLD.step) EXECUTE FUNCTION tell_of_claim()
    """,
    """
    CREATE FUNCTION tell_of_machine() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
    DECLARE ids text;
    BEGIN
      SELECT string_agg(c.lease_id::text, ' ') INTO ids
      FROM public.claims c WHERE c.machine_id = NEW.id AND c.ended_at IS NULL;
      IF ids IS NOT NULL THEN RAISE NOTICE 'splitplane_leases %', ids; END IF;
      RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER tells AFTER UPDATE OF step ON machines
    FOR EACH ROW WHEN (NEW.step IS DISTINCT FROM OLD.step) EXECUTE FUNCTION tell_of_machine()
    """,
    """
    CREATE FUNCTION tell_of_node_step() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
    DECLARE lease uuid;
    BEGIN
      SELECT n.lease_id INTO lease FROM public.nodes n WHERE n.id = NEW.node_id;
      RAISE NOTICE 'splitplane_leases %', lease;
      RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER tells AFTER INSERT ON node_steps FOR EACH ROW EXECUTE FUNCTION tell_of_node_step()
    """,
    """
    CREATE FUNCTION notify_api_key() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
    BEGIN
      PERFORM pg_notify('splitplane_api_keys', NEW.id::text);
      RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER notifies AFTER UPDATE OF revoked_at, expires_at ON api_keys
    FOR EACH ROW WHEN ((NEW.revoked_at, NEW.expires_at) IS DISTINCT FROM (OLD.revoked_at, OLD.expires_at))
    EXECUTE FUNCTION notify_api_key()
    """,
    # A session is a credential as a key is, so those who hear of keys hear of it.
    """
    CREATE TRIGGER notifies AFTER UPDATE OF ended_at ON sessions
    FOR EACH ROW WHEN (NEW.ended_at IS DISTINCT FROM OLD.ended_at) EXECUTE FUNCTION notify_api_key()
    """,
    # What a subject may do has changed: its state, or a role of its.
    """
    CREATE FUNCTION notify_subject() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
    BEGIN
      PERFORM pg_notify('splitplane_subjects', NEW.id::text);
      RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER notifies AFTER UPDATE OF state ON users
    FOR EACH ROW WHEN (NEW.state IS DISTINCT FROM OLD.state) EXECUTE FUNCTION notify_subject()
    """,
    """
    CREATE TRIGGER notifies AFTER UPDATE OF state ON service_accounts
    FOR EACH ROW WHEN (NEW.state IS DISTINCT FROM OLD.state) EXECUTE FUNCTION notify_subject()
    """,
    """
    CREATE FUNCTION notify_binding() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
    DECLARE changed record := coalesce(NEW, OLD);
    BEGIN
      PERFORM pg_notify('splitplane_subjects', coalesce(changed.user_id, changed.service_account_id)::text);
      RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER notifies AFTER INSERT OR UPDATE OR DELETE ON role_bindings
    FOR EACH ROW EXECUTE FUNCTION notify_binding()
    """,
    """
    CREATE FUNCTION notify_organization() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
    BEGIN
      PERFORM pg_notify('splitplane_organizations', NEW.id::text || ' ' || NEW.state);
      RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER notifies AFTER UPDATE OF state ON organizations
    FOR EACH ROW WHEN (NEW.state IS DISTINCT FROM OLD.state) EXECUTE FUNCTION notify_organization()
    """,
)

OUR_ACCOUNTS = """
INSERT INTO ledger_accounts (id, kind, created_at)
SELECT gen_random_uuid(), kind, now() FROM unnest(ARRAY['cash', 'credits', 'payable', 'provider_cost', 'revenue', 'rounding', 'tax_payable']) AS kind
"""


MAIN_ISSUER = "INSERT INTO issuers (code, name) VALUES ('main', 'Splitplane')"


def upgrade() -> None:
    _create_tables()
    op.execute(MAIN_ISSUER)
    op.execute(OUR_ACCOUNTS)  # Before row-level security hides the rows from their owner.
    steps.create_refusal_of_edits()
    for table, (rights, columns) in API_MAY.items():
        steps.grant(
            table,
            fact=table in FACTS,
            api=rights,
            api_updates=columns,
            api_reads=API_READS.get(table),
            admin=ADMIN_MAY.get(table, ()),
        )
    _filter_rows()
    for table in FACTS:
        steps.protect_fact(table)
    op.execute(TRANSACTION_BALANCES)
    op.execute(BALANCES)
    for function, signature in (
        (API_KEY_PRINCIPAL, "api_key_principal(bytea, timestamptz)"),
        (API_KEY_PRINCIPALS, "api_key_principals(uuid[], timestamptz)"),
        (SESSION_PRINCIPALS, "session_principals(uuid[], timestamptz)"),
        (SIGN_IN_USERS, "sign_in_users(text, text, text)"),
        (ORGANIZATION_IDS, "organization_ids(timestamptz, uuid, text[], text, integer)"),
        (KEPT_OFFERS, "kept_offers()"),
        (QUOTA_REQUEST_IDS, "quota_request_ids(timestamptz, text[], timestamptz, uuid, integer)"),
        (NODE_IDS, "node_ids(uuid, text[], uuid, text, timestamptz, uuid, integer)"),
        (NODE_POOL_IDS, "node_pool_ids(uuid, text[], timestamptz, uuid, integer)"),
        (
            FLEET_MACHINES,
            "fleet_machines(timestamptz, text, text, text, text, text, boolean, text, uuid, uuid, boolean, uuid, integer)",
        ),
    ):
        op.execute(function)
        op.execute(f"REVOKE ALL ON FUNCTION {signature} FROM PUBLIC")
        op.execute(f"GRANT EXECUTE ON FUNCTION {signature} TO splitplane_api")
    op.execute(TAKE_REQUEST_TOKENS)
    op.execute("REVOKE ALL ON FUNCTION take_request_tokens(uuid, jsonb) FROM PUBLIC")
    op.execute("GRANT EXECUTE ON FUNCTION take_request_tokens(uuid, jsonb) TO splitplane_api")
    steps.let_lookups_write("request_budgets")
    steps.let_lookups_add("audit_pending")
    op.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON api_processes TO splitplane_lookups")
    steps.let_be_backed_up()
    for function, signature in (
        *audit_triggers.FUNCTIONS,
        *cost_functions.FUNCTIONS,
        *repair_functions.FUNCTIONS,
        *period_triggers.FUNCTIONS,
        *ledger_functions.FUNCTIONS,
    ):
        op.execute(function)
        op.execute(f"REVOKE ALL ON FUNCTION {signature} FROM PUBLIC")
        op.execute(f"GRANT EXECUTE ON FUNCTION {signature} TO splitplane_api")
    _let_samples_in()
    for table, seen in LOOKED_UP.items():
        steps.let_look_up(table, *seen)
    for statement in CHANGES:
        op.execute(statement)
    for statement in (
        *audit_triggers.STATEMENTS,
        *certificate_triggers.STATEMENTS,
        *hold_triggers.STATEMENTS,
        *period_triggers.STATEMENTS,
    ):
        op.execute(statement)
    steps.give_definers_to_lookups()
    op.execute("INSERT INTO installation (code) VALUES (substr(md5(gen_random_uuid()::text), 1, 8))")


def _filter_rows() -> None:
    steps.filter_organizations()
    for table in TENANTS:
        steps.filter_tenants(table, admin=table in ADMIN_MAY)
    steps.filter_with_ours("audit_chains")
    steps.filter_with_ours("audit_checkpoints")
    steps.filter_with_ours("audit_events")
    steps.filter_with_ours("ledger_accounts", admin=True)
    steps.filter_offered("billing_details")
    steps.filter_offered("clusters")
    steps.filter_offered("credit_note_lines")
    steps.filter_offered("credit_notes")
    steps.filter_offered("credit_terms")
    steps.filter_offered("invoice_lines")
    steps.filter_offered("invoices")
    steps.filter_offered("price_agreements")
    steps.filter_offered("sla_decisions")
    steps.filter_claimed("machines")
    for watched in (
        "agents",
        "sla_assessments",
        "sla_breaches",
        "sla_credits",
        "sla_months",
        "sla_trusts",
        "sla_uncredited",
    ):
        steps.filter_watched(watched)
    steps.filter_watched("sla_undecided")
    for watched in ("enforcement_actions", "enforcement_ends", "findings"):
        steps.filter_watched(watched)
    steps.filter_watched("samples")
    steps.filter_watched("preemptions")
    for table in ("health_changes", "machine_health", "repairs"):
        steps.filter_of_machine(table)
    for table in (
        "account_requests",
        "detector_arms",
        "document_numbers",
        "enforcement_undos",
        "leftover_decisions",
        "maintenances",
        "orphan_decisions",
        "period_events",
        "periods",
        "pool_decisions",
        "pool_hours",
        "pools",
        "preemption_decisions",
        "preemption_switches",
        "priced_children",
        "reconciliation_batches",
        "reconciliation_customers",
        "reconciliation_differences",
        "reconciliations",
        "server_hosts",
        "sla_approvals",
        "supplier_invoice_parts",
        "supplier_invoices",
        "supplier_postings",
        "supplier_upload_parts",
        "supplier_uploads",
        "termination_permits",
    ):
        steps.filter_platform(table)


def _let_samples_in() -> None:
    for statement in (*sample_functions.PARTITIONS, *sample_functions.STATEMENTS):
        op.execute(statement)
    steps.let_ingest("samples")
    for function, signature, role in sample_functions.FUNCTIONS:
        op.execute(function)
        op.execute(f"REVOKE ALL ON FUNCTION {signature} FROM PUBLIC")
        op.execute(f"GRANT EXECUTE ON FUNCTION {signature} TO {role}")


def _create_tables() -> None:
    op.create_table(
        "api_processes",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_processes")),
        prefixes=["UNLOGGED"],
    )
    op.create_table(
        "call_budgets",
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("bucket", sa.Text(), nullable=False),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("burst", sa.Integer(), nullable=True),
        sa.Column("free_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("share", sa.Double(), server_default=sa.text("1"), nullable=False),
        sa.Column("share_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ceiling", sa.Double(), server_default=sa.text("1"), nullable=False),
        sa.Column("minute", sa.DateTime(timezone=True), nullable=True),
        sa.Column("this_minute", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_minute", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("account", "bucket", name=op.f("pk_call_budgets")),
    )
    op.create_table(
        "installation",
        sa.Column("singleton", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("audit_bucket", sa.Text(), nullable=True),
        sa.CheckConstraint("singleton", name=op.f("ck_installation_one_row")),
        sa.PrimaryKeyConstraint("singleton", name=op.f("pk_installation")),
    )
    op.create_table(
        "loop_reports",
        sa.Column("loop", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("replica", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("every_seconds", sa.Integer(), nullable=False),
        sa.Column("late_after_seconds", sa.Integer(), nullable=False),
        sa.Column("looked_at", sa.Integer(), nullable=False),
        sa.Column("acted_on", sa.Integer(), nullable=False),
        sa.Column("errors", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("notes", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("activations", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.PrimaryKeyConstraint("loop", "account", "replica", name=op.f("pk_loop_reports")),
    )
    op.create_table(
        "loop_roster",
        sa.Column("loop", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("wing", sa.Text(), nullable=False),
        sa.Column("stored_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("loop", "account", name=op.f("pk_loop_roster")),
    )
    op.create_table(
        "issuers",
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("code", name=op.f("pk_issuers")),
    )
    op.create_table(
        "period_events",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("month", sa.DateTime(timezone=True), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "event IN ('closed', 'closing_began', 'reopened', 'reopening_requested')",
            name=op.f("ck_period_events_event_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_period_events")),
    )
    op.create_index("ix_period_events_month", "period_events", ["issuer", "month", "id"], unique=False)
    op.create_table(
        "periods",
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("month", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.Column("reopening_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reopening_requested_by", sa.Text(), nullable=True),
        sa.Column("reopening_reason", sa.Text(), nullable=True),
        sa.CheckConstraint("state IN ('closed', 'closing', 'open')", name=op.f("ck_periods_state_known")),
        sa.CheckConstraint(
            "month = date_trunc('month', month AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'",
            name=op.f("ck_periods_months"),
        ),
        sa.CheckConstraint(
            "num_nonnulls(reopening_requested_at, reopening_requested_by, reopening_reason) IN (0, 3)",
            name=op.f("ck_periods_reopening_whole"),
        ),
        sa.ForeignKeyConstraint(["issuer"], ["issuers.code"], name=op.f("fk_periods_issuer_issuers")),
        sa.PrimaryKeyConstraint("issuer", "month", name=op.f("pk_periods")),
    )
    op.create_table(
        "organizations",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("platform", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'active'"), nullable=False),
        sa.Column("generation", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("issuer", sa.Text(), server_default=sa.text("'main'"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("erased_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "erased_at IS NULL OR state = 'deleted'", name=op.f("ck_organizations_erased_when_deleted")
        ),
        sa.CheckConstraint(
            "state IN ('active', 'closed', 'closing', 'deleted', 'suspended')",
            name=op.f("ck_organizations_state_known"),
        ),
        sa.ForeignKeyConstraint(["issuer"], ["issuers.code"], name=op.f("fk_organizations_issuer_issuers")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_organizations")),
        sa.UniqueConstraint("id", "platform", name=op.f("uq_organizations_id_platform")),
        sa.UniqueConstraint("name", name=op.f("uq_organizations_name")),
    )
    op.create_index(
        "ix_organizations_closing",
        "organizations",
        ["id"],
        unique=False,
        postgresql_where=sa.text("state = 'closing'"),
    )
    op.create_index(
        "ix_organizations_unerased",
        "organizations",
        ["id"],
        unique=False,
        postgresql_where=sa.text("state = 'deleted' AND erased_at IS NULL"),
    )
    op.create_table(
        "price_books",
        sa.Column("version", sa.Integer(), sa.Identity(always=True), nullable=False),
        sa.Column("effective_from", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_price_books")),
    )
    op.create_table(
        "sla_terms",
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("tier", sa.Text(), nullable=False),
        sa.Column("effective_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ready_seconds", sa.Integer(), nullable=True),
        sa.Column("ready_credit_bp", sa.Integer(), nullable=False),
        sa.Column("replacement_seconds", sa.Integer(), nullable=True),
        sa.Column("replacement_credit_bp", sa.Integer(), nullable=False),
        sa.Column("degraded_seconds", sa.Integer(), nullable=True),
        sa.Column("notice_seconds", sa.Integer(), nullable=True),
        sa.Column("notice_credit_bp", sa.Integer(), nullable=False),
        sa.Column("availability", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("replace_before_end", sa.Boolean(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.CheckConstraint("tier IN ('bronze', 'gold', 'silver')", name=op.f("ck_sla_terms_tier_known")),
        sa.CheckConstraint("priority BETWEEN 0 AND 100", name=op.f("ck_sla_terms_priority_in_range")),
        sa.CheckConstraint(
            "least(ready_seconds, replacement_seconds, degraded_seconds, notice_seconds) > 0",
            name=op.f("ck_sla_terms_times_positive"),
        ),
        sa.CheckConstraint(
            "least(ready_credit_bp, replacement_credit_bp, notice_credit_bp) >= 0"
            " AND greatest(ready_credit_bp, replacement_credit_bp, notice_credit_bp) <= 10000",
            name=op.f("ck_sla_terms_credits_are_shares"),
        ),
        sa.PrimaryKeyConstraint("version", "tier", name=op.f("pk_sla_terms")),
    )
    op.create_table(
        "price_book_withdrawals",
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("withdrawn_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["version"], ["price_books.version"], name=op.f("fk_price_book_withdrawals_version_price_books")
        ),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_price_book_withdrawals")),
    )
    op.create_table(
        "proof_references",
        sa.Column("gpu_model", sa.Text(), nullable=False),
        sa.Column("driver_major", sa.Integer(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("rate", sa.Double(), nullable=False),
        sa.Column("providers", sa.Integer(), nullable=False),
        sa.Column("learnt_on", sa.Text(), nullable=False),
        sa.CheckConstraint("rate > 0", name=op.f("ck_proof_references_rate_positive")),
        sa.PrimaryKeyConstraint("gpu_model", "driver_major", "phase", name=op.f("pk_proof_references")),
    )
    op.create_table(
        "skus",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("gpu_model", sa.Text(), nullable=True),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_gib", sa.Integer(), nullable=False),
        sa.Column("disk_gib", sa.Integer(), nullable=False),
        sa.Column("capacity", sa.Text(), nullable=False),
        sa.Column("proof", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "proof IN ('attested', 'listed', 'proven', 'watched')", name=op.f("ck_skus_proof_known")
        ),
        sa.CheckConstraint("gpu_count >= 0", name=op.f("ck_skus_gpu_count_not_negative")),
        sa.CheckConstraint("(gpu_model IS NULL) = (gpu_count = 0)", name=op.f("ck_skus_gpus_have_a_model")),
        sa.CheckConstraint("gpu_count > 0 OR proof = 'listed'", name=op.f("ck_skus_no_gpus_prove_nothing")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_skus")),
    )
    op.create_table(
        "data_keys",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("master", sa.Text(), nullable=False),
        sa.Column("wrapped", sa.LargeBinary(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("wrapped_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("destroyed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("work_token", sa.Uuid(), nullable=True),
        sa.Column("work_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "purpose IN ('audit_signing', 'clusters', 'provider_credentials', 'ssh_authority', 'token_signing')",
            name=op.f("ck_data_keys_purpose_known"),
        ),
        sa.CheckConstraint(
            "(length(wrapped) = 0) = (destroyed_at IS NOT NULL)",
            name=op.f("ck_data_keys_destroyed_has_no_bytes"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_data_keys_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_data_keys")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_data_keys_organization_id_id")),
    )
    op.create_index(
        "ix_data_keys_made_at",
        "data_keys",
        ["made_at"],
        unique=False,
        postgresql_where=sa.text("destroyed_at IS NULL"),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_hmac", sa.LargeBinary(), nullable=False),
        sa.Column("status", sa.SmallInteger(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_idempotency_keys_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("organization_id", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"], unique=False)
    op.create_table(
        "key_destructions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("data_keys", sa.Integer(), nullable=False),
        sa.Column("secrets", sa.Integer(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("actor_kind", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "actor_kind IN ('customer', 'loop', 'operator')",
            name=op.f("ck_key_destructions_actor_kind_known"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_key_destructions_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_key_destructions")),
    )
    op.create_index(
        "ix_key_destructions_organization_id", "key_destructions", ["organization_id"], unique=False
    )
    op.create_table(
        "ledger_accounts",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "(organization_id IS NULL) = (kind IN ('cash', 'credits', 'payable', 'provider_cost', 'revenue', 'rounding', 'tax_payable'))",
            name=op.f("ck_ledger_accounts_owner_fits_kind"),
        ),
        sa.CheckConstraint(
            "kind IN ('cash', 'credits', 'payable', 'provider_cost', 'receivable', 'revenue', 'rounding', 'tax_payable', 'wallet')",
            name=op.f("ck_ledger_accounts_kind_known"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_ledger_accounts_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_accounts")),
        sa.UniqueConstraint(
            "organization_id",
            "kind",
            name=op.f("uq_ledger_accounts_organization_id_kind"),
            postgresql_nulls_not_distinct=True,
        ),
    )
    op.create_table(
        "master_keys",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("master", sa.Text(), nullable=False),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_master_keys_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("organization_id", name=op.f("pk_master_keys")),
    )
    op.create_table(
        "organization_events",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor_kind", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("state_before", sa.Text(), nullable=False),
        sa.Column("state_after", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("waiting_leases", sa.Integer(), nullable=False),
        sa.Column("starting_leases", sa.Integer(), nullable=False),
        sa.Column("ready_leases", sa.Integer(), nullable=False),
        sa.Column("ending_leases", sa.Integer(), nullable=False),
        sa.Column("api_keys", sa.Integer(), nullable=False),
        sa.Column("released_nano", sa.BigInteger(), nullable=False),
        sa.Column("held_nano", sa.BigInteger(), nullable=False),
        sa.Column("balance_nano", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "actor_kind IN ('customer', 'loop', 'operator')",
            name=op.f("ck_organization_events_actor_kind_known"),
        ),
        sa.CheckConstraint(
            "event IN ('closure_requested', 'deleted', 'resumed', 'settled', 'suspended')",
            name=op.f("ck_organization_events_event_known"),
        ),
        sa.CheckConstraint(
            "state_after IN ('active', 'closed', 'closing', 'deleted', 'suspended')",
            name=op.f("ck_organization_events_state_after_known"),
        ),
        sa.CheckConstraint(
            "state_before IN ('active', 'closed', 'closing', 'deleted', 'suspended')",
            name=op.f("ck_organization_events_state_before_known"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_organization_events_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_organization_events")),
    )
    op.create_index(
        "ix_organization_events_organization_id_number",
        "organization_events",
        ["organization_id", "number"],
        unique=False,
    )
    op.create_table(
        "prices",
        sa.Column("sku", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("sla", sa.Text(), nullable=False),
        sa.Column("effective_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("price_book", sa.Integer(), nullable=False),
        sa.Column("nano_per_unit_hour", sa.BigInteger(), nullable=True),
        sa.Column("stopped_nano_per_unit_hour", sa.BigInteger(), nullable=True),
        sa.Column("spot_nano_per_unit_hour", sa.BigInteger(), nullable=True),
        sa.Column("interruptible_nano_per_unit_hour", sa.BigInteger(), nullable=True),
        sa.Column("committed_nano_per_unit_hour", sa.BigInteger(), nullable=True),
        sa.Column("committed_days", sa.Integer(), nullable=True),
        sa.CheckConstraint(
            "committed_nano_per_unit_hour BETWEEN 0 AND nano_per_unit_hour",
            name=op.f("ck_prices_committed_costs_no_more"),
        ),
        sa.CheckConstraint(
            "CASE WHEN region = 'anywhere' AND sla = 'any'"
            " THEN (committed_days IS NULL) = (committed_nano_per_unit_hour IS NULL) ELSE committed_days IS NULL END",
            name=op.f("ck_prices_committed_for_one_term"),
        ),
        sa.CheckConstraint("committed_days BETWEEN 1 AND 1100", name=op.f("ck_prices_term_bounded")),
        sa.CheckConstraint(
            "interruptible_nano_per_unit_hour BETWEEN 0 AND nano_per_unit_hour",
            name=op.f("ck_prices_interruptible_costs_no_more"),
        ),
        sa.CheckConstraint(
            "interruptible_nano_per_unit_hour IS NULL OR sla = 'any'",
            name=op.f("ck_prices_nothing_is_promised_when_interruptible"),
        ),
        sa.CheckConstraint(
            "sla = 'any' OR sla IN ('bronze', 'gold', 'silver')", name=op.f("ck_prices_sla_known")
        ),
        sa.CheckConstraint("nano_per_unit_hour >= 0", name=op.f("ck_prices_not_negative")),
        sa.CheckConstraint(
            "nano_per_unit_hour IS NOT NULL OR region <> 'anywhere' OR sla <> 'any'",
            name=op.f("ck_prices_anywhere_has_a_price"),
        ),
        sa.CheckConstraint(
            "spot_nano_per_unit_hour IS NULL OR sla = 'any'",
            name=op.f("ck_prices_nothing_is_promised_with_spot"),
        ),
        sa.CheckConstraint(
            "spot_nano_per_unit_hour BETWEEN 0 AND nano_per_unit_hour",
            name=op.f("ck_prices_spot_costs_no_more"),
        ),
        sa.CheckConstraint(
            "stopped_nano_per_unit_hour BETWEEN 0 AND nano_per_unit_hour",
            name=op.f("ck_prices_stopped_costs_no_more"),
        ),
        sa.ForeignKeyConstraint(
            ["price_book"], ["price_books.version"], name=op.f("fk_prices_price_book_price_books")
        ),
        sa.ForeignKeyConstraint(["sku"], ["skus.name"], name=op.f("fk_prices_sku_skus")),
        sa.PrimaryKeyConstraint("sku", "region", "sla", "effective_from", name=op.f("pk_prices")),
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_projects_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_projects_organization_id_id")),
        sa.UniqueConstraint("organization_id", "name", name=op.f("uq_projects_organization_id_name")),
    )
    op.create_table(
        "request_budgets",
        sa.Column("bucket", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("level", sa.Double(), nullable=False),
        sa.Column("granted", sa.Double(), nullable=False),
        sa.Column("refilled_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_request_budgets_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("bucket", name=op.f("pk_request_budgets")),
        prefixes=["UNLOGGED"],
    )
    op.create_table(
        "service_accounts",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "state IN ('active', 'removed', 'suspended')", name=op.f("ck_service_accounts_state_known")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_service_accounts_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_service_accounts")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_service_accounts_organization_id_id")),
    )
    op.create_index(
        "uq_service_accounts_name",
        "service_accounts",
        ["organization_id", "name"],
        unique=True,
        postgresql_where=sa.text("state <> 'removed'"),
    )
    op.create_table(
        "ssh_keys",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_ssh_keys_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_ssh_keys_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ssh_keys")),
        sa.UniqueConstraint(
            "organization_id",
            "project_id",
            "fingerprint",
            name=op.f("uq_ssh_keys_organization_id_project_id_fingerprint"),
            postgresql_nulls_not_distinct=True,
        ),
        sa.UniqueConstraint(
            "organization_id",
            "project_id",
            "name",
            name=op.f("uq_ssh_keys_organization_id_project_id_name"),
            postgresql_nulls_not_distinct=True,
        ),
    )
    op.create_table(
        "standings",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("gpus_held", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("posted_nano", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("receivable_nano", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("transaction_count", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("held_nano", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("balance_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("gpus_held >= 0", name=op.f("ck_standings_gpus_held_not_negative")),
        sa.CheckConstraint("held_nano >= 0", name=op.f("ck_standings_held_not_negative")),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_standings_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("organization_id", name=op.f("pk_standings")),
    )
    op.create_index(
        "ix_standings_balance_due_at",
        "standings",
        ["balance_due_at"],
        unique=False,
        postgresql_where=sa.text("balance_due_at IS NOT NULL"),
    )
    op.create_table(
        "unrated",
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_unrated_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("organization_id", "lease_id", "number", name=op.f("pk_unrated")),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("issuer", sa.Text(), nullable=True),
        sa.Column("subject", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "state IN ('active', 'invited', 'removed', 'suspended')", name=op.f("ck_users_state_known")
        ),
        sa.CheckConstraint(
            "(issuer IS NULL) = (subject IS NULL)", name=op.f("ck_users_subject_has_its_issuer")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_users_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_users_organization_id_id")),
    )
    op.create_index(
        "uq_users_email",
        "users",
        ["organization_id", sa.literal_column("lower(email)")],
        unique=True,
        postgresql_where=sa.text("state <> 'removed'"),
    )
    op.create_index(
        "uq_users_subject",
        "users",
        ["issuer", "subject", "organization_id"],
        unique=True,
        postgresql_where=sa.text("state <> 'removed'"),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("service_account_id", sa.Uuid(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("hint", sa.Text(), nullable=False),
        sa.Column("scopes", postgresql.ARRAY(sa.Text()), nullable=True),
        sa.Column("project_ids", postgresql.ARRAY(sa.Uuid()), nullable=True),
        sa.Column("rotates", sa.Uuid(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "num_nonnulls(user_id, service_account_id) = 1", name=op.f("ck_api_keys_one_subject")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "rotates"],
            ["api_keys.organization_id", "api_keys.id"],
            name=op.f("fk_api_keys_organization_id_api_keys"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "service_account_id"],
            ["service_accounts.organization_id", "service_accounts.id"],
            name=op.f("fk_api_keys_organization_id_service_accounts"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "user_id"],
            ["users.organization_id", "users.id"],
            name=op.f("fk_api_keys_organization_id_users"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_api_keys_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_api_keys_organization_id_id")),
        sa.UniqueConstraint("secret_sha256", name=op.f("uq_api_keys_secret_sha256")),
    )
    op.create_index("ix_api_keys_service_account_id", "api_keys", ["service_account_id"], unique=False)
    op.create_index("ix_api_keys_user_id", "api_keys", ["user_id"], unique=False)
    op.create_table(
        "environments",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_environments_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_environments_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_environments")),
        sa.UniqueConstraint(
            "organization_id", "project_id", "id", name=op.f("uq_environments_organization_id_project_id_id")
        ),
        sa.UniqueConstraint(
            "organization_id",
            "project_id",
            "name",
            name=op.f("uq_environments_organization_id_project_id_name"),
        ),
    )
    op.create_table(
        "networks",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("block", sa.Integer(), nullable=False),
        sa.Column(
            "labels",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("block >= 0", name=op.f("ck_networks_block_not_negative")),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_networks_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_networks_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_networks")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_networks_organization_id_id")),
        sa.UniqueConstraint(
            "organization_id", "project_id", "id", name=op.f("uq_networks_organization_id_project_id_id")
        ),
    )
    op.create_index(
        "uq_networks_block",
        "networks",
        ["organization_id", "block"],
        unique=True,
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
    op.create_index(
        "uq_networks_name",
        "networks",
        ["organization_id", "project_id", "name"],
        unique=True,
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
    op.create_table(
        "hub_networks",
        sa.Column("network_id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("work_token", sa.Uuid(), nullable=True),
        sa.Column("work_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("fence", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=True),
        sa.Column("endpoint", sa.Text(), nullable=True),
        sa.Column("synced_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("empty_since", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("number > 0", name=op.f("ck_hub_networks_number_positive")),
        sa.ForeignKeyConstraint(
            ["organization_id", "network_id"],
            ["networks.organization_id", "networks.id"],
            name=op.f("fk_hub_networks_organization_id_networks"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_hub_networks_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("network_id", name=op.f("pk_hub_networks")),
        sa.UniqueConstraint("number", name=op.f("uq_hub_networks_number")),
    )
    op.create_table(
        "secrets",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("data_key_id", sa.Uuid(), nullable=False),
        sa.Column("nonce", sa.LargeBinary(), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("rotated_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "purpose IN ('audit_signing', 'clusters', 'provider_credentials', 'ssh_authority', 'token_signing')",
            name=op.f("ck_secrets_purpose_known"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "data_key_id"],
            ["data_keys.organization_id", "data_keys.id"],
            name=op.f("fk_secrets_organization_id_data_keys"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_secrets_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_secrets")),
    )
    op.create_index("ix_secrets_data_key_id", "secrets", ["data_key_id"], unique=False)
    op.create_index("ix_secrets_organization_id", "secrets", ["organization_id"], unique=False)
    op.create_table(
        "ssh_authorities",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("secret_id", sa.Uuid(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("signs_from", sa.DateTime(timezone=True), nullable=True),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('distrusted', 'next', 'removed', 'retired', 'signing')",
            name=op.f("ck_ssh_authorities_state_known"),
        ),
        sa.CheckConstraint(
            "(secret_id IS NULL) = (state = 'removed')",
            name=op.f("ck_ssh_authorities_removed_has_no_secret"),
        ),
        sa.ForeignKeyConstraint(
            ["secret_id"], ["secrets.id"], name=op.f("fk_ssh_authorities_secret_id_secrets")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ssh_authorities")),
        sa.UniqueConstraint("public_key", name=op.f("uq_ssh_authorities_public_key")),
    )
    op.create_index(
        "ix_ssh_authorities_state",
        "ssh_authorities",
        ["state"],
        unique=True,
        postgresql_where=sa.text("state IN ('next', 'signing')"),
    )
    op.create_table(
        "transactions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("effective_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("period", sa.DateTime(timezone=True), nullable=False),
        sa.Column("approved_by", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("wallet_after_nano", sa.BigInteger(), nullable=False),
        sa.Column("receivable_after_nano", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "kind IN ('charge_back', 'credit', 'credit_note', 'invoice', 'payment', 'refund', 'supplier_invoice', 'top_up', 'usage')",
            name=op.f("ck_transactions_kind_known"),
        ),
        sa.CheckConstraint(
            "period = date_trunc('month', period AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'"
            " AND period >= date_trunc('month', effective_at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'",
            name=op.f("ck_transactions_booked"),
        ),
        sa.CheckConstraint(
            "(kind IN ('charge_back', 'credit', 'credit_note', 'payment', 'refund', 'supplier_invoice', 'top_up')) = (approved_by IS NOT NULL AND reason IS NOT NULL)",
            name=op.f("ck_transactions_approved"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_transactions_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_transactions_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_transactions")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_transactions_organization_id_id")),
        sa.UniqueConstraint("organization_id", "key", name=op.f("uq_transactions_organization_id_key")),
        sa.UniqueConstraint("organization_id", "number", name=op.f("uq_transactions_organization_id_number")),
    )
    op.create_index(
        "ix_transactions_organization_id_period",
        "transactions",
        ["organization_id", "period", "effective_at"],
        unique=False,
    )
    op.create_index(
        "ix_transactions_organization_id_period_number",
        "transactions",
        ["organization_id", "period", "number"],
        unique=False,
    )
    op.create_index(
        "ix_transactions_organization_id_kind",
        "transactions",
        ["organization_id", "kind", "number"],
        unique=False,
        postgresql_where=sa.text("kind <> 'usage'"),
    )
    op.create_table(
        "account_requests",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("verb", sa.Text(), nullable=False),
        sa.Column("secret_id", sa.Uuid(), nullable=True),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("actor_kind", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("code", sa.Text(), nullable=True),
        sa.Column("said", sa.Text(), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("work_token", sa.Uuid(), nullable=True),
        sa.Column("work_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "actor_kind IN ('customer', 'loop', 'operator')",
            name=op.f("ck_account_requests_actor_kind_known"),
        ),
        sa.CheckConstraint(
            "outcome IN ('accepted', 'refused', 'unreachable')",
            name=op.f("ck_account_requests_outcome_known"),
        ),
        sa.CheckConstraint(
            "verb IN ('add', 'arm', 'disarm', 'drain', 'remove', 'resume', 'rotate', 'test')",
            name=op.f("ck_account_requests_verb_known"),
        ),
        sa.CheckConstraint(
            "(outcome IS NULL) = (finished_at IS NULL)",
            name=op.f("ck_account_requests_outcome_when_finished"),
        ),
        sa.ForeignKeyConstraint(
            ["secret_id"], ["secrets.id"], name=op.f("fk_account_requests_secret_id_secrets")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_account_requests")),
    )
    op.create_index(
        "ix_account_requests_account_asked_at", "account_requests", ["account", "asked_at"], unique=False
    )
    op.create_index(
        "ix_account_requests_open",
        "account_requests",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("finished_at IS NULL"),
    )
    op.create_table(
        "clusters",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("work_token", sa.Uuid(), nullable=True),
        sa.Column("work_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("overlay", sa.Integer(), nullable=False),
        sa.Column("token_secret_id", sa.Uuid(), nullable=True),
        sa.Column("admin_secret_id", sa.Uuid(), nullable=True),
        sa.Column("version", sa.Text(), nullable=True),
        sa.Column("endpoint", sa.Text(), nullable=True),
        sa.Column("ca_pem", sa.Text(), nullable=True),
        sa.Column("failing_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failing_why", sa.Text(), nullable=True),
        sa.Column("server_key_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ready_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("gone_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(state = 'gone') = (gone_at IS NOT NULL)", name=op.f("ck_clusters_gone_has_its_time")
        ),
        sa.CheckConstraint(
            "state <> 'ready' OR (version IS NOT NULL AND endpoint IS NOT NULL AND ca_pem IS NOT NULL)",
            name=op.f("ck_clusters_ready_is_known"),
        ),
        sa.CheckConstraint(
            "state IN ('building', 'deleting', 'gone', 'ready')", name=op.f("ck_clusters_state_known")
        ),
        sa.CheckConstraint(
            "(failing_since IS NULL) = (failing_why IS NULL)", name=op.f("ck_clusters_failing_has_its_reason")
        ),
        sa.CheckConstraint(
            "gone_at IS NULL OR (token_secret_id IS NULL AND admin_secret_id IS NULL)",
            name=op.f("ck_clusters_gone_has_no_secrets"),
        ),
        sa.CheckConstraint("overlay >= 0", name=op.f("ck_clusters_overlay_not_negative")),
        sa.ForeignKeyConstraint(
            ["admin_secret_id"], ["secrets.id"], name=op.f("fk_clusters_admin_secret_id_secrets")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_clusters_organization_id_organizations")
        ),
        sa.ForeignKeyConstraint(
            ["token_secret_id"], ["secrets.id"], name=op.f("fk_clusters_token_secret_id_secrets")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_clusters")),
    )
    op.create_index(
        "ix_clusters_due",
        "clusters",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('building', 'deleting')"),
    )
    op.create_index(
        "uq_clusters_live_name",
        "clusters",
        ["name"],
        unique=True,
        postgresql_where=sa.text("state IN ('building', 'deleting', 'ready')"),
    )
    op.create_index(
        "uq_clusters_live_overlay",
        "clusters",
        ["overlay"],
        unique=True,
        postgresql_where=sa.text("state IN ('building', 'deleting', 'ready')"),
    )
    op.create_table(
        "overlays",
        sa.Column("cluster_id", sa.Uuid(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("work_token", sa.Uuid(), nullable=True),
        sa.Column("work_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("public_key", sa.Text(), nullable=True),
        sa.Column("applied_version", sa.Text(), nullable=True),
        sa.Column("next_key", sa.Text(), nullable=True),
        sa.Column("key_made_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("old_key", sa.Text(), nullable=True),
        sa.Column("key_waits_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("read_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failing_why", sa.Text(), nullable=True),
        sa.Column("fence", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("quiet_digest", sa.Text(), nullable=True),
        sa.Column("quiet_until", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("next_key IS NULL OR old_key IS NULL", name=op.f("ck_overlays_one_change_of_key")),
        sa.CheckConstraint(
            "(next_key IS NULL AND old_key IS NULL) = (key_waits_since IS NULL)",
            name=op.f("ck_overlays_change_of_key_has_its_time"),
        ),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name=op.f("fk_overlays_cluster_id_clusters")
        ),
        sa.PrimaryKeyConstraint("cluster_id", name=op.f("pk_overlays")),
    )
    op.create_table(
        "relays",
        sa.Column("cluster_id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=True),
        sa.Column("endpoint", sa.Text(), nullable=True),
        sa.Column("applied_version", sa.Text(), nullable=True),
        sa.Column("read_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("unneeded_since", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("number >= 0", name=op.f("ck_relays_number_not_negative")),
        sa.CheckConstraint(
            "(public_key IS NULL) = (endpoint IS NULL)", name=op.f("ck_relays_key_has_its_endpoint")
        ),
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], name=op.f("fk_relays_cluster_id_clusters")),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_relays_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("cluster_id", "organization_id", name=op.f("pk_relays")),
        sa.UniqueConstraint("number", name=op.f("uq_relays_number")),
    )
    op.create_table(
        "node_pools",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("environment_id", sa.Uuid(), nullable=False),
        sa.Column("cluster_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("request", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column(
            "node_labels",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column(
            "node_taints",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'"),
            nullable=False,
        ),
        sa.Column("wait_timeout_seconds", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("work_token", sa.Uuid(), nullable=True),
        sa.Column("work_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("waiting_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("waiting_code", sa.Text(), nullable=True),
        sa.Column("waiting_why", sa.Text(), nullable=True),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ready_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("gone_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(waiting_since IS NULL) = (waiting_code IS NULL) AND (waiting_since IS NULL) = (waiting_why IS NULL)",
            name=op.f("ck_node_pools_waiting_has_its_reason"),
        ),
        sa.CheckConstraint(
            "(state = 'gone') = (gone_at IS NOT NULL)", name=op.f("ck_node_pools_gone_has_its_time")
        ),
        sa.CheckConstraint(
            "state <> 'ready' OR ready_at IS NOT NULL", name=op.f("ck_node_pools_ready_has_its_time")
        ),
        sa.CheckConstraint(
            "state IN ('deleting', 'gone', 'pending', 'ready')", name=op.f("ck_node_pools_state_known")
        ),
        sa.CheckConstraint("nodes >= 0", name=op.f("ck_node_pools_nodes_not_negative")),
        sa.CheckConstraint("wait_timeout_seconds >= 0", name=op.f("ck_node_pools_wait_timeout_not_negative")),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name=op.f("fk_node_pools_cluster_id_clusters")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id", "environment_id"],
            ["environments.organization_id", "environments.project_id", "environments.id"],
            name=op.f("fk_node_pools_organization_id_environments"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_node_pools_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_node_pools_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_node_pools")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_node_pools_organization_id_id")),
    )
    op.create_index(
        "ix_node_pools_cluster_id",
        "node_pools",
        ["cluster_id"],
        unique=False,
        postgresql_where=sa.text("state IN ('deleting', 'pending', 'ready')"),
    )
    op.create_index(
        "ix_node_pools_due",
        "node_pools",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('deleting', 'pending', 'ready')"),
    )
    op.create_index(
        "uq_node_pools_live_name",
        "node_pools",
        ["organization_id", "project_id", "cluster_id", "name"],
        unique=True,
        postgresql_where=sa.text("state IN ('deleting', 'pending', 'ready')"),
    )
    op.create_table(
        "price_agreements",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("sku", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=True),
        sa.Column("sla", sa.Text(), nullable=True),
        sa.Column("purchase", sa.Text(), nullable=False),
        sa.Column("nano_per_unit_hour", sa.BigInteger(), nullable=False),
        sa.Column("stopped_nano_per_unit_hour", sa.BigInteger(), nullable=True),
        sa.Column("valid_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("valid_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("agreed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("agreed_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_by", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "purchase IN ('committed', 'interruptible', 'on_demand', 'spot')",
            name=op.f("ck_price_agreements_purchase_known"),
        ),
        sa.CheckConstraint("sla IN ('bronze', 'gold', 'silver')", name=op.f("ck_price_agreements_sla_known")),
        sa.CheckConstraint(
            "sla IS NULL OR purchase IN ('committed', 'on_demand')",
            name=op.f("ck_price_agreements_promises_are_for_what_is_kept"),
        ),
        sa.CheckConstraint("nano_per_unit_hour >= 0", name=op.f("ck_price_agreements_not_negative")),
        sa.CheckConstraint(
            "stopped_nano_per_unit_hour BETWEEN 0 AND nano_per_unit_hour",
            name=op.f("ck_price_agreements_stopped_costs_no_more"),
        ),
        sa.CheckConstraint("valid_until >= valid_from", name=op.f("ck_price_agreements_ends_after_start")),
        sa.CheckConstraint(
            "(ended_at IS NULL) = (ended_by IS NULL)", name=op.f("ck_price_agreements_ended_by_somebody")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_price_agreements_organization_id_organizations"),
        ),
        sa.ForeignKeyConstraint(["sku"], ["skus.name"], name=op.f("fk_price_agreements_sku_skus")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_price_agreements")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_price_agreements_organization_id_id")),
    )
    op.create_index(
        "ix_price_agreements_organization_id_sku",
        "price_agreements",
        ["organization_id", "sku", "valid_from"],
        unique=False,
    )
    op.create_index("ix_price_agreements_agreed_at", "price_agreements", ["agreed_at", "id"], unique=False)
    op.create_table(
        "quotes",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("environment_id", sa.Uuid(), nullable=False),
        sa.Column("sku", sa.Text(), nullable=False),
        sa.Column("regions", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("providers", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("price_nano_per_hour_max", sa.BigInteger(), nullable=True),
        sa.Column("network_gbps_min", sa.Integer(), nullable=True),
        sa.Column("purchase", sa.Text(), nullable=False),
        sa.Column("sla", sa.Text(), nullable=False),
        sa.Column("nano_per_unit_hour", sa.BigInteger(), nullable=False),
        sa.Column("stopped_nano_per_unit_hour", sa.BigInteger(), nullable=False),
        sa.Column("list_nano_per_unit_hour", sa.BigInteger(), nullable=False),
        sa.Column("price_book", sa.Integer(), nullable=False),
        sa.Column("price_agreement_id", sa.Uuid(), nullable=True),
        sa.Column("committed_days", sa.Integer(), nullable=True),
        sa.Column("quoted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "purchase IN ('committed', 'interruptible', 'on_demand', 'spot')",
            name=op.f("ck_quotes_purchase_known"),
        ),
        sa.CheckConstraint("sla IN ('bronze', 'gold', 'silver')", name=op.f("ck_quotes_sla_known")),
        sa.CheckConstraint(
            "CASE WHEN purchase = 'committed' THEN committed_days IS NOT NULL AND committed_days BETWEEN 1 AND 1100 ELSE committed_days IS NULL END",
            name=op.f("ck_quotes_committed_to_a_term"),
        ),
        sa.CheckConstraint("expires_at > quoted_at", name=op.f("ck_quotes_expires_later")),
        sa.CheckConstraint(
            "stopped_nano_per_unit_hour BETWEEN 0 AND nano_per_unit_hour",
            name=op.f("ck_quotes_stopped_costs_no_more"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id", "environment_id"],
            ["environments.organization_id", "environments.project_id", "environments.id"],
            name=op.f("fk_quotes_organization_id_environments"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_quotes_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_quotes_organization_id_organizations")
        ),
        sa.ForeignKeyConstraint(
            ["price_book"], ["price_books.version"], name=op.f("fk_quotes_price_book_price_books")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "price_agreement_id"],
            ["price_agreements.organization_id", "price_agreements.id"],
            name=op.f("fk_quotes_organization_id_price_agreements"),
        ),
        sa.ForeignKeyConstraint(["sku"], ["skus.name"], name=op.f("fk_quotes_sku_skus")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_quotes")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_quotes_organization_id_id")),
    )
    op.create_index("ix_quotes_expires_at", "quotes", ["expires_at"], unique=False)
    op.create_table(
        "leases",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("environment_id", sa.Uuid(), nullable=False),
        sa.Column("network_id", sa.Uuid(), nullable=True),
        sa.Column("node_pool_id", sa.Uuid(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sku", sa.Text(), nullable=False),
        sa.Column("gpu_model", sa.Text(), nullable=True),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column(
            "units", sa.Integer(), sa.Computed("greatest(gpu_count, 1)", persisted=True), nullable=False
        ),
        sa.Column("purchase", sa.Text(), nullable=False),
        sa.Column("committed_days", sa.Integer(), nullable=True),
        sa.Column("on_eviction", sa.Text(), nullable=False),
        sa.Column("sla", sa.Text(), nullable=False),
        sa.Column("sla_version", sa.Integer(), nullable=True),
        sa.Column("nano_per_unit_hour", sa.BigInteger(), nullable=False),
        sa.Column("stopped_nano_per_unit_hour", sa.BigInteger(), nullable=False),
        sa.Column("list_nano_per_unit_hour", sa.BigInteger(), nullable=False),
        sa.Column("price_book", sa.Integer(), nullable=False),
        sa.Column("price_agreement_id", sa.Uuid(), nullable=True),
        sa.Column("quote_id", sa.Uuid(), nullable=True),
        sa.Column("proof", sa.Text(), nullable=False),
        sa.Column("regions", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("providers", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("price_nano_per_hour_max", sa.BigInteger(), nullable=True),
        sa.Column("network_gbps_min", sa.Integer(), nullable=True),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("ssh_keys", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "labels", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
        sa.Column("wait_timeout_seconds", sa.Integer(), nullable=False),
        sa.Column("auto_release_after_seconds", sa.Integer(), nullable=True),
        sa.Column("auto_release_spend_nano", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("end_reason", sa.Text(), nullable=True),
        sa.Column("end_why", sa.Text(), nullable=True),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("waiting_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("waiting_why", sa.Text(), nullable=True),
        sa.Column("placement_sha256", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ready_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("release_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "switched_at",
            postgresql.ARRAY(sa.DateTime(timezone=True)),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column(
            "paused_at",
            postgresql.ARRAY(sa.DateTime(timezone=True)),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column(
            "unattributed_at",
            postgresql.ARRAY(sa.DateTime(timezone=True)),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column(
            "held_at",
            postgresql.ARRAY(sa.DateTime(timezone=True)),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("billed_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("unused_unit_seconds", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("funding_warned_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("metered_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("intervals", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("meter_closed", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("traceparent", sa.Text(), nullable=True),
        sa.CheckConstraint("gpu_count >= 0", name=op.f("ck_leases_gpu_count_not_negative")),
        sa.CheckConstraint("(gpu_model IS NULL) = (gpu_count = 0)", name=op.f("ck_leases_gpus_have_a_model")),
        sa.CheckConstraint("gpu_count > 0 OR proof = 'listed'", name=op.f("ck_leases_no_gpus_prove_nothing")),
        sa.CheckConstraint(
            "(network_id IS NULL) = (node_pool_id IS NOT NULL)", name=op.f("ck_leases_in_a_network_or_a_pool")
        ),
        sa.CheckConstraint(
            "(state = 'ready') <= (ready_at IS NOT NULL)", name=op.f("ck_leases_ready_has_its_time")
        ),
        sa.CheckConstraint(
            "end_reason IN ('auto_released', 'ended_by_operator', 'envelope_exceeded', 'evicted', 'machine_lost', 'no_capacity', 'organization_closed', 'organization_suspended', 'preempted', 'proof_failed', 'released', 'unfunded')",
            name=op.f("ck_leases_end_reason_known"),
        ),
        sa.CheckConstraint(
            "proof IN ('attested', 'listed', 'proven', 'watched')", name=op.f("ck_leases_proof_known")
        ),
        sa.CheckConstraint(
            "purchase IN ('committed', 'interruptible', 'on_demand', 'spot')",
            name=op.f("ck_leases_purchase_known"),
        ),
        sa.CheckConstraint("on_eviction IN ('end', 'replace')", name=op.f("ck_leases_on_eviction_known")),
        sa.CheckConstraint("sla IN ('bronze', 'gold', 'silver')", name=op.f("ck_leases_sla_known")),
        sa.CheckConstraint(
            "CASE WHEN purchase = 'committed' THEN committed_days IS NOT NULL AND committed_days BETWEEN 1 AND 1100 ELSE committed_days IS NULL END",
            name=op.f("ck_leases_committed_to_a_term"),
        ),
        sa.CheckConstraint(
            "unused_unit_seconds = 0 OR (unused_unit_seconds > 0 AND committed_days IS NOT NULL"
            " AND billed_until IS NOT NULL)",
            name=op.f("ck_leases_unused_of_a_term"),
        ),
        sa.CheckConstraint(
            "committed_days IS NULL OR (node_pool_id IS NULL AND auto_release_after_seconds IS NULL"
            " AND auto_release_spend_nano IS NULL)",
            name=op.f("ck_leases_ends_with_its_term"),
        ),
        sa.CheckConstraint(
            "sla_version IS NULL OR purchase IN ('committed', 'on_demand')",
            name=op.f("ck_leases_promised_where_kept"),
        ),
        sa.CheckConstraint(
            "on_eviction = 'end' OR purchase IN ('interruptible', 'spot')",
            name=op.f("ck_leases_replaced_where_taken_back"),
        ),
        sa.CheckConstraint(
            "ready_at IS NOT NULL OR paused_at = '{}'", name=op.f("ck_leases_paused_only_after_ready")
        ),
        sa.CheckConstraint(
            "state IN ('ended', 'ending', 'placing', 'ready', 'starting')", name=op.f("ck_leases_state_known")
        ),
        sa.CheckConstraint(
            "waiting_since IS NULL OR state = 'placing'", name=op.f("ck_leases_only_a_placing_lease_waits")
        ),
        sa.CheckConstraint(
            "(waiting_since IS NULL) = (waiting_why IS NULL)", name=op.f("ck_leases_waiting_has_its_reason")
        ),
        sa.CheckConstraint(
            "stopped_nano_per_unit_hour BETWEEN 0 AND nano_per_unit_hour",
            name=op.f("ck_leases_stopped_costs_no_more"),
        ),
        sa.CheckConstraint(
            "NOT meter_closed OR billed_until IS NOT NULL", name=op.f("ck_leases_meter_closes_after_the_end")
        ),
        sa.CheckConstraint("billed_until >= ready_at", name=op.f("ck_leases_billed_no_earlier_than_ready")),
        sa.CheckConstraint(
            "billed_until IS NULL OR ready_at IS NOT NULL", name=op.f("ck_leases_billed_only_after_ready")
        ),
        sa.CheckConstraint(
            "release_at IS NULL OR ready_at IS NOT NULL", name=op.f("ck_leases_released_by_itself_when_ready")
        ),
        sa.CheckConstraint("wait_timeout_seconds >= 0", name=op.f("ck_leases_wait_timeout_not_negative")),
        sa.ForeignKeyConstraint(
            ["sla_version", "sla"],
            ["sla_terms.version", "sla_terms.tier"],
            name=op.f("fk_leases_sla_version_sla_terms"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "quote_id"],
            ["quotes.organization_id", "quotes.id"],
            name=op.f("fk_leases_organization_id_quotes"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "node_pool_id"],
            ["node_pools.organization_id", "node_pools.id"],
            name=op.f("fk_leases_organization_id_node_pools"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id", "environment_id"],
            ["environments.organization_id", "environments.project_id", "environments.id"],
            name=op.f("fk_leases_organization_id_environments"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id", "network_id"],
            ["networks.organization_id", "networks.project_id", "networks.id"],
            name=op.f("fk_leases_organization_id_networks"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_leases_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_leases_organization_id_organizations")
        ),
        sa.ForeignKeyConstraint(
            ["price_book"], ["price_books.version"], name=op.f("fk_leases_price_book_price_books")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "price_agreement_id"],
            ["price_agreements.organization_id", "price_agreements.id"],
            name=op.f("fk_leases_organization_id_price_agreements"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leases")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_leases_organization_id_id")),
    )
    op.create_index(
        "ix_leases_quote_id",
        "leases",
        ["quote_id"],
        unique=False,
        postgresql_where=sa.text("quote_id IS NOT NULL"),
    )
    op.create_index(
        "ix_leases_auto_release",
        "leases",
        ["release_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('placing', 'ready', 'starting') AND release_at IS NOT NULL"),
    )
    op.create_index(
        "ix_leases_committed",
        "leases",
        ["organization_id"],
        unique=False,
        postgresql_where=sa.text("state IN ('placing', 'ready', 'starting') AND committed_days IS NOT NULL"),
    )
    op.create_index("ix_leases_sku_created_at", "leases", ["sku", "created_at"], unique=False)
    op.create_index(
        "ix_leases_ending", "leases", ["id"], unique=False, postgresql_where=sa.text("state = 'ending'")
    )
    op.create_index(
        "ix_leases_unfunded",
        "leases",
        ["organization_id"],
        unique=False,
        postgresql_where=sa.text("funding_warned_at IS NOT NULL AND state = 'ready'"),
    )
    op.create_index(
        "ix_leases_labels",
        "leases",
        ["labels"],
        unique=False,
        postgresql_using="gin",
        postgresql_ops={"labels": "jsonb_path_ops"},
    )
    op.create_index(
        "ix_leases_live",
        "leases",
        ["organization_id"],
        unique=False,
        postgresql_where=sa.text("state IN ('placing', 'ready', 'starting')"),
    )
    op.create_index(
        "ix_leases_metered",
        "leases",
        ["id"],
        unique=False,
        postgresql_where=sa.text("ready_at IS NOT NULL AND NOT meter_closed"),
    )
    op.create_index(
        "ix_leases_network_id",
        "leases",
        ["network_id"],
        unique=False,
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index(
        "ix_leases_node_pool_id",
        "leases",
        ["node_pool_id"],
        unique=False,
        postgresql_where=sa.text("node_pool_id IS NOT NULL"),
    )
    op.create_index(
        "ix_leases_organization_id_created_at",
        "leases",
        ["organization_id", sa.literal_column("created_at DESC"), sa.literal_column("id DESC")],
        unique=False,
    )
    op.create_index(
        "ix_leases_placing", "leases", ["due_at"], unique=False, postgresql_where=sa.text("state = 'placing'")
    )
    op.create_index(
        "ix_leases_placing_ahead",
        "leases",
        ["organization_id", sa.literal_column("priority DESC"), "created_at", "id"],
        unique=False,
        postgresql_where=sa.text("state = 'placing'"),
    )
    op.create_index(
        "ix_leases_waiting",
        "leases",
        ["organization_id"],
        unique=False,
        postgresql_where=sa.text("waiting_since IS NOT NULL"),
    )
    op.create_index(
        "uq_leases_live_name",
        "leases",
        ["organization_id", "project_id", "name"],
        unique=True,
        postgresql_where=sa.text("state IN ('placing', 'ready', 'starting')"),
    )
    op.create_table(
        "journal",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=True),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("lease_id", sa.Uuid(), nullable=True),
        sa.Column("machine_id", sa.Uuid(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor_kind", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("state_before", sa.Text(), nullable=True),
        sa.Column("state_after", sa.Text(), nullable=True),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column(
            "transaction",
            sa.BigInteger(),
            server_default=sa.text("(pg_current_xact_id()::text)::bigint"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "actor_kind IN ('customer', 'loop', 'operator')", name=op.f("ck_journal_actor_kind_known")
        ),
        sa.CheckConstraint(
            "(lease_id IS NULL) = (organization_id IS NULL)", name=op.f("ck_journal_lease_has_its_tenant")
        ),
        sa.CheckConstraint(
            "lease_id IS NOT NULL OR machine_id IS NOT NULL", name=op.f("ck_journal_about_something")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_journal_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_journal_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_journal_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_journal")),
    )
    op.create_index("ix_journal_lease_id_transaction", "journal", ["lease_id", "transaction"], unique=False)
    op.create_index("ix_journal_machine_id_number", "journal", ["machine_id", "number"], unique=False)
    op.create_table(
        "postings",
        sa.Column("transaction_id", sa.Uuid(), nullable=False),
        sa.Column("line", sa.SmallInteger(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("account_id", sa.Uuid(), nullable=False),
        sa.Column("amount_nano", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("amount_nano <> 0", name=op.f("ck_postings_not_zero")),
        sa.ForeignKeyConstraint(
            ["organization_id", "transaction_id"],
            ["transactions.organization_id", "transactions.id"],
            name=op.f("fk_postings_organization_id_transactions"),
        ),
        sa.PrimaryKeyConstraint("transaction_id", "line", "organization_id", name=op.f("pk_postings")),
    )
    op.create_index(
        "ix_postings_organization_id_account_id", "postings", ["organization_id", "account_id"], unique=False
    )
    op.create_index(
        "ix_postings_account_id_transaction_id", "postings", ["account_id", "transaction_id"], unique=False
    )
    op.create_table(
        "provider_accounts",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("listing_due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("offers_due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("children_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("children_listed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("children_listed", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("children_frozen_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("children_frozen_lists", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("children_frozen_why", sa.Text(), nullable=True),
        sa.Column("children_frozen_missing", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("work_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("orphans_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("listed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("listing_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("listing_size", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("listing_foreign", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("offers_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("frozen_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("frozen_lists", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("frozen_why", sa.Text(), nullable=True),
        sa.Column("frozen_missing", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("failing_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failing_why", sa.Text(), nullable=True),
        sa.Column("offers_failing_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("offers_failing_why", sa.Text(), nullable=True),
        sa.Column(
            "offers_left_out",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'"),
            nullable=False,
        ),
        sa.Column("secret_id", sa.Uuid(), nullable=True),
        sa.Column("credentials_version", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("credentials_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("drained_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("armed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("disarmed_why", sa.Text(), nullable=True),
        sa.Column("drained_why", sa.Text(), nullable=True),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "removed_at IS NULL OR secret_id IS NULL",
            name=op.f("ck_provider_accounts_removed_has_no_credentials"),
        ),
        sa.ForeignKeyConstraint(
            ["secret_id"], ["secrets.id"], name=op.f("fk_provider_accounts_secret_id_secrets")
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_provider_accounts")),
    )
    op.create_table(
        "holds",
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("amount_nano", sa.BigInteger(), nullable=False),
        sa.Column("posted_nano", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("placed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("kept_until", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("amount_nano >= 0", name=op.f("ck_holds_not_negative")),
        sa.CheckConstraint(
            "released_at IS NULL OR amount_nano = 0", name=op.f("ck_holds_released_holds_nothing")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_holds_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_holds_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("lease_id", "organization_id", name=op.f("pk_holds")),
    )
    op.create_index(
        "ix_holds_kept",
        "holds",
        ["organization_id"],
        unique=False,
        postgresql_where=sa.text("kept_until IS NOT NULL"),
    )
    op.create_index(
        "ix_holds_due",
        "holds",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("released_at IS NULL AND due_at IS NOT NULL"),
    )
    op.create_index(
        "ix_holds_open",
        "holds",
        ["organization_id"],
        unique=False,
        postgresql_where=sa.text("released_at IS NULL"),
    )
    op.create_table(
        "pools",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sku", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("sla", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("machines_min", sa.Integer(), nullable=False),
        sa.Column("machines_max", sa.Integer(), nullable=False),
        sa.Column("step_max", sa.Integer(), nullable=False),
        sa.Column("idle_nano_per_day", sa.BigInteger(), nullable=False),
        sa.Column("waiting_nano_per_hour", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("wanted", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("wanted_why", sa.Text(), nullable=True),
        sa.Column("target", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("fewer_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("verified", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("starting", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("idle_costs", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("sla IN ('bronze', 'gold', 'silver')", name=op.f("ck_pools_sla_known")),
        sa.CheckConstraint(
            "state IN ('active', 'deleted', 'deleting', 'dry_run')", name=op.f("ck_pools_state_known")
        ),
        sa.CheckConstraint("policy IN ('fixed', 'newsvendor')", name=op.f("ck_pools_policy_known")),
        sa.CheckConstraint(
            "0 <= machines_min AND machines_min <= machines_max", name=op.f("ck_pools_bounds_in_order")
        ),
        sa.CheckConstraint("step_max > 0", name=op.f("ck_pools_step_positive")),
        sa.CheckConstraint(
            "idle_nano_per_day >= 0 AND waiting_nano_per_hour >= 0",
            name=op.f("ck_pools_amounts_not_negative"),
        ),
        sa.CheckConstraint(
            "(state = 'deleted') = (deleted_at IS NOT NULL)", name=op.f("ck_pools_deleted_has_its_time")
        ),
        sa.ForeignKeyConstraint(["sku"], ["skus.name"], name=op.f("fk_pools_sku_skus")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pools")),
    )
    op.create_index(
        "uq_pools_name", "pools", ["name"], unique=True, postgresql_where=sa.text("state <> 'deleted'")
    )
    op.create_index(
        "uq_pools_sku_region_sla",
        "pools",
        ["sku", "region", sa.text("coalesce(sla, '')")],
        unique=True,
        postgresql_where=sa.text("state <> 'deleted'"),
    )
    op.create_index(
        "ix_pools_due", "pools", ["due_at"], unique=False, postgresql_where=sa.text("state <> 'deleted'")
    )
    op.create_table(
        "pool_decisions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("pool_id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("wanted", sa.Integer(), nullable=False),
        sa.Column("target", sa.Integer(), nullable=False),
        sa.Column("verified", sa.Integer(), nullable=False),
        sa.Column("starting", sa.Integer(), nullable=False),
        sa.Column("ordered", sa.Integer(), nullable=False),
        sa.Column("ended", sa.Integer(), nullable=False),
        sa.Column("dry_run", sa.Boolean(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_pool_decisions_pool_id_pools")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pool_decisions")),
    )
    op.create_index("ix_pool_decisions_pool_id_at", "pool_decisions", ["pool_id", "at", "id"], unique=False)
    op.create_table(
        "pool_hours",
        sa.Column("pool_id", sa.Uuid(), nullable=False),
        sa.Column("hour", sa.DateTime(timezone=True), nullable=False),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.Column("hits", sa.Integer(), nullable=False),
        sa.Column("ready_misses", sa.Integer(), nullable=False),
        sa.Column("waited_hits_ms", sa.BigInteger(), nullable=False),
        sa.Column("waited_misses_ms", sa.BigInteger(), nullable=False),
        sa.Column("avoided_ms", sa.BigInteger(), nullable=False),
        sa.Column("idle_nano", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_pool_hours_pool_id_pools")),
        sa.PrimaryKeyConstraint("pool_id", "hour", name=op.f("pk_pool_hours")),
    )
    op.create_table(
        "machines",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("native_region", sa.Text(), nullable=False),
        sa.Column("native_type", sa.Text(), nullable=False),
        sa.Column("offer_key", sa.Text(), nullable=False),
        sa.Column("cost_nano_per_hour", sa.BigInteger(), nullable=False),
        sa.Column("spot", sa.Boolean(), nullable=False),
        sa.Column("cost_nano_per_hour_max", sa.BigInteger(), nullable=True),
        sa.Column("stopped_cost_nano_per_hour", sa.BigInteger(), nullable=True),
        sa.Column("increment_seconds", sa.Integer(), nullable=False),
        sa.Column("minimum_seconds", sa.Integer(), nullable=False),
        sa.Column("billed_while_booting", sa.Boolean(), nullable=False),
        sa.Column("power", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("gpu_model", sa.Text(), nullable=True),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_gib", sa.Integer(), nullable=False),
        sa.Column("proof", sa.Text(), nullable=False),
        sa.Column("launch_key", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Uuid(), nullable=True),
        sa.Column("reserved_for", sa.Uuid(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("work_token", sa.Uuid(), nullable=True),
        sa.Column("work_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("host_key", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("running_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("verified_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("terminate_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("gone_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("fail_reason", sa.Text(), nullable=True),
        sa.Column("fail_why", sa.Text(), nullable=True),
        sa.Column("gone_evidence", sa.Text(), nullable=True),
        sa.Column("provider_ref", sa.Text(), nullable=True),
        sa.Column("provider_state", sa.Text(), nullable=True),
        sa.Column("address", sa.Text(), nullable=True),
        sa.Column("ssh_port", sa.Integer(), server_default=sa.text("22"), nullable=False),
        sa.Column("ssh_trust", sa.Text(), nullable=True),
        sa.Column("mesh_key", sa.Text(), nullable=True),
        sa.Column("ssh_trust_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("sighted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("down_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("down_cause", sa.Text(), nullable=True),
        sa.Column("back_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("back_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("eviction_announced_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("eviction_withdrawn_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("missed_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("missed_lists", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("relisted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("unsteady_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("step_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("passes", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("first_passed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_passed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attested", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("failed", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("unanswered", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_challenged_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("proof_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("suspect_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("erasing_until", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "spot = (cost_nano_per_hour_max IS NOT NULL)", name=op.f("ck_machines_spot_has_its_ceiling")
        ),
        sa.CheckConstraint(
            "fail_reason IN ('evicted', 'gpu_mismatch', 'host_key_changed', 'launch_answer_lost', 'lease_ended', 'never_booted', 'no_capacity', 'node_failed', 'node_hostile', 'node_lost', 'not_attended', 'not_running', 'not_taken', 'order_refused', 'proof_emulated', 'proof_failed', 'provider_reported_failure', 'quota_reached', 'setup_failed', 'unauthorized', 'unhealthy', 'unreachable', 'vanished')",
            name=op.f("ck_machines_fail_reason_known"),
        ),
        sa.CheckConstraint(
            "proof IN ('attested', 'listed', 'proven', 'watched')", name=op.f("ck_machines_proof_known")
        ),
        sa.CheckConstraint("purpose IN ('lease', 'node', 'pool')", name=op.f("ck_machines_purpose_known")),
        sa.CheckConstraint(
            "(down_since IS NULL) = (down_cause IS NULL)", name=op.f("ck_machines_downtime_has_a_cause")
        ),
        sa.CheckConstraint(
            "down_cause IN ('customer', 'provider', 'unclear')", name=op.f("ck_machines_down_cause_known")
        ),
        sa.CheckConstraint(
            "state <> 'gone' OR asked_at IS NULL OR gone_evidence IS NOT NULL",
            name=op.f("ck_machines_gone_needs_evidence"),
        ),
        sa.CheckConstraint(
            "state IN ('booting', 'bootstrapping', 'gone', 'intended', 'launching', 'terminating', 'verified')",
            name=op.f("ck_machines_state_known"),
        ),
        sa.CheckConstraint(
            "state IN ('gone', 'intended') OR asked_at IS NOT NULL",
            name=op.f("ck_machines_asked_before_effect"),
        ),
        sa.CheckConstraint(
            "step IN ('booted', 'certificates_accepted', 'connected', 'gpus_proven', 'gpus_verified', 'launched', 'mesh_joined', 'placed')",
            name=op.f("ck_machines_step_known"),
        ),
        sa.CheckConstraint("gpu_count >= 0", name=op.f("ck_machines_gpu_count_not_negative")),
        sa.CheckConstraint(
            "(gpu_model IS NULL) = (gpu_count = 0)", name=op.f("ck_machines_gpus_have_a_model")
        ),
        sa.CheckConstraint(
            "(purpose = 'pool') = (pool_id IS NOT NULL OR reserved_for IS NOT NULL) AND (pool_id IS NULL OR reserved_for IS NULL)",
            name=op.f("ck_machines_kept_for_somebody"),
        ),
        sa.CheckConstraint(
            "gpu_count > 0 OR proof = 'listed'", name=op.f("ck_machines_no_gpus_prove_nothing")
        ),
        sa.ForeignKeyConstraint(
            ["account"], ["provider_accounts.name"], name=op.f("fk_machines_account_provider_accounts")
        ),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_machines_pool_id_pools")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_machines")),
        sa.UniqueConstraint("launch_key", name=op.f("uq_machines_launch_key")),
    )
    op.create_index(
        "ix_machines_open",
        "machines",
        ["account", "state", "due_at"],
        unique=False,
        postgresql_where=sa.text("state <> 'gone'"),
    )
    op.create_index(
        "ix_machines_proof_due",
        "machines",
        ["account", "proof_due_at"],
        unique=False,
        postgresql_where=sa.text("state = 'verified' AND proof_due_at IS NOT NULL"),
    )
    op.create_index("ix_machines_account_asked_at", "machines", ["account", "asked_at"], unique=False)
    op.create_index(
        "ix_machines_fleet", "machines", ["id"], unique=False, postgresql_where=sa.text("state <> 'gone'")
    )
    op.create_index(
        "ix_machines_vanished",
        "machines",
        ["account", "gone_at"],
        unique=False,
        postgresql_where=sa.text("fail_reason = 'vanished'"),
    )
    op.create_index(
        "ix_machines_pooled",
        "machines",
        ["pool_id", "id"],
        unique=False,
        postgresql_where=sa.text("purpose = 'pool' AND state <> 'gone'"),
    )
    op.create_index(
        "ix_machines_of_pool",
        "machines",
        ["pool_id", "gone_at"],
        unique=False,
        postgresql_where=sa.text("pool_id IS NOT NULL"),
    )
    op.create_index(
        "ix_machines_verified_at",
        "machines",
        ["gpu_model", "gpu_count", "verified_at"],
        unique=False,
        postgresql_where=sa.text("verified_at IS NOT NULL"),
    )
    op.create_index(
        "ix_machines_suspect",
        "machines",
        ["account"],
        unique=False,
        postgresql_where=sa.text("state = 'verified' AND suspect_since IS NOT NULL"),
    )
    op.create_index(
        "uq_machines_provider_ref",
        "machines",
        ["account", "provider_ref"],
        unique=True,
        postgresql_where=sa.text(
            "provider_ref IS NOT NULL AND state IN ('booting', 'bootstrapping', 'launching', 'terminating', 'verified')"
        ),
    )
    op.create_table(
        "offers",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("native_region", sa.Text(), nullable=False),
        sa.Column("native_type", sa.Text(), nullable=False),
        sa.Column("gpu_model", sa.Text(), nullable=True),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_gib", sa.Integer(), nullable=False),
        sa.Column("disk_gib", sa.Integer(), nullable=False),
        sa.Column("capacity", sa.Text(), nullable=False),
        sa.Column("cost_nano_per_hour", sa.BigInteger(), nullable=False),
        sa.Column("available", sa.Boolean(), nullable=False),
        sa.Column("confidence", sa.Text(), nullable=False),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("architecture", sa.Text(), nullable=False),
        sa.Column("spot", sa.Boolean(), nullable=False),
        sa.Column("orderable", sa.Boolean(), nullable=False),
        sa.Column("eviction_notice_seconds", sa.Integer(), nullable=True),
        sa.Column("price_source", sa.Text(), nullable=False),
        sa.Column("network_gbps", sa.Integer(), nullable=True),
        sa.Column("ephemeral_gib", sa.Integer(), nullable=True),
        sa.Column("setup_seconds", sa.Integer(), nullable=False),
        sa.Column("increment_seconds", sa.Integer(), nullable=False),
        sa.Column("minimum_seconds", sa.Integer(), nullable=False),
        sa.Column("billed_while_booting", sa.Boolean(), nullable=False),
        sa.Column("tried", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("power", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("firewall", sa.Text(), nullable=False),
        sa.Column("stopped_cost_nano_per_hour", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "firewall IN ('fixed', 'follows', 'none', 'unknown')", name=op.f("ck_offers_firewall_known")
        ),
        sa.CheckConstraint("(gpu_model IS NULL) = (gpu_count = 0)", name=op.f("ck_offers_gpus_have_a_model")),
        sa.CheckConstraint("architecture IN ('arm64', 'x86_64')", name=op.f("ck_offers_architecture_known")),
        sa.ForeignKeyConstraint(
            ["account"], ["provider_accounts.name"], name=op.f("fk_offers_account_provider_accounts")
        ),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_offers")),
    )
    op.create_index("ix_offers_account", "offers", ["account"], unique=False)
    op.create_index("ix_offers_gpu_model_gpu_count", "offers", ["gpu_model", "gpu_count"], unique=False)
    op.create_table(
        "offer_blocks",
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("native_region", sa.Text(), nullable=False),
        sa.Column("native_type", sa.Text(), nullable=False),
        sa.Column("spot", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "reason IN ('evicted', 'gpu_mismatch', 'host_key_changed', 'launch_answer_lost', 'lease_ended', 'never_booted', 'no_capacity', 'node_failed', 'node_hostile', 'node_lost', 'not_attended', 'not_running', 'not_taken', 'order_refused', 'proof_emulated', 'proof_failed', 'provider_reported_failure', 'quota_reached', 'setup_failed', 'unauthorized', 'unhealthy', 'unreachable', 'vanished')",
            name=op.f("ck_offer_blocks_reason_known"),
        ),
        sa.CheckConstraint(
            "scope IN ('account', 'offer', 'provider', 'region', 'type', 'zone')",
            name=op.f("ck_offer_blocks_scope_known"),
        ),
        sa.ForeignKeyConstraint(
            ["account"], ["provider_accounts.name"], name=op.f("fk_offer_blocks_account_provider_accounts")
        ),
        sa.ForeignKeyConstraint(
            ["machine_id"], ["machines.id"], name=op.f("fk_offer_blocks_machine_id_machines")
        ),
        sa.PrimaryKeyConstraint("machine_id", name=op.f("pk_offer_blocks")),
    )
    op.create_index("ix_offer_blocks_account_until", "offer_blocks", ["account", "until"], unique=False)
    op.create_index("ix_offer_blocks_until", "offer_blocks", ["until"], unique=False)
    op.create_table(
        "leftovers",
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("ref", sa.Text(), nullable=False),
        sa.Column("launch_key", sa.Text(), nullable=False),
        sa.Column("machine_id", sa.Uuid(), nullable=True),
        sa.Column("cost_nano_per_hour", sa.BigInteger(), nullable=True),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("failures", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("failed_why", sa.Text(), nullable=True),
        sa.Column("accepted_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["account"], ["provider_accounts.name"], name=op.f("fk_leftovers_account_provider_accounts")
        ),
        sa.ForeignKeyConstraint(
            ["machine_id"], ["machines.id"], name=op.f("fk_leftovers_machine_id_machines")
        ),
        sa.PrimaryKeyConstraint("account", "kind", "ref", name=op.f("pk_leftovers")),
    )
    op.create_table(
        "priced_children",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("ref", sa.Text(), nullable=False),
        sa.Column("launch_key", sa.Text(), nullable=False),
        sa.Column("nano_per_hour", sa.BigInteger(), nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("gone_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("left_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("machine_id", sa.Uuid(), nullable=True),
        sa.CheckConstraint(
            "(last_seen_at IS NULL) = (gone_at IS NULL)",
            name=op.f("ck_priced_children_last_seen_when_gone"),
        ),
        sa.ForeignKeyConstraint(
            ["account"],
            ["provider_accounts.name"],
            name=op.f("fk_priced_children_account_provider_accounts"),
        ),
        sa.ForeignKeyConstraint(
            ["machine_id"], ["machines.id"], name=op.f("fk_priced_children_machine_id_machines")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_priced_children")),
        sa.UniqueConstraint(
            "account",
            "kind",
            "ref",
            "launch_key",
            name=op.f("uq_priced_children_account_kind_ref_launch_key"),
        ),
    )
    op.create_index(
        "ix_priced_children_left_at",
        "priced_children",
        ["left_at"],
        unique=False,
        postgresql_where=sa.text("left_at IS NOT NULL"),
    )
    op.create_index(
        "ix_priced_children_listed",
        "priced_children",
        ["account"],
        unique=False,
        postgresql_where=sa.text("gone_at IS NULL"),
    )
    op.create_table(
        "leftover_decisions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("ref", sa.Text(), nullable=False),
        sa.Column("launch_key", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("actor_kind", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "actor_kind IN ('customer', 'loop', 'operator')",
            name=op.f("ck_leftover_decisions_actor_kind_known"),
        ),
        sa.ForeignKeyConstraint(
            ["account"],
            ["provider_accounts.name"],
            name=op.f("fk_leftover_decisions_account_provider_accounts"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leftover_decisions")),
    )
    op.create_index(
        "ix_leftover_decisions_account_kind_ref",
        "leftover_decisions",
        ["account", "kind", "ref"],
        unique=False,
    )
    op.create_table(
        "orphan_decisions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("provider_ref", sa.Text(), nullable=False),
        sa.Column("launch_key", sa.Text(), nullable=False),
        sa.Column("choice", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("actor_kind", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "actor_kind IN ('customer', 'loop', 'operator')",
            name=op.f("ck_orphan_decisions_actor_kind_known"),
        ),
        sa.CheckConstraint(
            "choice IN ('adopt', 'end', 'leave', 'revoke')", name=op.f("ck_orphan_decisions_choice_known")
        ),
        sa.ForeignKeyConstraint(
            ["account"],
            ["provider_accounts.name"],
            name=op.f("fk_orphan_decisions_account_provider_accounts"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_orphan_decisions")),
    )
    op.create_index(
        "ix_orphan_decisions_account_provider_ref",
        "orphan_decisions",
        ["account", "provider_ref"],
        unique=False,
    )
    op.create_table(
        "orphans",
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("provider_ref", sa.Text(), nullable=False),
        sa.Column("launch_key", sa.Text(), nullable=False),
        sa.Column("native_status", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("cost_nano_per_hour", sa.BigInteger(), nullable=True),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lists_seen", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("terminate_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("not_adopted_why", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("held_code", sa.Text(), nullable=True),
        sa.Column("held_why", sa.Text(), nullable=True),
        sa.Column("gone_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "origin IN ('late_success', 'listed_again', 'lost_answer', 'other_account', 'second_machine', 'unrecorded')",
            name=op.f("ck_orphans_origin_known"),
        ),
        sa.ForeignKeyConstraint(
            ["account"], ["provider_accounts.name"], name=op.f("fk_orphans_account_provider_accounts")
        ),
        sa.PrimaryKeyConstraint("account", "provider_ref", name=op.f("pk_orphans")),
    )
    op.create_index(
        "ix_orphans_gone",
        "orphans",
        ["gone_at"],
        unique=False,
        postgresql_where=sa.text("gone_at IS NOT NULL"),
    )
    op.create_table(
        "placements",
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("chosen", sa.Text(), nullable=True),
        sa.Column("ranking", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_placements_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_placements_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_placements_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("lease_id", "number", name=op.f("pk_placements")),
    )
    op.create_table(
        "proof_records",
        sa.Column("proof_id", sa.Uuid(), nullable=False),
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("offer_key", sa.Text(), nullable=False),
        sa.Column("gpu_model", sa.Text(), nullable=False),
        sa.Column("occasion", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=True),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("ended", sa.Boolean(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "occasion IN ('end', 'idle', 'recheck', 'start')", name=op.f("ck_proof_records_occasion_known")
        ),
        sa.CheckConstraint(
            "outcome IN ('emulated', 'failed', 'passed', 'unanswered')",
            name=op.f("ck_proof_records_outcome_known"),
        ),
        sa.ForeignKeyConstraint(
            ["account"], ["provider_accounts.name"], name=op.f("fk_proof_records_account_provider_accounts")
        ),
        sa.PrimaryKeyConstraint("proof_id", name=op.f("pk_proof_records")),
    )
    op.create_index(
        "ix_proof_records_at",
        "proof_records",
        [sa.literal_column("at DESC"), sa.literal_column("proof_id DESC")],
        unique=False,
    )
    op.create_index(
        "ix_proof_records_ended", "proof_records", ["at"], unique=False, postgresql_where=sa.text("ended")
    )
    op.create_index(
        "ix_proof_records_failed",
        "proof_records",
        ["account", "at"],
        unique=False,
        postgresql_where=sa.text("ended OR outcome IN ('emulated', 'failed')"),
    )
    op.create_table(
        "role_bindings",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("service_account_id", sa.Uuid(), nullable=True),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("environment_id", sa.Uuid(), nullable=True),
        sa.Column("lease_id", sa.Uuid(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("granted_by", sa.Text(), nullable=False),
        sa.Column(
            "platform",
            sa.Boolean(),
            sa.Computed(
                "CASE WHEN scope = 'platform'::text THEN true ELSE NULL::boolean END", persisted=True
            ),
            nullable=True,
        ),
        sa.CheckConstraint(
            "(environment_id IS NOT NULL) = (scope IN ('environment', 'lease'))",
            name=op.f("ck_role_bindings_environment_of_scope"),
        ),
        sa.CheckConstraint(
            "(lease_id IS NOT NULL) = (scope IN ('lease'))", name=op.f("ck_role_bindings_lease_of_scope")
        ),
        sa.CheckConstraint(
            "(project_id IS NOT NULL) = (scope IN ('environment', 'lease', 'project'))",
            name=op.f("ck_role_bindings_project_of_scope"),
        ),
        sa.CheckConstraint(
            "role IN ('admin', 'auditor', 'finance', 'member', 'operator', 'owner', 'viewer')",
            name=op.f("ck_role_bindings_role_known"),
        ),
        sa.CheckConstraint(
            "scope IN ('environment', 'lease', 'organization', 'platform', 'project')",
            name=op.f("ck_role_bindings_scope_known"),
        ),
        sa.CheckConstraint(
            "num_nonnulls(user_id, service_account_id) = 1", name=op.f("ck_role_bindings_one_subject")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_role_bindings_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "platform"],
            ["organizations.id", "organizations.platform"],
            name="fk_role_bindings_platform_organization",
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id", "environment_id"],
            ["environments.organization_id", "environments.project_id", "environments.id"],
            name=op.f("fk_role_bindings_organization_id_environments"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_role_bindings_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "service_account_id"],
            ["service_accounts.organization_id", "service_accounts.id"],
            name=op.f("fk_role_bindings_organization_id_service_accounts"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "user_id"],
            ["users.organization_id", "users.id"],
            name=op.f("fk_role_bindings_organization_id_users"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_role_bindings_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_role_bindings")),
        sa.UniqueConstraint(
            "organization_id",
            "user_id",
            "service_account_id",
            "role",
            "scope",
            "project_id",
            "environment_id",
            "lease_id",
            name="uq_role_bindings_once",
            postgresql_nulls_not_distinct=True,
        ),
    )
    op.create_index(
        "ix_role_bindings_service_account_id", "role_bindings", ["service_account_id"], unique=False
    )
    op.create_index("ix_role_bindings_user_id", "role_bindings", ["user_id"], unique=False)
    op.create_index(
        "uq_role_bindings_platform",
        "role_bindings",
        ["user_id", "service_account_id"],
        unique=True,
        postgresql_where=sa.text("scope = 'platform'"),
        postgresql_nulls_not_distinct=True,
    )
    op.create_table(
        "termination_permits",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("actor_kind", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("frozen_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("missing", sa.Integer(), nullable=True),
        sa.CheckConstraint(
            "actor_kind IN ('customer', 'loop', 'operator')",
            name=op.f("ck_termination_permits_actor_kind_known"),
        ),
        sa.CheckConstraint(
            "(frozen_since IS NULL) = (missing IS NULL)", name=op.f("ck_termination_permits_missing_since")
        ),
        sa.CheckConstraint("until > at", name=op.f("ck_termination_permits_until_after_at")),
        sa.ForeignKeyConstraint(
            ["account"],
            ["provider_accounts.name"],
            name=op.f("fk_termination_permits_account_provider_accounts"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_termination_permits")),
    )
    op.create_index(
        "ix_termination_permits_account_until", "termination_permits", ["account", "until"], unique=False
    )
    op.create_table(
        "attempts",
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("offer_key", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("fail_reason", sa.Text(), nullable=True),
        sa.Column("fail_why", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "fail_reason IN ('evicted', 'gpu_mismatch', 'host_key_changed', 'launch_answer_lost', 'lease_ended', 'never_booted', 'no_capacity', 'node_failed', 'node_hostile', 'node_lost', 'not_attended', 'not_running', 'not_taken', 'order_refused', 'proof_emulated', 'proof_failed', 'provider_reported_failure', 'quota_reached', 'setup_failed', 'unauthorized', 'unhealthy', 'unreachable', 'vanished')",
            name=op.f("ck_attempts_fail_reason_known"),
        ),
        sa.CheckConstraint(
            "outcome IN ('abandoned', 'admitted', 'failed')", name=op.f("ck_attempts_outcome_known")
        ),
        sa.CheckConstraint(
            "(outcome IS NULL) = (ended_at IS NULL)", name=op.f("ck_attempts_outcome_has_its_time")
        ),
        sa.CheckConstraint("number > 0", name=op.f("ck_attempts_number_positive")),
        sa.ForeignKeyConstraint(
            ["machine_id"], ["machines.id"], name=op.f("fk_attempts_machine_id_machines")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_attempts_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_attempts_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_attempts_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("lease_id", "number", name=op.f("pk_attempts")),
    )
    op.create_table(
        "audit_chains",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=True),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("sealed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("checked_sequence", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("checked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("exported_sequence", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("pruned_sequence", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_audit_chains_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_chains")),
    )
    op.create_index(
        "uq_audit_chains_organization_id",
        "audit_chains",
        ["organization_id"],
        unique=True,
        postgresql_nulls_not_distinct=True,
    )
    op.create_table(
        "audit_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("public", sa.LargeBinary(), nullable=False),
        sa.Column("secret_id", sa.Uuid(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["secret_id"], ["secrets.id"], name=op.f("fk_audit_keys_secret_id_secrets")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_keys")),
    )
    op.create_table(
        "audit_checkpoints",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=True),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.Column("signature", sa.LargeBinary(), nullable=True),
        sa.CheckConstraint("reason IN ('head', 'pruned')", name=op.f("ck_audit_checkpoints_reason_known")),
        sa.CheckConstraint(
            "(key_id IS NULL) = (signature IS NULL)",
            name=op.f("ck_audit_checkpoints_signature_has_its_key"),
        ),
        sa.ForeignKeyConstraint(
            ["key_id"], ["audit_keys.id"], name=op.f("fk_audit_checkpoints_key_id_audit_keys")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_audit_checkpoints_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_audit_checkpoints")),
    )
    op.create_index(
        "ix_audit_checkpoints_organization_id_sequence",
        "audit_checkpoints",
        ["organization_id", "sequence"],
        unique=False,
    )
    op.create_table(
        "audit_events",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=True),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("subject_kind", sa.Text(), nullable=False),
        sa.Column("credential", sa.Text(), nullable=True),
        sa.Column("subject_organization", sa.Text(), nullable=True),
        sa.Column("project", sa.Text(), nullable=True),
        sa.Column("targets", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("address", sa.Text(), nullable=True),
        sa.Column("client", sa.Text(), nullable=True),
        sa.Column("region", sa.Text(), nullable=True),
        sa.Column("rule", sa.Text(), nullable=True),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column(
            "links", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
        sa.Column(
            "details", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("previous", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint(
            "outcome IN ('allowed', 'failed', 'refused')", name=op.f("ck_audit_events_outcome_known")
        ),
        sa.CheckConstraint(
            "subject_kind IN ('administrator', 'loop', 'service_account', 'system', 'user')",
            name=op.f("ck_audit_events_subject_kind_known"),
        ),
        sa.CheckConstraint("sequence > 0", name=op.f("ck_audit_events_sequence_positive")),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_audit_events_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_events")),
    )
    op.create_index("ix_audit_events_at", "audit_events", ["at", "id"], unique=False)
    op.create_index(
        "ix_audit_events_organization_id_at", "audit_events", ["organization_id", "at", "id"], unique=False
    )
    op.create_index(
        "ix_audit_events_targets", "audit_events", ["targets"], unique=False, postgresql_using="gin"
    )
    op.create_index(
        "uq_audit_events_sequence",
        "audit_events",
        ["organization_id", "sequence"],
        unique=True,
        postgresql_nulls_not_distinct=True,
    )
    op.create_table(
        "audit_pending",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column(
            "transaction",
            sa.BigInteger(),
            server_default=sa.text("(pg_current_xact_id()::text)::bigint"),
            nullable=False,
        ),
        sa.Column("organization_id", sa.Uuid(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=True),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("subject_kind", sa.Text(), nullable=False),
        sa.Column("credential", sa.Text(), nullable=True),
        sa.Column("subject_organization", sa.Text(), nullable=True),
        sa.Column("project", sa.Text(), nullable=True),
        sa.Column("targets", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("address", sa.Text(), nullable=True),
        sa.Column("client", sa.Text(), nullable=True),
        sa.Column("region", sa.Text(), nullable=True),
        sa.Column("rule", sa.Text(), nullable=True),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column(
            "links", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
        sa.Column(
            "details", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
        sa.CheckConstraint(
            "outcome IN ('allowed', 'failed', 'refused')", name=op.f("ck_audit_pending_outcome_known")
        ),
        sa.CheckConstraint(
            "subject_kind IN ('administrator', 'loop', 'service_account', 'system', 'user')",
            name=op.f("ck_audit_pending_subject_kind_known"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_audit_pending_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_audit_pending")),
    )
    op.create_table(
        "charges",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("sku", sa.Text(), nullable=False),
        sa.Column("purchase", sa.Text(), nullable=False),
        sa.Column("sla", sa.Text(), nullable=False),
        sa.Column("price_book", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("unit_seconds", sa.BigInteger(), nullable=False),
        sa.Column("stopped", sa.Boolean(), nullable=False),
        sa.Column("unused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("nano_per_unit_hour", sa.BigInteger(), nullable=False),
        sa.Column("list_nano_per_unit_hour", sa.BigInteger(), nullable=False),
        sa.Column("amount_nano", sa.BigInteger(), nullable=False),
        sa.Column("period", sa.DateTime(timezone=True), nullable=False),
        sa.Column("rated_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "purchase IN ('committed', 'interruptible', 'on_demand', 'spot')",
            name=op.f("ck_charges_purchase_known"),
        ),
        sa.CheckConstraint("sla IN ('bronze', 'gold', 'silver')", name=op.f("ck_charges_sla_known")),
        sa.CheckConstraint(
            "period = date_trunc('month', period AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'"
            " AND period >= date_trunc('month', started_at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'",
            name=op.f("ck_charges_booked"),
        ),
        sa.CheckConstraint("amount_nano >= 0", name=op.f("ck_charges_not_negative")),
        sa.ForeignKeyConstraint(["machine_id"], ["machines.id"], name=op.f("fk_charges_machine_id_machines")),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_charges_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_charges_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["price_book"], ["price_books.version"], name=op.f("fk_charges_price_book_price_books")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_charges")),
        sa.UniqueConstraint("lease_id", "number", name=op.f("uq_charges_lease_id_number")),
    )
    op.create_index(
        "ix_charges_organization_id_started_at", "charges", ["organization_id", "started_at"], unique=False
    )
    op.create_index(
        "ix_charges_organization_id_period",
        "charges",
        ["organization_id", "period", "started_at", "id"],
        unique=False,
    )
    op.create_table(
        "claims",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("slot", sa.SmallInteger(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("work_token", sa.Uuid(), nullable=True),
        sa.Column("work_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("step", sa.Text(), nullable=True),
        sa.Column("step_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("waits_for", sa.Text(), nullable=True),
        sa.Column("waits_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("admitted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ssh_revoked", sa.Integer(), nullable=True),
        sa.Column("ssh_revoked_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "step IN ('booted', 'certificates_accepted', 'connected', 'gpus_proven', 'gpus_verified', 'launched', 'mesh_joined', 'placed')",
            name=op.f("ck_claims_step_known"),
        ),
        sa.CheckConstraint("waits_for IN ('hub', 'ssh_authority')", name=op.f("ck_claims_waits_for_known")),
        sa.CheckConstraint(
            "released_at IS NULL OR ended_at IS NOT NULL", name=op.f("ck_claims_released_after_the_end")
        ),
        sa.CheckConstraint("slot > 0", name=op.f("ck_claims_slot_positive")),
        sa.ForeignKeyConstraint(["machine_id"], ["machines.id"], name=op.f("fk_claims_machine_id_machines")),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_claims_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_claims_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_claims_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_claims")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_claims_organization_id_id")),
    )
    op.create_index(
        "ix_claims_admitting",
        "claims",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("admitted_at IS NULL AND ended_at IS NULL"),
    )
    op.create_index("ix_claims_lease_id", "claims", ["lease_id"], unique=False)
    op.create_index("ix_claims_machine_id", "claims", ["machine_id"], unique=False)
    op.create_index(
        "ix_claims_unreleased",
        "claims",
        ["ended_at"],
        unique=False,
        postgresql_where=sa.text("ended_at IS NOT NULL AND released_at IS NULL"),
    )
    op.create_index(
        "uq_claims_open_of_lease",
        "claims",
        ["lease_id"],
        unique=True,
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index(
        "uq_claims_of_machine",
        "claims",
        ["machine_id"],
        unique=True,
        postgresql_where=sa.text("slot IS NULL"),
    )
    op.create_index(
        "uq_claims_open_of_slot",
        "claims",
        ["machine_id", "slot"],
        unique=True,
        postgresql_where=sa.text("ended_at IS NULL AND slot IS NOT NULL"),
    )
    op.create_table(
        "firewalls",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "rules", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'"), nullable=False
        ),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("work_token", sa.Uuid(), nullable=True),
        sa.Column("work_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("claim_id", sa.Uuid(), nullable=True),
        sa.Column("applied_version", sa.Integer(), nullable=True),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.Column("looked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "problem IN ('changed', 'failed', 'provider', 'unreachable')",
            name=op.f("ck_firewalls_problem_known"),
        ),
        sa.CheckConstraint("applied_version <= version", name=op.f("ck_firewalls_applied_was_wanted")),
        sa.CheckConstraint(
            "applied_version IS NULL OR claim_id IS NOT NULL", name=op.f("ck_firewalls_applied_on_a_machine")
        ),
        sa.CheckConstraint(
            "num_nulls(applied_version, applied_at, digest, looked_at) IN (0, 4)",
            name=op.f("ck_firewalls_applied_as_a_whole"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "claim_id"],
            ["claims.organization_id", "claims.id"],
            name=op.f("fk_firewalls_organization_id_claims"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_firewalls_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_firewalls_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_firewalls_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("organization_id", "lease_id", name=op.f("pk_firewalls")),
    )
    op.create_table(
        "provider_firewalls",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("work_token", sa.Uuid(), nullable=True),
        sa.Column("work_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("claim_id", sa.Uuid(), nullable=True),
        sa.Column("tried_version", sa.Integer(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(version IS NULL) = (applied_at IS NULL)",
            name=op.f("ck_provider_firewalls_applied_has_its_time"),
        ),
        sa.CheckConstraint(
            "(tried_version IS NULL) = (claim_id IS NULL) AND (version IS NULL OR tried_version IS NOT NULL)",
            name=op.f("ck_provider_firewalls_tried_for_a_machine"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "claim_id"],
            ["claims.organization_id", "claims.id"],
            name=op.f("fk_provider_firewalls_organization_id_claims"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_provider_firewalls_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_provider_firewalls_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("organization_id", "lease_id", name=op.f("pk_provider_firewalls")),
    )
    op.create_table(
        "intervals",
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("unit_seconds_before", sa.BigInteger(), nullable=False),
        sa.Column("unit_seconds", sa.BigInteger(), nullable=False),
        sa.Column("final", sa.Boolean(), nullable=False),
        sa.Column("stopped", sa.Boolean(), nullable=False),
        sa.Column("unused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("ended_at >= started_at", name=op.f("ck_intervals_ends_after_start")),
        sa.CheckConstraint(
            "unit_seconds >= 0 AND unit_seconds_before >= 0", name=op.f("ck_intervals_not_negative")
        ),
        sa.ForeignKeyConstraint(
            ["machine_id"], ["machines.id"], name=op.f("fk_intervals_machine_id_machines")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_intervals_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_intervals_organization_id_projects"),
        ),
        sa.PrimaryKeyConstraint("lease_id", "number", name=op.f("pk_intervals")),
    )
    op.create_table(
        "proofs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=True),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("lease_id", sa.Uuid(), nullable=True),
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("offer_key", sa.Text(), nullable=False),
        sa.Column("gpu_model", sa.Text(), nullable=False),
        sa.Column("occasion", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("driver", sa.Text(), nullable=False),
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("attested", sa.Boolean(), nullable=False),
        sa.Column("code", sa.Text(), nullable=True),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("findings", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("hints", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("rates", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("gpu_uuids", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("devices", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("proven_bytes", postgresql.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("evidence", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "occasion IN ('end', 'idle', 'recheck', 'start')", name=op.f("ck_proofs_occasion_known")
        ),
        sa.CheckConstraint(
            "outcome IN ('emulated', 'failed', 'passed', 'unanswered')", name=op.f("ck_proofs_outcome_known")
        ),
        sa.ForeignKeyConstraint(["machine_id"], ["machines.id"], name=op.f("fk_proofs_machine_id_machines")),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_proofs_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_proofs_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_proofs")),
    )
    op.create_index("ix_proofs_devices", "proofs", ["devices"], unique=False, postgresql_using="gin")
    op.create_index("ix_proofs_gpu_uuids", "proofs", ["gpu_uuids"], unique=False, postgresql_using="gin")
    op.create_index(
        "ix_proofs_lease_id_at",
        "proofs",
        ["lease_id", sa.literal_column("at DESC"), sa.literal_column("id DESC")],
        unique=False,
    )
    op.create_index(
        "ix_proofs_machine_id_at", "proofs", ["machine_id", sa.literal_column("at DESC")], unique=False
    )
    op.create_index(
        "ix_proofs_passed", "proofs", ["at"], unique=False, postgresql_where=sa.text("outcome = 'passed'")
    )
    op.create_table(
        "verification_reports",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=True),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("lease_id", sa.Uuid(), nullable=True),
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("reading", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(
            ["machine_id"], ["machines.id"], name=op.f("fk_verification_reports_machine_id_machines")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_verification_reports_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_verification_reports_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verification_reports")),
    )
    op.create_index("ix_verification_reports_lease_id", "verification_reports", ["lease_id"], unique=False)
    op.create_index(
        "ix_verification_reports_machine_id", "verification_reports", ["machine_id"], unique=False
    )
    op.create_table(
        "peers",
        sa.Column("claim_id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("network_id", sa.Uuid(), nullable=False),
        sa.Column("host_number", sa.Integer(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("joined_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("hub_key", sa.Text(), nullable=True),
        sa.Column("hub_endpoint", sa.Text(), nullable=True),
        sa.Column("linked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("work_token", sa.Uuid(), nullable=True),
        sa.Column("work_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["organization_id", "claim_id"],
            ["claims.organization_id", "claims.id"],
            name=op.f("fk_peers_organization_id_claims"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "network_id"],
            ["networks.organization_id", "networks.id"],
            name=op.f("fk_peers_organization_id_networks"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_peers_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("claim_id", name=op.f("pk_peers")),
        sa.UniqueConstraint(
            "organization_id",
            "network_id",
            "host_number",
            name=op.f("uq_peers_organization_id_network_id_host_number"),
        ),
    )
    op.create_table(
        "envelopes",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("environment_id", sa.Uuid(), nullable=True),
        sa.Column("limits", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("revision", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("over_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("watched_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(project_id IS NOT NULL) = (level IN ('project', 'environment')) AND (environment_id IS NOT NULL) = (level = 'environment')",
            name=op.f("ck_envelopes_level_has_its_scope"),
        ),
        sa.CheckConstraint(
            "level IN ('ceiling', 'environment', 'organization', 'project')",
            name=op.f("ck_envelopes_level_known"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id", "environment_id"],
            ["environments.organization_id", "environments.project_id", "environments.id"],
            name=op.f("fk_envelopes_organization_id_environments"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_envelopes_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_envelopes_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_envelopes")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_envelopes_organization_id_id")),
        sa.UniqueConstraint(
            "organization_id",
            "level",
            "project_id",
            "environment_id",
            name=op.f("uq_envelopes_organization_id_level_project_id_environment_id"),
            postgresql_nulls_not_distinct=True,
        ),
    )
    op.create_index("ix_envelopes_watched_at", "envelopes", ["watched_at"], unique=False)
    op.create_table(
        "capacity_held",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("environment_id", sa.Uuid(), nullable=False),
        sa.Column("gpu_model", sa.Text(), nullable=True),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("nano_per_hour", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("gpus >= 0 AND nano_per_hour >= 0", name=op.f("ck_capacity_held_not_negative")),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id", "environment_id"],
            ["environments.organization_id", "environments.project_id", "environments.id"],
            name=op.f("fk_capacity_held_organization_id_environments"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_capacity_held_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_capacity_held_organization_id_organizations"),
        ),
        sa.UniqueConstraint(
            "organization_id",
            "environment_id",
            "gpu_model",
            name=op.f("uq_capacity_held_organization_id_environment_id_gpu_model"),
            postgresql_nulls_not_distinct=True,
        ),
    )
    op.create_table(
        "month_spends",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("environment_id", sa.Uuid(), nullable=False),
        sa.Column("month", sa.DateTime(timezone=True), nullable=False),
        sa.Column("charged_nano", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id", "environment_id"],
            ["environments.organization_id", "environments.project_id", "environments.id"],
            name=op.f("fk_month_spends_organization_id_environments"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_month_spends_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_month_spends_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("organization_id", "month", "environment_id", name=op.f("pk_month_spends")),
    )
    op.create_table(
        "envelope_warnings",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("envelope_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("warned_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("confirmed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("why", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id", "envelope_id"],
            ["envelopes.organization_id", "envelopes.id"],
            name=op.f("fk_envelope_warnings_organization_id_envelopes"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_envelope_warnings_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint(
            "organization_id", "envelope_id", "lease_id", name=op.f("pk_envelope_warnings")
        ),
    )
    op.create_index("ix_envelope_warnings_lease_id", "envelope_warnings", ["lease_id"], unique=False)
    op.create_table(
        "admission_decisions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("environment_id", sa.Uuid(), nullable=True),
        sa.Column("lease_id", sa.Uuid(), nullable=True),
        sa.Column("quota_request_id", sa.Uuid(), nullable=True),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=True),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("rules", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("actor_kind", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint(
            "(outcome = 'refused') = (code IS NOT NULL)",
            name=op.f("ck_admission_decisions_refusal_has_its_code"),
        ),
        sa.CheckConstraint(
            "action IN ('lease_batch', 'lease_create', 'lease_extend', 'lease_move', 'lease_place', 'lease_priority', 'lease_resize', 'lease_run', 'node_pool_create', 'node_pool_scale', 'node_replace', 'quota_increase')",
            name=op.f("ck_admission_decisions_action_known"),
        ),
        sa.CheckConstraint(
            "actor_kind IN ('customer', 'loop', 'operator')",
            name=op.f("ck_admission_decisions_actor_kind_known"),
        ),
        sa.CheckConstraint(
            "outcome IN ('allowed', 'burst', 'refused')", name=op.f("ck_admission_decisions_outcome_known")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id", "environment_id"],
            ["environments.organization_id", "environments.project_id", "environments.id"],
            name=op.f("fk_admission_decisions_organization_id_environments"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_admission_decisions_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_admission_decisions_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_admission_decisions")),
    )
    op.create_index(
        "ix_admission_decisions_lease_id", "admission_decisions", ["lease_id", "decided_at"], unique=False
    )
    op.create_index(
        "ix_admission_decisions_organization_id_decided_at",
        "admission_decisions",
        ["organization_id", "decided_at", "id"],
        unique=False,
    )
    op.create_table(
        "quota_requests",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("environment_id", sa.Uuid(), nullable=True),
        sa.Column("limits", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decided_by", sa.Text(), nullable=True),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(decided_at IS NULL) = (state = 'pending')", name=op.f("ck_quota_requests_decision_has_its_time")
        ),
        sa.CheckConstraint(
            "(project_id IS NOT NULL) = (level IN ('project', 'environment')) AND (environment_id IS NOT NULL) = (level = 'environment')",
            name=op.f("ck_quota_requests_level_has_its_scope"),
        ),
        sa.CheckConstraint(
            "decided_by IS DISTINCT FROM asked_by OR state = 'withdrawn'",
            name=op.f("ck_quota_requests_decided_by_somebody_else"),
        ),
        sa.CheckConstraint(
            "level IN ('ceiling', 'environment', 'organization', 'project')",
            name=op.f("ck_quota_requests_level_known"),
        ),
        sa.CheckConstraint(
            "state IN ('approved', 'declined', 'expired', 'pending', 'withdrawn')",
            name=op.f("ck_quota_requests_state_known"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id", "environment_id"],
            ["environments.organization_id", "environments.project_id", "environments.id"],
            name=op.f("fk_quota_requests_organization_id_environments"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_quota_requests_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_quota_requests_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_quota_requests")),
    )
    op.create_index("ix_quota_requests_asked_at", "quota_requests", ["asked_at", "id"], unique=False)
    op.create_index(
        "ix_quota_requests_organization_id_asked_at",
        "quota_requests",
        ["organization_id", "asked_at", "id"],
        unique=False,
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("client", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_why", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "ended_why IN ('organization_closed', 'reused', 'revoked', 'signed_out', 'user_ended')",
            name=op.f("ck_sessions_ended_why_known"),
        ),
        sa.CheckConstraint(
            "(ended_at IS NULL) = (ended_why IS NULL)", name=op.f("ck_sessions_end_has_its_reason")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "user_id"],
            ["users.organization_id", "users.id"],
            name=op.f("fk_sessions_organization_id_users"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_sessions_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_sessions_organization_id_id")),
    )
    op.create_index("ix_sessions_expires_at", "sessions", ["expires_at"], unique=False)
    op.create_index("ix_sessions_user_id", "sessions", ["user_id"], unique=False)
    op.create_table(
        "refresh_tokens",
        sa.Column("secret_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("session_id", sa.Uuid(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("replaced_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("replaces_sha256", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["organization_id", "session_id"],
            ["sessions.organization_id", "sessions.id"],
            name=op.f("fk_refresh_tokens_organization_id_sessions"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_refresh_tokens_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("secret_sha256", name=op.f("pk_refresh_tokens")),
    )
    op.create_index("ix_refresh_tokens_replaces_sha256", "refresh_tokens", ["replaces_sha256"], unique=False)
    op.create_index("ix_refresh_tokens_session_id", "refresh_tokens", ["session_id"], unique=False)
    op.create_index(
        "ix_refresh_tokens_replaced_at",
        "refresh_tokens",
        ["replaced_at"],
        unique=False,
        postgresql_where=sa.text("replaced_at IS NOT NULL"),
    )
    op.create_table(
        "device_authorizations",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("device_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("user_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("client", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("interval_seconds", sa.Integer(), nullable=False),
        sa.Column("polled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("approved_organization", sa.Uuid(), nullable=True),
        sa.Column("approved_user", sa.Uuid(), nullable=True),
        sa.CheckConstraint(
            "state IN ('approved', 'denied', 'pending', 'redeemed')",
            name=op.f("ck_device_authorizations_state_known"),
        ),
        sa.CheckConstraint(
            "(approved_organization IS NULL) = (approved_user IS NULL)",
            name=op.f("ck_device_authorizations_approved_for_a_user_of_an_organization"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_device_authorizations")),
        sa.UniqueConstraint("device_sha256", name=op.f("uq_device_authorizations_device_sha256")),
        sa.UniqueConstraint("user_sha256", name=op.f("uq_device_authorizations_user_sha256")),
    )
    op.create_index(
        "ix_device_authorizations_expires_at", "device_authorizations", ["expires_at"], unique=False
    )
    op.create_table(
        "signing_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("public", sa.LargeBinary(), nullable=False),
        sa.Column("master", sa.Text(), nullable=False),
        sa.Column("wrapped", sa.LargeBinary(), nullable=False),
        sa.Column("nonce", sa.LargeBinary(), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("signs_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("signs_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_signing_keys")),
    )
    op.create_table(
        "ssh_certificates",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("serial", sa.BigInteger(), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("service_account_id", sa.Uuid(), nullable=True),
        sa.Column("credential", sa.Text(), nullable=False),
        sa.Column("credential_ends_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("signed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("valid_after", sa.DateTime(timezone=True), nullable=True),
        sa.Column("valid_before", sa.DateTime(timezone=True), nullable=True),
        sa.Column("certificate", sa.Text(), nullable=True),
        sa.Column("refused_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("refused_why", sa.Text(), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_why", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "refused_why IN ('credential_ended', 'key_unusable', 'waited_too_long')",
            name=op.f("ck_ssh_certificates_refused_why_known"),
        ),
        sa.CheckConstraint(
            "revoked_why IN ('credential_ended', 'lease_ended', 'organization_closed', 'organization_suspended', 'requested', 'role_ended', 'ssh_key_deleted', 'subject_ended')",
            name=op.f("ck_ssh_certificates_revoked_why_known"),
        ),
        sa.CheckConstraint(
            "(refused_at IS NULL) = (refused_why IS NULL)",
            name=op.f("ck_ssh_certificates_refused_has_its_reason"),
        ),
        sa.CheckConstraint(
            "(revoked_at IS NULL) = (revoked_why IS NULL)",
            name=op.f("ck_ssh_certificates_revoked_has_its_reason"),
        ),
        sa.CheckConstraint(
            "num_nonnulls(user_id, service_account_id) = 1", name=op.f("ck_ssh_certificates_one_subject")
        ),
        sa.CheckConstraint(
            "num_nulls(signed_at, valid_after, valid_before, certificate) IN (0, 4)",
            name=op.f("ck_ssh_certificates_signed_as_a_whole"),
        ),
        sa.CheckConstraint(
            "refused_at IS NULL OR num_nulls(signed_at, revoked_at) = 2",
            name=op.f("ck_ssh_certificates_refused_alone"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_ssh_certificates_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_ssh_certificates_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "service_account_id"],
            ["service_accounts.organization_id", "service_accounts.id"],
            name=op.f("fk_ssh_certificates_organization_id_service_accounts"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "user_id"],
            ["users.organization_id", "users.id"],
            name=op.f("fk_ssh_certificates_organization_id_users"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_ssh_certificates_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ssh_certificates")),
        sa.UniqueConstraint("serial", name=op.f("uq_ssh_certificates_serial")),
    )
    op.create_index(
        "ix_ssh_certificates_lease_id", "ssh_certificates", ["lease_id", "requested_at", "id"], unique=False
    )
    op.create_index(
        "ix_ssh_certificates_live",
        "ssh_certificates",
        ["organization_id", "valid_before"],
        unique=False,
        postgresql_where=sa.text("refused_at IS NULL AND revoked_at IS NULL"),
    )
    op.create_index("ix_ssh_certificates_requested_at", "ssh_certificates", ["requested_at"], unique=False)
    op.create_index(
        "ix_ssh_certificates_revoked",
        "ssh_certificates",
        ["lease_id"],
        unique=False,
        postgresql_where=sa.text("revoked_at IS NOT NULL AND signed_at IS NOT NULL"),
    )
    op.create_index(
        "ix_ssh_certificates_wanted",
        "ssh_certificates",
        ["requested_at"],
        unique=False,
        postgresql_where=sa.text("signed_at IS NULL AND refused_at IS NULL AND revoked_at IS NULL"),
    )
    op.create_table(
        "agents",
        sa.Column("claim_id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.Column("next_digest", sa.Text(), nullable=True),
        sa.Column("agent_sha256", sa.Text(), nullable=True),
        sa.Column("installed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("sequence", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("reported_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("heartbeat", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("received", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "results", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "agent_sha256 IS NULL OR digest IS NOT NULL", name=op.f("ck_agents_installed_with_a_credential")
        ),
        sa.ForeignKeyConstraint(["machine_id"], ["machines.id"], name=op.f("fk_agents_machine_id_machines")),
        sa.ForeignKeyConstraint(
            ["organization_id", "claim_id"],
            ["claims.organization_id", "claims.id"],
            name=op.f("fk_agents_organization_id_claims"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_agents_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_agents_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("claim_id", name=op.f("pk_agents")),
        sa.UniqueConstraint("digest", name=op.f("uq_agents_digest")),
        sa.UniqueConstraint("next_digest", name=op.f("uq_agents_next_digest")),
    )
    op.create_index("ix_agents_machine_id", "agents", ["machine_id"])
    op.create_index("ix_agents_lease_id", "agents", ["lease_id"])
    op.create_index("ix_agents_ended_at", "agents", ["ended_at"])
    op.create_table(
        "samples",
        sa.Column("slot", sa.SmallInteger(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("claim_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("skew_ms", sa.Integer(), nullable=False),
        sa.Column("notable", sa.Boolean(), nullable=False),
        sa.Column("document", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.CheckConstraint(
            "slot = mod(floor(extract(epoch FROM received_at) / 3600)::bigint, 6)",
            name=op.f("ck_samples_in_its_slot"),
        ),
        postgresql_partition_by="LIST (slot)",
    )
    op.create_index("ix_samples_claim_id", "samples", ["claim_id", sa.text("at DESC")], unique=False)
    op.create_index(
        "ix_samples_received_at", "samples", ["received_at", "claim_id", "sequence"], unique=False
    )
    op.create_table(
        "sample_archives",
        sa.Column("hour", sa.DateTime(timezone=True), nullable=False),
        sa.Column("received", sa.BigInteger(), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("files", sa.Integer(), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("manifest_sha256", sa.LargeBinary(), nullable=True),
        sa.Column("written_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lost_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "num_nulls(received, rows, files, bytes, manifest_sha256, written_at) IN (0, 6)",
            name=op.f("ck_sample_archives_written_whole"),
        ),
        sa.CheckConstraint(
            "written_at IS NULL OR lost_at IS NULL", name=op.f("ck_sample_archives_written_or_lost")
        ),
        sa.CheckConstraint(
            "deleted_at IS NULL OR written_at IS NOT NULL",
            name=op.f("ck_sample_archives_deleted_after_written"),
        ),
        sa.PrimaryKeyConstraint("hour", name=op.f("pk_sample_archives")),
    )
    op.create_index(
        "ix_sample_archives_unwritten",
        "sample_archives",
        ["hour"],
        unique=False,
        postgresql_where=sa.text("written_at IS NULL AND lost_at IS NULL"),
    )
    op.create_table(
        "sample_exports",
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("claim_id", sa.Uuid(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("target", name=op.f("pk_sample_exports")),
    )
    op.create_index(
        "ix_samples_notable",
        "samples",
        ["received_at", "claim_id", "sequence"],
        unique=False,
        postgresql_where=sa.text("notable"),
    )
    op.create_table(
        "powers",
        sa.Column("claim_id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("wanted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("accepted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("boot_id", sa.Text(), nullable=True),
        sa.Column("listed", sa.Text(), nullable=True),
        sa.Column("listed_from", sa.DateTime(timezone=True), nullable=True),
        sa.Column("listed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stopped", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.CheckConstraint(
            "state IN ('off', 'on', 'rebooting', 'starting', 'stopping')",
            name=op.f("ck_powers_state_known"),
        ),
        sa.CheckConstraint(
            "listed IN ('ending', 'failed', 'gone', 'off_or_failed', 'provisioning', 'running', 'sold_out', 'stopped', 'stopped_by_provider', 'unknown')",
            name=op.f("ck_powers_listed_known"),
        ),
        sa.CheckConstraint("asked_at IS NOT NULL OR NOT accepted", name=op.f("ck_powers_accepted_was_asked")),
        sa.CheckConstraint(
            "(listed IS NULL) = (listed_at IS NULL) AND (listed IS NULL) = (listed_from IS NULL)",
            name=op.f("ck_powers_listed_has_its_times"),
        ),
        sa.CheckConstraint(
            "stopped AND state IN ('off', 'starting') OR NOT stopped AND state <> 'off'",
            name=op.f("ck_powers_stopped_while_off"),
        ),
        sa.CheckConstraint(
            "(settled_at IS NULL) = (state IN ('rebooting', 'starting', 'stopping'))",
            name=op.f("ck_powers_open_while_it_changes"),
        ),
        sa.ForeignKeyConstraint(["machine_id"], ["machines.id"], name=op.f("fk_powers_machine_id_machines")),
        sa.ForeignKeyConstraint(
            ["organization_id", "claim_id"],
            ["claims.organization_id", "claims.id"],
            name=op.f("fk_powers_organization_id_claims"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_powers_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_powers_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("organization_id", "claim_id", name=op.f("pk_powers")),
    )
    op.create_index(
        "ix_powers_due",
        "powers",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('rebooting', 'starting', 'stopping')"),
    )
    op.create_index("ix_powers_machine_id", "powers", ["machine_id"], unique=False)
    op.create_index("ix_powers_lease_id", "powers", ["lease_id"], unique=False)
    op.create_table(
        "server_hosts",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("ssh_port", sa.Integer(), nullable=False),
        sa.Column("host_key", sa.Text(), nullable=False),
        sa.Column("outside", sa.Text(), nullable=False),
        sa.Column("cluster_id", sa.Uuid(), nullable=True),
        sa.Column("ssh_trust", sa.Text(), nullable=True),
        sa.Column("ssh_trust_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("fence", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("ssh_port BETWEEN 1 AND 65535", name=op.f("ck_server_hosts_ssh_port_is_one")),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name=op.f("fk_server_hosts_cluster_id_clusters")
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_server_hosts")),
        sa.UniqueConstraint("cluster_id", name=op.f("uq_server_hosts_cluster_id")),
    )
    op.create_table(
        "nodes",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("cluster_id", sa.Uuid(), nullable=False),
        sa.Column("node_pool_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("claim_id", sa.Uuid(), nullable=False),
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("work_token", sa.Uuid(), nullable=True),
        sa.Column("work_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=True),
        sa.Column("next_key", sa.Text(), nullable=True),
        sa.Column("endpoint", sa.Text(), nullable=True),
        sa.Column("old_key", sa.Text(), nullable=True),
        sa.Column("key_holders", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("key_waits_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("key_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("key_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("key_made_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("turn_token", sa.Uuid(), nullable=True),
        sa.Column(
            "tunnels",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("tunnels_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("handshake_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("pod_block", sa.Integer(), nullable=True),
        sa.Column("applied_version", sa.Text(), nullable=True),
        sa.Column("peers_read_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("peers_tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("peers_tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("holders", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("uid", sa.Text(), nullable=True),
        sa.Column(
            "reported",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("leave_reason", sa.Text(), nullable=True),
        sa.Column("leave_why", sa.Text(), nullable=True),
        sa.Column("failing_why", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ready_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("unready_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("leaving_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("gone_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(state = 'gone') = (gone_at IS NOT NULL)", name=op.f("ck_nodes_gone_has_its_time")
        ),
        sa.CheckConstraint(
            "leave_reason IN ('failed', 'hostile', 'lease_ended', 'lost', 'taken_away')",
            name=op.f("ck_nodes_leave_reason_known"),
        ),
        sa.CheckConstraint(
            "state <> 'ready' OR ready_at IS NOT NULL", name=op.f("ck_nodes_ready_has_its_time")
        ),
        sa.CheckConstraint(
            "state IN ('gone', 'joining', 'leaving', 'ready')", name=op.f("ck_nodes_state_known")
        ),
        sa.CheckConstraint(
            "(leaving_at IS NULL) = (leave_reason IS NULL)", name=op.f("ck_nodes_leaving_has_its_reason")
        ),
        sa.CheckConstraint(
            "(removed_at IS NULL) = (holders IS NULL)", name=op.f("ck_nodes_removed_has_its_holders")
        ),
        sa.CheckConstraint("next_key IS NULL OR old_key IS NULL", name=op.f("ck_nodes_one_change_of_key")),
        sa.CheckConstraint(
            "(next_key IS NULL AND old_key IS NULL) = (key_holders IS NULL)",
            name=op.f("ck_nodes_change_of_key_has_its_holders"),
        ),
        sa.CheckConstraint(
            "(key_holders IS NULL) = (key_waits_since IS NULL)",
            name=op.f("ck_nodes_change_of_key_has_its_time"),
        ),
        sa.CheckConstraint("number > 0", name=op.f("ck_nodes_number_positive")),
        sa.CheckConstraint("pod_block >= 0", name=op.f("ck_nodes_pod_block_not_negative")),
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], name=op.f("fk_nodes_cluster_id_clusters")),
        sa.ForeignKeyConstraint(["machine_id"], ["machines.id"], name=op.f("fk_nodes_machine_id_machines")),
        sa.ForeignKeyConstraint(
            ["organization_id", "claim_id"],
            ["claims.organization_id", "claims.id"],
            name=op.f("fk_nodes_organization_id_claims"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_nodes_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "node_pool_id"],
            ["node_pools.organization_id", "node_pools.id"],
            name=op.f("fk_nodes_organization_id_node_pools"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_nodes_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_nodes_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_nodes_organization_id_id")),
    )
    op.create_index("ix_nodes_claim_id", "nodes", ["claim_id"], unique=False)
    op.create_index(
        "ix_nodes_due",
        "nodes",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('joining', 'leaving', 'ready')"),
    )
    op.create_index(
        "ix_nodes_key_due",
        "nodes",
        ["key_due_at"],
        unique=False,
        postgresql_where=sa.text("state = 'ready'"),
    )
    op.create_index("ix_nodes_lease_id", "nodes", ["lease_id"], unique=False)
    op.create_index("ix_nodes_node_pool_id", "nodes", ["node_pool_id"], unique=False)
    op.create_index(
        "ix_nodes_tunnels_due",
        "nodes",
        ["tunnels_due_at"],
        unique=False,
        postgresql_where=sa.text("state = 'ready'"),
    )
    op.create_index(
        "uq_nodes_machine_id",
        "nodes",
        ["machine_id"],
        unique=True,
        postgresql_where=sa.text("state IN ('joining', 'leaving', 'ready')"),
    )
    op.create_index(
        "uq_nodes_number",
        "nodes",
        ["cluster_id", "number"],
        unique=True,
        postgresql_where=sa.text("state IN ('joining', 'leaving', 'ready')"),
    )
    op.create_index(
        "uq_nodes_pod_block",
        "nodes",
        ["cluster_id", "pod_block"],
        unique=True,
        postgresql_where=sa.text("state IN ('joining', 'leaving', 'ready')"),
    )
    op.create_table(
        "node_steps",
        sa.Column("node_id", sa.Uuid(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("evidence", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id", "node_id"],
            ["nodes.organization_id", "nodes.id"],
            name=op.f("fk_node_steps_organization_id_nodes"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_node_steps_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("node_id", "step", name=op.f("pk_node_steps")),
    )
    op.create_table(
        "scaled_pools",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("cluster_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("object_uid", sa.Text(), nullable=False),
        sa.Column("node_pool_id", sa.Uuid(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=True),
        sa.Column("nodes_min", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("nodes_max", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("room", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column(
            "empty_since",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("looked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "vain", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
        sa.Column("missing_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("scaled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("scaled_why", sa.Text(), nullable=True),
        sa.Column("refused_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("refused_code", sa.Text(), nullable=True),
        sa.Column("refused_why", sa.Text(), nullable=True),
        sa.Column("spent_nano", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("spent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "conditions",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'"),
            nullable=False,
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "(refused_at IS NULL) = (refused_code IS NULL) AND (refused_at IS NULL) = (refused_why IS NULL)",
            name=op.f("ck_scaled_pools_refused_has_its_reason"),
        ),
        sa.CheckConstraint(
            "(scaled_at IS NULL) = (scaled_why IS NULL)", name=op.f("ck_scaled_pools_scaled_has_its_reason")
        ),
        sa.CheckConstraint(
            "0 <= nodes_min AND nodes_min <= nodes_max", name=op.f("ck_scaled_pools_bounds_in_order")
        ),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name=op.f("fk_scaled_pools_cluster_id_clusters")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "node_pool_id"],
            ["node_pools.organization_id", "node_pools.id"],
            name=op.f("fk_scaled_pools_organization_id_node_pools"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_scaled_pools_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_scaled_pools_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scaled_pools")),
        sa.UniqueConstraint(
            "cluster_id", "project_id", "name", name=op.f("uq_scaled_pools_cluster_id_project_id_name")
        ),
        sa.UniqueConstraint("node_pool_id", name=op.f("uq_scaled_pools_node_pool_id")),
    )

    op.create_table(
        "scaling_turns",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("work_token", sa.Uuid(), nullable=True),
        sa.Column("work_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("watch_token", sa.Uuid(), nullable=True),
        sa.Column("watch_until", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["id"], ["clusters.id"], name=op.f("fk_scaling_turns_id_clusters")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scaling_turns")),
    )
    op.create_index("ix_scaling_turns_due", "scaling_turns", ["due_at"], unique=False)
    op.create_table(
        "cluster_tenants",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("cluster_id", sa.Uuid(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("work_token", sa.Uuid(), nullable=True),
        sa.Column("work_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ready_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("unneeded_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("node_digest", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name=op.f("fk_cluster_tenants_cluster_id_clusters")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_cluster_tenants_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_cluster_tenants_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cluster_tenants")),
        sa.UniqueConstraint(
            "cluster_id", "project_id", name=op.f("uq_cluster_tenants_cluster_id_project_id")
        ),
    )
    op.create_index("ix_cluster_tenants_due", "cluster_tenants", ["due_at"], unique=False)
    op.create_table(
        "kubeconfigs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("cluster_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("lasts_seconds", sa.Integer(), nullable=False),
        sa.Column("recipient", sa.LargeBinary(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=True),
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("service_account_id", sa.Uuid(), nullable=True),
        sa.Column("credential", sa.Text(), nullable=False),
        sa.Column("credential_ends_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("rotates", sa.Uuid(), nullable=True),
        sa.Column("overlap_seconds", sa.Integer(), nullable=True),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("work_token", sa.Uuid(), nullable=True),
        sa.Column("work_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("issued_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("refused_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("refused_why", sa.Text(), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_why", sa.Text(), nullable=True),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "refused_why IN ('cluster_deleted', 'credential_ended', 'key_unusable', 'waited_too_long')",
            name=op.f("ck_kubeconfigs_refused_why_known"),
        ),
        sa.CheckConstraint(
            "revoked_why IN ('credential_ended', 'organization_closed', 'organization_suspended', 'requested', 'role_ended', 'subject_ended')",
            name=op.f("ck_kubeconfigs_revoked_why_known"),
        ),
        sa.CheckConstraint("role IN ('edit', 'view')", name=op.f("ck_kubeconfigs_role_known")),
        sa.CheckConstraint(
            "(issued_at IS NULL) = (expires_at IS NULL)", name=op.f("ck_kubeconfigs_issued_has_its_end")
        ),
        sa.CheckConstraint(
            "(refused_at IS NULL) = (refused_why IS NULL)", name=op.f("ck_kubeconfigs_refused_has_its_reason")
        ),
        sa.CheckConstraint(
            "(revoked_at IS NULL) = (revoked_why IS NULL)", name=op.f("ck_kubeconfigs_revoked_has_its_reason")
        ),
        sa.CheckConstraint(
            "(rotates IS NULL) = (overlap_seconds IS NULL)",
            name=op.f("ck_kubeconfigs_rotation_has_its_overlap"),
        ),
        sa.CheckConstraint("lasts_seconds > 0", name=op.f("ck_kubeconfigs_lasts_positive")),
        sa.CheckConstraint(
            "num_nonnulls(user_id, service_account_id) = 1", name=op.f("ck_kubeconfigs_one_subject")
        ),
        sa.CheckConstraint("octet_length(recipient) = 32", name=op.f("ck_kubeconfigs_recipient_is_a_key")),
        sa.CheckConstraint(
            "refused_at IS NULL OR num_nulls(issued_at, revoked_at) = 2",
            name=op.f("ck_kubeconfigs_refused_alone"),
        ),
        sa.CheckConstraint(
            "removed_at IS NULL OR sealed IS NULL", name=op.f("ck_kubeconfigs_removed_is_erased")
        ),
        sa.CheckConstraint(
            "sealed IS NULL OR issued_at IS NOT NULL", name=op.f("ck_kubeconfigs_sealed_is_issued")
        ),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name=op.f("fk_kubeconfigs_cluster_id_clusters")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_kubeconfigs_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "service_account_id"],
            ["service_accounts.organization_id", "service_accounts.id"],
            name=op.f("fk_kubeconfigs_organization_id_service_accounts"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "user_id"],
            ["users.organization_id", "users.id"],
            name=op.f("fk_kubeconfigs_organization_id_users"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_kubeconfigs_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_kubeconfigs")),
    )
    op.create_index(
        "ix_kubeconfigs_cluster_id",
        "kubeconfigs",
        ["cluster_id", "project_id"],
        unique=False,
        postgresql_where=sa.text("removed_at IS NULL"),
    )
    op.create_index(
        "ix_kubeconfigs_due",
        "kubeconfigs",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("removed_at IS NULL"),
    )
    op.create_index(
        "ix_kubeconfigs_organization_id",
        "kubeconfigs",
        ["organization_id", "requested_at", "id"],
        unique=False,
    )
    op.create_index("ix_kubeconfigs_requested_at", "kubeconfigs", ["requested_at"], unique=False)
    op.create_table(
        "consoles",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("claim_id", sa.Uuid(), nullable=True),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("work_token", sa.Uuid(), nullable=True),
        sa.Column("work_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ticket", sa.Text(), nullable=True),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("provider", sa.Text(), nullable=True),
        sa.Column("machine", sa.Text(), nullable=True),
        sa.Column("printed", sa.Text(), nullable=True),
        sa.Column("is_cut", sa.Boolean(), nullable=True),
        sa.CheckConstraint(
            "source IN ('machine', 'provider', 'steps')", name=op.f("ck_consoles_source_known")
        ),
        sa.CheckConstraint(
            "provider IN ('empty', 'failed', 'not_asked', 'not_offered', 'read', 'too_slow', 'unknown_machine')",
            name=op.f("ck_consoles_provider_known"),
        ),
        sa.CheckConstraint(
            "machine IN ('failed', 'no_address', 'not_asked', 'read', 'unreachable')",
            name=op.f("ck_consoles_machine_known"),
        ),
        sa.CheckConstraint(
            "num_nulls(answered_at, source, provider, machine, printed, is_cut) IN (0, 6)",
            name=op.f("ck_consoles_answered_as_a_whole"),
        ),
        sa.CheckConstraint("octet_length(printed) <= 65536", name=op.f("ck_consoles_printed_bounded")),
        sa.ForeignKeyConstraint(
            ["organization_id", "claim_id"],
            ["claims.organization_id", "claims.id"],
            name=op.f("fk_consoles_organization_id_claims"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_consoles_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_consoles_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_consoles_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_consoles")),
        prefixes=["UNLOGGED"],
    )
    op.create_index(
        "ix_consoles_due",
        "consoles",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("answered_at IS NULL"),
    )
    op.create_index("ix_consoles_lease_id", "consoles", ["lease_id", "requested_at"], unique=False)
    op.create_index("ix_consoles_requested_at", "consoles", ["requested_at"], unique=False)
    op.create_table(
        "charge_names",
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("lease", sa.Text(), nullable=False),
        sa.Column("labels", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("node_pool", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_charge_names_organization_id_leases"),
        ),
        sa.PrimaryKeyConstraint("organization_id", "lease_id", "number", name=op.f("pk_charge_names")),
    )
    op.create_table(
        "credit_terms",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("limit_nano", sa.BigInteger(), nullable=False),
        sa.Column("payment_days", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.CheckConstraint("limit_nano >= 0", name=op.f("ck_credit_terms_not_negative")),
        sa.CheckConstraint("payment_days BETWEEN 0 AND 120", name=op.f("ck_credit_terms_days_bounded")),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_credit_terms_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("organization_id", name=op.f("pk_credit_terms")),
    )
    op.create_table(
        "billing_details",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("legal_name", sa.Text(), nullable=False),
        sa.Column("address", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("country", sa.Text(), nullable=False),
        sa.Column("tax_id", sa.Text(), nullable=True),
        sa.Column("tax_rate", sa.Integer(), nullable=False),
        sa.Column("reverse_charge", sa.Boolean(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "NOT reverse_charge OR (tax_rate = 0 AND tax_id IS NOT NULL)",
            name=op.f("ck_billing_details_reverse_charge_untaxed"),
        ),
        sa.CheckConstraint("tax_rate BETWEEN 0 AND 5000", name=op.f("ck_billing_details_tax_rate_bounded")),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_billing_details_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("organization_id", name=op.f("pk_billing_details")),
    )
    op.create_table(
        "balance_alerts",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("below_nano", sa.BigInteger(), nullable=True),
        sa.Column("month_budget_nano", sa.BigInteger(), nullable=True),
        sa.Column("budget_percents", postgresql.ARRAY(sa.SmallInteger()), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "below_nano >= 0 AND month_budget_nano > 0", name=op.f("ck_balance_alerts_not_negative")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_balance_alerts_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("organization_id", name=op.f("pk_balance_alerts")),
    )
    op.create_table(
        "balance_states",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("budget_month", sa.DateTime(timezone=True), nullable=True),
        sa.Column("budget_percent", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint(
            "state IN ('exhausted', 'funded', 'low', 'stopped')", name=op.f("ck_balance_states_state_known")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_balance_states_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("organization_id", name=op.f("pk_balance_states")),
    )
    op.create_table(
        "balance_events",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("state_before", sa.Text(), nullable=False),
        sa.Column("state_after", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("balance_nano", sa.BigInteger(), nullable=False),
        sa.Column("held_nano", sa.BigInteger(), nullable=False),
        sa.Column("limit_nano", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "event IN ('budget_reached', 'data_deleted', 'fell_low', 'machines_stopped', 'ran_out', 'recovered', 'relieved')",
            name=op.f("ck_balance_events_event_known"),
        ),
        sa.CheckConstraint(
            "state_after IN ('exhausted', 'funded', 'low', 'stopped')",
            name=op.f("ck_balance_events_state_after_known"),
        ),
        sa.CheckConstraint(
            "state_before IN ('exhausted', 'funded', 'low', 'stopped')",
            name=op.f("ck_balance_events_state_before_known"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_balance_events_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_balance_events")),
    )
    op.create_index(
        "ix_balance_events_organization_id_number",
        "balance_events",
        ["organization_id", "number"],
        unique=False,
    )
    op.create_table(
        "document_numbers",
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("series", sa.Text(), nullable=False),
        sa.Column("year", sa.Integer(), nullable=False),
        sa.Column("last", sa.Integer(), nullable=False),
        sa.CheckConstraint(
            "series IN ('credit_note', 'invoice')", name=op.f("ck_document_numbers_series_known")
        ),
        sa.CheckConstraint("last >= 0", name=op.f("ck_document_numbers_not_negative")),
        sa.ForeignKeyConstraint(
            ["issuer"], ["issuers.code"], name=op.f("fk_document_numbers_issuer_issuers")
        ),
        sa.PrimaryKeyConstraint("issuer", "series", "year", name=op.f("pk_document_numbers")),
    )
    op.create_table(
        "invoices",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("period", sa.DateTime(timezone=True), nullable=False),
        sa.Column("number", sa.Text(), nullable=False),
        sa.Column("seller", sa.Text(), nullable=False),
        sa.Column("seller_address", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("seller_tax_id", sa.Text(), nullable=True),
        sa.Column("legal_name", sa.Text(), nullable=False),
        sa.Column("address", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("country", sa.Text(), nullable=False),
        sa.Column("tax_id", sa.Text(), nullable=True),
        sa.Column("tax_rate", sa.Integer(), nullable=False),
        sa.Column("reverse_charge", sa.Boolean(), nullable=False),
        sa.Column("usage_nano", sa.BigInteger(), nullable=False),
        sa.Column("credits_nano", sa.BigInteger(), nullable=False),
        sa.Column("adjustment_nano", sa.BigInteger(), nullable=False),
        sa.Column("subtotal_cents", sa.BigInteger(), nullable=False),
        sa.Column("tax_cents", sa.BigInteger(), nullable=False),
        sa.Column("paid_cents", sa.BigInteger(), nullable=False),
        sa.Column("payment_days", sa.Integer(), nullable=False),
        sa.Column("issued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("issued_by", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "NOT reverse_charge OR (tax_rate = 0 AND tax_id IS NOT NULL)",
            name=op.f("ck_invoices_reverse_charge_untaxed"),
        ),
        sa.CheckConstraint("adjustment_nano BETWEEN -9999999 AND 0", name=op.f("ck_invoices_rounded_down")),
        sa.CheckConstraint(
            "subtotal_cents * 10000000 = usage_nano - credits_nano + adjustment_nano",
            name=op.f("ck_invoices_adds_up"),
        ),
        sa.CheckConstraint("tax_rate BETWEEN 0 AND 5000", name=op.f("ck_invoices_tax_rate_bounded")),
        sa.CheckConstraint(
            "usage_nano >= 0 AND credits_nano <= usage_nano AND tax_cents >= 0 AND paid_cents BETWEEN 0 AND subtotal_cents + tax_cents",
            name=op.f("ck_invoices_bounded"),
        ),
        sa.ForeignKeyConstraint(["issuer"], ["issuers.code"], name=op.f("fk_invoices_issuer_issuers")),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_invoices_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invoices")),
        sa.UniqueConstraint("issuer", "number", name=op.f("uq_invoices_issuer_number")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_invoices_organization_id_id")),
        sa.UniqueConstraint("organization_id", "period", name=op.f("uq_invoices_organization_id_period")),
    )
    op.create_index("ix_invoices_issued_at", "invoices", ["issued_at", "id"], unique=False)
    op.create_index(
        "ix_invoices_organization_id_issued_at",
        "invoices",
        ["organization_id", "issued_at", "id"],
        unique=False,
    )
    op.create_table(
        "invoice_lines",
        sa.Column("invoice_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("project", sa.Text(), nullable=True),
        sa.Column("sku", sa.Text(), nullable=True),
        sa.Column("purchase", sa.Text(), nullable=True),
        sa.Column("sla", sa.Text(), nullable=True),
        sa.Column("stopped", sa.Boolean(), nullable=True),
        sa.Column("unused", sa.Boolean(), nullable=True),
        sa.Column("unit", sa.Text(), nullable=True),
        sa.Column("nano_per_unit_hour", sa.BigInteger(), nullable=True),
        sa.Column("used_in", sa.DateTime(timezone=True), nullable=True),
        sa.Column("unit_seconds", sa.BigInteger(), nullable=True),
        sa.Column("credit_id", sa.Uuid(), nullable=True),
        sa.Column("lease_id", sa.Uuid(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("amount_nano", sa.BigInteger(), nullable=False),
        sa.Column("cents", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "kind = 'credit' OR num_nonnulls(credit_id, lease_id, reason) = 0",
            name=op.f("ck_invoice_lines_credit_alone"),
        ),
        sa.CheckConstraint(
            "kind <> 'usage' OR num_nulls(project_id, project, sku, purchase, sla, stopped, unused, unit, nano_per_unit_hour, used_in, unit_seconds) = 0",
            name=op.f("ck_invoice_lines_usage_whole"),
        ),
        sa.CheckConstraint(
            "kind IN ('adjustment', 'credit', 'usage')", name=op.f("ck_invoice_lines_kind_known")
        ),
        sa.CheckConstraint(
            "purchase IN ('committed', 'interruptible', 'on_demand', 'spot')",
            name=op.f("ck_invoice_lines_purchase_known"),
        ),
        sa.CheckConstraint("sla IN ('bronze', 'gold', 'silver')", name=op.f("ck_invoice_lines_sla_known")),
        sa.CheckConstraint("unit IN ('gpu', 'machine')", name=op.f("ck_invoice_lines_unit_known")),
        sa.ForeignKeyConstraint(
            ["organization_id", "invoice_id"],
            ["invoices.organization_id", "invoices.id"],
            name=op.f("fk_invoice_lines_organization_id_invoices"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_invoice_lines_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_invoice_lines_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_invoice_lines_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("invoice_id", "number", "organization_id", name=op.f("pk_invoice_lines")),
    )
    op.create_index(
        "ix_invoice_lines_credit_id",
        "invoice_lines",
        ["organization_id", "credit_id"],
        unique=False,
        postgresql_where=sa.text("credit_id IS NOT NULL"),
    )
    op.create_table(
        "credit_notes",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("invoice_id", sa.Uuid(), nullable=False),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("number", sa.Text(), nullable=False),
        sa.Column("credited_cents", sa.BigInteger(), nullable=False),
        sa.Column("net_cents", sa.BigInteger(), nullable=False),
        sa.Column("tax_cents", sa.BigInteger(), nullable=False),
        sa.Column("credits_nano", sa.BigInteger(), nullable=False),
        sa.Column("to_wallet_nano", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("issued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("issued_by", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "abs((credited_cents - net_cents) * 10000000 - credits_nano) < 10000000",
            name=op.f("ck_credit_notes_adds_up"),
        ),
        sa.CheckConstraint(
            "credited_cents > 0 AND net_cents BETWEEN 0 AND credited_cents AND tax_cents BETWEEN 0 AND net_cents AND credits_nano >= 0 AND to_wallet_nano BETWEEN 0 AND (net_cents + tax_cents) * 10000000 + credits_nano",
            name=op.f("ck_credit_notes_bounded"),
        ),
        sa.ForeignKeyConstraint(["issuer"], ["issuers.code"], name=op.f("fk_credit_notes_issuer_issuers")),
        sa.ForeignKeyConstraint(
            ["organization_id", "invoice_id"],
            ["invoices.organization_id", "invoices.id"],
            name=op.f("fk_credit_notes_organization_id_invoices"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_credit_notes_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_credit_notes")),
        sa.UniqueConstraint("issuer", "number", name=op.f("uq_credit_notes_issuer_number")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_credit_notes_organization_id_id")),
    )
    op.create_index("ix_credit_notes_invoice_id", "credit_notes", ["invoice_id"], unique=False)
    op.create_index("ix_credit_notes_issued_at", "credit_notes", ["issued_at", "id"], unique=False)
    op.create_index(
        "ix_credit_notes_organization_id_issued_at",
        "credit_notes",
        ["organization_id", "issued_at", "id"],
        unique=False,
    )
    op.create_table(
        "credit_note_lines",
        sa.Column("credit_note_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("invoice_id", sa.Uuid(), nullable=False),
        sa.Column("invoice_line", sa.Integer(), nullable=False),
        sa.Column("cents", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("cents > 0", name=op.f("ck_credit_note_lines_positive")),
        sa.ForeignKeyConstraint(
            ["invoice_id", "invoice_line", "organization_id"],
            ["invoice_lines.invoice_id", "invoice_lines.number", "invoice_lines.organization_id"],
            name=op.f("fk_credit_note_lines_invoice_id_invoice_lines"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "credit_note_id"],
            ["credit_notes.organization_id", "credit_notes.id"],
            name=op.f("fk_credit_note_lines_organization_id_credit_notes"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_credit_note_lines_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint(
            "credit_note_id", "number", "organization_id", name=op.f("pk_credit_note_lines")
        ),
        sa.UniqueConstraint(
            "organization_id", "credit_note_id", "invoice_line", name="uq_credit_note_lines_invoice_line"
        ),
    )
    op.create_index(
        "ix_credit_note_lines_invoice_id", "credit_note_lines", ["invoice_id", "invoice_line"], unique=False
    )
    op.create_table(
        "export_runs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("covers_all", sa.Boolean(), nullable=False),
        sa.Column("period_start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("final", sa.Boolean(), nullable=False),
        sa.Column("seller", sa.Text(), nullable=False),
        sa.Column("cut_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("previous_id", sa.Uuid(), nullable=True),
        sa.Column("previous_sha256", sa.LargeBinary(), nullable=True),
        sa.CheckConstraint("cut_at <= created_at", name=op.f("ck_export_runs_cut_before_it_was_made")),
        sa.ForeignKeyConstraint(
            ["organization_id", "previous_id"],
            ["export_runs.organization_id", "export_runs.id"],
            name=op.f("fk_export_runs_organization_id_export_runs"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_export_runs_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_export_runs")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_export_runs_organization_id_id")),
    )
    op.create_index(
        "ix_export_runs_organization_id_created_at",
        "export_runs",
        ["organization_id", "created_at", "id"],
        unique=False,
    )
    op.create_table(
        "export_files",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("sums", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("price_books", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "name IN ('focus-1.2.csv', 'focus-1.2.parquet')", name=op.f("ck_export_files_name_known")
        ),
        sa.CheckConstraint("size > 0 AND rows >= 0", name=op.f("ck_export_files_not_negative")),
        sa.ForeignKeyConstraint(
            ["organization_id", "run_id"],
            ["export_runs.organization_id", "export_runs.id"],
            name=op.f("fk_export_files_organization_id_export_runs"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_export_files_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("run_id", "name", "organization_id", name=op.f("pk_export_files")),
    )
    op.create_table(
        "reconciliations",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("period", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed", sa.Boolean(), nullable=False),
        sa.Column("export_id", sa.Uuid(), nullable=True),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("all_customers", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reconciliations")),
    )
    op.create_index("ix_reconciliations_asked_at", "reconciliations", ["asked_at", "id"], unique=False)
    op.create_table(
        "supplier_uploads",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("month", sa.DateTime(timezone=True), nullable=False),
        sa.Column("begun_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("begun_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_supplier_uploads")),
    )
    op.create_index("ix_supplier_uploads_begun_at", "supplier_uploads", ["begun_at"], unique=False)

    op.create_table(
        "supplier_upload_parts",
        sa.Column("upload_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("first_line", sa.Integer(), nullable=False),
        sa.Column("line_count", sa.Integer(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("amount_nano", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("lines", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.CheckConstraint(
            "number > 0 AND first_line > 0 AND line_count > 0 AND size > 0",
            name=op.f("ck_supplier_upload_parts_not_empty"),
        ),
        sa.ForeignKeyConstraint(
            ["upload_id"],
            ["supplier_uploads.id"],
            name=op.f("fk_supplier_upload_parts_upload_id_supplier_uploads"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("upload_id", "number", name=op.f("pk_supplier_upload_parts")),
    )

    op.create_table(
        "supplier_invoices",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("month", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("line_count", sa.Integer(), nullable=False),
        sa.Column("amount_nano", sa.BigInteger(), nullable=False),
        sa.Column("imported_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("imported_by", sa.Text(), nullable=False),
        sa.CheckConstraint("line_count > 0", name=op.f("ck_supplier_invoices_has_lines")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_supplier_invoices")),
    )
    op.create_index(
        "ix_supplier_invoices_imported_at", "supplier_invoices", ["imported_at", "id"], unique=False
    )
    op.create_index(
        "ix_supplier_invoices_month_provider",
        "supplier_invoices",
        ["month", "provider", "imported_at"],
        unique=False,
    )

    op.create_table(
        "supplier_invoice_parts",
        sa.Column("invoice_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("lines", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(
            ["invoice_id"],
            ["supplier_invoices.id"],
            name=op.f("fk_supplier_invoice_parts_invoice_id_supplier_invoices"),
        ),
        sa.PrimaryKeyConstraint("invoice_id", "number", name=op.f("pk_supplier_invoice_parts")),
    )

    op.create_table(
        "supplier_postings",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("invoice_id", sa.Uuid(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("month", sa.DateTime(timezone=True), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("amount_nano", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decided_by", sa.Text(), nullable=False),
        sa.CheckConstraint("event IN ('posted', 'voided')", name=op.f("ck_supplier_postings_event_known")),
        sa.ForeignKeyConstraint(
            ["invoice_id"],
            ["supplier_invoices.id"],
            name=op.f("fk_supplier_postings_invoice_id_supplier_invoices"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_supplier_postings")),
    )
    op.create_index("ix_supplier_postings_invoice_id", "supplier_postings", ["invoice_id"], unique=False)
    op.create_index(
        "ix_supplier_postings_month_provider",
        "supplier_postings",
        ["month", "provider", "decided_at"],
        unique=False,
    )
    op.create_table(
        "reconciliation_batches",
        sa.Column("reconciliation_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("reached", sa.Uuid(), nullable=True),
        sa.Column("customers", sa.Integer(), nullable=False),
        sa.Column("remaining", sa.Integer(), nullable=False),
        sa.Column("amounts", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("examined_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "number > 0 AND customers >= 0 AND remaining >= 0",
            name=op.f("ck_reconciliation_batches_not_negative"),
        ),
        sa.ForeignKeyConstraint(
            ["reached"], ["organizations.id"], name=op.f("fk_reconciliation_batches_reached_organizations")
        ),
        sa.ForeignKeyConstraint(
            ["reconciliation_id"],
            ["reconciliations.id"],
            name=op.f("fk_reconciliation_batches_reconciliation_id_reconciliations"),
        ),
        sa.PrimaryKeyConstraint("reconciliation_id", "number", name=op.f("pk_reconciliation_batches")),
    )
    op.create_table(
        "reconciliation_differences",
        sa.Column("reconciliation_id", sa.Uuid(), nullable=False),
        sa.Column("batch", sa.Integer(), nullable=False),
        sa.Column("customer_id", sa.Uuid(), nullable=False),
        sa.Column("link", sa.Text(), nullable=False),
        sa.Column("before_nano", sa.BigInteger(), nullable=False),
        sa.Column("after_nano", sa.BigInteger(), nullable=False),
        sa.Column("examples", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.CheckConstraint(
            "link IN ('charged', 'credit_note_posted', 'exported', 'exported_to_customer', 'invoice_posted', 'invoiced', 'metered', 'posted', 'rated', 'supplier_owed', 'supplier_posted')",
            name=op.f("ck_reconciliation_differences_link_known"),
        ),
        sa.ForeignKeyConstraint(
            ["customer_id"],
            ["organizations.id"],
            name=op.f("fk_reconciliation_differences_customer_id_organizations"),
        ),
        sa.ForeignKeyConstraint(
            ["reconciliation_id", "batch"],
            ["reconciliation_batches.reconciliation_id", "reconciliation_batches.number"],
            name=op.f("fk_reconciliation_differences_reconciliation_id_reconciliation_batches"),
        ),
        sa.PrimaryKeyConstraint(
            "reconciliation_id", "customer_id", "link", name=op.f("pk_reconciliation_differences")
        ),
    )
    op.create_table(
        "reconciliation_customers",
        sa.Column("reconciliation_id", sa.Uuid(), nullable=False),
        sa.Column("batch", sa.Integer(), nullable=False),
        sa.Column("customer_id", sa.Uuid(), nullable=False),
        sa.Column("amounts", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(
            ["customer_id"],
            ["organizations.id"],
            name=op.f("fk_reconciliation_customers_customer_id_organizations"),
        ),
        sa.ForeignKeyConstraint(
            ["reconciliation_id", "batch"],
            ["reconciliation_batches.reconciliation_id", "reconciliation_batches.number"],
            name=op.f("fk_reconciliation_customers_reconciliation_id_reconciliation_batches"),
        ),
        sa.PrimaryKeyConstraint("reconciliation_id", "customer_id", name=op.f("pk_reconciliation_customers")),
    )
    op.create_table(
        "machine_health",
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("fault", sa.Text(), nullable=True),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("judged_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "faults", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'"), nullable=False
        ),
        sa.Column(
            "row_faults",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'"),
            nullable=False,
        ),
        sa.Column(
            "errors", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'"), nullable=False
        ),
        sa.Column(
            "links",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'"),
            nullable=False,
        ),
        sa.Column("samples_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("looked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "looked", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'"), nullable=False
        ),
        sa.Column("looked_why_not", sa.Text(), nullable=True),
        sa.Column("look_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("look_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("look_token", sa.Uuid(), nullable=True),
        sa.Column("look_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reset_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(fault IS NULL) = (verdict = 'healthy')", name=op.f("ck_machine_health_fault_has_its_verdict")
        ),
        sa.CheckConstraint(
            "fault IN ('eviction_announced', 'fabric_unhealthy', 'gpu_error', 'gpu_lost', 'gpu_missing', 'handed_back', 'hardware_slowdown', 'machine_error', 'memory_broken', 'memory_repair_pending', 'memory_wears', 'nvlink_down', 'pcie_reduced', 'program_errors', 'proof_failed', 'provider_down', 'provider_maintenance', 'provider_missing', 'recovery_needed', 'reset_advised', 'under_maintenance', 'unknown_error')",
            name=op.f("ck_machine_health_fault_known"),
        ),
        sa.CheckConstraint(
            "verdict IN ('degraded', 'healthy', 'lost', 'maintenance_required', 'quarantined')",
            name=op.f("ck_machine_health_verdict_known"),
        ),
        sa.ForeignKeyConstraint(
            ["machine_id"], ["machines.id"], name=op.f("fk_machine_health_machine_id_machines")
        ),
        sa.PrimaryKeyConstraint("machine_id", name=op.f("pk_machine_health")),
    )
    op.create_index(
        "ix_machine_health_look_due_at",
        "machine_health",
        ["look_due_at"],
        unique=False,
        postgresql_where=sa.text("look_due_at IS NOT NULL"),
    )
    op.create_index(
        "ix_machine_health_not_healthy",
        "machine_health",
        ["machine_id"],
        unique=False,
        postgresql_where=sa.text("verdict <> 'healthy' OR faults <> '[]'"),
    )
    op.create_table(
        "health_changes",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("verdict_before", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("fault", sa.Text(), nullable=True),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("evidence", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.CheckConstraint(
            "fault IN ('eviction_announced', 'fabric_unhealthy', 'gpu_error', 'gpu_lost', 'gpu_missing', 'handed_back', 'hardware_slowdown', 'machine_error', 'memory_broken', 'memory_repair_pending', 'memory_wears', 'nvlink_down', 'pcie_reduced', 'program_errors', 'proof_failed', 'provider_down', 'provider_maintenance', 'provider_missing', 'recovery_needed', 'reset_advised', 'under_maintenance', 'unknown_error')",
            name=op.f("ck_health_changes_fault_known"),
        ),
        sa.CheckConstraint(
            "verdict IN ('degraded', 'healthy', 'lost', 'maintenance_required', 'quarantined')",
            name=op.f("ck_health_changes_verdict_known"),
        ),
        sa.CheckConstraint(
            "verdict_before IN ('degraded', 'healthy', 'lost', 'maintenance_required', 'quarantined')",
            name=op.f("ck_health_changes_verdict_before_known"),
        ),
        sa.CheckConstraint(
            "verdict <> verdict_before OR verdict = 'maintenance_required'",
            name=op.f("ck_health_changes_changes"),
        ),
        sa.ForeignKeyConstraint(
            ["machine_id"], ["machines.id"], name=op.f("fk_health_changes_machine_id_machines")
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_health_changes")),
    )
    op.create_index("ix_health_changes_machine_id_at", "health_changes", ["machine_id", "at"], unique=False)
    op.create_table(
        "repairs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("fault", sa.Text(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("step_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("notified_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("spare_wanted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("spare_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("spare_tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("work_token", sa.Uuid(), nullable=True),
        sa.Column("work_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "fault IN ('eviction_announced', 'fabric_unhealthy', 'gpu_error', 'gpu_lost', 'gpu_missing', 'handed_back', 'hardware_slowdown', 'machine_error', 'memory_broken', 'memory_repair_pending', 'memory_wears', 'nvlink_down', 'pcie_reduced', 'program_errors', 'proof_failed', 'provider_down', 'provider_maintenance', 'provider_missing', 'recovery_needed', 'reset_advised', 'under_maintenance', 'unknown_error')",
            name=op.f("ck_repairs_fault_known"),
        ),
        sa.CheckConstraint(
            "outcome IN ('ended', 'gone', 'recovered', 'replaced')", name=op.f("ck_repairs_outcome_known")
        ),
        sa.CheckConstraint(
            "step IN ('challenge', 'replace', 'reset', 'ticket', 'watch')", name=op.f("ck_repairs_step_known")
        ),
        sa.CheckConstraint(
            "(closed_at IS NULL) = (outcome IS NULL)", name=op.f("ck_repairs_outcome_has_its_time")
        ),
        sa.ForeignKeyConstraint(["machine_id"], ["machines.id"], name=op.f("fk_repairs_machine_id_machines")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_repairs")),
    )
    op.create_index(
        "ix_repairs_spare_wanted_at",
        "repairs",
        ["spare_wanted_at"],
        unique=False,
        postgresql_where=sa.text("closed_at IS NULL AND spare_wanted_at IS NOT NULL"),
    )
    op.create_index(
        "ix_repairs_due_at",
        "repairs",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("closed_at IS NULL"),
    )
    op.create_index(
        "uq_repairs_open",
        "repairs",
        ["machine_id"],
        unique=True,
        postgresql_where=sa.text("closed_at IS NULL"),
    )
    op.create_table(
        "hand_backs",
        sa.Column("claim_id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["machine_id"], ["machines.id"], name=op.f("fk_hand_backs_machine_id_machines")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "claim_id"],
            ["claims.organization_id", "claims.id"],
            name=op.f("fk_hand_backs_organization_id_claims"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_hand_backs_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_hand_backs_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("organization_id", "claim_id", name=op.f("pk_hand_backs")),
    )
    op.create_index("ix_hand_backs_machine_id", "hand_backs", ["machine_id"], unique=False)
    op.create_table(
        "findings",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("claim_id", sa.Uuid(), nullable=False),
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("detector", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("step_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "detector IN ('envelope_breach', 'idle', 'kv_cache_growth', 'memory_pressure', 'sla_violation', 'throughput_degradation', 'unfunded')",
            name=op.f("ck_findings_detector_known"),
        ),
        sa.CheckConstraint(
            "outcome IN ('credited', 'gone', 'recovered', 'silent', 'stopped', 'undone')",
            name=op.f("ck_findings_outcome_known"),
        ),
        sa.CheckConstraint(
            "(closed_at IS NULL) = (outcome IS NULL)", name=op.f("ck_findings_outcome_has_its_time")
        ),
        sa.ForeignKeyConstraint(
            ["machine_id"], ["machines.id"], name=op.f("fk_findings_machine_id_machines")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "claim_id"],
            ["claims.organization_id", "claims.id"],
            name=op.f("fk_findings_organization_id_claims"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_findings_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_findings_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_findings_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_findings")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_findings_organization_id_id")),
    )
    op.create_index("ix_findings_claim_id", "findings", ["claim_id", "detector", "closed_at"], unique=False)
    op.create_index(
        "uq_findings_open",
        "findings",
        ["claim_id", "detector"],
        unique=True,
        postgresql_where=sa.text("closed_at IS NULL"),
    )

    op.create_table(
        "enforcement_actions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("finding_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("claim_id", sa.Uuid(), nullable=False),
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("detector", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("armed", sa.Boolean(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("planned_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("basis", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("evidence", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("rules", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "action IN ('check_machine', 'credit', 'evict', 'notify', 'shutdown', 'smaller_batch', 'stop_admission', 'throttle_admission')",
            name=op.f("ck_enforcement_actions_action_known"),
        ),
        sa.CheckConstraint(
            "basis <> 'claim' OR action NOT IN ('credit', 'evict', 'shutdown')",
            name=op.f("ck_enforcement_actions_claims_only_advise"),
        ),
        sa.CheckConstraint(
            "basis IN ('claim', 'consent', 'ours')", name=op.f("ck_enforcement_actions_basis_known")
        ),
        sa.CheckConstraint(
            "detector IN ('envelope_breach', 'idle', 'kv_cache_growth', 'memory_pressure', 'sla_violation', 'throughput_degradation', 'unfunded')",
            name=op.f("ck_enforcement_actions_detector_known"),
        ),
        sa.CheckConstraint("expires_at > at", name=op.f("ck_enforcement_actions_lasts")),
        sa.ForeignKeyConstraint(
            ["machine_id"], ["machines.id"], name=op.f("fk_enforcement_actions_machine_id_machines")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "claim_id"],
            ["claims.organization_id", "claims.id"],
            name=op.f("fk_enforcement_actions_organization_id_claims"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "finding_id"],
            ["findings.organization_id", "findings.id"],
            name=op.f("fk_enforcement_actions_organization_id_findings"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_enforcement_actions_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_enforcement_actions_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_enforcement_actions_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_enforcement_actions")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_enforcement_actions_organization_id_id")),
    )
    op.create_index("ix_enforcement_actions_at", "enforcement_actions", ["at", "id"], unique=False)
    op.create_index("ix_enforcement_actions_expires_at", "enforcement_actions", ["expires_at"], unique=False)
    op.create_index(
        "ix_enforcement_actions_finding_id_at",
        "enforcement_actions",
        ["finding_id", "at", "id"],
        unique=False,
    )
    op.create_index(
        "ix_enforcement_actions_lease_id_at", "enforcement_actions", ["lease_id", "at", "id"], unique=False
    )

    op.create_table(
        "enforcement_ends",
        sa.Column("action_id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended", sa.Text(), nullable=False),
        sa.Column("ended_by", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "ended IN ('done', 'expired', 'over', 'superseded', 'undone')",
            name=op.f("ck_enforcement_ends_ended_known"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "action_id"],
            ["enforcement_actions.organization_id", "enforcement_actions.id"],
            name=op.f("fk_enforcement_ends_organization_id_enforcement_actions"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_enforcement_ends_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("action_id", name=op.f("pk_enforcement_ends")),
    )

    op.create_table(
        "enforcement_undos",
        sa.Column("action_id", sa.Uuid(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("action_id", name=op.f("pk_enforcement_undos")),
    )

    op.create_table(
        "detector_arms",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("detector", sa.Text(), nullable=False),
        sa.Column("armed", sa.Boolean(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "detector IN ('envelope_breach', 'idle', 'kv_cache_growth', 'memory_pressure', 'sla_violation', 'throughput_degradation', 'unfunded')",
            name=op.f("ck_detector_arms_detector_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_detector_arms")),
    )
    op.create_index("ix_detector_arms_detector_at", "detector_arms", ["detector", "at", "id"], unique=False)

    op.create_table(
        "idle_stops",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("after_seconds", sa.Integer(), nullable=False),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.CheckConstraint("after_seconds > 0", name=op.f("ck_idle_stops_after_some_time")),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_idle_stops_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_idle_stops_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("organization_id", "lease_id", name=op.f("pk_idle_stops")),
    )

    op.create_table(
        "throughput_hours",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("claim_id", sa.Uuid(), nullable=False),
        sa.Column("hour", sa.DateTime(timezone=True), nullable=False),
        sa.Column("batch", sa.Integer(), nullable=False),
        sa.Column("throughput", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id", "claim_id"],
            ["claims.organization_id", "claims.id"],
            name=op.f("fk_throughput_hours_organization_id_claims"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_throughput_hours_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("claim_id", "hour", "batch", name=op.f("pk_throughput_hours")),
    )
    op.create_index("ix_throughput_hours_hour", "throughput_hours", ["hour"], unique=False)
    op.create_table(
        "maintenances",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("taken_by", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("planned_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("event", sa.Text(), nullable=True),
        sa.Column("unlisted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("notified_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_by", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(ended_at IS NULL) = (ended_by IS NULL)", name=op.f("ck_maintenances_somebody_ends_it")
        ),
        sa.CheckConstraint(
            "event IS NULL OR planned_at IS NOT NULL", name=op.f("ck_maintenances_provider_says_when")
        ),
        sa.ForeignKeyConstraint(
            ["machine_id"], ["machines.id"], name=op.f("fk_maintenances_machine_id_machines")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_maintenances")),
    )
    op.create_index(
        "uq_maintenances_open",
        "maintenances",
        ["machine_id", "event"],
        unique=True,
        postgresql_where=sa.text("ended_at IS NULL"),
        postgresql_nulls_not_distinct=True,
    )
    op.create_table(
        "notices",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("planned_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "kind IN ('condition_found', 'fault_found', 'maintenance_planned', 'maintenance_withdrawn', 'preempted', 'preemption_planned', 'preemption_withdrawn', 'recovered', 'replaced', 'replacement_planned', 'replacement_recommended', 'reset_planned', 'reset_recommended', 'stop_planned', 'term_ending')",
            name=op.f("ck_notices_kind_known"),
        ),
        sa.ForeignKeyConstraint(["machine_id"], ["machines.id"], name=op.f("fk_notices_machine_id_machines")),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_notices_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_notices_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_notices_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_notices")),
        sa.UniqueConstraint("organization_id", "number", name=op.f("uq_notices_organization_id_number")),
    )
    op.create_index("ix_notices_lease_id_number", "notices", ["lease_id", "number"], unique=False)
    op.create_table(
        "preemptions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("claim_id", sa.Uuid(), nullable=False),
        sa.Column("machine_id", sa.Uuid(), nullable=False),
        sa.Column("for_lease_id", sa.Uuid(), nullable=False),
        sa.Column("offer_key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("harm_gpu_seconds", sa.BigInteger(), nullable=False),
        sa.Column("notified_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("interrupt_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("interrupted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ordered_machine_id", sa.Uuid(), nullable=True),
        sa.Column("orders", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(closed_at IS NULL) = (state IN ('interrupted', 'notified', 'ordered'))",
            name=op.f("ck_preemptions_open_until_closed"),
        ),
        sa.CheckConstraint(
            "state IN ('in_vain', 'interrupted', 'notified', 'ordered', 'served', 'withdrawn')",
            name=op.f("ck_preemptions_state_known"),
        ),
        sa.CheckConstraint(
            "(orders = 0) = (ordered_machine_id IS NULL)", name=op.f("ck_preemptions_orders_have_a_machine")
        ),
        sa.CheckConstraint("interrupt_at > notified_at", name=op.f("ck_preemptions_notice_comes_first")),
        sa.ForeignKeyConstraint(
            ["machine_id"], ["machines.id"], name=op.f("fk_preemptions_machine_id_machines")
        ),
        sa.ForeignKeyConstraint(
            ["ordered_machine_id"], ["machines.id"], name=op.f("fk_preemptions_ordered_machine_id_machines")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "claim_id"],
            ["claims.organization_id", "claims.id"],
            name=op.f("fk_preemptions_organization_id_claims"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_preemptions_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_preemptions_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_preemptions_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_preemptions")),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_preemptions_organization_id_id")),
    )
    op.create_index("ix_preemptions_for_lease_id", "preemptions", ["for_lease_id"], unique=False)
    op.create_index("ix_preemptions_lease_id", "preemptions", ["lease_id"], unique=False)
    op.create_index(
        "ix_preemptions_notified_at",
        "preemptions",
        [sa.literal_column("notified_at DESC"), sa.literal_column("id DESC")],
        unique=False,
    )
    op.create_index("ix_preemptions_ordered_machine_id", "preemptions", ["ordered_machine_id"], unique=False)
    op.create_index(
        "ix_preemptions_organization_id_interrupted_at",
        "preemptions",
        ["organization_id", "interrupted_at"],
        unique=False,
    )
    op.create_index(
        "uq_preemptions_open_for_lease",
        "preemptions",
        ["for_lease_id"],
        unique=True,
        postgresql_where=sa.text("closed_at IS NULL"),
    )
    op.create_index(
        "uq_preemptions_open_of_lease",
        "preemptions",
        ["lease_id"],
        unique=True,
        postgresql_where=sa.text("closed_at IS NULL"),
    )
    op.create_table(
        "preemption_decisions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("for_lease_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=True),
        sa.Column("preemption_id", sa.Uuid(), nullable=True),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("evidence", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.CheckConstraint(
            "decision IN ('held_back', 'in_vain', 'interrupted', 'notified', 'ordered', 'served', 'withdrawn', 'would_notify')",
            name=op.f("ck_preemption_decisions_decision_known"),
        ),
        sa.ForeignKeyConstraint(
            ["preemption_id"],
            ["preemptions.id"],
            name=op.f("fk_preemption_decisions_preemption_id_preemptions"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_preemption_decisions")),
    )
    op.create_index(
        "ix_preemption_decisions_at",
        "preemption_decisions",
        [sa.literal_column("at DESC"), sa.literal_column("id DESC")],
        unique=False,
    )
    op.create_index(
        "ix_preemption_decisions_for_lease_id_at",
        "preemption_decisions",
        ["for_lease_id", "at"],
        unique=False,
    )
    op.create_index(
        "ix_preemption_decisions_preemption_id", "preemption_decisions", ["preemption_id"], unique=False
    )
    op.create_table(
        "preemption_switches",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("armed", sa.Boolean(), nullable=False),
        sa.Column("switched_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_preemption_switches")),
    )
    op.create_table(
        "sla_clocks",
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("judged_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column(
            "maintenance",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_sla_clocks_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_sla_clocks_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("organization_id", "lease_id", name=op.f("pk_sla_clocks")),
    )
    op.create_index(
        "ix_sla_clocks_due_at",
        "sla_clocks",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("due_at IS NOT NULL"),
    )
    op.create_index(
        "ix_sla_clocks_running",
        "sla_clocks",
        ["lease_id"],
        unique=False,
        postgresql_where=sa.text("NOT ended"),
    )
    op.create_table(
        "sla_months",
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("month", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sla", sa.Text(), nullable=False),
        sa.Column("promised_seconds", sa.BigInteger(), nullable=False),
        sa.Column("down_seconds", sa.BigInteger(), nullable=False),
        sa.Column("kept", sa.Integer(), nullable=False),
        sa.Column("broken", sa.Integer(), nullable=False),
        sa.CheckConstraint("sla IN ('bronze', 'gold', 'silver')", name=op.f("ck_sla_months_sla_known")),
        sa.CheckConstraint(
            "down_seconds BETWEEN 0 AND promised_seconds", name=op.f("ck_sla_months_down_is_a_part")
        ),
        sa.CheckConstraint("kept >= 0 AND broken >= 0", name=op.f("ck_sla_months_counts_not_negative")),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_sla_months_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_sla_months_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("organization_id", "lease_id", "month", name=op.f("pk_sla_months")),
    )
    op.create_index("ix_sla_months_month", "sla_months", ["month"], unique=False)
    op.create_table(
        "sla_breaches",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("promise", sa.Text(), nullable=False),
        sa.Column("month", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sla", sa.Text(), nullable=False),
        sa.Column("sla_version", sa.Integer(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("found_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("evidence", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.CheckConstraint(
            "promise IN ('availability', 'notice', 'ready', 'replacement')",
            name=op.f("ck_sla_breaches_promise_known"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_sla_breaches_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "project_id"],
            ["projects.organization_id", "projects.id"],
            name=op.f("fk_sla_breaches_organization_id_projects"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_sla_breaches_organization_id_organizations"),
        ),
        sa.ForeignKeyConstraint(
            ["sla_version", "sla"],
            ["sla_terms.version", "sla_terms.tier"],
            name=op.f("fk_sla_breaches_sla_version_sla_terms"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sla_breaches")),
        sa.UniqueConstraint(
            "lease_id", "promise", "month", name=op.f("uq_sla_breaches_lease_id_promise_month")
        ),
        sa.UniqueConstraint("organization_id", "id", name=op.f("uq_sla_breaches_organization_id_id")),
    )
    op.create_index("ix_sla_breaches_month", "sla_breaches", ["month"], unique=False)
    op.create_index(
        "ix_sla_breaches_organization_id_month", "sla_breaches", ["organization_id", "month"], unique=False
    )
    op.create_table(
        "sla_assessments",
        sa.Column("breach_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("assessed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("charged_nano", sa.BigInteger(), nullable=False),
        sa.Column("credit_nano", sa.BigInteger(), nullable=False),
        sa.Column("outside_nano", sa.BigInteger(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("evidence", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.CheckConstraint(
            "credit_nano BETWEEN 0 AND charged_nano", name=op.f("ck_sla_assessments_no_more_than_charged")
        ),
        sa.CheckConstraint("number > 0", name=op.f("ck_sla_assessments_number_positive")),
        sa.CheckConstraint(
            "outside_nano BETWEEN 0 AND credit_nano", name=op.f("ck_sla_assessments_outside_is_a_part")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "breach_id"],
            ["sla_breaches.organization_id", "sla_breaches.id"],
            name=op.f("fk_sla_assessments_organization_id_sla_breaches"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_sla_assessments_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("breach_id", "number", name=op.f("pk_sla_assessments")),
        sa.UniqueConstraint(
            "organization_id",
            "breach_id",
            "number",
            name=op.f("uq_sla_assessments_organization_id_breach_id_number"),
        ),
    )
    op.create_table(
        "sla_uncredited",
        sa.Column("breach_id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id", "breach_id"],
            ["sla_breaches.organization_id", "sla_breaches.id"],
            name=op.f("fk_sla_uncredited_organization_id_sla_breaches"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_sla_uncredited_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("organization_id", "breach_id", name=op.f("pk_sla_uncredited")),
    )
    op.create_index("ix_sla_uncredited_since", "sla_uncredited", ["since"], unique=False)
    op.create_table(
        "sla_trusts",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("month", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id", "lease_id"],
            ["leases.organization_id", "leases.id"],
            name=op.f("fk_sla_trusts_organization_id_leases"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_sla_trusts_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("organization_id", "month", name=op.f("pk_sla_trusts")),
    )

    op.create_table(
        "sla_undecided",
        sa.Column("breach_id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("assessment", sa.Integer(), nullable=False),
        sa.Column("amount_nano", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("amount_nano > 0", name=op.f("ck_sla_undecided_amount_positive")),
        sa.ForeignKeyConstraint(
            ["organization_id", "breach_id", "assessment"],
            ["sla_assessments.organization_id", "sla_assessments.breach_id", "sla_assessments.number"],
            name=op.f("fk_sla_undecided_organization_id_sla_assessments"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_sla_undecided_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("organization_id", "breach_id", name=op.f("pk_sla_undecided")),
    )
    op.create_index("ix_sla_undecided_breach_id", "sla_undecided", ["breach_id"], unique=False)

    op.create_table(
        "sla_decisions",
        sa.Column("breach_id", sa.Uuid(), nullable=False),
        sa.Column("assessment", sa.Integer(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("approved", sa.Boolean(), nullable=False),
        sa.Column("decided_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id", "breach_id", "assessment"],
            ["sla_assessments.organization_id", "sla_assessments.breach_id", "sla_assessments.number"],
            name=op.f("fk_sla_decisions_organization_id_sla_assessments"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_sla_decisions_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("breach_id", "assessment", name=op.f("pk_sla_decisions")),
    )

    op.create_table(
        "sla_credits",
        sa.Column("breach_id", sa.Uuid(), nullable=False),
        sa.Column("assessment", sa.Integer(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("transaction_id", sa.Uuid(), nullable=False),
        sa.Column("amount_nano", sa.BigInteger(), nullable=False),
        sa.Column("approved", sa.Boolean(), nullable=False),
        sa.Column("credited_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("amount_nano <> 0", name=op.f("ck_sla_credits_not_zero")),
        sa.ForeignKeyConstraint(
            ["organization_id", "breach_id", "assessment"],
            ["sla_assessments.organization_id", "sla_assessments.breach_id", "sla_assessments.number"],
            name=op.f("fk_sla_credits_organization_id_sla_assessments"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "transaction_id"],
            ["transactions.organization_id", "transactions.id"],
            name=op.f("fk_sla_credits_organization_id_transactions"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_sla_credits_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("breach_id", "assessment", "approved", name=op.f("pk_sla_credits")),
    )
    op.create_index("ix_sla_credits_transaction_id", "sla_credits", ["transaction_id"], unique=False)
    op.create_table(
        "sla_approvals",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("approved_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("approved_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sla_approvals")),
    )
