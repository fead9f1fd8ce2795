"""What the agents of machines measured lately.

Samples stay for a few hours, and then their whole hour goes at once. So the table is a ring of partitions: `slot` is
the hour of `received_at`, modulo their number. A loop empties those whose hours are over, which needs no right to
create or drop a table (docs/decisions/0091-samples-in-a-ring.md).
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.db.tables.marks import Lookups, Tenancy, at, table

SAMPLE_SLOTS = 6
"""How many partitions there are: the migration makes `samples_0` to `samples_5`."""

# What a machine's agent claims that it read at one moment. It has no foreign keys: its ids come from the row of the
# agent whose credential was presented, and a key would lock the rows of busy organizations with every batch.
samples = table(
    "samples",
    Column("slot", SmallInteger, nullable=False),
    Column("organization_id", Uuid, nullable=False),
    Column("project_id", Uuid, nullable=False),
    Column("claim_id", Uuid, nullable=False),
    Column("lease_id", Uuid, nullable=False),
    Column("machine_id", Uuid, nullable=False),
    # Grows with each sample of a claim's agent. A second sample with the same one is not stored.
    Column("sequence", BigInteger, nullable=False),
    # When it was read, by our clock: the machine's time, corrected by the skew that its delivery showed.
    at("at", nullable=False),
    at("received_at", nullable=False),
    # How far the machine's clock was ahead of ours (or behind it, if negative), as far as its delivery shows.
    Column("skew_ms", Integer, nullable=False),
    # Whether it reports what somebody has to look at, such as a lost GPU or a new XID.
    Column("notable", Boolean, nullable=False),
    Column("document", JSONB, nullable=False),
    CheckConstraint(
        f"slot = mod(floor(extract(epoch FROM received_at) / 3600)::bigint, {SAMPLE_SLOTS})",
        name="in_its_slot",
    ),
    Index("ix_samples_claim_id", "claim_id", text("at DESC")),
    Index("ix_samples_received_at", "received_at", "claim_id", "sequence"),
    Index("ix_samples_notable", "received_at", "claim_id", "sequence", postgresql_where=text("notable")),
    tenancy=Tenancy.WATCHED,
    fact=True,
    lookups=Lookups.READ,
    ingest=True,
    partition_by="LIST (slot)",
)

# The hours of samples that are written to files, where an archive is configured.
sample_archives = table(
    "sample_archives",
    at("hour", nullable=False),
    # How many samples were received in it, and what of them is written.
    Column("received", BigInteger),
    Column("rows", BigInteger),
    Column("files", Integer),
    Column("bytes", BigInteger),
    Column("manifest_sha256", LargeBinary),
    at("written_at"),
    # It was emptied before it was written.
    at("lost_at"),
    # Its files were deleted, because they were old.
    at("deleted_at"),
    PrimaryKeyConstraint("hour"),
    CheckConstraint(
        "num_nulls(received, rows, files, bytes, manifest_sha256, written_at) IN (0, 6)", name="written_whole"
    ),
    CheckConstraint("written_at IS NULL OR lost_at IS NULL", name="written_or_lost"),
    CheckConstraint("deleted_at IS NULL OR written_at IS NOT NULL", name="deleted_after_written"),
    Index(
        "ix_sample_archives_unwritten",
        "hour",
        postgresql_where=text("written_at IS NULL AND lost_at IS NULL"),
    ),
    shared="how far our loops are",
)

# How far samples were written to each store outside: the place of the last one, in the order of their arrival.
sample_exports = table(
    "sample_exports",
    Column("target", Text, primary_key=True),
    at("received_at", nullable=False),
    Column("claim_id", Uuid, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    shared="how far our loops are",
)
