"""Role bindings, and who one is."""

from typing import Annotated, Literal

from msgspec import Meta

from control_plane.wire.common import NextCursor, Request, Timestamp, View
from control_plane.wire.vocabulary import (
    ApiKeyIdText,
    EnvironmentIdText,
    LeaseIdText,
    OrganizationIdText,
    ProjectIdText,
    RoleBindingIdText,
    RoleWord,
    ScopeKindWord,
    SubjectIdText,
    SubjectKindWord,
)

SUBJECT_PATTERN = r"^(user|sa)_[0-9a-f]{32}$(?!\n)"
SubjectText = Annotated[
    str,
    Meta(
        pattern=SUBJECT_PATTERN,
        description="The id of a user or of a service account.",
        examples=["user_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"],
        extra={"must": "the id of a user (`user_...`) or of a service account (`sa_...`)"},
    ),
]


class ScopeRequest(Request):
    """Where a role is to be bound."""

    kind: Literal["platform", "organization", "project", "environment", "lease"]
    """What kind of thing it is."""
    id: Annotated[str, Meta(min_length=1, max_length=100, examples=["research"])] | None = None
    """The name or id of a project, the id of an environment or a lease; left out for the organization and platform."""


class RoleBindingRequest(Request):
    """A role to be granted."""

    subject: SubjectText
    """Who gets it: the id of a user or of a service account."""
    role: Literal["owner", "admin", "member", "viewer", "finance", "operator", "auditor"]
    """The role."""
    scope: ScopeRequest
    """Where it applies."""


class ScopeView(View):
    """Where a role applies."""

    kind: ScopeKindWord
    """What kind of thing it is."""
    project_id: ProjectIdText | None
    """The project, or the one that the environment or the lease lies in."""
    environment_id: EnvironmentIdText | None
    """The environment, or the one that the lease lies in."""
    lease_id: LeaseIdText | None
    """The lease."""


class RoleBindingView(View):
    """A role of a subject at a scope."""

    id: RoleBindingIdText
    """The id of the binding."""
    subject: SubjectIdText
    """Who has the role."""
    role: RoleWord
    """The role."""
    scope: ScopeView
    """Where it applies."""
    granted_by: str
    """Who granted it: the id of a user or a service account, or `administrator`."""
    created_at: Timestamp
    """When it was granted."""


class RoleBindingPage(View):
    """A page of role bindings."""

    items: tuple[RoleBindingView, ...]
    """The bindings, oldest first."""
    next_cursor: NextCursor | None


class HeldRoleView(View):
    """A role of the caller."""

    id: RoleBindingIdText
    """The id of the binding."""
    role: RoleWord
    """The role."""
    scope: ScopeView
    """Where it applies."""


class PermissionView(View):
    """A permission of the caller, and where it has it."""

    permission: str
    """The permission, such as `leases.create`."""
    everywhere: bool
    """Whether it is for the whole organization. Permissions that concern the installation are for all of it."""
    project_ids: tuple[ProjectIdText, ...]
    """Otherwise the projects."""
    environment_ids: tuple[EnvironmentIdText, ...]
    """And the environments."""
    lease_ids: tuple[LeaseIdText, ...]
    """And the leases."""


class MeView(View):
    """Who the caller is, and what it may do where."""

    subject: SubjectIdText
    """The user or the service account."""
    kind: SubjectKindWord
    """Which of the two it is."""
    name: str
    """Its name."""
    email: str | None
    """The email address of a user; null for a service account."""
    organization_id: OrganizationIdText
    """Its organization."""
    organization: str
    """The name of the organization."""
    api_key_id: ApiKeyIdText
    """The API key that asks."""
    api_key_expires_at: Timestamp | None
    """When that key ends; null when it does not."""
    roles: tuple[HeldRoleView, ...]
    """The roles of the subject."""
    permissions: tuple[PermissionView, ...]
    """What it may do with this key: what its roles give, less what the key is limited to."""
