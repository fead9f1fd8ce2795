"""Invoices and credit notes with their lines, the numbers of documents, and who is invoiced."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from control_plane.db.tables.marks import Tenancy, at, known, own, table, tenant
from control_plane.domain.invoice import TAX_RATE_MAX, DocumentSeries, LineKind
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.sku import Unit
from control_plane.domain.sla import SlaTier


def _buyer() -> tuple[Column[str] | Column[int] | Column[bool] | CheckConstraint, ...]:
    """Who is invoiced, and at which rate of tax: the current details, and those that an invoice was issued with."""
    return (
        Column("legal_name", Text, nullable=False),
        Column("address", ARRAY(Text), nullable=False),
        Column("country", Text, nullable=False),
        Column("tax_id", Text),
        # In basis points.
        Column("tax_rate", Integer, nullable=False),
        Column("reverse_charge", Boolean, nullable=False),
        CheckConstraint(f"tax_rate BETWEEN 0 AND {TAX_RATE_MAX}", name="tax_rate_bounded"),
        CheckConstraint(
            "NOT reverse_charge OR (tax_rate = 0 AND tax_id IS NOT NULL)", name="reverse_charge_untaxed"
        ),
    )


# Finance writes them; whoever they describe reads them.
billing_details = table(
    "billing_details",
    Column("organization_id", Uuid, ForeignKey("organizations.id"), primary_key=True),
    *_buyer(),
    at("changed_at", nullable=False),
    Column("changed_by", Text, nullable=False),
    tenancy=Tenancy.OFFERED,
    api=("INSERT", "UPDATE"),
)

# How far customers may use capacity before they pay. An organization without a row is prepaid.
credit_terms = table(
    "credit_terms",
    Column("organization_id", Uuid, ForeignKey("organizations.id"), primary_key=True),
    Column("limit_nano", BigInteger, nullable=False),
    Column("payment_days", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    at("changed_at", nullable=False),
    Column("changed_by", Text, nullable=False),
    CheckConstraint("limit_nano >= 0", name="not_negative"),
    CheckConstraint("payment_days BETWEEN 0 AND 120", name="days_bounded"),
    tenancy=Tenancy.OFFERED,
    api=("INSERT", "UPDATE"),
)

# The last number of each series, locked by whoever issues a document until its transaction ends: a sequence of
# PostgreSQL would leave a gap when a transaction is rolled back.
document_numbers = table(
    "document_numbers",
    Column("issuer", Text, ForeignKey("issuers.code"), nullable=False),
    Column("series", Text, nullable=False),
    Column("year", Integer, nullable=False),
    Column("last", Integer, nullable=False),
    PrimaryKeyConstraint("issuer", "series", "year"),
    known("series", DocumentSeries),
    CheckConstraint("last >= 0", name="not_negative"),
    tenancy=Tenancy.PLATFORM,
    api=("INSERT",),
    api_updates=("last",),
)

invoices = table(
    "invoices",
    Column("id", Uuid, primary_key=True),
    tenant(),
    Column("issuer", Text, ForeignKey("issuers.code"), nullable=False),
    # The first instant of the month.
    at("period", nullable=False),
    Column("number", Text, nullable=False),
    Column("seller", Text, nullable=False),
    Column("seller_address", ARRAY(Text), nullable=False),
    Column("seller_tax_id", Text),
    *_buyer(),
    Column("usage_nano", BigInteger, nullable=False),
    Column("credits_nano", BigInteger, nullable=False),
    Column("adjustment_nano", BigInteger, nullable=False),
    Column("subtotal_cents", BigInteger, nullable=False),
    Column("tax_cents", BigInteger, nullable=False),
    Column("paid_cents", BigInteger, nullable=False),
    # After how many days it has to be paid.
    Column("payment_days", Integer, nullable=False),
    at("issued_at", nullable=False),
    # The id of the subject.
    Column("issued_by", Text, nullable=False),
    CheckConstraint(
        "subtotal_cents * 10000000 = usage_nano - credits_nano + adjustment_nano", name="adds_up"
    ),
    CheckConstraint("adjustment_nano BETWEEN -9999999 AND 0", name="rounded_down"),
    CheckConstraint(
        "usage_nano >= 0 AND credits_nano <= usage_nano AND tax_cents >= 0"
        " AND paid_cents BETWEEN 0 AND subtotal_cents + tax_cents",
        name="bounded",
    ),
    UniqueConstraint("organization_id", "id"),
    UniqueConstraint("organization_id", "period"),
    UniqueConstraint("issuer", "number"),
    Index("ix_invoices_issued_at", "issued_at", "id"),
    Index("ix_invoices_organization_id_issued_at", "organization_id", "issued_at", "id"),
    fact=True,
    tenancy=Tenancy.OFFERED,
    api=("INSERT",),
)

invoice_lines = table(
    "invoice_lines",
    Column("invoice_id", Uuid, nullable=False),
    Column("number", Integer, nullable=False),
    tenant(),
    own("invoice_id", "invoices"),
    Column("kind", Text, nullable=False),
    Column("project_id", Uuid),
    # The name of the project when the invoice was issued.
    Column("project", Text),
    Column("sku", Text),
    Column("purchase", Text),
    Column("sla", Text),
    Column("stopped", Boolean),
    Column("unused", Boolean),
    Column("unit", Text),
    Column("nano_per_unit_hour", BigInteger),
    # The first instant of the month in which the time was used. Earlier than the invoice's: a correction.
    at("used_in"),
    Column("unit_seconds", BigInteger),
    # Of a credit: the transaction or the credit note that gave it, the lease whose promise was broken, and why.
    Column("credit_id", Uuid),
    Column("lease_id", Uuid),
    Column("reason", Text),
    Column("amount_nano", BigInteger, nullable=False),
    Column("cents", BigInteger, nullable=False),
    PrimaryKeyConstraint("invoice_id", "number", "organization_id"),
    own("project_id", "projects"),
    own("lease_id", "leases"),
    known("kind", LineKind),
    known("purchase", PurchaseKind),
    known("sla", SlaTier),
    known("unit", Unit),
    CheckConstraint(
        f"kind <> '{LineKind.USAGE}' OR num_nulls(project_id, project, sku, purchase, sla, stopped, unused, unit,"
        " nano_per_unit_hour, used_in, unit_seconds) = 0",
        name="usage_whole",
    ),
    CheckConstraint(
        f"kind = '{LineKind.CREDIT}' OR num_nonnulls(credit_id, lease_id, reason) = 0", name="credit_alone"
    ),
    Index(
        "ix_invoice_lines_credit_id",
        "organization_id",
        "credit_id",
        postgresql_where=text("credit_id IS NOT NULL"),
    ),
    fact=True,
    tenancy=Tenancy.OFFERED,
    api=("INSERT",),
)

credit_notes = table(
    "credit_notes",
    Column("id", Uuid, primary_key=True),
    tenant(),
    Column("invoice_id", Uuid, nullable=False),
    own("invoice_id", "invoices"),
    Column("issuer", Text, ForeignKey("issuers.code"), nullable=False),
    Column("number", Text, nullable=False),
    # The sum of its lines.
    Column("credited_cents", BigInteger, nullable=False),
    # By how much it lowers what is taxed; the rest had been paid for by credits.
    Column("net_cents", BigInteger, nullable=False),
    Column("tax_cents", BigInteger, nullable=False),
    Column("credits_nano", BigInteger, nullable=False),
    # What went to the balance; the rest is owed less.
    Column("to_wallet_nano", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    at("issued_at", nullable=False),
    # The id of the subject that decided on it.
    Column("issued_by", Text, nullable=False),
    CheckConstraint(
        "credited_cents > 0 AND net_cents BETWEEN 0 AND credited_cents AND tax_cents BETWEEN 0 AND net_cents"
        " AND credits_nano >= 0 AND to_wallet_nano BETWEEN 0 AND (net_cents + tax_cents) * 10000000 + credits_nano",
        name="bounded",
    ),
    # What is printed of credits is in whole cents, and what is given back of them is exact.
    CheckConstraint("abs((credited_cents - net_cents) * 10000000 - credits_nano) < 10000000", name="adds_up"),
    UniqueConstraint("organization_id", "id"),
    UniqueConstraint("issuer", "number"),
    Index("ix_credit_notes_issued_at", "issued_at", "id"),
    Index("ix_credit_notes_organization_id_issued_at", "organization_id", "issued_at", "id"),
    Index("ix_credit_notes_invoice_id", "invoice_id"),
    fact=True,
    tenancy=Tenancy.OFFERED,
    api=("INSERT",),
)

credit_note_lines = table(
    "credit_note_lines",
    Column("credit_note_id", Uuid, nullable=False),
    Column("number", Integer, nullable=False),
    tenant(),
    own("credit_note_id", "credit_notes"),
    # The line that it corrects, of the invoice of its credit note.
    Column("invoice_id", Uuid, nullable=False),
    Column("invoice_line", Integer, nullable=False),
    Column("cents", BigInteger, nullable=False),
    PrimaryKeyConstraint("credit_note_id", "number", "organization_id"),
    UniqueConstraint(
        "organization_id", "credit_note_id", "invoice_line", name="uq_credit_note_lines_invoice_line"
    ),
    ForeignKeyConstraint(
        ["invoice_id", "invoice_line", "organization_id"],
        ["invoice_lines.invoice_id", "invoice_lines.number", "invoice_lines.organization_id"],
    ),
    CheckConstraint("cents > 0", name="positive"),
    Index("ix_credit_note_lines_invoice_id", "invoice_id", "invoice_line"),
    fact=True,
    tenancy=Tenancy.OFFERED,
    api=("INSERT",),
)
