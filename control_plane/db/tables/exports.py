"""Exports of charges, what was delivered of them, and the names that their rows need."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
    Uuid,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from control_plane.db.tables.marks import at, known, own, table, tenant
from control_plane.domain.export_run import FileName

# What things were called when a charge was rated. It is no part of the charge, which stays for ever, because it is
# erased with its organization.
charge_names = table(
    "charge_names",
    Column("lease_id", Uuid, nullable=False),
    # Of the charge, in its lease.
    Column("number", Integer, nullable=False),
    tenant(of_owner=True),
    own("lease_id", "leases"),
    Column("project", Text, nullable=False),
    Column("lease", Text, nullable=False),
    Column("labels", JSONB, nullable=False),
    Column("node_pool", Text),
    # By organization first, which is what an erasure and row-level security find its rows by.
    PrimaryKeyConstraint("organization_id", "lease_id", "number"),
)

# The organization is the one that exported: an operator's, where the run covers all organizations.
export_runs = table(
    "export_runs",
    Column("id", Uuid, primary_key=True),
    tenant(),
    Column("covers_all", Boolean, nullable=False),
    at("period_start", nullable=False),
    Column("final", Boolean, nullable=False),
    # Who sells and invoices, as its rows name it.
    Column("seller", Text, nullable=False),
    # Charges that were rated after it are not in the export.
    at("cut_at", nullable=False),
    at("created_at", nullable=False),
    Column("created_by", Text, nullable=False),
    Column("previous_id", Uuid),
    Column("previous_sha256", LargeBinary),
    own("previous_id", "export_runs"),
    CheckConstraint("cut_at <= created_at", name="cut_before_it_was_made"),
    UniqueConstraint("organization_id", "id"),
    Index("ix_export_runs_organization_id_created_at", "organization_id", "created_at", "id"),
    fact=True,
    api=("INSERT",),
)

# A file of a run, when it was first delivered to its last byte.
export_files = table(
    "export_files",
    Column("run_id", Uuid, nullable=False),
    tenant(),
    own("run_id", "export_runs"),
    Column("name", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", LargeBinary, nullable=False),
    Column("rows", BigInteger, nullable=False),
    # Sums of columns by name, as decimals in text.
    Column("sums", JSONB, nullable=False),
    Column("price_books", ARRAY(Integer), nullable=False),
    at("delivered_at", nullable=False),
    PrimaryKeyConstraint("run_id", "name", "organization_id"),
    known("name", FileName),
    CheckConstraint("size > 0 AND rows >= 0", name="not_negative"),
    fact=True,
    api=("INSERT",),
)
