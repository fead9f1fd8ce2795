"""SSH access to machines."""

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, Text, Uuid, text

from control_plane.db.tables.marks import at, known, own, project, table, tenant
from control_plane.db.tables.subjects import subject
from control_plane.domain.ssh_authority import SshAuthorityState
from control_plane.domain.ssh_certificate import Revocation, SigningRefusal

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

# Certificates of customers. A trigger refuses to change what was requested, signed, refused or revoked
# (migrations/certificate_triggers.py). Rows are deleted a month after the request; the audit log keeps its lines.
ssh_certificates = table(
    "ssh_certificates",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *project(),
    Column("lease_id", Uuid, nullable=False),
    own("lease_id", "leases"),
    # The random bits of the id, and not a count, which would tell how many certificates others get.
    Column("serial", BigInteger, nullable=False, unique=True),
    Column("public_key", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    *subject(),
    # The API key or the session that asked, as an id on the wire, and when it ends by itself.
    Column("credential", Text, nullable=False),
    at("credential_ends_at"),
    at("requested_at", nullable=False),
    at("signed_at"),
    at("valid_after"),
    at("valid_before"),
    Column("certificate", Text),
    at("refused_at"),
    Column("refused_why", Text),
    at("revoked_at"),
    Column("revoked_why", Text),
    known("refused_why", SigningRefusal),
    known("revoked_why", Revocation),
    CheckConstraint(
        "num_nulls(signed_at, valid_after, valid_before, certificate) IN (0, 4)", name="signed_as_a_whole"
    ),
    CheckConstraint("(refused_at IS NULL) = (refused_why IS NULL)", name="refused_has_its_reason"),
    CheckConstraint("(revoked_at IS NULL) = (revoked_why IS NULL)", name="revoked_has_its_reason"),
    CheckConstraint("refused_at IS NULL OR num_nulls(signed_at, revoked_at) = 2", name="refused_alone"),
    Index("ix_ssh_certificates_lease_id", "lease_id", "requested_at", "id"),
    Index(
        "ix_ssh_certificates_wanted",
        "requested_at",
        postgresql_where=text("signed_at IS NULL AND refused_at IS NULL AND revoked_at IS NULL"),
    ),
    Index(
        "ix_ssh_certificates_live",
        "organization_id",
        "valid_before",
        postgresql_where=text("refused_at IS NULL AND revoked_at IS NULL"),
    ),
    Index(
        "ix_ssh_certificates_revoked",
        "lease_id",
        postgresql_where=text("revoked_at IS NOT NULL AND signed_at IS NOT NULL"),
    ),
    Index("ix_ssh_certificates_requested_at", "requested_at"),
    api=("INSERT",),
    api_updates=("revoked_at", "revoked_why"),
)
