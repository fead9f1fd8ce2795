"""Role bindings on the wire, and who one is."""

from uuid import UUID

from control_plane.domain.access import HeldRole, Reach
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.permission import Permission
from control_plane.domain.role_binding import RoleBinding
from control_plane.domain.scope import Scope
from control_plane.domain.user import User
from control_plane.services.me import Me
from control_plane.wire.roles import HeldRoleView, MeView, PermissionView, RoleBindingView, ScopeView


def scope_view(scope: Scope) -> ScopeView:
    return ScopeView(
        kind=scope.kind.value,
        project_id=_id(Prefix.PROJECT, scope.project_id),
        environment_id=_id(Prefix.ENVIRONMENT, scope.environment_id),
        lease_id=_id(Prefix.LEASE, scope.lease_id),
    )


def _id(prefix: Prefix, value: UUID | None) -> str | None:
    return None if value is None else on_wire(prefix, value)


def role_binding_view(binding: RoleBinding) -> RoleBindingView:
    return RoleBindingView(
        id=on_wire(Prefix.ROLE_BINDING, binding.id),
        subject=binding.subject.on_wire,
        role=binding.role.value,
        scope=scope_view(binding.scope),
        granted_by=binding.granted_by,
        created_at=binding.created_at,
    )


def me_view(me: Me) -> MeView:
    principal = me.principal
    return MeView(
        subject=principal.subject.on_wire,
        kind=principal.subject.kind.value,
        name=me.subject.name,
        email=me.subject.email if isinstance(me.subject, User) else None,
        organization_id=on_wire(Prefix.ORGANIZATION, principal.organization_id),
        organization=me.organization,
        api_key_id=principal.credential_name,
        api_key_expires_at=principal.expires_at,
        roles=tuple(_held(role) for role in principal.roles),
        permissions=tuple(_permission(name, reach) for name, reach in sorted(principal.where.items())),
    )


def _held(role: HeldRole) -> HeldRoleView:
    return HeldRoleView(
        id=on_wire(Prefix.ROLE_BINDING, role.binding_id), role=role.role.value, scope=scope_view(role.scope)
    )


def _permission(permission: Permission, reach: Reach) -> PermissionView:
    part = not reach.organization
    return PermissionView(
        permission=permission.value,
        everywhere=reach.organization,
        project_ids=tuple(on_wire(Prefix.PROJECT, project) for project in sorted(reach.projects) if part),
        environment_ids=tuple(
            on_wire(Prefix.ENVIRONMENT, environment) for environment in sorted(reach.environments) if part
        ),
        lease_ids=tuple(on_wire(Prefix.LEASE, lease) for lease in sorted(reach.leases) if part),
    )
