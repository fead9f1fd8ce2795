"""Signing in: sessions and their refresh tokens, terminals that wait to be signed in, and the keys of access tokens.

Of tokens and codes only digests are stored.
"""

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)

from control_plane.db.tables.marks import Lookups, at, known, table, tenant
from control_plane.domain.device_flow import DeviceState
from control_plane.domain.session import SessionEnd

sessions = table(
    "sessions",
    Column("id", Uuid, primary_key=True),
    tenant(),
    Column("user_id", Uuid, nullable=False),
    Column("client", Text, nullable=False),
    Column("address", Text, nullable=False),
    at("created_at", nullable=False),
    at("last_used_at", nullable=False),
    at("expires_at", nullable=False),
    at("ended_at"),
    Column("ended_why", Text),
    known("ended_why", SessionEnd),
    CheckConstraint("(ended_at IS NULL) = (ended_why IS NULL)", name="end_has_its_reason"),
    ForeignKeyConstraint(["organization_id", "user_id"], ["users.organization_id", "users.id"]),
    UniqueConstraint("organization_id", "id"),
    Index("ix_sessions_user_id", "user_id"),
    Index("ix_sessions_expires_at", "expires_at"),
    api=("INSERT",),
    api_updates=("last_used_at", "ended_at", "ended_why"),
    lookups=Lookups.READ,
)

refresh_tokens = table(
    "refresh_tokens",
    Column("secret_sha256", LargeBinary, primary_key=True),
    tenant(),
    Column("session_id", Uuid, nullable=False),
    at("made_at", nullable=False),
    at("replaced_at"),
    # The token that it was given for. Several have the same one when answers were lost; one of them is used.
    Column("replaces_sha256", LargeBinary),
    ForeignKeyConstraint(["organization_id", "session_id"], ["sessions.organization_id", "sessions.id"]),
    Index("ix_refresh_tokens_replaces_sha256", "replaces_sha256"),
    Index("ix_refresh_tokens_session_id", "session_id"),
    Index("ix_refresh_tokens_replaced_at", "replaced_at", postgresql_where=text("replaced_at IS NOT NULL")),
    api=("INSERT",),
    api_updates=("replaced_at",),
)

device_authorizations = table(
    "device_authorizations",
    Column("id", Uuid, primary_key=True),
    Column("device_sha256", LargeBinary, nullable=False, unique=True),
    Column("user_sha256", LargeBinary, nullable=False, unique=True),
    Column("state", Text, nullable=False),
    Column("client", Text, nullable=False),
    Column("address", Text, nullable=False),
    at("created_at", nullable=False),
    at("expires_at", nullable=False),
    Column("interval_seconds", Integer, nullable=False),
    at("polled_at"),
    Column("approved_organization", Uuid),
    Column("approved_user", Uuid),
    known("state", DeviceState),
    CheckConstraint(
        "(approved_organization IS NULL) = (approved_user IS NULL)",
        name="approved_for_a_user_of_an_organization",
    ),
    Index("ix_device_authorizations_expires_at", "expires_at"),
    shared="A terminal that waits belongs to nobody until a person has confirmed it; the row lasts ten minutes.",
    api=("INSERT",),
    api_updates=("state", "polled_at", "interval_seconds", "approved_organization", "approved_user"),
)

signing_keys = table(
    "signing_keys",
    Column("id", Text, primary_key=True),
    Column("public", LargeBinary, nullable=False),
    # The private half, sealed for the API: see control_plane/vault/token_keys.py.
    Column("master", Text, nullable=False),
    Column("wrapped", LargeBinary, nullable=False),
    Column("nonce", LargeBinary, nullable=False),
    Column("ciphertext", LargeBinary, nullable=False),
    at("made_at", nullable=False),
    at("signs_from", nullable=False),
    at("signs_until", nullable=False),
    at("removed_at"),
    shared="The keys that sign the tokens of every organization.",
    api=("INSERT",),
    api_updates=("master", "wrapped", "nonce", "ciphertext"),
    admin=("UPDATE",),
)
