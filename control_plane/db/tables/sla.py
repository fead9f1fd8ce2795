"""Service levels: what each tier promises."""

from sqlalchemy import Boolean, CheckConstraint, Column, Integer, PrimaryKeyConstraint, Text
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.db.tables.marks import at, known, table
from control_plane.domain.sla import WHOLE_BP, SlaTier

# A version is the terms of all tiers together, and is in force until the next one is. Leases keep theirs.
sla_terms = table(
    "sla_terms",
    Column("version", Integer, nullable=False, autoincrement=False),
    Column("tier", Text, nullable=False),
    at("effective_from", nullable=False),
    # Times are in seconds, and credits in basis points of what a lease was charged for a month. Null: not promised.
    Column("ready_seconds", Integer),
    Column("ready_credit_bp", Integer, nullable=False),
    Column("replacement_seconds", Integer),
    Column("replacement_credit_bp", Integer, nullable=False),
    Column("degraded_seconds", Integer),
    Column("notice_seconds", Integer),
    Column("notice_credit_bp", Integer, nullable=False),
    # Steps of `below_bp` and `credit_bp`, the highest first.
    Column("availability", JSONB, nullable=False),
    Column("replace_before_end", Boolean, nullable=False),
    Column("priority", Integer, nullable=False),
    PrimaryKeyConstraint("version", "tier"),
    known("tier", SlaTier),
    CheckConstraint("priority BETWEEN 0 AND 100", name="priority_in_range"),
    CheckConstraint(
        "least(ready_seconds, replacement_seconds, degraded_seconds, notice_seconds) > 0",
        name="times_positive",
    ),
    CheckConstraint(
        "least(ready_credit_bp, replacement_credit_bp, notice_credit_bp) >= 0"
        f" AND greatest(ready_credit_bp, replacement_credit_bp, notice_credit_bp) <= {WHOLE_BP}",
        name="credits_are_shares",
    ),
    shared="the terms are the same for everyone",
    fact=True,
    admin=("INSERT",),
)
