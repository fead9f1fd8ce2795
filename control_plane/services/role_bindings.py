"""Role bindings: grant roles, list them, end them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import (
    environments,
    issued,
    kubeconfigs,
    lease_overviews,
    role_bindings,
    ssh_certificates,
)
from control_plane.db.connection import Connection
from control_plane.domain.access import NOWHERE, Grant, HeldRole, Principal, Reach, reaches, separated
from control_plane.domain.ids import (
    EnvironmentId,
    LeaseId,
    MalformedIdError,
    OrganizationId,
    Prefix,
    RoleBindingId,
    off_wire,
)
from control_plane.domain.kubeconfig import Revocation as KubeconfigRevocation
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.role import Role
from control_plane.domain.role_binding import RoleBinding
from control_plane.domain.role_permissions import permissions_of, roles_at
from control_plane.domain.scope import ORGANIZATION, PLATFORM, Scope, ScopeKind
from control_plane.domain.ssh_certificate import Revocation
from control_plane.domain.subject import Subject
from control_plane.services import projects, subjects
from control_plane.services.environments import scope_of
from control_plane.world import World


@dataclass(frozen=True, slots=True)
class WantedScope:
    """The scope that a request names: its kind, and the project (name or id), environment or lease (id) if any."""

    kind: ScopeKind
    id: str | None


async def create(
    connection: Connection,
    world: World,
    principal: Principal,
    subject: Subject,
    *,
    role: Role,
    wanted: WantedScope,
) -> RoleBinding | Refused:
    """Grant a role to somebody else of the principal's organization, with no more than the principal may do itself."""
    if subject == principal.subject:
        return Refused(RefusalCode.NOT_YOURSELF, "Nobody grants a role to themselves; ask somebody else.")
    if await subjects.find(connection, principal.organization_id, subject, lock=True) is None:
        why = f"There is no {subject.kind.replace('_', ' ')} {subject.on_wire}, or it is removed."
        return Refused(RefusalCode.SUBJECT_UNKNOWN, why)
    scope = await _resolved(connection, principal, wanted)
    if isinstance(scope, Refused):
        return scope
    refused = await _not_grantable(connection, principal, subject, role, scope)
    if refused is not None:
        return refused
    binding = RoleBinding(
        RoleBindingId(world.new_id()), subject, role, scope, world.now(), principal.subject.on_wire
    )
    if await role_bindings.insert(connection, principal.organization_id, binding):
        return binding
    return Refused(RefusalCode.ROLE_HELD, f"{subject.on_wire} has the role `{role}` there already.")


async def _not_grantable(
    connection: Connection, principal: Principal, subject: Subject, role: Role, scope: Scope
) -> Refused | None:
    roles = roles_at(scope.kind)
    if role not in roles:
        known = ", ".join(sorted(roles))
        why = (
            f"The role `{role}` cannot be bound to a scope of the kind `{scope.kind}`; choose one of {known}."
        )
        return Refused(RefusalCode.SCOPE_INVALID, why)
    held = HeldRole(RoleBindingId(UUID(int=0)), role, scope)
    granted = (Grant(held, scope, permissions_of(role, scope.kind) | {Permission.ROLE_BINDINGS_CREATE}),)
    refused = subjects.beyond(principal, granted, f"The role `{role}`, and granting it,")
    if refused is not None:
        return refused
    before = await subjects.roles_of(connection, principal.organization_id, subject)
    if not separated([*before, held]) and held.role not in {one.role for one in before if one.scope == scope}:
        why = (
            "At platform scope a subject has one role at most, so that nobody runs machines and posts money."
        )
        return Refused(RefusalCode.DUTIES_NOT_SEPARATED, why)
    return None


async def _resolved(connection: Connection, principal: Principal, wanted: WantedScope) -> Scope | Refused:
    """The scope of a request, which has to lie within the principal's reach."""
    reach = principal.reach(Permission.ROLE_BINDINGS_CREATE)
    needs_id = wanted.kind not in {ScopeKind.PLATFORM, ScopeKind.ORGANIZATION}
    if needs_id != (wanted.id is not None):
        why = f"A scope of the kind `{wanted.kind}` has {'an' if needs_id else 'no'} `id`."
        return Refused(RefusalCode.SCOPE_INVALID, why)
    if wanted.kind is ScopeKind.PLATFORM:
        if principal.platform:
            return PLATFORM
        why = "Only subjects of the platform's organization have roles at platform scope."
        return Refused(RefusalCode.SCOPE_INVALID, why)
    if wanted.id is None:
        return ORGANIZATION
    return await _within(connection, principal.organization_id, reach, wanted.kind, wanted.id)


