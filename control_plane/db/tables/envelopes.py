"""Envelopes, what is used within them, quota requests, and the decisions of admission."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.db.tables.marks import Lookups, at, environment, known, own, project, table, tenant
from control_plane.domain.actor import ActorKind
from control_plane.domain.decision import Action, Verdict
from control_plane.domain.envelope import Level
from control_plane.domain.quota_request import QuotaRequestState

_LEVEL_HAS_ITS_SCOPE = (
    f"(project_id IS NOT NULL) = (level IN ('{Level.PROJECT}', '{Level.ENVIRONMENT}'))"
    f" AND (environment_id IS NOT NULL) = (level = '{Level.ENVIRONMENT}')"
)

envelopes = table(
    "envelopes",
    Column("id", Uuid, primary_key=True),
    tenant(),
    Column("level", Text, nullable=False),
    *project(nullable=True),
    *environment(nullable=True),
    # `domain.envelope.Envelope`.
    Column("limits", JSONB, nullable=False),
    Column("revision", Integer, nullable=False, server_default=text("1")),
    at("set_at", nullable=False),
    Column("set_by", Text, nullable=False),
    # Since when its scope is over a limit that a burst can exceed; null while it is not.
    at("over_since"),
    # When its running leases were last held against it.
    at("watched_at"),
    known("level", Level),
    CheckConstraint(_LEVEL_HAS_ITS_SCOPE, name="level_has_its_scope"),
    UniqueConstraint(
        "organization_id", "level", "project_id", "environment_id", postgresql_nulls_not_distinct=True
    ),
    UniqueConstraint("organization_id", "id"),  # The target of foreign keys.
    Index("ix_envelopes_watched_at", "watched_at"),
    api=("INSERT", "UPDATE"),
    admin=("INSERT", "UPDATE"),
)

# What live leases hold, by environment and GPU model. It caches the leases and is updated in the same transactions,
# under the lock of the organization's standing; a test rebuilds and compares it.
capacity_held = table(
    "capacity_held",
    tenant(),
    *project(),
    *environment(),
    # Null for machines without GPUs, of which only the price counts.
    Column("gpu_model", Text),
    Column("gpus", Integer, nullable=False),
    Column("nano_per_hour", BigInteger, nullable=False),
    UniqueConstraint("organization_id", "environment_id", "gpu_model", postgresql_nulls_not_distinct=True),
    CheckConstraint("gpus >= 0 AND nano_per_hour >= 0", name="not_negative"),
    api=("INSERT", "UPDATE"),
)

# What was charged by environment and calendar month (UTC): sums of `charges`, written by the transaction that rates. An
# interval ends at full hours, so that it lies in one month.
month_spends = table(
    "month_spends",
    tenant(),
    *project(),
    *environment(),
    at("month", nullable=False),
    Column("charged_nano", BigInteger, nullable=False),
    PrimaryKeyConstraint("organization_id", "month", "environment_id"),
)

# Live leases that were warned that they are outside of an envelope. Without a foreign key to the lease, which would
# take the lease's lock after the envelope's.
envelope_warnings = table(
    "envelope_warnings",
    tenant(),
    Column("envelope_id", Uuid, nullable=False),
    own("envelope_id", "envelopes"),
    Column("lease_id", Uuid, nullable=False),
    at("warned_at", nullable=False),
    at("confirmed_at", nullable=False),
    # When the lease ends; null when it is only warned.
    at("ends_at"),
    Column("why", Text, nullable=False),
    PrimaryKeyConstraint("organization_id", "envelope_id", "lease_id"),
    Index("ix_envelope_warnings_lease_id", "lease_id"),
)

admission_decisions = table(
    "admission_decisions",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *project(nullable=True),
    *environment(nullable=True),
    Column("lease_id", Uuid),
    Column("quota_request_id", Uuid),
    at("decided_at", nullable=False),
    Column("action", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    # The code and the sentence of the first refusal.
    Column("code", Text),
    Column("why", Text),
    # Every rule that spoke, with its figures.
    Column("rules", JSONB, nullable=False),
    Column("actor_kind", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("request_id", Text),
    # Of what was decided and why, without the figures: an equal decision on a waiting lease is not stored again.
    Column("sha256", LargeBinary, nullable=False),
    known("action", Action),
    known("outcome", Verdict),
    known("actor_kind", ActorKind),
    CheckConstraint(f"(outcome = '{Verdict.REFUSED}') = (code IS NOT NULL)", name="refusal_has_its_code"),
    Index("ix_admission_decisions_organization_id_decided_at", "organization_id", "decided_at", "id"),
    Index("ix_admission_decisions_lease_id", "lease_id", "decided_at"),
    fact=True,
    api=("INSERT",),
)

quota_requests = table(
    "quota_requests",
    Column("id", Uuid, primary_key=True),
    tenant(),
    Column("level", Text, nullable=False),
    *project(nullable=True),
    *environment(nullable=True),
    # The limits that are asked for: `domain.envelope.Envelope`.
    Column("limits", JSONB, nullable=False),
    Column("reason", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("asked_by", Text, nullable=False),
    at("asked_at", nullable=False),
    at("expires_at", nullable=False),
    Column("decided_by", Text),
    at("decided_at"),
    Column("answer", Text),
    known("level", Level),
    known("state", QuotaRequestState),
    CheckConstraint(_LEVEL_HAS_ITS_SCOPE, name="level_has_its_scope"),
    CheckConstraint(
        "decided_by IS DISTINCT FROM asked_by OR state = 'withdrawn'", name="decided_by_somebody_else"
    ),
    CheckConstraint("(decided_at IS NULL) = (state = 'pending')", name="decision_has_its_time"),
    Index("ix_quota_requests_organization_id_asked_at", "organization_id", "asked_at", "id"),
    Index("ix_quota_requests_asked_at", "asked_at", "id"),
    api=("INSERT", "UPDATE"),
    lookups=Lookups.READ,
)
