"""Queries on role bindings."""

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import write
from control_plane.db.subjects import subject_values
from control_plane.domain.ids import OrganizationId
from control_plane.domain.role_binding import RoleBinding

_INSERT = text("""
INSERT INTO role_bindings (id, organization_id, user_id, service_account_id, role, scope, project_id, environment_id,
  lease_id, created_at, granted_by)
VALUES (:id, :organization_id, :user_id, :service_account_id, :role, :scope, :project_id, :environment_id, :lease_id,
  :now, :granted_by)
ON CONFLICT ON CONSTRAINT uq_role_bindings_once DO NOTHING
""")


async def insert(connection: Connection, organization_id: OrganizationId, binding: RoleBinding) -> bool:
    """Store a binding. False when the subject has this role at this scope already."""
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
