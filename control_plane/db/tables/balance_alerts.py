"""What organizations want to be warned of, what was noticed of their balances, and the record of it."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from control_plane.db.tables.marks import at, known, table, tenant
from control_plane.domain.exhaustion import BalanceEvent, BalanceState

# An organization without a row has the defaults.
balance_alerts = table(
    "balance_alerts",
    tenant(),
    # Null: the default threshold, which follows what the live leases cost.
    Column("below_nano", BigInteger),
    # Null: there is no budget.
    Column("month_budget_nano", BigInteger),
    Column("budget_percents", ARRAY(SmallInteger), nullable=False),
    at("changed_at", nullable=False),
    # The id of the subject.
    Column("changed_by", Text, nullable=False),
    PrimaryKeyConstraint("organization_id"),
    CheckConstraint("below_nano >= 0 AND month_budget_nano > 0", name="not_negative"),
    api=("INSERT", "UPDATE"),
)

# When it is looked at next is in `standings.balance_due_at`.
balance_states = table(
    "balance_states",
    tenant(),
    Column("state", Text, nullable=False),
    at("changed_at", nullable=False),
    # The sentence of the warning; null while there is none.
    Column("why", Text),
    # The month of the budget, as its first instant, and the highest share of it that was reached in that month.
    at("budget_month"),
    Column("budget_percent", Integer, nullable=False, server_default=text("0")),
    PrimaryKeyConstraint("organization_id"),
    known("state", BalanceState),
)

balance_events = table(
    "balance_events",
    Column("number", BigInteger, Identity(always=True), primary_key=True),
    tenant(),
    at("at", nullable=False),
    # The loop that noticed it.
    Column("actor", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("state_before", Text, nullable=False),
    Column("state_after", Text, nullable=False),
    Column("why", Text, nullable=False),
    # The money that caused it: the wallet, what was held of it, and the limit that was crossed.
    Column("balance_nano", BigInteger, nullable=False),
    Column("held_nano", BigInteger, nullable=False),
    Column("limit_nano", BigInteger, nullable=False),
    known("event", BalanceEvent),
    known("state_before", BalanceState),
    known("state_after", BalanceState),
    Index("ix_balance_events_organization_id_number", "organization_id", "number"),
    fact=True,
)
