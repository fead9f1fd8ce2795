"""Who may do what, and where: the one place that decides.

A subject has roles, each at a scope. A credential of the subject (an API key, a session) can narrow them, to some
permissions and to some projects. What remains is a reach for every permission: everywhere in the organization, some
projects, environments and leases, or the whole installation. Handlers ask with `decide`, and pass the reach on to the
queries, so that what is out of reach is not found.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Self
from uuid import UUID

from control_plane.domain.ids import EnvironmentId, LeaseId, OrganizationId, ProjectId, RoleBindingId
from control_plane.domain.organization import OrganizationState
from control_plane.domain.permission import EVERYBODYS, Permission
from control_plane.domain.role import Role
from control_plane.domain.role_permissions import permissions_of, roles_at
from control_plane.domain.scope import Scope, ScopeKind, is_within
from control_plane.domain.subject import Subject


@dataclass(frozen=True, slots=True)
class Reach:
    """Where somebody has a permission. It contains a thing that lies in any of these."""

    platform: bool = False
    organization: bool = False
    """Everywhere in the subject's own organization."""
    projects: frozenset[ProjectId] = frozenset()
    environments: frozenset[EnvironmentId] = frozenset()
    leases: frozenset[LeaseId] = frozenset()
    partly: frozenset[ProjectId] = frozenset()
    """The projects that these environments and leases lie in."""

    @classmethod
    def of(cls, scopes: Iterable[Scope]) -> Self:
        held = tuple(scopes)
        kinds = {scope.kind for scope in held}
        return cls(
            platform=ScopeKind.PLATFORM in kinds,
            organization=bool(kinds & {ScopeKind.PLATFORM, ScopeKind.ORGANIZATION}),
            projects=frozenset(
                scope.project_id for scope in held if scope.kind is ScopeKind.PROJECT and scope.project_id
            ),
            environments=frozenset(
                scope.environment_id
                for scope in held
                if scope.kind is ScopeKind.ENVIRONMENT and scope.environment_id
            ),
            leases=frozenset(
                scope.lease_id for scope in held if scope.kind is ScopeKind.LEASE and scope.lease_id
            ),
            partly=frozenset(
                scope.project_id
                for scope in held
                if scope.kind in {ScopeKind.ENVIRONMENT, ScopeKind.LEASE} and scope.project_id
            ),
        )

    def enters(self, project_id: ProjectId) -> bool:
        """Whether it contains a project or a part of it."""
        return self.organization or project_id in self.projects or project_id in self.partly

    def contains(self, scope: Scope) -> bool:
        """Whether a scope of the own organization, or the platform, lies within reach."""
        if scope.kind is ScopeKind.PLATFORM:
            return self.platform
        return (
            self.organization
            or scope.project_id in self.projects
            or scope.environment_id in self.environments
            or scope.lease_id in self.leases
        )

    def has(self, kind: ScopeKind) -> bool:
        """Whether it contains anything of this kind at all, or the whole organization or platform."""
        if kind is ScopeKind.PLATFORM:
            return self.platform
        if self.organization or kind is ScopeKind.ORGANIZATION:
            return self.organization
        return bool(
            self.projects
            or (self.environments and is_within(kind, ScopeKind.ENVIRONMENT))
            or (self.leases and kind is ScopeKind.LEASE)
        )


NOWHERE = Reach()
EVERYWHERE = Reach(organization=True)
"""The whole organization: for code that acts for the organization itself."""