async def _within(
    connection: Connection, organization_id: OrganizationId, reach: Reach, kind: ScopeKind, text: str
) -> Scope | Refused:
    if kind is ScopeKind.PROJECT:
        project = await projects.named(connection, organization_id, text, reach=reach)
        return project if isinstance(project, Refused) else Scope(kind, project.id)
    scope: Scope | None = None
    try:
        if kind is ScopeKind.ENVIRONMENT:
            environment_id = EnvironmentId(off_wire(Prefix.ENVIRONMENT, text))
            environment = await environments.get(connection, organization_id, environment_id)
            scope = scope_of(environment) if environment else None
        else:
            lease_id = LeaseId(off_wire(Prefix.LEASE, text))
            overview = await lease_overviews.show(connection, organization_id, lease_id)
            scope = overview.lease.scope if overview else None
    except MalformedIdError:
        pass  # It names nothing.
    if scope is not None and reach.contains(scope):
        return scope
    code = RefusalCode.ENVIRONMENT_UNKNOWN if kind is ScopeKind.ENVIRONMENT else RefusalCode.LEASE_UNKNOWN
    return Refused(code, f"There is no {kind} with the id {text[:60]!r}.")


async def page(
    world: World,
    organization_id: OrganizationId,
    *,
    reach: Reach,
    of: Subject | None,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[RoleBinding]:
    """Bindings within reach, oldest first; with `of`, only those of the subject."""
    async with world.db.reading(organization_id) as connection:
        return await role_bindings.page(connection, organization_id, reach, of=of, after=after, limit=limit)


async def delete(
    connection: Connection, principal: Principal, binding_id: UUID, *, now: datetime
) -> RoleBinding | Refused:
    """End a role, and with it the SSH certificates and kubeconfigs that no other role allows.

    One's own can be given up; another's must include no more than the principal may do.
    """
    organization_id = principal.organization_id
    binding = await role_bindings.get(connection, organization_id, binding_id)
    if binding is None or not principal.reach(Permission.ROLE_BINDINGS_DELETE).contains(binding.scope):
        return Refused(RefusalCode.NOT_FOUND, "There is no such role binding.")
    held = HeldRole(binding.id, binding.role, binding.scope)
    granted = (Grant(held, held.scope, permissions_of(held.role, held.scope.kind)),)
    refused = subjects.beyond(principal, granted, f"The role `{binding.role}`")
    if refused is None:
        refused = await subjects.leaves_no_owner(connection, organization_id, binding.subject, [held])
    if refused is not None:
        return refused
    # Waits for a request of the subject's for a certificate or a kubeconfig, which relies on its roles.
    await subjects.find(connection, organization_id, binding.subject, lock=True)
    await role_bindings.delete(connection, organization_id, binding_id)
    await _revoke_access(connection, principal, binding.subject, now=now)
    return binding


async def _revoke_access(
    connection: Connection, principal: Principal, subject: Subject, *, now: datetime
) -> None:
    """Revoke what opens leases to a subject, or namespaces, if no role which is left lets it have that."""
    organization_id = principal.organization_id
    open_to = reaches(await subjects.grants_to(connection, principal, subject))
    reach = open_to.get(Permission.SSH_CERTIFICATES_CREATE, NOWHERE)
    live = await ssh_certificates.live_of_subject(connection, organization_id, subject, now=now)
    beyond = [opening.id for opening in live if not reach.contains(opening.scope)]
    await issued.revoke_these(
        connection, ssh_certificates.REVOCABLE, organization_id, beyond, Revocation.ROLE_ENDED, now=now
    )
    reach = open_to.get(Permission.KUBECONFIGS_CREATE, NOWHERE)
    opening = await kubeconfigs.live_of_subject(connection, organization_id, subject, now=now)
    outside = [each.id for each in opening if not reach.contains(each.scope)]
    why = KubeconfigRevocation.ROLE_ENDED
    await issued.revoke_these(connection, kubeconfigs.REVOCABLE, organization_id, outside, why, now=now)
