"""How healthy machines are: open faults and verdicts, what changed when, repairs, and what customers were told."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.db.tables.marks import Lookups, Tenancy, at, known, own, project, table, tenant, work
from control_plane.domain.health import FaultCode, Verdict
from control_plane.domain.notice import NoticeKind
from control_plane.domain.repair import RepairOutcome, RepairStep

# The verdict about a machine and its open faults, from the first fault on. A machine without a row is healthy as far
# as we know.
machine_health = table(
    "machine_health",
    Column("machine_id", Uuid, ForeignKey("machines.id"), primary_key=True),
    Column("verdict", Text, nullable=False),
    Column("fault", Text),
    Column("why", Text, nullable=False),
    at("since", nullable=False),
    at("judged_at", nullable=False),
    Column("faults", JSONB, nullable=False, server_default=text("'[]'")),
    # Faults that other rows of the machine tell of, as they were when it was judged: for those who read.
    Column("row_faults", JSONB, nullable=False, server_default=text("'[]'")),
    # Errors of the driver that mean more when they come again; a few for each GPU.
    Column("errors", JSONB, nullable=False, server_default=text("'[]'")),
    # The fastest PCIe link of each GPU at work, once one was slower than the driver says is possible.
    Column("links", JSONB, nullable=False, server_default=text("'[]'")),
    # Up to which sample of its agent it was judged.
    at("samples_until"),
    # Our own reading over SSH: when the last one was taken, which faults it showed, when the next one is due, and when
    # one was asked for last that no fault is the reason of.
    at("looked_at"),
    Column("looked", JSONB, nullable=False, server_default=text("'[]'")),
    Column("looked_why_not", Text),
    at("look_due_at"),
    at("look_asked_at"),
    Column("look_token", Uuid),
    at("look_until"),
    # When it was reset last, by us or by its customer's request.
    at("reset_at"),
    known("verdict", Verdict),
    known("fault", FaultCode),
    CheckConstraint(f"(fault IS NULL) = (verdict = '{Verdict.HEALTHY}')", name="fault_has_its_verdict"),
    Index(
        "ix_machine_health_not_healthy",
        "machine_id",
        postgresql_where=text(f"verdict <> '{Verdict.HEALTHY}' OR faults <> '[]'"),
    ),
    Index("ix_machine_health_look_due_at", "look_due_at", postgresql_where=text("look_due_at IS NOT NULL")),
    tenancy=Tenancy.OF_MACHINE,
    lookups=Lookups.READ,
)

# Every change of a verdict, and of whether everything that was sold still works with it. SLA clocks run on it.
health_changes = table(
    "health_changes",
    Column("number", BigInteger, Identity(always=True), primary_key=True),
    Column("machine_id", Uuid, ForeignKey("machines.id"), nullable=False),
    at("at", nullable=False),
    Column("verdict_before", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("fault", Text),
    Column("why", Text, nullable=False),
    Column("evidence", JSONB, nullable=False),
    known("verdict_before", Verdict),
    known("verdict", Verdict),
    known("fault", FaultCode),
    CheckConstraint(
        f"verdict <> verdict_before OR verdict = '{Verdict.MAINTENANCE_REQUIRED}'", name="changes"
    ),
    Index("ix_health_changes_machine_id_at", "machine_id", "at"),
    tenancy=Tenancy.OF_MACHINE,
    fact=True,
)

# What is done about a machine that is not healthy. At most one repair of a machine is open.
repairs = table(
    "repairs",
    Column("id", Uuid, primary_key=True),
    Column("machine_id", Uuid, ForeignKey("machines.id"), nullable=False),
    at("opened_at", nullable=False),
    Column("fault", Text, nullable=False),
    Column("step", Text, nullable=False),
    at("step_at", nullable=False),
    Column("why", Text, nullable=False),
    # When its customer was told what comes next.
    at("notified_at"),
    # Since when another machine is to be ready before this one is taken away.
    at("spare_wanted_at"),
    # When one is looked for next, after how many tries. Null before the first.
    at("spare_due_at"),
    Column("spare_tries", Integer, nullable=False, server_default=text("0")),
    *work(),
    at("closed_at"),
    Column("outcome", Text),
    known("fault", FaultCode),
    known("step", RepairStep),
    known("outcome", RepairOutcome),
    CheckConstraint("(closed_at IS NULL) = (outcome IS NULL)", name="outcome_has_its_time"),
    Index("uq_repairs_open", "machine_id", unique=True, postgresql_where=text("closed_at IS NULL")),
    Index("ix_repairs_due_at", "due_at", postgresql_where=text("closed_at IS NULL")),
    Index(
        "ix_repairs_spare_wanted_at",
        "spare_wanted_at",
        postgresql_where=text("closed_at IS NULL AND spare_wanted_at IS NOT NULL"),
    ),
    tenancy=Tenancy.OF_MACHINE,
)

# Machines that their customers want to have replaced.
hand_backs = table(
    "hand_backs",
    Column("claim_id", Uuid, nullable=False),
    tenant(),
    own("claim_id", "claims"),
    Column("lease_id", Uuid, nullable=False),
    own("lease_id", "leases"),
    Column("machine_id", Uuid, ForeignKey("machines.id"), nullable=False),
    at("asked_at", nullable=False),
    Column("why", Text, nullable=False),
    PrimaryKeyConstraint("organization_id", "claim_id"),
    Index("ix_hand_backs_machine_id", "machine_id"),
    api=("INSERT",),
)

# Machines that operators took out of service, until they give them back, and work that providers announce, until their
# lists show no more of it.
maintenances = table(
    "maintenances",
    Column("id", Uuid, primary_key=True),
    Column("machine_id", Uuid, ForeignKey("machines.id"), nullable=False),
    at("since", nullable=False),
    Column("taken_by", Text, nullable=False),
    Column("why", Text, nullable=False),
    # When the work is planned; its customer is told.
    at("planned_at"),
    # The provider's id of the announcement; null for what an operator took out.
    Column("event", Text),
    # When a list of the provider's planned work lacked it for the first time; null while the last one has it.
    at("unlisted_at"),
    # When the machine's customer was told what the provider announced, as it is now; null while nobody was.
    at("notified_at"),
    at("ended_at"),
    Column("ended_by", Text),
    CheckConstraint("(ended_at IS NULL) = (ended_by IS NULL)", name="somebody_ends_it"),
    CheckConstraint("event IS NULL OR planned_at IS NOT NULL", name="provider_says_when"),
    Index(
        "uq_maintenances_open",
        "machine_id",
        "event",
        unique=True,
        postgresql_where=text("ended_at IS NULL"),
        postgresql_nulls_not_distinct=True,
    ),
    tenancy=Tenancy.PLATFORM,
    api=("INSERT",),
    api_updates=("ended_at", "ended_by"),
)

# What customers were told about the machine of a lease.
notices = table(
    "notices",
    Column("number", BigInteger, Identity(always=True), primary_key=True),
    tenant(),
    *project(),
    Column("lease_id", Uuid, nullable=False),
    own("lease_id", "leases"),
    Column("machine_id", Uuid, ForeignKey("machines.id"), nullable=False),
    at("at", nullable=False),
    Column("kind", Text, nullable=False),
    Column("message", Text, nullable=False),
    at("planned_at"),
    known("kind", NoticeKind),
    UniqueConstraint("organization_id", "number"),
    Index("ix_notices_lease_id_number", "lease_id", "number"),
    fact=True,
)
