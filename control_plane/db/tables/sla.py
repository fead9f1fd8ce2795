"""Service levels: what each tier promises, which promises were broken, and what was given back."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.db.tables.marks import Tenancy, at, known, own, project, table, tenant
from control_plane.domain.sla import WHOLE_BP, SlaTier
from control_plane.domain.sla_clock import Promise

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

# When the promises of a lease are judged next. A lease with promises has a row from its creation on.
sla_clocks = table(
    "sla_clocks",
    Column("lease_id", Uuid, nullable=False),
    tenant(),
    own("lease_id", "leases"),
    # Null: nothing can change any more.
    at("due_at"),
    at("judged_at"),
    # Whether its end was seen: it brings the next judgement forward.
    Column("ended", Boolean, nullable=False, server_default=text("false")),
    # Our work on its machines as of the last judgement, because only operators read the table that it is from.
    Column("maintenance", JSONB, nullable=False, server_default=text("'[]'")),
    PrimaryKeyConstraint("organization_id", "lease_id"),
    Index("ix_sla_clocks_due_at", "due_at", postgresql_where=text("due_at IS NOT NULL")),
    Index("ix_sla_clocks_running", "lease_id", postgresql_where=text("NOT ended")),
    api=("INSERT",),
)

# What a month came to for a lease, as of the last judgement: the report of a month adds it up.
sla_months = table(
    "sla_months",
    Column("lease_id", Uuid, nullable=False),
    tenant(),
    own("lease_id", "leases"),
    # The first instant of the month.
    at("month", nullable=False),
    Column("sla", Text, nullable=False),
    Column("promised_seconds", BigInteger, nullable=False),
    Column("down_seconds", BigInteger, nullable=False),
    Column("kept", Integer, nullable=False),
    Column("broken", Integer, nullable=False),
    PrimaryKeyConstraint("organization_id", "lease_id", "month"),
    known("sla", SlaTier),
    CheckConstraint("down_seconds BETWEEN 0 AND promised_seconds", name="down_is_a_part"),
    CheckConstraint("kept >= 0 AND broken >= 0", name="counts_not_negative"),
    Index("ix_sla_months_month", "month"),
    tenancy=Tenancy.WATCHED,
)

# A promise of a lease that was broken in a month, once.
sla_breaches = table(
    "sla_breaches",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *project(),
    Column("lease_id", Uuid, nullable=False),
    own("lease_id", "leases"),
    Column("promise", Text, nullable=False),
    # The first instant of the month.
    at("month", nullable=False),
    Column("sla", Text, nullable=False),
    Column("sla_version", Integer, nullable=False),
    # When it began to be broken, and when that was found.
    at("since", nullable=False),
    at("found_at", nullable=False),
    Column("why", Text, nullable=False),
    Column("evidence", JSONB, nullable=False),
    known("promise", Promise),
    ForeignKeyConstraint(["sla_version", "sla"], ["sla_terms.version", "sla_terms.tier"]),
    UniqueConstraint("organization_id", "id"),
    UniqueConstraint("lease_id", "promise", "month"),
    Index("ix_sla_breaches_organization_id_month", "organization_id", "month"),
    Index("ix_sla_breaches_month", "month"),
    fact=True,
    tenancy=Tenancy.WATCHED,
)

# What is to be given back for a breach, from this judgement on. Late evidence makes another one, up or down.
sla_assessments = table(
    "sla_assessments",
    Column("breach_id", Uuid, nullable=False),
    Column("number", Integer, nullable=False),
    tenant(),
    own("breach_id", "sla_breaches"),
    at("assessed_at", nullable=False),
    Column("charged_nano", BigInteger, nullable=False),
    Column("credit_nano", BigInteger, nullable=False),
    # What of it evidence from outside of the machine shows.
    Column("outside_nano", BigInteger, nullable=False),
    Column("why", Text, nullable=False),
    Column("evidence", JSONB, nullable=False),
    PrimaryKeyConstraint("breach_id", "number"),
    UniqueConstraint("organization_id", "breach_id", "number"),
    CheckConstraint("number > 0", name="number_positive"),
    CheckConstraint("credit_nano BETWEEN 0 AND charged_nano", name="no_more_than_charged"),
    CheckConstraint("outside_nano BETWEEN 0 AND credit_nano", name="outside_is_a_part"),
    fact=True,
    tenancy=Tenancy.WATCHED,
)

# A queue, not a fact: a breach waits here until the ledger has what its latest assessment says.
sla_uncredited = table(
    "sla_uncredited",
    Column("breach_id", Uuid, nullable=False),
    tenant(),
    own("breach_id", "sla_breaches"),
    at("since", nullable=False),
    PrimaryKeyConstraint("organization_id", "breach_id"),
    Index("ix_sla_uncredited_since", "since"),
    tenancy=Tenancy.WATCHED,
)

# The lease of an organization of which credits for a month are posted although only its machines show why.
sla_trusts = table(
    "sla_trusts",
    tenant(),
    # The first instant of the month.
    at("month", nullable=False),
    Column("lease_id", Uuid, nullable=False),
    own("lease_id", "leases"),
    at("since", nullable=False),
    PrimaryKeyConstraint("organization_id", "month"),
    fact=True,
    tenancy=Tenancy.WATCHED,
)

# Breaches of which a part of the credit waits for a decision, because only the machine shows it.
sla_undecided = table(
    "sla_undecided",
    Column("breach_id", Uuid, nullable=False),
    tenant(),
    Column("assessment", Integer, nullable=False),
    ForeignKeyConstraint(
        ["organization_id", "breach_id", "assessment"],
        ["sla_assessments.organization_id", "sla_assessments.breach_id", "sla_assessments.number"],
    ),
    Column("amount_nano", BigInteger, nullable=False),
    at("since", nullable=False),
    PrimaryKeyConstraint("organization_id", "breach_id"),
    CheckConstraint("amount_nano > 0", name="amount_positive"),
    Index("ix_sla_undecided_breach_id", "breach_id"),
    tenancy=Tenancy.WATCHED,
)

# Finance's decision on an assessment that waited, once. Later assessments of more wait again.
sla_decisions = table(
    "sla_decisions",
    Column("breach_id", Uuid, nullable=False),
    Column("assessment", Integer, nullable=False),
    tenant(),
    ForeignKeyConstraint(
        ["organization_id", "breach_id", "assessment"],
        ["sla_assessments.organization_id", "sla_assessments.breach_id", "sla_assessments.number"],
    ),
    Column("approved", Boolean, nullable=False),
    Column("decided_by", Text, nullable=False),
    Column("reason", Text, nullable=False),
    at("decided_at", nullable=False),
    PrimaryKeyConstraint("breach_id", "assessment"),
    fact=True,
    tenancy=Tenancy.OFFERED,
    api=("INSERT",),
)

# What the ledger got for an assessment: the difference from what it had. Negative for a correction downwards. An
# assessment has a second row when the part that waited was approved.
sla_credits = table(
    "sla_credits",
    Column("breach_id", Uuid, nullable=False),
    Column("assessment", Integer, nullable=False),
    tenant(),
    ForeignKeyConstraint(
        ["organization_id", "breach_id", "assessment"],
        ["sla_assessments.organization_id", "sla_assessments.breach_id", "sla_assessments.number"],
    ),
    Column("transaction_id", Uuid, nullable=False),
    own("transaction_id", "transactions"),
    Column("amount_nano", BigInteger, nullable=False),
    Column("approved", Boolean, nullable=False),
    at("credited_at", nullable=False),
    PrimaryKeyConstraint("breach_id", "assessment", "approved"),
    CheckConstraint("amount_nano <> 0", name="not_zero"),
    Index("ix_sla_credits_transaction_id", "transaction_id"),
    fact=True,
    tenancy=Tenancy.WATCHED,
)

# An operator's word that the breaches which were waiting then are to be credited, however many they are.
sla_approvals = table(
    "sla_approvals",
    Column("id", Uuid, primary_key=True),
    at("approved_at", nullable=False),
    Column("approved_by", Text, nullable=False),
    Column("reason", Text, nullable=False),
    tenancy=Tenancy.PLATFORM,
    fact=True,
    api=("INSERT",),
)
