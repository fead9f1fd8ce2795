"""A project divides an organization's leases and their costs. Every organization has a default one."""

from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.ids import OrganizationId, Prefix, ProjectId

DEFAULT_NAME = "default"
"""The name of every organization's first project. A lease belongs to it when its request names no project."""


def looks_like_an_id(name: str) -> bool:
    """Whether the word is read as a project's id wherever a project is named, so that no project may be called so."""
    return name.startswith(f"{Prefix.PROJECT}_")


@dataclass(frozen=True, slots=True)
class Project:
    id: ProjectId
    organization_id: OrganizationId
    name: str
    """Unique in its organization."""
    created_at: datetime
