"""Private networks, and the machines in them."""

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Integer,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)

from control_plane.db.tables.marks import at, own, table, tenant

networks = table(
    "networks",
    Column("organization_id", Uuid, ForeignKey("organizations.id"), primary_key=True),
    Column("number", Integer, nullable=False, unique=True),
    # The worker that holds the row updates the hub for this network.
    Column("work_token", Uuid),
    at("work_until"),
    at("synced_at"),
    # A worker that had lost the network wrote to the hub during the work of the one that holds it.
    Column("overtaken", Boolean, nullable=False, server_default=text("false")),
    CheckConstraint("number > 0", name="number_positive"),
)

# A machine's membership in a network, for the duration of a claim on it.
peers = table(
    "peers",
    Column("claim_id", Uuid, primary_key=True),
    tenant(),
    own("claim_id", "claims"),
    Column("host_number", Integer, nullable=False),
    Column("address", Text, nullable=False),
    Column("public_key", Text, nullable=False),
    UniqueConstraint("organization_id", "host_number"),
)
