"""What a project has in a cluster: its namespace, and the kubeconfigs that open it."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)

from control_plane.db.tables.marks import at, known, project, table, tenant, work
from control_plane.db.tables.subjects import subject
from control_plane.domain.kubeconfig import IssuingRefusal, KubeconfigRole, Revocation

# The namespace of a project in a cluster, from its first need until it is deleted. Only the reconciler writes it.
cluster_tenants = table(
    "cluster_tenants",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *project(),
    Column("cluster_id", Uuid, ForeignKey("clusters.id"), nullable=False),
    *work(),
    at("created_at", nullable=False),
    # Since when everything is there, and the API server applies our rules; null before that, and once it is deleted.
    at("ready_at"),
    # Since when the project has neither a node pool nor a kubeconfig there.
    at("unneeded_since"),
    # A digest of the nodes, and of what they are asked for, for which it was last put right.
    Column("node_digest", Text),
    UniqueConstraint("cluster_id", "project_id"),
    Index("ix_cluster_tenants_due", "due_at"),
)

# Rows are deleted a month after the request; the audit log keeps its lines.
kubeconfigs = table(
    "kubeconfigs",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *project(),
    Column("cluster_id", Uuid, ForeignKey("clusters.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("lasts_seconds", Integer, nullable=False),
    # The public key of the request, and the file that is sealed for it, which nobody of ours can read.
    Column("recipient", LargeBinary, nullable=False),
    Column("sealed", LargeBinary),
    *subject(),
    # The API key or the session that asked, as an id on the wire, and when it ends by itself.
    Column("credential", Text, nullable=False),
    at("credential_ends_at"),
    # The kubeconfig that this one replaces, whose row is deleted earlier.
    Column("rotates", Uuid),
    # How long that one is left once this one is issued.
    Column("overlap_seconds", Integer),
    *work(),
    at("requested_at", nullable=False),
    at("issued_at"),
    at("expires_at"),
    at("refused_at"),
    Column("refused_why", Text),
    at("revoked_at"),
    Column("revoked_why", Text),
    # Since when nothing of it is left in the cluster.
    at("removed_at"),
    known("role", KubeconfigRole),
    known("refused_why", IssuingRefusal),
    known("revoked_why", Revocation),
    CheckConstraint("lasts_seconds > 0", name="lasts_positive"),
    CheckConstraint("(rotates IS NULL) = (overlap_seconds IS NULL)", name="rotation_has_its_overlap"),
    CheckConstraint("octet_length(recipient) = 32", name="recipient_is_a_key"),
    CheckConstraint("(issued_at IS NULL) = (expires_at IS NULL)", name="issued_has_its_end"),
    CheckConstraint("sealed IS NULL OR issued_at IS NOT NULL", name="sealed_is_issued"),
    CheckConstraint("(refused_at IS NULL) = (refused_why IS NULL)", name="refused_has_its_reason"),
    CheckConstraint("(revoked_at IS NULL) = (revoked_why IS NULL)", name="revoked_has_its_reason"),
    CheckConstraint("refused_at IS NULL OR num_nulls(issued_at, revoked_at) = 2", name="refused_alone"),
    CheckConstraint("removed_at IS NULL OR sealed IS NULL", name="removed_is_erased"),
    Index("ix_kubeconfigs_due", "due_at", postgresql_where=text("removed_at IS NULL")),
    Index(
        "ix_kubeconfigs_cluster_id", "cluster_id", "project_id", postgresql_where=text("removed_at IS NULL")
    ),
    Index("ix_kubeconfigs_organization_id", "organization_id", "requested_at", "id"),
    Index("ix_kubeconfigs_requested_at", "requested_at"),
    api=("INSERT",),
    api_updates=("revoked_at", "revoked_why", "due_at"),
)
