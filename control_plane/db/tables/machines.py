"""Providers' machines, their agents, and what both reported."""

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
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.db.tables.marks import (
    Lookups,
    Tenancy,
    among,
    at,
    known,
    own,
    project,
    table,
    tenant,
    work,
)
from control_plane.domain.failure import FailReason
from control_plane.domain.listed_state import ListedState
from control_plane.domain.machine import MAY_EXIST, MachineState, Purpose
from control_plane.domain.outage import Cause
from control_plane.domain.power import CHANGING, PowerState
from control_plane.domain.progress import Step
from control_plane.domain.proof import Tier

machines = table(
    "machines",
    Column("id", Uuid, primary_key=True),
    Column("purpose", Text, nullable=False),
    # What was ordered.
    Column("account", Text, ForeignKey("provider_accounts.name"), nullable=False),
    Column("provider", Text, nullable=False),
    Column("region", Text, nullable=False),
    Column("native_region", Text, nullable=False),
    Column("native_type", Text, nullable=False),
    Column("offer_key", Text, nullable=False),
    Column("cost_nano_per_hour", BigInteger, nullable=False),
    # Whether it is spot capacity, and the most that an hour of that may cost us.
    Column("spot", Boolean, nullable=False),
    Column("cost_nano_per_hour_max", BigInteger),
    # What its offer said of stopped machines: what they cost, where it is less, and what can be done with their power.
    Column("stopped_cost_nano_per_hour", BigInteger),
    # How its provider bills it (domain/provider_cost.py), which a later list does not change.
    Column("increment_seconds", Integer, nullable=False),
    Column("minimum_seconds", Integer, nullable=False),
    Column("billed_while_booting", Boolean, nullable=False),
    Column("power", JSONB, nullable=False),
    Column("gpu_model", Text),
    Column("gpu_count", Integer, nullable=False),
    Column("vcpus", Integer, nullable=False),
    Column("memory_gib", Integer, nullable=False),
    Column("proof", Text, nullable=False),
    Column("launch_key", Text, nullable=False, unique=True),
    # Which pool it was ordered for, or the only lease that may claim it. A lease is erased with its organization, and
    # keep_pools ends what was reserved for it, so there is no foreign key.
    Column("pool_id", Uuid, ForeignKey("pools.id")),
    Column("reserved_for", Uuid),
    # Execution.
    Column("state", Text, nullable=False),
    Column("generation", Integer, nullable=False, server_default=text("1")),
    *work(),
    Column("host_key", Text),
    at("created_at", nullable=False),
    at("asked_at"),
    # When it was first seen to run.
    at("running_at"),
    at("verified_at"),
    at("deadline_at"),
    at("terminate_asked_at"),
    at("gone_at"),
    CheckConstraint("spot = (cost_nano_per_hour_max IS NOT NULL)", name="spot_has_its_ceiling"),
    Column("fail_reason", Text),
    Column("fail_why", Text),
    Column("gone_evidence", Text),
    # Observed: what the provider and the machine reported, and when. While `missed_since` is null, the
    # account's last listing shows the machine too, so a steady fleet of any size costs no write.
    Column("provider_ref", Text),
    Column("provider_state", Text),
    Column("address", Text),
    Column("ssh_port", Integer, nullable=False, server_default=text("22")),
    # Which SSH authorities it was last told to trust (domain/ssh_authority.py, fingerprint), and when to tell it again.
    Column("ssh_trust", Text),
    # The public key with which it joins a private network, of a machine that made it before it had a customer.
    Column("mesh_key", Text),
    at("ssh_trust_due_at"),
    at("sighted_at"),
    # Since when it is listed as failed, stopped or ending, though nobody asked for that: `sighted_at` is from before.
    at("down_since"),
    # Whose doing that is, by all lists since then (domain/outage.py).
    Column("down_cause", Text),
    # Since when lists show it as running again while it is down, and when they last did after it was down.
    at("back_since"),
    at("back_at"),
    at("eviction_announced_at"),
    at("eviction_withdrawn_at"),
    at("missed_since"),
    Column("missed_lists", Integer, nullable=False, server_default=text("0")),
    # When lists last showed it again after several had missed it, and until when it counts as missing nevertheless,
    # because that had happened shortly before as well.
    at("relisted_at"),
    at("unsteady_until"),
    Column("step", Text, nullable=False),
    at("step_at"),
    # The summary of its GPU proofs (domain/proof.py, Record), when it is challenged next, when it became suspect,
    # and how long its termination waits for the proof that its memory is overwritten.
    Column("passes", Integer, nullable=False, server_default=text("0")),
    at("first_passed_at"),
    at("last_passed_at"),
    Column("attested", Boolean, nullable=False, server_default=text("false")),
    Column("failed", Integer, nullable=False, server_default=text("0")),
    Column("unanswered", Integer, nullable=False, server_default=text("0")),
    at("last_challenged_at"),
    at("proof_due_at"),
    at("suspect_since"),
    at("erasing_until"),
    known("purpose", Purpose),
    known("state", MachineState),
    known("step", Step),
    known("proof", Tier),
    known("fail_reason", FailReason),
    known("down_cause", Cause),
    CheckConstraint("(down_since IS NULL) = (down_cause IS NULL)", name="downtime_has_a_cause"),
    CheckConstraint(
        f"state <> '{MachineState.GONE}' OR asked_at IS NULL OR gone_evidence IS NOT NULL",
        name="gone_needs_evidence",
    ),
    CheckConstraint(
        f"{among('state', (MachineState.INTENDED, MachineState.GONE))} OR asked_at IS NOT NULL",
        name="asked_before_effect",
    ),
    CheckConstraint("gpu_count >= 0", name="gpu_count_not_negative"),
    CheckConstraint("(gpu_model IS NULL) = (gpu_count = 0)", name="gpus_have_a_model"),
    CheckConstraint(
        f"(purpose = '{Purpose.POOL}') = (pool_id IS NOT NULL OR reserved_for IS NOT NULL)"
        " AND (pool_id IS NULL OR reserved_for IS NULL)",
        name="kept_for_somebody",
    ),
    CheckConstraint(f"gpu_count > 0 OR proof = '{Tier.LISTED}'", name="no_gpus_prove_nothing"),
    Index(
        "ix_machines_open",
        "account",
        "state",
        "due_at",
        postgresql_where=text(f"state <> '{MachineState.GONE}'"),
    ),
    Index(
        "uq_machines_provider_ref",
        "account",
        "provider_ref",
        unique=True,
        postgresql_where=text(f"provider_ref IS NOT NULL AND {among('state', MAY_EXIST)}"),
    ),
    Index(
        "ix_machines_proof_due",
        "account",
        "proof_due_at",
        postgresql_where=text(f"state = '{MachineState.VERIFIED}' AND proof_due_at IS NOT NULL"),
    ),
    Index("ix_machines_account_asked_at", "account", "asked_at"),
    Index("ix_machines_fleet", "id", postgresql_where=text(f"state <> '{MachineState.GONE}'")),
    Index(
        "ix_machines_vanished",
        "account",
        "gone_at",
        postgresql_where=text(f"fail_reason = '{FailReason.VANISHED}'"),
    ),
    Index(
        "ix_machines_suspect",
        "account",
        postgresql_where=text(f"state = '{MachineState.VERIFIED}' AND suspect_since IS NOT NULL"),
    ),
    Index(
        "ix_machines_pooled",
        "pool_id",
        "id",
        postgresql_where=text(f"purpose = '{Purpose.POOL}' AND state <> '{MachineState.GONE}'"),
    ),
    Index("ix_machines_of_pool", "pool_id", "gone_at", postgresql_where=text("pool_id IS NOT NULL")),
    # How long machines of a kind took until they were verified, lately.
    Index(
        "ix_machines_verified_at",
        "gpu_model",
        "gpu_count",
        "verified_at",
        postgresql_where=text("verified_at IS NOT NULL"),
    ),
    tenancy=Tenancy.CLAIMED,
    lookups=Lookups.READ,
)

