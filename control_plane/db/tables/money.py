"""Metered time, its price, the ledger, and holds."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)

from control_plane.db.tables.marks import Lookups, Tenancy, among, at, known, own, project, table, tenant
from control_plane.domain.ledger import APPROVED, OURS, AccountKind, TransactionKind
from control_plane.domain.period import PeriodEvent, PeriodState
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.sla import SlaTier


def booked(moment: str) -> CheckConstraint:
    """A CHECK that the column `period` is the first instant of a month (UTC), and not before that of `moment`."""
    months = "period = date_trunc('month', period AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'"
    own = f"date_trunc('month', {moment} AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'"
    return CheckConstraint(f"{months} AND period >= {own}", name="booked")


# The legal entities that sell to customers. The first migration makes one, `main`.
issuers = table(
    "issuers",
    Column("code", Text, primary_key=True),
    Column("name", Text, nullable=False),
    shared="they are the sellers, no customers",
)

# Months whose books somebody has begun to close. A month without a row is open.
periods = table(
    "periods",
    Column("issuer", Text, ForeignKey("issuers.code"), nullable=False),
    # Its first instant.
    at("month", nullable=False),
    Column("state", Text, nullable=False),
    at("changed_at", nullable=False),
    Column("changed_by", Text, nullable=False),
    # Who asked for the reopening. Somebody else has to agree: a trigger refuses the same person.
    at("reopening_requested_at"),
    Column("reopening_requested_by", Text),
    Column("reopening_reason", Text),
    PrimaryKeyConstraint("issuer", "month"),
    known("state", PeriodState),
    CheckConstraint(
        "month = date_trunc('month', month AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'", name="months"
    ),
    CheckConstraint(
        "num_nonnulls(reopening_requested_at, reopening_requested_by, reopening_reason) IN (0, 3)",
        name="reopening_whole",
    ),
    tenancy=Tenancy.PLATFORM,
    api=("INSERT",),
    api_updates=(
        "state",
        "changed_at",
        "changed_by",
        "reopening_requested_at",
        "reopening_requested_by",
        "reopening_reason",
    ),
    lookups=Lookups.READ,
)

period_events = table(
    "period_events",
    Column("id", Uuid, primary_key=True),
    Column("issuer", Text, nullable=False),
    at("month", nullable=False),
    Column("event", Text, nullable=False),
    at("at", nullable=False),
    Column("by", Text, nullable=False),
    Column("reason", Text),
    known("event", PeriodEvent),
    Index("ix_period_events_month", "issuer", "month", "id"),
    tenancy=Tenancy.PLATFORM,
    fact=True,
    api=("INSERT",),
)

# Money that is set aside for the next hour of a live lease.
holds = table(
    "holds",
    Column("lease_id", Uuid, nullable=False),
    tenant(),
    own("lease_id", "leases"),
    Column("amount_nano", BigInteger, nullable=False),
    # What was posted for the lease so far.
    Column("posted_nano", BigInteger, nullable=False, server_default=text("0")),
    at("placed_at", nullable=False),
    # When the hold is checked next: about when half of it is used. Null until the lease is ready.
    at("due_at"),
    at("released_at"),
    # Until when the data of a machine is kept that was stopped for lack of money. It stays when the lease ends then.
    at("kept_until"),
    # With the organization, so that no tenant can find out by a collision whether another one has a hold.
    PrimaryKeyConstraint("lease_id", "organization_id"),
    CheckConstraint("amount_nano >= 0", name="not_negative"),
    CheckConstraint("released_at IS NULL OR amount_nano = 0", name="released_holds_nothing"),
    Index("ix_holds_open", "organization_id", postgresql_where=text("released_at IS NULL")),
    Index("ix_holds_kept", "organization_id", postgresql_where=text("kept_until IS NOT NULL")),
    Index("ix_holds_due", "due_at", postgresql_where=text("released_at IS NULL AND due_at IS NOT NULL")),
    api=("INSERT", "UPDATE"),
)

intervals = table(
    "intervals",
    Column("lease_id", Uuid, nullable=False),
    Column("number", Integer, nullable=False),
    tenant(of_owner=True),
    *project(),
    own("lease_id", "leases"),
    Column("machine_id", Uuid, ForeignKey("machines.id"), nullable=False),
    Column("provider", Text, nullable=False),
    Column("region", Text, nullable=False),
    at("started_at", nullable=False),
    at("ended_at", nullable=False),
    Column("unit_seconds_before", BigInteger, nullable=False),
    Column("unit_seconds", BigInteger, nullable=False),
    Column("final", Boolean, nullable=False),
    # Whether it is charged as a stopped machine. `unit_seconds_before` counts what was charged alike.
    Column("stopped", Boolean, nullable=False),
    # Whether it is the rest of a term, which its customer did not use.
    Column("unused", Boolean, nullable=False, server_default=text("false")),
    at("recorded_at", nullable=False),
    PrimaryKeyConstraint("lease_id", "number"),
    CheckConstraint("ended_at >= started_at", name="ends_after_start"),
    CheckConstraint("unit_seconds >= 0 AND unit_seconds_before >= 0", name="not_negative"),
    fact=True,
    lookups=Lookups.READ,
)

# A queue, not a fact: an interval waits here until it is rated, and is deleted by the transaction that rates it.
unrated = table(
    "unrated",
    Column("lease_id", Uuid, nullable=False),
    Column("number", Integer, nullable=False),
    tenant(),
    # In the order in which they are taken. An interval, whose number is unique in its lease, is queued once.
    PrimaryKeyConstraint("organization_id", "lease_id", "number"),
    lookups=Lookups.READ,
)

charges = table(
    "charges",
    Column("id", Uuid, primary_key=True),
    tenant(of_owner=True),
    *project(),
    Column("lease_id", Uuid, nullable=False),
    own("lease_id", "leases"),
    Column("number", Integer, nullable=False),
    Column("machine_id", Uuid, ForeignKey("machines.id"), nullable=False),
    Column("provider", Text, nullable=False),
    Column("region", Text, nullable=False),
    Column("sku", Text, nullable=False),
    Column("purchase", Text, nullable=False),
    # The tier that the lease was sold with.
    Column("sla", Text, nullable=False),
    Column("price_book", Integer, ForeignKey("price_books.version"), nullable=False),
    at("started_at", nullable=False),
    at("ended_at", nullable=False),
    Column("unit_seconds", BigInteger, nullable=False),
    Column("stopped", Boolean, nullable=False),
    Column("unused", Boolean, nullable=False, server_default=text("false")),
    Column("nano_per_unit_hour", BigInteger, nullable=False),
    # What the price book said when the lease was admitted. Of a stopped machine, the price itself.
    Column("list_nano_per_unit_hour", BigInteger, nullable=False),
    Column("amount_nano", BigInteger, nullable=False),
    # The first instant of the month in which it is booked. Later than that of `started_at`: it corrects a closed month.
    at("period", nullable=False),
    at("rated_at", nullable=False),
    UniqueConstraint("lease_id", "number"),
    known("purchase", PurchaseKind),
    known("sla", SlaTier),
    booked("started_at"),
    CheckConstraint("amount_nano >= 0", name="not_negative"),
    Index("ix_charges_organization_id_started_at", "organization_id", "started_at"),
    Index("ix_charges_organization_id_period", "organization_id", "period", "started_at", "id"),
    fact=True,
    lookups=Lookups.READ,
)

# An account has a kind and an owner. Accounts without an organization are ours, one of each kind.
ledger_accounts = table(
    "ledger_accounts",
    Column("id", Uuid, primary_key=True),
    tenant(nullable=True),
    Column("kind", Text, nullable=False),
    at("created_at", nullable=False),
    known("kind", AccountKind),
    CheckConstraint(f"(organization_id IS NULL) = ({among('kind', OURS)})", name="owner_fits_kind"),
    UniqueConstraint("organization_id", "kind", postgresql_nulls_not_distinct=True),
    tenancy=Tenancy.OURS_VISIBLE,
    fact=True,
    api=("INSERT",),
    admin=("INSERT",),
    lookups=Lookups.READ,
)

transactions = table(
    "transactions",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *project(nullable=True),
    Column("key", Text, nullable=False),
    Column("kind", Text, nullable=False),
    at("effective_at", nullable=False),
    # The first instant of the month in which it is booked. Later than that of `effective_at`: it corrects a closed one.
    at("period", nullable=False),
    # Who decided on it, and why.
    Column("approved_by", Text),
    Column("reason", Text),
    at("recorded_at", nullable=False),
    # Counts the transactions of the organization in the order in which they were posted, without a gap.
    Column("number", BigInteger, nullable=False),
    # What its wallet and its receivable had after this transaction: sums of all its postings so far, credit positive.
    Column("wallet_after_nano", BigInteger, nullable=False),
    Column("receivable_after_nano", BigInteger, nullable=False),
    known("kind", TransactionKind),
    booked("effective_at"),
    CheckConstraint(
        f"({among('kind', APPROVED)}) = (approved_by IS NOT NULL AND reason IS NOT NULL)", name="approved"
    ),
    UniqueConstraint("organization_id", "id"),
    UniqueConstraint("organization_id", "key"),
    UniqueConstraint("organization_id", "number"),
    Index("ix_transactions_organization_id_period", "organization_id", "period", "effective_at"),
    Index("ix_transactions_organization_id_period_number", "organization_id", "period", "number"),
    # Among many charges, the few transactions of other kinds are found without reading the charges.
    Index(
        "ix_transactions_organization_id_kind",
        "organization_id",
        "kind",
        "number",
        postgresql_where=text(f"kind <> '{TransactionKind.USAGE}'"),
    ),
    fact=True,
    api=("INSERT",),
    admin=("INSERT",),
    lookups=Lookups.READ,
)

# `organization_id` says whose money moved, also on postings to our own accounts: every row has a tenant.
postings = table(
    "postings",
    Column("transaction_id", Uuid, nullable=False),
    Column("line", SmallInteger, nullable=False),
    tenant(of_owner=True),
    # That of the transaction: a trigger refuses any other one.
    Column("project_id", Uuid),
    # An account of the same organization, or of ours: a trigger refuses any other id.
    Column("account_id", Uuid, nullable=False),
    Column("amount_nano", BigInteger, nullable=False),
    own("transaction_id", "transactions"),
    PrimaryKeyConstraint("transaction_id", "line", "organization_id"),
    CheckConstraint("amount_nano <> 0", name="not_zero"),
    Index("ix_postings_organization_id_account_id", "organization_id", "account_id"),
    # The entries of an account, in the order of time: ids of transactions are UUIDv7.
    Index("ix_postings_account_id_transaction_id", "account_id", "transaction_id"),
    fact=True,
    api=("INSERT",),
    admin=("INSERT",),
    lookups=Lookups.READ,
)
# As a foreign key of `account_id` would say: see above.
postings.add_is_dependent_on(ledger_accounts)
