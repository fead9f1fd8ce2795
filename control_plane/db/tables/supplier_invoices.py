"""What suppliers invoice us, as finance imported it."""

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Integer, Text, Uuid
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.db.tables.marks import Tenancy, at, table

# An import is the supplier's whole invoice of a month. The last one counts, and the earlier ones are kept.
supplier_invoices = table(
    "supplier_invoices",
    Column("id", Uuid, primary_key=True),
    Column("provider", Text, nullable=False),
    # The first instant of the month.
    at("month", nullable=False),
    # The SHA-256 of the file, its lines (domain/supplier_invoice.py), and their number and sum.
    Column("sha256", Text, nullable=False),
    Column("lines", JSONB, nullable=False),
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
