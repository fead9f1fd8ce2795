"""Preemptions: interruptible leases that yield their machine to a lease whose readiness is promised."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.db.tables.marks import Lookups, Tenancy, among, at, known, own, project, table, tenant
from control_plane.domain.preemption import OPEN, PreemptionDecision, PreemptionState

# One row per interruptible lease that yields its machine, with the lease's organization. At most one is open for each
# of the two leases.
preemptions = table(
    "preemptions",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *project(),
    Column("lease_id", Uuid, nullable=False),
    own("lease_id", "leases"),
    Column("claim_id", Uuid, nullable=False),
    own("claim_id", "claims"),
    Column("machine_id", Uuid, ForeignKey("machines.id"), nullable=False),
    # The lease in need, which may be another tenant's: there is no reference that its tenant could follow.
    Column("for_lease_id", Uuid, nullable=False),
    # The offer of the machine. Nobody else orders there while the machine is taken back.
    Column("offer_key", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("harm_gpu_seconds", BigInteger, nullable=False),
    at("notified_at", nullable=False),
    at("interrupt_at", nullable=False),
    at("interrupted_at"),
    # The machine that was ordered last in place of the one that was taken back, and how many were.
    Column("ordered_machine_id", Uuid, ForeignKey("machines.id")),
    Column("orders", Integer, nullable=False, server_default=text("0")),
    at("closed_at"),
    known("state", PreemptionState),
    CheckConstraint(f"(closed_at IS NULL) = ({among('state', OPEN)})", name="open_until_closed"),
    CheckConstraint("interrupt_at > notified_at", name="notice_comes_first"),
    CheckConstraint("(orders = 0) = (ordered_machine_id IS NULL)", name="orders_have_a_machine"),
    UniqueConstraint("organization_id", "id"),
    Index(
        "uq_preemptions_open_of_lease", "lease_id", unique=True, postgresql_where=text("closed_at IS NULL")
    ),
    Index(
        "uq_preemptions_open_for_lease",
        "for_lease_id",
        unique=True,
        postgresql_where=text("closed_at IS NULL"),
    ),
    Index("ix_preemptions_lease_id", "lease_id"),
    Index("ix_preemptions_for_lease_id", "for_lease_id"),
    Index("ix_preemptions_organization_id_interrupted_at", "organization_id", "interrupted_at"),
    Index("ix_preemptions_ordered_machine_id", "ordered_machine_id"),
    Index("ix_preemptions_notified_at", text("notified_at DESC"), text("id DESC")),
    tenancy=Tenancy.WATCHED,
    lookups=Lookups.READ,
)

# Every decision about a lease in need, with what it was based on. One that repeats the last one is not stored.
preemption_decisions = table(
    "preemption_decisions",
    Column("id", Uuid, primary_key=True),
    at("at", nullable=False),
    Column("for_lease_id", Uuid, nullable=False),
    # The lease that yields, or would; null where none does.
    Column("lease_id", Uuid),
    Column("preemption_id", Uuid, ForeignKey("preemptions.id")),
    Column("decision", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("evidence", JSONB, nullable=False),
    known("decision", PreemptionDecision),
    Index("ix_preemption_decisions_for_lease_id_at", "for_lease_id", "at"),
    Index("ix_preemption_decisions_preemption_id", "preemption_id"),
    Index("ix_preemption_decisions_at", text("at DESC"), text("id DESC")),
    tenancy=Tenancy.PLATFORM,
    fact=True,
)

# Whether preemptions happen, as operators decided. The last row counts; without one, they do not.
preemption_switches = table(
    "preemption_switches",
    Column("id", Uuid, primary_key=True),
    at("at", nullable=False),
    Column("armed", Boolean, nullable=False),
    Column("switched_by", Text, nullable=False),
    Column("reason", Text, nullable=False),
    tenancy=Tenancy.PLATFORM,
    fact=True,
    api=("INSERT",),
)
