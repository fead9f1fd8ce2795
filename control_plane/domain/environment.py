"""An environment is a named part of a project, such as `prod` or `dev`. A lease belongs to one, for its whole life."""

from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.ids import EnvironmentId, OrganizationId, Prefix, ProjectId

DEFAULT_NAME = "default"
"""The name of every project's first environment. A lease belongs to it when its request names no environment."""


def looks_like_an_id(name: str) -> bool:
    """Whether the word is read as an environment's id wherever one is named, so that none may be called so."""
    return name.startswith(f"{Prefix.ENVIRONMENT}_")


@dataclass(frozen=True, slots=True)
class Environment:
    id: EnvironmentId
    organization_id: OrganizationId
    project_id: ProjectId
    name: str
    """Unique in its project."""
    created_at: datetime
