"""Who acts in an organization: users and service accounts, their roles, and their API keys."""

from uuid import UUID

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.schema import SchemaItem

from control_plane.db.tables.marks import Lookups, at, known, own, table, tenant
from control_plane.domain.role import Role
from control_plane.domain.scope import ScopeKind
from control_plane.domain.subject import SubjectState

_NOT_REMOVED = text(f"state <> '{SubjectState.REMOVED}'")

users = table(
    "users",
    Column("id", Uuid, primary_key=True),
    tenant(),
    Column("email", Text, nullable=False),
    Column("name", Text, nullable=False),
    # Who the person is to the OpenID provider that they sign in with; null until they first do.
    Column("issuer", Text),
    Column("subject", Text),
    Column("state", Text, nullable=False),
    at("created_at", nullable=False),
    known("state", SubjectState),
    CheckConstraint("(issuer IS NULL) = (subject IS NULL)", name="subject_has_its_issuer"),
    UniqueConstraint("organization_id", "id"),
    Index(
        "uq_users_email", "organization_id", text("lower(email)"), unique=True, postgresql_where=_NOT_REMOVED
    ),
    Index(
        "uq_users_subject",
        "issuer",
        "subject",
        "organization_id",
        unique=True,
        postgresql_where=_NOT_REMOVED,
    ),
    api=("INSERT",),
    api_updates=("name", "issuer", "subject", "state"),
    lookups=Lookups.READ,
)

service_accounts = table(
    "service_accounts",
    Column("id", Uuid, primary_key=True),
    tenant(),
    Column("name", Text, nullable=False),
    Column("state", Text, nullable=False),
    at("created_at", nullable=False),
    CheckConstraint(
        f"state IN ('{SubjectState.ACTIVE}', '{SubjectState.REMOVED}', '{SubjectState.SUSPENDED}')",
        name="state_known",
    ),
    UniqueConstraint("organization_id", "id"),
    Index("uq_service_accounts_name", "organization_id", "name", unique=True, postgresql_where=_NOT_REMOVED),
    api=("INSERT",),
    api_updates=("state",),
    admin=("INSERT",),
    lookups=Lookups.READ,
)


def subject() -> list[SchemaItem]:
    """The subject that a row belongs to, a user or a service account, which must be of the same organization."""
    return [
        Column("user_id", Uuid),
        Column("service_account_id", Uuid),
        CheckConstraint("num_nonnulls(user_id, service_account_id) = 1", name="one_subject"),
        own("user_id", "users"),
        own("service_account_id", "service_accounts"),
    ]


def _has(column: str, *scopes: ScopeKind) -> str:
    """SQL: the column has a value exactly in bindings of these scopes."""
    words = ", ".join(f"'{scope}'" for scope in sorted(scopes))
    return f"({column} IS NOT NULL) = (scope IN ({words}))"


# As PostgreSQL spells it, so that a comparison of the database with this table finds no difference.
_PLATFORM = f"CASE WHEN scope = '{ScopeKind.PLATFORM}'::text THEN true ELSE NULL::boolean END"

# A subject's role at a scope. The scope's project, environment and lease are all stored, so that it is known what a
# scope lies in.
role_bindings = table(
    "role_bindings",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *subject(),
    Column("role", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("project_id", Uuid),
    Column("environment_id", Uuid),
    Column("lease_id", Uuid),
    at("created_at", nullable=False),
    # The subject that granted it, as an id on the wire.
    Column("granted_by", Text, nullable=False),
    # True for the scope `platform`, otherwise null. The foreign key then demands the platform's organization.
    Column(
        "platform",
        Boolean,
        Computed(_PLATFORM, persisted=True),
    ),
    known("role", Role),
    known("scope", ScopeKind),
    CheckConstraint(
        _has("project_id", ScopeKind.PROJECT, ScopeKind.ENVIRONMENT, ScopeKind.LEASE), name="project_of_scope"
    ),
    CheckConstraint(
        _has("environment_id", ScopeKind.ENVIRONMENT, ScopeKind.LEASE), name="environment_of_scope"
    ),
    CheckConstraint(_has("lease_id", ScopeKind.LEASE), name="lease_of_scope"),
    ForeignKeyConstraint(
        ["organization_id", "platform"],
        ["organizations.id", "organizations.platform"],
        name="fk_role_bindings_platform_organization",
    ),
    own("project_id", "projects"),
    ForeignKeyConstraint(
        ["organization_id", "project_id", "environment_id"],
        ["environments.organization_id", "environments.project_id", "environments.id"],
    ),
    own("lease_id", "leases"),
    UniqueConstraint(
        "organization_id",
        "user_id",
        "service_account_id",
        "role",
        "scope",
        "project_id",
        "environment_id",
        "lease_id",
        name="uq_role_bindings_once",
        postgresql_nulls_not_distinct=True,
    ),
    # At platform scope a subject has one role at most: who runs machines posts no credits, who audits does neither.
    Index(
        "uq_role_bindings_platform",
        "user_id",
        "service_account_id",
        unique=True,
        postgresql_where=text(f"scope = '{ScopeKind.PLATFORM}'"),
        postgresql_nulls_not_distinct=True,
    ),
    Index("ix_role_bindings_user_id", "user_id"),
    Index("ix_role_bindings_service_account_id", "service_account_id"),
    api=("INSERT", "DELETE"),
    admin=("INSERT",),
    lookups=Lookups.READ,
)

api_keys = table(
    "api_keys",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *subject(),
    Column("name", Text, nullable=False),
    Column("secret_sha256", LargeBinary, nullable=False, unique=True),
    Column("hint", Text, nullable=False),
    # The permissions and the projects that the key is limited to; null: all that its owner may do.
    Column("scopes", ARRAY(Text)),
    Column[list[UUID]]("project_ids", ARRAY(Uuid)),
    # The key that this one replaces.
    Column("rotates", Uuid),
    at("created_at", nullable=False),
    at("expires_at"),
    at("revoked_at"),
    # Written now and then, never by the request itself.
    at("last_used_at"),
    UniqueConstraint("organization_id", "id"),
    own("rotates", "api_keys"),
    Index("ix_api_keys_user_id", "user_id"),
    Index("ix_api_keys_service_account_id", "service_account_id"),
    api=("INSERT",),
    api_updates=("revoked_at", "expires_at", "last_used_at"),
    admin=("INSERT",),
    lookups=Lookups.READ,
)
