"""Enforcement: conditions of leases that were found, the actions about them, how those ended, and who allows it."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.db.tables.marks import Lookups, Tenancy, at, known, own, project, table, tenant
from control_plane.domain.enforcement import (
    ActionEnd,
    Basis,
    Detector,
    EnforcementAction,
    FindingOutcome,
)

# A condition of a lease, from the moment it was found until it is over. At most one of a detector and a claim is open.
findings = table(
    "findings",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *project(),
    Column("lease_id", Uuid, nullable=False),
    own("lease_id", "leases"),
    Column("claim_id", Uuid, nullable=False),
    own("claim_id", "claims"),
    Column("machine_id", Uuid, ForeignKey("machines.id"), nullable=False),
    Column("detector", Text, nullable=False),
    at("opened_at", nullable=False),
    # Since when the condition held when it was found.
    at("since", nullable=False),
    # When its last action was taken for the first time.
    at("step_at", nullable=False),
    # What it waits for.
    Column("why", Text, nullable=False),
    at("closed_at"),
    Column("outcome", Text),
    known("detector", Detector),
    known("outcome", FindingOutcome),
    CheckConstraint("(closed_at IS NULL) = (outcome IS NULL)", name="outcome_has_its_time"),
    UniqueConstraint("organization_id", "id"),
    Index(
        "uq_findings_open", "claim_id", "detector", unique=True, postgresql_where=text("closed_at IS NULL")
    ),
    Index("ix_findings_claim_id", "claim_id", "detector", "closed_at"),
    tenancy=Tenancy.WATCHED,
)

# An action about a finding. One that is not armed was only decided: nothing was done, and nobody told.
enforcement_actions = table(
    "enforcement_actions",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *project(),
    Column("finding_id", Uuid, nullable=False),
    own("finding_id", "findings"),
    Column("lease_id", Uuid, nullable=False),
    own("lease_id", "leases"),
    Column("claim_id", Uuid, nullable=False),
    own("claim_id", "claims"),
    Column("machine_id", Uuid, ForeignKey("machines.id"), nullable=False),
    Column("detector", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("armed", Boolean, nullable=False),
    at("at", nullable=False),
    at("expires_at", nullable=False),
    # When the machine is stopped, or the lease ends.
    at("planned_at"),
    Column("basis", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("evidence", JSONB, nullable=False),
    # The digest of the rules that it was decided by.
    Column("rules", Text, nullable=False),
    known("detector", Detector),
    known("action", EnforcementAction),
    known("basis", Basis),
    CheckConstraint("expires_at > at", name="lasts"),
    # Law 11: what a machine says about itself interrupts nobody and moves no money.
    CheckConstraint(
        f"basis <> '{Basis.CLAIM}' OR action NOT IN"
        f" ('{EnforcementAction.CREDIT}', '{EnforcementAction.EVICT}', '{EnforcementAction.SHUTDOWN}')",
        name="claims_only_advise",
    ),
    UniqueConstraint("organization_id", "id"),
    Index("ix_enforcement_actions_finding_id_at", "finding_id", "at", "id"),
    Index("ix_enforcement_actions_lease_id_at", "lease_id", "at", "id"),
    Index("ix_enforcement_actions_at", "at", "id"),
    Index("ix_enforcement_actions_expires_at", "expires_at"),
    tenancy=Tenancy.WATCHED,
    fact=True,
    lookups=Lookups.READ,
)

# How an action ended, once.
enforcement_ends = table(
    "enforcement_ends",
    Column("action_id", Uuid, primary_key=True),
    tenant(),
    own("action_id", "enforcement_actions"),
    at("at", nullable=False),
    Column("ended", Text, nullable=False),
    Column("ended_by", Text, nullable=False),
    Column("why", Text, nullable=False),
    known("ended", ActionEnd),
    tenancy=Tenancy.WATCHED,
    fact=True,
    lookups=Lookups.READ,
)

# An operator's word that an action is to be undone; a loop does it. It has no foreign key, because the action is a
# customer's row.
enforcement_undos = table(
    "enforcement_undos",
    Column("action_id", Uuid, primary_key=True),
    at("asked_at", nullable=False),
    Column("asked_by", Text, nullable=False),
    Column("why", Text, nullable=False),
    tenancy=Tenancy.PLATFORM,
    fact=True,
    api=("INSERT",),
)

# An operator's word that a detector may act, or may no longer. The latest of a detector counts.
detector_arms = table(
    "detector_arms",
    Column("id", Uuid, primary_key=True),
    Column("detector", Text, nullable=False),
    Column("armed", Boolean, nullable=False),
    at("at", nullable=False),
    Column("set_by", Text, nullable=False),
    Column("why", Text, nullable=False),
    known("detector", Detector),
    Index("ix_detector_arms_detector_at", "detector", "at", "id"),
    tenancy=Tenancy.PLATFORM,
    fact=True,
    api=("INSERT",),
)

# After which idle time a customer wants the machine of a lease to be stopped.
idle_stops = table(
    "idle_stops",
    tenant(),
    Column("lease_id", Uuid, nullable=False),
    own("lease_id", "leases"),
    Column("after_seconds", Integer, nullable=False),
    at("set_at", nullable=False),
    Column("set_by", Text, nullable=False),
    PrimaryKeyConstraint("organization_id", "lease_id"),
    CheckConstraint("after_seconds > 0", name="after_some_time"),
    api=("INSERT", "UPDATE", "DELETE"),
)

# The median throughput of an inference server in an hour, with about so many requests.
throughput_hours = table(
    "throughput_hours",
    tenant(),
    Column("claim_id", Uuid, nullable=False),
    own("claim_id", "claims"),
    # The first instant of the hour.
    at("hour", nullable=False),
    # The number of binary digits of the number of running requests; 0: there was none, and the hour is done.
    Column("batch", Integer, nullable=False),
    # Thousandths of a generated token per second and running request.
    Column("throughput", BigInteger, nullable=False),
    PrimaryKeyConstraint("claim_id", "hour", "batch"),
    Index("ix_throughput_hours_hour", "hour"),
)
