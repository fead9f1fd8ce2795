"""GPU proofs: the evidence, the providers' records, and the reference times of honest GPUs."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from control_plane.db.tables.marks import Tenancy, among, at, known, project, table, tenant
from control_plane.domain.proof import Occasion, ProofOutcome

proofs = table(
    "proofs",
    Column("id", Uuid, primary_key=True),
    tenant(nullable=True),
    *project(nullable=True),
    Column("lease_id", Uuid),
    Column("machine_id", Uuid, ForeignKey("machines.id"), nullable=False),
    Column("account", Text, nullable=False),
    Column("offer_key", Text, nullable=False),
    Column("gpu_model", Text, nullable=False),
    Column("occasion", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("driver", Text, nullable=False),
    Column("reference", Text, nullable=False),
    Column("attested", Boolean, nullable=False),
    # The first finding; `findings` has all of them.
    Column("code", Text),
    Column("why", Text),
    Column("findings", JSONB, nullable=False),
    Column("hints", JSONB, nullable=False),
    Column("rates", JSONB, nullable=False),
    Column("gpu_uuids", ARRAY(Text), nullable=False),
    # Identities that its GPUs attested.
    Column("devices", ARRAY(Text), nullable=False),
    Column("proven_bytes", ARRAY(BigInteger), nullable=False),
    Column("seconds", Double, nullable=False),
    Column("evidence", JSONB, nullable=False),
    at("at", nullable=False),
    known("occasion", Occasion),
    known("outcome", ProofOutcome),
    Index("ix_proofs_lease_id_at", "lease_id", text("at DESC"), text("id DESC")),
    Index("ix_proofs_machine_id_at", "machine_id", text("at DESC")),
    Index("ix_proofs_gpu_uuids", "gpu_uuids", postgresql_using="gin"),
    Index("ix_proofs_devices", "devices", postgresql_using="gin"),
    Index("ix_proofs_passed", "at", postgresql_where=text(f"outcome = '{ProofOutcome.PASSED}'")),
    tenancy=Tenancy.MIXED,
    fact=True,
)

# The same proofs as a provider's record: what placement and operators read across all tenants.
proof_records = table(
    "proof_records",
    Column("proof_id", Uuid, primary_key=True),
    Column("machine_id", Uuid, nullable=False),
    Column("account", Text, ForeignKey("provider_accounts.name"), nullable=False),
    Column("offer_key", Text, nullable=False),
    Column("gpu_model", Text, nullable=False),
    Column("occasion", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("code", Text),
    Column("why", Text),
    # Whether its machine was terminated because of it.
    Column("ended", Boolean, nullable=False),
    at("at", nullable=False),
    known("occasion", Occasion),
    known("outcome", ProofOutcome),
    Index("ix_proof_records_at", text("at DESC"), text("proof_id DESC")),
    Index(
        "ix_proof_records_failed",
        "account",
        "at",
        postgresql_where=text(f"ended OR {among('outcome', (ProofOutcome.FAILED, ProofOutcome.EMULATED))}"),
    ),
    Index("ix_proof_records_ended", "at", postgresql_where=text("ended")),
    shared="how our providers' machines answered; says nothing of whose they were",
    fact=True,
)

# Rates that unrelated providers agree on, recomputed from the proofs: per second, in the units of each phase.
proof_references = table(
    "proof_references",
    Column("gpu_model", Text, nullable=False),
    Column("driver_major", Integer, nullable=False),
    Column("phase", Text, nullable=False),
    Column("rate", Double, nullable=False),
    Column("providers", Integer, nullable=False),
    Column("learnt_on", Text, nullable=False),
    PrimaryKeyConstraint("gpu_model", "driver_major", "phase"),
    CheckConstraint("rate > 0", name="rate_positive"),
    shared="how fast honest GPUs are",
)