verification_reports = table(
    "verification_reports",
    Column("id", Uuid, primary_key=True),
    tenant(nullable=True),
    *project(nullable=True),
    Column("lease_id", Uuid),
    Column("machine_id", Uuid, ForeignKey("machines.id"), nullable=False),
    at("at", nullable=False),
    Column("verdict", Text, nullable=False),
    Column("why", Text),
    Column("source", Text, nullable=False),
    Column("reading", JSONB, nullable=False),
    Index("ix_verification_reports_machine_id", "machine_id"),
    Index("ix_verification_reports_lease_id", "lease_id"),
    tenancy=Tenancy.MIXED,
    fact=True,
    lookups=Lookups.READ,
)

# The agent on the machine of a claim. Its lease is here once more, because the API sees no claims of tenants while it
# acts for operators.
agents = table(
    "agents",
    Column("claim_id", Uuid, primary_key=True),
    tenant(),
    own("claim_id", "claims"),
    Column("machine_id", Uuid, ForeignKey("machines.id"), nullable=False),
    Column("lease_id", Uuid, nullable=False),
    own("lease_id", "leases"),
    # The SHA-256 of its credential, and the agent that was installed with it.
    Column("digest", Text, unique=True),
    # That of a newer agent while it is being installed. Both are good until it is.
    Column("next_digest", Text, unique=True),
    Column("agent_sha256", Text),
    at("installed_at"),
    at("due_at", nullable=False),
    Column("tries", Integer, nullable=False, server_default=text("0")),
    Column("why", Text),
    # What it reported last, and when that reached the hub.
    Column("sequence", BigInteger, nullable=False, server_default=text("0")),
    at("reported_at"),
    Column("heartbeat", JSONB),
    Column("received", BigInteger, nullable=False, server_default=text("0")),
    Column("results", JSONB, nullable=False, server_default=text("'{}'")),
    at("ended_at"),
    CheckConstraint("agent_sha256 IS NULL OR digest IS NOT NULL", name="installed_with_a_credential"),
    Index("ix_agents_machine_id", "machine_id"),
    Index("ix_agents_lease_id", "lease_id"),
    Index("ix_agents_ended_at", "ended_at"),
    tenancy=Tenancy.WATCHED,
    lookups=Lookups.READ,
)

