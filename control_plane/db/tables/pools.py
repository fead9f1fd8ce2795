"""Warm pools: machines that are kept ready ahead of demand, per SKU and region."""

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

from control_plane.db.tables.marks import Lookups, Tenancy, at, known, table
from control_plane.domain.pool import PoolPolicy, PoolState
from control_plane.domain.sla import SlaTier

pools = table(
    "pools",
    Column("id", Uuid, primary_key=True),
    Column("name", Text, nullable=False),
    Column("sku", Text, ForeignKey("skus.name"), nullable=False),
    # One of our regions, or a jurisdiction with all of its regions.
    Column("region", Text, nullable=False),
    # The only service level whose leases it serves; null for all.
    Column("sla", Text),
    Column("state", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("machines_min", Integer, nullable=False),
    Column("machines_max", Integer, nullable=False),
    # How many machines are ordered or ended in one look at the most.
    Column("step_max", Integer, nullable=False),
    # What its waiting machines may cost in a day, and what an hour of a customer's waiting counts as.
    Column("idle_nano_per_day", BigInteger, nullable=False),
    Column("waiting_nano_per_hour", BigInteger, nullable=False),
    Column("generation", Integer, nullable=False, server_default=text("1")),
    at("created_at", nullable=False),
    at("changed_at", nullable=False),
    at("deleted_at"),
    # What the loop decided last: how many machines demand asks for, how many are kept, why, and since when demand has
    # asked for fewer than are kept.
    Column("wanted", Integer, nullable=False, server_default=text("0")),
    Column("wanted_why", Text),
    Column("target", Integer, nullable=False, server_default=text("0")),
    Column("why", Text),
    at("fewer_since"),
    at("decided_at"),
    at("measured_at"),
    # How many of its machines could be claimed then, and how many were being set up.
    Column("verified", Integer, nullable=False, server_default=text("0")),
    Column("starting", Integer, nullable=False, server_default=text("0")),
    # What its machines cost while they waited, when that was measured last.
    Column("idle_costs", JSONB),
    at("due_at", nullable=False),
    known("state", PoolState),
    known("policy", PoolPolicy),
    known("sla", SlaTier),
    CheckConstraint("0 <= machines_min AND machines_min <= machines_max", name="bounds_in_order"),
    CheckConstraint("step_max > 0", name="step_positive"),
    CheckConstraint("idle_nano_per_day >= 0 AND waiting_nano_per_hour >= 0", name="amounts_not_negative"),
    CheckConstraint(
        f"(state = '{PoolState.DELETED}') = (deleted_at IS NOT NULL)", name="deleted_has_its_time"
    ),
    Index("uq_pools_name", "name", unique=True, postgresql_where=text(f"state <> '{PoolState.DELETED}'")),
    Index(
        "uq_pools_sku_region_sla",
        "sku",
        "region",
        text("coalesce(sla, '')"),
        unique=True,
        postgresql_where=text(f"state <> '{PoolState.DELETED}'"),
    ),
    Index("ix_pools_due", "due_at", postgresql_where=text(f"state <> '{PoolState.DELETED}'")),
    tenancy=Tenancy.PLATFORM,
    api=("INSERT",),
    api_updates=(
        *("state", "policy", "machines_min", "machines_max", "step_max", "idle_nano_per_day"),
        *("waiting_nano_per_hour", "generation", "changed_at", "due_at", "deleted_at"),
    ),
    lookups=Lookups.READ,
)

# What the loop decided about a pool, whenever that changed.
pool_decisions = table(
    "pool_decisions",
    Column("id", Uuid, primary_key=True),
    Column("pool_id", Uuid, ForeignKey("pools.id"), nullable=False),
    at("at", nullable=False),
    Column("wanted", Integer, nullable=False),
    Column("target", Integer, nullable=False),
    # How many of its machines could be claimed, or were being set up, and what was done about that.
    Column("verified", Integer, nullable=False),
    Column("starting", Integer, nullable=False),
    Column("ordered", Integer, nullable=False),
    Column("ended", Integer, nullable=False),
    # Whether it was only decided, and not done.
    Column("dry_run", Boolean, nullable=False),
    Column("why", Text, nullable=False),
    Index("ix_pool_decisions_pool_id_at", "pool_id", "at", "id"),
    tenancy=Tenancy.PLATFORM,
    fact=True,
)

# What a pool did for its customers and what it cost, by the hour. The last hours are written again until they are over.
pool_hours = table(
    "pool_hours",
    Column("pool_id", Uuid, ForeignKey("pools.id"), nullable=False),
    at("hour", nullable=False),
    # Leases that were requested and that the pool could have served, and those that claimed one of its machines.
    Column("requests", Integer, nullable=False),
    Column("hits", Integer, nullable=False),
    # How long both waited from their request until they were ready, those that are ready, and how long the hits would
    # have waited besides for a machine of their own.
    Column("ready_misses", Integer, nullable=False),
    Column("waited_hits_ms", BigInteger, nullable=False),
    Column("waited_misses_ms", BigInteger, nullable=False),
    Column("avoided_ms", BigInteger, nullable=False),
    # What its machines cost from their order to their claim or their end.
    Column("idle_nano", BigInteger, nullable=False),
    PrimaryKeyConstraint("pool_id", "hour"),
    tenancy=Tenancy.PLATFORM,
)
