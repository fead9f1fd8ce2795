"""Organizations, their projects and environments, SSH keys and standings."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)

from control_plane.db.tables.marks import Lookups, at, known, project, table, tenant
from control_plane.domain.actor import ActorKind
from control_plane.domain.organization import OrganizationEvent, OrganizationState

organizations = table(
    "organizations",
    Column("id", Uuid, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    # Whether it is the organization of those who run the installation: it cannot be suspended or closed, and only its
    # subjects may have roles at platform scope.
    Column("platform", Boolean, nullable=False, server_default=text("false")),
    Column("state", Text, nullable=False, server_default=text("'active'")),
    Column("generation", Integer, nullable=False, server_default=text("1")),
    # Who sells to it, and so whose accounting periods its money is booked in.
    Column("issuer", Text, ForeignKey("issuers.code"), nullable=False, server_default=text("'main'")),
    at("created_at", nullable=False),
    at("erased_at"),
    known("state", OrganizationState),
    CheckConstraint(
        f"erased_at IS NULL OR state = '{OrganizationState.DELETED}'", name="erased_when_deleted"
    ),
    UniqueConstraint("id", "platform"),  # The target of foreign keys that demand the platform's organization.
    Index("ix_organizations_closing", "id", postgresql_where=text(f"state = '{OrganizationState.CLOSING}'")),
    Index(
        "ix_organizations_unerased",
        "id",
        postgresql_where=text(f"state = '{OrganizationState.DELETED}' AND erased_at IS NULL"),
    ),
    api=("INSERT",),
    api_updates=("state", "generation"),
    admin=("INSERT",),
    lookups=Lookups.READ,
)

organization_events = table(
    "organization_events",
    Column("number", BigInteger, Identity(always=True), primary_key=True),
    tenant(),
    at("at", nullable=False),
    Column("actor_kind", Text, nullable=False),
    Column("actor", Text, nullable=False),
    # The id of the HTTP request that caused it.
    Column("request_id", Text),
    Column("event", Text, nullable=False),
    Column("state_before", Text, nullable=False),
    Column("state_after", Text, nullable=False),
    Column("reason", Text, nullable=False),
    # What it ended.
    Column("waiting_leases", Integer, nullable=False),
    Column("starting_leases", Integer, nullable=False),
    Column("ready_leases", Integer, nullable=False),
    Column("ending_leases", Integer, nullable=False),
    Column("api_keys", Integer, nullable=False),
    Column("released_nano", BigInteger, nullable=False),
    # What was left after it.
    Column("held_nano", BigInteger, nullable=False),
    Column("balance_nano", BigInteger, nullable=False),
    known("actor_kind", ActorKind),
    known("event", OrganizationEvent),
    known("state_before", OrganizationState),
    known("state_after", OrganizationState),
    Index("ix_organization_events_organization_id_number", "organization_id", "number"),
    fact=True,
    api=("INSERT",),
)

projects = table(
    "projects",
    Column("id", Uuid, primary_key=True),
    tenant(),
    Column("name", Text, nullable=False),
    at("created_at", nullable=False),
    UniqueConstraint("organization_id", "name"),
    UniqueConstraint(
        "organization_id", "id"
    ),  # The target of foreign keys that keep a row's project within its organization.
    api=("INSERT",),
    api_updates=("name",),
    admin=("INSERT",),
    lookups=Lookups.READ,
)

environments = table(
    "environments",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *project(),
    Column("name", Text, nullable=False),
    at("created_at", nullable=False),
    UniqueConstraint("organization_id", "project_id", "name"),
    # The target of foreign keys that keep a row's environment within its project.
    UniqueConstraint("organization_id", "project_id", "id"),
    api=("INSERT",),
    admin=("INSERT",),
)

# One row per organization with its GPUs, balance and held money, locked by every transaction that spends.
# It caches other tables and is updated in the same transactions; a test rebuilds and compares it.
standings = table(
    "standings",
    Column("organization_id", Uuid, ForeignKey("organizations.id"), primary_key=True),
    Column("gpus_held", Integer, nullable=False, server_default=text("0")),
    # What was posted to the wallet and to the receivable: cached sums of postings, credit positive.
    Column("posted_nano", BigInteger, nullable=False, server_default=text("0")),
    Column("receivable_nano", BigInteger, nullable=False, server_default=text("0")),
    # How many transactions of the ledger were posted for the organization: the number of the last one.
    Column("transaction_count", BigInteger, nullable=False, server_default=text("0")),
    Column("held_nano", BigInteger, nullable=False, server_default=text("0")),
    # When the balance is looked at next; null while nothing is used that could lower it.
    at("balance_due_at"),
    CheckConstraint("gpus_held >= 0", name="gpus_held_not_negative"),
    CheckConstraint("held_nano >= 0", name="held_not_negative"),
    Index(
        "ix_standings_balance_due_at", "balance_due_at", postgresql_where=text("balance_due_at IS NOT NULL")
    ),
    api=("INSERT", "UPDATE"),
    admin=("INSERT", "UPDATE"),
    lookups=Lookups.READ,
)

ssh_keys = table(
    "ssh_keys",
    Column("id", Uuid, primary_key=True),
    tenant(),
    Column("name", Text, nullable=False),
    Column("public_key", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    # The project whose leases it is for; null: all of the organization's.
    *project(nullable=True),
    at("created_at", nullable=False),
    UniqueConstraint("organization_id", "project_id", "name", postgresql_nulls_not_distinct=True),
    UniqueConstraint("organization_id", "project_id", "fingerprint", postgresql_nulls_not_distinct=True),
    api=("INSERT", "DELETE"),
    api_updates=("name",),  # PostgreSQL demands the right to update something from whoever locks a row.
)

idempotency_keys = table(
    "idempotency_keys",
    tenant(),
    # Digests of the Idempotency-Key and of the request; the second is keyed with the first: see api/idempotency.py.
    Column("key", Text, nullable=False),
    Column("request_hmac", LargeBinary, nullable=False),
    Column("status", SmallInteger, nullable=False),
    Column("answer", LargeBinary, nullable=False),
    at("created_at", nullable=False),
    PrimaryKeyConstraint("organization_id", "key"),
    Index("ix_idempotency_keys_created_at", "created_at"),
    api=("INSERT",),
)
