"""Sealed secrets, and the data keys that they are encrypted under. The API's role can write both and read neither."""

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

from control_plane.db.tables.marks import at, known, own, table, tenant, work
from control_plane.domain.actor import ActorKind
from control_plane.domain.secret import Purpose

# The master key that an organization brings, instead of the installation's own.
master_keys = table(
    "master_keys",
    Column("organization_id", Uuid, ForeignKey("organizations.id"), primary_key=True),
    Column("master", Text, nullable=False),
    at("set_at", nullable=False),
    admin=("INSERT", "UPDATE", "DELETE"),
)

# A destroyed key keeps its row and loses its bytes.
data_keys = table(
    "data_keys",
    Column("id", Uuid, primary_key=True),
    tenant(),
    Column("purpose", Text, nullable=False),
    Column("master", Text, nullable=False),
    Column("wrapped", LargeBinary, nullable=False),
    at("made_at", nullable=False),
    at("wrapped_at", nullable=False),
    at("destroyed_at"),
    *work(),
    known("purpose", Purpose),
    UniqueConstraint("organization_id", "id"),
    CheckConstraint("(length(wrapped) = 0) = (destroyed_at IS NOT NULL)", name="destroyed_has_no_bytes"),
    Index("ix_data_keys_made_at", "made_at", postgresql_where=text("destroyed_at IS NULL")),
    api=("INSERT",),
    api_reads=("id", "organization_id", "purpose", "made_at", "destroyed_at"),
)

secrets = table(
    "secrets",
    Column("id", Uuid, primary_key=True),
    tenant(),
    Column("purpose", Text, nullable=False),
    Column("data_key_id", Uuid, nullable=False),
    own("data_key_id", "data_keys"),
    Column("nonce", LargeBinary, nullable=False),
    Column("ciphertext", LargeBinary, nullable=False),
    # Counts how often it was encrypted: two workers never write over each other.
    Column("version", Integer, nullable=False, server_default=text("1")),
    at("created_at", nullable=False),
    at("rotated_at"),
    known("purpose", Purpose),
    Index("ix_secrets_organization_id", "organization_id"),
    Index("ix_secrets_data_key_id", "data_key_id"),
    api=("INSERT",),
    api_reads=("id", "organization_id", "purpose", "version", "created_at", "rotated_at"),
)

# That an organization's data keys were destroyed, when, by whom and why.
key_destructions = table(
    "key_destructions",
    Column("id", Uuid, primary_key=True),
    tenant(),
    Column("data_keys", Integer, nullable=False),
    Column("secrets", Integer, nullable=False),
    Column("why", Text, nullable=False),
    Column("actor_kind", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("request_id", Text),
    at("at", nullable=False),
    known("actor_kind", ActorKind),
    Index("ix_key_destructions_organization_id", "organization_id"),
    fact=True,
)
