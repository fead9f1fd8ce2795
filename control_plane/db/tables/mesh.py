"""Private networks, their places on the hub, and the machines in them."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Index,
    Integer,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.db.tables.marks import at, own, project, table, tenant, work

# What customers see. A deleted network keeps its row, to which leases that have ended refer.
networks = table(
    "networks",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *project(),
    Column("name", Text, nullable=False),
    # Which range of the address plan it has.
    Column("block", Integer, nullable=False),
    Column("labels", JSONB, nullable=False, server_default=text("'{}'")),
    at("created_at", nullable=False),
    at("deleted_at"),
    CheckConstraint("block >= 0", name="block_not_negative"),
    UniqueConstraint("organization_id", "id"),
    # The target of foreign keys that keep a lease's network within its project.
    UniqueConstraint("organization_id", "project_id", "id"),
    Index(
        "uq_networks_name",
        "organization_id",
        "project_id",
        "name",
        unique=True,
        postgresql_where=text("deleted_at IS NULL"),
    ),
    Index(
        "uq_networks_block",
        "organization_id",
        "block",
        unique=True,
        postgresql_where=text("deleted_at IS NULL"),
    ),
    api=("INSERT",),
    api_updates=("labels", "deleted_at"),
    admin=("INSERT",),
)

# Networks with a place on the hub: those that a machine has joined, until they have been empty for a while.
hub_networks = table(
    "hub_networks",
    Column("network_id", Uuid, primary_key=True),
    tenant(),
    own("network_id", "networks"),
    Column("number", Integer, nullable=False, unique=True),
    # The worker that holds the row updates the hub for this network.
    Column("work_token", Uuid),
    at("work_until"),
    # Grows with each worker that takes the row. The hub refuses one that comes later with a lower number.
    Column("fence", BigInteger, nullable=False, server_default=text("0")),
    # What machines have to know of the hub, as it said when it was synced last.
    Column("public_key", Text),
    Column("endpoint", Text),
    at("synced_at"),
    # Since when no machine is in it; null while one is.
    at("empty_since"),
    CheckConstraint("number > 0", name="number_positive"),
)

# A machine's membership in a network, for the duration of a claim on it.
peers = table(
    "peers",
    Column("claim_id", Uuid, primary_key=True),
    tenant(),
    own("claim_id", "claims"),
    Column("network_id", Uuid, nullable=False),
    own("network_id", "networks"),
    Column("host_number", Integer, nullable=False),
    Column("address", Text, nullable=False),
    Column("public_key", Text, nullable=False),
    at("joined_at", nullable=False),
    # The hub's key and endpoint with which the machine has reached it last; null before it has.
    Column("hub_key", Text),
    Column("hub_endpoint", Text),
    at("linked_at"),
    *work(),
    UniqueConstraint("organization_id", "network_id", "host_number"),
)
