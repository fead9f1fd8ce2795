"""Queries on role bindings."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.reach import reach_values, within
from control_plane.db.rows import read, read_one, write
from control_plane.db.subjects import subject_of, subject_values
from control_plane.db.tables.marks import among
from control_plane.domain.access import HeldRole, Reach
from control_plane.domain.ids import (
    EnvironmentId,
    LeaseId,
    OrganizationId,
    ProjectId,
    RoleBindingId,
    ServiceAccountId,
    UserId,
)
from control_plane.domain.role import Role
from control_plane.domain.role_binding import RoleBinding
from control_plane.domain.scope import Scope, ScopeKind
from control_plane.domain.subject import MAY_ACT, Subject


@dataclass(frozen=True, slots=True)
class _Row:
    id: RoleBindingId
    user_id: UserId | None
    service_account_id: ServiceAccountId | None
    role: Role
    scope: ScopeKind
    project_id: ProjectId | None
    environment_id: EnvironmentId | None
    lease_id: LeaseId | None
    created_at: datetime
    granted_by: str

    @property
    def binding(self) -> RoleBinding:
        return RoleBinding(
            self.id,
            subject_of(self.user_id, self.service_account_id),
            self.role,
            Scope(self.scope, self.project_id, self.environment_id, self.lease_id),
            self.created_at,
            self.granted_by,
        )


_COLUMNS = """id, user_id, service_account_id, role, scope, project_id, environment_id, lease_id, created_at,
  granted_by"""
_INSERT = text("""
INSERT INTO role_bindings (id, organization_id, user_id, service_account_id, role, scope, project_id, environment_id,
  lease_id, created_at, granted_by)
VALUES (:id, :organization_id, :user_id, :service_account_id, :role, :scope, :project_id, :environment_id, :lease_id,
  :now, :granted_by)
ON CONFLICT DO NOTHING
""")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM role_bindings b
WHERE organization_id = :organization_id AND {within("b", lease="lease_id")}
  AND (CAST(:of_all AS boolean) OR user_id = :user_id OR service_account_id = :service_account_id)
  AND (CAST(:after_at AS timestamptz) IS NULL OR (created_at, id) > (:after_at, CAST(:after_id AS uuid)))
ORDER BY created_at, id LIMIT :limit
""")
_OF_SUBJECT = text(f"""
SELECT {_COLUMNS} FROM role_bindings
WHERE organization_id = :organization_id AND (user_id = :user_id OR service_account_id = :service_account_id)
ORDER BY id
""")
_GET = text(f"SELECT {_COLUMNS} FROM role_bindings WHERE organization_id = :organization_id AND id = :id")
_DELETE = text("DELETE FROM role_bindings WHERE organization_id = :organization_id AND id = :id")
_DELETE_ALL_OF = text("""
DELETE FROM role_bindings
WHERE organization_id = :organization_id AND (user_id = :user_id OR service_account_id = :service_account_id)
""")
_OTHER_OWNERS = text(f"""
SELECT count(*) FROM role_bindings b LEFT JOIN users u ON u.id = b.user_id
LEFT JOIN service_accounts s ON s.id = b.service_account_id
WHERE b.organization_id = :organization_id AND b.role = '{Role.OWNER}' AND b.scope = '{ScopeKind.ORGANIZATION}'
  AND {among("coalesce(u.state, s.state)", MAY_ACT)}
  AND coalesce(b.user_id, b.service_account_id) <> :subject_id
""")


async def insert(connection: Connection, organization_id: OrganizationId, binding: RoleBinding) -> bool:
    """Store a binding. False when the subject has this role at this scope already, or any role of the platform."""
    scope = binding.scope
    return bool(
        await write(
            connection,
            _INSERT,
            id=binding.id,
            organization_id=organization_id,
            **subject_values(binding.subject),
            role=binding.role.value,
            scope=scope.kind.value,
            project_id=scope.project_id,
            environment_id=scope.environment_id,
            lease_id=scope.lease_id,
            now=binding.created_at,
            granted_by=binding.granted_by,
        )
    )


async def page(
    connection: Connection,
    organization_id: OrganizationId,
    reach: Reach,
    *,
    of: Subject | None,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> list[RoleBinding]:
    """Bindings whose scope is within reach, oldest first; with `of`, only those of the subject."""
    rows = await read(
        connection,
        _PAGE,
        _Row,
        organization_id=organization_id,
        **reach_values(reach),
        of_all=of is None,
        **(subject_values(of) if of else {"user_id": None, "service_account_id": None}),
        after_at=after[0] if after else None,
        after_id=after[1] if after else None,
        limit=limit,
    )
    return [row.binding for row in rows]


async def of_subject(
    connection: Connection, organization_id: OrganizationId, subject: Subject
) -> Sequence[HeldRole]:
    """All roles of a subject."""
    values = {"organization_id": organization_id, **subject_values(subject)}
    bindings = [row.binding for row in await read(connection, _OF_SUBJECT, _Row, **values)]
    return [HeldRole(binding.id, binding.role, binding.scope) for binding in bindings]


async def get(
    connection: Connection, organization_id: OrganizationId, binding_id: UUID
) -> RoleBinding | None:
    row = await read_one(connection, _GET, _Row, organization_id=organization_id, id=binding_id)
    return row.binding if row else None


async def delete(connection: Connection, organization_id: OrganizationId, binding_id: UUID) -> bool:
    return bool(await write(connection, _DELETE, organization_id=organization_id, id=binding_id))


async def delete_all_of(connection: Connection, organization_id: OrganizationId, subject: Subject) -> int:
    """End every role of a subject. Returns how many."""
    values = {"organization_id": organization_id, **subject_values(subject)}
    return await write(connection, _DELETE_ALL_OF, **values)


async def other_owners(connection: Connection, organization_id: OrganizationId, subject: Subject) -> int:
    """How many subjects besides this one own the organization and may act."""
    values = {"organization_id": organization_id, "subject_id": subject.id}
    return await read_one(connection, _OTHER_OWNERS, int, **values) or 0
