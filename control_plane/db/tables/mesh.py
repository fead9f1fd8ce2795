"""Private networks, and the machines in them."""

from sqlalchemy import CheckConstraint, Column, ForeignKey, Integer, Text, UniqueConstraint, Uuid

from control_plane.db.tables.marks import at, table, tenant

networks = table(
    "networks",
    Column("organization_id", Uuid, ForeignKey("organizations.id"), primary_key=True),
    Column("number", Integer, nullable=False, unique=True),
    # The worker that holds the row updates the hub for this network.
    Column("work_token", Uuid),
    at("work_until"),
    at("synced_at"),
    CheckConstraint("number > 0", name="number_positive"),
)

# A machine's membership in a network, for the duration of a claim on it.
peers = table(
    "peers",
    Column("claim_id", Uuid, ForeignKey("claims.id"), primary_key=True),
    tenant(),
    Column("slot", Integer, nullable=False),
    Column("address", Text, nullable=False),
    Column("public_key", Text, nullable=False),
    UniqueConstraint("organization_id", "slot"),
)
