"""Leases, where they were placed, their attempts, and their claims on machines."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from control_plane.db.tables.marks import (
    Lookups,
    Tenancy,
    among,
    at,
    environment,
    known,
    own,
    project,
    table,
    tenant,
    work,
)
from control_plane.domain.actor import ActorKind
from control_plane.domain.attempt import AttemptOutcome
from control_plane.domain.failure import FailReason
from control_plane.domain.lease import LIVE, EndReason, LeaseState
from control_plane.domain.progress import Step
from control_plane.domain.proof import Tier
from control_plane.domain.purchase import COMMITTED_DAYS_MAX, KEPT, TAKEN_BACK, OnEviction, PurchaseKind
from control_plane.domain.sla import SlaTier
from control_plane.domain.waiting import WaitsFor


def committed_to() -> CheckConstraint:
    """A CHECK that what is committed to has a term, and nothing else has one."""
    return CheckConstraint(
        f"CASE WHEN purchase = '{PurchaseKind.COMMITTED}' THEN committed_days IS NOT NULL"
        f" AND committed_days BETWEEN 1 AND {COMMITTED_DAYS_MAX} ELSE committed_days IS NULL END",
        name="committed_to_a_term",
    )


# Quotes whose price is kept for a while. One that no lease was created for is deleted when it has expired.
quotes = table(
    "quotes",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *project(),
    *environment(),
    Column("sku", Text, ForeignKey("skus.name"), nullable=False),
    Column("regions", ARRAY(Text), nullable=False),
    Column("providers", ARRAY(Text), nullable=False),
    Column("price_nano_per_hour_max", BigInteger),
    Column("network_gbps_min", Integer),
    Column("purchase", Text, nullable=False),
    Column("sla", Text, nullable=False),
    Column("nano_per_unit_hour", BigInteger, nullable=False),
    Column("stopped_nano_per_unit_hour", BigInteger, nullable=False),
    # What the price book said, whatever was agreed on with the customer.
    Column("list_nano_per_unit_hour", BigInteger, nullable=False),
    Column("price_book", Integer, ForeignKey("price_books.version"), nullable=False),
    # The agreement that the price is from; null: the price book.
    Column("price_agreement_id", Uuid),
    own("price_agreement_id", "price_agreements"),
    # The term that the price is for; null unless it is bought so.
    Column("committed_days", Integer),
    at("quoted_at", nullable=False),
    at("expires_at", nullable=False),
    known("purchase", PurchaseKind),
    known("sla", SlaTier),
    UniqueConstraint("organization_id", "id"),
    committed_to(),
    CheckConstraint("expires_at > quoted_at", name="expires_later"),
    CheckConstraint(
        "stopped_nano_per_unit_hour BETWEEN 0 AND nano_per_unit_hour", name="stopped_costs_no_more"
    ),
    Index("ix_quotes_expires_at", "expires_at"),
    api=("INSERT",),
)

leases = table(
    "leases",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *project(),
    *environment(),
    # The network that its machines join; null for a node of a pool.
    Column("network_id", Uuid),
    ForeignKeyConstraint(
        ["organization_id", "project_id", "network_id"],
        ["networks.organization_id", "networks.project_id", "networks.id"],
    ),
    # The pool of which it is a node; null for a machine that its customer logs in to.
    Column("node_pool_id", Uuid),
    own("node_pool_id", "node_pools"),
    Column("name", Text, nullable=False),
    # Desired: the customer's request, the price promised for it, and what its machine has to prove.
    Column("sku", Text, nullable=False),
    Column("gpu_model", Text),
    Column("gpu_count", Integer, nullable=False),
    # What the price is for: GPUs, or one machine where there are none.
    Column("units", Integer, Computed("greatest(gpu_count, 1)", persisted=True), nullable=False),
    Column("purchase", Text, nullable=False),
    # The term that was committed to; null unless it is bought so.
    Column("committed_days", Integer),
    # What happens when its machine is taken back.
    Column("on_eviction", Text, nullable=False),
    # What is promised with it: the tier, and the version of its terms; null when nothing is.
    Column("sla", Text, nullable=False),
    Column("sla_version", Integer),
    ForeignKeyConstraint(["sla_version", "sla"], ["sla_terms.version", "sla_terms.tier"]),
    Column("nano_per_unit_hour", BigInteger, nullable=False),
    Column("stopped_nano_per_unit_hour", BigInteger, nullable=False),
    # What the price book said, whatever was agreed on with the customer.
    Column("list_nano_per_unit_hour", BigInteger, nullable=False),
    Column("price_book", Integer, ForeignKey("price_books.version"), nullable=False),
    # The agreement that the price is from; null: the price book.
    Column("price_agreement_id", Uuid),
    own("price_agreement_id", "price_agreements"),
    # The quote whose price it has; null when it has the price of its creation.
    Column("quote_id", Uuid),
    own("quote_id", "quotes"),
    Column("proof", Text, nullable=False),
    Column("regions", ARRAY(Text), nullable=False),
    Column("providers", ARRAY(Text), nullable=False),
    Column("price_nano_per_hour_max", BigInteger),
    Column("network_gbps_min", Integer),
    Column("priority", Integer, nullable=False),
    # The only keys to log in with, each with id, name, public key and fingerprint, as they were when the lease was
    # created; JSON's null: any key.
    Column("ssh_keys", JSONB, nullable=False),
    Column("labels", JSONB, nullable=False, server_default=text("'{}'")),
    Column("wait_timeout_seconds", Integer, nullable=False),
    Column("auto_release_after_seconds", Integer),
    Column("auto_release_spend_nano", BigInteger),
    # Execution.
    Column("state", Text, nullable=False),
    Column("generation", Integer, nullable=False, server_default=text("1")),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("end_reason", Text),
    Column("end_why", Text),
    at("due_at", nullable=False),
    # Since when and why no offer can serve it, while it is placing.
    at("waiting_since"),
    Column("waiting_why", Text),
    # Digest of the last stored placement: the same decision is not stored again.
    Column("placement_sha256", LargeBinary),
    # Times from the journal, copied here for the meter.
    at("created_at", nullable=False),
    at("ready_at"),
    # When it is released by itself: the earliest of its limits, computed when it becomes ready.
    at("release_at"),
    # When its machine was stopped and started again, in turn: an odd number of them while it is stopped.
    Column("switched_at", ARRAY(DateTime(timezone=True)), nullable=False, server_default=text("'{}'")),
    # When its bill was paused and resumed, in turn: an odd number of them while it waits for another machine.
    Column("paused_at", ARRAY(DateTime(timezone=True)), nullable=False, server_default=text("'{}'")),
    # The pauses among those that break no promise, because nobody knows whose doing they were (domain/outage.py).
    Column("unattributed_at", ARRAY(DateTime(timezone=True)), nullable=False, server_default=text("'{}'")),
    # When its customer's own envelope began and ceased to keep it from being placed, in turn: promises stand still.
    Column("held_at", ARRAY(DateTime(timezone=True)), nullable=False, server_default=text("'{}'")),
    at("billed_until"),
    # What is billed of the rest of its term, because its customer released it earlier.
    Column("unused_unit_seconds", BigInteger, nullable=False, server_default=text("0")),
    at("ended_at"),
    at("funding_warned_at"),
    # The meter's own columns: end of the last interval, and how many there are.
    at("metered_until"),
    Column("intervals", Integer, nullable=False, server_default=text("0")),
    Column("meter_closed", Boolean, nullable=False, server_default=text("false")),
    # Where the request that created it, or released it, is in its trace; null while traces are off (db/traces.py).
    Column("traceparent", Text),
    known("state", LeaseState),
    known("purchase", PurchaseKind),
    known("on_eviction", OnEviction),
    known("sla", SlaTier),
    committed_to(),
    CheckConstraint(
        "unused_unit_seconds = 0 OR (unused_unit_seconds > 0 AND committed_days IS NOT NULL"
        " AND billed_until IS NOT NULL)",
        name="unused_of_a_term",
    ),
    CheckConstraint(
        "committed_days IS NULL OR (node_pool_id IS NULL AND auto_release_after_seconds IS NULL"
        " AND auto_release_spend_nano IS NULL)",
        name="ends_with_its_term",
    ),
    CheckConstraint(f"sla_version IS NULL OR {among('purchase', KEPT)}", name="promised_where_kept"),
    CheckConstraint(
        f"on_eviction = '{OnEviction.END}' OR {among('purchase', TAKEN_BACK)}",
        name="replaced_where_taken_back",
    ),
    CheckConstraint("ready_at IS NOT NULL OR paused_at = '{}'", name="paused_only_after_ready"),
    known("end_reason", EndReason),
    known("proof", Tier),
    CheckConstraint("gpu_count >= 0", name="gpu_count_not_negative"),
    CheckConstraint("(gpu_model IS NULL) = (gpu_count = 0)", name="gpus_have_a_model"),
    CheckConstraint(f"gpu_count > 0 OR proof = '{Tier.LISTED}'", name="no_gpus_prove_nothing"),
    UniqueConstraint("organization_id", "id"),
    CheckConstraint("(network_id IS NULL) = (node_pool_id IS NOT NULL)", name="in_a_network_or_a_pool"),
    CheckConstraint("billed_until IS NULL OR ready_at IS NOT NULL", name="billed_only_after_ready"),
    CheckConstraint("billed_until >= ready_at", name="billed_no_earlier_than_ready"),
    CheckConstraint(f"(state = '{LeaseState.READY}') <= (ready_at IS NOT NULL)", name="ready_has_its_time"),
    CheckConstraint(
        f"waiting_since IS NULL OR state = '{LeaseState.PLACING}'", name="only_a_placing_lease_waits"
    ),
    CheckConstraint("(waiting_since IS NULL) = (waiting_why IS NULL)", name="waiting_has_its_reason"),
    CheckConstraint("release_at IS NULL OR ready_at IS NOT NULL", name="released_by_itself_when_ready"),
    CheckConstraint("wait_timeout_seconds >= 0", name="wait_timeout_not_negative"),
    CheckConstraint(
        "stopped_nano_per_unit_hour BETWEEN 0 AND nano_per_unit_hour", name="stopped_costs_no_more"
    ),
    CheckConstraint("NOT meter_closed OR billed_until IS NOT NULL", name="meter_closes_after_the_end"),
    Index(
        "ix_leases_organization_id_created_at", "organization_id", text("created_at DESC"), text("id DESC")
    ),
    # Whether a network can be deleted: it is not while a lease of it may have a machine.
    Index("ix_leases_quote_id", "quote_id", postgresql_where=text("quote_id IS NOT NULL")),
    Index("ix_leases_network_id", "network_id", postgresql_where=text("ended_at IS NULL")),
    Index("ix_leases_placing", "due_at", postgresql_where=text(f"state = '{LeaseState.PLACING}'")),
    Index(
        "ix_leases_placing_ahead",
        "organization_id",
        text("priority DESC"),
        "created_at",
        "id",
        postgresql_where=text(f"state = '{LeaseState.PLACING}'"),
    ),
    # Without `metered_until`, which every hour changes: a change of an indexed column is written to every index.
    Index(
        "ix_leases_metered",
        "id",
        postgresql_where=text("ready_at IS NOT NULL AND NOT meter_closed"),
    ),
    Index("ix_leases_live", "organization_id", postgresql_where=text(among("state", LIVE))),
    Index(
        "ix_leases_committed",
        "organization_id",
        postgresql_where=text(f"{among('state', LIVE)} AND committed_days IS NOT NULL"),
    ),
    Index(
        "uq_leases_live_name",
        "organization_id",
        "project_id",
        "name",
        unique=True,
        postgresql_where=text(among("state", LIVE)),
    ),
    # Leases whose next hour cannot be set aside.
    Index(
        "ix_leases_unfunded",
        "organization_id",
        postgresql_where=text(f"funding_warned_at IS NOT NULL AND state = '{LeaseState.READY}'"),
    ),
    Index("ix_leases_labels", "labels", postgresql_using="gin", postgresql_ops={"labels": "jsonb_path_ops"}),
    Index(
        "ix_leases_waiting",
        "organization_id",
        postgresql_where=text("waiting_since IS NOT NULL"),
    ),
    Index(
        "ix_leases_auto_release",
        "release_at",
        postgresql_where=text(f"{among('state', LIVE)} AND release_at IS NOT NULL"),
    ),
    Index("ix_leases_node_pool_id", "node_pool_id", postgresql_where=text("node_pool_id IS NOT NULL")),
    Index("ix_leases_sku_created_at", "sku", "created_at"),
    Index("ix_leases_ending", "id", postgresql_where=text(f"state = '{LeaseState.ENDING}'")),
    api=("INSERT", "UPDATE"),
    lookups=Lookups.READ,
)

placements = table(
    "placements",
    Column("lease_id", Uuid, nullable=False),
    Column("number", Integer, nullable=False),
    tenant(),
    *project(),
    own("lease_id", "leases"),
    at("decided_at", nullable=False),
    Column("chosen", Text),
    Column("ranking", JSONB, nullable=False),
    PrimaryKeyConstraint("lease_id", "number"),
    fact=True,
)

attempts = table(
    "attempts",
    Column("lease_id", Uuid, nullable=False),
    Column("number", Integer, nullable=False),
    tenant(),
    *project(),
    own("lease_id", "leases"),
    Column("machine_id", Uuid, ForeignKey("machines.id"), nullable=False),
    Column("offer_key", Text, nullable=False),
    at("started_at", nullable=False),
    at("ended_at"),
    Column("outcome", Text),
    Column("fail_reason", Text),
    Column("fail_why", Text),
    PrimaryKeyConstraint("lease_id", "number"),
    known("outcome", AttemptOutcome),
    known("fail_reason", FailReason),
    CheckConstraint("(outcome IS NULL) = (ended_at IS NULL)", name="outcome_has_its_time"),
    CheckConstraint("number > 0", name="number_positive"),
    api_updates=("ended_at", "outcome"),
)

# A lease's right to a machine (slot null) or to a slot of a node, from `claimed_at` to `ended_at`.
claims = table(
    "claims",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *project(),
    Column("lease_id", Uuid, nullable=False),
    own("lease_id", "leases"),
    Column("machine_id", Uuid, ForeignKey("machines.id"), nullable=False),
    Column("slot", SmallInteger),
    Column("attempt", Integer, nullable=False),
    *work(),
    Column("step", Text),
    at("step_at"),
    # What of ours its machine waits for before the customer is admitted, and since when.
    Column("waits_for", Text),
    at("waits_since"),
    at("claimed_at", nullable=False),
    # By when the customer has to be admitted; set when the machine is verified.
    at("deadline_at"),
    at("admitted_at"),
    at("ended_at"),
    # When release_machines handled the machine after the claim ended.
    at("released_at"),
    # Of how many revoked SSH certificates its machine was told (db/ssh_revocations.py), and when it is its turn again.
    Column("ssh_revoked", Integer),
    at("ssh_revoked_due_at"),
    known("step", Step),
    known("waits_for", WaitsFor),
    UniqueConstraint("organization_id", "id"),
    CheckConstraint("slot > 0", name="slot_positive"),
    CheckConstraint("released_at IS NULL OR ended_at IS NOT NULL", name="released_after_the_end"),
    Index("uq_claims_open_of_lease", "lease_id", unique=True, postgresql_where=text("ended_at IS NULL")),
    # A machine that is claimed as a whole serves one lease in its life.
    Index("uq_claims_of_machine", "machine_id", unique=True, postgresql_where=text("slot IS NULL")),
    Index(
        "uq_claims_open_of_slot",
        "machine_id",
        "slot",
        unique=True,
        postgresql_where=text("ended_at IS NULL AND slot IS NOT NULL"),
    ),
    Index("ix_claims_lease_id", "lease_id"),
    Index("ix_claims_machine_id", "machine_id"),
    Index(
        "ix_claims_admitting",
        "due_at",
        postgresql_where=text("admitted_at IS NULL AND ended_at IS NULL"),
    ),
    Index(
        "ix_claims_unreleased",
        "ended_at",
        postgresql_where=text("ended_at IS NOT NULL AND released_at IS NULL"),
    ),
    api_updates=("ended_at",),
    lookups=Lookups.READ,
)

# What happened, in order. A line about a machine is written for every lease that claims it; while there is no claim,
# it belongs to no organization.
journal = table(
    "journal",
    Column("number", BigInteger, Identity(always=True), primary_key=True),
    tenant(nullable=True),
    *project(nullable=True),
    Column("lease_id", Uuid),
    own("lease_id", "leases"),
    Column("machine_id", Uuid),
    at("at", nullable=False),
    Column("actor_kind", Text, nullable=False),
    Column("actor", Text, nullable=False),
    # The id of the HTTP request that caused it.
    Column("request_id", Text),
    Column("event", Text, nullable=False),
    Column("state_before", Text),
    Column("state_after", Text),
    Column("why", Text),
    # The transaction that wrote the line: readers need it to miss no line that is committed late.
    Column(
        "transaction", BigInteger, nullable=False, server_default=text("(pg_current_xact_id()::text)::bigint")
    ),
    known("actor_kind", ActorKind),
    CheckConstraint("lease_id IS NOT NULL OR machine_id IS NOT NULL", name="about_something"),
    CheckConstraint("(lease_id IS NULL) = (organization_id IS NULL)", name="lease_has_its_tenant"),
    Index("ix_journal_lease_id_transaction", "lease_id", "transaction"),
    Index("ix_journal_machine_id_number", "machine_id", "number"),
    tenancy=Tenancy.MIXED,
    fact=True,
    api=("INSERT",),
    lookups=Lookups.READ,
)
