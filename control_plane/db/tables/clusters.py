"""Kubernetes clusters, the hosts of ours that their servers run on, node pools, and the nodes in them."""

from sqlalchemy import (
    BigInteger,
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
from control_plane.domain.cluster import LIVE, ClusterState
from control_plane.domain.node import IN_CLUSTER, LeaveReason, NodeState
from control_plane.domain.node_pool import LIVE as LIVE_POOL
from control_plane.domain.node_pool import NodePoolState

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
    # When an operator asked for another WireGuard key of its server; null when that was done.
    at("server_key_asked_at"),
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
    # What a move changes, and what an operator asks for.
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
        "server_key_asked_at",
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
    # Which SSH authorities it was last told to trust, and when to tell it again.
    Column("ssh_trust", Text),
    at("ssh_trust_due_at"),
    # Of the last turn of a worker there: the host refuses what one before it still brings.
    Column("fence", BigInteger, nullable=False, server_default=text("0")),
    at("added_at", nullable=False),
    CheckConstraint("ssh_port BETWEEN 1 AND 65535", name="ssh_port_is_one"),
    tenancy=Tenancy.PLATFORM,
    api=("INSERT", "DELETE"),
    api_updates=("cluster_id",),
)

# What every overlay of a cluster has besides its nodes: the tunnels of the cluster's server.
overlays = table(
    "overlays",
    Column("cluster_id", Uuid, ForeignKey("clusters.id"), primary_key=True),
    # The worker that holds the row applies the peer map of this cluster. The tries are those of its server.
    *work(),
    # The server's WireGuard key, and the version of the peer map that its interface was last set up as.
    Column("public_key", Text),
    Column("applied_version", Text),
    # The key that it changes to, when that was made, and the key that it has changed from.
    Column("next_key", Text),
    at("key_made_at"),
    Column("old_key", Text),
    # Since when the change waits for the nodes.
    at("key_waits_since"),
    at("read_at"),
    # What could not be applied, for operators.
    Column("failing_why", Text),
    # Grows with each worker that holds the row. Members refuse what a worker brings that held it before.
    Column("fence", BigInteger, nullable=False, server_default=text("0")),
    # A digest of all rows that the peer map and its work follow from, when nothing was left to do, and until when
    # nobody has to be read again. While the rows have that digest, nothing is computed.
    Column("quiet_digest", Text),
    at("quiet_until"),
    CheckConstraint("next_key IS NULL OR old_key IS NULL", name="one_change_of_key"),
    CheckConstraint(
        "(next_key IS NULL AND old_key IS NULL) = (key_waits_since IS NULL)",
        name="change_of_key_has_its_time",
    ),
    shared="the tunnels of a cluster's server: no row of a customer, and nothing secret",
)

# The place on the hub at which the nodes of an organization in a cluster meet that are behind NAT.
relays = table(
    "relays",
    Column("cluster_id", Uuid, ForeignKey("clusters.id"), nullable=False),
    tenant(),
    # Which of the hub's places for relays it has.
    Column("number", Integer, nullable=False, unique=True),
    # How nodes reach it; null until the hub was first told of it.
    Column("public_key", Text),
    Column("endpoint", Text),
    # The version of the peer map that the hub was last told, and when.
    Column("applied_version", Text),
    at("read_at"),
    # Since when no two nodes need it; null while they do.
    at("unneeded_since"),
    PrimaryKeyConstraint("cluster_id", "organization_id"),
    CheckConstraint("number >= 0", name="number_not_negative"),
    CheckConstraint("(public_key IS NULL) = (endpoint IS NULL)", name="key_has_its_endpoint"),
)

