"""Warm pools: machines that are kept ready ahead of demand, per SKU and region."""

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, Integer, Text, Uuid, text

from control_plane.db.tables.marks import Tenancy, at, known, table
from control_plane.domain.pool import PoolPolicy, PoolState

pools = table(
    "pools",
    Column("id", Uuid, primary_key=True),
    Column("name", Text, nullable=False),
    Column("sku", Text, ForeignKey("skus.name"), nullable=False),
    # One of our regions, or a jurisdiction with all of its regions.
    Column("region", Text, nullable=False),
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
    Column("target", Integer, nullable=False, server_default=text("0")),
    Column("why", Text),
    at("fewer_since"),
    at("decided_at"),
    at("due_at", nullable=False),
    known("state", PoolState),
    known("policy", PoolPolicy),
    CheckConstraint("0 <= machines_min AND machines_min <= machines_max", name="bounds_in_order"),
    CheckConstraint("step_max > 0", name="step_positive"),
    CheckConstraint("idle_nano_per_day >= 0 AND waiting_nano_per_hour >= 0", name="amounts_not_negative"),
    CheckConstraint(
        f"(state = '{PoolState.DELETED}') = (deleted_at IS NOT NULL)", name="deleted_has_its_time"
    ),
    Index("uq_pools_name", "name", unique=True, postgresql_where=text(f"state <> '{PoolState.DELETED}'")),
    Index(
        "uq_pools_sku_region",
        "sku",
        "region",
        unique=True,
        postgresql_where=text(f"state <> '{PoolState.DELETED}'"),
    ),
    Index("ix_pools_due", "due_at", postgresql_where=text(f"state <> '{PoolState.DELETED}'")),
    tenancy=Tenancy.PLATFORM,
    api=("INSERT",),
    api_updates=(
        *("state", "policy", "machines_min", "machines_max", "step_max", "idle_nano_per_day"),
        *("waiting_nano_per_hour", "generation", "changed_at", "due_at"),
    ),
)
