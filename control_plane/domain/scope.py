"""Scopes: where a role is bound. A scope lies inside wider ones: a lease in an environment, that in a project."""

from dataclasses import dataclass
from enum import StrEnum

from control_plane.domain.ids import EnvironmentId, LeaseId, ProjectId


class ScopeKind(StrEnum):
    PLATFORM = "platform"
    """The installation: machines, providers, every organization. Only for subjects of the platform's organization."""
    ORGANIZATION = "organization"
    """The subject's own organization."""
    PROJECT = "project"
    ENVIRONMENT = "environment"
    LEASE = "lease"


WIDEST_FIRST = tuple(ScopeKind)
AT_ANY_SCOPE = ScopeKind.LEASE
"""For what is one's own, and what belongs to no organization: a role at any scope suffices, the narrowest one too."""


def is_within(kind: ScopeKind, wider: ScopeKind) -> bool:
    """Whether a scope of this kind is as narrow as one of the other kind, or narrower."""
    return WIDEST_FIRST.index(kind) >= WIDEST_FIRST.index(wider)


@dataclass(frozen=True, slots=True)
class Scope:
    """One scope in an organization, with what it lies in: an environment has its project, a lease has both."""

    kind: ScopeKind
    project_id: ProjectId | None = None
    environment_id: EnvironmentId | None = None
    lease_id: LeaseId | None = None


PLATFORM = Scope(ScopeKind.PLATFORM)
ORGANIZATION = Scope(ScopeKind.ORGANIZATION)