# A number of equal nodes that a project wants in a cluster. Each of them is a lease with this pool's id.
node_pools = table(
    "node_pools",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *project(),
    *environment(),
    Column("cluster_id", Uuid, ForeignKey("clusters.id"), nullable=False),
    Column("name", Text, nullable=False),
    # What each of its leases asks for.
    Column("request", JSONB, nullable=False),
    # How many nodes it wants.
    Column("nodes", Integer, nullable=False),
    Column("node_labels", JSONB, nullable=False, server_default=text("'{}'")),
    Column("node_taints", JSONB, nullable=False, server_default=text("'[]'")),
    Column("wait_timeout_seconds", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("generation", Integer, nullable=False, server_default=text("1")),
    *work(),
    # Since when and why a node that it lacks is not admitted.
    at("waiting_since"),
    Column("waiting_code", Text),
    Column("waiting_why", Text),
    # Why it is being deleted.
    Column("why", Text),
    at("created_at", nullable=False),
    # When all its nodes were first ready together; null until then.
    at("ready_at"),
    at("gone_at"),
    known("state", NodePoolState),
    CheckConstraint(
        "(waiting_since IS NULL) = (waiting_code IS NULL) AND (waiting_since IS NULL) = (waiting_why IS NULL)",
        name="waiting_has_its_reason",
    ),
    UniqueConstraint("organization_id", "id"),
    CheckConstraint("nodes >= 0", name="nodes_not_negative"),
    CheckConstraint("wait_timeout_seconds >= 0", name="wait_timeout_not_negative"),
    CheckConstraint(f"state <> '{NodePoolState.READY}' OR ready_at IS NOT NULL", name="ready_has_its_time"),
    CheckConstraint(f"(state = '{NodePoolState.GONE}') = (gone_at IS NOT NULL)", name="gone_has_its_time"),
    Index(
        "uq_node_pools_live_name",
        "organization_id",
        "project_id",
        "cluster_id",
        "name",
        unique=True,
        postgresql_where=text(among("state", LIVE_POOL)),
    ),
    Index("ix_node_pools_due", "due_at", postgresql_where=text(among("state", LIVE_POOL))),
    Index("ix_node_pools_cluster_id", "cluster_id", postgresql_where=text(among("state", LIVE_POOL))),
    api=("INSERT", "UPDATE"),
    lookups=Lookups.READ,
)

# Which NodePool objects of a cluster are acted upon, and what was decided about each the last time. What is done about
# one is the node pool of the same name.
scaled_pools = table(
    "scaled_pools",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *project(),
    Column("cluster_id", Uuid, ForeignKey("clusters.id"), nullable=False),
    Column("name", Text, nullable=False),
    # The uid of the object, by which another one of the same name is told from it.
    Column("object_uid", Text, nullable=False),
    Column("node_pool_id", Uuid, nullable=False, unique=True),
    own("node_pool_id", "node_pools"),
    # The ScalingPolicy that decides its number of nodes; null when the object itself does.
    Column("policy", Text),
    Column("nodes_min", Integer, nullable=False, server_default=text("0")),
    Column("nodes_max", Integer, nullable=False, server_default=text("0")),
    # The least that an open node was seen to have for pods; null before the first one.
    Column("room", JSONB),
    # Since when nodes are known to be empty, by the ids of their leases, and when that was last looked at.
    Column("empty_since", JSONB, nullable=False, server_default=text("'{}'")),
    at("looked_at"),
    # Until when nothing is bought for pods, by their names, for which a node of it was bought in vain.
    Column("vain", JSONB, nullable=False, server_default=text("'{}'")),
    # Since when the object is gone although nobody was seen deleting it.
    at("missing_since"),
    at("scaled_at"),
    Column("scaled_why", Text),
    # When and why nodes that it lacks were last refused; null when they are not.
    at("refused_at"),
    Column("refused_code", Text),
    Column("refused_why", Text),
    # What pools of its name were charged in the month (UTC) of `spent_at`, where a budget per month needs it.
    Column("spent_nano", BigInteger, nullable=False, server_default=text("0")),
    at("spent_at"),
    # What the object is told.
    Column("conditions", JSONB, nullable=False, server_default=text("'[]'")),
    at("created_at", nullable=False),
    UniqueConstraint("cluster_id", "project_id", "name"),
    CheckConstraint("0 <= nodes_min AND nodes_min <= nodes_max", name="bounds_in_order"),
    CheckConstraint("(scaled_at IS NULL) = (scaled_why IS NULL)", name="scaled_has_its_reason"),
    CheckConstraint(
        "(refused_at IS NULL) = (refused_code IS NULL) AND (refused_at IS NULL) = (refused_why IS NULL)",
        name="refused_has_its_reason",
    ),
)

# When the objects of which ready cluster are read next.
scaling_turns = table(
    "scaling_turns",
    # Of the cluster.
    Column("id", Uuid, ForeignKey("clusters.id"), primary_key=True),
    *work(),
    # When the process that watches it saw a change there, and until when that process does.
    at("changed_at"),
    Column("watch_token", Uuid),
    at("watch_until"),
    Index("ix_scaling_turns_due", "due_at"),
    shared="when a cluster is looked at: no row of a customer, and nothing secret",
)

# A machine in a cluster, or on its way into it or out of it. It belongs to the lease for which it was bought.
nodes = table(
    "nodes",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *project(),
    Column("cluster_id", Uuid, ForeignKey("clusters.id"), nullable=False),
    Column("node_pool_id", Uuid, nullable=False),
    own("node_pool_id", "node_pools"),
    Column("lease_id", Uuid, nullable=False),
    own("lease_id", "leases"),
    Column("claim_id", Uuid, nullable=False),
    own("claim_id", "claims"),
    Column("machine_id", Uuid, ForeignKey("machines.id"), nullable=False),
    # Its name in the cluster, which never names another machine.
    Column("name", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("generation", Integer, nullable=False, server_default=text("1")),
    *work(),
    # Its place in the overlay (domain/overlay.py), from which its address follows.
    Column("number", Integer, nullable=False),
    # Its WireGuard keys and where it can be reached from outside; the endpoint is null behind NAT.
    Column("public_key", Text),
    Column("next_key", Text),
    Column("endpoint", Text),
    # The key that it has changed from, until nobody lists that any more.
    Column("old_key", Text),
    # Which members still have to list its next key, or to drop its old one; null while its key does not change.
    Column("key_holders", JSONB),
    # Since when the change of its key waits for them, and when the change is to begin or to go on.
    at("key_waits_since"),
    at("key_due_at"),
    # When an operator asked for another key, until it is in use; and when the next key was made.
    at("key_asked_at"),
    at("key_made_at"),
    # The hold in which it has its turn at what few nodes may do at the same time.
    Column("turn_token", Uuid),
    # What was last found about its tunnels, and when they are looked at again.
    Column("tunnels", JSONB, nullable=False, server_default=text("'{}'")),
    at("tunnels_due_at"),
    # The last handshake of its tunnel with the server, by the machine's own word.
    at("handshake_at"),
    # Which range of addresses its pods have; null until the cluster assigned one.
    Column("pod_block", Integer),
    # The version of the peer map that its interface was last set up as, and when its interface was last read.
    Column("applied_version", Text),
    at("peers_read_at"),
    # How often setting it up has failed since then, and when it failed the last time.
    Column("peers_tries", Integer, nullable=False, server_default=text("0")),
    at("peers_tried_at"),
    # Which members of the overlay have not yet been seen without its key; null before it has to go.
    Column("holders", JSONB),
    # The uid of its Node object.
    Column("uid", Text),
    # What the cluster last told of it: capacity and conditions. Nothing of it is trusted.
    Column("reported", JSONB, nullable=False, server_default=text("'{}'")),
    Column("leave_reason", Text),
    Column("leave_why", Text),
    # Why the step in progress failed the last time.
    Column("failing_why", Text),
    at("created_at", nullable=False),
    # By when it has to be healthy.
    at("deadline_at", nullable=False),
    at("ready_at"),
    # Since when the cluster says that it is not ready, or pods cannot have its GPUs; null otherwise.
    at("unready_since"),
    at("leaving_at"),
    # Since when it is in nobody's peer map any more.
    at("removed_at"),
    at("gone_at"),
    known("state", NodeState),
    known("leave_reason", LeaveReason),
    UniqueConstraint("organization_id", "id"),
    CheckConstraint("number > 0", name="number_positive"),
    CheckConstraint("pod_block >= 0", name="pod_block_not_negative"),
    CheckConstraint(f"(state = '{NodeState.GONE}') = (gone_at IS NOT NULL)", name="gone_has_its_time"),
    CheckConstraint(f"state <> '{NodeState.READY}' OR ready_at IS NOT NULL", name="ready_has_its_time"),
    CheckConstraint("(leaving_at IS NULL) = (leave_reason IS NULL)", name="leaving_has_its_reason"),
    CheckConstraint("(removed_at IS NULL) = (holders IS NULL)", name="removed_has_its_holders"),
    CheckConstraint("next_key IS NULL OR old_key IS NULL", name="one_change_of_key"),
    CheckConstraint(
        "(next_key IS NULL AND old_key IS NULL) = (key_holders IS NULL)", name="change_of_key_has_its_holders"
    ),
    CheckConstraint("(key_holders IS NULL) = (key_waits_since IS NULL)", name="change_of_key_has_its_time"),
    Index(
        "uq_nodes_machine_id", "machine_id", unique=True, postgresql_where=text(among("state", IN_CLUSTER))
    ),
    Index(
        "uq_nodes_number",
        "cluster_id",
        "number",
        unique=True,
        postgresql_where=text(among("state", IN_CLUSTER)),
    ),
    Index(
        "uq_nodes_pod_block",
        "cluster_id",
        "pod_block",
        unique=True,
        postgresql_where=text(among("state", IN_CLUSTER)),
    ),
    Index("ix_nodes_due", "due_at", postgresql_where=text(among("state", IN_CLUSTER))),
    Index("ix_nodes_key_due", "key_due_at", postgresql_where=text(f"state = '{NodeState.READY}'")),
    Index("ix_nodes_tunnels_due", "tunnels_due_at", postgresql_where=text(f"state = '{NodeState.READY}'")),
    Index("ix_nodes_node_pool_id", "node_pool_id"),
    Index("ix_nodes_lease_id", "lease_id"),
    Index("ix_nodes_claim_id", "claim_id"),
    api_updates=("key_asked_at", "key_due_at"),  # What an operator asks for.
    lookups=Lookups.READ,
)

# The evidence of each step that a node has taken into its cluster and out of it.
node_steps = table(
    "node_steps",
    Column("node_id", Uuid, nullable=False),
    Column("step", Text, nullable=False),
    tenant(),
    own("node_id", "nodes"),
    at("at", nullable=False),
    Column("evidence", JSONB, nullable=False),
    PrimaryKeyConstraint("node_id", "step"),
    fact=True,
)
