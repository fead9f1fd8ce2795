"""The audit log: lines that wait for their place, the chains, and what is known of their heads."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.schema import SchemaItem

from control_plane.db.tables.marks import Lookups, Tenancy, at, known, table, tenant
from control_plane.domain.audit import AuditOutcome, SubjectKind


def _line() -> list[SchemaItem]:
    """What a line says."""
    return [
        tenant(nullable=True),
        at("at", nullable=False),
        Column("event", Text, nullable=False),
        Column("outcome", Text, nullable=False),
        Column("code", Text),
        Column("subject", Text, nullable=False),
        Column("subject_kind", Text, nullable=False),
        Column("credential", Text),
        Column("subject_organization", Text),
        Column("project", Text),
        Column("targets", ARRAY(Text), nullable=False, server_default=text("'{}'")),
        Column("address", Text),
        Column("client", Text),
        Column("region", Text),
        Column("rule", Text),
        Column("request_id", Text),
        Column("links", JSONB, nullable=False, server_default=text("'{}'")),
        Column("details", JSONB, nullable=False, server_default=text("'{}'")),
        known("outcome", AuditOutcome),
        known("subject_kind", SubjectKind),
    ]


# Written in the transaction of what the line is about. The database lets a line leave only once it is in a chain.
audit_pending = table(
    "audit_pending",
    Column("number", BigInteger, Identity(always=True), primary_key=True),
    Column("id", Uuid, nullable=False, server_default=text("gen_random_uuid()")),
    # The transaction that wrote it, by which the lines of the journal are found that it wrote too.
    Column(
        "transaction", BigInteger, nullable=False, server_default=text("(pg_current_xact_id()::text)::bigint")
    ),
    *_line(),
    tenancy=Tenancy.MIXED,
    api=("INSERT",),
    admin=("INSERT",),
    lookups=Lookups.ADD,
)

audit_events = table(
    "audit_events",
    Column("id", Uuid, primary_key=True),
    *_line(),
    Column("sequence", BigInteger, nullable=False),
    Column("previous", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    CheckConstraint("sequence > 0", name="sequence_positive"),
    Index(
        "uq_audit_events_sequence",
        "organization_id",
        "sequence",
        unique=True,
        postgresql_nulls_not_distinct=True,
    ),
    Index("ix_audit_events_organization_id_at", "organization_id", "at", "id"),
    Index("ix_audit_events_at", "at", "id"),
    Index("ix_audit_events_targets", "targets", postgresql_using="gin"),
    tenancy=Tenancy.OURS_VISIBLE,
    lookups=Lookups.READ,
)

# The head of each chain: where the next line goes. It caches the last line, and a check compares the two.
audit_chains = table(
    "audit_chains",
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    tenant(nullable=True),
    Column("sequence", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    at("sealed_at", nullable=False),
    # The head at the last checkpoint, and when that was.
    Column("checked_sequence", BigInteger, nullable=False, server_default=text("0")),
    at("checked_at"),
    # The last line that was exported, and the last that was pruned.
    Column("exported_sequence", BigInteger, nullable=False, server_default=text("0")),
    Column("pruned_sequence", BigInteger, nullable=False, server_default=text("0")),
    Index(
        "uq_audit_chains_organization_id", "organization_id", unique=True, postgresql_nulls_not_distinct=True
    ),
    tenancy=Tenancy.OURS_VISIBLE,
)

# The keys that sign checkpoints. They stay for ever, because what they signed is checked with them. The private half is
# a secret of the platform's organization.
audit_keys = table(
    "audit_keys",
    Column("id", Text, primary_key=True),
    Column("public", LargeBinary, nullable=False),
    Column("secret_id", Uuid, ForeignKey("secrets.id"), nullable=False),
    at("made_at", nullable=False),
    shared="They sign the chains of every organization.",
    fact=True,
)

# Heads as they were: what was cut off at the end of a chain is missed by them, and a pruned chain begins at one.
audit_checkpoints = table(
    "audit_checkpoints",
    Column("number", BigInteger, Identity(always=True), primary_key=True),
    tenant(nullable=True),
    Column("sequence", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("reason", Text, nullable=False),
    at("at", nullable=False),
    # Null where no key manager is configured.
    Column("key_id", Text, ForeignKey("audit_keys.id")),
    Column("signature", LargeBinary),
    CheckConstraint("reason IN ('head', 'pruned')", name="reason_known"),
    CheckConstraint("(key_id IS NULL) = (signature IS NULL)", name="signature_has_its_key"),
    Index("ix_audit_checkpoints_organization_id_sequence", "organization_id", "sequence"),
    tenancy=Tenancy.OURS_VISIBLE,
    fact=True,
)
