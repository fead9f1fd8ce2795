"""SSH access to machines."""

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Text, Uuid, text

from control_plane.db.tables.marks import at, known, table
from control_plane.domain.ssh_authority import SshAuthorityState

# The keys that sign SSH certificates. The private half is a secret of the platform's organization.
ssh_authorities = table(
    "ssh_authorities",
    Column("id", Uuid, primary_key=True),
    Column("public_key", Text, nullable=False, unique=True),
    Column("secret_id", Uuid, ForeignKey("secrets.id")),
    Column("state", Text, nullable=False),
    at("made_at", nullable=False),
    at("signs_from"),
    at("retired_at"),
    at("removed_at"),
    known("state", SshAuthorityState),
    CheckConstraint(
        f"(secret_id IS NULL) = (state = '{SshAuthorityState.REMOVED}')", name="removed_has_no_secret"
    ),
    # Replicas that race for the first one, and operators who rotate at the same time: one wins.
    Index(
        "ix_ssh_authorities_state",
        "state",
        unique=True,
        postgresql_where=text(f"state IN ('{SshAuthorityState.NEXT}', '{SshAuthorityState.SIGNING}')"),
    ),
    shared="They sign the certificates of every organization.",
)
