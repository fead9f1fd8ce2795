"""The tables. No methods, no queries; CHECKs come from the domain's enums.

Tenancy: a table that holds something of one customer has `organization_id`, and the database
itself filters it for the API's role (row-level security, see the migrations). Tables without it
are listed in `SHARED` with the reason; a test holds this page against the database.

Facts (journal, intervals, charges, transactions, postings, reports, placements, proofs) are append-only:
the database refuses UPDATE and DELETE on them.
"""

from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from control_plane.domain.machine import MAY_HAVE_MACHINE, MachineState, Step
from control_plane.domain.lease import LIVE, EndReason, LeaseState
from control_plane.domain.ledger import AccountKind, TransactionKind
from control_plane.domain.proof import Occasion, ProofOutcome, Tier

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

SHARED = {
    "installation": "one row: which installation this database is",
    "skus": "the catalogue is the same for everyone",
    "prices": "the price book is the same for everyone",
    "provider_accounts": "ours",
    "offers": "what providers offer us",
    "strangers": "machines that belong to nobody",
    "budgets": "our pace towards providers",
    "loop_reports": "what our loops did",
    "proof_references": "how fast honest GPUs are",
    "proof_records": "how our providers' machines answered; says nothing of whose they were",
    "ending_permits": "our operators' word on a provider account",
}


def _one_of(column: str, values: type[StrEnum]) -> CheckConstraint:
    return CheckConstraint(_among(column, frozenset(values)), name=f"{column}_known")


def _among(column: str, values: frozenset[StrEnum]) -> str:
    words = ", ".join(f"'{value}'" for value in sorted(values))
    return f"{column} IN ({words})"


def _at(name: str, *, nullable: bool = True) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


def _tenant() -> Column[object]:
    return Column("organization_id", Uuid, ForeignKey("organizations.id"), nullable=False)


def _claim() -> list[Column[object]]:
    """A row that one worker holds for a while: see db/claims.py."""
    return [
        Column("due_at", DateTime(timezone=True), nullable=False),
        Column("claim_token", Uuid),
        Column("claimed_until", DateTime(timezone=True)),
    ]


installation = Table(
    "installation",
    metadata,
    Column("singleton", Boolean, primary_key=True, server_default=text("true")),
    Column("code", Text, nullable=False),
    CheckConstraint("singleton", name="one_row"),
)

organizations = Table(
    "organizations",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("suspended", Boolean, nullable=False, server_default=text("false")),
    _at("created_at", nullable=False),
)

# One row per organization, locked by everything that spends: quota, balance and what is held.
# A cache of other tables, kept in the same transactions; a test rebuilds and compares it.
standings = Table(
    "standings",
    metadata,
    Column("organization_id", Uuid, ForeignKey("organizations.id"), primary_key=True),
    Column("gpu_quota", Integer, nullable=False),
    Column("gpus_held", Integer, nullable=False, server_default=text("0")),
    Column("posted_nano", BigInteger, nullable=False, server_default=text("0")),
    Column("held_nano", BigInteger, nullable=False, server_default=text("0")),
    CheckConstraint("gpus_held >= 0", name="gpus_held_not_negative"),
    CheckConstraint("held_nano >= 0", name="held_not_negative"),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Uuid, primary_key=True),
    _tenant(),
    Column("name", Text, nullable=False),
    Column("operator", Boolean, nullable=False, server_default=text("false")),
    Column("secret_sha256", LargeBinary, nullable=False, unique=True),
    Column("hint", Text, nullable=False),
    _at("created_at", nullable=False),
    _at("revoked_at"),
    Index("ix_api_keys_organization_id", "organization_id"),
)

