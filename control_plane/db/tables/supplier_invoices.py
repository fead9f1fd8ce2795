"""What suppliers invoice us: files on their way, as finance imported them, and what was posted of them."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.db.tables.marks import Tenancy, at, known, table
from control_plane.domain.supplier_invoice import SupplierEvent

# A file that is on its way, until it is imported or too old.
supplier_uploads = table(
    "supplier_uploads",
    Column("id", Uuid, primary_key=True),
    Column("provider", Text, nullable=False),
    # The first instant of the month.
    at("month", nullable=False),
    at("begun_at", nullable=False),
    Column("begun_by", Text, nullable=False),
    Index("ix_supplier_uploads_begun_at", "begun_at"),
    tenancy=Tenancy.PLATFORM,
    api=("INSERT", "DELETE"),
)

# Whole lines of the file: as they were sent, and as they were read (domain/supplier_invoice.py).
supplier_upload_parts = table(
    "supplier_upload_parts",
    Column("upload_id", Uuid, ForeignKey("supplier_uploads.id", ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("first_line", Integer, nullable=False),
    Column("line_count", Integer, nullable=False),
    Column("size", Integer, nullable=False),
    Column("amount_nano", BigInteger, nullable=False),
    Column("content", Text, nullable=False),
    Column("lines", JSONB, nullable=False),
    PrimaryKeyConstraint("upload_id", "number"),
    CheckConstraint("number > 0 AND first_line > 0 AND line_count > 0 AND size > 0", name="not_empty"),
    tenancy=Tenancy.PLATFORM,
    api=("INSERT",),
    api_updates=("first_line", "line_count", "size", "amount_nano", "content", "lines"),
)

# An import is the supplier's whole invoice of a month. The last one counts, and the earlier ones are kept.
supplier_invoices = table(
    "supplier_invoices",
    Column("id", Uuid, primary_key=True),
    Column("provider", Text, nullable=False),
    # The first instant of the month.
    at("month", nullable=False),
    # The SHA-256 of the file, and the number and the sum of its lines.
    Column("sha256", Text, nullable=False),
    Column("line_count", Integer, nullable=False),
    Column("amount_nano", BigInteger, nullable=False),
    at("imported_at", nullable=False),
    Column("imported_by", Text, nullable=False),
    CheckConstraint("line_count > 0", name="has_lines"),
    Index("ix_supplier_invoices_month_provider", "month", "provider", "imported_at"),
    Index("ix_supplier_invoices_imported_at", "imported_at", "id"),
    tenancy=Tenancy.PLATFORM,
    fact=True,
    api=("INSERT",),
)

# Its lines, a part of the file in each row.
supplier_invoice_parts = table(
    "supplier_invoice_parts",
    Column("invoice_id", Uuid, ForeignKey("supplier_invoices.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("lines", JSONB, nullable=False),
    PrimaryKeyConstraint("invoice_id", "number"),
    tenancy=Tenancy.PLATFORM,
    fact=True,
    api=("INSERT",),
)

# What somebody decided on a supplier's invoice, and what the ledger got for it: the difference from what it had of the
# supplier's month. There is no transaction where that is nothing.
supplier_postings = table(
    "supplier_postings",
    Column("id", Uuid, primary_key=True),
    Column("invoice_id", Uuid, ForeignKey("supplier_invoices.id"), nullable=False),
    Column("provider", Text, nullable=False),
    at("month", nullable=False),
    Column("event", Text, nullable=False),
    Column("amount_nano", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    at("decided_at", nullable=False),
    # The id of the subject.
    Column("decided_by", Text, nullable=False),
    known("event", SupplierEvent),
    Index("ix_supplier_postings_month_provider", "month", "provider", "decided_at"),
    Index("ix_supplier_postings_invoice_id", "invoice_id"),
    tenancy=Tenancy.PLATFORM,
    fact=True,
    api=("INSERT",),
)