@dataclass(frozen=True, slots=True)
class HeldRole:
    """A role of a subject at a scope."""

    binding_id: RoleBindingId
    role: Role
    scope: Scope


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What a credential is limited to; None: as its subject."""

    permissions: frozenset[Permission] | None = None
    projects: frozenset[ProjectId] | None = None

    def scopes_of(self, scope: Scope) -> tuple[Scope, ...]:
        """What is left of a scope: nothing outside the projects, and of wider scopes the projects."""
        if self.projects is None:
            return (scope,)
        if scope.project_id is not None:
            return (scope,) if scope.project_id in self.projects else ()
        return tuple(Scope(ScopeKind.PROJECT, project_id=project) for project in sorted(self.projects))

    def permissions_of(self, permissions: frozenset[Permission]) -> frozenset[Permission]:
        return permissions if self.permissions is None else permissions & self.permissions


UNLIMITED = Narrowing()


@dataclass(frozen=True, slots=True)
class Grant:
    """What one role gives after its credential has narrowed it."""

    by: HeldRole
    scope: Scope
    permissions: frozenset[Permission]


def grants_of(
    roles: Iterable[HeldRole], narrowing: Narrowing = UNLIMITED, *, platform: bool
) -> tuple[Grant, ...]:
    """What roles give through a credential. `platform`: the subject is of the platform's organization.

    A role at platform scope counts only there. Limits to projects leave of a wider role what it gives in a project.
    """
    grants = []
    for held in roles:
        if held.scope.kind is ScopeKind.PLATFORM and not platform:
            continue
        given = permissions_of(held.role, held.scope.kind)
        for scope in narrowing.scopes_of(held.scope):
            at_scope = given if scope is held.scope else given & _at(scope.kind)
            grants.append(Grant(held, scope, narrowing.permissions_of(at_scope)))
    return tuple(grants)


def _at(kind: ScopeKind) -> frozenset[Permission]:
    """Every permission that any role can give at a scope of this kind."""
    return frozenset().union(*(permissions_of(role, kind) for role in roles_at(kind)))


def reaches(grants: Iterable[Grant]) -> Mapping[Permission, Reach]:
    """Where each permission is given."""
    scopes: dict[Permission, list[Scope]] = {}
    for grant in grants:
        for permission in grant.permissions:
            scopes.setdefault(permission, []).append(grant.scope)
    return {permission: Reach.of(held) for permission, held in scopes.items()}


@dataclass(frozen=True, slots=True)
class Holder:
    """Whose a credential was that opens nothing any more, for the audit log."""

    organization_id: OrganizationId
    subject: Subject
    credential_name: str | None
    """The credential's id on the wire; None when there was none, as in a sign-in."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: a subject of an organization, through one of its credentials."""

    organization_id: OrganizationId
    platform: bool
    """Whether the organization is the platform's."""
    organization_state: OrganizationState
    subject: Subject
    credential_id: UUID
    credential_name: str
    """The credential's id on the wire, for the log."""
    roles: tuple[HeldRole, ...]
    narrowing: Narrowing = UNLIMITED
    expires_at: datetime | None = None
    """When the credential ends."""
    confined_to: frozenset[Permission] | None = None
    """The permissions that an access token is limited to, below the limits of its credential; None: all of these."""
    grants: tuple[Grant, ...] = field(init=False, repr=False, compare=False)
    """What its roles give through the credential."""
    where: Mapping[Permission, Reach] = field(init=False, repr=False, compare=False)
    """Each permission, with its reach."""

    def __post_init__(self) -> None:
        grants = grants_of(self.roles, self.narrowing, platform=self.platform)
        object.__setattr__(self, "grants", grants)
        object.__setattr__(self, "where", reaches(grants))

    @property
    def holder(self) -> Holder:
        return Holder(self.organization_id, self.subject, self.credential_name)

    @property
    def fingerprint(self) -> str:
        """A text that differs when the credential may do anything else."""
        found = sorted((str(grant.scope), *sorted(grant.permissions)) for grant in self.grants)
        return f"{self.subject.on_wire} {found}"

    def may(self, permission: Permission) -> bool:
        """Whether it has a permission anywhere."""
        return permission in EVERYBODYS or permission in self.where

    def reach(self, permission: Permission) -> Reach:
        return self.where.get(permission, NOWHERE)

    def covers(self, grants: Iterable[Grant]) -> bool:
        """Whether it may do everything that these grants allow, where they allow it."""
        return self.missing(grants) is None

    def missing(self, grants: Iterable[Grant]) -> Permission | None:
        """The first permission of these grants that it lacks where they give it; None when it covers them."""
        return next(
            (
                permission
                for grant in grants
                for permission in sorted(grant.permissions)
                if not self.reach(permission).contains(grant.scope)
            ),
            None,
        )


def confined(principal: Principal, to: frozenset[Permission] | None) -> Principal:
    """The principal with no more than these permissions: what is read of a credential again stays as narrow."""
    if to is None:
        return principal
    held = principal.narrowing
    return replace(
        principal,
        narrowing=Narrowing(held.permissions_of(to), held.projects),
        confined_to=to,
    )


@dataclass(frozen=True, slots=True)
class Allowed:
    """The rule that allows: the role by which the permission is given, and where. None: everybody has it."""

    by: HeldRole | None
    reach: Reach


@dataclass(frozen=True, slots=True)
class Denied:
    """What is missing, as a sentence."""

    permission: Permission
    why: str


def decide(principal: Principal, permission: Permission, kind: ScopeKind) -> Allowed | Denied:
    """Whether a principal has a permission at any scope of this kind. What is out of reach is then not found."""
    if permission in EVERYBODYS:
        return Allowed(None, NOWHERE)
    reach = principal.where.get(permission)
    if reach is not None and reach.has(kind):
        by = next(grant.by for grant in principal.grants if _gives(grant, permission, kind))
        return Allowed(by, reach)
    lacking = _what_is_missing(principal, permission, kind)
    return Denied(permission, f"This needs the permission `{permission}`{lacking}")


def _gives(grant: Grant, permission: Permission, kind: ScopeKind) -> bool:
    return permission in grant.permissions and Reach.of([grant.scope]).has(kind)


def _what_is_missing(principal: Principal, permission: Permission, kind: ScopeKind) -> str:
    unlimited = reaches(grants_of(principal.roles, platform=principal.platform)).get(permission, NOWHERE)
    if unlimited.has(kind):
        return ", which your roles include and the limits of your API key or token do not."
    if unlimited != NOWHERE:
        return f" for a whole {kind}, and you have it for less."
    narrow = sorted({held.role for held in principal.roles if permission in permissions_of(held.role, kind)})
    if narrow:
        return f" for a whole {kind}, and your role `{narrow[0]}` is for less."
    having = [f"`{role}`" for role in roles_at(kind) if permission in permissions_of(role, kind)]
    held = sorted({held.role for held in principal.roles})
    yours = (
        f"your roles ({', '.join(f'`{role}`' for role in held)}) do not include"
        if held
        else "you have no role"
    )
    place = "at platform scope" if kind is ScopeKind.PLATFORM else "of an organization"
    lacking = f", which {yours}" if held else f", and {yours}"
    return f"{lacking}; the roles {place} that include it: {', '.join(having)}."


def separated(roles: Iterable[HeldRole]) -> bool:
    """Whether duties are separated: at platform scope a subject has one role at most.

    So nobody runs machines and posts money, and nobody audits what they do themselves.
    """
    return sum(held.scope.kind is ScopeKind.PLATFORM for held in roles) <= 1