# The power of the machine of a claim, from the first time that its customer asks for a change. The API writes the
# request, and the reconciler what it does about it.
powers = table(
    "powers",
    Column("claim_id", Uuid, nullable=False),
    tenant(),
    own("claim_id", "claims"),
    Column("lease_id", Uuid, nullable=False),
    own("lease_id", "leases"),
    Column("machine_id", Uuid, ForeignKey("machines.id"), nullable=False),
    Column("state", Text, nullable=False),
    Column("generation", Integer, nullable=False, server_default=text("1")),
    at("wanted_at", nullable=False),
    at("settled_at"),
    Column("why", Text),
    # What was asked of the provider, and the machine's boot id before that.
    at("due_at", nullable=False),
    Column("tries", Integer, nullable=False, server_default=text("0")),
    at("asked_at"),
    Column("accepted", Boolean, nullable=False, server_default=text("false")),
    Column("boot_id", Text),
    # How the provider lists the machine since then, from which list on without a break, and in which one lately.
    Column("listed", Text),
    at("listed_from"),
    at("listed_at"),
    # Whether its price while stopped applies: `leases.switched_at` has an odd number of moments then.
    Column("stopped", Boolean, nullable=False, server_default=text("false")),
    PrimaryKeyConstraint("organization_id", "claim_id"),
    known("state", PowerState),
    known("listed", ListedState),
    CheckConstraint("asked_at IS NOT NULL OR NOT accepted", name="accepted_was_asked"),
    CheckConstraint(
        "(listed IS NULL) = (listed_at IS NULL) AND (listed IS NULL) = (listed_from IS NULL)",
        name="listed_has_its_times",
    ),
    CheckConstraint(
        f"stopped AND state IN ('{PowerState.OFF}', '{PowerState.STARTING}')"
        f" OR NOT stopped AND state <> '{PowerState.OFF}'",
        name="stopped_while_off",
    ),
    CheckConstraint(f"(settled_at IS NULL) = ({among('state', CHANGING)})", name="open_while_it_changes"),
    Index("ix_powers_due", "due_at", postgresql_where=text(among("state", CHANGING))),
    Index("ix_powers_machine_id", "machine_id"),
    Index("ix_powers_lease_id", "lease_id"),
    api=("INSERT",),
    api_updates=(
        *("state", "generation", "due_at", "tries", "wanted_at", "settled_at", "why"),
        *("asked_at", "accepted", "boot_id", "listed", "listed_from", "listed_at", "stopped"),
    ),
    lookups=Lookups.READ,
)