ssh_keys = Table(
    "ssh_keys",
    metadata,
    Column("id", Uuid, primary_key=True),
    _tenant(),
    Column("name", Text, nullable=False),
    Column("public_key", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    _at("created_at", nullable=False),
    UniqueConstraint("organization_id", "name"),
)

skus = Table(
    "skus",
    metadata,
    Column("name", Text, primary_key=True),
    Column("gpu_model", Text, nullable=False),
    Column("gpu_count", Integer, nullable=False),
    Column("vcpus", Integer, nullable=False),
    Column("memory_gib", Integer, nullable=False),
    Column("disk_gib", Integer, nullable=False),
    Column("capacity", Text, nullable=False),
    # What a new lease's machine has to prove. What was sold before proofs existed was sold without.
    Column("proof", Text, nullable=False, server_default=text("'listed'")),
    CheckConstraint("gpu_count > 0", name="gpu_count_positive"),
    _one_of("proof", Tier),
)

prices = Table(
    "prices",
    metadata,
    Column("sku", Text, ForeignKey("skus.name"), nullable=False),
    Column("effective_from", DateTime(timezone=True), nullable=False),
    Column("nano_per_gpu_hour", BigInteger, nullable=False),
    PrimaryKeyConstraint("sku", "effective_from"),
    CheckConstraint("nano_per_gpu_hour >= 0", name="not_negative"),
)

provider_accounts = Table(
    "provider_accounts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("provider", Text, nullable=False),
    # A listing or refresh is one replica's work at a time: whoever moves the due time forward does it.
    _at("listing_due_at", nullable=False),
    _at("offers_due_at", nullable=False),
    _at("listing_asked_at"),
    Column("listing_size", Integer, nullable=False, server_default=text("0")),
    Column("listing_foreign", Integer, nullable=False, server_default=text("0")),
    _at("offers_at"),
    _at("frozen_since"),
    Column("frozen_lists", Integer, nullable=False, server_default=text("0")),
    Column("frozen_why", Text),
    _at("failing_since"),
    Column("failing_why", Text),
)

offers = Table(
    "offers",
    metadata,
    Column("key", Text, primary_key=True),
    Column("account", Text, ForeignKey("provider_accounts.name"), nullable=False),
    Column("provider", Text, nullable=False),
    Column("region", Text, nullable=False),
    Column("native_region", Text, nullable=False),
    Column("native_type", Text, nullable=False),
    Column("gpu_model", Text, nullable=False),
    Column("gpu_count", Integer, nullable=False),
    Column("vcpus", Integer, nullable=False),
    Column("memory_gib", Integer, nullable=False),
    Column("disk_gib", Integer, nullable=False),
    Column("capacity", Text, nullable=False),
    Column("cost_nano_per_hour", BigInteger, nullable=False),
    Column("available", Boolean, nullable=False),
    Column("confidence", Text, nullable=False),
    _at("observed_at", nullable=False),
    Index("ix_offers_gpu_model_gpu_count", "gpu_model", "gpu_count"),
    Index("ix_offers_account", "account"),
)

leases = Table(
    "leases",
    metadata,
    Column("id", Uuid, primary_key=True),
    _tenant(),
    Column("name", Text, nullable=False),
    # Desired: what the customer asked for, the price promised for it, and what its machine has to prove.
    Column("sku", Text, nullable=False),
    Column("gpu_model", Text, nullable=False),
    Column("gpu_count", Integer, nullable=False),
    Column("nano_per_gpu_hour", BigInteger, nullable=False),
    Column("proof", Text, nullable=False, server_default=text("'listed'")),
    Column("regions", ARRAY(Text), nullable=False),
    Column("providers", ARRAY(Text), nullable=False),
    Column("price_nano_per_hour_max", BigInteger),
    Column("authorized_keys", ARRAY(Text), nullable=False),
    # Execution.
    Column("state", Text, nullable=False),
    Column("generation", Integer, nullable=False, server_default=text("1")),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("end_reason", Text),
    Column("end_why", Text),
    *_claim(),
    # Times out of the journal, kept here for the meter.
    _at("created_at", nullable=False),
    _at("ready_at"),
    _at("billed_until"),
    _at("ended_at"),
    _at("funding_warned_at"),
    # The meter's own column: end of the last interval.
    _at("metered_until"),
    Column("intervals", Integer, nullable=False, server_default=text("0")),
    Column("meter_closed", Boolean, nullable=False, server_default=text("false")),
    _one_of("state", LeaseState),
    _one_of("end_reason", EndReason),
    _one_of("proof", Tier),
    CheckConstraint("billed_until IS NULL OR ready_at IS NOT NULL", name="billed_only_after_ready"),
    CheckConstraint("(state = 'ready') <= (ready_at IS NOT NULL)", name="ready_has_its_time"),
    CheckConstraint("NOT meter_closed OR billed_until IS NOT NULL", name="meter_closes_after_the_end"),
    Index(
        "ix_leases_organization_id_created_at", "organization_id", text("created_at DESC"), text("id DESC")
    ),
    Index("ix_leases_placing", "due_at", postgresql_where=text("state = 'placing'")),
    Index(
        "ix_leases_metered",
        "metered_until",
        postgresql_where=text("ready_at IS NOT NULL AND NOT meter_closed"),
    ),
    Index("ix_leases_live", "organization_id", postgresql_where=text(_among("state", LIVE))),
    Index("ix_leases_ending", "id", postgresql_where=text("state = 'ending'")),
)

placements = Table(
    "placements",
    metadata,
    Column("lease_id", Uuid, ForeignKey("leases.id"), nullable=False),
    Column("number", Integer, nullable=False),
    _tenant(),
    _at("decided_at", nullable=False),
    Column("chosen", Text),
    Column("ranking", JSONB, nullable=False),
    PrimaryKeyConstraint("lease_id", "number"),
)

machines = Table(
    "machines",
    metadata,
    Column("id", Uuid, primary_key=True),
    _tenant(),
    Column("lease_id", Uuid, ForeignKey("leases.id"), nullable=False),
    # What was chosen.
    Column("account", Text, ForeignKey("provider_accounts.name"), nullable=False),
    Column("provider", Text, nullable=False),
    Column("region", Text, nullable=False),
    Column("native_region", Text, nullable=False),
    Column("native_type", Text, nullable=False),
    Column("offer_key", Text, nullable=False),
    Column("cost_nano_per_hour", BigInteger, nullable=False),
    Column("launch_key", Text, nullable=False, unique=True),
    # Execution.
    Column("state", Text, nullable=False),
    Column("generation", Integer, nullable=False, server_default=text("1")),
    Column("tries", Integer, nullable=False, server_default=text("0")),
    *_claim(),
    Column("host_key", Text),
    # When its GPUs are challenged next, since when its last challenges speak against it, and until when its
    # end waits for the proof that its GPU memory is overwritten.
    _at("proof_due_at"),
    _at("suspect_since"),
    _at("erasing_until"),
    _at("created_at", nullable=False),
    _at("asked_at"),
    _at("deadline_at"),
    _at("terminate_asked_at"),
    _at("gone_at"),
    Column("fail_reason", Text),
    Column("fail_why", Text),
    Column("gone_evidence", Text),
    # Observed: what the provider and the machine showed, and when. While `missed_since` is null, the
    # account's last listing shows the machine too: a steady fleet of any size costs no write.
    Column("provider_ref", Text),
    Column("provider_state", Text),
    Column("address", Text),
    Column("ssh_port", Integer, nullable=False, server_default=text("22")),
    _at("sighted_at"),
    _at("missed_since"),
    Column("missed_lists", Integer, nullable=False, server_default=text("0")),
    Column("step", Text),
    _at("step_at"),
    _one_of("state", MachineState),
    _one_of("step", Step),
    CheckConstraint(
        "state <> 'gone' OR asked_at IS NULL OR gone_evidence IS NOT NULL", name="gone_needs_evidence"
    ),
    CheckConstraint("state IN ('intended', 'gone') OR asked_at IS NOT NULL", name="asked_before_effect"),
    Index("ix_machines_lease_id", "lease_id"),
    Index("ix_machines_open", "account", "state", "due_at", postgresql_where=text("state <> 'gone'")),
    Index(
        "uq_machines_provider_ref",
        "account",
        "provider_ref",
        unique=True,
        postgresql_where=text(f"provider_ref IS NOT NULL AND {_among('state', MAY_HAVE_MACHINE)}"),
    ),
    Index(
        "ix_machines_proof_due",
        "account",
        "proof_due_at",
        postgresql_where=text("state = 'verified' AND proof_due_at IS NOT NULL"),
    ),
    Index(
        "ix_machines_suspect",
        "account",
        postgresql_where=text("state = 'verified' AND suspect_since IS NOT NULL"),
    ),
    # One wanted machine per lease: a second one would be paid for and never used.
    Index(
        "uq_machines_wanted",
        "lease_id",
        unique=True,
        postgresql_where=text("state IN ('intended', 'launching', 'booting', 'bootstrapping', 'verified')"),
    ),
)

journal = Table(
    "journal",
    metadata,
    Column("number", BigInteger, Identity(always=True), primary_key=True),
    _tenant(),
    Column("lease_id", Uuid, nullable=False),
    Column("machine_id", Uuid),
    _at("at", nullable=False),
    Column("actor", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("state_before", Text),
    Column("state_after", Text),
    Column("why", Text),
    Index("ix_journal_lease_id_number", "lease_id", "number"),
)

reports = Table(
    "reports",
    metadata,
    Column("id", Uuid, primary_key=True),
    _tenant(),
    Column("lease_id", Uuid, nullable=False),
    Column("machine_id", Uuid, nullable=False),
    _at("at", nullable=False),
    Column("verdict", Text, nullable=False),
    Column("why", Text),
    Column("source", Text, nullable=False),
    Column("reading", JSONB, nullable=False),
    Index("ix_reports_machine_id", "machine_id"),
)

proofs = Table(
    "proofs",
    metadata,
    Column("id", Uuid, primary_key=True),
    _tenant(),
    Column("lease_id", Uuid, nullable=False),
    Column("machine_id", Uuid, nullable=False),
    Column("account", Text, nullable=False),
    Column("offer_key", Text, nullable=False),
    Column("gpu_model", Text, nullable=False),
    Column("occasion", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("driver", Text, nullable=False),
    Column("reference", Text, nullable=False),
    Column("attested", Boolean, nullable=False),
    # The first finding; all of them beside it.
    Column("code", Text),
    Column("why", Text),
    Column("findings", JSONB, nullable=False),
    Column("hints", JSONB, nullable=False),
    Column("rates", JSONB, nullable=False),
    Column("gpu_uuids", ARRAY(Text), nullable=False),
    # Identities that its GPUs attested.
    Column("devices", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("proven_bytes", ARRAY(BigInteger), nullable=False),
    Column("seconds", Double, nullable=False),
    Column("evidence", JSONB, nullable=False),
    _at("at", nullable=False),
    _one_of("occasion", Occasion),
    _one_of("outcome", ProofOutcome),
    Index("ix_proofs_lease_id_at", "lease_id", text("at DESC"), text("id DESC")),
    Index("ix_proofs_machine_id_at", "machine_id", text("at DESC")),
    Index("ix_proofs_gpu_uuids", "gpu_uuids", postgresql_using="gin"),
    Index("ix_proofs_devices", "devices", postgresql_using="gin"),
    Index("ix_proofs_passed", "at", postgresql_where=text("outcome = 'passed'")),
)

# The same proofs as a provider's record: what placement and operators read across all tenants.
proof_records = Table(
    "proof_records",
    metadata,
    Column("proof_id", Uuid, primary_key=True),
    Column("machine_id", Uuid, nullable=False),
    Column("account", Text, ForeignKey("provider_accounts.name"), nullable=False),
    Column("offer_key", Text, nullable=False),
    Column("gpu_model", Text, nullable=False),
    Column("occasion", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("code", Text),
    Column("why", Text),
    # Whether its machine was ended because of it.
    Column("ended", Boolean, nullable=False),
    _at("at", nullable=False),
    Index("ix_proof_records_at", text("at DESC"), text("proof_id DESC")),
    Index(
        "ix_proof_records_failed",
        "account",
        "at",
        postgresql_where=text("ended OR outcome IN ('failed', 'emulated')"),
    ),
    Index("ix_proof_records_ended", "at", postgresql_where=text("ended")),
)

# An operator's word that machines of an account may be ended although many fail their proof.
ending_permits = Table(
    "ending_permits",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("account", Text, ForeignKey("provider_accounts.name"), nullable=False),
    Column("why", Text, nullable=False),
    Column("actor", Text, nullable=False),
    _at("at", nullable=False),
    _at("until", nullable=False),
    CheckConstraint("until > at", name="until_after_at"),
    Index("ix_ending_permits_account_until", "account", "until"),
)

# What unrelated providers agree on; made anew from the proofs. Rates per second, in the units of each phase.
proof_references = Table(
    "proof_references",
    metadata,
    Column("gpu_model", Text, nullable=False),
    Column("driver_major", Integer, nullable=False),
    Column("phase", Text, nullable=False),
    Column("rate", Double, nullable=False),
    Column("providers", Integer, nullable=False),
    Column("learnt_on", Text, nullable=False),
    PrimaryKeyConstraint("gpu_model", "driver_major", "phase"),
    CheckConstraint("rate > 0", name="rate_positive"),
)

# Machines with our launch keys that no open record claims. Most leave again when their record adopts them.
strangers = Table(
    "strangers",
    metadata,
    Column("account", Text, ForeignKey("provider_accounts.name"), nullable=False),
    Column("provider_ref", Text, nullable=False),
    Column("launch_key", Text, nullable=False),
    Column("native_status", Text, nullable=False),
    _at("first_seen_at", nullable=False),
    _at("last_seen_at", nullable=False),
    Column("lists_seen", Integer, nullable=False, server_default=text("1")),
    _at("terminate_asked_at"),
    Column("note", Text),
    PrimaryKeyConstraint("account", "provider_ref"),
)

networks = Table(
    "networks",
    metadata,
    Column("organization_id", Uuid, ForeignKey("organizations.id"), primary_key=True),
    Column("number", Integer, nullable=False, unique=True),
    # Whoever holds the claim speaks to the hub for this network.
    Column("claim_token", Uuid),
    Column("claimed_until", DateTime(timezone=True)),
    _at("synced_at"),
    CheckConstraint("number > 0", name="number_positive"),
)

peers = Table(
    "peers",
    metadata,
    Column("machine_id", Uuid, ForeignKey("machines.id"), primary_key=True),
    _tenant(),
    Column("slot", Integer, nullable=False),
    Column("address", Text, nullable=False),
    Column("public_key", Text, nullable=False),
    UniqueConstraint("organization_id", "slot"),
)

holds = Table(
    "holds",
    metadata,
    Column("lease_id", Uuid, ForeignKey("leases.id"), primary_key=True),
    _tenant(),
    Column("amount_nano", BigInteger, nullable=False),
    _at("placed_at", nullable=False),
    _at("released_at"),
    CheckConstraint("amount_nano >= 0", name="not_negative"),
    CheckConstraint("released_at IS NULL OR amount_nano = 0", name="released_holds_nothing"),
    Index("ix_holds_open", "organization_id", postgresql_where=text("released_at IS NULL")),
)

intervals = Table(
    "intervals",
    metadata,
    Column("lease_id", Uuid, ForeignKey("leases.id"), nullable=False),
    Column("number", Integer, nullable=False),
    _tenant(),
    _at("started_at", nullable=False),
    _at("ended_at", nullable=False),
    Column("gpu_seconds_before", BigInteger, nullable=False),
    Column("gpu_seconds", BigInteger, nullable=False),
    Column("final", Boolean, nullable=False),
    _at("recorded_at", nullable=False),
    PrimaryKeyConstraint("lease_id", "number"),
    CheckConstraint("ended_at >= started_at", name="ends_after_start"),
    CheckConstraint("gpu_seconds >= 0 AND gpu_seconds_before >= 0", name="not_negative"),
)

# Work, not fact: an interval waits here until it is rated, and leaves in the transaction that rates it.
unrated = Table(
    "unrated",
    metadata,
    Column("lease_id", Uuid, nullable=False),
    Column("number", Integer, nullable=False),
    _tenant(),
    PrimaryKeyConstraint("lease_id", "number"),
)

charges = Table(
    "charges",
    metadata,
    Column("id", Uuid, primary_key=True),
    _tenant(),
    Column("lease_id", Uuid, nullable=False),
    Column("number", Integer, nullable=False),
    Column("sku", Text, nullable=False),
    Column("started_at", DateTime(timezone=True), nullable=False),
    Column("ended_at", DateTime(timezone=True), nullable=False),
    Column("gpu_seconds", BigInteger, nullable=False),
    Column("nano_per_gpu_hour", BigInteger, nullable=False),
    Column("amount_nano", BigInteger, nullable=False),
    _at("rated_at", nullable=False),
    UniqueConstraint("lease_id", "number"),
    CheckConstraint("amount_nano >= 0", name="not_negative"),
    Index("ix_charges_organization_id_started_at", "organization_id", "started_at"),
)

transactions = Table(
    "transactions",
    metadata,
    Column("id", Uuid, primary_key=True),
    _tenant(),
    Column("key", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    _at("recorded_at", nullable=False),
    _one_of("kind", TransactionKind),
    Index("ix_transactions_organization_id", "organization_id"),
)

postings = Table(
    "postings",
    metadata,
    Column("transaction_id", Uuid, ForeignKey("transactions.id"), nullable=False),
    Column("line", SmallInteger, nullable=False),
    _tenant(),
    Column("account_kind", Text, nullable=False),
    Column("amount_nano", BigInteger, nullable=False),
    PrimaryKeyConstraint("transaction_id", "line"),
    _one_of("account_kind", AccountKind),
    CheckConstraint("amount_nano <> 0", name="not_zero"),
    Index("ix_postings_organization_id_account_kind", "organization_id", "account_kind"),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("organization_id", Uuid, ForeignKey("organizations.id"), nullable=False),
    Column("key", Text, nullable=False),
    Column("request_sha256", LargeBinary, nullable=False),
    Column("status", SmallInteger, nullable=False),
    Column("answer", LargeBinary, nullable=False),
    _at("created_at", nullable=False),
    PrimaryKeyConstraint("organization_id", "key"),
    Index("ix_idempotency_keys_created_at", "created_at"),
)

budgets = Table(
    "budgets",
    metadata,
    Column("account", Text, nullable=False),
    Column("bucket", Text, nullable=False),
    _at("free_at", nullable=False),
    PrimaryKeyConstraint("account", "bucket"),
)

loop_reports = Table(
    "loop_reports",
    metadata,
    Column("loop", Text, nullable=False),
    Column("account", Text, nullable=False, server_default=text("''")),
    Column("replica", Text, nullable=False),
    _at("started_at", nullable=False),
    _at("finished_at", nullable=False),
    Column("every_seconds", Integer, nullable=False),
    Column("late_after_seconds", Integer, nullable=False, server_default=text("60")),
    Column("looked_at", Integer, nullable=False),
    Column("acted_on", Integer, nullable=False),
    Column("errors", ARRAY(Text), nullable=False),
    Column("notes", ARRAY(Text), nullable=False),
    Column("activations", BigInteger, nullable=False, server_default=text("1")),
    PrimaryKeyConstraint("loop", "account", "replica"),
)

FACTS = frozenset(
    {
        "charges",
        "ending_permits",
        "intervals",
        "journal",
        "placements",
        "postings",
        "prices",
        "proof_records",
        "proofs",
        "reports",
        "transactions",
    }
)
"""Append-only: the database refuses UPDATE and DELETE."""
