"""Kubernetes clusters, and the hosts of ours that their servers run on."""

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Integer, Text, Uuid, text

from control_plane.db.tables.marks import Tenancy, among, at, known, table, tenant, work
from control_plane.domain.cluster import LIVE, ClusterState

clusters = table(
    "clusters",
    Column("id", Uuid, primary_key=True),
    # Whom it is dedicated to; null for one that organizations share.
    tenant(nullable=True),
    Column("name", Text, nullable=False),
    Column("region", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("generation", Integer, nullable=False, server_default=text("1")),
    *work(),
    # Which range of the address plan it has (domain/overlay.py).
    Column("overlay", Integer, nullable=False),
    # The credential with which servers join, and the administrator's: both sealed.
    Column("token_secret_id", Uuid, ForeignKey("secrets.id")),
    Column("admin_secret_id", Uuid, ForeignKey("secrets.id")),
    # What its servers told when they were built.
    Column("version", Text),
    Column("endpoint", Text),
    Column("ca_pem", Text),
    at("failing_since"),
    Column("failing_why", Text),
    at("created_at", nullable=False),
    at("ready_at"),
    at("gone_at"),
    known("state", ClusterState),
    CheckConstraint("overlay >= 0", name="overlay_not_negative"),
    CheckConstraint("(failing_since IS NULL) = (failing_why IS NULL)", name="failing_has_its_reason"),
    CheckConstraint(
        f"state <> '{ClusterState.READY}' OR (version IS NOT NULL AND endpoint IS NOT NULL AND ca_pem IS NOT NULL)",
        name="ready_is_known",
    ),
    CheckConstraint(f"(state = '{ClusterState.GONE}') = (gone_at IS NOT NULL)", name="gone_has_its_time"),
    CheckConstraint(
        "gone_at IS NULL OR (token_secret_id IS NULL AND admin_secret_id IS NULL)", name="gone_has_no_secrets"
    ),
    Index("uq_clusters_live_name", "name", unique=True, postgresql_where=text(among("state", LIVE))),
    Index("uq_clusters_live_overlay", "overlay", unique=True, postgresql_where=text(among("state", LIVE))),
    Index(
        "ix_clusters_due",
        "due_at",
        postgresql_where=text(among("state", (ClusterState.BUILDING, ClusterState.DELETING))),
    ),
    tenancy=Tenancy.OFFERED,
    api=("INSERT",),
    # What a move changes.
    api_updates=(
        "state",
        "generation",
        "due_at",
        "work_token",
        "work_until",
        "tries",
        "failing_since",
        "failing_why",
        "ready_at",
        "gone_at",
    ),
)

server_hosts = table(
    "server_hosts",
    Column("name", Text, primary_key=True),
    Column("region", Text, nullable=False),
    # Where our SSH reaches it, and where nodes and customers do.
    Column("address", Text, nullable=False),
    Column("ssh_port", Integer, nullable=False),
    Column("host_key", Text, nullable=False),
    Column("outside", Text, nullable=False),
    # The cluster whose server runs there, until it is dismantled.
    Column("cluster_id", Uuid, ForeignKey("clusters.id"), unique=True),
    # Which SSH authorities it was last told to trust.
    Column("ssh_trust", Text),
    at("added_at", nullable=False),
    CheckConstraint("ssh_port BETWEEN 1 AND 65535", name="ssh_port_is_one"),
    tenancy=Tenancy.PLATFORM,
    api=("INSERT", "DELETE"),
    api_updates=("cluster_id",),
)
