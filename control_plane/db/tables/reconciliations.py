"""Reconciliations of a month: who asked for one, what each customer's links came to, and every difference found."""

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
    Uuid,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from control_plane.db.tables.marks import Tenancy, at, known, table
from control_plane.domain.reconciliation import LinkName

reconciliations = table(
    "reconciliations",
    Column("id", Uuid, primary_key=True),
    # The first instant of the month.
    at("period", nullable=False),
    # Whether the month was closed when somebody asked.
    Column("closed", Boolean, nullable=False),
    # The last complete export of all customers at that time; null where there was none. A foreign key on its id alone
    # would tell whoever may write here which ids exports of customers have.
    Column("export_id", Uuid),
    at("asked_at", nullable=False),
    Column("asked_by", Text, nullable=False),
    # Whether customers that agree are stored as well, and not only those that differ.
    Column("all_customers", Boolean, nullable=False),
    Index("ix_reconciliations_asked_at", "asked_at", "id"),
    tenancy=Tenancy.PLATFORM,
    fact=True,
    api=("INSERT",),
)

# Customers are examined in batches, in the order of their ids. A batch without any left after it is the last one.
reconciliation_batches = table(
    "reconciliation_batches",
    Column("reconciliation_id", Uuid, ForeignKey("reconciliations.id"), nullable=False),
    Column("number", Integer, nullable=False),
    # The last customer of the batch; null where there was none.
    Column("reached", Uuid, ForeignKey("organizations.id")),
    Column("customers", Integer, nullable=False),
    Column("remaining", Integer, nullable=False),
    # The sums over the customers of the batch (domain/reconciliation.py, Amounts).
    Column("amounts", JSONB, nullable=False),
    at("examined_at", nullable=False),
    PrimaryKeyConstraint("reconciliation_id", "number"),
    CheckConstraint("number > 0 AND customers >= 0 AND remaining >= 0", name="not_negative"),
    tenancy=Tenancy.PLATFORM,
    fact=True,
)

reconciliation_differences = table(
    "reconciliation_differences",
    Column("reconciliation_id", Uuid, nullable=False),
    Column("batch", Integer, nullable=False),
    Column("customer_id", Uuid, ForeignKey("organizations.id"), nullable=False),
    Column("link", Text, nullable=False),
    Column("before_nano", BigInteger, nullable=False),
    Column("after_nano", BigInteger, nullable=False),
    # Ids of leases or charges that differ, as on the wire.
    Column("examples", ARRAY(Text), nullable=False),
    PrimaryKeyConstraint("reconciliation_id", "customer_id", "link"),
    ForeignKeyConstraint(
        ["reconciliation_id", "batch"],
        ["reconciliation_batches.reconciliation_id", "reconciliation_batches.number"],
    ),
    known("link", LinkName),
    tenancy=Tenancy.PLATFORM,
    fact=True,
)

# What each customer came to that was examined: of every one, or of those that differ (`reconciliations.all_customers`).
reconciliation_customers = table(
    "reconciliation_customers",
    Column("reconciliation_id", Uuid, nullable=False),
    Column("batch", Integer, nullable=False),
    Column("customer_id", Uuid, ForeignKey("organizations.id"), nullable=False),
    # Its amounts that are not zero (domain/reconciliation.py, Amounts). Both sides of each link follow from them.
    Column("amounts", JSONB, nullable=False),
    PrimaryKeyConstraint("reconciliation_id", "customer_id"),
    ForeignKeyConstraint(
        ["reconciliation_id", "batch"],
        ["reconciliation_batches.reconciliation_id", "reconciliation_batches.number"],
    ),
    tenancy=Tenancy.PLATFORM,
    fact=True,
)
